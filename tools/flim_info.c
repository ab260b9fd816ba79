/* flim_info FILE...: what is in a data file, and whether train_cv will take it (data/info.h). */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/tool.h"
#include "core/try.h"
#include "data/cell_figures.h"
#include "data/info.h"

typedef struct options {
    char *axes, *json, *cells;
    bool scan, together, verbose, force, allow_external;
    int64_t workers;
} options;

#define FIELD(name) offsetof(options, name)
static const flim_flag_row rows[] = {
    {"Reading", "axes", FLIM_VALUE_TEXT, FIELD(axes), "NTYX", "ORDER",
     .help = "order of the file's axes: N cells, T time, Y, X"},
    {NULL, "allow-external", FLIM_VALUE_SWITCH, FIELD(allow_external), "false", NULL,
     .help = "read files outside of the data file's folder, too, where it leads to them (links, views, external storage)"},
    {NULL, "workers", FLIM_VALUE_INTEGER, FIELD(workers), "8", "N", .help = "threads that read", .allowed = ">= 1, <= 1024"},
    {NULL, "together", FLIM_VALUE_SWITCH, FIELD(together), "false", NULL,
     .help = "all files as one list of cells, as in train_cv"},
    {"Output", "scan", FLIM_VALUE_SWITCH, FIELD(scan), "false", NULL, .help = "list every bad cell, not only the first five"},
    {NULL, "json", FLIM_VALUE_TEXT, FIELD(json), "", "FILE",
     .help = "the same as a JSON array, one entry per report, instead of the text", .writes = true},
    {NULL, "cells", FLIM_VALUE_TEXT, FIELD(cells), "", "FILE",
     .help =
         "a CSV row per cell: photons, mask, peak, entropy, arrival time, SNR; lists made of it are for train_cv --exclude",
     .writes = true},
    {NULL, "force", FLIM_VALUE_SWITCH, FIELD(force), "false", NULL, .help = "overwrite a FILE that flim_info has not made"},
    {NULL, "verbose", FLIM_VALUE_SWITCH, FIELD(verbose), "false", NULL, .help = "print HDF5's own error stacks"},
};
static const flim_example examples[] = {
    {"flim_info data/flim.h5", "all that is to be known of a file before training"},
    {"flim_info data/flim.h5 --cells cells.csv", "a table with one row per cell"},
    {NULL, NULL},
};
static const flim_flag_table table = {"flim_info",
                                      "flim_info FILE... [flag]...",
                                      "Reads every cell of a data file and prints what is in it, what would mislead "
                                      "training, and\nwhether train_cv can use it. Exit code 3 if it cannot.",
                                      rows,
                                      (int)(sizeof rows / sizeof rows[0]),
                                      .operand = "FILE",
                                      .purpose = "what is in a FLIM data file, and whether train_cv can use it",
                                      .examples = examples,
                                      .see_also = "flim_import(1), flim_repack(1), train_cv(1)"};

static flim_status inspect(void *read, const flim_string_list *files, console *screen, flim_error *err)
{
    const options *o = read;
    const flim_log log = console_log(screen);
    flim_status status = FLIM_OK, found = FLIM_OK;
    if (files->n == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "a FILE is needed, for example flim_info data/flim.h5 (--help lists all flags)");
    }
    const int step = o->together ? files->n : 1;
    if (o->cells[0] && (files->n > step || strcmp(o->cells, o->json) == 0)) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--cells %s: one table is of one FILE, or of several with --together, and is not --json's",
                         o->cells);
    }
    flim_json *all = flim_json_array();
    const flim_data_report_options how = {.axes = o->axes,
                                          .allow_external = o->allow_external,
                                          .workers = (int)o->workers,
                                          .most_bad = o->scan ? INT64_MAX : 5,
                                          .stop = console_catch_signals(),
                                          .hdf5_errors = o->verbose ? &log : NULL};
    const flim_output output = {.path = o->json,
                                .kind = "a report of flim_info",
                                .begins = "[\n  {\n    \"paths\": ",
                                .input = (const char *const *)files->item,
                                .n_inputs = files->n,
                                .force = o->force,
                                .stop = how.stop};
    flim_output cells = output;
    cells.path = o->cells;
    cells.kind = "a table of cells of flim_info";
    cells.begins = FLIM_CELL_FIGURES_HEAD;
    const bool alone = flim_file_is_standard_output(o->json) || flim_file_is_standard_output(o->cells);
    FLIM_TRY_DONE(o->cells[0] ? flim_output_check(&cells, err) : FLIM_OK);
    FLIM_TRY_DONE(o->json[0] ? flim_output_check(&output, err) : FLIM_OK);
    for (int i = 0; i < files->n; i += step) {
        flim_data_report *report = NULL;
        FLIM_TRY_DONE(flim_data_report_create((const char *const *)files->item + i, step, &how, &report, err));
        if (!alone) {
            fputs(i ? "\n" : "", console_stream(screen));
            flim_data_report_print(report, console_stream(screen));
        }
        flim_json_add(all, flim_data_report_json(report));
        if (report->refused && found == FLIM_OK) {
            found = flim_fail(err, FLIM_ERROR_DATA, "%s", report->refused);
            if (!alone) {
                console_error_told(screen);
            }
        }
        status = o->cells[0] && report->dataset
                     ? flim_cell_figures_write(report->dataset, (int)o->workers, how.stop, &cells, err)
                     : FLIM_OK;
        flim_data_report_free(report);
        FLIM_TRY_DONE(status);
    }
    FLIM_TRY_DONE(o->json[0] ? flim_json_write_output(all, &output, err) : FLIM_OK);
    status = found;
done:
    flim_json_free(all);
    return status;
}

int main(int argc, char **argv)
{
    options o;
    return tool_main(&table, &o, inspect, argc, argv);
}

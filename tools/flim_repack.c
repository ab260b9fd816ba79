/* flim_repack IN... OUT: rewrites data files in the layout that loads fastest (flim/repack.h). */
#include <inttypes.h>
#include <stdio.h>

#include "common/console.h"
#include "flim/flags.h"
#include "flim/repack.h"
#include "flim/version.h"

typedef struct options {
    char *axes;
    int64_t workers;
} options;

#define FIELD(name) offsetof(options, name)
static const flim_flag_row rows[] = {
    {"Reading", "axes", FLIM_VALUE_TEXT, FIELD(axes), "NTYX", "ORDER",
     .help = "order of the axes of IN: N cells, T time, Y, X; OUT is always NTYX"},
    {NULL, "workers", FLIM_VALUE_INTEGER, FIELD(workers), "8", "N", .help = "threads that read", .allowed = ">= 1, <= 1024"},
};
static const flim_flag_table table = {
    "flim_repack",
    "flim_repack IN... OUT [flag]...",
    "Rewrites a data file (or several as one) with one cell a chunk, shuffle + gzip 4, the smallest integers that\n"
    "fit. Every cell is read back and compared before OUT appears. IN stays as it is.",
    rows,
    (int)(sizeof rows / sizeof rows[0]),
    .operand = "FILE"};

static flim_status repack(const options *o, const flim_string_list *files, console *screen, flim_error *err)
{
    const flim_log log = console_log(screen);
    const flim_repack_options how = {.axes = o->axes, .workers = (int)o->workers, .stop = console_stop_flag(), .log = &log};
    const char *out = files->item[files->n - 1];
    flim_repack_result result;
    flim_status status = flim_repack((const char *const *)files->item, files->n - 1, out, &how, &result, err);
    if (status == FLIM_OK) {
        printf("%s: %" PRId64 " cells as %s, read back and compared; %.1f MB before, %.1f MB now\n", out, result.cells,
               result.type, (double)result.bytes_before / 1e6, (double)result.bytes_after / 1e6);
    }
    return status;
}

int main(int argc, char **argv)
{
    flim_error err = {0};
    options o;
    flim_string_list files = {0};
    flim_flag_action action = FLIM_FLAGS_RUN;
    console screen;
    console_open(&screen, false, false);
    console_catch_signals();
    flim_status status = flim_flag_table_init(&table, &o, &err);
    if (status == FLIM_OK) {
        status = flim_flag_table_parse(&table, &o, argc, argv, &files, &action, &err);
        if (status == FLIM_OK && action == FLIM_FLAGS_HELP) {
            flim_flag_table_help(&table, stdout);
        } else if (status == FLIM_OK && action == FLIM_FLAGS_VERSION) {
            printf("flim_repack %s\n", flim_version());
        } else if (status == FLIM_OK && files.n < 2) {
            status = flim_fail(&err, FLIM_ERROR_USAGE, "IN and OUT are needed, for example flim_repack old.h5 data/flim.h5");
        } else if (status == FLIM_OK) {
            status = repack(&o, &files, &screen, &err);
        }
        flim_flag_table_free(&table, &o);
    }
    flim_string_list_free(&files);
    return console_exit(&screen, "flim_repack", status, &err);
}

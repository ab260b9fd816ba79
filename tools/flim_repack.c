/* flim_repack IN... OUT: rewrites data files in the layout that loads fastest (data/repack.h). */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "common/tool.h"
#include "core/file.h"
#include "core/try.h"
#include "core/text.h"
#include "cv/selection.h"
#include "data/repack.h"

typedef struct options {
    char *axes;
    int64_t workers;
    bool allow_external;
    flim_string_list select, exclude;
    double fraction;
    uint64_t seed;
} options;

#define FIELD(name) offsetof(options, name)
static const flim_flag_row rows[] = {
    {"Reading", "axes", FLIM_VALUE_TEXT, FIELD(axes), "NTYX", "ORDER",
     .help = "order of the axes of IN: N cells, T time, Y, X; OUT is always NTYX"},
    {NULL, "allow-external", FLIM_VALUE_SWITCH, FIELD(allow_external), "false", NULL,
     .help = "read files outside of the data file's folder, too, where it leads to them (links, views, external storage)"},
    {NULL, "workers", FLIM_VALUE_INTEGER, FIELD(workers), "8", "N", .help = "threads that read", .allowed = ">= 1, <= 1024"},
    {"Cells", "select", FLIM_VALUE_LIST, FIELD(select), "", "TERM",
     .help = "copy only cells that fit group=NAME, class=NAME, name=NAME or file=PATH (names or numbers, one per line, or "
             "rows of "
             "flim_info's table); repeatable: of each kind one has to fit"},
    {NULL, "exclude", FLIM_VALUE_LIST, FIELD(exclude), "", "TERM",
     .help = "leave out cells that fit such a term; repeatable"},
    {NULL, "fraction", FLIM_VALUE_REAL, FIELD(fraction), "1", "F",
     .help = "copy this share of the rest of each class, drawn by --seed as train_cv --fraction draws it",
     .allowed = "> 0, <= 1"},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, FIELD(seed), "42", "N", .help = "seed of that draw"},
};
static const flim_example examples[] = {
    {"flim_repack old.h5 data/flim.h5", "the same cells, faster to read"},
    {"flim_repack day1.h5 day2.h5 two_donors.h5 --select group=D1 --select group=D4",
     "the cells of two donors, of two files"},
    {NULL, NULL},
};
static const flim_flag_table table = {
    "flim_repack",
    "flim_repack IN... OUT [flag]...",
    "Rewrites a data file (or several as one) with one cell per chunk, shuffle + gzip 4, the smallest integers that\nfit. "
    "Every cell is read back and compared before OUT appears. IN is not changed.",
    rows,
    (int)(sizeof rows / sizeof rows[0]),
    .operand = "FILE",
    .purpose = "FLIM data files rewritten in the best layout",
    .examples = examples,
    .see_also = "flim_info(1), train_cv(1)"};

static flim_status choose(void *context, const flim_dataset_info *info, bool *left_out, flim_error *err)
{
    return flim_selection_apply(context, info, left_out, err);
}

static flim_status repack(void *read, const flim_string_list *files, console *screen, flim_error *err)
{
    const options *o = read;
    if (files->n < 2) {
        return flim_fail(err, FLIM_ERROR_USAGE, "IN and OUT are needed, for example flim_repack old.h5 data/flim.h5");
    }
    const flim_log log = console_log(screen);
    flim_selection cells = {.select = (const char *const *)o->select.item,
                            .n_select = o->select.n,
                            .exclude = (const char *const *)o->exclude.item,
                            .n_exclude = o->exclude.n,
                            .fraction = o->fraction,
                            .seed = o->seed};
    const bool all = cells.n_select == 0 && cells.n_exclude == 0 && cells.fraction == 1;
    const flim_repack_options how = {.axes = o->axes,
                                     .allow_external = o->allow_external,
                                     .workers = (int)o->workers,
                                     .choose = all ? NULL : choose,
                                     .choose_context = &cells,
                                     .stop = console_catch_signals(),
                                     .log = &log};
    const char *out = files->item[files->n - 1];
    flim_repack_result result;
    if (flim_file_is_standard_output(out)) {
        console_leave_stdout(screen);
    }
    FLIM_TRY(flim_repack((const char *const *)files->item, files->n - 1, out, &how, &result, err));
    if (!all) {
        fprintf(console_stream(screen), "%" PRId64 " of %" PRId64 " cells\n", result.cells, result.cells_before);
    }
    fprintf(console_stream(screen), "%s: %" PRId64 " cell%s as %s, read back and compared; %.1f MB before, %.1f MB now\n",
            out, result.cells, flim_s(result.cells), result.type, (double)result.bytes_before / 1e6,
            (double)result.bytes_after / 1e6);
    return FLIM_OK;
}

int main(int argc, char **argv)
{
    options o;
    return tool_main(&table, &o, repack, argc, argv);
}

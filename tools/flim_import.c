/* flim_import OUT INPUT...: instrument files and arrays as a data file (import/import.h). */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "common/tool.h"
#include "core/file.h"
#include "core/try.h"
#include "core/text.h"
#include "import/import.h"

typedef struct options {
    flim_string_list class_rule;
    flim_import_group group;
    flim_array_axes axes;
    flim_time_axis time_axis;
    char *dataset;
    char *manifest, *mask;
    bool isolated_cells;
    bool align_t0;
    int64_t t0_bin;
    flim_cells_by cells_by;
    flim_crop crop;
    bool mask_counts, keep_border, crop_large;
    int64_t channel, bins, size;
    double range_ns;
} options;

#define FIELD(name) offsetof(options, name)
static const flim_flag_row rows[] = {
    {"Names", "class", FLIM_VALUE_LIST, FIELD(class_rule), "", "TEXT=NAME,...",
     .help = "files whose name contains TEXT are of class NAME, others are skipped and counted; repeatable"},
    {NULL, "group", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, group), "folder", "G",
     .help = "the group (donor) of a cell: the name of its file's folder, of its file, or none",
     .choices = flim_import_group_names},
    {NULL, "isolated-cells", FLIM_VALUE_SWITCH, FIELD(isolated_cells), "false", NULL,
     .help = "the published layout isolated_cells_D1/*.npy: groups D1, D2, ...; --class _in=inactive,_act=active; --size 21, "
             "unless "
             "they are given"},
    {NULL, "manifest", FLIM_VALUE_TEXT, FIELD(manifest), "", "FILE",
     .help = "instead of INPUTs: a CSV file with the columns path and, as needed, mask, group, label and name"},
    {"Fields", "axes", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, axes), "auto", "A",
     .help =
         "axes of bare arrays; auto: the time is the longer of the first and the last, but if only the other leaves a square "
         "plane, it is refused, unless the mask's shape decides",
     .choices = flim_array_axes_names},
    {NULL, "dataset", FLIM_VALUE_TEXT, FIELD(dataset), "", "NAME",
     .help = "the array to read of an HDF5 or MATLAB file that holds several, as in group/counts"},
    {NULL, "time-axis", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, time_axis), "auto", "A",
     .help = "which pages of a TIFF stack are the time, if it has several channels C, planes Z or times T",
     .choices = flim_time_axis_names},
    {NULL, "channel", FLIM_VALUE_INTEGER, FIELD(channel), "all", "N",
     .help = "the channel to use, counted from 1; all: each array is a cell, an instrument file must have only one channel",
     .allowed = ">= 1, <= 65536", .word = "all", .word_value = 0},
    {NULL, "bins", FLIM_VALUE_INTEGER, FIELD(bins), "all", "T",
     .help = "time bins of a cell, by adding up neighbours; must divide the file's", .allowed = ">= 8, <= 65536",
     .word = "all", .word_value = 0},
    {NULL, "size", FLIM_VALUE_INTEGER, FIELD(size), "auto", "N",
     .help =
         "pixels of a cell, N x N; smaller fields are centred, with a mask; auto: 21 with --mask, else that of the fields",
     .allowed = ">= 3, <= 1024", .word = "auto", .word_value = 0},
    {NULL, "time-range-ns", FLIM_VALUE_REAL, FIELD(range_ns), "0", "X",
     .help = "time from the start of the first bin to the end of the last, for files without it; 0 = unknown",
     .allowed = ">= 0"},
    {NULL, "align-t0", FLIM_VALUE_SWITCH, FIELD(align_t0), "false", NULL,
     .help =
         "roll the decay of each cell so that its rising edge is in bin --t0-bin; the data file has the shifts (t0_shift)"},
    {NULL, "t0-bin", FLIM_VALUE_INTEGER, FIELD(t0_bin), "auto", "N",
     .help = "that bin of the cells, counted from 0; auto: an eighth of them", .allowed = ">= 0, <= 65535", .word = "auto",
     .word_value = -1},
    {"Masks", "mask", FLIM_VALUE_TEXT, FIELD(mask), "", "PATTERN",
     .help = "the mask of a field (TIFF, PNG, .npy), from its folder, * being the file's name without its ending, as in "
             "'*_cp_masks.png': each label is a cell. Without a * the path of the mask of one field"},
    {NULL, "cells-by", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, cells_by), "auto", "C",
     .help =
         "a cell is: value, the pixels of one value of the mask; piece, pixels that touch; auto: value, but a mask of one "
         "value in several pieces is refused",
     .choices = flim_cells_by_names},
    {NULL, "crop", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, crop), "centroid", "C",
     .help = "a cell's N x N pixels: around its centroid, or of its bounding box, which is centred and padded",
     .choices = flim_crop_names},
    {NULL, "mask-counts", FLIM_VALUE_SWITCH, FIELD(mask_counts), "false", NULL,
     .help = "zero the counts outside a cell's own pixels; else the surroundings stay, outside its mask"},
    {NULL, "keep-border", FLIM_VALUE_SWITCH, FIELD(keep_border), "false", NULL,
     .help = "take cells that touch the border of the field, too"},
    {NULL, "crop-large", FLIM_VALUE_SWITCH, FIELD(crop_large), "false", NULL,
     .help = "take cells larger than N x N, too, without what is beyond"},
};
static const flim_example examples[] = {
    {"flim_import flim.h5 isolated_cells_D1 isolated_cells_D2 --class _in=quiescent --class _act=activated",
     "cells in folders, one per donor; the file's name says the class"},
    {"flim_import flim.h5 scan.sdt --channel 1", "the first channel of an instrument file"},
    {NULL, NULL},
};
static const flim_flag_table table = {
    "flim_import",
    "flim_import OUT.h5 INPUT... | --manifest FILE [flag]...",
    "Makes a data file for train_cv from instrument files and arrays: Becker & Hickl .sdt, PicoQuant .ptu (images in\n"
    "mode T3), TIFF and OME-TIFF stacks, NumPy's .npy and .npz, MATLAB's .mat and arrays of HDF5 files. An INPUT is\n"
    "a file, or a folder whose files are taken with those of all folders below. Every field is\n"
    "one cell, or has a mask (--mask) whose labels are cells.",
    rows,
    (int)(sizeof rows / sizeof rows[0]),
    .operand = "FILE",
    .purpose = "a FLIM data file from instrument files and arrays",
    .examples = examples,
    .see_also = "flim_info(1), flim_repack(1), train_cv(1)"};

/* "photons: 17673 = 17000 in the cells + 673 outside the lines of the scan or the laser period" */
static void print_photons(const flim_photon_account *a, FILE *out)
{
    const struct {
        uint64_t photons;
        const char *where;
    } part[] = {{a->beyond, "in their cells, but beyond the crop"},
                {a->left_out, "in cells left out"},
                {a->background, "outside all cells"},
                {a->unplaced, "outside the lines of the scan or the laser period"}};
    fprintf(out, "photons: %" PRIu64 " in the files = %" PRIu64 " in the cells", a->total, a->cells);
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        if (part[i].photons > 0) {
            fprintf(out, " + %" PRIu64 " %s", part[i].photons, part[i].where);
        }
    }
    fprintf(out, "\n");
    if (a->copies > 0) {
        fprintf(out,
                "besides, the crops show %" PRIu64 " of these photons around the cells, outside their masks; --mask-counts "
                "zeroes them\n",
                a->copies);
    }
}

static flim_status check_operands(const options *o, const flim_string_list *files, flim_error *err)
{
    const bool manifest = o->manifest[0];
    if (files->n < (manifest ? 1 : 2)) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "OUT and INPUT are needed, for example flim_import data/flim.h5 isolated_cells_D1 isolated_cells_D2 "
                         "--class _in=inactive,_act=active");
    }
    return manifest && files->n > 1 ? flim_fail(err, FLIM_ERROR_USAGE, "--manifest %s names the files; '%s' is one more",
                                                o->manifest, files->item[1])
                                    : FLIM_OK;
}

static flim_import_request request_of(const options *o, const flim_string_list *files)
{
    static const char *const published[] = {"_in=inactive,_act=active"};
    const bool usual = o->isolated_cells && o->class_rule.n == 0;
    return (flim_import_request){.out = files->item[0],
                                 .input = (const char *const *)files->item + 1,
                                 .n_inputs = files->n - 1,
                                 .class_rule = usual ? published : (const char *const *)o->class_rule.item,
                                 .n_rules = usual ? 1 : o->class_rule.n,
                                 .manifest = o->manifest,
                                 .group = o->group,
                                 .group_prefix = o->isolated_cells ? "isolated_cells_" : NULL,
                                 .mask = o->mask,
                                 .cells = {.by = o->cells_by,
                                           .crop = o->crop,
                                           .size = o->isolated_cells && o->size == 0 ? 21 : o->size,
                                           .keep_border = o->keep_border,
                                           .crop_large = o->crop_large},
                                 .mask_counts = o->mask_counts,
                                 .fields = {.axes = o->axes, .time_axis = o->time_axis, .dataset = o->dataset},
                                 .channel = o->channel,
                                 .bins = o->bins,
                                 .align_t0 = o->align_t0,
                                 .t0_bin = o->t0_bin,
                                 .range_ns = o->range_ns,
                                 .stop = console_catch_signals()};
}

static void print_result(const options *o, const char *path, const flim_import_result *made, FILE *out)
{
    fprintf(out, "%s: %" PRId64 " cell%s of (%d,%d,%d) from %" PRId64 " file%s, %" PRId64 " group%s, %d class%s\n", path,
            made->cells, flim_s(made->cells), made->t, made->h, made->w, made->files, flim_s(made->files), made->groups,
            flim_s(made->groups), made->classes, made->classes == 1 ? "" : "es");
    print_photons(&made->photons, out);
    if (made->at_border + made->too_large > 0) {
        fprintf(out, "left out: %" PRId64 " cell%s at the border of a field, %" PRId64 " larger than %d x %d pixels\n",
                made->at_border, flim_s(made->at_border), made->too_large, made->h, made->w);
    }
    if (o->align_t0) {
        fprintf(out, "t0: cells were moved by %" PRId64 " to %" PRId64 " bins\n", made->least_shift, made->most_shift);
    }
    if (made->skipped > 0) {
        fprintf(out, "skipped: %" PRId64 " file%s without a class\n", made->skipped, flim_s(made->skipped));
    }
    if (made->classes == 0) {
        fprintf(out,
                "no classes: train_cv needs them; --class TEXT=NAME takes them from file names, --manifest from a table\n");
    }
}

static flim_status import_files(void *read, const flim_string_list *files, console *screen, flim_error *err)
{
    const options *o = read;
    const flim_log log = console_log(screen);
    flim_import_result made;
    FLIM_TRY(check_operands(o, files, err));
    flim_import_request request = request_of(o, files);
    if (flim_file_is_standard_output(request.out)) {
        console_leave_stdout(screen);
    }
    request.progress = console_progress;
    request.progress_context = screen;
    FLIM_TRY(flim_import(&request, &log, &made, err));
    console_close(screen);
    print_result(o, request.out, &made, console_stream(screen));
    return FLIM_OK;
}

int main(int argc, char **argv)
{
    options o;
    return tool_main(&table, &o, import_files, argc, argv);
}

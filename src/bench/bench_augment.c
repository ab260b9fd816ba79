/* flim_bench augment: what each step of --augment makes of a cell, to be looked at, and what it costs on a processor core.
 *
 * Each row is one step with its usual range, then the presets and a mixture: photons, pixels of the mask and time per cell; with
 * --html also the image (counts summed over time) and the decay (summed over the plane) before and after. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_commands.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/output.h"
#include "core/try.h"
#include "data/transform.h"
#include "flim/augment.h"
#include "flim/dataset.h"

typedef struct augment_options {
    flim_string_list data, augment;
    char *axes, *html;
    int64_t cell, epoch, repeats;
    uint64_t seed;
    bool allow_external;
} augment_options;

#define AT(member) offsetof(augment_options, member)
static const flim_flag_row rows[] = {
    {"Input", "data", FLIM_VALUE_LIST, AT(data), "data/flim.h5", "FILE", .help = "HDF5 file; repeatable"},
    FLIM_BENCH_ALLOW_EXTERNAL_ROW(AT(allow_external)),
    {NULL, "axes", FLIM_VALUE_TEXT, AT(axes), "NTYX", "ORDER", .help = "order of the file's axes"},
    {NULL, "cell", FLIM_VALUE_INTEGER, AT(cell), "0", "N", .help = "which cell; the one after it is its partner in a mixture",
     .allowed = ">= 0"},
    {"Augmentation", "augment", FLIM_VALUE_LIST, AT(augment), "", "A",
     .help = "an extra row, as for train_cv --augment; repeatable"},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, AT(seed), "42", "N", .help = "random seed of the draws"},
    {NULL, "epoch", FLIM_VALUE_INTEGER, AT(epoch), "0", "N", .help = "epoch of the draws", .allowed = ">= 0, <= 4294967295"},
    {"Measurement", "repeats", FLIM_VALUE_INTEGER, AT(repeats), "20", "N", .help = "timed draws per row; their mean counts",
     .allowed = ">= 1, <= 100000"},
    {"Output", "html", FLIM_VALUE_TEXT, AT(html), "", "FILE", .help = "a page with the images and decays", .writes = true},
};
static const flim_flag_table table = {"flim_bench augment",
                                      "flim_bench augment --data FILE [flags]",
                                      "Shows what each step of train_cv --augment does to a cell, and its cost.",
                                      rows,
                                      sizeof rows / sizeof rows[0],
                                      .operand = NULL};

/* A cell as a row shows it. */
typedef struct picture {
    double *image, *decay; /* (H,W) and (T) */
    uint8_t *mask; /* (H,W) */
    double photons, brightest, highest;
    int64_t inside; /* pixels of the mask */
} picture;

typedef struct work {
    const flim_dataset_info *info;
    int64_t pixels, voxels;
    float *counts[2], *changed[2]; /* (T,H,W) of the cell and its partner */
    uint8_t *mask[2], *changed_mask[2]; /* (H,W) */
    picture before, after;
    bool photons; /* the counts are some: steps that need them can be shown */
    FILE *page; /* NULL = none */
} work;

static flim_status make_picture(const work *w, picture *p, flim_error *err)
{
    p->image = flim_alloc((size_t)w->pixels, sizeof *p->image, err);
    p->decay = flim_alloc((size_t)w->info->t, sizeof *p->decay, err);
    p->mask = flim_alloc((size_t)w->pixels, 1, err);
    return p->image && p->decay && p->mask ? FLIM_OK : FLIM_ERROR_MEMORY;
}

static void free_work(work *w)
{
    for (int i = 0; i < 2; i++) {
        picture *p = i == 0 ? &w->before : &w->after;
        flim_free(p->image);
        flim_free(p->decay);
        flim_free(p->mask);
        flim_free(w->counts[i]);
        flim_free(w->changed[i]);
        flim_free(w->mask[i]);
        flim_free(w->changed_mask[i]);
    }
}

static flim_status read_cells(work *w, flim_dataset *dataset, int64_t cell, flim_error *err)
{
    flim_reader *reader = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_reader_create(dataset, &reader, err));
    w->photons = true;
    for (int i = 0; i < 2; i++) {
        w->counts[i] = flim_alloc_aligned((size_t)w->voxels, sizeof(float), err);
        w->changed[i] = flim_alloc_aligned((size_t)w->voxels, sizeof(float), err);
        w->mask[i] = flim_alloc_aligned((size_t)w->pixels, 1, err);
        w->changed_mask[i] = flim_alloc_aligned((size_t)w->pixels, 1, err);
        FLIM_TRY_DONE(w->counts[i] && w->changed[i] && w->mask[i] && w->changed_mask[i] ? FLIM_OK : FLIM_ERROR_MEMORY);
        FLIM_TRY_DONE(flim_reader_counts(reader, (cell + i) % w->info->n, w->counts[i], w->mask[i], err));
        w->photons = w->photons && flim_transform_check_photons("a step", w->counts[i], w->voxels, NULL) == FLIM_OK;
    }
    FLIM_TRY_DONE(make_picture(w, &w->before, err));
    FLIM_TRY_DONE(make_picture(w, &w->after, err));
done:
    flim_reader_destroy(reader);
    return status;
}

static void sum_up(const work *w, const float *counts, const uint8_t *mask, picture *out)
{
    memset(out->image, 0, (size_t)w->pixels * sizeof *out->image);
    out->photons = out->brightest = out->highest = 0;
    out->inside = 0;
    for (int t = 0; t < w->info->t; t++) {
        out->decay[t] = 0;
        for (int64_t p = 0; p < w->pixels; p++) {
            const double n = (double)counts[t * w->pixels + p];
            out->image[p] += n;
            out->decay[t] += n;
        }
        out->photons += out->decay[t];
        out->highest = fmax(out->highest, out->decay[t]);
    }
    for (int64_t p = 0; p < w->pixels; p++) {
        out->mask[p] = mask[p];
        out->inside += mask[p] != 0;
        out->brightest = fmax(out->brightest, out->image[p]);
    }
}

/* ---- the page */

enum { SIDE = 126, WIDE = 250 };

static void put_image(const work *w, const picture *p, double brightest)
{
    const int width = w->info->w, height = w->info->h, most = width > height ? width : height;
    const double step = (double)SIDE / most;
    fprintf(w->page, "<svg width=\"%d\" height=\"%d\"><rect width=\"100%%\" height=\"100%%\"/>", SIDE, SIDE);
    for (int i = 0; i < width * height; i++) {
        const int row = i / width;
        const int grey = brightest > 0 ? (int)(255 * p->image[i] / brightest) : 0;
        if (grey > 0 || p->mask[i]) {
            fprintf(w->page, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.2f\" fill=\"rgb(%d,%d,%d)\"/>",
                    step * (i % width), step * row, step + 0.1, step + 0.1, grey, grey,
                    grey > 40 || !p->mask[i] ? grey : 40); /* the mask is a tinge of blue where it is dark */
        }
    }
    fputs("</svg>", w->page);
}

/* Counts per bin on a logarithmic axis from 1. */
static void put_decay(const work *w, const picture *p, double highest)
{
    const double decades = fmax(1, log10(fmax(highest, 10)));
    const int bins = w->info->t;
    fprintf(w->page, "<svg width=\"%d\" height=\"%d\"><polyline fill=\"none\" stroke=\"#06c\" points=\"", WIDE, SIDE);
    for (int t = 0; t < bins; t++) {
        const double up = p->decay[t] > 1 ? log10(p->decay[t]) / decades : 0;
        fprintf(w->page, "%.1f,%.1f ", (double)WIDE * t / (bins > 1 ? bins - 1 : 1), SIDE - 1 - (SIDE - 2) * fmin(up, 1));
    }
    fputs("\"/></svg>", w->page);
}

/* title: of this program, or one that holds numbers, letters and _ : . only. */
static void put_row(const work *w, const char *title)
{
    const double brightest = fmax(w->before.brightest, w->after.brightest),
                 highest = fmax(w->before.highest, w->after.highest);
    fprintf(w->page, "<tr><th>%s</th>", title);
    for (int i = 0; i < 2; i++) {
        const picture *p = i == 0 ? &w->before : &w->after;
        fputs("<td>", w->page);
        put_image(w, p, brightest);
        put_decay(w, p, highest);
        fprintf(w->page, "<br>%.0f photons, %" PRId64 " pixels of mask</td>", p->photons, p->inside);
    }
    fputs("</tr>\n", w->page);
}

/* ---- rows */

/* share > 0: mixed with the partner. */
static flim_status show(work *w, const augment_options *o, const char *title, const flim_transform *transform, float share,
                        FILE *out, flim_error *err)
{
    flim_transform_table compiled;
    const flim_mix mix = {(uint32_t)((o->cell + 1) % w->info->n), 128, share};
    const int t = w->info->t, height = w->info->h, width = w->info->w;
    FLIM_TRY(flim_transform_compile(transform, t, height, width, &compiled, err));
    if (!w->photons && (compiled.needs_photons || share > 0)) {
        fprintf(out, "%-44s needs photons: the counts are not whole numbers up to 65535\n", title);
        return FLIM_OK;
    }
    const uint64_t photons[2] = {flim_sum_of_photons(w->counts[0], w->voxels), flim_sum_of_photons(w->counts[1], w->voxels)};
    double seconds = 0;
    for (int64_t k = o->repeats; k-- > 0;) { /* the last is the one that is shown */
        const flim_cell_id id = {o->seed, 0, (uint32_t)(o->epoch + k), (uint32_t)o->cell, 0};
        flim_cell_transform drawn[2];
        const double begun = flim_seconds();
        const int parts = flim_transform_draw_mixed(&compiled, &id, &mix, FLIM_MIX_COUNTS, photons, drawn);
        for (int p = 0; p < parts; p++) {
            flim_cell_apply(&drawn[p], t, height, width, w->counts[p], w->mask[p], w->changed[p], w->changed_mask[p]);
        }
        seconds += flim_seconds() - begun;
        for (int64_t i = 0; parts == 2 && i < w->voxels; i++) {
            w->changed[0][i] += w->changed[1][i];
        }
        for (int64_t i = 0; parts == 2 && i < w->pixels; i++) {
            w->changed_mask[0][i] |= w->changed_mask[1][i];
        }
    }
    sum_up(w, w->changed[0], w->changed_mask[0], &w->after);
    fprintf(out, "%-44s %8.0f -> %8.0f photons, %5" PRId64 " -> %5" PRId64 " pixels of mask, %8.1f us\n", title,
            w->before.photons, w->after.photons, w->before.inside, w->after.inside, 1e6 * seconds / (double)o->repeats);
    if (w->page) {
        put_row(w, title);
    }
    return FLIM_OK;
}

/* One row per operation in its usual range, sure to act. */
static flim_status show_steps(work *w, const augment_options *o, FILE *out, flim_error *err)
{
    char title[128];
    for (int op = 0; op < FLIM_TRANSFORM_OPS; op++) {
        const flim_transform_info *info = &flim_transform_ops[op];
        const bool given = info->usual_low <= info->usual_high;
        const double half = fmax(1, floor(w->before.photons / 2));
        const double most = w->info->t - 1; /* bins that a shift may go */
        flim_transform one = {1,
                              {{(flim_transform_op)op, 1, given ? info->usual_low : half, given ? info->usual_high : half}}};
        if (info->alone) {
            one.step[0].low = fmax(one.step[0].low, -most);
            one.step[0].high = fmin(one.step[0].high, most);
        }
        flim_augment_text(&one, title, sizeof title);
        FLIM_TRY(show(w, o, title, &one, 0, out, err));
    }
    return FLIM_OK;
}

static flim_status show_items(work *w, const augment_options *o, FILE *out, flim_error *err)
{
    static const char *const presets[] = {"flim", "paper"};
    flim_transform transform;
    for (int i = 0; i < 2 + o->augment.n; i++) {
        flim_string_list item = {0};
        FLIM_TRY(flim_string_list_add(&item, i < 2 ? presets[i] : o->augment.item[i - 2], err));
        flim_status status = flim_augment_parse(&item, true, &transform, err); /* so that it may stand in a page */
        status = status == FLIM_OK && (i >= 2 || w->info->t > 5) ? show(w, o, item.item[0], &transform, 0, out, err) : status;
        flim_string_list_free(&item);
        FLIM_TRY(status);
    }
    transform = (flim_transform){0};
    return show(w, o, "mixup counts, half of each cell", &transform, 0.5f, out, err);
}

static flim_status measure(void *read, FILE *out, const flim_log *log, flim_error *err)
{
    const augment_options *o = read;
    flim_dataset *dataset = NULL;
    work w = {0};
    flim_file_writer writer;
    flim_status status = FLIM_OK;
    const flim_dataset_options options = {
        .axes = o->axes, .allow_external = o->allow_external, .cache = FLIM_CACHE_NONE, .log = log};
    const flim_output output = {.path = o->html,
                                .kind = "a page of flim_bench augment",
                                .begins = "<!doctype html><title>flim_bench augment",
                                .input = (const char *const *)o->data.item,
                                .n_inputs = o->data.n};
    FLIM_TRY(o->html[0] ? flim_output_check(&output, err) : FLIM_OK);
    FLIM_TRY(flim_dataset_open((const char *const *)o->data.item, o->data.n, &options, &dataset, err));
    w.info = flim_dataset_get_info(dataset);
    w.pixels = (int64_t)w.info->h * w.info->w;
    w.voxels = w.pixels * w.info->t;
    if (o->cell >= w.info->n) {
        FLIM_TRY_DONE(
            flim_fail(err, FLIM_ERROR_USAGE, "--cell %" PRId64 ": the data has cells 0 to %" PRId64, o->cell, w.info->n - 1));
    }
    FLIM_TRY_DONE(read_cells(&w, dataset, o->cell, err));
    sum_up(&w, w.counts[0], w.mask[0], &w.before);
    if (o->html[0]) {
        FLIM_TRY_DONE(flim_output_begin(&output, &writer, err));
        w.page = writer.stream;
        fprintf(w.page,
                "%s: cell %" PRId64
                "</title><style>body,table{font:13px sans-serif}td,th{padding:4px;text-align:left}svg{background:#eee;"
                "margin-right:4px}</style>\n<p>Cell %" PRId64 ", seed %" PRIu64 ", epoch %" PRId64
                ". Left before, right after; "
                "images and decays (logarithmic) of a row have one scale.</p><table>\n",
                output.begins, o->cell, o->cell, o->seed, o->epoch);
    }
    FLIM_TRY_DONE(show_steps(&w, o, out, err));
    FLIM_TRY_DONE(show_items(&w, o, out, err));
    if (w.page) {
        fputs("</table>\n", w.page);
        w.page = NULL;
        FLIM_TRY_DONE(flim_file_commit(&writer, err));
    }
done:
    if (w.page) {
        flim_file_abandon(&writer);
    }
    free_work(&w);
    flim_dataset_close(dataset);
    return status;
}

const flim_bench_command flim_bench_augment = {"augment", "what augmentation does to a cell, and its cost", &table,
                                               sizeof(augment_options), measure};

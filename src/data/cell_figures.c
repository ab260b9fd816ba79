#include "data/cell_figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/median.h"
#include "core/stop.h"
#include "core/threads.h"
#include "core/try.h"
#include "data/dataset_internal.h"
#include "formats/csv.h"

static double entropy_of(int64_t pixels, const double *frame)
{
    double sum = 0, bits = 0;
    for (int64_t i = 0; i < pixels; i++) {
        sum += frame[i];
    }
    for (int64_t i = 0; i < pixels; i++) {
        const double p = frame[i] / sum;
        bits -= p > 0 ? p * log2(p) : 0;
    }
    return bits;
}

/* Of the decay (T) inside the mask, which is sorted here, with `inside` photons. */
static double snr_of(int t, double *decay, double inside)
{
    const int lowest = t >= 10 ? t / 10 : 1;
    double background = 0;
    qsort(decay, (size_t)t, sizeof *decay, flim_compare_doubles);
    for (int k = 0; k < lowest; k++) {
        background += decay[k] / lowest;
    }
    return (inside - background * t) / sqrt(inside);
}

void flim_cell_figures_of(int t, int64_t pixels, const double *counts, const uint8_t *mask, double *scratch,
                          flim_cell_figures *out)
{
    double inside = 0, moment = 0, most = 0;
    *out = (flim_cell_figures){.peak_bin = -1, .inside = NAN, .peak_entropy = NAN, .arrival = NAN, .snr = NAN};
    for (int64_t i = 0; i < pixels; i++) {
        out->mask_pixels += mask[i] != 0;
    }
    for (int k = 0; k < t; k++) {
        const double *frame = counts + (int64_t)k * pixels; /* (H,W) */
        double all = 0, masked = 0;
        for (int64_t i = 0; i < pixels; i++) {
            all += frame[i];
            masked += mask[i] ? frame[i] : 0;
        }
        out->photons += all;
        inside += masked;
        moment += masked * (k + 0.5);
        scratch[k] = masked;
        if (all > most) {
            most = all;
            out->peak_bin = k;
        }
    }
    if (out->photons > 0) {
        out->inside = inside / out->photons;
        out->peak_entropy = entropy_of(pixels, counts + out->peak_bin * pixels);
    }
    if (inside > 0) {
        out->arrival = moment / inside;
        out->snr = snr_of(t, scratch, inside);
    }
}

/* ---- all cells ---- */

typedef struct table {
    flim_dataset *dataset;
    const flim_dataset_info *info;
    const volatile int *stop;
    flim_cell_figures *row; /* (n); each entry is written by one thread */
} table;

typedef struct scratch {
    flim_reader *reader;
    float *counts; /* (T,H,W) */
    double *exact; /* (T,H,W), the same without rounding */
    uint8_t *mask; /* (H,W) */
    double *decay; /* (T) */
} scratch;

static flim_status begin_thread(void *context, void *own, flim_error *err)
{
    const table *all = context;
    const size_t t = (size_t)all->info->t, pixels = (size_t)all->info->h * (size_t)all->info->w;
    scratch *my = own;
    if (!(my->counts = flim_alloc_aligned(t * pixels, sizeof *my->counts, err)) ||
        !(my->exact = flim_alloc_aligned(t * pixels, sizeof *my->exact, err)) ||
        !(my->mask = flim_alloc_aligned(pixels, 1, err)) || !(my->decay = flim_alloc(t, sizeof *my->decay, err))) {
        return FLIM_ERROR_MEMORY;
    }
    return flim_reader_create(all->dataset, &my->reader, err);
}

static void end_thread(void *own)
{
    scratch *my = own;
    flim_reader_destroy(my->reader);
    flim_free(my->counts);
    flim_free(my->exact);
    flim_free(my->mask);
    flim_free(my->decay);
}

static flim_status read_cell(void *context, void *own, int64_t cell, flim_error *err)
{
    const table *all = context;
    scratch *my = own;
    const int64_t pixels = (int64_t)all->info->h * all->info->w;
    flim_cell_figures *row = &all->row[cell];
    flim_error why = {0};
    if (flim_stopped(all->stop)) {
        return flim_fail(err, FLIM_INTERRUPTED, "interrupted while the data was read");
    }
    if (flim_reader_counts(my->reader, cell, my->counts, my->mask, &why) == FLIM_OK) {
        if (!flim_reader_exact_counts(my->reader, cell, my->exact)) {
            for (int64_t i = 0; i < all->info->t * pixels; i++) {
                my->exact[i] = (double)my->counts[i];
            }
        }
        flim_cell_figures_of(all->info->t, pixels, my->exact, my->mask, my->decay, row);
    } else { /* flim_info's report says why */
        *row = (flim_cell_figures){
            .photons = NAN, .peak_bin = -1, .inside = NAN, .peak_entropy = NAN, .arrival = NAN, .snr = NAN};
    }
    return FLIM_OK;
}

static void put_real(FILE *stream, double value, int digits)
{
    if (isfinite(value)) {
        fprintf(stream, ",%.*g", digits, value);
    } else {
        putc(',', stream);
    }
}

static void put_row(FILE *stream, const flim_dataset_info *info, int64_t i, const flim_cell_figures *row)
{
    const double bin = info->time_range_ns > 0 ? info->time_range_ns / info->t : 1;
    fprintf(stream, "%" PRId64 ",", i);
    flim_csv_put(stream, info->name ? info->name[i] : "");
    putc(',', stream);
    flim_csv_put(stream, info->group ? info->group_name[info->group[i]] : "");
    putc(',', stream);
    if (info->label) {
        fprintf(stream, "%" PRId32 ",", info->label[i]);
        flim_csv_put(stream, info->class_name[info->label[i]]);
    } else {
        putc(',', stream);
    }
    put_real(stream, row->photons, 15);
    fprintf(stream, isnan(row->photons) ? "," : ",%" PRId64, row->mask_pixels);
    put_real(stream, row->inside, 9);
    put_real(stream, row->peak_bin >= 0 ? row->peak_bin : (double)NAN, 9);
    put_real(stream, row->peak_entropy, 9);
    put_real(stream, row->arrival * bin, 9);
    put_real(stream, row->snr, 9);
    putc('\n', stream);
}

flim_status flim_cell_figures_write(flim_dataset *dataset, int workers, const volatile int *stop, const flim_output *output,
                                    flim_error *err)
{
    table all = {.dataset = dataset, .info = flim_dataset_get_info(dataset), .stop = stop};
    const flim_shared_work work = {.items = all.info->n,
                                   .stride = 16,
                                   .context = &all,
                                   .begin = begin_thread,
                                   .item = read_cell,
                                   .end = end_thread,
                                   .own_bytes = sizeof(scratch)};
    flim_file_writer writer;
    flim_status status = FLIM_OK;
    all.row = flim_alloc((size_t)all.info->n, sizeof *all.row, err);
    FLIM_TRY_DONE(all.row ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_share_work(&work, workers, err));
    FLIM_TRY_DONE(flim_output_begin(output, &writer, err));
    fprintf(writer.stream, FLIM_CELL_FIGURES_HEAD "%s,snr\n", all.info->time_range_ns > 0 ? "ns" : "bins");
    for (int64_t i = 0; i < all.info->n; i++) {
        put_row(writer.stream, all.info, i, &all.row[i]);
    }
    status = flim_file_commit(&writer, err);
done:
    flim_free(all.row);
    return status;
}

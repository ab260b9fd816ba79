#include "data/cell_figures.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
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

/* `width` bins of the decay from bin `first` on. */
static double sum_of_bins(const double *decay, int first, int width)
{
    double sum = 0;
    for (int k = first; k < first + width; k++) {
        sum += decay[k];
    }
    return sum;
}

/* Photons per bin of a decay, see the header. */
static double background_of(int t, const double *decay)
{
    const int width = t >= 10 ? t / 10 : 1;
    double sum = sum_of_bins(decay, 0, width), least = sum;
    for (int k = width; k < t; k++) { /* whole numbers: nothing is lost by adding and taking away */
        sum += decay[k] - decay[k - width];
        least = fmin(least, sum);
    }
    return least / width;
}

/* In bins, see the header.  Sums of neighbouring bins fall as the exponential itself does. */
static double lifetime_of(int t, const double *decay, double background)
{
    enum { ENOUGH_PHOTONS = 100, LEAST_SUMS = 8, LEAST_POINTS = 3 };
    const double end = 0.05;
    int peak = 0, width = 1, points = 0;
    double weights = 0, x = 0, y = 0, xx = 0, xy = 0, first = 0;
    for (int k = 1; k < t; k++) {
        peak = decay[k] > decay[peak] ? k : peak;
    }
    while (peak + width <= t && sum_of_bins(decay, peak, width) < ENOUGH_PHOTONS && (t - peak) / (2 * width) >= LEAST_SUMS) {
        width *= 2;
    }
    for (int k = peak; k + width <= t; k += width, points++) {
        const double all = sum_of_bins(decay, k, width), net = all - background * width;
        first = k == peak ? net : first;
        if (net <= 0 || net <= end * first) {
            break;
        }
        const double weight = net * net / all, at = points, height = log(net);
        weights += weight;
        x += weight * at;
        y += weight * height;
        xx += weight * at * at;
        xy += weight * at * height;
    }
    const double slope = (weights * xy - x * y) / (weights * xx - x * x);
    return points >= LEAST_POINTS && slope < 0 ? -width / slope : (double)NAN;
}

/* Sums over the photons inside the mask. */
typedef struct inside_sums {
    double photons, bin, row, column, square; /* square: of the distance from pixel (0,0) */
} inside_sums;

/* Adds a frame (H,W) of bin k to the sums; its photons inside the mask go to *masked, the sum over the frame is returned. */
static double add_frame(inside_sums *in, int k, int h, int w, const double *frame, const uint8_t *mask, double *masked)
{
    double all = 0;
    *masked = 0;
    for (int i = 0; i < h; i++) {
        for (int j = 0; j < w; j++) {
            const double count = frame[i * w + j];
            all += count;
            if (mask[i * w + j]) {
                *masked += count;
                in->row += count * i;
                in->column += count * j;
                in->square += count * (i * i + j * j);
            }
        }
    }
    in->photons += *masked;
    in->bin += *masked * (k + 0.5);
    return all;
}

static double spread_of(const inside_sums *in)
{
    const double row = in->row / in->photons, column = in->column / in->photons;
    return sqrt(fmax(0, in->square / in->photons - row * row - column * column));
}

static const flim_cell_figures undefined = {.photons = NAN,
                                            .inside = NAN,
                                            .peak_bin = -1,
                                            .peak_entropy = NAN,
                                            .arrival = NAN,
                                            .background = NAN,
                                            .snr = NAN,
                                            .lifetime = NAN,
                                            .spread = NAN};

void flim_cell_figures_of(int t, int h, int w, const double *counts, const uint8_t *mask, double *decay,
                          flim_cell_figures *out)
{
    const int64_t pixels = (int64_t)h * w;
    double most = 0;
    inside_sums in = {0};
    *out = undefined;
    out->photons = 0;
    for (int64_t i = 0; i < pixels; i++) {
        out->mask_pixels += mask[i] != 0;
    }
    for (int k = 0; k < t; k++) {
        const double all = add_frame(&in, k, h, w, counts + k * pixels, mask, &decay[k]);
        out->photons += all;
        if (all > most) {
            most = all;
            out->peak_bin = k;
        }
    }
    if (out->photons > 0) {
        out->inside = in.photons / out->photons;
        out->peak_entropy = entropy_of(pixels, counts + out->peak_bin * pixels);
    }
    if (in.photons > 0) {
        out->arrival = in.bin / in.photons;
        out->background = background_of(t, decay);
        out->snr = (in.photons - out->background * t) / sqrt(in.photons);
        out->lifetime = lifetime_of(t, decay, out->background);
        out->spread = spread_of(&in);
    }
}

/* ---- all cells ---- */

typedef struct table {
    flim_dataset *dataset;
    const flim_dataset_info *info;
    const volatile int *stop;
    flim_cell_figures *row; /* (n); each entry is written by one thread */
    double *decay; /* (n,T), likewise; or NULL */
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
        flim_cell_figures_of(all->info->t, all->info->h, all->info->w, my->exact, my->mask, my->decay, row);
        if (all->decay) {
            memcpy(all->decay + cell * all->info->t, my->decay, (size_t)all->info->t * sizeof *my->decay);
        }
    } else { /* flim_info's report says why */
        *row = undefined;
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
    put_real(stream, row->background, 9);
    put_real(stream, row->lifetime * bin, 9);
    put_real(stream, row->spread, 9);
    putc('\n', stream);
}

flim_status flim_cell_figures_read(flim_dataset *dataset, int workers, const volatile int *stop, flim_cell_figures *row,
                                   double *decay, flim_error *err)
{
    table all = {.dataset = dataset, .info = flim_dataset_get_info(dataset), .stop = stop, .row = row, .decay = decay};
    const flim_shared_work work = {.items = all.info->n,
                                   .stride = 16,
                                   .context = &all,
                                   .begin = begin_thread,
                                   .item = read_cell,
                                   .end = end_thread,
                                   .own_bytes = sizeof(scratch)};
    return flim_share_work(&work, workers, err);
}

flim_status flim_cell_figures_write(flim_dataset *dataset, int workers, const volatile int *stop, const flim_output *output,
                                    flim_error *err)
{
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    const char *unit = info->time_range_ns > 0 ? "ns" : "bins";
    flim_file_writer writer;
    flim_status status = FLIM_OK;
    flim_cell_figures *row = flim_alloc((size_t)info->n, sizeof *row, err);
    FLIM_TRY_DONE(row ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_cell_figures_read(dataset, workers, stop, row, NULL, err));
    FLIM_TRY_DONE(flim_output_begin(output, &writer, err));
    fprintf(writer.stream, FLIM_CELL_FIGURES_HEAD "%s,snr,background_per_bin,lifetime_%s,spread_pixels\n", unit, unit);
    for (int64_t i = 0; i < info->n; i++) {
        put_row(writer.stream, info, i, &row[i]);
    }
    status = flim_file_commit(&writer, err);
done:
    flim_free(row);
    return status;
}

#include "report/page/cells.h"

#include <math.h>

#include "core/alloc.h"
#include "core/try.h"

enum { SCAN_WORKERS = 4 };

/* decay (n,T) -> class_decay (K,T); each cell counts alike, however bright it is. */
static flim_status average_classes(report_cells *cells, flim_error *err)
{
    const flim_dataset_info *info = cells->info;
    int64_t *count = flim_alloc((size_t)info->classes, sizeof *count, err);
    cells->class_decay = flim_alloc((size_t)info->classes * (size_t)info->t, sizeof *cells->class_decay, err);
    const bool whole = count && cells->class_decay;
    for (int64_t i = 0; whole && i < info->n; i++) {
        const double *decay = cells->decay + i * info->t;
        double *mean = cells->class_decay + (int64_t)info->label[i] * info->t, photons = 0;
        for (int t = 0; t < info->t; t++) {
            photons += decay[t];
        }
        for (int t = 0; photons > 0 && t < info->t; t++) {
            mean[t] += decay[t] / photons;
        }
        count[info->label[i]] += photons > 0;
    }
    for (int64_t j = 0; whole && j < (int64_t)info->classes * info->t; j++) {
        cells->class_decay[j] /= (double)(count[j / info->t] ? count[j / info->t] : 1);
    }
    flim_free(count);
    return whole ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* cells->decay; *readable = false where a cell is bad, which is told on the page. */
static flim_status read_decays(report_cells *cells, const report_run *run, bool *readable, flim_error *why, flim_error *err)
{
    int64_t bad = 0;
    if (run->errors && run->errors->decay) {
        cells->decay = run->errors->decay;
        return FLIM_OK;
    }
    cells->decay = cells->own_decay = flim_alloc((size_t)(cells->info->n * cells->info->t), sizeof *cells->own_decay, err);
    FLIM_TRY(cells->decay ? FLIM_OK : FLIM_ERROR_MEMORY);
    const flim_status status = flim_dataset_scan(cells->dataset, SCAN_WORKERS, NULL, NULL, NULL, cells->own_decay, &bad, why);
    *readable = status == FLIM_OK;
    return status == FLIM_OK || status == FLIM_ERROR_DATA ? FLIM_OK : flim_fail(err, status, "%s", why->text);
}

flim_status report_cells_open(const report_run *run, const flim_report_options *options, report_cells **out, flim_error *why,
                              flim_error *err)
{
    bool readable = true;
    flim_status status = FLIM_OK;
    *out = NULL;
    report_cells *cells = flim_alloc(1, sizeof *cells, err);
    FLIM_TRY(cells ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(report_open_data(run, options, &cells->dataset, why, err));
    if (!cells->dataset) {
        goto done;
    }
    cells->info = flim_dataset_get_info(cells->dataset);
    FLIM_TRY_DONE(read_decays(cells, run, &readable, why, err));
    if (!readable) {
        goto done;
    }
    FLIM_TRY_DONE(average_classes(cells, err));
    FLIM_TRY_DONE(flim_reader_create(cells->dataset, &cells->reader, err));
    *out = cells;
    return FLIM_OK;
done:
    report_cells_close(cells);
    return status;
}

void report_cells_close(report_cells *cells)
{
    if (cells) {
        flim_reader_destroy(cells->reader);
        flim_dataset_close(cells->dataset);
        flim_free(cells->own_decay);
        flim_free(cells->class_decay);
        flim_free(cells);
    }
}

flim_status report_cells_intensity(const report_cells *cells, int64_t cell, double **out, flim_error *err)
{
    const int64_t pixels = (int64_t)cells->info->h * cells->info->w;
    flim_status status = FLIM_OK;
    float *counts = flim_alloc((size_t)(cells->info->t * pixels), sizeof *counts, err); /* (T,H,W) */
    double *intensity = flim_alloc((size_t)pixels, sizeof *intensity, err); /* (H,W) */
    *out = NULL;
    FLIM_TRY_DONE(counts && intensity ? flim_reader_counts(cells->reader, cell, counts, NULL, err) : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < cells->info->t * pixels; i++) {
        intensity[i % pixels] += (double)counts[i];
    }
    *out = intensity;
    intensity = NULL;
done:
    flim_free(counts);
    flim_free(intensity);
    return status;
}

void report_phasor(const double *decay, int t, double *g, double *s)
{
    const double turn = 6.283185307179586;
    double sum = 0, cosines = 0, sines = 0;
    for (int i = 0; i < t; i++) {
        const double angle = turn * (i + 0.5) / t;
        sum += decay[i];
        cosines += decay[i] * cos(angle);
        sines += decay[i] * sin(angle);
    }
    *g = sum > 0 ? cosines / sum : NAN;
    *s = sum > 0 ? sines / sum : NAN;
}

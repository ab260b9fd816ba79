/* What the report needs of the data itself: features for the baselines and pictures for the gallery. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "flim/dataset.h"
#include "flim/settings.h"
#include "report/parts.h"

/* Opens the data of a run: options' files, else those of its config.yaml.  *dataset = NULL where it is not to be had; why gets the
 * reason. */
static flim_status open_data(const report_run *run, const flim_report_options *options, flim_dataset **dataset,
                             flim_error *why, flim_error *err)
{
    *dataset = NULL;
    char path[REPORT_PATH], sha256[65];
    flim_settings settings;
    flim_status status = flim_settings_init(&settings, err);
    if (status != FLIM_OK) {
        return status;
    }
    snprintf(path, sizeof path, "%.4000s/config.yaml", run->folder);
    if (flim_settings_read(&settings, path, why) != FLIM_OK) {
        goto done;
    }
    flim_dataset_options open = {.axes = settings.axes, .mask_counts = settings.mask_counts, .need_labels = true};
    const char *const *files = options->n_data ? options->data : (const char *const *)settings.data.item;
    int n = options->n_data ? options->n_data : settings.data.n;
    if (flim_dataset_open(files, n, &open, dataset, why) != FLIM_OK) {
        *dataset = NULL;
        goto done;
    }
    flim_dataset_sha256(*dataset, sha256);
    const flim_dataset_info *info = flim_dataset_get_info(*dataset);
    if (info->n != run->splits.n || info->classes != run->classes ||
        (run->splits.sha256[0] && strcmp(sha256, run->splits.sha256) != 0)) {
        flim_fail(why, FLIM_ERROR_DATA, "%s is not the data of the run (its SHA-256 differs)", files[0]);
        flim_dataset_close(*dataset);
        *dataset = NULL;
    }
done:
    flim_settings_free(&settings);
    return FLIM_OK;
}

void report_free_features(report_features *features)
{
    flim_free(features->confounds);
    flim_free(features->decay);
    flim_free(features->label);
    *features = (report_features){0};
}

/* counts (T,H,W), mask (H,W) -> decay (T) over the mask, and the sum over all. */
static double sum_over_mask(const float *counts, const uint8_t *mask, int t, int64_t pixels, double *decay)
{
    double total = 0;
    for (int i = 0; i < t; i++) {
        decay[i] = 0;
        for (int64_t p = 0; p < pixels; p++) {
            double c = (double)counts[i * pixels + p];
            total += c;
            decay[i] += mask[p] ? c : 0;
        }
    }
    return total;
}

flim_status report_read_features(report_run *run, const flim_report_options *options, report_features *out, bool *found,
                                 flim_error *err)
{
    flim_dataset *dataset = NULL;
    flim_reader *reader = NULL;
    flim_error why = {0};
    float *counts = NULL;
    uint8_t *mask = NULL;
    *out = (report_features){0};
    *found = false;
    flim_status status = open_data(run, options, &dataset, &why, err);
    if (status != FLIM_OK) {
        return status;
    }
    if (!dataset) {
        report_find(run, options->log, FLIM_LOG_WARNING, "no baselines: %s (name the data with --data)", why.text);
        return FLIM_OK;
    }
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    int64_t pixels = (int64_t)info->h * info->w;
    out->n = info->n;
    out->t = info->t;
    counts = flim_alloc((size_t)(info->t * pixels), sizeof *counts, err);
    mask = flim_alloc((size_t)pixels, sizeof *mask, err);
    out->confounds = flim_alloc((size_t)info->n * 3, sizeof *out->confounds, err);
    out->decay = flim_alloc((size_t)info->n * (size_t)info->t, sizeof *out->decay, err);
    out->label = flim_alloc((size_t)info->n, sizeof *out->label, err);
    status = counts && mask && out->confounds && out->decay && out->label ? flim_reader_create(dataset, &reader, err)
                                                                          : FLIM_ERROR_MEMORY;
    for (int64_t i = 0; status == FLIM_OK && i < info->n; i++) {
        status = flim_reader_counts(reader, i, counts, mask, err);
        if (status == FLIM_OK) {
            double *decay = out->decay + i * info->t, *x = out->confounds + 3 * i, area = 0;
            x[0] = log1p(sum_over_mask(counts, mask, info->t, pixels, decay));
            for (int64_t p = 0; p < pixels; p++) {
                area += mask[p];
            }
            int peak = 0;
            for (int t = 1; t < info->t; t++) {
                peak = decay[t] > decay[peak] ? t : peak;
            }
            x[1] = area;
            x[2] = peak;
            out->label[i] = info->label[i];
        }
    }
    *found = status == FLIM_OK;
    flim_reader_destroy(reader);
    flim_dataset_close(dataset);
    flim_free(counts);
    flim_free(mask);
    if (status != FLIM_OK) {
        report_free_features(out);
    }
    return status;
}

flim_status report_read_pictures(const report_run *run, const flim_report_options *options, const int64_t *cell, int64_t n,
                                 report_picture *out, bool *found, flim_error *err)
{
    flim_dataset *dataset = NULL;
    flim_reader *reader = NULL;
    flim_error why = {0};
    float *counts = NULL;
    uint8_t *mask = NULL;
    *found = false;
    flim_status status = open_data(run, options, &dataset, &why, err);
    if (status != FLIM_OK || !dataset) {
        return status;
    }
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    int64_t pixels = (int64_t)info->h * info->w;
    counts = flim_alloc((size_t)(info->t * pixels), sizeof *counts, err);
    mask = flim_alloc((size_t)pixels, sizeof *mask, err);
    status = counts && mask ? flim_reader_create(dataset, &reader, err) : FLIM_ERROR_MEMORY;
    for (int64_t i = 0; status == FLIM_OK && i < n; i++) {
        out[i] = (report_picture){.t = info->t, .h = info->h, .w = info->w};
        out[i].intensity = flim_alloc((size_t)pixels, sizeof *out[i].intensity, err);
        out[i].decay = flim_alloc((size_t)info->t, sizeof *out[i].decay, err);
        status =
            out[i].intensity && out[i].decay ? flim_reader_counts(reader, cell[i], counts, mask, err) : FLIM_ERROR_MEMORY;
        if (status == FLIM_OK) {
            sum_over_mask(counts, mask, info->t, pixels, out[i].decay);
            for (int64_t v = 0; v < info->t * pixels; v++) {
                out[i].intensity[v % pixels] += (double)counts[v];
            }
        }
    }
    *found = status == FLIM_OK;
    flim_reader_destroy(reader);
    flim_dataset_close(dataset);
    flim_free(counts);
    flim_free(mask);
    return status;
}

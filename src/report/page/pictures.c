/* What the report needs of the data itself: pictures for the gallery. */
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "flim/dataset.h"
#include "flim/settings.h"
#include "report/report_internal.h"

/* Opens the data of a run: options' files, else those of its config.yaml.  *dataset = NULL if they cannot be opened; why gets
 * the reason. */
static flim_status open_data(const report_run *run, const flim_report_options *options, flim_dataset **dataset,
                             flim_error *why, flim_error *err)
{
    *dataset = NULL;
    char path[REPORT_PATH], sha256[65];
    flim_settings settings;
    FLIM_TRY(flim_settings_init(&settings, err));
    snprintf(path, sizeof path, "%.4000s/config.yaml", run->folder);
    if (flim_settings_read(&settings, path, why) != FLIM_OK) {
        goto done;
    }
    flim_dataset_options open = {.axes = settings.axes,
                                 .mask_counts = settings.mask_counts,
                                 .allow_external = settings.allow_external,
                                 .need_labels = true};
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

/* counts (T,H,W), mask (H,W) -> decay (T) over the mask, intensity (H,W) over time. */
static void sum_up(const float *counts, const uint8_t *mask, int t, int64_t pixels, double *decay, double *intensity)
{
    for (int i = 0; i < t; i++) {
        for (int64_t p = 0; p < pixels; p++) {
            double c = (double)counts[i * pixels + p];
            intensity[p] += c;
            decay[i] += mask[p] ? c : 0;
        }
    }
}

flim_status report_read_pictures(const report_run *run, const flim_report_options *options, const int64_t *cell, int64_t n,
                                 report_picture *out, bool *found, flim_error *why, flim_error *err)
{
    flim_dataset *dataset = NULL;
    flim_reader *reader = NULL;
    float *counts = NULL;
    uint8_t *mask = NULL;
    *found = false;
    flim_status status = FLIM_OK;
    FLIM_TRY(open_data(run, options, &dataset, why, err));
    if (!dataset) {
        return FLIM_OK;
    }
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    int64_t pixels = (int64_t)info->h * info->w;
    counts = flim_alloc((size_t)(info->t * pixels), sizeof *counts, err);
    mask = flim_alloc((size_t)pixels, sizeof *mask, err);
    FLIM_TRY_DONE(counts && mask ? flim_reader_create(dataset, &reader, err) : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        out[i] = (report_picture){.t = info->t, .h = info->h, .w = info->w};
        out[i].intensity = flim_alloc((size_t)pixels, sizeof *out[i].intensity, err);
        out[i].decay = flim_alloc((size_t)info->t, sizeof *out[i].decay, err);
        FLIM_TRY_DONE(out[i].intensity && out[i].decay ? flim_reader_counts(reader, cell[i], counts, mask, err)
                                                       : FLIM_ERROR_MEMORY);
        sum_up(counts, mask, info->t, pixels, out[i].decay, out[i].intensity);
    }
    *found = true;
done:
    flim_reader_destroy(reader);
    flim_dataset_close(dataset);
    flim_free(counts);
    flim_free(mask);
    return status;
}

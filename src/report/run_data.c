/* The data that a run was trained on, for what the report shows of the cells themselves. */
#include <string.h>

#include "core/try.h"
#include "flim/settings.h"
#include "report/report_internal.h"

flim_status report_open_data(const report_run *run, const flim_report_options *options, flim_dataset **dataset,
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

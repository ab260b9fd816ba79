/* --augment: what it comes to, and whether the data can go through it. */
#include <inttypes.h>

#include "core/try.h"
#include "data/transform.h"
#include "flim/augment.h"
#include "train/run.h"

/* The file of a cell, and its number there. */
static flim_status refuse_cell(const flim_study *study, int64_t cell, const char *name, flim_error *err)
{
    int64_t local;
    const char *path = flim_dataset_path_of(study->dataset, cell, &local);
    (void)flim_fail(err, FLIM_ERROR_DATA, FLIM_NO_PHOTONS, name);
    return flim_fail_prefix(err, "%s: /counts: cell %" PRId64 ": ", path, local);
}

/* The first step or setting that needs photons; NULL = none does. */
static const char *needs_photons(const flim_run *run)
{
    const char *step = flim_transform_needs_photons(&run->augment);
    return step ? step : run->settings->mixup == FLIM_MIXUP_COUNTS ? "--mixup counts" : NULL;
}

/* The first cell whose counts are not whole numbers up to 65535; -1 = none.  Without a scan they are taken for such, and the
 * loader refuses the first that are not. */
static int64_t first_without_photons(const flim_study *study)
{
    for (int64_t i = 0; study->summary && i < study->info->n; i++) {
        if (study->summary[i].count_bytes == 4) {
            return i;
        }
    }
    return -1;
}

static void note(const flim_run *run, bool photons)
{
    char steps[FLIM_MAX_TRANSFORM_STEPS * 96], not_physical[160];
    flim_augment_text(&run->augment, steps, sizeof steps);
    flim_augment_not_physical(&run->augment, not_physical, sizeof not_physical);
    flim_log_line(&run->log, FLIM_LOG_INFO, "Augmentation of training cells: %s", steps);
    if (!photons && flim_string_list_find(&run->settings->augment, "auto") >= 0) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "augment auto: symmetry alone, since some counts are not whole numbers up to 65535");
    }
    if (not_physical[0]) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "%s: no exposure of a photon counter gives such counts (docs/train_cv.md)",
                      not_physical);
    }
}

flim_status flim_run_read_augmentation(flim_run *run, const flim_study *study, flim_error *err)
{
    const flim_dataset_info *info = study->info;
    const int64_t odd = first_without_photons(study);
    FLIM_TRY(flim_augment_parse(&run->settings->augment, odd < 0, &run->augment, err));
    if (run->settings->mixup != FLIM_MIXUP_NONE && run->settings->mixup_partner == FLIM_MIXUP_PARTNER_GROUP && !info->group) {
        return flim_fail(err, FLIM_ERROR_USAGE, "mixup-partner group: the data has no /group; use all, or add /group");
    }
    if (flim_transform_check(&run->augment, info->t, info->h, info->w, err) != FLIM_OK) {
        return flim_fail_prefix(err, "augment: ");
    }
    if (odd >= 0 && needs_photons(run)) {
        return refuse_cell(study, odd, needs_photons(run), err);
    }
    if (run->augment.n > 0) {
        note(run, odd < 0);
    }
    return FLIM_OK;
}

bool flim_run_augments_widths(const flim_run *run, const uint8_t *widths, int64_t n)
{
    bool all = true;
    for (int64_t i = 0; needs_photons(run) && i < n; i++) {
        all = all && widths[i] <= 2;
    }
    return all;
}

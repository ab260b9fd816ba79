/* What a fold's weight file says of its weights. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "flim/version.h"
#include "flim/weights.h"
#include "train/fold.h"

/* The fold's own cells, and those of the weights that it started from. */
static flim_status set_cells(const flim_fold_work *f, flim_provenance *out, flim_error *err)
{
    const uint64_t *hash = f->study->hash;
    const flim_provenance *from = &f->run->initial;
    out->cells_are_known = hash != NULL;
    out->inherited_is_known = !f->trainer->initial_parameter || (from->cells_are_known && from->inherited_is_known);
    if (!hash) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_cell_set_make(hash, f->part->train, f->part->n_train, &out->train, err));
    FLIM_TRY(flim_cell_set_make(hash, f->part->val, f->part->n_val, &out->val, err));
    FLIM_TRY(flim_cell_set_join(&out->inherited, &from->train, err));
    FLIM_TRY(flim_cell_set_join(&out->inherited, &from->val, err));
    return flim_cell_set_join(&out->inherited, &from->inherited, err);
}

flim_status flim_fold_provenance(const flim_fold_work *f, flim_provenance *out, flim_error *err)
{
    const flim_dataset_info *info = f->study->info;
    const flim_settings *s = f->run->settings;
    flim_status status = FLIM_OK;
    *out = (flim_provenance){.is_known = true,
                             .fold = f->k,
                             .folds = f->study->splits.n_folds,
                             .seed = s->seed,
                             .t = info->t,
                             .h = info->h,
                             .w = info->w,
                             .time_range_ns = info->time_range_ns,
                             .mask = flim_mask_origin_of(info->has_mask),
                             .mask_counts = s->mask_counts};
    snprintf(out->program, sizeof out->program, "flimcv %s", FLIM_VERSION);
    snprintf(out->preprocessing, sizeof out->preprocessing, "%s", flim_preprocessing_name(s->mask_counts));
    memcpy(out->splits_sha256, f->run->splits_sha256, sizeof out->splits_sha256);
    FLIM_TRY_DONE(flim_provenance_set_classes(out, info->classes, info->class_name, err));
    out->recipe = flim_strdup(f->run->identity_text, err);
    FLIM_TRY_DONE(out->recipe ? FLIM_OK : FLIM_ERROR_MEMORY);
    status = set_cells(f, out, err);
done:
    if (status != FLIM_OK) {
        flim_provenance_free(out);
    }
    return status;
}

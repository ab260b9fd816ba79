/* --refit: the epoch is chosen, so the validation set can be learned from, too. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "train/checkpoint.h"
#include "train/fold.h"

/* Two rising lists as one, the caller's. */
static int64_t *merged(const int64_t *a, int64_t n_a, const int64_t *b, int64_t n_b, flim_error *err)
{
    int64_t *list = flim_alloc((size_t)(n_a + n_b), sizeof *list, err), i = 0, j = 0;
    while (list && i + j < n_a + n_b) {
        if (j == n_b || (i < n_a && a[i] < b[j])) {
            list[i + j] = a[i];
            i++;
        } else {
            list[i + j] = b[j];
            j++;
        }
    }
    return list;
}

flim_status flim_fold_begin_refit(const flim_fold_work *f, bool f_has_trained, flim_fold *whole, flim_fold_work *out,
                                  flim_error *err)
{
    const flim_fold *part = f->part;
    const int64_t effective = flim_run_batch_cells(f->run) * flim_run_update_batches(f->run);
    char checkpoint[FLIM_PATH_MAX];
    *whole = (flim_fold){.n_train = part->n_train + part->n_val};
    whole->train = merged(part->train, part->n_train, part->val, part->n_val, err);
    if (!whole->train) {
        return FLIM_ERROR_MEMORY;
    }
    *out = (flim_fold_work){
        .run = f->run, .study = f->study, .trainer = f->trainer, .k = f->k, .part = whole, .pace = &f->state};
    snprintf(out->name, sizeof out->name, "%.20s refit", f->name);
    FLIM_TRY(flim_run_fold_path(f->run, f->k, "refit", out->folder, err));
    out->pace_updates = flim_fold_updates(f, part->n_train);
    const int64_t updates = out->pace_updates * (f->state.best_epoch + 1);
    const int64_t per_epoch = flim_fold_updates(out, whole->n_train);
    out->epochs = (updates + per_epoch - 1) / per_epoch;
    const int64_t last = (updates - (out->epochs - 1) * per_epoch) * effective; /* cells of the last epoch's updates */
    out->last_draws = last < whole->n_train ? last : 0;
    if (f_has_trained) { /* what stands there was paced by another choice */
        FLIM_TRY(flim_run_fold_path(f->run, f->k, "refit/checkpoint", checkpoint, err));
        flim_checkpoint_remove(checkpoint);
    }
    return FLIM_OK;
}

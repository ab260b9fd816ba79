/* What is odd in the folds as they meet the cells. */
#include <inttypes.h>

#include "core/alloc.h"
#include "core/spelling.h"
#include "core/try.h"
#include "train/study.h"

/* Where each cell is tested (flim_find_copies).  Of one split the training set is tested nowhere. */
static void find_folds(const flim_splits *splits, int64_t n, int *fold)
{
    for (int64_t i = 0; i < n; i++) {
        fold[i] = FLIM_PLACE_NOT_TESTED;
    }
    for (int64_t i = 0; i < splits->n_holdout; i++) {
        fold[splits->holdout[i]] = FLIM_PLACE_HELD_OUT;
    }
    for (int64_t i = 0; i < splits->n_unused; i++) {
        fold[splits->unused[i]] = FLIM_PLACE_UNUSED;
    }
    for (int f = 0; f < splits->n_folds; f++) {
        for (int64_t i = 0; i < splits->fold[f].n_test; i++) {
            fold[splits->fold[f].test[i]] = f;
        }
    }
}

static flim_status find_copies(flim_study *study, flim_error *err)
{
    int *fold = flim_alloc((size_t)study->info->n, sizeof *fold, err);
    if (!fold) {
        return FLIM_ERROR_MEMORY;
    }
    find_folds(&study->splits, study->info->n, fold);
    const flim_status status = flim_find_copies(study->info, study->summary, fold, &study->findings, err);
    flim_free(fold);
    return status;
}

/* Held-out cells of one class: there is nothing to rank them against. */
static flim_status find_holdout(flim_study *study, flim_error *err)
{
    const flim_splits *splits = &study->splits;
    const int32_t *label = study->info->label;
    flim_found cells = {0};
    char name[64];
    for (int64_t i = 0; i < splits->n_holdout; i++) {
        if (label[splits->holdout[i]] != label[splits->holdout[0]]) {
            return FLIM_OK;
        }
        flim_found_cell(&cells, splits->holdout[i]);
    }
    if (cells.count == 0) {
        return FLIM_OK;
    }
    flim_text_escaped(study->info->class_name[label[splits->holdout[0]]], name, sizeof name);
    return flim_findings_add(&study->findings, FLIM_FINDING_HOLDOUT_OF_ONE_CLASS, FLIM_FINDING_WARNING, &cells, err,
                             "all %" PRId64 " held-out cells are of one class, '%s': AUC is undefined for them, and accuracy "
                             "is the share of that class classified correctly; hold out groups of every class",
                             cells.count, name);
}

flim_status flim_study_find_in_folds(flim_study *study, flim_error *err)
{
    FLIM_TRY(find_holdout(study, err));
    return study->summary ? find_copies(study, err) : FLIM_OK;
}

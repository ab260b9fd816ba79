#include "train/fold_cells.h"

#include "core/alloc.h"
#include "core/try.h"

static void mark(flim_fold_cells *cells, const int64_t *list, int64_t n, flim_cell_use use)
{
    for (int64_t i = 0; i < n; i++) {
        cells->use[list[i]] = (uint8_t)use;
    }
}

flim_status flim_fold_cells_of(const flim_splits *splits, int k, bool strict, flim_fold_cells *out, flim_error *err)
{
    const flim_fold *fold = &splits->fold[k < 0 ? 0 : k]; /* all parts of one fold are those of any other */
    *out = (flim_fold_cells){.use = flim_alloc((size_t)splits->n, sizeof *out->use, err), .n = splits->n};
    FLIM_TRY(out->use ? FLIM_OK : FLIM_ERROR_MEMORY);
    mark(out, fold->train, fold->n_train, FLIM_CELL_TRAINED);
    mark(out, fold->val, fold->n_val, strict && k >= 0 ? FLIM_CELL_TESTED : FLIM_CELL_TRAINED);
    mark(out, fold->test, fold->n_test, k >= 0 ? FLIM_CELL_TESTED : FLIM_CELL_TRAINED);
    mark(out, splits->holdout, splits->n_holdout, FLIM_CELL_TESTED);
    return FLIM_OK;
}

void flim_fold_cells_free(flim_fold_cells *cells)
{
    flim_free(cells->use);
    *cells = (flim_fold_cells){0};
}

void flim_fold_groups_out(const flim_fold_cells *cells, const int64_t *group, int64_t groups, bool *out)
{
    for (int64_t g = 0; g < groups; g++) {
        out[g] = false;
    }
    for (int64_t i = 0; i < cells->n; i++) {
        out[group[i]] = out[group[i]] || cells->use[i] == FLIM_CELL_TESTED;
    }
    for (int64_t i = 0; i < cells->n; i++) {
        out[group[i]] = out[group[i]] && cells->use[i] != FLIM_CELL_TRAINED;
    }
}

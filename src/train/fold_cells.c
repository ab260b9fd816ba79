#include "train/fold_cells.h"

#include <string.h>

#include "core/alloc.h"
#include "core/spelling.h"
#include "core/text.h"
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

flim_status flim_fold_groups_like(const char *const *group_name, const bool *out, int64_t groups, const char *const *name,
                                  int64_t n, int64_t *like, flim_error *err)
{
    char *folded = NULL;
    flim_status status = FLIM_OK;
    char **known = flim_alloc((size_t)groups, sizeof *known, err); /* (groups) folded names of those that are out */
    FLIM_TRY(known ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t g = 0; g < groups; g++) {
        known[g] = out[g] ? flim_text_folded(group_name[g], FLIM_SPELLING_ALL, err) : NULL;
        FLIM_TRY_DONE(known[g] || !out[g] ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
    for (int64_t i = 0; i < n; i++) {
        like[i] = -1;
        folded = flim_text_folded(name[i], FLIM_SPELLING_ALL, err);
        FLIM_TRY_DONE(folded ? FLIM_OK : FLIM_ERROR_MEMORY);
        for (int64_t g = 0; g < groups; g++) {
            const bool same = known[g] && strcmp(known[g], folded) == 0;
            if (same && (like[i] < 0 || strcmp(group_name[g], name[i]) == 0)) { /* the very name, if it is there */
                like[i] = g;
            }
        }
        flim_free(folded);
        folded = NULL;
    }
done:
    flim_free(folded);
    flim_free_list(known, groups);
    return status;
}

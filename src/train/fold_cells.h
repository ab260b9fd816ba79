/* What a fold makes of each cell, for a pretraining that belongs to it.
 *
 * Owns: flim_fold_cells owns its array; flim_fold_cells_free.  Errors: FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_TRAIN_FOLD_CELLS_H
#define FLIM_TRAIN_FOLD_CELLS_H

#include "flim/split.h"

/* TESTED: in the test set or held out; validated, too, if that is to be as strict.  UNUSED: in no part. */
typedef enum flim_cell_use { FLIM_CELL_UNUSED, FLIM_CELL_TRAINED, FLIM_CELL_TESTED } flim_cell_use;

typedef struct flim_fold_cells {
    uint8_t *use; /* (n) flim_cell_use */
    int64_t n; /* cells of the splits */
} flim_fold_cells;

/* k < 0: of no fold, that is of the final model, which trains on all parts.  strict: the validation set counts as tested, else as
 * trained on. */
flim_status flim_fold_cells_of(const flim_splits *splits, int k, bool strict, flim_fold_cells *out, flim_error *err);
void flim_fold_cells_free(flim_fold_cells *cells); /* zeroed is allowed */
/* Sets out[g] (groups) for groups with a tested cell and none that is trained on.  group: of each cell (n at least). */
void flim_fold_groups_out(const flim_fold_cells *cells, const int64_t *group, int64_t groups, bool *out);
/* Of other files, whose people may write a donor's name otherwise: like[i] of name[0..n-1] becomes one of the groups that are out
 * (groups) and have this name, in whatever spelling (core/spelling.h); -1 = none. */
flim_status flim_fold_groups_like(const char *const *group_name, const bool *out, int64_t groups, const char *const *name,
                                  int64_t n, int64_t *like, flim_error *err);

#endif

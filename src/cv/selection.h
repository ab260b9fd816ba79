/* Which cells of a data set are taken: by group, class, name or a list in a file, and a drawn fraction of them.
 *
 * For: flim_repack.  A term is "group=NAME", "class=NAME", "name=NAME" or "file=PATH" (names or numbers of cells, one per line, or rows
 *      of flim_info's table).  Selected is a cell that fits, of each kind of term that there is, at least one; name and file are
 *      one kind.  Excluded is a cell that fits any term.  The fraction is drawn of those left, as train_cv's --fraction is.
 * Owns: nothing.
 * Errors: FLIM_ERROR_USAGE names the term that is none, or that no cell fits, and if no cell is left; FLIM_ERROR_DATA of the file.
 */
#ifndef FLIM_CV_SELECTION_H
#define FLIM_CV_SELECTION_H

#include <stdbool.h>

#include "flim/dataset.h"

typedef struct flim_selection {
    const char *const *select, *const *exclude; /* (n_select), (n_exclude) */
    int n_select, n_exclude;
    double fraction; /* of each class, or of all cells if there are none; 1 = all */
    uint64_t seed;
} flim_selection;

/* Marks in left_out (info->n), all false before, the cells that are not taken. */
flim_status flim_selection_apply(const flim_selection *selection, const flim_dataset_info *info, bool *left_out,
                                 flim_error *err);

#endif

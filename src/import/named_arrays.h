/* The choice among the arrays of a file that have names. */
#ifndef FLIM_IMPORT_NAMED_ARRAYS_H
#define FLIM_IMPORT_NAMED_ARRAYS_H

#include "import/field_file.h"

/* Which of the names (n) the options ask for: theirs, or the only one.  FLIM_ERROR_DATA if there is none, FLIM_ERROR_USAGE if
 * --dataset has to choose, or chooses what is not there; both list what there is. */
flim_status flim_choose_array(const flim_field_file *file, const char *const *name, int n, int *chosen, flim_error *err);

#endif

/* What flim_import writes of its cells besides the data set: /import, where they come from, and /t0_shift, how far they were moved.
 *
 * For: flim_repack, which carries them over to the cells that it copies, out of several files if need be.
 * Owns: flim_import_columns_read fills it; flim_import_columns_free releases it.
 * Errors: FLIM_ERROR_MEMORY.  Objects of these names that are not flim_import's are no error but a note, and are not carried.
 */
#ifndef FLIM_DATA_IMPORT_COLUMNS_H
#define FLIM_DATA_IMPORT_COLUMNS_H

#include "flim/dataset.h"
#include "flim/dataset_writer.h"

enum { FLIM_IMPORT_TEXTS = 6 };

typedef struct flim_import_columns {
    int64_t n; /* cells */
    int64_t *t0_shift; /* (n) bins; 0 of a cell whose file has none; NULL = no file has any */
    int64_t *file; /* (n) the source of each, of n_files; -1 = its file does not say; NULL = no file has any */
    int64_t n_files;
    char **text[FLIM_IMPORT_TEXTS]; /* (n_files) path, mask, sha256, mask_sha256, instrument, date */
} flim_import_columns;

/* Of n cells of the data set, ascending: sources that none of them has are left out, and equal ones of several files are one. */
flim_status flim_import_columns_read(const flim_dataset *dataset, const int64_t *cell, int64_t n, const flim_log *log,
                                     flim_import_columns *out, flim_error *err);
void flim_import_columns_free(flim_import_columns *columns); /* leaves it zeroed; zeroed is allowed */

flim_status flim_import_columns_write(const flim_import_columns *columns, flim_dataset_writer *writer, flim_error *err);
bool flim_import_columns_equal(const flim_import_columns *a, const flim_import_columns *b);

#endif

/* A column, mask or attribute while it is read.  Shared by hdf5_columns.c, hdf5_categories.c, hdf5_texts.c, hdf5_masks.c. */
#ifndef FLIM_DATA_HDF5_COLUMN_H
#define FLIM_DATA_HDF5_COLUMN_H

#include "data/hdf5/hdf5_internal.h"

typedef struct flim_h5_column {
    flim_h5 *h5;
    const char *name; /* a path in the file, less the first slash */
    flim_h5_guard guard;
    hid_t dataset, attribute, type, space; /* -1 = not open */
} flim_h5_column;

/* How a column of texts is stored. */
typedef enum flim_h5_text {
    FLIM_H5_NO_TEXT,
    FLIM_H5_STRINGS, /* HDF5's own */
    FLIM_H5_REFERENCES, /* MATLAB's cellstr: references to datasets of character codes */
    FLIM_H5_CODES /* MATLAB's char array: (length, n) character codes */
} flim_h5_text;

/* Takes the lock; every enter has its leave, which closes what is open. */
flim_h5_column flim_h5_column_enter(flim_h5 *h5, const char *name);
void flim_h5_column_leave(flim_h5_column *s);
/* The same, for another column under the same lock. */
flim_h5_column flim_h5_column_beside(const flim_h5_column *s, const char *name);
void flim_h5_column_close(flim_h5_column *s);

/* ---- to be called under the lock */
/* Opens a dataset with its type and dataspace; s->dataset stays -1 where it does not exist and is not needed. */
flim_status flim_h5_column_open(flim_h5_column *s, bool needed, const char *expected, flim_error *err);
/* Opens a column and checks that it has exactly n values along one axis; other axes have length 1. */
flim_status flim_h5_column_open_values(flim_h5_column *s, int64_t n, flim_error *err);
flim_status flim_h5_column_cannot_read(const flim_h5_column *s, flim_error *err);
/* Another kind of dataset than was expected. */
flim_status flim_h5_column_wrong_kind(const flim_h5_column *s, const char *expected, flim_error *err);
/* ": MATLAB's class string, an object of its own: ..." where MATLAB wrote something that others cannot read; else "". */
const char *flim_h5_column_matlab_hint(const flim_h5_column *s);

/* The n numbers of an open column. */
flim_status flim_h5_column_integers(const flim_h5_column *s, int64_t n, int64_t *values, flim_error *err);
/* Bitfields as unsigned numbers: `count` values of `size` bytes at the start of `values` -> as wide as they are there, in place. */
void flim_h5_widen_bits(size_t size, int64_t count, int64_t *values);

flim_h5_text flim_h5_column_text(const flim_h5_column *s);
/* The n texts of an open column or attribute into list; each is the caller's. */
flim_status flim_h5_column_texts(const flim_h5_column *s, int64_t n, char **list, flim_error *err);

/* ---- categories: hdf5_categories.c */
/* A column whose values are numbers of names: a group of codes and categories (AnnData, pandas), or of values and levels (R,
 * counted from 1), a dataset with an attribute `categories` (older AnnData), or an enumeration with names of its own. */
typedef struct flim_h5_categories {
    char codes[160]; /* path of the numbers; "" = not of this kind */
    char names[160]; /* path of the names; "" = they are the enumeration's */
    hid_t list; /* dataset of the names behind an attribute, or -1 */
    int64_t base; /* number of the first name */
} flim_h5_categories;
/* Is the column /name one? */
flim_status flim_h5_categories_find(const flim_h5_column *s, flim_h5_categories *out, flim_error *err);
void flim_h5_categories_close(flim_h5_categories *categories);
/* Its names in order: *names (flim_free_list) and *count. */
flim_status flim_h5_categories_names(const flim_h5_column *s, const flim_h5_categories *c, char ***names, int64_t *count,
                                     flim_error *err);
/* Its n numbers, 0 .. count - 1. */
flim_status flim_h5_categories_numbers(const flim_h5_column *s, const flim_h5_categories *c, int64_t n, int64_t *values,
                                       flim_error *err);

#endif

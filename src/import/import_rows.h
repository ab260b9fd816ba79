/* What is to be imported: one row per field file, with its mask, class, group and name. */
#ifndef FLIM_IMPORT_IMPORT_ROWS_H
#define FLIM_IMPORT_IMPORT_ROWS_H

#include "flim/string_list.h"
#include "import/import_request.h"

typedef struct flim_import_row {
    char *path, *name; /* name: of its cells, before what tells them apart */
    char *mask; /* NULL = none: each of its images is one cell */
    char *group; /* "" if there are no groups */
    int32_t label; /* of classes; -1 = the request has none */
} flim_import_row;

typedef struct flim_import_rows {
    int64_t n, capacity;
    flim_import_row *row; /* (n) */
    flim_string_list classes; /* in the order of their first mention */
    bool groups; /* the cells have groups */
    int64_t skipped; /* files without a class */
} flim_import_rows;

/* The rows of the request's inputs, in the order of their paths.  out is to be freed after an error, too. */
flim_status flim_import_rows_make(const flim_import_request *request, flim_import_rows *out, flim_error *err);

/* For those who make rows of something else: one more, without a class. */
flim_status flim_import_rows_add(flim_import_rows *rows, flim_import_row **out, flim_error *err);
/* The number of a class by its name, which is added if it is new. */
flim_status flim_import_class_number(flim_string_list *classes, const char *name, int *out, flim_error *err);
/* FLIM_ERROR_USAGE if there is exactly one; how: what names them. */
flim_status flim_import_check_classes(const flim_string_list *classes, const char *how, flim_error *err);
/* The group of a path by the request's rule; the caller's (flim_free). */
char *flim_import_group_of(const flim_import_request *request, const char *path, flim_error *err);
/* FLIM_ERROR_DATA if the mask of a field is not there. */
flim_status flim_import_check_mask(const char *path, const char *mask, flim_error *err);

void flim_import_row_free(flim_import_row *row); /* leaves it zeroed */
void flim_import_rows_free(flim_import_rows *rows); /* leaves it zeroed; zeroed is allowed */

#endif

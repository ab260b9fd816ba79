/* Names of a list that are two spellings of one (core/spelling.h): groups, classes. */
#ifndef FLIM_CORE_ALIKE_NAMES_H
#define FLIM_CORE_ALIKE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/status.h"

typedef struct flim_names {
    int64_t n;
    const char *const *name; /* (n) */
    const bool *left_out; /* (n) these are not compared; NULL = all are */
    const char *what, *one; /* "groups", "donor": what the names are of, and what two of them may be */
} flim_names;

/* *text: "classes 'act' and 'Act' differ only by case: they are treated as different; are they one class?", the caller's
 * (flim_free); NULL if no two are alike.  alike (n, zeroed by the caller; may be NULL) becomes true for each of which another
 * spelling came before. */
flim_status flim_alike_names(const flim_names *names, bool *alike, char **text, flim_error *err);

#endif

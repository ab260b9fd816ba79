/* A list of texts, each a copy that the list owns.  Zeroed is empty.  Errors: FLIM_ERROR_MEMORY. */
#ifndef FLIM_STRING_LIST_H
#define FLIM_STRING_LIST_H

#include <stdbool.h>

#include "flim/status.h"

typedef struct flim_string_list {
    char **item; /* (n) */
    int n;
} flim_string_list;

void flim_string_list_free(flim_string_list *list); /* leaves it zeroed */
flim_status flim_string_list_add(flim_string_list *list, const char *text, flim_error *err);
int flim_string_list_find(const flim_string_list *list, const char *text); /* number of the first such item; -1 = none */
bool flim_string_list_equal(const flim_string_list *a, const flim_string_list *b); /* the same items in the same order */

#endif

#include "flim/string_list.h"

#include <string.h>

#include "core/alloc.h"

void flim_string_list_free(flim_string_list *list)
{
    for (int i = 0; i < list->n; i++) {
        flim_free(list->item[i]);
    }
    flim_free(list->item);
    *list = (flim_string_list){0};
}

flim_status flim_string_list_add(flim_string_list *list, const char *text, flim_error *err)
{
    char **grown = flim_realloc(list->item, (size_t)list->n + 1, sizeof *grown, err);
    if (!grown) {
        return FLIM_ERROR_MEMORY;
    }
    list->item = grown;
    list->item[list->n] = flim_strdup(text, err);
    if (!list->item[list->n]) {
        return FLIM_ERROR_MEMORY;
    }
    list->n++;
    return FLIM_OK;
}

int flim_string_list_find(const flim_string_list *list, const char *text)
{
    for (int i = 0; i < list->n; i++) {
        if (strcmp(list->item[i], text) == 0) {
            return i;
        }
    }
    return -1;
}

bool flim_string_list_equal(const flim_string_list *a, const flim_string_list *b)
{
    bool equal = a->n == b->n;
    for (int i = 0; equal && i < a->n; i++) {
        equal = strcmp(a->item[i], b->item[i]) == 0;
    }
    return equal;
}

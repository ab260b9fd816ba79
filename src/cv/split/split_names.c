/* Cells by their name. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/split/split_internal.h"

typedef struct flim_named_cell {
    const char *name;
    int64_t cell;
} flim_named_cell;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const flim_named_cell *)a)->name, ((const flim_named_cell *)b)->name);
}

void flim_split_names_free(flim_split_names *names)
{
    flim_free(names->sorted);
    names->sorted = NULL;
}

flim_status flim_split_find_name(flim_split_names *names, const char *name, int64_t *cell, int *found, flim_error *err)
{
    const size_t n = (size_t)names->data->n;
    if (!names->sorted) {
        names->sorted = flim_alloc(n, sizeof *names->sorted, err);
        if (!names->sorted) {
            return FLIM_ERROR_MEMORY;
        }
        for (size_t i = 0; i < n; i++) {
            names->sorted[i] = (flim_named_cell){.name = names->data->name[i], .cell = (int64_t)i};
        }
        qsort(names->sorted, n, sizeof *names->sorted, by_name);
    }
    const flim_named_cell key = {.name = name};
    const flim_named_cell *hit = bsearch(&key, names->sorted, n, sizeof *names->sorted, by_name);
    *found = 0;
    if (hit) {
        const size_t at = (size_t)(hit - names->sorted);
        const bool again = (at > 0 && by_name(&names->sorted[at - 1], hit) == 0) ||
                           (at + 1 < n && by_name(&names->sorted[at + 1], hit) == 0);
        *found = again ? 2 : 1;
        *cell = hit->cell;
    }
    return FLIM_OK;
}

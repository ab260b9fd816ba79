#include "net/cell_set.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/text.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "hashes are written in the machine's byte order");

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts; leaves zeros and repeats out. */
static void tidy(flim_cell_set *set)
{
    int64_t kept = 0;
    qsort(set->hash, (size_t)set->n, sizeof *set->hash, by_value);
    for (int64_t i = 0; i < set->n; i++) {
        if (set->hash[i] != 0 && (kept == 0 || set->hash[kept - 1] != set->hash[i])) {
            set->hash[kept++] = set->hash[i];
        }
    }
    set->n = kept;
}

flim_status flim_cell_set_make(const uint64_t *hash, const int64_t *cell, int64_t n, flim_cell_set *out, flim_error *err)
{
    *out = (flim_cell_set){.hash = flim_alloc((size_t)n, sizeof *out->hash, err), .n = n};
    if (!out->hash) {
        out->n = 0;
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        out->hash[i] = hash[cell ? cell[i] : i];
    }
    tidy(out);
    return FLIM_OK;
}

flim_status flim_cell_set_join(flim_cell_set *to, const flim_cell_set *more, flim_error *err)
{
    flim_cell_set both = {.hash = flim_alloc((size_t)(to->n + more->n), sizeof *both.hash, err)};
    if (!both.hash) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0, j = 0; i < to->n || j < more->n;) { /* both ascend */
        const bool first = j == more->n || (i < to->n && to->hash[i] <= more->hash[j]);
        const uint64_t next = first ? to->hash[i] : more->hash[j];
        i += first;
        j += j < more->n && more->hash[j] == next;
        both.hash[both.n++] = next;
    }
    flim_cell_set_free(to);
    *to = both;
    return FLIM_OK;
}

void flim_cell_set_free(flim_cell_set *set)
{
    flim_free(set->hash);
    *set = (flim_cell_set){0};
}

bool flim_cell_set_holds(const flim_cell_set *set, uint64_t hash)
{
    return hash != 0 && set->n > 0 && bsearch(&hash, set->hash, (size_t)set->n, sizeof hash, by_value) != NULL;
}

char *flim_cell_set_text(const flim_cell_set *set, flim_error *err)
{
    return flim_base64(set->n ? (const void *)set->hash : "", (size_t)set->n * sizeof *set->hash, err);
}

flim_status flim_cell_set_parse(const char *text, flim_cell_set *out, flim_error *err)
{
    unsigned char *bytes = NULL;
    size_t count = 0;
    *out = (flim_cell_set){0};
    flim_status status = flim_base64_decode(text, &bytes, &count, err);
    if (status != FLIM_OK) {
        return status;
    }
    if (count % sizeof *out->hash != 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%zu bytes, expected 8 for each cell", count);
    } else if (!(out->hash = flim_alloc(count / sizeof *out->hash, sizeof *out->hash, err))) {
        status = FLIM_ERROR_MEMORY;
    } else {
        out->n = (int64_t)(count / sizeof *out->hash);
        memcpy(out->hash, bytes, count);
    }
    for (int64_t i = 0; status == FLIM_OK && i < out->n; i++) {
        if (out->hash[i] <= (i ? out->hash[i - 1] : 0)) {
            status = flim_fail(err, FLIM_ERROR_DATA, "hash %lld is not above the one before it", (long long)i);
        }
    }
    flim_free(bytes);
    if (status != FLIM_OK) {
        flim_cell_set_free(out);
    }
    return status;
}

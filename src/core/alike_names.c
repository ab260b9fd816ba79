#include "core/alike_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/spelling.h"
#include "core/try.h"

enum { SHOWN = 4, NAME_TEXT = 64 };

typedef struct folded_name {
    char *text;
    int64_t number; /* of the list */
} folded_name;

static int by_text(const void *a, const void *b)
{
    const folded_name *x = a, *y = b;
    const int order = strcmp(x->text, y->text);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* "'D3' and '\ufeffD3' differ only by invisible characters" */
static flim_status pair_text(const char *a, const char *b, char *text, size_t size, size_t *used, flim_error *err)
{
    char first[NAME_TEXT], second[NAME_TEXT], difference[256];
    flim_text_escaped(a, first, sizeof first);
    flim_text_escaped(b, second, sizeof second);
    FLIM_TRY(flim_spelling_difference(a, b, difference, err));
    if (*used < size) {
        *used += (size_t)snprintf(text + *used, size - *used, "%s'%s' and '%s' differ only by %s", *used ? "; " : "", first,
                                  second, difference);
    }
    return FLIM_OK;
}

/* folded (n): those compared, sorted by their text. */
static flim_status compare(const flim_names *names, const folded_name *folded, int64_t n, bool *alike, char **text,
                           flim_error *err)
{
    char pairs[SHOWN * (2 * NAME_TEXT + 300)];
    size_t used = 0;
    int64_t met = 0;
    for (int64_t i = 1; i < n; i++) {
        const int64_t a = folded[i - 1].number, b = folded[i].number;
        if (strcmp(folded[i - 1].text, folded[i].text) != 0) {
            continue;
        }
        if (alike) {
            alike[b] = true;
        }
        if (met++ < SHOWN) {
            FLIM_TRY(pair_text(names->name[a], names->name[b], pairs, sizeof pairs, &used, err));
        }
    }
    if (met == 0) {
        return FLIM_OK;
    }
    if (met > SHOWN && used < sizeof pairs) {
        snprintf(pairs + used, sizeof pairs - used, "; and %" PRId64 " more", met - SHOWN);
    }
    *text = flim_strprintf(err, "%s %s: they are treated as different; are they one %s?", names->what, pairs, names->one);
    return *text ? FLIM_OK : FLIM_ERROR_MEMORY;
}

flim_status flim_alike_names(const flim_names *names, bool *alike, char **text, flim_error *err)
{
    flim_status status = FLIM_OK;
    int64_t n = 0;
    *text = NULL;
    folded_name *folded = flim_alloc((size_t)names->n, sizeof *folded, err);
    FLIM_TRY_DONE(folded ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < names->n; i++) {
        if (!names->left_out || !names->left_out[i]) {
            folded[n] = (folded_name){flim_text_folded(names->name[i], FLIM_SPELLING_ALL, err), i};
            FLIM_TRY_DONE(folded[n++].text ? FLIM_OK : FLIM_ERROR_MEMORY);
        }
    }
    qsort(folded, (size_t)n, sizeof *folded, by_text);
    status = compare(names, folded, n, alike, text, err);
done:
    for (int64_t i = 0; i < n; i++) {
        flim_free(folded[i].text);
    }
    flim_free(folded);
    return status;
}

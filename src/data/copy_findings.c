/* Cells that are in the data more than once: an export that was appended twice, files that overlap, augmented copies.  What is
 * compared is the scan's pattern of each cell, so it takes n log n. */
#include <inttypes.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/findings.h"

typedef struct patterned {
    uint64_t pattern;
    int64_t cell;
} patterned;

static int by_pattern(const void *a, const void *b)
{
    const patterned *x = a, *y = b;
    return x->pattern != y->pattern ? (x->pattern < y->pattern ? -1 : 1) : (x->cell > y->cell) - (x->cell < y->cell);
}

/* What a cell is to another of its pattern. */
typedef enum likeness { COPY, MULTIPLE, ROLLED, TOGETHER, N_LIKENESSES } likeness; /* TOGETHER: copies in one place */

#define APART                                                                                                                \
    " and are not tested in the same fold: what a network is tested on is in its training set, and the scores will be too "  \
    "good"
static const struct {
    flim_finding_kind kind;
    const char *are, *and;
} words[N_LIKENESSES] = {
    [COPY] = {FLIM_FINDING_COPIES, "copies of each other, as they are, flipped or turned", APART},
    [MULTIPLE] = {FLIM_FINDING_MULTIPLES, "each other's counts times a factor", APART},
    [ROLLED] = {FLIM_FINDING_ROLLED_COPIES, "each other with the decay rolled in time", APART},
    [TOGETHER] = {FLIM_FINDING_COUNTED_TWICE, "copies of each other, as they are, flipped or turned",
                  " within one fold: each counts more than once, so that intervals and p values are too narrow"},
};

static likeness likeness_of(const flim_cell_summary *a, const flim_cell_summary *b)
{
    return a->stored_photons != b->stored_photons ? MULTIPLE : a->peak_bin != b->peak_bin ? ROLLED : COPY;
}

/* The copies of one likeness. */
typedef struct copies {
    flim_found cells;
    int64_t first, second; /* a pair; second = 0: none yet */
    int64_t other_label; /* cells whose label is not that of the cell that they copy */
} copies;

/* list (n): cells of one pattern, in order.  fold (cells of the data) or NULL.  is: (cells of the data) gets a bit per likeness. */
static void mark_copies(const flim_dataset_info *info, const flim_cell_summary *summary, const int *fold,
                        const patterned *list, int64_t n, uint8_t *is, copies out[N_LIKENESSES])
{
    bool apart = fold == NULL;
    const int64_t first = list[0].cell;
    for (int64_t i = 1; i < n; i++) {
        apart = apart || fold[list[i].cell] != fold[first];
    }
    for (int64_t i = 1; i < n; i++) {
        const int64_t cell = list[i].cell;
        likeness like = likeness_of(&summary[first], &summary[cell]);
        if (!apart && like != COPY) { /* augmented cells of one fold: no harm to its scores */
            continue;
        }
        like = apart ? like : TOGETHER;
        copies *c = &out[like];
        if (c->second == 0 || first < c->first) {
            c->first = first;
            c->second = cell;
        }
        is[first] |= (uint8_t)(1 << like);
        is[cell] |= (uint8_t)(1 << like);
        c->other_label += info->label && info->label[cell] != info->label[first];
    }
}

flim_status flim_find_copies(const flim_dataset_info *info, const flim_cell_summary *summary, const int *fold,
                             flim_findings *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    copies found[N_LIKENESSES] = {0};
    int64_t n = 0;
    patterned *list = flim_alloc((size_t)info->n, sizeof *list, err);
    uint8_t *is = flim_alloc((size_t)info->n, sizeof *is, err);
    FLIM_TRY_DONE(list && is ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < info->n; i++) {
        if (summary[i].pattern && !(fold && fold[i] == FLIM_PLACE_UNUSED)) {
            list[n++] = (patterned){summary[i].pattern, i};
        }
    }
    qsort(list, (size_t)n, sizeof *list, by_pattern);
    for (int64_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && list[to].pattern == list[from].pattern; to++) {
        }
        mark_copies(info, summary, fold, list + from, to - from, is, found);
    }
    for (int64_t i = 0; i < info->n; i++) {
        for (int like = 0; like < N_LIKENESSES; like++) {
            if (is[i] >> like & 1) {
                flim_found_cell(&found[like].cells, i);
            }
        }
    }
    for (int like = 0; like < N_LIKENESSES; like++) {
        const copies *c = &found[like];
        char labels[96] = "";
        if (c->cells.count == 0) {
            continue;
        }
        if (c->other_label) {
            snprintf(labels, sizeof labels, "; %" PRId64 " of them have another label than the cell they copy",
                     c->other_label);
        }
        FLIM_TRY_DONE(flim_findings_add(out, words[like].kind, FLIM_FINDING_WARNING, &c->cells, err,
                                        "%" PRId64 " cells are %s (%" PRId64 " and %" PRId64 ", for one)%s%s", c->cells.count,
                                        words[like].are, c->first, c->second, fold ? words[like].and : "", labels));
    }
done:
    flim_free(list);
    flim_free(is);
    return status;
}

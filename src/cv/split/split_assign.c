/* Groups into folds: many greedy starts, each improved by moves and swaps, the best kept.
 *
 * The cost is compared in three parts: gaps = (class, fold) pairs without a cell, an empty fold counting as one more; then
 * the mean over classes of the standard deviation over folds of the class's share, which is what scikit-learn lowers; then
 * that of all cells.  They come from exact integer sums, so that the order of the moves leaves no rounding behind.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/try.h"
#include "core/alloc.h"
#include "cv/split/split_internal.h"

enum { MOST_STARTS = 96 };
static const int64_t most_work = 60000000; /* looks at one column of one group, over all starts */
static const double least_gain = 1e-13;

typedef struct plan {
    int64_t groups;
    int folds, columns; /* the classes, then one column for all cells */
    int64_t *count; /* (groups, columns) */
    int64_t *total; /* (columns) */
    double *weight; /* (columns) of a class in the mean; 0 for one without cells */
    int64_t *in_fold; /* (folds, columns) */
    int64_t *squares; /* (columns) sum over folds of in_fold squared */
    int *fold_of; /* (groups), -1 = not placed */
    int64_t gaps, work;
} plan;

typedef struct cost {
    int64_t gaps;
    double spread, size_spread;
} cost;

static bool better(cost a, cost b)
{
    if (a.gaps != b.gaps) {
        return a.gaps < b.gaps;
    }
    if (fabs(a.spread - b.spread) > least_gain) {
        return a.spread < b.spread;
    }
    return a.size_spread < b.size_spread - least_gain;
}

static double spread_of_column(const plan *p, int c, int64_t squares)
{
    double n = (double)p->total[c];
    double excess = (double)(p->folds * squares - p->total[c] * p->total[c]);
    return sqrt(excess) / (n * p->folds);
}

static cost cost_of(const plan *p)
{
    cost sum = {.gaps = p->gaps};
    const int all = p->columns - 1;
    for (int c = 0; c < all; c++) {
        sum.spread += p->weight[c] > 0 ? p->weight[c] * spread_of_column(p, c, p->squares[c]) : 0;
    }
    sum.size_spread = spread_of_column(p, all, p->squares[all]);
    return sum;
}

/* Adds (sign 1) or removes (sign -1) group g to or from the fold's sums. */
static void put(plan *p, int64_t g, int fold, int sign)
{
    const int64_t *count = p->count + g * p->columns;
    int64_t *in_fold = p->in_fold + (int64_t)fold * p->columns;
    for (int c = 0; c < p->columns; c++) {
        if (count[c] == 0) {
            continue;
        }
        int64_t before = in_fold[c], after = before + sign * count[c];
        p->gaps += (after == 0) - (before == 0);
        p->squares[c] += after * after - before * before;
        in_fold[c] = after;
    }
    p->work += 2 * p->columns;
}

static void place(plan *p, int64_t g, int fold)
{
    if (p->fold_of[g] >= 0) {
        put(p, g, p->fold_of[g], -1);
    }
    if (fold >= 0) {
        put(p, g, fold, 1);
    }
    p->fold_of[g] = fold;
}

static void clear(plan *p)
{
    p->gaps = 0;
    for (int c = 0; c < p->columns; c++) {
        p->squares[c] = 0;
        p->gaps += p->weight[c] > 0 ? p->folds : 0;
    }
    memset(p->in_fold, 0, (size_t)p->folds * (size_t)p->columns * sizeof *p->in_fold);
    for (int64_t g = 0; g < p->groups; g++) {
        p->fold_of[g] = -1;
    }
}

/* Puts every group that has no place where it costs least, in the given order; gaps_first says whether filling a gap comes
 * before an even spread. */
static void place_rest(plan *p, const int64_t *order, bool gaps_first)
{
    for (int64_t i = 0; i < p->groups; i++) {
        int64_t g = order[i];
        if (p->fold_of[g] >= 0) {
            continue;
        }
        int best_fold = 0;
        int64_t best_size = 0;
        cost best = {0};
        for (int f = 0; f < p->folds; f++) {
            int64_t size = p->in_fold[(int64_t)f * p->columns + p->columns - 1];
            put(p, g, f, 1);
            cost now = cost_of(p);
            put(p, g, f, -1);
            now.gaps = gaps_first ? now.gaps : 0;
            if (f == 0 || better(now, best) || (!better(best, now) && size < best_size)) {
                best = now;
                best_fold = f;
                best_size = size;
            }
        }
        place(p, g, best_fold);
    }
}

/* Moves single groups and swaps pairs while that lowers the cost. */
static void improve(plan *p)
{
    cost now = cost_of(p);
    for (bool changed = true; changed && p->work < most_work;) {
        changed = false;
        for (int64_t g = 0; g < p->groups; g++) {
            for (int f = 0; f < p->folds; f++) {
                int from = p->fold_of[g];
                if (f == from) {
                    continue;
                }
                place(p, g, f);
                cost moved = cost_of(p);
                if (better(moved, now)) {
                    now = moved;
                    changed = true;
                } else {
                    place(p, g, from);
                }
            }
        }
        for (int64_t a = 0; a < p->groups; a++) {
            for (int64_t b = a + 1; b < p->groups && p->work < most_work; b++) {
                int fa = p->fold_of[a], fb = p->fold_of[b];
                if (fa == fb) {
                    continue;
                }
                place(p, a, fb);
                place(p, b, fa);
                cost swapped = cost_of(p);
                if (better(swapped, now)) {
                    now = swapped;
                    changed = true;
                } else {
                    place(p, a, fa);
                    place(p, b, fb);
                }
            }
        }
    }
}

typedef struct ordered {
    double key;
    int64_t place, group; /* place: before sorting, the tie-break */
} ordered;

static int by_key_descending(const void *a, const void *b)
{
    const ordered *x = a, *y = b;
    if (x->key != y->key) {
        return x->key > y->key ? -1 : 1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

/* The order in which a greedy start places the groups: shuffled; then, for `kind` 0, those whose class counts differ most
 * among themselves first (as scikit-learn does), for 1 the largest first, for 2 the rarest class first, for 3 as
 * shuffled. */
static flim_status order_groups(const plan *p, int kind, flim_random *random, int64_t *order, flim_error *err)
{
    ordered *keyed = flim_alloc((size_t)p->groups, sizeof *keyed, err);
    if (!keyed) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t g = 0; g < p->groups; g++) {
        order[g] = g;
    }
    flim_random_shuffle(random, order, (size_t)p->groups);
    int classes = p->columns - 1;
    for (int64_t i = 0; i < p->groups; i++) {
        const int64_t *count = p->count + order[i] * p->columns;
        double n = (double)count[classes], squares = 0, share = 0, rarest = 0;
        for (int c = 0; c < classes; c++) {
            squares += (double)(count[c] * count[c]);
            share += p->total[c] ? (double)count[c] / (double)p->total[c] : 0;
            rarest = count[c] ? fmax(rarest, 1 / (double)p->total[c]) : rarest;
        }
        double variance = classes ? squares / classes - n / classes * (n / classes) : n;
        double key[] = {variance, share + 1e-9 * n, rarest, 0};
        keyed[i] = (ordered){.key = key[kind], .place = i, .group = order[i]};
    }
    qsort(keyed, (size_t)p->groups, sizeof *keyed, by_key_descending);
    for (int64_t i = 0; i < p->groups; i++) {
        order[i] = keyed[i].group;
    }
    flim_free(keyed);
    return FLIM_OK;
}

static flim_status make_plan(plan *p, int64_t groups, int classes, const int64_t *count, int folds, flim_error *err)
{
    int columns = classes + 1;
    *p = (plan){.groups = groups, .folds = folds, .columns = columns};
    p->count = flim_alloc((size_t)groups * (size_t)columns, sizeof *p->count, err);
    p->total = flim_alloc((size_t)columns, sizeof *p->total, err);
    p->weight = flim_alloc((size_t)columns, sizeof *p->weight, err);
    p->in_fold = flim_alloc((size_t)folds * (size_t)columns, sizeof *p->in_fold, err);
    p->squares = flim_alloc((size_t)columns, sizeof *p->squares, err);
    p->fold_of = flim_alloc((size_t)groups, sizeof *p->fold_of, err);
    if (!p->count || !p->total || !p->weight || !p->in_fold || !p->squares || !p->fold_of) {
        return FLIM_ERROR_MEMORY;
    }
    int present = 0;
    for (int64_t g = 0; g < groups; g++) {
        int64_t *row = p->count + g * columns;
        for (int c = 0; c < classes; c++) {
            row[c] = count[g * classes + c];
            row[classes] += row[c];
        }
        if (classes == 0) {
            row[0] = count[g];
        }
        for (int c = 0; c < columns; c++) {
            p->total[c] += row[c];
        }
    }
    for (int c = 0; c < classes; c++) {
        present += p->total[c] > 0;
    }
    for (int c = 0; c < classes; c++) {
        p->weight[c] = p->total[c] > 0 ? 1.0 / present : 0;
    }
    p->weight[classes] = 1;
    return FLIM_OK;
}

static void free_plan(plan *p)
{
    flim_free(p->count);
    flim_free(p->total);
    flim_free(p->weight);
    flim_free(p->in_fold);
    flim_free(p->squares);
    flim_free(p->fold_of);
}

/* Fewest gaps that could be: a class in fewer groups than folds leaves the rest of the folds without it. */
static int64_t least_gaps(const plan *p)
{
    int64_t gaps = 0;
    for (int c = 0; c < p->columns; c++) {
        int64_t have = 0;
        for (int64_t g = 0; g < p->groups; g++) {
            have += p->count[g * p->columns + c] > 0;
        }
        gaps += have > 0 && have < p->folds ? p->folds - have : 0;
    }
    return gaps;
}

flim_status flim_assign_groups(int64_t groups, int classes, const int64_t *count, int folds, uint64_t seed, flim_cover *cover,
                               int *fold_of, flim_error *err)
{
    plan p;
    cost best = {.gaps = INT64_MAX};
    flim_cover known = FLIM_COVER_UNKNOWN;
    int64_t *order = NULL, *numbers = NULL;
    int *covering = NULL;
    flim_random random = flim_split_random(seed, FLIM_SPLIT_STAGE_SEARCH, 0);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(make_plan(&p, groups, classes, count, folds, err));
    order = flim_alloc((size_t)groups, sizeof *order, err);
    numbers = flim_alloc((size_t)folds, sizeof *numbers, err);
    covering = flim_alloc((size_t)groups, sizeof *covering, err);
    FLIM_TRY_DONE(order && numbers && covering ? FLIM_OK : FLIM_ERROR_MEMORY);
    int64_t floor_of_gaps = least_gaps(&p);
    for (int start = 0; start <= MOST_STARTS; start++) {
        bool from_cover = start == MOST_STARTS;
        if (from_cover) { /* the last start: from an exact search, if the others left gaps that need not be */
            if (best.gaps == 0) {
                known = FLIM_COVER_FOUND;
                break;
            }
            if (floor_of_gaps > 0) {
                known = FLIM_COVER_NONE;
                break;
            }
            FLIM_TRY_DONE(flim_cover_folds(groups, classes, count, folds, &known, covering, err));
            if (known != FLIM_COVER_FOUND) {
                break;
            }
            p.work = 0;
        } else if (start > 0 && p.work >= most_work) {
            continue;
        }
        FLIM_TRY_DONE(order_groups(&p, start < 6 ? start % 3 : start % 4, &random, order, err));
        clear(&p);
        for (int64_t g = 0; from_cover && g < groups; g++) {
            place(&p, g, covering[g]);
        }
        place_rest(&p, order, start >= 3);
        improve(&p);
        cost now = cost_of(&p);
        if (better(now, best)) {
            best = now;
            memcpy(fold_of, p.fold_of, (size_t)groups * sizeof *fold_of);
        }
    }
    /* Fold numbers carry no meaning: let none of them always get the largest group. */
    for (int f = 0; f < folds; f++) {
        numbers[f] = f;
    }
    flim_random_shuffle(&random, numbers, (size_t)folds);
    for (int64_t g = 0; g < groups; g++) {
        fold_of[g] = (int)numbers[fold_of[g]];
    }
    if (cover) {
        *cover = known;
    }
done:
    flim_free(order);
    flim_free(numbers);
    flim_free(covering);
    free_plan(&p);
    return status;
}

/* Is there a way to deal groups into folds so that every fold has every class?  An exact search.
 *
 * Groups with the same set of classes are interchangeable, so the search counts kinds of groups.  A group that has every
 * class makes a fold by itself and is never better used otherwise.  The rest is depth first: fold by fold, the class with the
 * least supply first; positions that have failed are remembered, which also removes the symmetry between folds.
 */
#include <stdlib.h>
#include <string.h>

#include "core/try.h"
#include "core/alloc.h"
#include "cv/split/split_internal.h"

enum { MOST_STEPS = 4000000, MOST_REMEMBERED = 1 << 18, MOST_NUMBERS = 1 << 23 };

typedef struct kind {
    uint64_t classes; /* bit c: has class c */
    int64_t left; /* groups of this kind not yet used */
} kind;

typedef struct search {
    kind *kinds; /* (n_kinds) */
    int n_kinds, classes;
    uint64_t all;
    int64_t *supply; /* (classes) unused groups that have the class */
    int *pick; /* (groups) kind of each group taken, in order; folds are separated by -1 */
    int64_t n_picks;
    int64_t steps;
    /* Failed positions: rows of (n_kinds + 2) numbers in an open hash table of 2 * MOST_REMEMBERED places; 0 = free, else
     * row + 1. */
    int64_t *failed;
    int32_t *place;
    int64_t n_failed, most_failed;
} search;

static int bits(uint64_t set)
{
    return __builtin_popcountll(set);
}

static void write_position(const search *s, uint64_t missing, int folds, int64_t *row)
{
    for (int k = 0; k < s->n_kinds; k++) {
        row[k] = s->kinds[k].left;
    }
    row[s->n_kinds] = (int64_t)missing;
    row[s->n_kinds + 1] = folds;
}

static uint64_t hash_of(const int64_t *row, int n)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < n; i++) {
        h = (h ^ (uint64_t)row[i]) * 1099511628211u;
        h ^= h >> 29;
    }
    return h;
}

/* The place of the position, or the free place where it belongs. */
static size_t find_place(const search *s, const int64_t *row)
{
    size_t mask = 2 * MOST_REMEMBERED - 1, width = (size_t)s->n_kinds + 2;
    size_t at = (size_t)hash_of(row, (int)width) & mask;
    while (s->place[at] && memcmp(s->failed + (size_t)(s->place[at] - 1) * width, row, width * sizeof *row) != 0) {
        at = (at + 1) & mask;
    }
    return at;
}

static void take(search *s, int k, int sign)
{
    s->kinds[k].left -= sign;
    for (int c = 0; c < s->classes; c++) {
        if (s->kinds[k].classes >> c & 1) {
            s->supply[c] -= sign;
        }
    }
}

/* `missing`: classes that the fold in hand still lacks; `folds`: folds to fill, it included.  scratch: one position. */
static bool fill(search *s, uint64_t missing, int folds, int64_t *scratch)
{
    if (missing == 0) {
        if (folds == 1) {
            return true;
        }
        s->pick[s->n_picks++] = -1;
        if (fill(s, s->all, folds - 1, scratch)) {
            return true;
        }
        s->n_picks--;
        return false;
    }
    int rarest = -1;
    for (int c = 0; c < s->classes; c++) {
        uint64_t bit = (uint64_t)1 << c;
        if (s->all & bit) {
            if (s->supply[c] < folds - 1 + ((missing & bit) != 0)) {
                return false;
            }
            if ((missing & bit) && (rarest < 0 || s->supply[c] < s->supply[rarest])) {
                rarest = c;
            }
        }
    }
    if (++s->steps > MOST_STEPS) {
        return false;
    }
    write_position(s, missing, folds, scratch);
    if (s->place[find_place(s, scratch)]) {
        return false;
    }
    /* Kinds that waste the fewest classes first. */
    for (int round = 0; round <= s->classes; round++) {
        for (int k = 0; k < s->n_kinds; k++) {
            uint64_t has = s->kinds[k].classes;
            if (s->kinds[k].left == 0 || !(has >> rarest & 1) || bits(has & ~missing) != round) {
                continue;
            }
            take(s, k, 1);
            s->pick[s->n_picks++] = k;
            if (fill(s, missing & ~has, folds, scratch)) {
                return true;
            }
            s->n_picks--;
            take(s, k, -1);
        }
    }
    if (s->steps <= MOST_STEPS && s->n_failed < s->most_failed) {
        write_position(s, missing, folds, scratch); /* deeper calls have used scratch */
        size_t at = find_place(s, scratch);
        size_t width = (size_t)s->n_kinds + 2;
        memcpy(s->failed + (size_t)s->n_failed * width, scratch, width * sizeof *scratch);
        s->place[at] = (int32_t)++s->n_failed;
    }
    return false;
}

static int by_classes(const void *a, const void *b)
{
    const kind *x = a, *y = b;
    return (x->classes > y->classes) - (x->classes < y->classes);
}

/* Turns the picks into folds: groups of a kind are handed out in their order. */
static void hand_out(const search *s, int64_t groups, const uint64_t *set, int next_fold, int *fold_of)
{
    for (int64_t i = 0; i < s->n_picks; i++) {
        if (s->pick[i] < 0) {
            next_fold++;
            continue;
        }
        for (int64_t g = 0; g < groups; g++) {
            if (fold_of[g] < 0 && set[g] == s->kinds[s->pick[i]].classes) {
                fold_of[g] = next_fold;
                break;
            }
        }
    }
}

flim_status flim_cover_folds(int64_t groups, int classes, const int64_t *count, int folds, flim_cover *cover, int *fold_of,
                             flim_error *err)
{
    *cover = FLIM_COVER_UNKNOWN;
    if (classes > 64) {
        return FLIM_OK;
    }
    flim_status status = FLIM_OK;
    search s = {.classes = classes};
    int64_t *scratch = NULL;
    uint64_t *set = flim_alloc((size_t)groups, sizeof *set, err);
    s.kinds = flim_alloc((size_t)groups, sizeof *s.kinds, err);
    s.supply = flim_alloc((size_t)classes, sizeof *s.supply, err);
    s.pick = flim_alloc((size_t)groups + (size_t)folds, sizeof *s.pick, err);
    FLIM_TRY_DONE(set && s.kinds && s.supply && s.pick ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t g = 0; g < groups; g++) {
        for (int c = 0; c < classes; c++) {
            set[g] |= (uint64_t)(count[g * classes + c] > 0) << c;
        }
        s.all |= set[g];
        fold_of[g] = -1;
    }
    int done_folds = 0;
    for (int64_t g = 0; g < groups; g++) {
        if (set[g] == s.all && done_folds < folds) {
            fold_of[g] = done_folds++;
        } else if (set[g] != s.all) {
            s.kinds[s.n_kinds++] = (kind){.classes = set[g], .left = 1};
        }
    }
    if (done_folds == folds) {
        *cover = FLIM_COVER_FOUND;
        goto done;
    }
    qsort(s.kinds, (size_t)s.n_kinds, sizeof *s.kinds, by_classes);
    int merged = 0;
    for (int k = 0; k < s.n_kinds; k++) {
        if (merged && s.kinds[merged - 1].classes == s.kinds[k].classes) {
            s.kinds[merged - 1].left++;
        } else {
            s.kinds[merged++] = s.kinds[k];
        }
    }
    s.n_kinds = merged;
    for (int k = 0; k < merged; k++) {
        for (int c = 0; c < classes; c++) {
            s.supply[c] += s.kinds[k].classes >> c & 1 ? s.kinds[k].left : 0;
        }
    }
    size_t width = (size_t)merged + 2;
    scratch = flim_alloc(width, sizeof *scratch, err);
    s.most_failed =
        (int64_t)((size_t)MOST_NUMBERS / width < MOST_REMEMBERED ? (size_t)MOST_NUMBERS / width : MOST_REMEMBERED);
    s.failed = flim_alloc((size_t)s.most_failed * width, sizeof *s.failed, err);
    s.place = flim_alloc(2 * MOST_REMEMBERED, sizeof *s.place, err);
    FLIM_TRY_DONE(scratch && s.failed && s.place ? FLIM_OK : FLIM_ERROR_MEMORY);
    if (fill(&s, s.all, folds - done_folds, scratch)) {
        hand_out(&s, groups, set, done_folds, fold_of);
        *cover = FLIM_COVER_FOUND;
    } else if (s.steps <= MOST_STEPS) {
        *cover = FLIM_COVER_NONE;
    }
done:
    flim_free(set);
    flim_free(s.kinds);
    flim_free(s.supply);
    flim_free(s.pick);
    flim_free(s.failed);
    flim_free(s.place);
    flim_free(scratch);
    return status;
}

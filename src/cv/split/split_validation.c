/* The validation set: the cells that choose the epoch and the threshold, taken from those outside the test set. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/try.h"
#include "core/alloc.h"
#include "cv/split/split_internal.h"

/* ---- whole groups */

enum { LOOKS_A_LEVEL = 500000, MOST_LEVELS = 64, FREE_STEPS = 10000, STEPS_PER_GROUP = 8 };

typedef struct cover {
    const flim_split_table *table;
    int classes;
    int64_t *supply; /* (classes) groups in the rest that have the class, val's included */
    int64_t *taken; /* (classes) of those, in val */
    int64_t *rest_cells; /* (classes) cells of the rest */
    int64_t *val_cells; /* (classes) cells of val */
    bool *skipped; /* (classes) class given up */
    int64_t *candidate; /* (n_candidates) groups of the rest, nearest to the wanted size first */
    int64_t n_candidates;
    /* Candidates of one kind (equal counts) do as well as each other, so only the first of each is ever looked at. */
    int64_t *next; /* (n_candidates) place of the next candidate of the same kind; n_candidates = none */
    int64_t *head; /* (kinds) place of the first one that is not in val; likewise */
    int64_t *order; /* (n_kinds) kinds that have candidates, by their head */
    int64_t n_kinds;
    int widest; /* most classes of a candidate */
    bool *in_val, *best; /* (groups) */
    double fraction, best_miss; /* best_miss < 0: none found */
    int64_t looks; /* at a kind, on this level, times the classes looked at */
} cover;

static const int64_t *row(const cover *v, int64_t g)
{
    return v->table->count + g * v->classes;
}

/* A group may go to val only when each of its classes stays in the training set. */
static bool can_take(const cover *v, int64_t g)
{
    for (int c = 0; c < v->classes; c++) {
        if (row(v, g)[c] && v->supply[c] - v->taken[c] < 2) {
            return false;
        }
    }
    return true;
}

/* The sums with the group in val, or without it again. */
static void add(cover *v, int64_t g, int sign)
{
    for (int c = 0; c < v->classes; c++) {
        const int64_t n = row(v, g)[c];
        v->taken[c] += n ? sign : 0;
        v->val_cells[c] += sign * n;
    }
}

static void take(cover *v, int64_t g, bool in)
{
    v->in_val[g] = in;
    add(v, g, in ? 1 : -1);
}

/* The kinds' lists, without what is in val.  In order of the candidates, from the last to the first. */
static void list_kinds(cover *v)
{
    const int64_t none = v->n_candidates;
    v->n_kinds = 0;
    for (int64_t k = 0; k < v->table->kinds; k++) {
        v->head[k] = none;
    }
    for (int64_t i = none; i-- > 0;) {
        const int64_t k = v->table->kind_of[v->candidate[i]];
        if (!v->in_val[v->candidate[i]]) {
            v->next[i] = v->head[k];
            v->head[k] = i;
        }
    }
    for (int64_t i = 0; i < none; i++) {
        const int64_t k = v->table->kind_of[v->candidate[i]];
        if (v->head[k] == i) {
            v->order[v->n_kinds++] = k;
        }
    }
}

/* Takes the first group of the kind at place p of the order, which moves on to where its next one belongs; returns the
 * place. */
static int64_t take_first(cover *v, int64_t p)
{
    const int64_t k = v->order[p];
    take(v, v->candidate[v->head[k]], true);
    v->head[k] = v->next[v->head[k]];
    for (; p + 1 < v->n_kinds && v->head[v->order[p + 1]] < v->head[k]; p++) {
        v->order[p] = v->order[p + 1];
    }
    v->order[p] = k;
    return p;
}

/* Undoes it: the kind at place `now` goes back to place p and has the candidate at `head` first. */
static void put_back(cover *v, int64_t now, int64_t p, int64_t head)
{
    const int64_t k = v->order[now];
    for (; now > p; now--) {
        v->order[now] = v->order[now - 1];
    }
    v->order[p] = k;
    v->head[k] = head;
    take(v, v->candidate[head], false);
}

/* How far val's shares, by class and of all cells, are from the wanted fraction. */
static double miss_of(const cover *v)
{
    double miss = 0;
    int64_t rest = 0, val = 0;
    for (int c = 0; c < v->classes; c++) {
        rest += v->rest_cells[c];
        val += v->val_cells[c];
        if (v->rest_cells[c] && !v->skipped[c]) {
            miss += fabs((double)v->val_cells[c] / (double)v->rest_cells[c] - v->fraction);
        }
    }
    return miss + fabs((double)val / (double)rest - v->fraction);
}

/* Tries all ways to cover the open classes with at most `left` more groups, giving up at most `skips` more classes; keeps the
 * one that misses least. */
static void search(cover *v, int left, int skips)
{
    int open = -1, n_open = 0;
    for (int c = 0; c < v->classes; c++) {
        if (v->supply[c] && !v->taken[c] && !v->skipped[c]) {
            n_open++;
            open = open < 0 || v->supply[c] < v->supply[open] ? c : open;
        }
    }
    if (open < 0) {
        double miss = miss_of(v);
        if (v->best_miss < 0 || miss < v->best_miss - 1e-12) {
            v->best_miss = miss;
            memcpy(v->best, v->in_val, (size_t)v->table->groups * sizeof *v->best);
        }
        return;
    }
    if (n_open > left * v->widest + skips) {
        return; /* not even the groups with the most classes could */
    }
    for (int64_t p = 0; left > 0 && p < v->n_kinds; p++) {
        const int64_t head = v->head[v->order[p]];
        if (head == v->n_candidates) {
            break; /* this kind and all after it are used up */
        }
        v->looks += 1 + v->classes / 16;
        if (v->looks > LOOKS_A_LEVEL) {
            return;
        }
        if (row(v, v->candidate[head])[open] && can_take(v, v->candidate[head])) {
            const int64_t now = take_first(v, p);
            search(v, left - 1, skips);
            put_back(v, now, p, head);
        }
    }
    if (skips > 0) {
        v->skipped[open] = true;
        search(v, left, skips - 1);
        v->skipped[open] = false;
    }
}

/* Would group g bring val nearer to the fraction without passing it?  *miss: how near it is, and then would be. */
static bool brings_nearer(cover *v, int64_t g, double *miss)
{
    int64_t rest = 0, val = 0;
    for (int c = 0; c < v->classes; c++) {
        rest += v->rest_cells[c];
        val += v->val_cells[c] + row(v, g)[c];
    }
    if (!can_take(v, g) || (double)val > v->fraction * (double)rest + 1e-9) {
        return false;
    }
    add(v, g, 1);
    const double after = miss_of(v);
    add(v, g, -1);
    if (!(after < *miss - 1e-12)) {
        return false;
    }
    *miss = after;
    return true;
}

/* Adds groups one by one while each brings val nearer to the fraction without passing it: the best one each time, until that
 * has taken so many looks that the rest is gone through once. */
static void add_up_to_fraction(cover *v)
{
    const int64_t most = FREE_STEPS + STEPS_PER_GROUP * v->n_candidates;
    int64_t looks = 0;
    list_kinds(v);
    while (looks < most) {
        double best = miss_of(v);
        int64_t best_place = -1;
        for (int64_t p = 0; p < v->n_kinds && v->head[v->order[p]] < v->n_candidates; p++, looks++) {
            best_place = brings_nearer(v, v->candidate[v->head[v->order[p]]], &best) ? p : best_place;
        }
        if (best_place < 0) {
            return;
        }
        take_first(v, best_place);
    }
    double miss = miss_of(v);
    for (int64_t i = 0; i < v->n_candidates; i++) {
        if (!v->in_val[v->candidate[i]] && brings_nearer(v, v->candidate[i], &miss)) {
            take(v, v->candidate[i], true);
        }
    }
}

typedef struct sized {
    double key;
    int64_t place, group;
} sized;

static int by_key(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

/* Candidates by how far their largest class share is from the fraction, so that the first cover found is a good one. */
static flim_status order_candidates(cover *v, const bool *in_rest, uint64_t seed, int fold, flim_error *err)
{
    sized *keyed = flim_alloc((size_t)v->table->groups, sizeof *keyed, err);
    if (!keyed) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t g = 0; g < v->table->groups; g++) {
        if (in_rest[g]) {
            v->candidate[v->n_candidates++] = g;
        }
    }
    flim_random random = flim_split_random(seed, FLIM_SPLIT_STAGE_VALIDATION, fold);
    flim_random_shuffle(&random, v->candidate, (size_t)v->n_candidates);
    for (int64_t i = 0; i < v->n_candidates; i++) {
        double share = 0;
        int width = 0;
        for (int c = 0; c < v->classes; c++) {
            int64_t n = row(v, v->candidate[i])[c];
            width += n > 0;
            share = n ? fmax(share, (double)n / (double)v->rest_cells[c]) : share;
        }
        v->widest = width > v->widest ? width : v->widest;
        keyed[i] = (sized){.key = fabs(share - v->fraction), .place = i, .group = v->candidate[i]};
    }
    qsort(keyed, (size_t)v->n_candidates, sizeof *keyed, by_key);
    for (int64_t i = 0; i < v->n_candidates; i++) {
        v->candidate[i] = keyed[i].group;
    }
    flim_free(keyed);
    return FLIM_OK;
}

/* Few classes given up come before few groups. */
static void find_cover(cover *v)
{
    int open = 0, levels = 0;
    for (int c = 0; c < v->classes; c++) {
        v->skipped[c] = v->supply[c] == 1; /* its only group belongs to the training set */
        open += v->supply[c] > 1;
    }
    v->best_miss = -1;
    list_kinds(v);
    for (int skips = 0; skips < open && v->best_miss < 0; skips++) {
        for (int groups = 1; groups <= open - skips && v->best_miss < 0 && levels < MOST_LEVELS; groups++, levels++) {
            v->looks = 0;
            search(v, groups, skips);
        }
    }
    if (v->best_miss >= 0) {
        for (int64_t g = 0; g < v->table->groups; g++) {
            if (v->best[g]) {
                take(v, g, true);
            }
        }
        return;
    }
    /* Too many classes to search through, or nothing to be had: whatever adds a class. */
    for (int64_t i = 0; i < v->n_candidates; i++) {
        bool adds = false;
        for (int c = 0; c < v->classes; c++) {
            adds = adds || (row(v, v->candidate[i])[c] && !v->taken[c]);
        }
        if (adds && !v->in_val[v->candidate[i]] && can_take(v, v->candidate[i])) {
            take(v, v->candidate[i], true);
        }
    }
}

/* Chooses the groups of a validation set among those with in_rest (groups): the fewest that hold every class, with
 * every class left in the rest as well; if that cannot be, as many classes as can be.  Among equals the shares by class
 * nearest to `fraction`; then more groups while that brings them nearer and stays within it.  in_val (groups) is filled. */
static flim_status choose_groups(const flim_split_table *table, const bool *in_rest, double fraction, uint64_t seed, int fold,
                                 bool *in_val, flim_error *err)
{
    int classes = table->data->classes;
    cover v = {.table = table, .classes = classes, .fraction = fraction, .in_val = in_val};
    flim_status status = FLIM_OK;
    int64_t *numbers = flim_alloc((size_t)classes, 4 * sizeof *numbers, err);
    v.skipped = flim_alloc((size_t)classes, sizeof *v.skipped, err);
    v.candidate = flim_alloc((size_t)table->groups, sizeof *v.candidate, err);
    v.best = flim_alloc((size_t)table->groups, sizeof *v.best, err);
    v.next = flim_alloc((size_t)table->groups, sizeof *v.next, err);
    v.head = flim_alloc((size_t)table->kinds, sizeof *v.head, err);
    v.order = flim_alloc((size_t)table->kinds, sizeof *v.order, err);
    FLIM_TRY_DONE(numbers && v.skipped && v.candidate && v.best && v.next && v.head && v.order ? FLIM_OK : FLIM_ERROR_MEMORY);
    v.supply = numbers;
    v.taken = numbers + classes;
    v.rest_cells = numbers + 2 * classes;
    v.val_cells = numbers + 3 * classes;
    for (int64_t g = 0; g < table->groups; g++) {
        in_val[g] = false;
        for (int c = 0; in_rest[g] && c < classes; c++) {
            v.supply[c] += row(&v, g)[c] > 0;
            v.rest_cells[c] += row(&v, g)[c];
        }
    }
    FLIM_TRY_DONE(order_candidates(&v, in_rest, seed, fold, err));
    find_cover(&v);
    add_up_to_fraction(&v);
done:
    flim_free(numbers);
    flim_free(v.skipped);
    flim_free(v.candidate);
    flim_free(v.best);
    flim_free(v.next);
    flim_free(v.head);
    flim_free(v.order);
    return status;
}

/* ---- cells */

/* How many cells of each class: shares by largest remainder, at least one of a class that has two, and one always left. */
static flim_status share_out(const int64_t *have, int classes, double fraction, int64_t *share, flim_error *err)
{
    sized *keyed = flim_alloc((size_t)classes, sizeof *keyed, err);
    if (!keyed) {
        return FLIM_ERROR_MEMORY;
    }
    int64_t total = 0, given = 0;
    for (int c = 0; c < classes; c++) {
        double wanted = fraction * (double)have[c];
        int64_t most = have[c] > 1 ? have[c] - 1 : 0;
        share[c] = (int64_t)floor(wanted + 1e-9);
        share[c] = share[c] < 1 ? 1 : share[c];
        share[c] = share[c] > most ? most : share[c];
        total += have[c];
        given += share[c];
        keyed[c] = (sized){.key = (double)share[c] - wanted, .place = c, .group = most};
    }
    qsort(keyed, (size_t)classes, sizeof *keyed, by_key); /* largest remainder first */
    int64_t goal = llround(fraction * (double)total);
    for (int i = 0; i < classes && given < goal; i++) {
        int64_t c = keyed[i].place;
        if (keyed[i].key < 0 && share[c] < keyed[i].group) {
            share[c]++;
            given++;
        }
    }
    flim_free(keyed);
    return FLIM_OK;
}

static flim_status choose_cells(const flim_split_table *table, const bool *rest, double fraction, uint64_t seed, int fold,
                                bool *val, flim_error *err)
{
    int classes = table->data->classes;
    flim_status status = FLIM_OK;
    int64_t *order = flim_alloc((size_t)table->n, sizeof *order, err);
    int64_t *have = flim_alloc((size_t)classes, sizeof *have, err);
    int64_t *share = flim_alloc((size_t)classes, sizeof *share, err);
    FLIM_TRY_DONE(order && have && share ? FLIM_OK : FLIM_ERROR_MEMORY);
    int64_t n = 0;
    for (int64_t i = 0; i < table->n; i++) {
        if (rest[table->cell[i]]) {
            order[n++] = table->cell[i];
            have[table->data->label[table->cell[i]]]++;
        }
    }
    FLIM_TRY_DONE(share_out(have, classes, fraction, share, err));
    flim_random random = flim_split_random(seed, FLIM_SPLIT_STAGE_VALIDATION, fold);
    flim_random_shuffle(&random, order, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t *left = &share[table->data->label[order[i]]];
        if (*left > 0) {
            --*left;
            val[order[i]] = true;
        }
    }
done:
    flim_free(order);
    flim_free(have);
    flim_free(share);
    return status;
}

flim_status flim_split_validation(const flim_split_table *table, const bool *rest, bool by_group, double fraction,
                                  uint64_t seed, int fold, bool *val, flim_error *err)
{
    if (fraction <= 0) {
        return FLIM_OK;
    }
    if (!by_group) {
        return choose_cells(table, rest, fraction, seed, fold, val, err);
    }
    flim_status status = FLIM_OK;
    bool *in_rest = flim_alloc((size_t)table->groups, sizeof *in_rest, err);
    bool *in_val = flim_alloc((size_t)table->groups, sizeof *in_val, err);
    FLIM_TRY_DONE(in_rest && in_val ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < table->n; i++) {
        in_rest[table->group_of[i]] = in_rest[table->group_of[i]] || rest[table->cell[i]];
    }
    FLIM_TRY_DONE(choose_groups(table, in_rest, fraction, seed, fold, in_val, err));
    for (int64_t i = 0; i < table->n; i++) {
        val[table->cell[i]] = rest[table->cell[i]] && in_val[table->group_of[i]];
    }
done:
    flim_free(in_rest);
    flim_free(in_val);
    return status;
}

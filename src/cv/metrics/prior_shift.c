#include "cv/metrics/prior_shift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/median.h"
#include "core/try.h"
#include "cv/metrics/interval.h"
#include "cv/metrics/mixture.h"
#include "flim/random.h"

static double logit(double p)
{
    return log(p) - log1p(-p);
}

double flim_prior_threshold(double source, double target, double threshold)
{
    return 1 / (1 + exp(-(logit(threshold) + logit(source) - logit(target))));
}

void flim_prior_estimate(int64_t n, int classes, const double *posterior, const double *source, const int64_t *weight,
                         double *target, double *scratch)
{
    memcpy(target, source, (size_t)classes * sizeof *target);
    flim_mixture_maximise(&(flim_mixture){n, classes, posterior, source, weight}, target, scratch);
}

/* The same of a resample, from near the prior of the whole: the maximum is the same, and sooner found. */
static void estimate_again(int64_t n, int classes, const double *posterior, const double *source, const int64_t *weight,
                           const double *whole, double *target, double *scratch)
{
    for (int k = 0; k < classes; k++) {
        target[k] = 0.95 * whole[k] + 0.05 * source[k];
    }
    flim_mixture_maximise(&(flim_mixture){n, classes, posterior, source, weight}, target, scratch);
}

static flim_random stream(uint64_t seed, int replicate)
{
    return flim_random_begin(&(flim_cell_id){.seed = seed, .epoch = (uint32_t)replicate}, FLIM_RANDOM_BOOTSTRAP);
}

flim_status flim_prior_interval(int64_t n, int classes, const double *posterior, const double *source, int replicates,
                                double level, uint64_t seed, double *low, double *high, flim_error *err)
{
    const size_t k_size = (size_t)classes;
    int64_t *weight = flim_alloc((size_t)n, sizeof *weight, err);
    double *target = flim_alloc(3 * k_size, sizeof *target, err); /* (K), then scratch (K), then of all cells (K) */
    double *value = flim_alloc(k_size * (size_t)replicates, sizeof *value, err); /* (K, replicates) */
    flim_status status = FLIM_OK;
    for (int k = 0; k < classes; k++) {
        low[k] = high[k] = NAN;
    }
    FLIM_TRY_DONE(weight && target && value ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_prior_estimate(n, classes, posterior, source, NULL, target + 2 * classes, target);
    for (int r = 0; r < replicates && n >= 2; r++) {
        flim_random random = stream(seed, r);
        memset(weight, 0, (size_t)n * sizeof *weight);
        for (int64_t i = 0; i < n; i++) {
            weight[flim_random_below(&random, (uint64_t)n)]++;
        }
        estimate_again(n, classes, posterior, source, weight, target + 2 * classes, target, target + classes);
        for (int k = 0; k < classes; k++) {
            value[k * replicates + r] = target[k];
        }
    }
    for (int k = 0; k < classes && n >= 2; k++) {
        double *v = value + (size_t)k * (size_t)replicates; /* (replicates) */
        qsort(v, (size_t)replicates, sizeof *v, flim_compare_doubles);
        low[k] = flim_quantile(v, replicates, (1 - level) / 2);
        high[k] = flim_quantile(v, replicates, (1 + level) / 2);
    }
done:
    flim_free(weight);
    flim_free(target);
    flim_free(value);
    return status;
}

/* ---- is it a pure prior shift? ---- */

typedef struct point {
    double score, weight;
} point;

static int by_score(const void *a, const void *b)
{
    const double x = ((const point *)a)->score, y = ((const point *)b)->score;
    return (x > y) - (x < y);
}

/* A validation and a test set, as given or drawn anew. */
typedef struct parts {
    int classes;
    const double *source; /* (K) */
    int64_t n_val, n_test;
    const double *val, *test; /* (n_val,K), (n_test,K) posteriors of the data */
    int64_t *of_class; /* (n_val) validation cells, ordered by class */
    int64_t *start; /* (K + 1) where each class begins in of_class */
    int64_t *val_cell; /* (n_val) the row of `val` in each place, ordered by class likewise */
    double *drawn; /* (n_test,K) posteriors of the test set in hand */
    double *target, *scratch; /* (K) */
    point *points; /* (n_val + n_test) */
} parts;

/* The largest distance of the parts in hand at prior p->target. */
static double distance_of(const parts *p)
{
    double largest = 0;
    for (int k = p->classes == 2; k < p->classes; k++) { /* the two scores of two classes say the same */
        const int64_t n = p->n_val + p->n_test;
        double apart = 0;
        for (int c = 0; c < p->classes; c++) {
            const double weight = p->target[c] / (double)(p->start[c + 1] - p->start[c]);
            for (int64_t i = p->start[c]; i < p->start[c + 1]; i++) {
                p->points[i] = (point){p->val[p->val_cell[i] * p->classes + k], weight};
            }
        }
        for (int64_t i = 0; i < p->n_test; i++) {
            p->points[p->n_val + i] = (point){p->drawn[i * p->classes + k], -1 / (double)p->n_test};
        }
        qsort(p->points, (size_t)n, sizeof *p->points, by_score);
        for (int64_t i = 0; i < n; i++) {
            apart += p->points[i].weight;
            if (i + 1 == n || p->points[i + 1].score != p->points[i].score) {
                largest = fmax(largest, fabs(apart));
            }
        }
    }
    return largest;
}

/* Both parts anew from the validation cells; the classes of the test set by `prior`. */
static void draw_parts(parts *p, const double *prior, flim_random *random)
{
    for (int c = 0; c < p->classes; c++) {
        const int64_t first = p->start[c], cells = p->start[c + 1] - first;
        for (int64_t i = first; i < p->start[c + 1]; i++) {
            p->val_cell[i] = p->of_class[first + (int64_t)flim_random_below(random, (uint64_t)cells)];
        }
    }
    for (int64_t i = 0; i < p->n_test; i++) {
        double u = flim_random_uniform(random);
        int c = 0;
        for (; c + 1 < p->classes && u >= prior[c]; c++) {
            u -= prior[c];
        }
        const int64_t first = p->start[c], cells = p->start[c + 1] - first;
        const int64_t cell = p->of_class[first + (int64_t)flim_random_below(random, (uint64_t)cells)];
        memcpy(p->drawn + i * p->classes, p->val + cell * p->classes, (size_t)p->classes * sizeof *p->drawn);
    }
}

/* of_class and start from the labels; false if a class has too few cells. */
static bool order_by_class(parts *p, const int32_t *label)
{
    int64_t at = 0;
    for (int c = 0; c < p->classes; c++) {
        p->start[c] = at;
        for (int64_t i = 0; i < p->n_val; i++) {
            if (label[i] == c) {
                p->of_class[at++] = i;
            }
        }
        if (at - p->start[c] < FLIM_LEAST_OF_CLASS) {
            return false;
        }
    }
    p->start[p->classes] = at;
    return true;
}

flim_status flim_test_prior_shift(int classes, const double *source, int64_t n_val, const double *val, const int32_t *label,
                                  int64_t n_test, const double *test, int replicates, uint64_t seed, flim_shift_test *out,
                                  flim_error *err)
{
    const size_t k_size = (size_t)classes, cells = (size_t)n_val, tested = (size_t)n_test;
    parts p = {.classes = classes, .source = source, .n_val = n_val, .n_test = n_test, .val = val, .test = test};
    flim_status status = FLIM_OK;
    int as_far = 1;
    double *prior = flim_alloc(3 * k_size, sizeof *prior, err); /* (K) of the data, then of a draw, then scratch */
    *out = (flim_shift_test){NAN, NAN};
    p.of_class = flim_alloc(cells, sizeof *p.of_class, err);
    p.val_cell = flim_alloc(cells, sizeof *p.val_cell, err);
    p.start = flim_alloc(k_size + 1, sizeof *p.start, err);
    p.drawn = flim_alloc(tested * k_size, sizeof *p.drawn, err);
    p.points = flim_alloc(cells + tested, sizeof *p.points, err);
    FLIM_TRY_DONE(prior && p.of_class && p.val_cell && p.start && p.drawn && p.points ? FLIM_OK : FLIM_ERROR_MEMORY);
    p.target = prior + classes;
    p.scratch = prior + 2 * classes;
    if (n_test == 0 || !order_by_class(&p, label)) {
        goto done;
    }
    memcpy(p.val_cell, p.of_class, cells * sizeof *p.val_cell);
    memcpy(p.drawn, test, tested * k_size * sizeof *p.drawn);
    flim_prior_estimate(n_test, classes, test, source, NULL, p.target, p.scratch);
    out->distance = distance_of(&p);
    memcpy(prior, p.target, k_size * sizeof *prior);
    for (int r = 0; r < replicates; r++) {
        flim_random random = stream(seed, r);
        draw_parts(&p, prior, &random);
        estimate_again(n_test, classes, p.drawn, source, NULL, prior, p.target, p.scratch);
        as_far += distance_of(&p) >= out->distance;
    }
    out->p = (double)as_far / (replicates + 1);
done:
    flim_free(prior);
    flim_free(p.of_class);
    flim_free(p.val_cell);
    flim_free(p.start);
    flim_free(p.drawn);
    flim_free(p.points);
    return status;
}

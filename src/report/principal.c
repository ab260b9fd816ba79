#include "report/principal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/symmetric.h"
#include "core/try.h"

/* ---- groups as numbers */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static flim_status number_groups(const flim_embeddings *e, report_components *out, flim_error *err)
{
    if (!e->group) {
        return FLIM_OK;
    }
    out->group_name = flim_alloc((size_t)e->n, sizeof *out->group_name, err);
    out->group_of = flim_alloc((size_t)e->n, sizeof *out->group_of, err);
    FLIM_TRY(out->group_name && out->group_of ? FLIM_OK : FLIM_ERROR_MEMORY);
    memcpy(out->group_name, e->group, (size_t)e->n * sizeof *out->group_name);
    qsort(out->group_name, (size_t)e->n, sizeof *out->group_name, by_name);
    for (int64_t i = 0; i < e->n; i++) {
        if (out->groups == 0 || strcmp(out->group_name[out->groups - 1], out->group_name[i]) != 0) {
            out->group_name[out->groups++] = out->group_name[i];
        }
    }
    for (int64_t i = 0; i < e->n; i++) {
        char *const *found = bsearch(&e->group[i], out->group_name, (size_t)out->groups, sizeof *out->group_name, by_name);
        out->group_of[i] = found - out->group_name;
    }
    return FLIM_OK;
}

/* ---- variance between sets */

/* Sum of squares between `sets` sets over that of all; set (n) says which one a score (n, every `step`-th) is in. */
static flim_status eta_squared(int64_t n, const double *score, const int64_t *group, const int32_t *label, int64_t sets,
                               double *eta, flim_error *err)
{
    double mean = 0, total = 0, between = 0;
    int64_t filled = 0;
    double *sum = flim_alloc((size_t)sets, sizeof *sum, err); /* (sets) */
    int64_t *count = flim_alloc((size_t)sets, sizeof *count, err); /* (sets) */
    const flim_status status = sum && count ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int64_t i = 0; status == FLIM_OK && i < n; i++) {
        mean += score[i] / (double)n;
    }
    for (int64_t i = 0; status == FLIM_OK && i < n; i++) {
        const int64_t set = label ? label[i] : group ? group[i] : 0; /* one of the two is there */
        sum[set] += score[i] - mean;
        count[set]++;
        total += (score[i] - mean) * (score[i] - mean);
    }
    for (int64_t k = 0; status == FLIM_OK && k < sets; k++) {
        filled += count[k] > 0;
        between += count[k] > 0 ? sum[k] * sum[k] / (double)count[k] : 0;
    }
    *eta = filled > 1 && total > 0 ? between / total : (double)NAN;
    flim_free(sum);
    flim_free(count);
    return status;
}

/* ---- components */

/* Scratch of one model: mean (C), covariance (C,C), which becomes the components, variances (C), scores on one (n). */
typedef struct scratch {
    double *mean, *matrix, *variance, *score;
} scratch;

/* Variances up to this are rounding errors: beside the largest variance, and beside what float32 resolves of the means. */
static double least_variance(const scratch *s, int width)
{
    double least = 1e-12 * s->variance[0];
    for (int j = 0; j < width; j++) {
        least = fmax(least, 1e-18 * s->mean[j] * s->mean[j]);
    }
    return least;
}

static flim_status make_covariance(const flim_embeddings *e, int model, const scratch *s, flim_error *err)
{
    const int64_t c = e->width, n = e->n;
    const float *x = e->value + (int64_t)model * n * c;
    memset(s->mean, 0, (size_t)c * sizeof *s->mean);
    memset(s->matrix, 0, (size_t)(c * c) * sizeof *s->matrix);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < c; j++) {
            if (!isfinite(x[i * c + j])) {
                return flim_fail(err, FLIM_ERROR_DATA,
                                 "an embedding of cell %" PRId64 " is not finite (model %d, feature %" PRId64 ")", i, model,
                                 j);
            }
            s->mean[j] += (double)x[i * c + j] / (double)n;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < c; j++) {
            const double d = (double)x[i * c + j] - s->mean[j];
            for (int64_t k = 0; k <= j; k++) {
                s->matrix[j * c + k] += d * ((double)x[i * c + k] - s->mean[k]);
            }
        }
    }
    for (int64_t j = 0; j < c * c; j++) {
        s->matrix[j] /= n > 1 ? (double)(n - 1) : 1;
    }
    return FLIM_OK;
}

/* The cells' scores on component k. */
static void make_scores(const flim_embeddings *e, int model, int k, const scratch *s)
{
    const int64_t c = e->width;
    const float *x = e->value + (int64_t)model * e->n * c;
    for (int64_t i = 0; i < e->n; i++) {
        s->score[i] = 0;
        for (int64_t j = 0; j < c; j++) {
            s->score[i] += s->matrix[k * c + j] * ((double)x[i * c + j] - s->mean[j]);
        }
    }
}

static flim_status analyse(const flim_embeddings *e, int model, const scratch *s, report_components *out, flim_error *err)
{
    double total = 0, squares = 0;
    FLIM_TRY(make_covariance(e, model, s, err));
    FLIM_TRY(flim_symmetric_eigen(e->width, s->matrix, s->variance, err));
    const double least = least_variance(s, e->width);
    for (int j = 0; j < e->width; j++) {
        const double variance = s->variance[j] > least ? s->variance[j] : 0;
        total += variance;
        squares += variance * variance;
    }
    out->effective[model] = squares > 0 ? total * total / squares : (double)NAN;
    for (int k = 0; k < out->n_shown; k++) {
        report_component *one = &out->component[model * out->n_shown + k];
        const bool some = s->variance[k] > least;
        *one = (report_component){total > 0 ? (some ? s->variance[k] / total : 0) : (double)NAN, (double)NAN, (double)NAN};
        make_scores(e, model, k, s);
        for (int64_t i = 0; k < 2 && i < e->n; i++) {
            out->score[2 * ((int64_t)model * e->n + i) + k] = s->score[i];
        }
        if (some && e->label) {
            FLIM_TRY(eta_squared(e->n, s->score, NULL, e->label, e->classes, &one->eta_class, err));
        }
        if (some && out->groups > 0) {
            FLIM_TRY(eta_squared(e->n, s->score, out->group_of, NULL, out->groups, &one->eta_group, err));
        }
    }
    return FLIM_OK;
}

flim_status report_components_make(const flim_embeddings *e, report_components *out, flim_error *err)
{
    const size_t c = (size_t)e->width, models = (size_t)e->models;
    scratch s = {.mean = flim_alloc(c, sizeof *s.mean, err)};
    flim_status status = FLIM_OK;
    *out = (report_components){.models = e->models, .n = e->n, .width = e->width, .n_shown = REPORT_N_COMPONENTS};
    out->n_shown = e->width < out->n_shown ? e->width : out->n_shown;
    out->n_shown = e->n < out->n_shown ? (int)e->n : out->n_shown;
    s.matrix = flim_alloc(c * c, sizeof *s.matrix, err);
    s.variance = flim_alloc(c, sizeof *s.variance, err);
    s.score = flim_alloc((size_t)e->n, sizeof *s.score, err);
    out->component = flim_alloc(models * (size_t)out->n_shown, sizeof *out->component, err);
    out->effective = flim_alloc(models, sizeof *out->effective, err);
    out->score = flim_alloc(models * (size_t)e->n, 2 * sizeof *out->score, err);
    FLIM_TRY_DONE(s.mean && s.matrix && s.variance && s.score && out->component && out->effective && out->score
                      ? FLIM_OK
                      : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(number_groups(e, out, err));
    for (int m = 0; m < e->models; m++) {
        FLIM_TRY_DONE(analyse(e, m, &s, out, err));
    }
done:
    flim_free(s.mean);
    flim_free(s.matrix);
    flim_free(s.variance);
    flim_free(s.score);
    if (status != FLIM_OK) {
        report_components_free(out);
    }
    return status;
}

void report_components_free(report_components *components)
{
    flim_free(components->component);
    flim_free(components->effective);
    flim_free(components->score);
    flim_free(components->group_of);
    flim_free(components->group_name);
    *components = (report_components){0};
}

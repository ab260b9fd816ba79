#include "cv/baseline.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "core/stop.h"
#include "flim/metrics.h"
#include "flim/network.h"
#include "cv/sampler.h"

enum { MOST_NEWTON_STEPS = 100, MOST_HALVINGS = 60 };
static const double tolerance = 1e-9; /* of the gradient, against its first size */

void flim_logistic_free(flim_logistic *model)
{
    flim_free(model->mean);
    flim_free(model->scale);
    flim_free(model->coefficient);
    *model = (flim_logistic){0};
}

/* A fit at work.  P = K' (F+1) parameters. */
typedef struct fit {
    int64_t n;
    int classes, outputs, features;
    const int32_t *label; /* (n) */
    double *z; /* (n,F+1) standardised features, then 1 */
    double *weight; /* (n) */
    double *p; /* (n,K') probabilities at the current coefficients */
    double ridge;
    size_t size; /* P */
    const volatile int *stop;
} fit;

/* The product of two rows.  Eight partial sums, always in the same order, let the compiler use vectors. */
static double row_product(const double *a, const double *b, int n)
{
    double sum[8] = {0};
    int whole = n / 8 * 8;
    for (int j = 0; j < whole; j += 8) {
        for (int lane = 0; lane < 8; lane++) {
            sum[lane] += a[j + lane] * b[j + lane];
        }
    }
    for (int j = whole; j < n; j++) {
        sum[j - whole] += a[j] * b[j];
    }
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* scores (K') of cell i. */
static void scores_of(const fit *f, const double *coefficient, int64_t i, double *score)
{
    int width = f->features + 1;
    const double *z = f->z + i * width;
    for (int k = 0; k < f->outputs; k++) {
        score[k] = row_product(coefficient + (int64_t)k * width, z, width);
    }
}

static double penalty_of(const fit *f, const double *coefficient)
{
    double sum = 0;
    for (size_t i = 0; i < f->size; i++) {
        bool intercept = i % ((size_t)f->features + 1) == (size_t)f->features;
        sum += intercept ? 0 : coefficient[i] * coefficient[i];
    }
    return f->ridge / 2 * sum;
}

/* The objective; fills f->p.  score: (K') scratch. */
static double objective(fit *f, const double *coefficient, double *score)
{
    double sum = penalty_of(f, coefficient);
    for (int64_t i = 0; i < f->n; i++) {
        double *p = f->p + i * f->outputs;
        scores_of(f, coefficient, i, score);
        if (f->outputs == 1) {
            double e = exp(-fabs(score[0])), x = f->label[i] == 1 ? -score[0] : score[0];
            p[0] = score[0] >= 0 ? 1 / (1 + e) : e / (1 + e);
            sum += f->weight[i] * (fmax(x, 0) + log1p(e));
            continue;
        }
        double top = score[0], total = 0;
        for (int k = 1; k < f->outputs; k++) {
            top = fmax(top, score[k]);
        }
        for (int k = 0; k < f->outputs; k++) {
            p[k] = exp(score[k] - top);
            total += p[k];
        }
        for (int k = 0; k < f->outputs; k++) {
            p[k] /= total;
        }
        /* total >= 1: the largest score adds exp(0) */
        sum += f->weight[i] * (log(fmax(total, 1)) + top - score[f->label[i]]);
    }
    return sum;
}

/* out (P) += the ridge times v, intercepts left out. */
static void add_ridge(const fit *f, const double *v, double *out)
{
    for (size_t i = 0; i < f->size; i++) {
        if (i % ((size_t)f->features + 1) != (size_t)f->features) {
            out[i] += f->ridge * v[i];
        }
    }
}

static void add_outer(const fit *f, int64_t i, const double *residual, double *out)
{
    int width = f->features + 1;
    const double *z = f->z + i * width;
    for (int k = 0; k < f->outputs; k++) {
        for (int j = 0; j < width; j++) {
            out[k * width + j] += residual[k] * z[j];
        }
    }
}

static void gradient(const fit *f, const double *coefficient, double *residual, double *out)
{
    memset(out, 0, f->size * sizeof *out);
    for (int64_t i = 0; i < f->n; i++) {
        for (int k = 0; k < f->outputs; k++) {
            bool hit = f->outputs == 1 ? f->label[i] == 1 : f->label[i] == k;
            residual[k] = f->weight[i] * (f->p[i * f->outputs + k] - hit);
        }
        add_outer(f, i, residual, out);
    }
    add_ridge(f, coefficient, out);
}

/* out = Hessian times v: for each cell w (diag(p) - p p') s, where s are the scores that v gives. */
static void hessian_times(const fit *f, const double *v, double *residual, double *out)
{
    memset(out, 0, f->size * sizeof *out);
    for (int64_t i = 0; i < f->n; i++) {
        const double *p = f->p + i * f->outputs;
        scores_of(f, v, i, residual);
        if (f->outputs == 1) {
            residual[0] *= f->weight[i] * p[0] * (1 - p[0]);
        } else {
            double mean = 0;
            for (int k = 0; k < f->outputs; k++) {
                mean += p[k] * residual[k];
            }
            for (int k = 0; k < f->outputs; k++) {
                residual[k] = f->weight[i] * p[k] * (residual[k] - mean);
            }
        }
        add_outer(f, i, residual, out);
    }
    add_ridge(f, v, out);
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* direction = -Hessian^-1 gradient, to a relative residual of `accuracy`.  r, d, hd: (P) scratch. */
static void newton_direction(const fit *f, const double *g, double accuracy, double *residual, double *direction, double *r,
                             double *d, double *hd)
{
    for (size_t i = 0; i < f->size; i++) {
        direction[i] = 0;
        r[i] = d[i] = -g[i];
    }
    double rr = dot(r, r, f->size), goal = rr * accuracy * accuracy;
    for (size_t step = 0; step < 10 * f->size && rr > goal; step++) {
        hessian_times(f, d, residual, hd);
        double curvature = dot(d, hd, f->size);
        if (!(curvature > 0)) {
            return; /* flat: what the steps so far have found must do */
        }
        double length = rr / curvature, next = 0;
        for (size_t i = 0; i < f->size; i++) {
            direction[i] += length * d[i];
            r[i] -= length * hd[i];
            next += r[i] * r[i];
        }
        for (size_t i = 0; i < f->size; i++) {
            d[i] = r[i] + next / rr * d[i];
        }
        rr = next;
    }
}

static flim_status minimise(fit *f, flim_logistic *model, flim_error *err)
{
    double *memory = flim_alloc(6 * f->size + 2 * (size_t)f->outputs, sizeof *memory, err);
    if (!memory) {
        return FLIM_ERROR_MEMORY;
    }
    double *g = memory, *direction = g + f->size, *trial = direction + f->size, *r = trial + f->size, *d = r + f->size;
    double *hd = d + f->size, *score = hd + f->size, *residual = score + f->outputs;
    double now = objective(f, model->coefficient, score), first = 0;
    for (model->steps = 0; model->steps < MOST_NEWTON_STEPS; model->steps++) {
        if (flim_stopped(f->stop)) {
            flim_free(memory);
            return flim_fail(err, FLIM_INTERRUPTED, "interrupted");
        }
        gradient(f, model->coefficient, residual, g);
        double size = sqrt(dot(g, g, f->size));
        first = model->steps == 0 ? size : first;
        if (size <= tolerance * first) {
            model->converged = true;
            break;
        }
        /* Looser far from the optimum, tight near it: the last steps are then full Newton steps. */
        double accuracy = fmin(0.1, sqrt(size / first)) * fmin(0.1, size / first) + 1e-12;
        newton_direction(f, g, accuracy, residual, direction, r, d, hd);
        double slope = dot(g, direction, f->size), length = 1, next = now;
        bool moved = false;
        for (int i = 0; i < MOST_HALVINGS && !moved; i++, length /= 2) {
            for (size_t j = 0; j < f->size; j++) {
                trial[j] = model->coefficient[j] + length * direction[j];
            }
            next = objective(f, trial, score);
            moved = next <= now + 1e-4 * length * slope;
        }
        if (!moved || next >= now) { /* rounding: no better point can be told apart */
            model->converged = size <= 1e-6 * first;
            break;
        }
        memcpy(model->coefficient, trial, f->size * sizeof *trial);
        now = next;
    }
    flim_free(memory);
    return FLIM_OK;
}

/* Means and standard deviations over the training cells, then the standardised table. */
static flim_status standardise(fit *f, const double *x, const int64_t *rows, flim_logistic *model, flim_error *err)
{
    int features = f->features;
    for (int64_t i = 0; i < f->n; i++) {
        for (int j = 0; j < features; j++) {
            double v = x[rows[i] * features + j];
            if (!isfinite(v)) {
                return flim_fail(err, FLIM_ERROR_USAGE, "baseline: feature %d of cell %" PRId64 " is %g, not finite", j,
                                 rows[i], v);
            }
            model->mean[j] += v / (double)f->n;
        }
    }
    for (int64_t i = 0; i < f->n; i++) {
        for (int j = 0; j < features; j++) {
            double off = x[rows[i] * features + j] - model->mean[j];
            model->scale[j] += off * off / (double)f->n;
        }
    }
    for (int j = 0; j < features; j++) {
        double sd = sqrt(model->scale[j]);
        model->scale[j] = sd > 1e-12 * fabs(model->mean[j]) && sd > 0 ? sd : 1;
    }
    for (int64_t i = 0; i < f->n; i++) {
        double *z = f->z + i * (features + 1);
        for (int j = 0; j < features; j++) {
            z[j] = (x[rows[i] * features + j] - model->mean[j]) / model->scale[j];
        }
        z[features] = 1;
    }
    return FLIM_OK;
}

flim_status flim_logistic_fit(const flim_split_data *data, const double *x, int features, const int64_t *rows, int64_t n_rows,
                              const flim_logistic_options *options, flim_logistic *out, flim_error *err)
{
    int outputs = flim_class_outputs(data->classes);
    *out = (flim_logistic){.classes = data->classes, .features = features, .outputs = outputs};
    if (n_rows < 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "baseline: no cells to fit");
    }
    fit f = {.n = n_rows,
             .classes = data->classes,
             .outputs = outputs,
             .features = features,
             .ridge = options->ridge,
             .stop = options->stop,
             .size = (size_t)outputs * ((size_t)features + 1)};
    flim_status status = FLIM_OK;
    size_t n = (size_t)n_rows;
    int32_t *label = flim_alloc(n, sizeof *label, err);
    double *class_weight = flim_alloc((size_t)data->classes, sizeof *class_weight, err);
    f.z = flim_alloc(n * ((size_t)features + 1), sizeof *f.z, err);
    f.weight = flim_alloc(n, sizeof *f.weight, err);
    f.p = flim_alloc(n * (size_t)outputs, sizeof *f.p, err);
    out->mean = flim_alloc((size_t)features, sizeof *out->mean, err);
    out->scale = flim_alloc((size_t)features, sizeof *out->scale, err);
    out->coefficient = flim_alloc(f.size, sizeof *out->coefficient, err);
    const bool whole = label && class_weight && f.z && f.weight && f.p && out->mean && out->scale && out->coefficient;
    FLIM_TRY_DONE(whole ? FLIM_OK : FLIM_ERROR_MEMORY);
    f.label = label;
    flim_class_weights(data, rows, n_rows, class_weight);
    for (int64_t i = 0; i < n_rows; i++) {
        label[i] = data->label[rows[i]];
        f.weight[i] = options->balanced ? class_weight[label[i]] : 1;
    }
    FLIM_TRY_DONE(standardise(&f, x, rows, out, err));
    status = minimise(&f, out, err);
done:
    flim_free(label);
    flim_free(class_weight);
    flim_free(f.z);
    flim_free(f.weight);
    flim_free(f.p);
    if (status != FLIM_OK) {
        flim_logistic_free(out);
    }
    return status;
}

void flim_logistic_logits(const flim_logistic *model, const double *x, float *logits)
{
    for (int k = 0; k < model->outputs; k++) {
        const double *c = model->coefficient + (int64_t)k * (model->features + 1);
        double sum = c[model->features];
        for (int j = 0; j < model->features; j++) {
            sum += c[j] * (x[j] - model->mean[j]) / model->scale[j];
        }
        logits[k] = (float)sum;
    }
}

/* Logits (K') of the class frequencies of a training set. */
static void prior_logits(const flim_split_data *data, const int64_t *rows, int64_t n_rows, double *share, float *logits)
{
    memset(share, 0, (size_t)data->classes * sizeof *share);
    for (int64_t i = 0; i < n_rows; i++) {
        share[data->label[rows[i]]] += 1.0 / (double)n_rows;
    }
    for (int c = 0; c < data->classes; c++) {
        share[c] = fmax(share[c], 1e-6);
        logits[data->classes == 2 ? 0 : c] = (float)log(share[c]);
    }
    if (data->classes == 2) {
        logits[0] = (float)log(share[1] / share[0]);
    }
}

/* The fold's threshold from its validation set. */
static flim_status choose(const flim_split_data *data, const flim_fold *fold, const double *x, const flim_logistic *model,
                          flim_objective objective, double *threshold, flim_error *err)
{
    *threshold = 0.5;
    if (data->classes != 2 || !fold->val_complete) {
        return FLIM_OK;
    }
    flim_status status = FLIM_OK;
    size_t n = (size_t)fold->n_val;
    int32_t *label = flim_alloc(n, sizeof *label, err);
    float *logits = flim_alloc(n, sizeof *logits, err);
    FLIM_TRY_DONE(label && logits ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (size_t i = 0; i < n; i++) {
        label[i] = data->label[fold->val[i]];
        flim_logistic_logits(model, x + fold->val[i] * model->features, logits + i);
    }
    status = flim_choose_threshold_for(objective, fold->n_val, label, logits, threshold, err);
done:
    flim_free(label);
    flim_free(logits);
    return status;
}

/* Fits a model to one fold and decides on its test cells. */
static flim_status run_logistic(const flim_split_data *data, const flim_fold *fold, const double *x, int features,
                                const flim_logistic_options *options, float *logits, int32_t *predicted, double *threshold,
                                flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_logistic model = {0};
    FLIM_TRY_DONE(flim_logistic_fit(data, x, features, fold->train, fold->n_train, options, &model, err));
    FLIM_TRY_DONE(choose(data, fold, x, &model, options->threshold_for, threshold, err));
    for (int64_t i = 0; i < fold->n_test; i++) {
        const int64_t cell = fold->test[i];
        float *to = logits + cell * model.outputs;
        flim_logistic_logits(&model, x + cell * features, to);
        predicted[cell] = flim_predicted_class(data->classes, to, *threshold);
    }
done:
    flim_logistic_free(&model);
    return status;
}

flim_status flim_baseline_run(const flim_splits *splits, const flim_split_data *data, const double *x, int features,
                              const flim_logistic_options *options, float *logits, int32_t *predicted, double *threshold,
                              flim_error *err)
{
    int outputs = flim_class_outputs(data->classes);
    double *share = flim_alloc((size_t)data->classes, sizeof *share, err);
    float *prior = flim_alloc((size_t)outputs, sizeof *prior, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(share && prior ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int f = 0; f < splits->n_folds; f++) {
        const flim_fold *fold = &splits->fold[f];
        threshold[f] = 0.5;
        if (features > 0) {
            FLIM_TRY_DONE(run_logistic(data, fold, x, features, options, logits, predicted, &threshold[f], err));
            continue;
        }
        prior_logits(data, fold->train, fold->n_train, share, prior);
        for (int64_t i = 0; i < fold->n_test; i++) {
            const int64_t cell = fold->test[i];
            memcpy(logits + cell * outputs, prior, (size_t)outputs * sizeof *prior);
            predicted[cell] = flim_predicted_class(data->classes, prior, 0.5);
        }
    }
done:
    flim_free(share);
    flim_free(prior);
    return status;
}

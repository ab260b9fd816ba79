#include "cv/metrics/calibration.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "flim/network.h"

/* The problem in d = 1 + K unknowns: x[0] = 1 / temperature, x[1 + k] = bias of class k. */
typedef struct problem {
    int64_t n;
    int classes, d;
    const int32_t *label; /* (n) */
    const float *logits; /* (n,K') */
    bool fixed_slope; /* x[0] stays as it is */
    double *x, *step, *gradient; /* (d) */
    double *hessian; /* (d,d) */
    double *u, *p; /* (K) logits and probabilities of a cell */
} problem;

/* u (K) of cell i as it came from the network. */
static void logits_of(const problem *q, int64_t i, double *u)
{
    const int outputs = flim_class_outputs(q->classes);
    u[0] = 0;
    for (int k = 0; k < outputs; k++) {
        u[outputs == 1 ? 1 : k] = (double)q->logits[i * outputs + k];
    }
}

/* log sum_k exp(x0 u_k + b_k), and the softmax in p. */
static double log_sum(const problem *q, const double *x, const double *u, double *p)
{
    double top = -INFINITY, sum = 0;
    for (int k = 0; k < q->classes; k++) {
        p[k] = x[0] * u[k] + x[1 + k];
        top = fmax(top, p[k]);
    }
    for (int k = 0; k < q->classes; k++) {
        p[k] = exp(p[k] - top);
        sum += p[k];
    }
    for (int k = 0; k < q->classes; k++) {
        p[k] /= sum;
    }
    return top + log(sum); /* cppcheck-suppress invalidFunctionArg ; the largest term is 1 */
}

static double penalty(const problem *q, const double *x)
{
    double sum = 0.5 * (x[0] - 1) * (x[0] - 1);
    for (int k = 0; k < q->classes; k++) {
        sum += 0.5 * FLIM_CALIBRATION_BIAS_RIDGE * x[1 + k] * x[1 + k];
    }
    return sum;
}

static double objective(const problem *q, const double *x)
{
    double sum = penalty(q, x);
    for (int64_t i = 0; i < q->n; i++) {
        logits_of(q, i, q->u);
        sum += log_sum(q, x, q->u, q->p) - (x[0] * q->u[q->label[i]] + x[1 + q->label[i]]);
    }
    return sum;
}

static void add_cell(const problem *q, int64_t i)
{
    const int classes = q->classes, d = q->d;
    double mean = 0, square = 0, *g = q->gradient, *h = q->hessian;
    logits_of(q, i, q->u);
    log_sum(q, q->x, q->u, q->p);
    for (int k = 0; k < classes; k++) {
        mean += q->p[k] * q->u[k];
    }
    for (int k = 0; k < classes; k++) {
        const double off = q->p[k] - (q->label[i] == k), from_mean = q->u[k] - mean;
        square += q->p[k] * from_mean * from_mean;
        g[0] += off * q->u[k];
        g[1 + k] += off;
        h[1 + k] += q->p[k] * from_mean;
        for (int l = 0; l < classes; l++) {
            h[(1 + k) * d + 1 + l] += q->p[k] * ((k == l) - q->p[l]);
        }
    }
    h[0] += square;
}

/* Gradient (d) and Hessian (d,d) at x. */
static void derive(const problem *q)
{
    const int d = q->d;
    double *g = q->gradient, *h = q->hessian;
    memset(g, 0, (size_t)d * sizeof *g);
    memset(h, 0, (size_t)(d * d) * sizeof *h);
    for (int64_t i = 0; i < q->n; i++) {
        add_cell(q, i);
    }
    g[0] += q->x[0] - 1;
    h[0] += 1;
    for (int k = 1; k < d; k++) {
        g[k] += FLIM_CALIBRATION_BIAS_RIDGE * q->x[k];
        h[k * d + k] += FLIM_CALIBRATION_BIAS_RIDGE;
        h[k * d] = h[k] = q->fixed_slope ? 0 : h[k];
    }
    g[0] = q->fixed_slope ? 0 : g[0];
}

/* step = -hessian^-1 gradient by Cholesky, in place: the matrix is positive definite. */
static void solve(const problem *q)
{
    const int d = q->d;
    double *h = q->hessian, *s = q->step;
    for (int i = 0; i < d; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = h[i * d + j];
            for (int k = 0; k < j; k++) {
                sum -= h[i * d + k] * h[j * d + k];
            }
            h[i * d + j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / h[j * d + j];
        }
    }
    for (int i = 0; i < d; i++) {
        s[i] = -q->gradient[i];
        for (int k = 0; k < i; k++) {
            s[i] -= h[i * d + k] * s[k];
        }
        s[i] /= h[i * d + i];
    }
    for (int i = d; i-- > 0;) {
        for (int k = i + 1; k < d; k++) {
            s[i] -= h[k * d + i] * s[k];
        }
        s[i] /= h[i * d + i];
    }
}

/* Newton's method, each step halved until the objective falls enough (Armijo); ends when none does. */
static void minimise(const problem *q, double *trial)
{
    enum { MOST_STEPS = 200, MOST_HALVINGS = 60 };
    double value = objective(q, q->x);
    for (int t = 0; t < MOST_STEPS; t++) {
        double slope = 0, size = 1, next = value;
        bool fell = false;
        derive(q);
        solve(q);
        for (int k = 0; k < q->d; k++) {
            slope += q->gradient[k] * q->step[k];
        }
        for (int half = 0; half < MOST_HALVINGS && !fell; half++, size /= 2) {
            for (int k = 0; k < q->d; k++) {
                trial[k] = q->x[k] + size * q->step[k];
            }
            next = objective(q, trial);
            fell = next < value && next <= value + 1e-4 * size * slope;
        }
        if (!fell) {
            return;
        }
        memcpy(q->x, trial, (size_t)q->d * sizeof *trial);
        value = next;
    }
}

static bool can_fit(int64_t n, int classes, const int32_t *label, const float *logits)
{
    for (int64_t i = 0; i < n * flim_class_outputs(classes); i++) {
        if (!isfinite(logits[i])) {
            return false;
        }
    }
    for (int k = 0; k < classes; k++) {
        bool found = false;
        for (int64_t i = 0; i < n && !found; i++) {
            found = label[i] == k;
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

flim_status flim_calibration_fit(int64_t n, int classes, const int32_t *label, const float *logits, flim_calibration *out,
                                 flim_error *err)
{
    const size_t d = 1 + (size_t)classes;
    const double least = 1 / FLIM_MOST_TEMPERATURE;
    double *memory = NULL;
    *out = (flim_calibration){0};
    if (!can_fit(n, classes, label, logits)) {
        return FLIM_OK;
    }
    flim_status status = FLIM_OK;
    memory = flim_alloc(d * d + 6 * d, sizeof *memory, err);
    out->bias = flim_alloc((size_t)classes, sizeof *out->bias, err);
    FLIM_TRY_DONE(memory && out->bias ? FLIM_OK : FLIM_ERROR_MEMORY);
    problem q = {.n = n, .classes = classes, .d = (int)d, .label = label, .logits = logits};
    q.x = memory;
    q.step = memory + d;
    q.gradient = memory + 2 * d;
    q.u = memory + 3 * d;
    q.p = memory + 4 * d;
    q.hessian = memory + 6 * d;
    q.x[0] = 1;
    minimise(&q, memory + 5 * d);
    if (q.x[0] < least) { /* along a convex function the best allowed slope is then the least one */
        q.fixed_slope = true;
        q.x[0] = least;
        minimise(&q, memory + 5 * d);
    }
    out->classes = classes;
    out->temperature = 1 / q.x[0];
    memcpy(out->bias, q.x + 1, (size_t)classes * sizeof *out->bias);
done:
    flim_free(memory);
    if (status != FLIM_OK) {
        flim_calibration_free(out);
    }
    return status;
}

void flim_calibration_free(flim_calibration *calibration)
{
    flim_free(calibration->bias);
    *calibration = (flim_calibration){0};
}

void flim_calibrate(const flim_calibration *c, int64_t n, const float *logits, float *calibrated)
{
    const int outputs = flim_class_outputs(c->classes);
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < outputs; k++) {
            const double bias = outputs == 1 ? c->bias[1] - c->bias[0] : c->bias[k];
            calibrated[i * outputs + k] = (float)((double)logits[i * outputs + k] / c->temperature + bias);
        }
    }
}

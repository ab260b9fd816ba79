#include "cpu/layers/cpu_batch_loss.h"

#include <math.h>

#include "backend/similarity.h"

/* What `work` holds: e (n,K'), |x| (n), slopes by the similarities (n,n), and one row of these (n floats). */
typedef struct workspace {
    double *e, *norm, *slope;
    float *row;
} workspace;

static workspace divide(const flim_head *shape, int64_t n, double *work)
{
    workspace w = {.e = work, .norm = work + n * shape->outputs};
    w.slope = w.norm + n;
    w.row = (float *)(void *)(w.slope + n * n);
    return w;
}

size_t flim_cpu_batch_loss_work(const flim_head *shape, int64_t n)
{
    return (size_t)n * ((size_t)shape->outputs + 1 + (size_t)n + 1);
}

static double dot(const double *a, const double *b, int count)
{
    double sum = 0.0;
    for (int k = 0; k < count; k++) {
        sum += a[k] * b[k];
    }
    return sum;
}

static void normalise(const flim_head *shape, int64_t n, const float *x, const workspace *w)
{
    const int outputs = shape->outputs;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int k = 0; k < outputs; k++) {
            sum += (double)x[i * outputs + k] * (double)x[i * outputs + k];
        }
        w->norm[i] = sqrt(sum) + FLIM_LEAST_NORM;
        for (int k = 0; k < outputs; k++) {
            w->e[i * outputs + k] = (double)x[i * outputs + k] / w->norm[i];
        }
    }
}

/* The loss of cell i and its row of slopes, times scale. */
static double row_loss(const flim_head *shape, int64_t n, int64_t i, const int32_t *label, const workspace *w, double scale,
                       bool *correct)
{
    const int outputs = shape->outputs;
    const int64_t partner = flim_partner_of(i, n);
    const flim_target target = {.label = (int)partner};
    double norm[FLIM_LOSS_NORMS] = {0};
    *correct = false;
    for (int64_t j = 0; j < n; j++) {
        w->slope[i * n + j] = 0.0;
        w->row[j] = flim_is_compared(shape->loss, label, i, j)
                        ? (float)(dot(w->e + i * outputs, w->e + j * outputs, outputs) / (double)shape->temperature)
                        : FLIM_NOT_COMPARED;
    }
    if (partner < 0) {
        return 0.0;
    }
    const double loss = flim_loss_of(shape->loss, w->row, (int)n, &target, norm);
    for (int64_t j = 0; j < n; j++) {
        w->slope[i * n + j] = flim_loss_slope(shape->loss, w->row, (int)j, (int)n, &target, norm) * scale;
    }
    *correct = flim_predicted_by(w->row, (int)n) == target.label;
    return loss;
}

static void backward(const flim_head *shape, int64_t n, const workspace *w, double *dx)
{
    const int outputs = shape->outputs;
    for (int64_t i = 0; i < n; i++) {
        double *d = dx + i * outputs;
        const double *e = w->e + i * outputs;
        for (int k = 0; k < outputs; k++) {
            double sum = 0.0;
            for (int64_t j = 0; j < n; j++) {
                sum += (w->slope[i * n + j] + w->slope[j * n + i]) * w->e[j * outputs + k];
            }
            d[k] = sum / (double)shape->temperature;
        }
        const double along = dot(d, e, outputs);
        for (int k = 0; k < outputs; k++) {
            d[k] = (d[k] - along * e[k]) / w->norm[i];
        }
    }
}

flim_cpu_loss flim_cpu_batch_loss(const flim_head *shape, int64_t n, const float *x, const flim_cpu_targets *targets,
                                  double divisor, double *work, double *dx)
{
    const workspace w = divide(shape, n, work);
    flim_cpu_loss out = {0};
    normalise(shape, n, x, &w);
    for (int64_t i = 0; i < n; i++) {
        const double weight = flim_cell_weight(shape, targets->weight[i], targets->label[i]);
        const double scaled = weight * (double)shape->weight;
        bool correct;
        out.loss += scaled * row_loss(shape, n, i, targets->label, &w, scaled / divisor, &correct);
        out.weight += weight;
        out.correct += correct;
    }
    backward(shape, n, &w, dx);
    return out;
}

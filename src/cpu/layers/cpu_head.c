#include "cpu/layers/cpu_head.h"

#include <math.h>

#include "backend/hidden.h"

/* What `work` holds: xhat, slope (dropout scale times the activation's), a (after dropout), dh: (n,hidden) each;
 * dlogits (n,K'); inverse sd of BatchNorm (hidden); cells that its statistics are of, 0 = they were constants; what a loss over
 * the batch needs. */
typedef struct workspace {
    double *xhat, *slope, *a, *dh, *dlogits, *inverse, *count, *over_batch;
} workspace;

static workspace divide(const flim_cpu_head *head, int64_t n)
{
    const size_t hidden = (size_t)head->shape.hidden, cells = (size_t)n;
    double *w = head->work;
    workspace p = {.xhat = w, .slope = w + cells * hidden, .a = w + 2 * cells * hidden, .dh = w + 3 * cells * hidden};
    p.dlogits = w + 4 * cells * hidden;
    p.inverse = p.dlogits + cells * (size_t)head->shape.outputs;
    p.count = p.inverse + hidden;
    p.over_batch = p.count + 1;
    return p;
}

size_t flim_cpu_head_work(const flim_head *shape, int64_t n)
{
    const size_t over_batch = flim_loss_is_over_batch(shape->loss) ? flim_cpu_batch_loss_work(shape, n) : 0;
    return (size_t)n * (4 * (size_t)shape->hidden + (size_t)shape->outputs) + (size_t)shape->hidden + 1 + over_batch;
}

static double dot(const float *weight, const float *x, int count)
{
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        sum += (double)weight[i] * (double)x[i];
    }
    return sum;
}

/* Normalises column j of h in place (p.dh holds fc1's output on the way in, xhat is written) and moves the running values. */
static void normalise(const flim_cpu_head *head, const workspace *p, int64_t n, int j, const double *moments)
{
    const int hidden = head->shape.hidden;
    const double cells = *p->count;
    double mean = (double)head->running_mean[j], var = (double)head->running_var[j];
    if (moments && cells > 0.0) {
        mean = moments[1 + j];
        var = moments[1 + hidden + j] / cells;
        const double momentum = head->momentum;
        flim_cpu_move_running(head->running_mean, head->move_mean, j, momentum, momentum * mean);
        flim_cpu_move_running(head->running_var, head->move_var, j, momentum, momentum * var * cells / (cells - 1.0));
    }
    p->inverse[j] = 1.0 / sqrt(var + (double)FLIM_BN_EPS);
    for (int64_t i = 0; i < n; i++) {
        p->xhat[i * hidden + j] = (p->dh[i * hidden + j] - mean) * p->inverse[j];
    }
}

void flim_cpu_head_hidden(const flim_cpu_head *head, int64_t n, const float *mean, double *moments)
{
    const workspace p = divide(head, n);
    const int in = head->shape.in_channels, hidden = head->shape.hidden;
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < hidden; j++) {
            p.dh[i * hidden + j] = (double)head->fc1_bias[j] + dot(head->fc1_weight + (int64_t)j * in, mean + i * in, in);
        }
    }
    if (!moments) {
        return;
    }
    moments[0] = (double)n;
    for (int j = 0; j < hidden; j++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < n; i++) {
            sum += p.dh[i * hidden + j];
        }
        const double center = n > 0 ? sum / (double)n : 0.0;
        for (int64_t i = 0; i < n; i++) {
            double d = p.dh[i * hidden + j] - center;
            squares += d * d;
        }
        moments[1 + j] = center;
        moments[1 + hidden + j] = squares;
    }
}

void flim_cpu_head_forward(const flim_cpu_head *head, int64_t n, const double *moments, const flim_cell_id *id, float dropout,
                           float *logits)
{
    const workspace p = divide(head, n);
    const int hidden = head->shape.hidden, outputs = head->shape.outputs;
    const bool training = moments != NULL;
    const double kept = 1.0 / (1.0 - (double)dropout);
    *p.count = training && moments[0] > 1.0 && !head->frozen ? moments[0] : 0.0;
    for (int j = 0; j < hidden; j++) {
        normalise(head, &p, n, j, moments);
    }
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < hidden; j++) {
            double u = p.xhat[i * hidden + j] * (double)head->gamma[j] + (double)head->beta[j];
            double slope = u > 0.0 ? 1.0 : (double)FLIM_LEAKY_SLOPE;
            if (training && dropout > 0.0f) {
                slope *= flim_random_keep(&id[i], head->unit, (uint32_t)j, dropout) ? kept : 0.0;
            }
            p.slope[i * hidden + j] = slope;
            p.a[i * hidden + j] = slope != 0.0 ? u * slope : 0.0;
        }
        for (int k = 0; k < outputs; k++) {
            double sum = (double)head->fc2_bias[k];
            for (int j = 0; j < hidden; j++) {
                sum += (double)head->fc2_weight[(int64_t)k * hidden + j] * p.a[i * hidden + j];
            }
            logits[i * outputs + k] = (float)sum;
        }
    }
}

flim_cpu_loss flim_cpu_head_loss(const flim_cpu_head *head, int64_t n, const float *logits, const flim_cpu_targets *targets,
                                 double divisor)
{
    const workspace p = divide(head, n);
    const flim_head *shape = &head->shape;
    const int outputs = shape->outputs;
    flim_cpu_loss out = {0};
    if (flim_loss_is_over_batch(shape->loss)) {
        return flim_cpu_batch_loss(shape, n, logits, targets, divisor, p.over_batch, p.dlogits);
    }
    for (int64_t i = 0; i < n; i++) {
        const float *x = logits + i * outputs;
        const flim_target target = {.label = targets->label[i],
                                    .smoothing = targets->smoothing,
                                    .gamma = targets->gamma,
                                    .distribution = targets->target ? targets->target + i * targets->classes : NULL};
        const double weight = flim_cell_weight(shape, targets->weight[i], target.label);
        double norm[FLIM_LOSS_NORMS] = {0};
        const double loss = flim_loss_of(shape->loss, x, outputs, &target, norm);
        for (int k = 0; k < outputs; k++) {
            p.dlogits[i * outputs + k] =
                flim_loss_slope(shape->loss, x, k, outputs, &target, norm) * (weight * (double)shape->weight / divisor);
        }
        out.loss += weight * (double)shape->weight * loss;
        out.weight += weight;
        out.correct += flim_predicted_by(x, outputs) == target.label;
    }
    return out;
}

/* Gradients of fc2 and, in p->dh, of BatchNorm's output. */
static void backward_fc2(const flim_cpu_head *head, const workspace *p, int64_t n)
{
    const int hidden = head->shape.hidden, outputs = head->shape.outputs;
    for (int k = 0; k < outputs; k++) {
        double db = 0.0;
        for (int64_t i = 0; i < n; i++) {
            db += p->dlogits[i * outputs + k];
        }
        head->dfc2_bias[k] += (float)db;
        for (int j = 0; j < hidden; j++) {
            double dw = 0.0;
            for (int64_t i = 0; i < n; i++) {
                dw += p->dlogits[i * outputs + k] * p->a[i * hidden + j];
            }
            head->dfc2_weight[(int64_t)k * hidden + j] += (float)dw;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < hidden; j++) {
            double da = 0.0;
            for (int k = 0; k < outputs; k++) {
                da += p->dlogits[i * outputs + k] * (double)head->fc2_weight[(int64_t)k * hidden + j];
            }
            p->dh[i * hidden + j] = p->slope[i * hidden + j] != 0.0 ? da * p->slope[i * hidden + j] : 0.0;
        }
    }
}

void flim_cpu_head_sum_gradients(const flim_cpu_head *head, int64_t n, double *sums)
{
    const workspace p = divide(head, n);
    const int hidden = head->shape.hidden;
    backward_fc2(head, &p, n);
    for (int j = 0; j < hidden; j++) {
        double sum = 0.0, product = 0.0;
        for (int64_t i = 0; i < n; i++) {
            sum += p.dh[i * hidden + j];
            product += p.dh[i * hidden + j] * p.xhat[i * hidden + j];
        }
        head->dgamma[j] += (float)product;
        head->dbeta[j] += (float)sum;
        sums[j] = sum;
        sums[hidden + j] = product;
    }
}

/* Replaces in column j of p->dh the gradient of BatchNorm's output by that of its input. */
static void backward_norm(const flim_cpu_head *head, const workspace *p, int64_t n, int j, const double *sums)
{
    const int hidden = head->shape.hidden;
    const double a = (double)head->gamma[j] * p->inverse[j], cells = *p->count;
    const bool frozen = cells == 0.0;
    double bias = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double *d = &p->dh[i * hidden + j];
        *d = frozen ? a * *d : a * (*d - sums[j] / cells - p->xhat[i * hidden + j] * sums[hidden + j] / cells);
        bias += *d;
    }
    head->dfc1_bias[j] += frozen ? (float)bias : 0.0f; /* exactly 0 in front of batch statistics */
}

void flim_cpu_head_backward(const flim_cpu_head *head, int64_t n, const double *sums, const float *mean, float *dmean)
{
    const workspace p = divide(head, n);
    const int in = head->shape.in_channels, hidden = head->shape.hidden;
    for (int j = 0; j < hidden; j++) {
        backward_norm(head, &p, n, j, sums);
        for (int c = 0; c < in; c++) {
            double dw = 0.0;
            for (int64_t i = 0; i < n; i++) {
                dw += p.dh[i * hidden + j] * (double)mean[i * in + c];
            }
            head->dfc1_weight[(int64_t)j * in + c] += (float)dw;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        for (int c = 0; c < in; c++) {
            double sum = 0.0;
            for (int j = 0; j < hidden; j++) {
                sum += p.dh[i * hidden + j] * (double)head->fc1_weight[(int64_t)j * in + c];
            }
            dmean[i * in + c] = (float)sum;
        }
    }
}

/* Voxels that count: all, those inside the mask, or those hidden. */
static size_t counted(const flim_cpu_dense *d)
{
    size_t pixels = 0, hidden = 0;
    for (size_t i = 0; d->hidden && i < d->bins * d->plane; i++) {
        hidden += d->hidden[i];
    }
    if (flim_loss_is_hidden(d->head->loss)) {
        return hidden;
    }
    for (size_t i = 0; i < d->plane; i++) {
        pixels += flim_loss_target(d->head->loss) == FLIM_TARGET_SIGNAL || d->mask[i] != 0;
    }
    return pixels * d->bins;
}

static double voxel_loss(const flim_cpu_dense *d, size_t i, double *slope)
{
    flim_target target = {.signal = (double)d->signal[i]};
    double norm[FLIM_LOSS_NORMS] = {0};
    if (flim_loss_is_hidden(d->head->loss)) {
        if (d->hidden[i] == 0) {
            *slope = 0.0;
            return 0.0;
        }
        target.signal = flim_hidden_target(d->head->loss, flim_voxel_of(d->signal[i], 1, 1));
    }
    if (flim_loss_target(d->head->loss) == FLIM_TARGET_SIGNAL_IN_MASK && d->mask[i % d->plane] == 0) {
        *slope = 0.0;
        return 0.0;
    }
    const double loss = flim_loss_of(d->head->loss, &d->y[i], 1, &target, norm);
    *slope = flim_loss_slope(d->head->loss, &d->y[i], 0, 1, &target, norm);
    return loss;
}

double flim_cpu_dense_loss(const flim_cpu_dense *d)
{
    const size_t count = counted(d);
    double sum = 0.0, slope;
    for (size_t i = 0; i < d->bins * d->plane; i++) {
        sum += voxel_loss(d, i, &slope);
    }
    return count > 0 ? sum / (double)count : 0.0;
}

void flim_cpu_dense_backward(const flim_cpu_dense *d, bool first, float *dy)
{
    const size_t count = counted(d);
    const double share = count > 0 ? d->share / (double)count : 0.0;
    for (size_t i = 0; i < d->bins * d->plane; i++) {
        double slope;
        (void)voxel_loss(d, i, &slope);
        dy[i] = (first ? 0.0f : dy[i]) + (float)(slope * share);
    }
}

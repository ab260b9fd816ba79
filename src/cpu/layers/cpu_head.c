#include "cpu/layers/cpu_head.h"

#include <math.h>

/* The parts of `work`: xhat, gate (dropout scale times the activation's slope), a (after dropout), dh: (n,hidden) each;
 * dlogits (n,K'); inverse sd of BatchNorm (hidden); 0/1: statistics were constants. */
typedef struct parts {
    double *xhat, *gate, *a, *dh, *dlogits, *inverse, *frozen;
} parts;

static parts divide(const flim_cpu_head *head, int64_t n)
{
    const size_t hidden = (size_t)head->shape.hidden, cells = (size_t)n;
    double *w = head->work;
    parts p = {.xhat = w, .gate = w + cells * hidden, .a = w + 2 * cells * hidden, .dh = w + 3 * cells * hidden};
    p.dlogits = w + 4 * cells * hidden;
    p.inverse = p.dlogits + cells * (size_t)head->shape.outputs;
    p.frozen = p.inverse + hidden;
    return p;
}

size_t flim_cpu_head_work(const flim_head *shape, int64_t n)
{
    return (size_t)n * (4 * (size_t)shape->hidden + (size_t)shape->outputs) + (size_t)shape->hidden + 1;
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
static void normalise(const flim_cpu_head *head, const parts *p, int64_t n, int j, bool batch_statistics)
{
    const int hidden = head->shape.hidden;
    double mean = (double)head->running_mean[j], var = (double)head->running_var[j];
    if (batch_statistics) {
        mean = var = 0.0;
        for (int64_t i = 0; i < n; i++) {
            mean += p->dh[i * hidden + j];
        }
        mean /= (double)n;
        for (int64_t i = 0; i < n; i++) {
            double d = p->dh[i * hidden + j] - mean;
            var += d * d;
        }
        var /= (double)n;
        const double momentum = (double)FLIM_BN_MOMENTUM;
        head->running_mean[j] = (float)((1.0 - momentum) * (double)head->running_mean[j] + momentum * mean);
        head->running_var[j] =
            (float)((1.0 - momentum) * (double)head->running_var[j] + momentum * var * (double)n / (double)(n - 1));
    }
    p->inverse[j] = 1.0 / sqrt(var + (double)FLIM_BN_EPS);
    for (int64_t i = 0; i < n; i++) {
        p->xhat[i * hidden + j] = (p->dh[i * hidden + j] - mean) * p->inverse[j];
    }
}

void flim_cpu_head_forward(const flim_cpu_head *head, int64_t n, const float *mean, const flim_cell_id *id, bool training,
                           float dropout, float *logits)
{
    const parts p = divide(head, n);
    const int in = head->shape.in_channels, hidden = head->shape.hidden, outputs = head->shape.outputs;
    const bool batch_statistics = training && n > 1 && !head->frozen;
    const double kept = 1.0 / (1.0 - (double)dropout);
    *p.frozen = batch_statistics ? 0.0 : 1.0;
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < hidden; j++) {
            p.dh[i * hidden + j] = (double)head->fc1_bias[j] + dot(head->fc1_weight + (int64_t)j * in, mean + i * in, in);
        }
    }
    for (int j = 0; j < hidden; j++) {
        normalise(head, &p, n, j, batch_statistics);
    }
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < hidden; j++) {
            double u = p.xhat[i * hidden + j] * (double)head->gamma[j] + (double)head->beta[j];
            double gate = u > 0.0 ? 1.0 : (double)FLIM_LEAKY_SLOPE;
            if (training && dropout > 0.0f) {
                gate *= flim_random_keep(&id[i], head->unit, (uint32_t)j, dropout) ? kept : 0.0;
            }
            p.gate[i * hidden + j] = gate;
            p.a[i * hidden + j] = gate != 0.0 ? u * gate : 0.0;
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

/* BCE with logits: max(x,0) - x y + log(1 + exp(-|x|)); smoothing moves y to y (1 - s) + s / 2. */
static double binary(double x, int32_t label, double smoothing, double *dx)
{
    const double y = (double)label * (1.0 - smoothing) + 0.5 * smoothing;
    *dx = 1.0 / (1.0 + exp(-x)) - y;
    return (x > 0.0 ? x : 0.0) - x * y + log1p(exp(-fabs(x)));
}

/* torch.nn.functional.cross_entropy: (1 - s) (-log p_label) + s / K sum(-log p). */
static double categorical(const float *logits, int outputs, int32_t label, double smoothing, double *dlogits)
{
    double most = (double)logits[0], loss = 0.0;
    for (int k = 1; k < outputs; k++) {
        most = (double)logits[k] > most ? (double)logits[k] : most;
    }
    double sum = exp((double)logits[0] - most);
    for (int k = 1; k < outputs; k++) {
        sum += exp((double)logits[k] - most);
    }
    const double log_sum = most + log(sum);
    for (int k = 0; k < outputs; k++) {
        double log_p = (double)logits[k] - log_sum;
        double target = (k == label ? 1.0 - smoothing : 0.0) + smoothing / (double)outputs;
        loss -= target * log_p;
        dlogits[k] = exp(log_p) - target;
    }
    return loss;
}

static int predicted(const float *logits, int outputs)
{
    if (outputs == 1) {
        return logits[0] > 0.0f;
    }
    int best = 0;
    for (int k = 1; k < outputs; k++) {
        best = logits[k] > logits[best] ? k : best;
    }
    return best;
}

flim_cpu_loss flim_cpu_head_loss(const flim_cpu_head *head, int64_t n, const float *logits, const int32_t *label,
                                 const float *weight, float label_smoothing, double divisor)
{
    const parts p = divide(head, n);
    const int outputs = head->shape.outputs;
    flim_cpu_loss out = {0};
    for (int64_t i = 0; i < n; i++) {
        const float *x = logits + i * outputs;
        double *dx = p.dlogits + i * outputs;
        double loss = outputs == 1 ? binary((double)x[0], label[i], (double)label_smoothing, dx)
                                   : categorical(x, outputs, label[i], (double)label_smoothing, dx);
        for (int k = 0; k < outputs; k++) {
            dx[k] *= (double)weight[i] / divisor;
        }
        out.loss += (double)weight[i] * loss;
        out.weight += (double)weight[i];
        out.correct += predicted(x, outputs) == label[i];
    }
    return out;
}

/* Gradients of fc2 and, in p->dh, of BatchNorm's output. */
static void backward_fc2(const flim_cpu_head *head, const parts *p, int64_t n)
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
            p->dh[i * hidden + j] = p->gate[i * hidden + j] != 0.0 ? da * p->gate[i * hidden + j] : 0.0;
        }
    }
}

/* Turns column j of p->dh from the gradient of BatchNorm's output into that of its input. */
static void backward_norm(const flim_cpu_head *head, const parts *p, int64_t n, int j)
{
    const int hidden = head->shape.hidden;
    double sum = 0.0, product = 0.0, bias = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += p->dh[i * hidden + j];
        product += p->dh[i * hidden + j] * p->xhat[i * hidden + j];
    }
    head->dgamma[j] += (float)product;
    head->dbeta[j] += (float)sum;
    const double a = (double)head->gamma[j] * p->inverse[j];
    const bool frozen = *p->frozen != 0.0;
    for (int64_t i = 0; i < n; i++) {
        double *d = &p->dh[i * hidden + j];
        *d = frozen ? a * *d : a * (*d - sum / (double)n - p->xhat[i * hidden + j] * product / (double)n);
        bias += *d;
    }
    head->dfc1_bias[j] += frozen ? (float)bias : 0.0f; /* exactly 0 in front of batch statistics */
}

void flim_cpu_head_backward(const flim_cpu_head *head, int64_t n, const float *mean, float *dmean)
{
    const parts p = divide(head, n);
    const int in = head->shape.in_channels, hidden = head->shape.hidden;
    backward_fc2(head, &p, n);
    for (int j = 0; j < hidden; j++) {
        backward_norm(head, &p, n, j);
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

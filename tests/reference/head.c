/* Heads and losses.  Pooled: mean over T,H,W -> fc1 -> BN over the batch -> leaky ReLU -> dropout -> fc2 -> cross entropy. */
#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The target's share of class 1 (one output) or of class k: soft targets as they are, labels smoothed: y(1-s) + s/2 for two
 * classes, (1-s) onehot + s/K for more. */
static double share_of(const flim_head *head, const ref_head_run *r, int64_t cell, int k)
{
    if (head->loss == FLIM_LOSS_SOFT_TARGETS) {
        return head->outputs == 1 ? (double)r->target[2 * cell + 1] : (double)r->target[head->outputs * cell + k];
    }
    const double s = r->label_smoothing;
    return head->outputs == 1 ? r->label[cell] * (1 - s) + s / 2 : (k == r->label[cell] ? 1 - s : 0) + s / head->outputs;
}

/* The focal loss -sum y_k (1 - p_k)^gamma log p_k of classes with probabilities p (K) and shares y (K) of the target;
 * dp (K) gets its derivatives by p. */
static double focal_loss(int classes, const double *p, const double *y, double gamma, double *dp)
{
    double loss = 0;
    for (int k = 0; k < classes; k++) {
        const double q = 1 - p[k];
        loss -= y[k] * pow(q, gamma) * log(p[k]);
        dp[k] = y[k] * (gamma * pow(q, gamma - 1) * log(p[k]) - pow(q, gamma) / p[k]);
    }
    return loss;
}

/* By the whole Jacobian of softmax or sigmoid. */
static double focal_cell_loss(const flim_head *head, const ref_head_run *r, int64_t cell, const double *logit, double *dlogit)
{
    const int outputs = head->outputs, classes = outputs == 1 ? 2 : outputs;
    double p[32], y[32], dp[32], sum = 0;
    if (classes > 32) {
        abort();
    }
    for (int k = 0; k < classes; k++) {
        p[k] = exp(outputs == 1 ? (k == 1 ? logit[0] : 0) : logit[k]);
        sum += p[k];
        y[k] = outputs == 1 ? (k == 1 ? share_of(head, r, cell, 1) : 1 - share_of(head, r, cell, 1))
                            : share_of(head, r, cell, k);
    }
    for (int k = 0; k < classes; k++) {
        p[k] /= sum;
    }
    const double loss = focal_loss(classes, p, y, r->focal_gamma, dp);
    for (int j = 0; j < outputs; j++) {
        const int class = outputs == 1 ? 1 : j;
        dlogit[j] = 0;
        for (int k = 0; k < classes; k++) {
            dlogit[j] += dp[k] * p[k] * ((k == class) - p[class]);
        }
    }
    return loss;
}

/* Loss of one cell; dlogit (K') gets d loss / d logit.  One output: sigmoid and cross entropy; else softmax and cross
 * entropy. */
static double cell_loss(const flim_head *head, const ref_head_run *r, int64_t cell, const double *logit, double *dlogit)
{
    const int outputs = head->outputs;
    if (r->focal_gamma > 0) {
        return focal_cell_loss(head, r, cell, logit, dlogit);
    }
    if (outputs == 1) {
        double target = share_of(head, r, cell, 1), l = logit[0];
        dlogit[0] = 1 / (1 + exp(-l)) - target;
        return (l > 0 ? l : 0) - l * target + log1p(exp(-fabs(l)));
    }
    double most = logit[0], sum = 0, loss = 0;
    for (int k = 1; k < outputs; k++) {
        most = logit[k] > most ? logit[k] : most;
    }
    for (int k = 0; k < outputs; k++) {
        sum += exp(logit[k] - most);
    }
    for (int k = 0; k < outputs; k++) {
        double log_probability = logit[k] - most - log(sum);
        double target = share_of(head, r, cell, k);
        loss -= target * log_probability;
        dlogit[k] = exp(log_probability) - target;
    }
    return loss;
}

/* The weight of a cell in the batch's loss. */
static double cell_share(const flim_head *head, const float *cell_weight, const int32_t *label, int64_t cell, double divisor)
{
    double weight = (double)cell_weight[cell] * (double)head->weight;
    weight *= head->n_class_weights > 0 ? (double)head->class_weight[label[cell]] : 1;
    return weight / divisor;
}

void ref_dense_head(const flim_head *head, ref_dense_run *r)
{
    r->loss = 0;
    for (int64_t n = 0; n < r->n; n++) {
        int64_t count = 0;
        for (int64_t i = 0; i < r->voxels; i++) {
            count += head->loss == FLIM_LOSS_SQUARED || r->mask[n * r->pixels + i % r->pixels];
        }
        const double share = cell_share(head, r->cell_weight, r->label, n, r->divisor) / (double)(count > 0 ? count : 1);
        for (int64_t i = 0; i < r->voxels; i++) {
            const double difference = r->y[n * r->voxels + i] - (double)r->signal[n * r->voxels + i];
            if (head->loss == FLIM_LOSS_SQUARED || r->mask[n * r->pixels + i % r->pixels]) {
                r->loss += share * difference * difference;
                if (r->dy) {
                    r->dy[n * r->voxels + i] += share * 2 * difference;
                }
            }
        }
    }
}

/* out (n,O) = in (n,I) weight' (I,O) + bias. */
static void linear(int64_t n, int in_size, int out_size, const double *in, const double *weight, const double *bias,
                   double *out)
{
    for (int64_t i = 0; i < n; i++) {
        for (int o = 0; o < out_size; o++) {
            double sum = bias[o];
            for (int k = 0; k < in_size; k++) {
                sum += weight[(int64_t)o * in_size + k] * in[i * in_size + k];
            }
            out[i * out_size + o] = sum;
        }
    }
}

/* Gradients of `linear`; each result may be NULL. */
static void linear_backward(int64_t n, int in_size, int out_size, const double *in, const double *weight, const double *dout,
                            double *din, double *dweight, double *dbias)
{
    for (int o = 0; o < out_size; o++) {
        for (int k = 0; dweight && k < in_size; k++) {
            double sum = 0;
            for (int64_t i = 0; i < n; i++) {
                sum += dout[i * out_size + o] * in[i * in_size + k];
            }
            dweight[(int64_t)o * in_size + k] = sum;
        }
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += dout[i * out_size + o];
        }
        if (dbias) {
            dbias[o] = sum;
        }
    }
    for (int64_t i = 0; din && i < n; i++) {
        for (int k = 0; k < in_size; k++) {
            double sum = 0;
            for (int o = 0; o < out_size; o++) {
                sum += dout[i * out_size + o] * weight[(int64_t)o * in_size + k];
            }
            din[i * in_size + k] = sum;
        }
    }
}

/* Values of the hidden layer, all (n,hidden) but the last two, (hidden). */
typedef struct hidden {
    double *z, *v, *factor, *h, *dz, *dz_scale, *z_size, *mean, *inverse;
    bool constant; /* statistics are constants: evaluation, or a batch of one cell */
} hidden;

static void normalise(int size, ref_head_run *r, hidden *f)
{
    const double n = (double)r->n;
    f->constant = !r->training || r->n == 1;
    for (int c = 0; c < size; c++) {
        if (f->constant) {
            f->mean[c] = r->running_mean[c];
            f->inverse[c] = 1 / sqrt(r->running_var[c] + 1e-5);
        } else {
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < r->n; i++) {
                sum += f->z[i * size + c];
            }
            f->mean[c] = sum / n;
            for (int64_t i = 0; i < r->n; i++) {
                double d = f->z[i * size + c] - f->mean[c];
                squares += d * d;
            }
            f->inverse[c] = 1 / sqrt(squares / n + 1e-5);
            if (r->momentum > 0) {
                r->running_mean[c] = (1 - r->momentum) * r->running_mean[c] + r->momentum * f->mean[c];
                r->running_var[c] = (1 - r->momentum) * r->running_var[c] + r->momentum * squares / (n - 1);
            }
        }
        for (int64_t i = 0; i < r->n; i++) {
            int64_t k = i * size + c;
            f->v[k] = r->gamma[c] * (f->z[k] - f->mean[c]) * f->inverse[c] + r->beta[c];
            f->factor[k] =
                r->training && r->dropout > 0 ? ref_dropout_factor(&r->id[i], r->unit, (uint32_t)c, r->dropout) : 1;
            f->h[k] = f->factor[k] * (f->v[k] > 0 ? f->v[k] : 0.01 * f->v[k]);
        }
    }
}

/* Of dz = gamma inverse (dv - mean(dv) - normal mean(dv normal)) the sizes of the three terms.  The error of z, which is a
 * fraction of the terms that z sums up, stands in `normal` times the inverse deviation: the last term's, and dv's through
 * the logits. */
static void dz_scale(int size, const ref_head_run *r, const hidden *f, const double *dh)
{
    const double n = (double)r->n;
    for (int c = 0; c < size; c++) {
        double sum = 0, product = 0, error = 1;
        for (int64_t i = 0; i < r->n; i++) {
            const int64_t k = i * size + c;
            const double dv = fabs(dh[k] * f->factor[k] * (f->v[k] > 0 ? 1 : 0.01));
            sum += dv / n;
            product += dv * fabs(f->z[k] - f->mean[c]) * f->inverse[c] / n;
            error = 1 + f->z_size[k] * f->inverse[c] > error ? 1 + f->z_size[k] * f->inverse[c] : error;
        }
        for (int64_t i = 0; i < r->n; i++) {
            const int64_t k = i * size + c;
            const double dv = fabs(dh[k] * f->factor[k] * (f->v[k] > 0 ? 1 : 0.01));
            const double normal = fabs(f->z[k] - f->mean[c]) * f->inverse[c];
            f->dz_scale[k] = fabs(r->gamma[c]) * f->inverse[c] * (f->constant ? dv : (dv + sum + normal * product) * error);
        }
    }
}

/* dz from dh; writes dgamma, dbeta and the scale of dfc1_bias. */
static void normalise_backward(int size, const ref_head_run *r, hidden *f, const double *dh)
{
    const double n = (double)r->n;
    for (int c = 0; c < size; c++) {
        double sum = 0, product = 0, scale = 0;
        for (int64_t i = 0; i < r->n; i++) {
            int64_t k = i * size + c;
            f->dz[k] = dh[k] * f->factor[k] * (f->v[k] > 0 ? 1 : 0.01); /* dv for now */
            sum += f->dz[k];
            product += f->dz[k] * (f->z[k] - f->mean[c]) * f->inverse[c];
        }
        for (int64_t i = 0; i < r->n; i++) {
            int64_t k = i * size + c;
            double normal = (f->z[k] - f->mean[c]) * f->inverse[c];
            double centred = f->constant ? f->dz[k] : f->dz[k] - sum / n - normal * product / n;
            f->dz[k] = r->gamma[c] * f->inverse[c] * centred;
            scale += fabs(f->dz[k]);
        }
        if (r->dgamma) {
            r->dgamma[c] = product;
        }
        if (r->dbeta) {
            r->dbeta[c] = sum;
        }
        if (r->dfc1_bias_scale) {
            r->dfc1_bias_scale[c] = scale;
        }
    }
}

/* Sums in absolute values: z's, and with dz's, those of dx and of fc1's gradient.  mean: (n,Cin), of |x|. */
static void scales(const flim_head *head, const ref_head_run *r, hidden *f, const double *mean, const double *dh)
{
    const int in = head->in_channels, size = head->hidden;
    const int64_t voxels = (int64_t)r->t * r->h * r->w;
    for (int64_t k = 0; k < r->n * size; k++) {
        f->z_size[k] = fabs(r->fc1_bias[k % size]);
        for (int c = 0; c < in; c++) {
            f->z_size[k] += fabs(r->fc1_weight[k % size * in + c]) * mean[k / size * in + c];
        }
    }
    dz_scale(size, r, f, dh);
    for (int64_t i = 0; r->dx_scale && i < r->n * in * voxels; i++) {
        for (int h = 0; h < size; h++) {
            r->dx_scale[i] +=
                f->dz_scale[i / voxels / in * size + h] * fabs(r->fc1_weight[h * in + i / voxels % in]) / (double)voxels;
        }
    }
    for (int64_t k = 0; r->dfc1_weight_scale && k < (int64_t)size * in; k++) {
        r->dfc1_weight_scale[k] = 0;
        for (int64_t n = 0; n < r->n; n++) {
            r->dfc1_weight_scale[k] += f->dz_scale[n * size + k / in] * mean[n * in + k % in];
        }
    }
}

/* NT-Xent: cells 2i and 2i+1 are partners, and all that is not compared is left out of the softmax.  dlogit (n,K') by the chain
 * rule through the similarities, one pair after the other; the loss is divided.  Returns it. */
static double batch_loss(const flim_head *head, const ref_head_run *r, const double *logits, double *dlogits)
{
    const int out = head->outputs;
    const double tau = (double)head->temperature;
    double total = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t partner = i % 2 == 0 ? i + 1 : i - 1;
        double sum = 0, *similarity = ref_array(r->n), *norm = ref_array(r->n);
        for (int64_t j = 0; j < r->n; j++) {
            double d = 0, square = 0;
            for (int k = 0; k < out; k++) {
                d += logits[i * out + k] * logits[j * out + k];
                square += logits[j * out + k] * logits[j * out + k];
            }
            norm[j] = sqrt(square);
            similarity[j] = d;
        }
        const double share = cell_share(head, r->cell_weight, r->label, i, r->divisor);
        for (int64_t j = 0; j < r->n; j++) {
            const bool left_out =
                j == i || (head->loss == FLIM_LOSS_CONTRASTIVE_CLASS && j != partner && r->label[j] == r->label[i]);
            similarity[j] = left_out ? -INFINITY : similarity[j] / norm[i] / norm[j];
            sum += left_out ? 0 : exp(similarity[j] / tau);
        }
        for (int64_t j = 0; partner < r->n && j < r->n; j++) {
            if (isinf(similarity[j])) {
                continue;
            }
            const double slope = share * (exp(similarity[j] / tau) / sum - (j == partner)) / tau;
            for (int k = 0; k < out; k++) { /* of cos(x_i, x_j) by x_i and by x_j */
                const double a = logits[i * out + k] / norm[i], b = logits[j * out + k] / norm[j];
                dlogits[i * out + k] += slope * (b - similarity[j] * a) / norm[i];
                dlogits[j * out + k] += slope * (a - similarity[j] * b) / norm[j];
            }
        }
        total += partner < r->n ? share * (log(sum) - similarity[partner] / tau) : 0;
        free(similarity);
        free(norm);
    }
    return total;
}

void ref_head(const flim_head *head, ref_head_run *r)
{
    const int in = head->in_channels, size = head->hidden, out = head->outputs;
    const int64_t voxels = (int64_t)r->t * r->h * r->w;
    hidden f = {ref_array(r->n * size), ref_array(r->n * size),
                ref_array(r->n * size), ref_array(r->n * size),
                ref_array(r->n * size), ref_array(r->n * size),
                ref_array(r->n * size), ref_array(size),
                ref_array(size),        false};
    double *mean = ref_array(r->n * in), *size_of_mean = ref_array(r->n * in), *dmean = ref_array(r->n * in),
           *dh = ref_array(r->n * size);
    double *logits = ref_array(r->n * out), *dlogits = ref_array(r->n * out);

    for (int64_t i = 0; i < r->n * in * voxels; i++) {
        mean[i / voxels] += r->x[i] / (double)voxels;
        size_of_mean[i / voxels] += fabs(r->x[i]) / (double)voxels;
    }
    linear(r->n, in, size, mean, r->fc1_weight, r->fc1_bias, f.z);
    normalise(size, r, &f);
    linear(r->n, size, out, f.h, r->fc2_weight, r->fc2_bias, logits);
    if (r->logits) {
        memcpy(r->logits, logits, (size_t)(r->n * out) * sizeof *logits);
    }
    if (r->v) {
        memcpy(r->v, f.v, (size_t)(r->n * size) * sizeof *f.v);
    }
    r->loss = 0;
    const bool over_batch = head->loss == FLIM_LOSS_CONTRASTIVE || head->loss == FLIM_LOSS_CONTRASTIVE_CLASS;
    if (r->label && over_batch) {
        r->loss = batch_loss(head, r, logits, dlogits);
    }
    for (int64_t i = 0; r->label && !over_batch && i < r->n; i++) {
        const double share = cell_share(head, r->cell_weight, r->label, i, r->divisor);
        r->loss += share * cell_loss(head, r, i, logits + i * out, dlogits + i * out);
        for (int k = 0; k < out; k++) {
            dlogits[i * out + k] *= share;
        }
    }
    linear_backward(r->n, size, out, f.h, r->fc2_weight, dlogits, dh, r->dfc2_weight, r->dfc2_bias);
    scales(head, r, &f, size_of_mean, dh);
    normalise_backward(size, r, &f, dh);
    linear_backward(r->n, in, size, mean, r->fc1_weight, f.dz, dmean, r->dfc1_weight, r->dfc1_bias);
    for (int64_t i = 0; r->dx && i < r->n * in * voxels; i++) {
        r->dx[i] += dmean[i / voxels] / (double)voxels;
    }

    double *const all[] = {f.z,       f.v,  f.factor,     f.h,   f.dz, f.dz_scale, f.z_size, f.mean,
                           f.inverse, mean, size_of_mean, dmean, dh,   logits,     dlogits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

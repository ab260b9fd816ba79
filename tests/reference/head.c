/* Head and loss: mean over T,H,W -> fc1 -> BN over the batch -> leaky ReLU -> dropout -> fc2 -> BCE or cross entropy. */
#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Loss of one cell; dlogit (K') gets d loss / d logit.  Two classes: sigmoid and BCE with target y(1-s) + s/2; else softmax and
 * cross entropy with target (1-s) onehot + s/K. */
static double cell_loss(int outputs, const double *logit, int label, double smoothing, double *dlogit)
{
    if (outputs == 1) {
        double target = label * (1 - smoothing) + smoothing / 2, l = logit[0];
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
        double target = (k == label ? 1 - smoothing : 0) + smoothing / outputs;
        loss -= target * log_probability;
        dlogit[k] = exp(log_probability) - target;
    }
    return loss;
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
    double *z, *v, *factor, *h, *dz, *mean, *inverse;
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
            if (r->move_statistics) {
                r->running_mean[c] = 0.9 * r->running_mean[c] + 0.1 * f->mean[c];
                r->running_var[c] = 0.9 * r->running_var[c] + 0.1 * squares / (n - 1);
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

void ref_head(const flim_head *head, ref_head_run *r)
{
    const int in = head->in_channels, size = head->hidden, out = head->outputs;
    const int64_t voxels = (int64_t)r->t * r->h * r->w;
    hidden f = {ref_array(r->n * size), ref_array(r->n * size), ref_array(r->n * size), ref_array(r->n * size),
                ref_array(r->n * size), ref_array(size),        ref_array(size),        false};
    double *mean = ref_array(r->n * in), *dmean = ref_array(r->n * in), *dh = ref_array(r->n * size);
    double *logits = ref_array(r->n * out), *dlogits = ref_array(r->n * out);

    for (int64_t i = 0; i < r->n * in * voxels; i++) {
        mean[i / voxels] += r->x[i] / (double)voxels;
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
    for (int64_t i = 0; r->label && i < r->n; i++) {
        const double share = (double)r->cell_weight[i] / r->divisor;
        r->loss += share * cell_loss(out, logits + i * out, r->label[i], r->label_smoothing, dlogits + i * out);
        for (int k = 0; k < out; k++) {
            dlogits[i * out + k] *= share;
        }
    }
    linear_backward(r->n, size, out, f.h, r->fc2_weight, dlogits, dh, r->dfc2_weight, r->dfc2_bias);
    normalise_backward(size, r, &f, dh);
    linear_backward(r->n, in, size, mean, r->fc1_weight, f.dz, dmean, r->dfc1_weight, r->dfc1_bias);
    for (int64_t i = 0; r->dx && i < r->n * in * voxels; i++) {
        r->dx[i] = dmean[i / voxels] / (double)voxels;
    }

    double *const all[] = {f.z, f.v, f.factor, f.h, f.dz, f.mean, f.inverse, mean, dmean, dh, logits, dlogits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

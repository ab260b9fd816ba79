/* One unit: z = conv(x) + bias;  u = BN(z);  v = u + skip;  a = leaky(v);  y = dropout(pool(a)); and back. */
#include "reference/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double *ref_array(int64_t count)
{
    double *array = calloc(count > 0 ? (size_t)count : 1, sizeof *array);
    if (!array) {
        fprintf(stderr, "reference: out of memory for %lld doubles\n", (long long)count);
        abort();
    }
    return array;
}

double *ref_from_floats(const float *values, int64_t count)
{
    double *array = ref_array(count);
    for (int64_t i = 0; i < count; i++) {
        array[i] = (double)values[i];
    }
    return array;
}

/* Index of (n,c,t,y,x) in an array (N,C,T,H,W). */
static int64_t at(int channels, const int size[3], int64_t n, int c, int t, int y, int x)
{
    return (((n * channels + c) * size[0] + t) * size[1] + y) * size[2] + x;
}

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

/* The visitor of a convolution: calls `visit` for every product w[o,i,k] * x[...] that enters z[n,o,t,y,x]. */
typedef struct conv_arrays {
    const double *x, *weight, *dz;
    double *z, *dx, *dweight;
} conv_arrays;

typedef void conv_visit(const conv_arrays *a, int64_t z, int64_t x, int64_t w);

static void sum_forward(const conv_arrays *a, int64_t z, int64_t x, int64_t w)
{
    a->z[z] += a->weight[w] * a->x[x];
}

static void sum_input_gradient(const conv_arrays *a, int64_t z, int64_t x, int64_t w)
{
    a->dx[x] += a->weight[w] * a->dz[z];
}

static void sum_weight_gradient(const conv_arrays *a, int64_t z, int64_t x, int64_t w)
{
    a->dweight[w] += a->x[x] * a->dz[z];
}

/* Kernel elements that fall on one output position, for all input channels.  Inlined into each use, for speed. */
static inline __attribute__((always_inline)) void visit_window(const flim_unit *u, int64_t n, int o, const int position[3],
                                                               int64_t z, const conv_arrays *a, conv_visit *visit)
{
    for (int i = 0; i < u->in_channels; i++) {
        for (int kt = 0; kt < u->kernel[0]; kt++) {
            for (int ky = 0; ky < u->kernel[1]; ky++) {
                for (int kx = 0; kx < u->kernel[2]; kx++) {
                    int t = position[0] * u->stride[0] - u->pad[0] + kt;
                    int y = position[1] * u->stride[1] - u->pad[1] + ky;
                    int x = position[2] * u->stride[2] - u->pad[2] + kx;
                    if (t < 0 || t >= u->in[0] || y < 0 || y >= u->in[1] || x < 0 || x >= u->in[2]) {
                        continue; /* zero padding */
                    }
                    int64_t w = (((int64_t)o * u->in_channels + i) * u->kernel[0] + kt) * u->kernel[1] + ky;
                    visit(a, z, at(u->in_channels, u->in, n, i, t, y, x), w * u->kernel[2] + kx);
                }
            }
        }
    }
}

/* A transposed unit, as PyTorch's ConvTranspose3d defines it: x[n,i,t] w[i,o,k] enters z[n,o,t * stride - pad + k]. */
static void scatter(const flim_unit *u, int64_t n, int i, const int position[3], int64_t x, const conv_arrays *a,
                    conv_visit *visit)
{
    for (int o = 0; o < u->out_channels; o++) {
        for (int64_t k = 0; k < volume(u->kernel); k++) {
            const int plane = u->kernel[1] * u->kernel[2];
            const int tap[3] = {(int)k / plane, (int)k % plane / u->kernel[2], (int)k % u->kernel[2]};
            int to[3];
            bool inside = true;
            for (int d = 0; d < 3; d++) {
                to[d] = position[d] * u->stride[d] - u->pad[d] + tap[d];
                inside = inside && to[d] >= 0 && to[d] < u->conv_out[d];
            }
            if (inside) {
                visit(a, at(u->out_channels, u->conv_out, n, o, to[0], to[1], to[2]), x,
                      ((int64_t)i * u->out_channels + o) * volume(u->kernel) + k);
            }
        }
    }
}

static void convolve_transposed(const flim_unit *u, int64_t cells, const conv_arrays *a, conv_visit *visit)
{
    const int64_t voxels = volume(u->in);
    for (int64_t x = 0; x < cells * u->in_channels * voxels; x++) {
        const int v = (int)(x % voxels), plane = u->in[1] * u->in[2];
        const int position[3] = {v / plane, v % plane / u->in[2], v % u->in[2]};
        scatter(u, x / voxels / u->in_channels, (int)(x / voxels % u->in_channels), position, x, a, visit);
    }
}

static inline __attribute__((always_inline)) void convolve(const flim_unit *u, int64_t cells, const conv_arrays *a,
                                                           conv_visit *visit)
{
    if (u->transposed) {
        convolve_transposed(u, cells, a, visit);
        return;
    }
    for (int64_t n = 0; n < cells; n++) {
        for (int o = 0; o < u->out_channels; o++) {
            for (int t = 0; t < u->conv_out[0]; t++) {
                for (int y = 0; y < u->conv_out[1]; y++) {
                    for (int x = 0; x < u->conv_out[2]; x++) {
                        const int position[3] = {t, y, x};
                        visit_window(u, n, o, position, at(u->out_channels, u->conv_out, n, o, t, y, x), a, visit);
                    }
                }
            }
        }
    }
}

/* Mean and 1/sqrt(var + eps) of each channel, over (n,T,H,W); moves the running statistics when asked to.  Returns whether they
 * are constants for the backward pass: in evaluation, and over a single value. */
static bool channel_statistics(const flim_unit *u, const ref_unit_run *r, const double *z, double *mean, double *inverse)
{
    const int64_t plane = volume(u->conv_out), count = r->n * plane;
    const bool constant = !r->training || count == 1;
    for (int c = 0; c < u->out_channels; c++) {
        if (constant) {
            mean[c] = r->running_mean[c];
            inverse[c] = 1 / sqrt(r->running_var[c] + 1e-5);
            continue;
        }
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < count; i++) {
            sum += z[(i / plane * u->out_channels + c) * plane + i % plane];
        }
        mean[c] = sum / (double)count;
        for (int64_t i = 0; i < count; i++) {
            double d = z[(i / plane * u->out_channels + c) * plane + i % plane] - mean[c];
            squares += d * d;
        }
        inverse[c] = 1 / sqrt(squares / (double)count + 1e-5);
        if (r->move_statistics) {
            r->running_mean[c] = 0.9 * r->running_mean[c] + 0.1 * mean[c];
            r->running_var[c] = 0.9 * r->running_var[c] + 0.1 * squares / (double)(count - 1);
        }
    }
    return constant;
}

/* y = dropout(pool(leaky(v))) for channel c of cell n; with dy, the way back into dv. */
static void pool_channel(const flim_unit *u, const ref_unit_run *r, int64_t n, int c, const double *v, double *dv)
{
    const double factor =
        r->dropout > 0 && u->dropout ? ref_dropout_factor(&r->id[n], r->unit, (uint32_t)c, r->dropout) : 1.0;
    for (int t = 0; t < u->out[0]; t++) {
        for (int y = 0; y < u->out[1]; y++) {
            for (int x = 0; x < u->out[2]; x++) {
                int64_t best = -1;
                double most = 0;
                for (int k = 0; k < u->pool_t; k++) { /* of equal values, the earlier one, as in PyTorch */
                    int64_t i = at(u->out_channels, u->conv_out, n, c, t * u->pool_t + k, y, x);
                    double a = u->act && v[i] <= 0 ? 0.01 * v[i] : v[i];
                    if (best < 0 || a > most) {
                        best = i;
                        most = a;
                    }
                }
                int64_t o = at(u->out_channels, u->out, n, c, t, y, x);
                if (r->y) {
                    r->y[o] = factor * most;
                }
                if (r->dy) {
                    dv[best] += factor * r->dy[o] * (u->act && v[best] <= 0 ? 0.01 : 1.0);
                }
            }
        }
    }
}

/* dz of channel c from du = dv; writes dgamma, dbeta, dbias. */
static void channel_backward(const flim_unit *u, const ref_unit_run *r, int c, bool bn, bool constant, const double *z,
                             double mean, double inverse, const double *dv, double *dz)
{
    const int64_t plane = volume(u->conv_out), count = r->n * plane;
    double sum = 0, product = 0, bias = 0, scale = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t k = (i / plane * u->out_channels + c) * plane + i % plane;
        sum += dv[k];
        product += dv[k] * (z[k] - mean) * inverse;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t k = (i / plane * u->out_channels + c) * plane + i % plane;
        if (!bn) {
            dz[k] = dv[k];
        } else if (constant) {
            dz[k] = r->gamma[c] * inverse * dv[k];
        } else {
            double normal = (z[k] - mean) * inverse;
            dz[k] = r->gamma[c] * inverse * (dv[k] - sum / (double)count - normal * product / (double)count);
        }
        bias += dz[k];
        scale += fabs(dz[k]);
    }
    if (bn && r->dgamma) {
        r->dgamma[c] = product;
    }
    if (bn && r->dbeta) {
        r->dbeta[c] = sum;
    }
    if (r->dbias) {
        r->dbias[c] = bias;
    }
    if (r->dbias_scale) {
        r->dbias_scale[c] = scale;
    }
}

static void convolution_backward(const flim_unit *u, const ref_unit_run *r, const double *dz)
{
    const conv_arrays a = {.x = r->x, .weight = r->weight, .dz = dz, .dx = r->dx, .dweight = r->dweight};
    if (r->dx) {
        for (int64_t i = 0; i < r->n * u->in_channels * volume(u->in); i++) {
            r->dx[i] = 0;
        }
        convolve(u, r->n, &a, sum_input_gradient);
    }
    if (r->dweight) {
        for (int64_t i = 0; i < (int64_t)u->out_channels * u->in_channels * volume(u->kernel); i++) {
            r->dweight[i] = 0;
        }
        convolve(u, r->n, &a, sum_weight_gradient);
    }
}

void ref_unit(const flim_unit *u, const ref_unit_run *r)
{
    const int64_t plane = volume(u->conv_out), count = r->n * u->out_channels * plane;
    const bool bn = u->bn[0] != '\0';
    double *z = ref_array(count), *v = ref_array(count), *dv = ref_array(count), *dz = ref_array(count);
    double *mean = ref_array(u->out_channels), *inverse = ref_array(u->out_channels);
    bool constant = false;

    for (int64_t i = 0; i < count; i++) {
        z[i] = r->bias[i / plane % u->out_channels];
    }
    convolve(u, r->n, &(conv_arrays){.x = r->x, .weight = r->weight, .z = z}, sum_forward);
    if (bn) {
        constant = channel_statistics(u, r, z, mean, inverse);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t c = i / plane % u->out_channels;
        v[i] = bn ? r->gamma[c] * (z[i] - mean[c]) * inverse[c] + r->beta[c] : z[i];
        v[i] += r->skip ? r->skip[i] : 0;
        if (r->v) {
            r->v[i] = v[i];
        }
    }
    for (int64_t n = 0; n < r->n; n++) {
        for (int c = 0; c < u->out_channels; c++) {
            pool_channel(u, r, n, c, v, dv);
        }
    }
    if (r->dy) {
        for (int64_t i = 0; r->dskip && i < count; i++) {
            r->dskip[i] = dv[i];
        }
        for (int c = 0; c < u->out_channels; c++) {
            channel_backward(u, r, c, bn, constant, z, mean[c], inverse[c], dv, dz);
        }
        convolution_backward(u, r, dz);
    }
    free(z);
    free(v);
    free(dv);
    free(dz);
    free(mean);
    free(inverse);
}

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

/* Arrays of a convolution; a visitor works through one row of `count` products w * x[x + k x_step] that enter z[z + k
 * z_step]. */
typedef struct conv_arrays {
    const double *x, *weight, *dz;
    double *z, *dx, *dweight;
} conv_arrays;

typedef struct conv_row {
    int64_t z, z_step, x, x_step, count, w;
} conv_row;

typedef void conv_visit(const conv_arrays *a, const conv_row *r);

static void sum_forward(const conv_arrays *a, const conv_row *r)
{
    for (int64_t k = 0; k < r->count; k++) {
        a->z[r->z + k * r->z_step] += a->weight[r->w] * a->x[r->x + k * r->x_step];
    }
}

static void sum_input_gradient(const conv_arrays *a, const conv_row *r)
{
    for (int64_t k = 0; k < r->count; k++) {
        a->dx[r->x + k * r->x_step] += a->weight[r->w] * a->dz[r->z + k * r->z_step];
    }
}

static void sum_weight_gradient(const conv_arrays *a, const conv_row *r)
{
    double sum = 0;
    for (int64_t k = 0; k < r->count; k++) {
        sum += a->x[r->x + k * r->x_step] * a->dz[r->z + k * r->z_step];
    }
    a->dweight[r->w] += sum;
}

/* The two sides of a convolution: position t of `small` meets t * stride - pad + k of `large`.  z is small and x large, or,
 * in a transposed unit (PyTorch's ConvTranspose3d), the other way round. */
typedef struct conv_sides {
    const int *small, *large;
    int small_channels, large_channels;
} conv_sides;

/* All products of one element of the kernel between channel s of the small side and channel l of the large one, for one
 * cell. */
static void visit_tap(const flim_unit *u, const conv_sides *c, int64_t n, int s, int l, const int tap[3], int64_t w,
                      const conv_arrays *a, conv_visit *visit)
{
    const int step = u->stride[2], shift = tap[2] - u->pad[2];
    int first = 0, end = c->small[2]; /* columns that fall on the large side and not on its zero padding */
    while (first < end && first * step + shift < 0) {
        first++;
    }
    while (end > first && (end - 1) * step + shift >= c->large[2]) {
        end--;
    }
    for (int t = 0; t < c->small[0]; t++) {
        const int lt = t * u->stride[0] - u->pad[0] + tap[0];
        for (int y = 0; y < c->small[1] && lt >= 0 && lt < c->large[0]; y++) {
            const int ly = y * u->stride[1] - u->pad[1] + tap[1];
            if (ly >= 0 && ly < c->large[1]) {
                const int64_t small = at(c->small_channels, c->small, n, s, t, y, first),
                              large = at(c->large_channels, c->large, n, l, lt, ly, first * step + shift);
                const conv_row row = u->transposed ? (conv_row){large, step, small, 1, end - first, w}
                                                   : (conv_row){small, 1, large, step, end - first, w};
                visit(a, &row);
            }
        }
    }
}

/* Weights are (small channel, large channel, taps): (O,I,...) or, transposed, (I,O,...). */
static void convolve(const flim_unit *u, int64_t cells, const conv_arrays *a, conv_visit *visit)
{
    const conv_sides c = u->transposed ? (conv_sides){u->in, u->conv_out, u->in_channels, u->out_channels}
                                       : (conv_sides){u->conv_out, u->in, u->out_channels, u->in_channels};
    const int taps = (int)volume(u->kernel), plane = u->kernel[1] * u->kernel[2];
    for (int64_t n = 0; n < cells; n++) {
        for (int64_t w = 0; w < (int64_t)u->out_channels * u->in_channels * taps; w++) {
            const int k = (int)(w % taps), channels = (int)(w / taps);
            const int tap[3] = {k / plane, k % plane / u->kernel[2], k % u->kernel[2]};
            visit_tap(u, &c, n, channels / c.large_channels, channels % c.large_channels, tap, w, a, visit);
        }
    }
}

/* Mean and 1/sqrt(var + eps) of each channel, over (n,T,H,W); moves the running statistics when asked to.  Returns whether
 * they are constants for the backward pass: in evaluation, and over a single value. */
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
        if (r->momentum > 0) {
            r->running_mean[c] = (1 - r->momentum) * r->running_mean[c] + r->momentum * mean[c];
            r->running_var[c] = (1 - r->momentum) * r->running_var[c] + r->momentum * squares / (double)(count - 1);
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
    double sum = 0, product = 0, bias = 0, scale = 0, sizes = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t k = (i / plane * u->out_channels + c) * plane + i % plane;
        sum += dv[k];
        sizes += fabs(dv[k]);
        product += dv[k] * (z[k] - mean) * inverse;
        squares += pow(dv[k] * (z[k] - mean) * inverse, 2);
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
    if (bn && r->dbeta_scale) {
        r->dbeta_scale[c] = sizes;
    }
    if (bn && r->dgamma_scale) {
        r->dgamma_scale[c] = sqrt(squares);
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

static void show(const ref_unit_run *r, ref_tensor what, double *values, int64_t count)
{
    if (r->observe && values) {
        r->observe(r->observer, (int)r->unit, what, values, count);
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
    show(r, REF_Z, z, count);
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
    show(r, REF_V, v, count);
    for (int64_t n = 0; n < r->n; n++) {
        for (int c = 0; c < u->out_channels; c++) {
            pool_channel(u, r, n, c, v, dv);
        }
    }
    show(r, REF_Y, r->y, r->n * u->out_channels * volume(u->out));
    if (r->dy) {
        show(r, REF_DV, dv, count);
        for (int64_t i = 0; r->dskip && i < count; i++) {
            r->dskip[i] = dv[i];
        }
        for (int c = 0; c < u->out_channels; c++) {
            channel_backward(u, r, c, bn, constant, z, mean[c], inverse[c], dv, dz);
        }
        show(r, REF_DZ, dz, count);
        convolution_backward(u, r, dz);
        show(r, REF_DX, r->dx, r->n * u->in_channels * volume(u->in));
    }
    free(z);
    free(v);
    free(dv);
    free(dz);
    free(mean);
    free(inverse);
}

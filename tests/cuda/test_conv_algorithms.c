/* Every algorithm of cuda/conv's table on this card against the double-precision reference: all problems that it supports, in
 * all types and with all that may be fused.
 *
 * Data are small integers, so that sums are exact in every type: our own kernels must give the reference's numbers, cuDNN's
 * (which may transform its operands) what rounding allows, channel by channel.  Outputs and scratch memory hold NaN first,
 * and so do cells past n.  Each comparison is shown to refuse a reference with one wrong tap of one channel.  FLIM_CASE names a layer
 * to check alone, CMOCKA_TEST_FILTER a test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef FLIM_HAVE_CUDA

#include <math.h>

#include "cuda/conv/conv_choice.h"
#include "cuda/conv/conv_stem.h"
#include "cuda/device/cuda_device.h"
#include "cuda/kernels/kernels.h"
#include "reference/reference.h"

enum { MOST_ARRAYS = 64, MOST_VARIANTS = 12, MOST_ENGINES = 2, MOST_CHANNELS = 256 };

static flim_cuda_device *device;
static void *array[MOST_ARRAYS];
static int n_arrays;

static void check_cuda(cudaError_t code, const char *what)
{
    if (code != cudaSuccess) {
        fail_msg("%s: %s", what, cudaGetErrorString(code));
    }
}

/* Device memory full of NaN. */
static void *take(int64_t bytes)
{
    void *at = NULL;
    assert_true(n_arrays < MOST_ARRAYS);
    check_cuda(cudaMalloc(&at, bytes > 0 ? (size_t)bytes : 1), "cudaMalloc");
    check_cuda(cudaMemset(at, 0xff, bytes > 0 ? (size_t)bytes : 1), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaMemset"); /* kernels run on a stream that does not wait for it */
    array[n_arrays++] = at;
    return at;
}

static void free_arrays(void)
{
    for (int i = 0; i < n_arrays; i++) {
        (void)cudaFree(array[i]);
    }
    n_arrays = 0;
}

static flim_launch launch_of(flim_storage type)
{
    return (flim_launch){device->stream, type, device->card.processors};
}

static float *take_floats(const double *from, int64_t count)
{
    float *host = malloc((size_t)count * sizeof *host), *there = take(count * (int64_t)sizeof *there);
    assert_non_null(host);
    for (int64_t i = 0; i < count; i++) {
        host[i] = (float)from[i];
    }
    check_cuda(cudaMemcpy(there, host, (size_t)count * sizeof *host, cudaMemcpyHostToDevice), "copy in");
    check_cuda(cudaDeviceSynchronize(), "copy in");
    free(host);
    return there;
}

/* A value that the type holds exactly, as it is stored. */
static uint32_t stored(flim_storage type, double value)
{
    const float v = (float)value;
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (type == FLIM_STORAGE_FP32 || bits << 1 == 0) {
        return bits;
    }
    return type == FLIM_STORAGE_BF16 ? bits >> 16
                                     : (bits >> 16 & 0x8000u) | (((bits >> 23 & 0xffu) - 112u) << 10) | (bits >> 13 & 0x3ffu);
}

/* Host (n,channels,pixels) -> storage (n_full,pixels,c); cells past n are as they were, padding channels 0. */
static void put_tensor(flim_storage type, const double *from, int64_t n, int channels, int64_t pixels, void *there)
{
    const int c = flim_storage_channels(channels);
    const size_t size = (size_t)flim_storage_size(type);
    char *host = calloc((size_t)(n * pixels * c), size);
    assert_non_null(host);
    for (int64_t i = 0; i < n * channels * pixels; i++) {
        const int64_t cell = i / pixels / channels, channel = i / pixels % channels, pixel = i % pixels;
        const uint32_t value = stored(type, from[i]);
        memcpy(host + (size_t)((cell * pixels + pixel) * c + channel) * size, &value, size); /* little-endian, as the card */
    }
    check_cuda(cudaMemcpy(there, host, (size_t)(n * pixels * c) * size, cudaMemcpyHostToDevice), "copy in");
    check_cuda(cudaDeviceSynchronize(), "copy in");
    free(host);
}

/* The same in memory of its own; cells past n hold NaN. */
static void *take_tensor(flim_storage type, const double *from, int64_t n, int64_t n_full, int channels, int64_t pixels)
{
    void *there = take(n_full * pixels * flim_storage_channels(channels) * flim_storage_size(type));
    put_tensor(type, from, n, channels, pixels, there);
    return there;
}

static double *fetch_floats(const float *from, int64_t count)
{
    float *host = malloc((size_t)count * sizeof *host);
    double *out = ref_array(count);
    assert_non_null(host);
    check_cuda(cudaStreamSynchronize(device->stream), "a kernel");
    check_cuda(cudaMemcpy(host, from, (size_t)count * sizeof *host, cudaMemcpyDeviceToHost), "copy out");
    for (int64_t i = 0; i < count; i++) {
        out[i] = (double)host[i];
    }
    free(host);
    return out;
}

static double *fetch_tensor(flim_storage type, const void *from, int64_t n, int channels, int64_t pixels)
{
    const flim_launch launch = launch_of(type);
    float *planar = take(n * channels * pixels * (int64_t)sizeof *planar);
    check_cuda(flim_k_to_planar(&launch, from, n, channels, flim_storage_channels(channels), pixels, planar), "to planar");
    return fetch_floats(planar, n * channels * pixels);
}

/* ---- comparisons --------------------------------------------------------------------------------------------------------
 * */

static const char *const type_name[] = {"fp32", "fp16", "bf16"};

/* Largest relative rounding error of a stored value. */
static double ulp(flim_storage type)
{
    return type == FLIM_STORAGE_BF16 ? 1.0 / 256 : type == FLIM_STORAGE_FP16 ? 1.0 / 2048 : 1e-6;
}

/* Every value to what its own rounding allows; integers that the type holds to `off`. */
static bool exact(const double *got, const double *want, int64_t count, flim_storage type, double off)
{
    for (int64_t i = 0; i < count; i++) {
        const bool integer = want[i] == floor(want[i]) && fabs(want[i]) * ulp(type) <= 1.0;
        if (!(fabs(got[i] - want[i]) <= (integer ? off : ulp(type) * fabs(want[i])))) {
            return false;
        }
    }
    return true;
}

static bool verbose; /* FLIM_TEST_VERBOSE: say how far off a channel is */

/* Arrays (n,channels,pixels): the error of each channel within `tolerance` of what the channel holds. */
static bool close_by_channel(const double *got, const double *want, int64_t n, int64_t channels, int64_t pixels,
                             double tolerance)
{
    for (int64_t c = 0; c < channels; c++) {
        double difference = 0, square = 0;
        for (int64_t i = 0; i < n * pixels; i++) {
            const int64_t at = (i / pixels * channels + c) * pixels + i % pixels;
            difference += (got[at] - want[at]) * (got[at] - want[at]);
            square += want[at] * want[at];
        }
        if (!(sqrt(difference) <= tolerance * sqrt(square) + 1e-12)) {
            if (verbose) {
                print_message("channel %lld: relative error %.2e, tolerance %.2e\n", (long long)c,
                              sqrt(difference / (square > 0 ? square : 1)), tolerance);
            }
            return false;
        }
    }
    return true;
}

/* ---- problems -----------------------------------------------------------------------------------------------------------
 * */

typedef struct layer {
    const char *name;
    int64_t n;
    int in, out, size[3], kernel[3], stride[3], pad[3];
} layer;

static const layer layers[] = {
    {"stem", 3, 2, 32, {19, 5, 7}, {7, 1, 1}, {1, 1, 1}, {3, 0, 0}},
    {"down", 2, 32, 32, {17, 7, 5}, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}},
    {"res1", 2, 32, 32, {6, 7, 9}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
    {"res1 of one", 1, 32, 32, {1, 1, 1}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
    {"res1 of base", 2, 32, 32, {3, 21, 21}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
    {"skip", 3, 32, 64, {5, 9, 7}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},
    {"skip of tiny", 3, 8, 16, {6, 9, 8}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},
    {"skip of large", 2, 64, 128, {3, 11, 11}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},
    {"second skip of large", 2, 128, 256, {2, 5, 3}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},
    {"pointwise", 3, 16, 8, {4, 5, 6}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {"pointwise, wide", 1, 64, 32, {3, 21, 21}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {"res2.1", 2, 32, 64, {4, 9, 7}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
    {"res2.2", 3, 64, 64, {4, 7, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
    {"res1 of small", 2, 16, 16, {5, 7, 9}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
    {"even", 2, 16, 24, {4, 8, 6}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
    {"tiny", 4, 4, 4, {9, 7, 7}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
    {"odd channels", 2, 20, 36, {3, 6, 5}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
    {"res3", 2, 64, 72, {3, 4, 5}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
    {"res3.1 of base", 5, 64, 128, {3, 11, 11}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
    {"wide rows", 2, 32, 32, {3, 2, 70}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
};

/* A layer's operands and what the reference makes of them. */
typedef struct example {
    flim_unit unit;
    int64_t n, x_count, w_count, y_count, x_pixels, y_pixels;
    double *x, *w, *bias, *dz, *z, *add, *scale, *shift, *mean; /* z, add: as x; scale, shift, mean: (in) */
    double *activated; /* leaky_relu(x * scale + shift), which is x - mean free of negative values */
} example;

/* -1, 0 or 1. */
static double integer(uint64_t i, uint64_t seed)
{
    uint64_t h = (i + 1) * 0x9E3779B97F4A7C15u ^ seed * 0xC2B2AE3D27D4EB4Fu;
    h = (h ^ h >> 31) * 0xBF58476D1CE4E5B9u;
    return (double)((h ^ h >> 29) % 3) - 1.0;
}

static double *integers(int64_t count, uint64_t seed)
{
    double *out = ref_array(count);
    for (int64_t i = 0; i < count; i++) {
        out[i] = integer((uint64_t)i, seed);
    }
    return out;
}

static example make_example(const layer *l)
{
    example e = {.unit = {.conv = "conv", .input = -1, .skip = -1, .pool_t = 1, .in_channels = l->in, .out_channels = l->out},
                 .n = l->n};
    for (int d = 0; d < 3; d++) {
        e.unit.kernel[d] = l->kernel[d];
        e.unit.stride[d] = l->stride[d];
        e.unit.pad[d] = l->pad[d];
        e.unit.in[d] = l->size[d];
        e.unit.conv_out[d] = e.unit.out[d] = (l->size[d] + 2 * l->pad[d] - l->kernel[d]) / l->stride[d] + 1;
    }
    e.x_pixels = flim_volume(e.unit.in);
    e.y_pixels = flim_volume(e.unit.out);
    e.x_count = l->n * l->in * e.x_pixels;
    e.y_count = l->n * l->out * e.y_pixels;
    e.w_count = (int64_t)l->in * l->out * flim_volume(l->kernel);
    e.x = integers(e.x_count, 1);
    e.w = integers(e.w_count, 2);
    e.dz = integers(e.y_count, 3);
    e.bias = integers(l->out, 4);
    e.z = integers(e.x_count, 5);
    e.add = integers(e.x_count, 6);
    e.scale = ref_array(l->in);
    e.shift = ref_array(l->in);
    e.mean = integers(l->in, 7);
    e.activated = ref_array(e.x_count);
    for (int c = 0; c < l->in; c++) {
        e.scale[c] = c % 3 == 1 ? -1.0 : 1.0;
        e.shift[c] = 1.0;
    }
    for (int64_t i = 0; i < e.x_count; i++) {
        const int64_t c = i / e.x_pixels % l->in;
        e.activated[i] = e.x[i] * e.scale[c] + e.shift[c];
    }
    return e;
}

static void free_example(example *e)
{
    double *all[] = {e->x, e->w, e->bias, e->dz, e->z, e->add, e->scale, e->shift, e->mean, e->activated};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static flim_conv_problem problem_of(const example *e, flim_conv_op op, flim_storage type)
{
    flim_conv_problem p = {.op = op,
                           .type = type,
                           .n = e->n,
                           .c = flim_storage_channels(e->unit.in_channels),
                           .k = flim_storage_channels(e->unit.out_channels),
                           .in_channels = e->unit.in_channels,
                           .out_channels = e->unit.out_channels};
    for (int d = 0; d < 3; d++) {
        p.in[d] = e->unit.in[d];
        p.out[d] = e->unit.out[d];
        p.kernel[d] = e->unit.kernel[d];
        p.stride[d] = e->unit.stride[d];
        p.pad[d] = e->unit.pad[d];
    }
    return p;
}

/* Of element i (n,in,pixels) of x: the side of the activation; the gradient that the epilogue adds, of a strided one from (n,in,out). */
static bool is_positive(const example *e, int64_t i)
{
    const int64_t c = i / e->x_pixels % e->unit.in_channels;
    return e->z[i] * e->scale[c] + e->shift[c] - 1.0 > 0;
}

static double added(const example *e, const flim_conv_problem *p, int64_t i)
{
    int64_t rest = i % e->x_pixels, at = 0, size = 1;
    for (int d = 2; d >= 0 && p->add == FLIM_ADD_STRIDED; d--) {
        if (rest % p->in[d] % p->stride[d] != 0) {
            return 0.0;
        }
        at += rest % p->in[d] / p->stride[d] * size;
        size *= p->out[d];
        rest /= p->in[d];
    }
    return p->add == FLIM_ADD_STRIDED ? e->add[i / e->x_pixels * e->y_pixels + at]
           : p->add == FLIM_ADD_DENSE ? e->add[i]
                                      : 0.0;
}

/* A channel's dropout multiplier. */
static double kept(int64_t cell, int64_t channel)
{
    return (cell + channel) % 3 == 0 ? 0.0 : 2.0;
}

/* The problem's output by the reference, over n cells; wrong: with one wrong tap of one channel. */
static double *reference_of(const example *e, const flim_conv_problem *p, int64_t n, bool wrong, int64_t *count)
{
    const bool forward = p->op == FLIM_CONV_FORWARD, weight = p->op == FLIM_CONV_WEIGHT;
    const int64_t taps = flim_volume(p->kernel), at = (e->unit.out_channels / 2 * e->unit.in_channels + 1) * taps + taps / 2;
    double *y = ref_array(e->y_count), *dx = ref_array(e->x_count), *dw = ref_array(e->w_count),
           *none = ref_array(e->w_count);
    e->w[at] += wrong ? 1.0 : 0.0;
    ref_unit(&e->unit, &(ref_unit_run){.n = n,
                                       .training = true,
                                       .x = p->x_form == FLIM_INPUT_PLAIN ? e->x : e->activated,
                                       .weight = e->w,
                                       .bias = p->master ? e->bias : none,
                                       .dy = e->dz,
                                       .y = y,
                                       .dx = dx,
                                       .dweight = dw});
    e->w[at] -= wrong ? 1.0 : 0.0;
    dw[at] += wrong ? 1.0 : 0.0;
    for (int64_t i = 0; i < n * p->in_channels * e->x_pixels && p->epilogue; i++) {
        const int64_t c = i / e->x_pixels % p->in_channels;
        const double v = (dx[i] + added(e, p, i)) * (p->sign_mask ? kept(i / e->x_pixels / p->in_channels, c) : 1.0);
        dx[i] = is_positive(e, i) ? v : 0.01 * v;
    }
    *count = forward ? e->y_count / e->n * n : weight ? e->w_count : e->x_count / e->n * n;
    double *all[] = {y, dx, dw};
    for (int i = 0; i < 3; i++) {
        if (i != (int)p->op) {
            free(all[i]);
        }
    }
    free(none);
    return all[p->op];
}

/* The sides of the activation as bits (n,pixels,c/8), and the multipliers (n,c); padding channels are 0. */
static void take_sign_mask(const example *e, const flim_conv_problem *p, int64_t n, flim_conv_epilogue *out)
{
    const int64_t bytes = p->n * e->x_pixels * p->c / 8;
    uint8_t *bits = calloc((size_t)bytes, 1), *there = take(bytes);
    double *keep = ref_array(p->n * p->c);
    assert_non_null(bits);
    for (int64_t i = 0; i < n * p->in_channels * e->x_pixels; i++) {
        const int64_t cell = i / e->x_pixels / p->in_channels, c = i / e->x_pixels % p->in_channels;
        const int64_t at = (cell * e->x_pixels + i % e->x_pixels) * p->c + c;
        bits[at / 8] |= (uint8_t)(is_positive(e, i) << at % 8);
        keep[cell * p->c + c] = kept(cell, c);
    }
    check_cuda(cudaMemcpy(there, bits, (size_t)bytes, cudaMemcpyHostToDevice), "copy in");
    check_cuda(cudaDeviceSynchronize(), "copy in");
    out->sign_mask = there;
    out->keep = take_floats(keep, p->n * p->c);
    free(bits);
    free(keep);
}

static flim_conv_arguments arguments_of(const example *e, const flim_conv_choice *c, int64_t n)
{
    const flim_conv_problem *p = &c->problem;
    const flim_launch launch = launch_of(p->type);
    const int taps = (int)flim_volume(p->kernel);
    const int64_t size = flim_storage_size(p->type);
    double *below = ref_array(p->in_channels); /* shift of the epilogue: u is -1, 0 or 1 */
    flim_conv_arguments a = {.n = n, .scratch = take(c->workspace)};
    a.x = p->op == FLIM_CONV_DATA ? take(flim_conv_x_elements(p) * size)
                                  : take_tensor(p->type, e->x, n, p->n, p->in_channels, e->x_pixels);
    a.y = p->op == FLIM_CONV_FORWARD ? take(flim_conv_y_elements(p) * size)
                                     : take_tensor(p->type, e->dz, n, p->n, p->out_channels, e->y_pixels);
    if (p->op == FLIM_CONV_WEIGHT) {
        a.w = take(flim_conv_w_elements(p) * size);
        a.master = take(flim_conv_master_elements(p) * (int64_t)sizeof(float));
    } else if (p->master) {
        a.master = take_floats(e->w, e->w_count);
        a.bias = take_floats(e->bias, p->out_channels);
    } else {
        a.w = take(flim_conv_w_elements(p) * size); /* (k,taps,c): k cells of c channels, those past out_channels 0 */
        check_cuda(cudaMemset(a.w, 0, (size_t)(flim_conv_w_elements(p) * size)), "weights");
        put_tensor(p->type, e->w, p->out_channels, p->in_channels, taps, a.w);
        if (c->algorithm->flipped) {
            void *flipped = take(flim_conv_w_elements(p) * size);
            check_cuda(flim_k_flip(&launch, a.w, p->k, taps, p->c, flipped), "flip");
            a.w = flipped;
        }
    }
    if (p->sums) {
        a.sums = take(2 * MOST_CHANNELS * (int64_t)sizeof(double));
    }
    if (p->x_form != FLIM_INPUT_PLAIN) { /* padding channels are 0, before and after */
        double *scale = ref_array(p->c), *shift = ref_array(p->c);
        memcpy(scale, e->scale, (size_t)p->in_channels * sizeof *scale);
        memcpy(shift, e->shift, (size_t)p->in_channels * sizeof *shift);
        a.prologue = (flim_conv_prologue){take_floats(scale, p->c), take_floats(shift, p->c)};
        free(scale);
        free(shift);
    }
    if (p->epilogue) {
        a.epilogue = (flim_conv_epilogue){.z = take_tensor(p->type, e->z, n, p->n, p->in_channels, e->x_pixels),
                                          .scale = take_floats(e->scale, p->in_channels),
                                          .shift = take_floats(below, p->in_channels),
                                          .mean = take_floats(e->mean, p->in_channels),
                                          .add = take_tensor(p->type, e->add, n, p->n, p->in_channels,
                                                             p->add == FLIM_ADD_STRIDED ? e->y_pixels : e->x_pixels)};
        if (p->sign_mask) {
            take_sign_mask(e, p, n, &a.epilogue);
        }
    }
    free(below);
    return a;
}

static double *output_of(const example *e, const flim_conv_choice *c, const flim_conv_arguments *a)
{
    const flim_conv_problem *p = &c->problem;
    switch (p->op) {
    case FLIM_CONV_FORWARD: return fetch_tensor(p->type, a->y, a->n, p->out_channels, e->y_pixels);
    case FLIM_CONV_DATA: return fetch_tensor(p->type, a->x, a->n, p->in_channels, e->x_pixels);
    default: break;
    }
    return c->algorithm->fp32_gradient ? fetch_floats(a->master, e->w_count)
                                       : fetch_tensor(p->type, a->w, p->out_channels, p->in_channels, flim_volume(p->kernel));
}

/* The sums over what was stored. */
static bool sums_right(const example *e, const flim_conv_problem *p, const flim_conv_arguments *a, const double *out)
{
    const bool data = p->op == FLIM_CONV_DATA;
    const int channels = data ? p->in_channels : p->out_channels;
    const int64_t pixels = data ? e->x_pixels : e->y_pixels;
    double got[2 * MOST_CHANNELS], want[2 * MOST_CHANNELS] = {0}, size[2 * MOST_CHANNELS] = {0};
    check_cuda(cudaMemcpy(got, a->sums, 2 * (size_t)channels * sizeof *got, cudaMemcpyDeviceToHost), "sums");
    for (int64_t i = 0; i < a->n * channels * pixels; i++) {
        const int64_t c = i / pixels % channels;
        const double product = out[i] * (data ? e->z[i] - e->mean[c] : out[i]);
        want[c] += out[i];
        want[channels + c] += product;
        size[c] += fabs(out[i]);
        size[channels + c] += fabs(product);
    }
    for (int i = 0; i < 2 * channels; i++) {
        if (!(fabs(got[i] - want[i]) <= 1e-6 * size[i])) {
            return false;
        }
    }
    return true;
}

static bool agrees(const flim_conv_choice *c, const double *got, const double *want, int64_t count, const example *e,
                   int64_t n)
{
    const flim_conv_problem *p = &c->problem;
    const double tolerance = fmax(4 * ulp(p->type), 1e-4);
    if (!c->algorithm->library) {
        return exact(got, want, count, p->type, 0.0);
    }
    return p->op == FLIM_CONV_WEIGHT    ? exact(got, want, count, p->type, 0.4)
           : p->op == FLIM_CONV_FORWARD ? close_by_channel(got, want, n, p->out_channels, e->y_pixels, tolerance)
                                        : close_by_channel(got, want, n, p->in_channels, e->x_pixels, tolerance);
}

/* Runs a candidate over all cells, or over all but one. */
static void check_candidate(const example *e, const flim_conv_choice *c, int64_t n)
{
    char text[320];
    flim_error err = {0};
    int64_t count;
    flim_conv_text(&c->problem, text, sizeof text);
    const flim_conv_arguments a = arguments_of(e, c, n);
    if (flim_conv_run(device, c, &a, &err) != FLIM_OK) {
        fail_msg("%s, %lld cells of %s: %s", c->engine, (long long)n, text, err.text);
    }
    double *got = output_of(e, c, &a), *want = reference_of(e, &c->problem, n, false, &count),
           *wrong = reference_of(e, &c->problem, n, true, &count);
    if (!agrees(c, got, want, count, e, n)) {
        fail_msg("%s, %lld cells of %s: not the reference's values", c->engine, (long long)n, text);
    }
    /* a single voxel may not meet that tap */
    if (memcmp(want, wrong, (size_t)count * sizeof *want) != 0 && agrees(c, got, wrong, count, e, n)) {
        fail_msg("%s, %lld cells of %s: one wrong tap of one channel is not seen", c->engine, (long long)n, text);
    }
    if (c->problem.sums && !sums_right(e, &c->problem, &a, got)) {
        fail_msg("%s, %lld cells of %s: wrong sums", c->engine, (long long)n, text);
    }
    free(got);
    free(want);
    free(wrong);
    free_arrays();
}

typedef struct variants {
    flim_conv_choice list[MOST_VARIANTS];
    int n, wanted;
} variants;

static bool keep(void *to, const flim_conv_choice *candidate)
{
    variants *v = to;
    v->list[v->n++] = *candidate;
    return v->n < v->wanted;
}

/* Returns how many candidates were checked; of cuDNN's engines the first ones. */
static int check_problem(const example *e, const flim_conv_problem *p)
{
    const flim_conv_search_options options = {.benchmark = true};
    const flim_conv_algorithm *algorithm[FLIM_CONV_ALGORITHMS];
    const int n = flim_conv_candidates(p, &device->card, &options, algorithm);
    int checked = 0;
    for (int i = 0; i < n; i++) {
        flim_error err = {0};
        const flim_conv_choice base = {.problem = *p, .algorithm = algorithm[i]};
        variants v = {.wanted = algorithm[i]->library ? MOST_ENGINES : MOST_VARIANTS};
        (void)algorithm[i]->variants(device, &base, keep, &v, &err);
        for (int k = 0; k < v.n; k++) {
            check_candidate(e, &v.list[k], p->n);
            if (p->n > 1) {
                check_candidate(e, &v.list[k], p->n - 1);
            }
            flim_cudnn_plan_free(&device->cudnn, &v.list[k].cudnn);
            checked++;
        }
    }
    return checked;
}

static void every_algorithm_gives_the_reference(void **state)
{
    (void)state;
    int checked = 0, fused = 0;
    const char *only = getenv("FLIM_CASE");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        if (only && strcmp(only, layers[i].name) != 0) {
            continue;
        }
        example e = make_example(&layers[i]);
        for (int type = 0; type < 3; type++) {
            for (int op = 0; op < 3; op++) {
                flim_conv_problem p = problem_of(&e, (flim_conv_op)op, (flim_storage)type);
                const int plain = check_problem(&e, &p);
                if (plain < 1) {
                    fail_msg("%s: nothing computes direction %d in %s", layers[i].name, op, type_name[type]);
                }
                checked += plain;
                for (int form = 1; form < 64; form++) { /* what may be fused, in all combinations that the table takes */
                    flim_conv_problem f = p;
                    f.master = form & 8;
                    f.sums = form & 1;
                    if (op == FLIM_CONV_DATA) {
                        f.epilogue = form & 2;
                        f.add = !(form & 4) ? FLIM_ADD_NONE : form & 32 ? FLIM_ADD_STRIDED : FLIM_ADD_DENSE;
                        f.sign_mask = form & 16;
                        if (form & 32 && !(form & 4)) {
                            continue;
                        }
                    } else if (form >= 16) {
                        break;
                    } else {
                        f.x_form = form & 2 ? FLIM_INPUT_NORM_ACT_ON_LOAD : FLIM_INPUT_PLAIN;
                    }
                    if (op == FLIM_CONV_DATA || (!(form & 4) && (op == FLIM_CONV_FORWARD || !f.master))) {
                        fused += check_problem(&e, &f);
                    }
                }
            }
        }
        free_example(&e);
    }
    print_message("%d candidates of plain problems, %d of fused ones\n", checked, fused);
    if (checked == 0) {
        fail_msg("FLIM_CASE=%s: no such layer", only);
    }
    assert_true(device->sm < 80 || only || fused >= 30);
}

/* ---- the stem -----------------------------------------------------------------------------------------------------------
 * */

/* z: of down, or of the stem alone its y. */
typedef struct stem_example {
    flim_unit stem, down;
    bool alone;
    int channels;
    int64_t n, pixels, voxels, z_count;
    double *signal, *mask, *x; /* x (n,2,T,H,W): both */
    double *weight, *bias, *gamma, *beta, *mean, *var, *down_weight, *down_bias, *dz;
} stem_example;

/* Multiples of 1/8 that every type holds. */
static double *eighths(int64_t count, uint64_t seed, int most, double offset)
{
    double *out = ref_array(count);
    for (int64_t i = 0; i < count; i++) {
        out[i] = offset;
        for (int k = 0; k < most; k++) {
            out[i] += integer((uint64_t)(i * 8 + k), seed) / 8.0;
        }
    }
    return out;
}

static stem_example make_stem(int64_t n, int t, int h, int w, int channels)
{
    const layer stem = {"stem", n, 2, channels, {t, h, w}, {7, 1, 1}, {1, 1, 1}, {3, 0, 0}};
    const layer down = {"down", n, channels, channels, {t, h, w}, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}};
    example first = make_example(&stem), second = make_example(&down);
    stem_example e = {.stem = first.unit,
                      .down = second.unit,
                      .alone = channels > 64,
                      .channels = channels,
                      .n = n,
                      .pixels = (int64_t)h * w,
                      .voxels = (int64_t)t * h * w,
                      .z_count = channels > 64 ? first.y_count : second.y_count};
    strcpy(e.stem.bn, "bn");
    e.stem.act = true;
    e.signal = eighths(n * e.voxels, 11, 4, 0.5);
    e.mask = eighths(n * e.pixels, 12, 1, 0.0);
    e.x = ref_array(2 * n * e.voxels);
    for (int64_t i = 0; i < n * e.pixels; i++) {
        e.mask[i] = e.mask[i] > 0 ? 1.0 : 0.0;
    }
    for (int64_t i = 0; i < n * e.voxels; i++) {
        const int64_t cell = i / e.voxels, voxel = i % e.voxels;
        e.x[cell * 2 * e.voxels + voxel] = e.signal[i];
        e.x[(cell * 2 + 1) * e.voxels + voxel] = e.mask[cell * e.pixels + voxel % e.pixels];
    }
    e.weight = eighths(channels * 14, 13, 4, 0.0);
    e.bias = eighths(channels, 14, 4, 0.0);
    e.gamma = eighths(channels, 15, 2, 1.0);
    e.beta = eighths(channels, 16, 4,
                     e.alone ? 1.0 / 16 : 0.0); /* a z may be its channel's mean, to the last bit: no u is 0 then */
    e.mean = eighths(channels, 17, 4, 0.0);
    e.var = eighths(channels, 18, 4, 1.0);
    e.down_weight = eighths(channels * channels * 3, 19, 3, 0.0);
    e.down_bias = eighths(channels, 20, 4, 0.0);
    e.dz = eighths(e.z_count, 21, 4, 0.0);
    free_example(&first);
    free_example(&second);
    return e;
}

static void free_stem(stem_example *e)
{
    double *all[] = {e->signal, e->mask, e->x,   e->weight,      e->bias,      e->gamma,
                     e->beta,   e->mean, e->var, e->down_weight, e->down_bias, e->dz};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

typedef struct stem_result {
    double *z, *dweight, *dgamma, *dbeta, *ddown, *mean, *var;
} stem_result;

/* dz: the gradient of z to go back from, or NULL; wrong: one wrong tap of one channel of the stem (1) or of down (2). */
static stem_result stem_reference(const stem_example *e, bool training, const double *dz, int wrong)
{
    const int c = e->channels;
    const int64_t a_count = e->n * c * e->voxels;
    double *a = ref_array(a_count), *da = ref_array(a_count);
    stem_result r = {ref_array(e->z_count), ref_array(c * 14), ref_array(c), ref_array(c),
                     ref_array(c * c * 3),  ref_array(c),      ref_array(c)};
    memcpy(r.mean, e->mean, (size_t)c * sizeof *r.mean);
    memcpy(r.var, e->var, (size_t)c * sizeof *r.var);
    e->weight[100] += wrong == 1 ? 0.25 : 0.0;
    e->down_weight[1000] += wrong == 2 ? 0.25 : 0.0;
    ref_unit_run stem = {.n = e->n,
                         .training = training,
                         .momentum = training ? 0.1 : 0,
                         .x = e->x,
                         .weight = e->weight,
                         .bias = e->bias,
                         .gamma = e->gamma,
                         .beta = e->beta,
                         .running_mean = r.mean,
                         .running_var = r.var,
                         .y = a};
    ref_unit_run down = {.n = e->n,
                         .training = true,
                         .x = a,
                         .weight = e->down_weight,
                         .bias = e->down_bias,
                         .y = r.z,
                         .dy = dz,
                         .dx = dz ? da : NULL,
                         .dweight = dz ? r.ddown : NULL};
    ref_unit(&e->stem, &stem);
    if (e->alone) {
        memcpy(r.z, a, (size_t)a_count * sizeof *a);
    } else {
        ref_unit(&e->down, &down);
    }
    if (dz) {
        stem.momentum = 0;
        stem.dy = e->alone ? dz : da;
        stem.dweight = r.dweight;
        stem.dgamma = r.dgamma;
        stem.dbeta = r.dbeta;
        ref_unit(&e->stem, &stem);
    }
    e->weight[100] -= wrong == 1 ? 0.25 : 0.0;
    e->down_weight[1000] -= wrong == 2 ? 0.25 : 0.0;
    free(a);
    free(da);
    return r;
}

static void free_result(stem_result *r)
{
    double *all[] = {r->z, r->dweight, r->dgamma, r->dbeta, r->ddown, r->mean, r->var};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

/* n_full: cells of the problem; those past n hold NaN. */
static flim_conv_arguments stem_arguments(const stem_example *e, flim_storage type, int64_t n_full)
{
    const int c = e->channels;
    uint8_t *mask = malloc((size_t)(e->n * e->pixels));
    void *mask_there = take(e->n * e->pixels);
    assert_non_null(mask);
    for (int64_t i = 0; i < e->n * e->pixels; i++) {
        mask[i] = e->mask[i] > 0;
    }
    check_cuda(cudaMemcpy(mask_there, mask, (size_t)(e->n * e->pixels), cudaMemcpyHostToDevice), "mask");
    check_cuda(cudaDeviceSynchronize(), "mask");
    free(mask);
    const size_t size = (size_t)flim_storage_size(type), count = (size_t)(e->n * e->voxels);
    char *host = malloc(count * size), *signal = take((int64_t)size * n_full * e->voxels);
    assert_non_null(host);
    for (size_t i = 0; i < count; i++) {
        const uint32_t value = stored(type, e->signal[i]);
        memcpy(host + i * size, &value, size);
    }
    check_cuda(cudaMemcpy(signal, host, count * size, cudaMemcpyHostToDevice), "signal");
    check_cuda(cudaDeviceSynchronize(), "signal");
    free(host);
    return (flim_conv_arguments){.n = e->n,
                                 .x = signal,
                                 .y = take(e->z_count / e->n * n_full * flim_storage_size(type)),
                                 .master = e->alone ? NULL : take_floats(e->down_weight, c * c * 3),
                                 .bias = e->alone ? NULL : take_floats(e->down_bias, c),
                                 .sums = e->alone ? NULL : take(2 * c * (int64_t)sizeof(double)),
                                 .stem = {.mask = mask_there,
                                          .weight = take_floats(e->weight, c * 14),
                                          .bias = take_floats(e->bias, c),
                                          .gamma = take_floats(e->gamma, c),
                                          .beta = take_floats(e->beta, c),
                                          .eps = 1e-5f,
                                          .running_mean = take_floats(e->mean, c),
                                          .running_var = take_floats(e->var, c),
                                          .state = take((int64_t)flim_stem_state_bytes())}};
}

static void run_stem(const flim_conv_problem *p, flim_conv_arguments *a)
{
    const flim_conv_choice c = {.problem = *p, .algorithm = &flim_conv_fused_stem};
    flim_error err = {0};
    a->scratch = take((int64_t)flim_stem_scratch_bytes(p));
    if (!flim_conv_fused_stem.supported(p, &device->card)) {
        fail_msg("the stem's algorithm refuses its own problem");
    }
    if (flim_conv_run(device, &c, a, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
}

static bool stem_forward_agrees(const stem_example *e, const double *z, const stem_result *r, flim_storage type)
{
    return close_by_channel(z, r->z, e->n, e->channels, e->z_count / e->n / e->channels, 4 * ulp(type));
}

static bool stem_gradients_agree(const stem_example *e, const flim_conv_arguments *a, const stem_result *r, flim_storage type)
{
    const int c = e->channels;
    double *dweight = fetch_floats(e->alone ? a->master : a->stem.dweight, c * 14), *dgamma = fetch_floats(a->stem.dgamma, c),
           *dbeta = fetch_floats(a->stem.dbeta, c), *dbias = fetch_floats(a->stem.dbias, c),
           *ddown = e->alone ? NULL : fetch_floats(a->master, c * c * 3);
    const double tolerance = 4 * ulp(type);
    bool good = close_by_channel(dweight, r->dweight, 1, c, 14, 2 * tolerance) &&
                close_by_channel(dgamma, r->dgamma, 1, 1, c, tolerance) &&
                close_by_channel(dbeta, r->dbeta, 1, 1, c, tolerance) &&
                (!ddown || close_by_channel(ddown, r->ddown, 1, c, c * 3, tolerance));
    for (int i = 0; i < c; i++) {
        good = good && dbias[i] == 0.0;
    }
    free(dweight);
    free(dgamma);
    free(dbeta);
    free(dbias);
    free(ddown);
    return good;
}

/* Gradients from dz as it is, or as what makes it on load. */
static void check_stem_gradients(const stem_example *e, const flim_conv_problem *forward, const flim_conv_arguments *a,
                                 const double *z, const char *text)
{
    const int c = e->channels;
    const flim_storage type = forward->type;
    for (int on_load = 0; on_load < (e->alone ? 1 : 2); on_load++) {
        flim_conv_problem back = *forward;
        flim_conv_arguments b = *a;
        double *dz = ref_array(e->z_count), *ones = eighths(c, 0, 0, 1.0), *quarters = eighths(c, 0, 0, 0.25);
        back.op = FLIM_CONV_WEIGHT;
        back.master = back.sums = false;
        back.dz_form = on_load ? FLIM_INPUT_NORM_ON_LOAD : FLIM_INPUT_PLAIN;
        b.y = take_tensor(type, e->dz, e->n, forward->n, c, e->z_count / e->n / c);
        b.stem.down_weight = a->master;
        b.master = take((e->alone ? 14 : c * 3) * c * (int64_t)sizeof(float));
        b.stem.dweight = e->alone ? NULL : take(c * 14 * (int64_t)sizeof(float));
        b.stem.dbias = take(c * (int64_t)sizeof(float));
        b.stem.dgamma = take(c * (int64_t)sizeof(float));
        b.stem.dbeta = take(c * (int64_t)sizeof(float));
        b.dz_norm = (flim_conv_dz_norm){
            .z = a->y, .a = take_floats(ones, c), .b = take_floats(quarters, c), .d = take_floats(quarters, c)};
        for (int64_t i = 0; i < e->z_count; i++) {
            dz[i] = e->dz[i] + (on_load ? 0.25 * z[i] + 0.25 : 0.0);
        }
        run_stem(&back, &b);
        for (int wrong = 0; wrong < (e->alone ? 2 : 3); wrong++) {
            stem_result r = stem_reference(e, true, dz, wrong);
            if (stem_gradients_agree(e, &b, &r, type) != (wrong == 0)) {
                fail_msg("%s, dz %s: gradients %s", text, on_load ? "normalised on load" : "as it is",
                         wrong ? "agree in spite of a wrong tap" : "are not the reference's");
            }
            free_result(&r);
        }
        free(dz);
        free(ones);
        free(quarters);
    }
}

/* No cell past n was written. */
static bool past_is_nan(const void *y, int64_t from, int64_t bytes)
{
    unsigned char *host = malloc((size_t)bytes);
    bool nan = true;
    assert_non_null(host);
    check_cuda(cudaMemcpy(host, (const char *)y + from, (size_t)bytes, cudaMemcpyDeviceToHost), "copy out");
    for (int64_t i = 0; i < bytes; i++) {
        nan = nan && host[i] == 0xff;
    }
    free(host);
    return nan;
}

/* Of a problem of one cell more. */
static void check_stem(int64_t n, int t, int h, int w, int channels, flim_storage type)
{
    stem_example e = make_stem(n, t, h, w, channels);
    char text[128];
    snprintf(text, sizeof text, "stem%s %s, %d channels, %lld cells of (%d,%d,%d)", e.alone ? " alone" : "", type_name[type],
             channels, (long long)n, t, h, w);
    const flim_conv_problem down = {.op = FLIM_CONV_FORWARD,
                                    .type = type,
                                    .n = n + 1,
                                    .c = channels,
                                    .k = channels,
                                    .in_channels = channels,
                                    .out_channels = channels,
                                    .in = {t, h, w},
                                    .out = {(t + 1) / 2, h, w},
                                    .kernel = {3, 1, 1},
                                    .stride = {2, 1, 1},
                                    .pad = {1, 0, 0},
                                    .master = true,
                                    .stem = true};
    const flim_conv_problem alone = {.op = FLIM_CONV_FORWARD,
                                     .type = type,
                                     .n = n + 1,
                                     .c = 8,
                                     .k = channels,
                                     .in_channels = 2,
                                     .out_channels = channels,
                                     .in = {t, h, w},
                                     .out = {t, h, w},
                                     .kernel = {7, 1, 1},
                                     .stride = {1, 1, 1},
                                     .pad = {3, 0, 0},
                                     .master = true,
                                     .stem = true};
    flim_conv_problem p = e.alone ? alone : down;
    for (int training = 0; training < 2; training++) {
        flim_conv_arguments a = stem_arguments(&e, type, p.n);
        const int64_t bytes = e.z_count * flim_storage_size(type);
        p.sums = training;
        run_stem(&p, &a);
        double *z = fetch_tensor(type, a.y, n, channels, e.z_count / n / channels);
        if (!past_is_nan(a.y, bytes, bytes / n)) {
            fail_msg("%s: a cell past n was written", text);
        }
        for (int wrong = 0; wrong < (e.alone ? 2 : 3); wrong++) {
            stem_result r = stem_reference(&e, training, NULL, wrong);
            if (stem_forward_agrees(&e, z, &r, type) != (wrong == 0)) {
                fail_msg("%s, %s: z %s", text, training ? "training" : "prediction",
                         wrong ? "agrees in spite of a wrong tap" : "is not the reference's");
            }
            free_result(&r);
        }
        if (training) {
            check_stem_gradients(&e, &p, &a, z, text);
        }
        free(z);
        free_arrays();
    }
    free_stem(&e);
}

static void the_stem_gives_the_reference(void **state)
{
    (void)state;
    if (device->sm < 80) {
        print_message("skipped: the stem's kernels need compute capability 8.0\n");
        return;
    }
    for (int type = FLIM_STORAGE_FP16; type <= FLIM_STORAGE_BF16; type++) {
        static const int channels[] = {32, 72, 128, 256};
        for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++) {
            check_stem(2, 37, 4, 5, channels[i], (flim_storage)type);
            check_stem(1, 8, 3, 3, channels[i], (flim_storage)type);
            check_stem(3, 150, 3, 7, channels[i], (flim_storage)type);
        }
    }
}

int main(void)
{
    flim_error err = {0};
    verbose = getenv("FLIM_TEST_VERBOSE") != NULL;
    flim_device *opened = NULL;
    if (flim_device_open("cuda", NULL, &opened, &err) != FLIM_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    device = flim_cuda_device_of(opened);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_algorithm_gives_the_reference),
                                       cmocka_unit_test(the_stem_gives_the_reference)};
    cmocka_set_test_filter(getenv("CMOCKA_TEST_FILTER"));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    flim_device_close(opened);
    return failed;
}

#else

int main(void)
{
    printf("skipped: this build has no CUDA backend\n");
    return 77;
}

#endif

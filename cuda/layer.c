/* One unit or the head alone, for layer tests and measurements: the kernels and plans of a program on the caller's arrays. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "core/alloc.h"
#include "pass.h"

/* Device memory of one run, freed together. */
enum { MAX_PIECES = 96 };
typedef struct pieces {
    flim_cuda_device *device;
    int n;
    void *at[MAX_PIECES];
} pieces;

static void free_pieces(pieces *p)
{
    for (int i = 0; i < p->n; i++) {
        (void)cudaFree(p->at[i]);
    }
    p->n = 0;
}

/* `bytes` of device memory filled with 0xff: every element is NaN until it is written. */
static flim_status take(pieces *p, int64_t bytes, void *out, flim_error *err)
{
    void *at = NULL;
    flim_status status;
    if (p->n == MAX_PIECES) {
        return flim_fail(err, FLIM_ERROR, "internal: too many pieces of memory");
    }
    status = flim_cuda_malloc(p->device, bytes > 0 ? bytes : 256, "a layer", &at, err);
    if (status == FLIM_OK) {
        p->at[p->n++] = at;
        memcpy(out, &at, sizeof at);
        status = flim_cuda_check(cudaMemsetAsync(at, 0xff, (size_t)(bytes > 0 ? bytes : 256), p->device->stream),
                                 "cudaMemsetAsync", err);
    }
    return status;
}

static flim_status take_copy(pieces *p, const void *host, int64_t bytes, void *out, flim_error *err)
{
    flim_status status = take(p, bytes, out, err);
    void *at;
    memcpy(&at, out, sizeof at);
    return status == FLIM_OK && host
               ? flim_cuda_check(cudaMemcpyAsync(at, host, (size_t)bytes, cudaMemcpyHostToDevice, p->device->stream),
                                 "copying to the device", err)
               : status;
}

static flim_status fetch(pieces *p, void *host, const void *device, int64_t bytes, flim_error *err)
{
    return !host ? FLIM_OK
                 : flim_cuda_check(cudaMemcpyAsync(host, device, (size_t)bytes, cudaMemcpyDeviceToHost, p->device->stream),
                                   "copying from the device", err);
}

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

typedef struct layer {
    flim_cuda_device *device;
    const flim_unit *unit;
    const flim_unit_run *run;
    flim_launch launch;
    bool scaled;
    pieces memory;
    int c, k;
    int64_t x_pixels, z_pixels, y_pixels;
    void *x, *z, *y, *skip, *gate, *dy, *dz, *dx, *dv, *w, *dw, *workspace;
    float *constants, *gradient, *one, *dy_scale, *planar; /* planar: staging in the host's layout */
    float *partial, *dropout, *running; /* running: mean, var */
    double *sums;
    int *counter;
    uint32_t *id;
    flim_weight_table *table;
    const flim_conv_plan *plan[3];
    flim_norm norm;
    flim_grad_affine grad;
    float *dv_scale, *weight_scale;
    int64_t weights;
} layer;

/* host (n,channels,pixels) -> storage tensor. */
static flim_status upload(layer *l, const float *host, int channels, int c, int64_t pixels, const float *scale, void *to,
                          flim_error *err)
{
    flim_status status;
    FLIM_TRY_CUDA(cudaMemcpyAsync(l->planar, host, (size_t)(l->run->n * channels * pixels) * sizeof(float),
                                  cudaMemcpyHostToDevice, l->launch.stream));
    FLIM_TRY_CUDA(flim_k_from_planar(&l->launch, l->planar, l->run->n, l->run->n, channels, c, pixels, scale, to));
done:
    return status;
}

static flim_status download(layer *l, const void *from, int channels, int c, int64_t pixels, const float *scale, float *host,
                            flim_error *err)
{
    flim_status status = FLIM_OK;
    if (!host) {
        return FLIM_OK;
    }
    FLIM_TRY_CUDA(flim_k_to_planar(&l->launch, from, l->run->n, channels, c, pixels, scale, l->planar));
    FLIM_TRY(fetch(&l->memory, host, l->planar, l->run->n * channels * pixels * (int64_t)sizeof(float), err));
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream)); /* planar is used again */
done:
    return status;
}

static flim_status plan_layer(layer *l, bool backward, bool deterministic, flim_error *err)
{
    const flim_plan_options options = {.benchmark = false};
    int64_t workspace = 0;
    for (int op = 0; op < (backward ? 3 : 1); op++) {
        flim_conv_problem problem = flim_pass_problem(l->unit, (flim_conv_op)op, l->launch.type, l->run->n, deterministic);
        for (int d = 0; d < 3; d++) { /* a layer alone has no reader that could spread a compact dx */
            problem.in[d] = l->unit->in[d];
            problem.stride[d] = l->unit->stride[d];
        }
        flim_status status = flim_plan_store_get(l->device, &problem, &options, &l->plan[op], err);
        if (status != FLIM_OK) {
            return flim_fail_prefix(err, "%s: ", l->unit->conv);
        }
        workspace = l->plan[op]->workspace > workspace ? l->plan[op]->workspace : workspace;
    }
    return take(&l->memory, workspace, &l->workspace, err);
}

static flim_status take_tensors(layer *l, flim_error *err)
{
    const flim_unit *u = l->unit;
    const int64_t n = l->run->n, size = flim_storage_size(l->launch.type), k = l->k;
    const int64_t x = n * l->x_pixels * l->c * size, z = n * l->z_pixels * k * size, y = n * l->y_pixels * k * size;
    const int64_t most = l->x_pixels * l->c > l->z_pixels * k ? l->x_pixels * l->c : l->z_pixels * k;
    const int taps = (int)volume(u->kernel);
    pieces *m = &l->memory;
    flim_status status;
    l->weights = k * taps * l->c;
    FLIM_TRY(take(m, n * most * (int64_t)sizeof(float), &l->planar, err));
    FLIM_TRY(take(m, x, &l->x, err));
    FLIM_TRY(take(m, z, &l->z, err));
    FLIM_TRY(take(m, y, &l->y, err));
    FLIM_TRY(take(m, z, &l->skip, err));
    FLIM_TRY(take(m, z / size / 8, &l->gate, err));
    FLIM_TRY(take(m, y, &l->dy, err));
    FLIM_TRY(take(m, z, &l->dz, err));
    FLIM_TRY(take(m, x, &l->dx, err));
    FLIM_TRY(take(m, z, &l->dv, err));
    FLIM_TRY(take(m, l->weights * size, &l->w, err));
    FLIM_TRY(take(m, l->weights * size, &l->dw, err));
    FLIM_TRY(take(m, 8 * k * (int64_t)sizeof(float) + 8 * 256, &l->constants, err));
    FLIM_TRY(take(m, ((int64_t)l->launch.processors * 8 + n) * k * FLIM_MAX_PARTIAL_SUMS * (int64_t)sizeof(float),
                  &l->partial, err));
    FLIM_TRY(take(m, FLIM_MAX_PARTIAL_SUMS * k * (int64_t)sizeof(double), &l->sums, err));
    FLIM_TRY(take(m, sizeof(int), &l->counter, err));
    FLIM_TRY(take(m, n * k * (int64_t)sizeof(float), &l->dropout, err));
    FLIM_TRY_CUDA(cudaMemsetAsync(l->counter, 0, sizeof(int), l->launch.stream));
done:
    return status;
}

/* Parameters: weight, bias, gamma, beta in one array in this order, gradients likewise. */
static flim_status take_parameters(layer *l, flim_error *err)
{
    const flim_unit *u = l->unit;
    const flim_unit_run *r = l->run;
    const int64_t channels = u->out_channels, weights = channels * u->in_channels * volume(u->kernel),
                  row = channels * (int64_t)sizeof(float);
    const float one = 1.0f;
    float *parameters;
    pieces *m = &l->memory;
    flim_status status;
    FLIM_TRY(take_copy(m, &one, sizeof one, &l->one, err));
    FLIM_TRY(take_copy(m, &one, sizeof one, &l->dy_scale, err));
    FLIM_TRY(take_copy(m, &one, sizeof one, &l->dv_scale, err));
    FLIM_TRY(take_copy(m, &one, sizeof one, &l->weight_scale, err));
    FLIM_TRY(take(m, weights * (int64_t)sizeof(float) + 3 * row, &parameters, err));
    FLIM_TRY(take(m, weights * (int64_t)sizeof(float) + 3 * row, &l->gradient, err));
    FLIM_TRY(take(m, 2 * row, &l->running, err));
    FLIM_TRY_CUDA(
        cudaMemcpyAsync(parameters, r->weight, (size_t)weights * sizeof(float), cudaMemcpyHostToDevice, l->launch.stream));
    FLIM_TRY_CUDA(cudaMemcpyAsync(parameters + weights, r->bias, (size_t)row, cudaMemcpyHostToDevice, l->launch.stream));
    if (u->bn[0]) {
        FLIM_TRY_CUDA(cudaMemcpyAsync(parameters + weights + channels, r->gamma, (size_t)row, cudaMemcpyHostToDevice,
                                      l->launch.stream));
        FLIM_TRY_CUDA(cudaMemcpyAsync(parameters + weights + 2 * channels, r->beta, (size_t)row, cudaMemcpyHostToDevice,
                                      l->launch.stream));
        FLIM_TRY_CUDA(cudaMemcpyAsync(l->running, r->running_mean, (size_t)row, cudaMemcpyHostToDevice, l->launch.stream));
        FLIM_TRY_CUDA(
            cudaMemcpyAsync(l->running + channels, r->running_var, (size_t)row, cudaMemcpyHostToDevice, l->launch.stream));
    }
    float *c = l->constants, *s = c + 8 * l->k;
    const int64_t k = l->k;
    l->norm = (flim_norm){.channels = u->out_channels,
                          .c = l->k,
                          .present = u->bn[0] != 0,
                          .bias = parameters + weights,
                          .gamma = parameters + weights + channels,
                          .beta = parameters + weights + 2 * channels,
                          .running_mean = l->running,
                          .running_var = l->running + channels,
                          .weight_scale = l->weight_scale,
                          .affine = {c, c + k},
                          .mean = c + 2 * k,
                          .invstd = c + 3 * k};
    l->grad = (flim_grad_affine){c + 5 * k, c + 6 * k, c + 7 * k, s, s + 1};
    flim_weight_table table = {.n = 1, .elements = l->weights};
    table.item[0] = (flim_weight_item){.o = u->out_channels,
                                       .i = u->in_channels,
                                       .taps = (int)volume(u->kernel),
                                       .k = l->k,
                                       .c = l->c,
                                       .storage = l->w,
                                       .grad = l->dw,
                                       .grad_scale = l->grad.scale,
                                       .scale = l->weight_scale};
    FLIM_TRY(take_copy(m, &table, sizeof table, &l->table, err));
    FLIM_TRY_CUDA(flim_k_weights(&l->launch, l->table, 1, l->weights, parameters, l->launch.type == FLIM_STORAGE_FP16, NULL));
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream)); /* `table` and the scales are on this function's stack */
done:
    return status;
}

static flim_status make_dropout(layer *l, flim_tail *tail, flim_error *err)
{
    const flim_unit_run *r = l->run;
    flim_status status = FLIM_OK;
    if (!l->unit->dropout || r->dropout <= 0.0f || !r->training || !r->id) {
        return FLIM_OK;
    }
    uint32_t *words = flim_alloc((size_t)r->n, 6 * sizeof *words, err);
    if (!words) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < r->n; i++) {
        const flim_cell_id *id = &r->id[i];
        const uint32_t w[6] = {(uint32_t)id->seed, (uint32_t)(id->seed >> 32), id->fold, id->epoch, id->cell, id->repeat};
        memcpy(words + 6 * i, w, sizeof w);
    }
    flim_dropout_table table = {.n = 1};
    table.item[0].unit = r->unit;
    table.item[0].channels = l->unit->out_channels;
    table.item[0].c = l->k;
    table.item[0].multiplier = l->dropout;
    float *p;
    FLIM_TRY(take_copy(&l->memory, words, r->n * 6 * (int64_t)sizeof *words, &l->id, err));
    FLIM_TRY(take_copy(&l->memory, &r->dropout, sizeof r->dropout, &p, err));
    FLIM_TRY_CUDA(flim_k_dropout(&l->launch, &table, l->id, r->n, p));
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream));
    tail->dropout = l->dropout;
done:
    flim_free(words);
    return status;
}

static flim_status run_plan(layer *l, flim_conv_op op, const void *x, const void *w, const void *y, flim_error *err)
{
    return flim_conv_plan_run(l->device, l->plan[op], l->run->n, x, w, y, l->workspace, err);
}

static flim_status forward(layer *l, flim_tail *tail, flim_error *err)
{
    const flim_unit *u = l->unit;
    const flim_unit_run *r = l->run;
    flim_status status;
    FLIM_TRY(upload(l, r->x, u->in_channels, l->c, l->x_pixels, NULL, l->x, err));
    FLIM_TRY(run_plan(l, FLIM_CONV_FORWARD, l->x, l->w, l->z, err));
    if (r->training && u->bn[0]) {
        flim_blocks blocks = flim_blocks_for(r->n, l->z_pixels, l->k, l->launch.processors);
        FLIM_TRY_CUDA(flim_k_stats(&l->launch, l->z, blocks, l->k, l->partial));
        FLIM_TRY_CUDA(flim_k_norm_train(&l->launch, l->partial, blocks, &l->norm));
    } else {
        FLIM_TRY_CUDA(flim_k_norm_fixed(&l->launch, &l->norm));
    }
    *tail = (flim_tail){.cells = r->n,
                        .t = u->conv_out[0],
                        .hw = u->conv_out[1] * u->conv_out[2],
                        .c = l->k,
                        .pool = u->pool_t,
                        .act = u->act,
                        .z = l->z,
                        .affine = l->norm.affine,
                        .skip_in = l->z};
    if (u->skip >= 0) {
        tail->skip = FLIM_SKIP_PLAIN;
        tail->skip_in = l->skip;
        tail->gate = u->act && u->pool_t == 1 ? l->gate : NULL;
        FLIM_TRY(upload(l, r->skip, u->out_channels, l->k, l->z_pixels, NULL, l->skip, err));
    }
    FLIM_TRY(make_dropout(l, tail, err));
    FLIM_TRY_CUDA(flim_k_tail_forward(&l->launch, tail, l->y));
    FLIM_TRY(download(l, l->y, u->out_channels, l->k, l->y_pixels, NULL, r->y, err));
    if (u->bn[0]) {
        FLIM_TRY(fetch(&l->memory, r->running_mean, l->running, u->out_channels * (int64_t)sizeof(float), err));
        FLIM_TRY(
            fetch(&l->memory, r->running_var, l->running + u->out_channels, u->out_channels * (int64_t)sizeof(float), err));
    }
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream));
done:
    return status;
}

/* fp16 holds dy with a power of two that brings its largest value near 1. */
static float dy_scale_of(const float *dy, int64_t count)
{
    float most = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(dy[i]));
    }
    int exponent = 0;
    if (most > 0 && isfinite(most)) {
        (void)frexpf(most, &exponent);
    }
    return ldexpf(1.0f, -exponent);
}

static flim_status backward(layer *l, const flim_tail *forward_tail, flim_error *err)
{
    flim_tail tail = *forward_tail;
    const flim_unit *u = l->unit;
    const flim_unit_run *r = l->run;
    const int64_t channels = u->out_channels, weights = channels * u->in_channels * volume(u->kernel),
                  row = channels * (int64_t)sizeof(float);
    if (tail.gate) {
        tail.skip = FLIM_SKIP_GATED;
    }
    flim_status status;
    if (l->scaled) {
        const float scale = dy_scale_of(r->dy, r->n * channels * l->y_pixels);
        FLIM_TRY_CUDA(cudaMemcpy(l->dy_scale, &scale, sizeof scale, cudaMemcpyHostToDevice));
    }
    FLIM_TRY(upload(l, r->dy, u->out_channels, l->k, l->y_pixels, l->dy_scale, l->dy, err));
    flim_sources dy = {.n = 1, .h = u->out[1], .w = u->out[2]};
    dy.item[0] = (flim_source){.kind = FLIM_SOURCE_DENSE, .data = l->dy, .scale_a = l->dy_scale};
    flim_blocks blocks = flim_blocks_for(r->n, l->y_pixels, l->k, l->launch.processors);
    float *g = l->gradient;
    flim_grad_norm main = {.norm = l->norm,
                           .out = l->grad,
                           .dbias = g + weights,
                           .dgamma = g + weights + channels,
                           .dbeta = g + weights + 2 * channels};
    FLIM_TRY_CUDA(flim_k_grad_sums(&l->launch, &tail, &dy, blocks, l->partial, NULL));
    FLIM_TRY_CUDA(flim_k_grad_norm(&l->launch, l->partial, blocks, r->n * l->z_pixels, &main, NULL, l->dv_scale, l->scaled,
                                   r->training, false, l->one, l->sums, l->counter));
    FLIM_TRY_CUDA(flim_k_grad_apply(&l->launch, &tail, &dy, &l->grad, NULL, l->dv_scale, l->dz, NULL, l->dv));
    flim_wgrad_shape shape;
    if (l->plan[FLIM_CONV_WEIGHT]->own) {
        (void)flim_own_wgrad_shape(&l->plan[FLIM_CONV_WEIGHT]->problem, u->in_channels, u->out_channels, l->device->sm,
                                   &shape);
        FLIM_TRY_CUDA(flim_wgrad(&shape, l->x, NULL, l->dz, g, l->grad.unscale, false, l->workspace, l->launch.stream));
    } else {
        FLIM_TRY(run_plan(l, FLIM_CONV_WEIGHT, l->x, l->dw, l->dz, err));
        FLIM_TRY_CUDA(flim_k_gather(&l->launch, l->table, 1, l->weights, l->one, false, g));
    }
    FLIM_TRY(run_plan(l, FLIM_CONV_DATA, l->dx, l->w, l->dz, err));
    if (r->dx) { /* stored dx carries the scales of dz and of the weights */
        float scale[2], product;
        FLIM_TRY_CUDA(cudaMemcpyAsync(&scale[0], l->grad.scale, sizeof(float), cudaMemcpyDeviceToHost, l->launch.stream));
        FLIM_TRY_CUDA(cudaMemcpyAsync(&scale[1], l->weight_scale, sizeof(float), cudaMemcpyDeviceToHost, l->launch.stream));
        FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream));
        product = scale[0] * scale[1];
        FLIM_TRY_CUDA(cudaMemcpy(l->dy_scale, &product, sizeof product, cudaMemcpyHostToDevice));
        FLIM_TRY(download(l, l->dx, u->in_channels, l->c, l->x_pixels, l->dy_scale, r->dx, err));
    }
    if (u->skip >= 0) {
        FLIM_TRY(download(l, l->dv, u->out_channels, l->k, l->z_pixels, l->dv_scale, r->dskip, err));
    }
    FLIM_TRY(fetch(&l->memory, r->dweight, g, weights * (int64_t)sizeof(float), err));
    FLIM_TRY(fetch(&l->memory, r->dbias, g + weights, row, err));
    if (u->bn[0]) {
        FLIM_TRY(fetch(&l->memory, r->dgamma, g + weights + channels, row, err));
        FLIM_TRY(fetch(&l->memory, r->dbeta, g + weights + 2 * channels, row, err));
    }
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream));
done:
    return status;
}

static flim_storage storage_of(flim_precision precision)
{
    return precision == FLIM_PRECISION_FP32   ? FLIM_STORAGE_FP32
           : precision == FLIM_PRECISION_BF16 ? FLIM_STORAGE_BF16
                                              : FLIM_STORAGE_FP16;
}

flim_status flim_cuda_run_unit(flim_device *base, const flim_unit *unit, flim_precision precision, const flim_unit_run *run,
                               flim_error *err)
{
    flim_cuda_device *device = flim_cuda_device_of(base);
    layer l = {.device = device,
               .unit = unit,
               .run = run,
               .launch = {device->stream, storage_of(precision), base->info.threads},
               .scaled = precision == FLIM_PRECISION_TF32 || precision == FLIM_PRECISION_FP16, /* no loss scale here */
               .memory = {.device = device},
               .c = flim_storage_channels(unit->in_channels),
               .k = flim_storage_channels(unit->out_channels),
               .x_pixels = volume(unit->in),
               .z_pixels = volume(unit->conv_out),
               .y_pixels = volume(unit->out)};
    flim_tail tail;
    flim_status status;
    if (l.c > 4096 || l.k > 4096) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: the CUDA backend takes at most 4096 channels", unit->conv);
    }
    FLIM_TRY(flim_cuda_device_use(device, err));
    FLIM_TRY(plan_layer(&l, run->dy != NULL, false, err));
    FLIM_TRY(take_tensors(&l, err));
    FLIM_TRY(take_parameters(&l, err));
    FLIM_TRY(forward(&l, &tail, err));
    if (run->dy) {
        FLIM_TRY(backward(&l, &tail, err));
    }
done:
    (void)cudaStreamSynchronize(device->stream);
    free_pieces(&l.memory);
    return status;
}

/* ---- head ----------------------------------------------------------------------------------------------------------------- */

typedef struct head_layer {
    flim_head_kernels k;
    pieces memory;
    flim_launch launch;
    void *x, *dx;
    float *planar, *scale;
} head_layer;

static flim_status take_head(head_layer *l, const flim_head *head, const flim_head_run *run, flim_error *err)
{
    pieces *m = &l->memory;
    flim_head_kernels *k = &l->k;
    const int64_t f = sizeof(float), n = run->n, in = head->in_channels, hidden = head->hidden, outputs = head->outputs;
    const int64_t pixels = (int64_t)run->t * run->h * run->w, c = flim_storage_channels(head->in_channels);
    const float smoothing = run->label_smoothing, one = 1.0f;
    const double divisor = run->divisor;
    flim_status status;
    *k = (flim_head_kernels){.cells = n,
                             .in = (int)in,
                             .c = (int)c,
                             .hidden = (int)hidden,
                             .outputs = (int)outputs,
                             .pixels = pixels,
                             .dropout_stride = flim_storage_channels(head->hidden)};
    FLIM_TRY(take(m, n * pixels * c * flim_storage_size(l->launch.type), &l->x, err));
    FLIM_TRY(take_copy(m, run->x, n * in * pixels * f, &l->planar, err));
    FLIM_TRY(take_copy(m, run->fc1_weight, hidden * in * f, &k->fc1_weight, err));
    FLIM_TRY(take_copy(m, run->fc1_bias, hidden * f, &k->fc1_bias, err));
    FLIM_TRY(take_copy(m, run->gamma, hidden * f, &k->gamma, err));
    FLIM_TRY(take_copy(m, run->beta, hidden * f, &k->beta, err));
    FLIM_TRY(take_copy(m, run->fc2_weight, outputs * hidden * f, &k->fc2_weight, err));
    FLIM_TRY(take_copy(m, run->fc2_bias, outputs * f, &k->fc2_bias, err));
    FLIM_TRY(take_copy(m, run->running_mean, hidden * f, &k->running_mean, err));
    FLIM_TRY(take_copy(m, run->running_var, hidden * f, &k->running_var, err));
    FLIM_TRY(take(m, n * c * f, &k->mean, err));
    FLIM_TRY(take(m, n * hidden * f, &k->z, err));
    FLIM_TRY(take(m, n * hidden * f, &k->h, err));
    FLIM_TRY(take(m, hidden * f, &k->norm_mean, err));
    FLIM_TRY(take(m, hidden * f, &k->norm_invstd, err));
    FLIM_TRY(take(m, n * outputs * f, &k->logits, err));
    FLIM_TRY(take_copy(m, run->label, n * (int64_t)sizeof(int32_t), &k->label, err));
    FLIM_TRY(take_copy(m, run->cell_weight, n * f, &k->weight, err));
    FLIM_TRY(take_copy(m, &divisor, sizeof divisor, &k->divisor, err));
    FLIM_TRY(take_copy(m, &smoothing, sizeof smoothing, &k->smoothing, err));
    FLIM_TRY(take_copy(m, &one, sizeof one, &k->loss_scale, err));
    FLIM_TRY(take(m, n * outputs * f, &k->dlogits, err));
    FLIM_TRY(take(m, n * (int64_t)sizeof(double), &k->loss, err));
    FLIM_TRY(take(m, n * (int64_t)sizeof(int32_t), &k->correct, err));
    FLIM_TRY(take(m, n * hidden * f, &k->dz, err));
    FLIM_TRY(take(m, n * c * f, &k->dmean, err));
    FLIM_TRY(take(m, hidden * in * f, &k->dfc1_weight, err));
    FLIM_TRY(take(m, hidden * f, &k->dfc1_bias, err));
    FLIM_TRY(take(m, hidden * f, &k->dgamma, err));
    FLIM_TRY(take(m, hidden * f, &k->dbeta, err));
    FLIM_TRY(take(m, outputs * hidden * f, &k->dfc2_weight, err));
    FLIM_TRY(take(m, outputs * f, &k->dfc2_bias, err));
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream)); /* scalars are on this function's stack */
done:
    return status;
}

static flim_status head_dropout(head_layer *l, const flim_head_run *run, flim_error *err)
{
    flim_status status = FLIM_OK;
    if (!run->training || run->dropout <= 0.0f || !run->id) {
        return FLIM_OK;
    }
    uint32_t *words = flim_alloc((size_t)run->n, 6 * sizeof *words, err), *id;
    if (!words) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < run->n; i++) {
        const flim_cell_id *from = &run->id[i];
        const uint32_t w[6] = {(uint32_t)from->seed, (uint32_t)(from->seed >> 32), from->fold, from->epoch, from->cell,
                               from->repeat};
        memcpy(words + 6 * i, w, sizeof w);
    }
    float *multiplier, *p;
    FLIM_TRY(take_copy(&l->memory, words, run->n * 6 * (int64_t)sizeof *words, &id, err));
    FLIM_TRY(take_copy(&l->memory, &run->dropout, sizeof run->dropout, &p, err));
    FLIM_TRY(take(&l->memory, run->n * l->k.dropout_stride * (int64_t)sizeof(float), &multiplier, err));
    flim_dropout_table table = {.n = 1};
    table.item[0].unit = run->unit;
    table.item[0].channels = l->k.hidden;
    table.item[0].c = l->k.dropout_stride;
    table.item[0].multiplier = multiplier;
    FLIM_TRY_CUDA(flim_k_dropout(&l->launch, &table, id, run->n, p));
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream));
    l->k.dropout = multiplier;
done:
    flim_free(words);
    return status;
}

static flim_status head_outputs(head_layer *l, const flim_head_run *run, bool backward, flim_error *err)
{
    const flim_head_kernels *k = &l->k;
    const int64_t f = sizeof(float), hidden = k->hidden, in = k->in, outputs = k->outputs;
    pieces *m = &l->memory;
    flim_status status;
    FLIM_TRY(fetch(m, run->logits, k->logits, run->n * outputs * f, err));
    FLIM_TRY(fetch(m, run->running_mean, k->running_mean, hidden * f, err));
    FLIM_TRY(fetch(m, run->running_var, k->running_var, hidden * f, err));
    if (run->loss) {
        double *loss = flim_alloc((size_t)run->n, sizeof *loss, err);
        if (!loss) {
            return FLIM_ERROR_MEMORY;
        }
        status = fetch(m, loss, k->loss, run->n * (int64_t)sizeof *loss, err);
        if (status == FLIM_OK) {
            status = flim_cuda_check(cudaStreamSynchronize(l->launch.stream), "the head", err);
        }
        *run->loss = 0;
        for (int64_t i = 0; i < run->n; i++) {
            *run->loss += loss[i];
        }
        *run->loss /= run->divisor;
        flim_free(loss);
        FLIM_TRY(status);
    }
    if (backward) {
        FLIM_TRY(fetch(m, run->dfc1_weight, k->dfc1_weight, hidden * in * f, err));
        FLIM_TRY(fetch(m, run->dfc1_bias, k->dfc1_bias, hidden * f, err));
        FLIM_TRY(fetch(m, run->dgamma, k->dgamma, hidden * f, err));
        FLIM_TRY(fetch(m, run->dbeta, k->dbeta, hidden * f, err));
        FLIM_TRY(fetch(m, run->dfc2_weight, k->dfc2_weight, outputs * hidden * f, err));
        FLIM_TRY(fetch(m, run->dfc2_bias, k->dfc2_bias, outputs * f, err));
        if (run->dx) { /* spread as the next unit would see it: fp32, never stored as a tensor */
            flim_sources dy = {.n = 1, .h = run->h, .w = run->w};
            flim_launch wide = l->launch;
            dy.item[0] = (flim_source){.kind = FLIM_SOURCE_BROADCAST, .data = k->dmean};
            wide.type = FLIM_STORAGE_FP32;
            FLIM_TRY(take(m, run->n * k->pixels * k->c * f, &l->dx, err));
            FLIM_TRY_CUDA(flim_k_sources(&wide, &dy, run->n, k->pixels, k->c, NULL, l->dx));
            FLIM_TRY_CUDA(flim_k_to_planar(&wide, l->dx, run->n, k->in, k->c, k->pixels, NULL, l->planar));
            FLIM_TRY(fetch(m, run->dx, l->planar, run->n * in * k->pixels * f, err));
        }
    }
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream));
done:
    return status;
}

flim_status flim_cuda_run_head(flim_device *base, const flim_head *head, flim_precision precision, const flim_head_run *run,
                               flim_error *err)
{
    flim_cuda_device *device = flim_cuda_device_of(base);
    head_layer l = {.launch = {device->stream, storage_of(precision), base->info.threads}, .memory = {.device = device}};
    const bool backward =
        run->dx || run->dfc1_weight || run->dfc1_bias || run->dgamma || run->dbeta || run->dfc2_weight || run->dfc2_bias;
    flim_status status;
    FLIM_TRY(flim_cuda_device_use(device, err));
    FLIM_TRY(take_head(&l, head, run, err));
    FLIM_TRY(head_dropout(&l, run, err));
    FLIM_TRY_CUDA(flim_k_from_planar(&l.launch, l.planar, run->n, run->n, head->in_channels, l.k.c, l.k.pixels, NULL, l.x));
    FLIM_TRY_CUDA(flim_k_mean(&l.launch, l.x, run->n, l.k.pixels, l.k.c, (float *)l.k.mean));
    FLIM_TRY_CUDA(flim_k_head_forward(&l.launch, &l.k, run->training));
    FLIM_TRY_CUDA(flim_k_head_loss(&l.launch, &l.k));
    if (backward) {
        FLIM_TRY_CUDA(flim_k_head_backward(&l.launch, &l.k, run->training));
    }
    FLIM_TRY(head_outputs(&l, run, backward, err));
done:
    (void)cudaStreamSynchronize(device->stream);
    free_pieces(&l.memory);
    return status;
}

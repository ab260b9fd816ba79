/* One unit alone, for layer tests: the kernels and plans of a program on the caller's arrays. */
#include <math.h>

#include "cuda/device/check.h"
#include "cuda/program/fusion.h"
#include "cuda/program/pieces.h"

typedef struct layer {
    flim_cuda_device *device;
    const flim_unit *unit;
    const flim_unit_run *run;
    flim_launch launch;
    bool scaled;
    flim_pieces memory;
    int c, k;
    int64_t x_pixels, z_pixels, y_pixels;
    void *x, *z, *y, *skip, *sign_mask, *dy, *dz, *dx, *dv, *w, *dw, *workspace;
    float *constants, *gradient, *one, *dy_scale, *planar; /* planar: staging in the host's layout */
    float *partial, *running; /* running: mean, var */
    double *sums;
    int *counter;
    flim_weight_table *table;
    const flim_conv_choice *plan[3];
    flim_norm norm;
    flim_grad_affine grad;
    float *dv_scale, *weight_scale;
    int64_t weights;
} layer;

/* host (n,channels,pixels) -> storage tensor. */
static flim_status upload(layer *l, const float *host, int channels, int c, int64_t pixels, const float *scale, void *to,
                          flim_error *err)
{
    FLIM_TRY_CUDA(cudaMemcpyAsync(l->planar, host, (size_t)(l->run->n * channels * pixels) * sizeof(float),
                                  cudaMemcpyHostToDevice, l->launch.stream));
    FLIM_TRY_CUDA(flim_k_from_planar(&l->launch, l->planar, l->run->n, l->run->n, channels, c, pixels, scale, to));
    return FLIM_OK;
}

static flim_status download(layer *l, const void *from, int channels, int c, int64_t pixels, const float *scale, float *host,
                            flim_error *err)
{
    if (!host) {
        return FLIM_OK;
    }
    FLIM_TRY_CUDA(flim_k_to_planar(&l->launch, from, l->run->n, channels, c, pixels, scale, l->planar));
    FLIM_TRY(flim_pieces_fetch(&l->memory, host, l->planar, l->run->n * channels * pixels * (int64_t)sizeof(float), err));
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream)); /* planar is used again */
    return FLIM_OK;
}

static flim_status plan_layer(layer *l, bool backward, bool deterministic, flim_error *err)
{
    const flim_conv_search_options options = {.benchmark = false};
    int64_t workspace = 0;
    flim_conv_store *store;
    FLIM_TRY(flim_conv_store_of(l->device, &store, err));
    for (int op = 0; op < (backward ? 3 : 1); op++) {
        flim_conv_problem problem = flim_fusion_problem(l->unit, (flim_conv_op)op, l->launch.type, l->run->n, deterministic);
        for (int d = 0; d < 3; d++) { /* a layer alone has no reader that could spread a compact dx */
            problem.in[d] = l->unit->in[d];
            problem.stride[d] = l->unit->stride[d];
        }
        flim_status status = flim_conv_choose(store, &problem, &options, &l->plan[op], err);
        if (status != FLIM_OK) {
            return flim_fail_prefix(err, "%s: ", l->unit->conv);
        }
        workspace = l->plan[op]->workspace > workspace ? l->plan[op]->workspace : workspace;
    }
    return flim_pieces_take(&l->memory, workspace, &l->workspace, err);
}

static flim_status take_tensors(layer *l, flim_error *err)
{
    const flim_unit *u = l->unit;
    const int64_t n = l->run->n, size = flim_storage_size(l->launch.type), k = l->k;
    const int64_t x = n * l->x_pixels * l->c * size, z = n * l->z_pixels * k * size, y = n * l->y_pixels * k * size;
    const int64_t most = l->x_pixels * l->c > l->z_pixels * k ? l->x_pixels * l->c : l->z_pixels * k;
    const int taps = (int)flim_volume(u->kernel);
    flim_pieces *m = &l->memory;
    l->weights = k * taps * l->c;
    FLIM_TRY(flim_pieces_take(m, n * most * (int64_t)sizeof(float), &l->planar, err));
    FLIM_TRY(flim_pieces_take(m, x, &l->x, err));
    FLIM_TRY(flim_pieces_take(m, z, &l->z, err));
    FLIM_TRY(flim_pieces_take(m, y, &l->y, err));
    FLIM_TRY(flim_pieces_take(m, z, &l->skip, err));
    FLIM_TRY(flim_pieces_take(m, z / size / 8, &l->sign_mask, err));
    FLIM_TRY(flim_pieces_take(m, y, &l->dy, err));
    FLIM_TRY(flim_pieces_take(m, z, &l->dz, err));
    FLIM_TRY(flim_pieces_take(m, x, &l->dx, err));
    FLIM_TRY(flim_pieces_take(m, z, &l->dv, err));
    FLIM_TRY(flim_pieces_take(m, l->weights * size, &l->w, err));
    FLIM_TRY(flim_pieces_take(m, l->weights * size, &l->dw, err));
    FLIM_TRY(flim_pieces_take(m, 8 * k * (int64_t)sizeof(float) + 8 * 256, &l->constants, err));
    FLIM_TRY(flim_pieces_take(m, ((int64_t)l->launch.processors * 8 + n) * k * FLIM_MAX_PARTIAL_SUMS * (int64_t)sizeof(float),
                              &l->partial, err));
    FLIM_TRY(flim_pieces_take(m, FLIM_MAX_PARTIAL_SUMS * k * (int64_t)sizeof(double), &l->sums, err));
    FLIM_TRY(flim_pieces_take(m, sizeof(int), &l->counter, err));
    FLIM_TRY_CUDA(cudaMemsetAsync(l->counter, 0, sizeof(int), l->launch.stream));
    return FLIM_OK;
}

/* Parameters: weight, bias, gamma, beta in one array in this order, gradients likewise. */
static flim_status take_parameters(layer *l, flim_error *err)
{
    const flim_unit *u = l->unit;
    const flim_unit_run *r = l->run;
    const int64_t channels = u->out_channels, weights = channels * u->in_channels * flim_volume(u->kernel),
                  row = channels * (int64_t)sizeof(float);
    const float one = 1.0f;
    float *parameters;
    flim_pieces *m = &l->memory;
    FLIM_TRY(flim_pieces_copy(m, &one, sizeof one, &l->one, err));
    FLIM_TRY(flim_pieces_copy(m, &one, sizeof one, &l->dy_scale, err));
    FLIM_TRY(flim_pieces_copy(m, &one, sizeof one, &l->dv_scale, err));
    FLIM_TRY(flim_pieces_copy(m, &one, sizeof one, &l->weight_scale, err));
    FLIM_TRY(flim_pieces_take(m, weights * (int64_t)sizeof(float) + 3 * row, &parameters, err));
    FLIM_TRY(flim_pieces_take(m, weights * (int64_t)sizeof(float) + 3 * row, &l->gradient, err));
    FLIM_TRY(flim_pieces_take(m, 2 * row, &l->running, err));
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
                                       .taps = (int)flim_volume(u->kernel),
                                       .k = l->k,
                                       .c = l->c,
                                       .storage = l->w,
                                       .grad = l->dw,
                                       .grad_scale = l->grad.scale,
                                       .scale = l->weight_scale};
    FLIM_TRY(flim_pieces_copy(m, &table, sizeof table, &l->table, err));
    FLIM_TRY_CUDA(flim_k_weights(&l->launch, l->table, 1, l->weights, parameters, l->launch.type == FLIM_STORAGE_FP16, NULL));
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream)); /* `table` and the scales are on this function's stack */
    return FLIM_OK;
}

static flim_status make_dropout(layer *l, flim_epilogue *epilogue, flim_error *err)
{
    const flim_unit_run *r = l->run;
    if (!l->unit->dropout || r->dropout <= 0.0f || !r->training || !r->id) {
        return FLIM_OK;
    }
    float *multiplier;
    FLIM_TRY(flim_pieces_dropout(&l->memory, &l->launch, r->id, r->n, r->dropout, r->unit, l->unit->out_channels, l->k,
                                 &multiplier, err));
    epilogue->dropout = multiplier;
    return FLIM_OK;
}

static flim_status run_plan(layer *l, flim_conv_op op, const void *x, const void *w, const void *y, flim_error *err)
{
    const flim_conv_arguments a = {.n = l->run->n, .x = (void *)x, .w = (void *)w, .y = (void *)y, .scratch = l->workspace};
    return flim_conv_run(l->device, l->plan[op], &a, err);
}

static flim_status forward(layer *l, flim_epilogue *epilogue, flim_error *err)
{
    const flim_unit *u = l->unit;
    const flim_unit_run *r = l->run;
    FLIM_TRY(upload(l, r->x, u->in_channels, l->c, l->x_pixels, NULL, l->x, err));
    FLIM_TRY(run_plan(l, FLIM_CONV_FORWARD, l->x, l->w, l->z, err));
    if (r->training && u->bn[0]) {
        flim_blocks blocks = flim_blocks_for(r->n, l->z_pixels, l->k, l->launch.processors);
        FLIM_TRY_CUDA(flim_k_stats(&l->launch, l->z, blocks, l->k, l->partial));
        FLIM_TRY_CUDA(flim_k_norm_train(&l->launch, l->partial, blocks, &l->norm));
    } else {
        FLIM_TRY_CUDA(flim_k_norm_fixed(&l->launch, &l->norm));
    }
    *epilogue = (flim_epilogue){.cells = r->n,
                                .t = u->conv_out[0],
                                .hw = u->conv_out[1] * u->conv_out[2],
                                .c = l->k,
                                .pool = u->pool_t,
                                .act = u->act,
                                .z = l->z,
                                .affine = l->norm.affine,
                                .skip_in = l->z};
    if (u->skip >= 0) {
        epilogue->skip = FLIM_SKIP_PLAIN;
        epilogue->skip_in = l->skip;
        epilogue->sign_mask = u->act && u->pool_t == 1 ? l->sign_mask : NULL;
        FLIM_TRY(upload(l, r->skip, u->out_channels, l->k, l->z_pixels, NULL, l->skip, err));
    }
    FLIM_TRY(make_dropout(l, epilogue, err));
    FLIM_TRY_CUDA(flim_k_epilogue_forward(&l->launch, epilogue, l->y));
    FLIM_TRY(download(l, l->y, u->out_channels, l->k, l->y_pixels, NULL, r->y, err));
    if (u->bn[0]) {
        FLIM_TRY(flim_pieces_fetch(&l->memory, r->running_mean, l->running, u->out_channels * (int64_t)sizeof(float), err));
        FLIM_TRY(flim_pieces_fetch(&l->memory, r->running_var, l->running + u->out_channels,
                                   u->out_channels * (int64_t)sizeof(float), err));
    }
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream));
    return FLIM_OK;
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

static flim_status backward(layer *l, const flim_epilogue *forward_tail, flim_error *err)
{
    flim_epilogue epilogue = *forward_tail;
    const flim_unit *u = l->unit;
    const flim_unit_run *r = l->run;
    const int64_t channels = u->out_channels, weights = channels * u->in_channels * flim_volume(u->kernel),
                  row = channels * (int64_t)sizeof(float);
    if (epilogue.sign_mask) {
        epilogue.skip = FLIM_SKIP_SIGN_MASK;
    }
    if (l->scaled) {
        const float scale = dy_scale_of(r->dy, r->n * channels * l->y_pixels);
        FLIM_TRY_CUDA(cudaMemcpy(l->dy_scale, &scale, sizeof scale, cudaMemcpyHostToDevice));
    }
    FLIM_TRY(upload(l, r->dy, u->out_channels, l->k, l->y_pixels, l->dy_scale, l->dy, err));
    flim_grad_inputs dy = {.n = 1, .h = u->out[1], .w = u->out[2]};
    dy.item[0] = (flim_grad_input){.kind = FLIM_GRAD_INPUT_DENSE, .data = l->dy, .scale_a = l->dy_scale};
    flim_blocks blocks = flim_blocks_for(r->n, l->y_pixels, l->k, l->launch.processors);
    float *g = l->gradient;
    flim_grad_norm main = {.norm = l->norm,
                           .out = l->grad,
                           .dbias = g + weights,
                           .dgamma = g + weights + channels,
                           .dbeta = g + weights + 2 * channels};
    FLIM_TRY_CUDA(flim_k_grad_sums(&l->launch, &epilogue, &dy, blocks, l->partial, NULL));
    FLIM_TRY_CUDA(flim_k_grad_norm(&l->launch, l->partial, blocks, r->n * l->z_pixels, &main, NULL, l->dv_scale, l->scaled,
                                   r->training, false, l->one, l->sums, l->counter));
    FLIM_TRY_CUDA(flim_k_grad_apply(&l->launch, &epilogue, &dy, &l->grad, NULL, l->dv_scale, l->dz, NULL, l->dv));
    if (l->plan[FLIM_CONV_WEIGHT]->algorithm->fp32_gradient) {
        const flim_conv_arguments a = {
            .n = r->n, .x = l->x, .y = l->dz, .master = g, .unscale = l->grad.unscale, .scratch = l->workspace};
        FLIM_TRY(flim_conv_run(l->device, l->plan[FLIM_CONV_WEIGHT], &a, err));
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
    FLIM_TRY(flim_pieces_fetch(&l->memory, r->dweight, g, weights * (int64_t)sizeof(float), err));
    FLIM_TRY(flim_pieces_fetch(&l->memory, r->dbias, g + weights, row, err));
    if (u->bn[0]) {
        FLIM_TRY(flim_pieces_fetch(&l->memory, r->dgamma, g + weights + channels, row, err));
        FLIM_TRY(flim_pieces_fetch(&l->memory, r->dbeta, g + weights + 2 * channels, row, err));
    }
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream));
    return FLIM_OK;
}

flim_status flim_cuda_run_unit(flim_device *base, const flim_unit *unit, flim_precision precision, const flim_unit_run *run,
                               flim_error *err)
{
    flim_cuda_device *device = flim_cuda_device_of(base);
    layer l = {.device = device,
               .unit = unit,
               .run = run,
               .launch = {device->stream, flim_cuda_storage(precision), device->card.processors},
               .scaled = precision == FLIM_PRECISION_TF32 || precision == FLIM_PRECISION_FP16, /* no loss scale here */
               .memory = {.device = device},
               .c = flim_storage_channels(unit->in_channels),
               .k = flim_storage_channels(unit->out_channels),
               .x_pixels = flim_volume(unit->in),
               .z_pixels = flim_volume(unit->conv_out),
               .y_pixels = flim_volume(unit->out)};
    flim_epilogue epilogue;
    flim_status status;
    if (l.c > 4096 || l.k > 4096) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: the CUDA backend takes at most 4096 channels", unit->conv);
    }
    FLIM_TRY_DONE(flim_cuda_device_use(device, err));
    FLIM_TRY_DONE(plan_layer(&l, run->dy != NULL, false, err));
    FLIM_TRY_DONE(take_tensors(&l, err));
    FLIM_TRY_DONE(take_parameters(&l, err));
    FLIM_TRY_DONE(forward(&l, &epilogue, err));
    if (run->dy) {
        FLIM_TRY_DONE(backward(&l, &epilogue, err));
    }
done:
    (void)cudaStreamSynchronize(device->stream);
    flim_pieces_free(&l.memory);
    return status;
}

/* The head alone, for layer tests: mean, fully connected layers and loss on the caller's arrays. */
#include "cuda/device/check.h"
#include "core/alloc.h"
#include "cuda/program/pieces.h"

typedef struct head_layer {
    flim_head_kernels k;
    flim_pieces memory;
    flim_launch launch;
    void *x, *dx;
    float *planar, *scale;
} head_layer;

static flim_status take_head(head_layer *l, const flim_head *head, const flim_head_run *run, flim_error *err)
{
    flim_pieces *m = &l->memory;
    flim_head_kernels *k = &l->k;
    const int64_t f = sizeof(float), n = run->n, in = head->in_channels, hidden = head->hidden, outputs = head->outputs;
    const int64_t pixels = (int64_t)run->t * run->h * run->w, c = flim_storage_channels(head->in_channels);
    const float smoothing = run->label_smoothing, one = 1.0f;
    const double divisor = run->divisor;
    *k = (flim_head_kernels){.cells = n,
                             .in = (int)in,
                             .c = (int)c,
                             .hidden = (int)hidden,
                             .outputs = (int)outputs,
                             .pixels = pixels,
                             .dropout_stride = flim_storage_channels(head->hidden)};
    FLIM_TRY(flim_pieces_take(m, n * pixels * c * flim_storage_size(l->launch.type), &l->x, err));
    FLIM_TRY(flim_pieces_copy(m, run->x, n * in * pixels * f, &l->planar, err));
    FLIM_TRY(flim_pieces_copy(m, run->fc1_weight, hidden * in * f, &k->fc1_weight, err));
    FLIM_TRY(flim_pieces_copy(m, run->fc1_bias, hidden * f, &k->fc1_bias, err));
    FLIM_TRY(flim_pieces_copy(m, run->gamma, hidden * f, &k->gamma, err));
    FLIM_TRY(flim_pieces_copy(m, run->beta, hidden * f, &k->beta, err));
    FLIM_TRY(flim_pieces_copy(m, run->fc2_weight, outputs * hidden * f, &k->fc2_weight, err));
    FLIM_TRY(flim_pieces_copy(m, run->fc2_bias, outputs * f, &k->fc2_bias, err));
    FLIM_TRY(flim_pieces_copy(m, run->running_mean, hidden * f, &k->running_mean, err));
    FLIM_TRY(flim_pieces_copy(m, run->running_var, hidden * f, &k->running_var, err));
    FLIM_TRY(flim_pieces_take(m, n * c * f, &k->mean, err));
    FLIM_TRY(flim_pieces_take(m, n * hidden * f, &k->z, err));
    FLIM_TRY(flim_pieces_take(m, n * hidden * f, &k->h, err));
    FLIM_TRY(flim_pieces_take(m, hidden * f, &k->norm_mean, err));
    FLIM_TRY(flim_pieces_take(m, hidden * f, &k->norm_invstd, err));
    FLIM_TRY(flim_pieces_take(m, n * outputs * f, &k->logits, err));
    FLIM_TRY(flim_pieces_copy(m, run->label, n * (int64_t)sizeof(int32_t), &k->label, err));
    FLIM_TRY(flim_pieces_copy(m, run->cell_weight, n * f, &k->weight, err));
    FLIM_TRY(flim_pieces_copy(m, &divisor, sizeof divisor, &k->divisor, err));
    FLIM_TRY(flim_pieces_copy(m, &smoothing, sizeof smoothing, &k->smoothing, err));
    FLIM_TRY(flim_pieces_copy(m, &one, sizeof one, &k->loss_scale, err));
    FLIM_TRY(flim_pieces_take(m, n * outputs * f, &k->dlogits, err));
    FLIM_TRY(flim_pieces_take(m, n * (int64_t)sizeof(double), &k->loss, err));
    FLIM_TRY(flim_pieces_take(m, n * (int64_t)sizeof(int32_t), &k->correct, err));
    FLIM_TRY(flim_pieces_take(m, n * hidden * f, &k->dz, err));
    FLIM_TRY(flim_pieces_take(m, n * c * f, &k->dmean, err));
    FLIM_TRY(flim_pieces_take(m, hidden * in * f, &k->dfc1_weight, err));
    FLIM_TRY(flim_pieces_take(m, hidden * f, &k->dfc1_bias, err));
    FLIM_TRY(flim_pieces_take(m, hidden * f, &k->dgamma, err));
    FLIM_TRY(flim_pieces_take(m, hidden * f, &k->dbeta, err));
    FLIM_TRY(flim_pieces_take(m, outputs * hidden * f, &k->dfc2_weight, err));
    FLIM_TRY(flim_pieces_take(m, outputs * f, &k->dfc2_bias, err));
    FLIM_TRY_CUDA(cudaStreamSynchronize(l->launch.stream)); /* scalars are on this function's stack */
    return FLIM_OK;
}

static flim_status head_dropout(head_layer *l, const flim_head_run *run, flim_error *err)
{
    if (!run->training || run->dropout <= 0.0f || !run->id) {
        return FLIM_OK;
    }
    float *multiplier;
    FLIM_TRY(flim_pieces_dropout(&l->memory, &l->launch, run->id, run->n, run->dropout, run->unit, l->k.hidden,
                                 l->k.dropout_stride, &multiplier, err));
    l->k.dropout = multiplier;
    return FLIM_OK;
}

static flim_status head_outputs(head_layer *l, const flim_head_run *run, bool backward, flim_error *err)
{
    const flim_head_kernels *k = &l->k;
    const int64_t f = sizeof(float), hidden = k->hidden, in = k->in, outputs = k->outputs;
    flim_pieces *m = &l->memory;
    flim_status status;
    FLIM_TRY_DONE(flim_pieces_fetch(m, run->logits, k->logits, run->n * outputs * f, err));
    FLIM_TRY_DONE(flim_pieces_fetch(m, run->running_mean, k->running_mean, hidden * f, err));
    FLIM_TRY_DONE(flim_pieces_fetch(m, run->running_var, k->running_var, hidden * f, err));
    if (run->loss) {
        double *loss = flim_alloc((size_t)run->n, sizeof *loss, err);
        if (!loss) {
            return FLIM_ERROR_MEMORY;
        }
        status = flim_pieces_fetch(m, loss, k->loss, run->n * (int64_t)sizeof *loss, err);
        if (status == FLIM_OK) {
            status = flim_cuda_check(cudaStreamSynchronize(l->launch.stream), "the head", err);
        }
        *run->loss = 0;
        for (int64_t i = 0; i < run->n; i++) {
            *run->loss += loss[i];
        }
        *run->loss /= run->divisor;
        flim_free(loss);
        FLIM_TRY_DONE(status);
    }
    if (backward) {
        FLIM_TRY_DONE(flim_pieces_fetch(m, run->dfc1_weight, k->dfc1_weight, hidden * in * f, err));
        FLIM_TRY_DONE(flim_pieces_fetch(m, run->dfc1_bias, k->dfc1_bias, hidden * f, err));
        FLIM_TRY_DONE(flim_pieces_fetch(m, run->dgamma, k->dgamma, hidden * f, err));
        FLIM_TRY_DONE(flim_pieces_fetch(m, run->dbeta, k->dbeta, hidden * f, err));
        FLIM_TRY_DONE(flim_pieces_fetch(m, run->dfc2_weight, k->dfc2_weight, outputs * hidden * f, err));
        FLIM_TRY_DONE(flim_pieces_fetch(m, run->dfc2_bias, k->dfc2_bias, outputs * f, err));
        if (run->dx) { /* spread as the next unit would see it: fp32, never stored as a tensor */
            flim_grad_inputs dy = {.n = 1, .h = run->h, .w = run->w};
            flim_launch wide = l->launch;
            dy.item[0] = (flim_grad_input){.kind = FLIM_GRAD_INPUT_BROADCAST, .data = k->dmean};
            wide.type = FLIM_STORAGE_FP32;
            FLIM_TRY_DONE(flim_pieces_take(m, run->n * k->pixels * k->c * f, &l->dx, err));
            FLIM_TRY_CUDA_DONE(flim_k_sources(&wide, &dy, run->n, k->pixels, k->c, NULL, l->dx));
            FLIM_TRY_CUDA_DONE(flim_k_to_planar(&wide, l->dx, run->n, k->in, k->c, k->pixels, NULL, l->planar));
            FLIM_TRY_DONE(flim_pieces_fetch(m, run->dx, l->planar, run->n * in * k->pixels * f, err));
        }
    }
    FLIM_TRY_CUDA_DONE(cudaStreamSynchronize(l->launch.stream));
done:
    return status;
}

flim_status flim_cuda_run_head(flim_device *base, const flim_head *head, flim_precision precision, const flim_head_run *run,
                               flim_error *err)
{
    flim_cuda_device *device = flim_cuda_device_of(base);
    head_layer l = {.launch = {device->stream, flim_cuda_storage(precision), device->card.processors},
                    .memory = {.device = device}};
    const bool backward =
        run->dx || run->dfc1_weight || run->dfc1_bias || run->dgamma || run->dbeta || run->dfc2_weight || run->dfc2_bias;
    flim_status status;
    FLIM_TRY_DONE(flim_cuda_device_use(device, err));
    FLIM_TRY_DONE(take_head(&l, head, run, err));
    FLIM_TRY_DONE(head_dropout(&l, run, err));
    FLIM_TRY_CUDA_DONE(
        flim_k_from_planar(&l.launch, l.planar, run->n, run->n, head->in_channels, l.k.c, l.k.pixels, NULL, l.x));
    FLIM_TRY_CUDA_DONE(flim_k_mean(&l.launch, l.x, run->n, l.k.pixels, l.k.c, (float *)l.k.mean));
    FLIM_TRY_CUDA_DONE(flim_k_head_forward(&l.launch, &l.k, run->training));
    FLIM_TRY_CUDA_DONE(flim_k_head_loss(&l.launch, &l.k));
    if (backward) {
        FLIM_TRY_CUDA_DONE(flim_k_head_backward(&l.launch, &l.k, run->training));
    }
    FLIM_TRY_DONE(head_outputs(&l, run, backward, err));
done:
    (void)cudaStreamSynchronize(device->stream);
    flim_pieces_free(&l.memory);
    return status;
}

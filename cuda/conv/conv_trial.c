#include "cuda/conv/conv_trial.h"

#include <math.h>

#include "cuda/device/check.h"
#include "core/alloc.h"
#include "cuda/conv/conv_direct.h"
#include "cuda/device/cuda_device.h"

enum { FIRST_RUN = 50000 /* microseconds */, SAMPLES_POINT = 2048, SAMPLES_WEIGHT = 192 };

void flim_conv_trial_free(flim_conv_trial *t)
{
    void *memory[] = {t->x, t->w, t->w_flipped, t->y, t->workspace, t->samples, t->nonfinite};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        (void)cudaFree(memory[i]);
    }
    if (t->begin) {
        (void)cudaEventDestroy(t->begin);
    }
    if (t->end) {
        (void)cudaEventDestroy(t->end);
    }
}

static void *output_of(const flim_conv_trial *t, bool master, int64_t *elements)
{
    const flim_conv_problem *p = t->problem;
    *elements = p->op == FLIM_CONV_FORWARD ? flim_conv_y_elements(p)
                : p->op == FLIM_CONV_DATA  ? flim_conv_x_elements(p)
                : master                   ? flim_conv_master_elements(p)
                                           : flim_conv_w_elements(p);
    return p->op == FLIM_CONV_FORWARD ? t->y : p->op == FLIM_CONV_DATA ? t->x : t->w;
}

flim_status flim_conv_trial_make(flim_conv_trial *t, flim_cuda_device *device, const flim_conv_problem *p, flim_error *err)
{
    const int64_t size = flim_storage_size(p->type);
    flim_conv_problem flipped;
    flim_status status;
    *t = (flim_conv_trial){.device = device, .problem = p, .launch = {device->stream, p->type, device->card.processors}};
    FLIM_TRY_DONE(flim_cuda_malloc(device, flim_conv_x_elements(p) * size, "tuning a convolution", &t->x, err));
    FLIM_TRY_DONE(flim_cuda_malloc(device,
                                   flim_conv_w_elements(p) * (p->op == FLIM_CONV_WEIGHT ? (int64_t)sizeof(float) : size),
                                   "tuning a convolution", &t->w, err));
    FLIM_TRY_DONE(flim_cuda_malloc(device, flim_conv_y_elements(p) * size, "tuning a convolution", &t->y, err));
    FLIM_TRY_DONE(flim_cuda_malloc(device, 2 * SAMPLES_POINT * (int64_t)sizeof *t->samples, "tuning a convolution",
                                   (void **)&t->samples, err));
    FLIM_TRY_DONE(flim_cuda_malloc(device, sizeof *t->nonfinite, "tuning a convolution", (void **)&t->nonfinite, err));
    FLIM_TRY_CUDA_DONE(cudaEventCreate(&t->begin));
    FLIM_TRY_CUDA_DONE(cudaEventCreate(&t->end));
    if (p->op != FLIM_CONV_DATA) {
        FLIM_TRY_CUDA_DONE(flim_k_fill(&t->launch, t->x, flim_conv_x_elements(p), 1));
    }
    if (p->op != FLIM_CONV_WEIGHT) {
        FLIM_TRY_CUDA_DONE(flim_k_fill(&t->launch, t->w, flim_conv_w_elements(p), 2));
    }
    if (flim_conv_flip(p, &flipped)) {
        FLIM_TRY_DONE(flim_cuda_malloc(device, flim_conv_w_elements(p) * size, "tuning a convolution", &t->w_flipped, err));
        FLIM_TRY_CUDA_DONE(flim_k_flip(&t->launch, t->w, p->k, (int)flim_volume(p->kernel), p->c, t->w_flipped));
    }
    if (p->op != FLIM_CONV_FORWARD) {
        FLIM_TRY_CUDA_DONE(flim_k_fill(&t->launch, t->y, flim_conv_y_elements(p), 3));
    }
done:
    if (status != FLIM_OK) {
        flim_conv_trial_free(t);
    }
    return status;
}

flim_status flim_conv_trial_workspace(flim_conv_trial *t, int64_t bytes, flim_error *err)
{
    if (bytes <= t->workspace_bytes) {
        return FLIM_OK;
    }
    (void)cudaFree(t->workspace);
    t->workspace_bytes = 0;
    flim_status status = flim_cuda_malloc(t->device, bytes, "tuning a convolution", &t->workspace, err);
    t->workspace_bytes = status == FLIM_OK ? bytes : 0;
    return status;
}

static flim_status run(flim_conv_trial *t, const flim_conv_choice *c, flim_error *err)
{
    const flim_conv_arguments arguments = {.n = t->problem->n,
                                           .x = t->x,
                                           .y = t->y,
                                           .w = c->flipped ? t->w_flipped : t->w,
                                           .master = t->w,
                                           .scratch = t->workspace};
    return flim_conv_run(t->device, c, &arguments, err);
}

flim_status flim_conv_trial_time(flim_conv_trial *t, const flim_conv_choice *c, double best, double *microseconds,
                                 flim_error *err)
{
    float ms = 0;
    *microseconds = HUGE_VAL;
    for (int i = 0; i < 4; i++) {
        FLIM_TRY_CUDA(cudaEventRecord(t->begin, t->device->stream));
        FLIM_TRY(run(t, c, err));
        FLIM_TRY_CUDA(cudaEventRecord(t->end, t->device->stream));
        FLIM_TRY_CUDA(cudaEventSynchronize(t->end));
        FLIM_TRY_CUDA(cudaEventElapsedTime(&ms, t->begin, t->end));
        if (i > 0 && (double)ms * 1e3 < *microseconds) {
            *microseconds = (double)ms * 1e3;
        }
        if (i == 1 && (double)ms * 1e3 > 1.5 * best) {
            break;
        }
        if (i == 0 && (double)ms * 1e3 > 5.0 * best + FIRST_RUN) { /* even if all that a first run loads were in it */
            *microseconds = (double)ms * 1e3;
            break;
        }
    }
    return FLIM_OK;
}

flim_status flim_conv_trial_check(flim_conv_trial *t, const flim_conv_choice *c, double *error, flim_error *err)
{
    const int samples = t->problem->op == FLIM_CONV_WEIGHT ? SAMPLES_WEIGHT : SAMPLES_POINT;
    int64_t elements;
    unsigned long long nonfinite = 0;
    void *output = output_of(t, c->custom, &elements);
    flim_status status = FLIM_OK;
    double *value = flim_alloc(2 * (size_t)samples, sizeof *value, err), difference = 0, square = 0;
    if (!value) {
        return FLIM_ERROR_MEMORY;
    }
    const flim_launch out = {t->launch.stream, c->custom ? FLIM_STORAGE_FP32 : t->launch.type, t->launch.processors};
    FLIM_TRY_CUDA_DONE(cudaMemsetAsync(output, 0xff, (size_t)(elements * flim_storage_size(out.type)), t->device->stream));
    if (t->workspace_bytes > 0) {
        FLIM_TRY_CUDA_DONE(cudaMemsetAsync(t->workspace, 0xff, (size_t)t->workspace_bytes, t->device->stream));
    }
    FLIM_TRY_CUDA_DONE(cudaMemsetAsync(t->nonfinite, 0, sizeof *t->nonfinite, t->device->stream));
    FLIM_TRY_DONE(run(t, c, err));
    FLIM_TRY_CUDA_DONE(flim_k_count_nonfinite(&out, output, elements, t->nonfinite));
    FLIM_TRY_CUDA_DONE(
        flim_conv_direct(&t->launch, t->problem, t->x, t->w, t->y, c->custom, samples, t->samples, t->samples + samples));
    FLIM_TRY_CUDA_DONE(
        cudaMemcpyAsync(value, t->samples, 2 * (size_t)samples * sizeof *value, cudaMemcpyDeviceToHost, t->device->stream));
    FLIM_TRY_CUDA_DONE(
        cudaMemcpyAsync(&nonfinite, t->nonfinite, sizeof nonfinite, cudaMemcpyDeviceToHost, t->device->stream));
    FLIM_TRY_CUDA_DONE(cudaStreamSynchronize(t->device->stream));
    for (int i = 0; i < samples; i++) {
        double d = value[samples + i] - value[i];
        difference += d * d;
        square += value[i] * value[i];
    }
    *error = nonfinite ? HUGE_VAL : sqrt(difference / fmax(square, 1e-300));
done:
    flim_free(value);
    return status;
}

#include "cuda/conv/conv_trial.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "cuda/conv/conv_direct.h"
#include "cuda/conv/conv_stem.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

enum {
    FIRST_RUN = 50000 /* microseconds */,
    SAMPLES_POINT = 2048,
    SAMPLES_WEIGHT = 192,
    MOST_SAMPLES = FLIM_STEM_NORM_AT + FLIM_STEM_NORM,
    STEM_CELLS = 2 /* that a check of the stem takes: its reference recomputes each activation many times */
};

void flim_conv_trial_free(flim_conv_trial *t)
{
    for (int i = 0; i < t->n_arrays; i++) {
        (void)cudaFree(t->array[i]);
    }
    (void)cudaFree(t->arguments.scratch);
    if (t->begin) {
        (void)cudaEventDestroy(t->begin);
    }
    if (t->end) {
        (void)cudaEventDestroy(t->end);
    }
}

/* ---- operands -----------------------------------------------------------------------------------------------------------
 * */

/* An array of `count` elements in *out, any pointer; seed > 0: filled with hashed values of [-1, 1). */
static flim_status take(flim_conv_trial *t, flim_storage type, int64_t count, uint32_t seed, void *out, flim_error *err)
{
    void *at = NULL;
    const flim_launch launch = {t->launch.stream, type, t->launch.processors};
    FLIM_TRY(flim_cuda_malloc(t->device, count * flim_storage_size(type), "tuning a convolution", &at, err));
    t->array[t->n_arrays++] = at;
    memcpy(out, &at, sizeof at);
    if (seed > 0) {
        FLIM_TRY_CUDA(flim_k_fill(&launch, at, count, seed));
    }
    return FLIM_OK;
}

static flim_status take_floats(flim_conv_trial *t, int64_t count, uint32_t seed, void *out, flim_error *err)
{
    return take(t, FLIM_STORAGE_FP32, count, seed, out, err);
}

static flim_status take_doubles(flim_conv_trial *t, int64_t count, void *out, flim_error *err)
{
    return take(t, FLIM_STORAGE_FP32, 2 * count, 0, out, err);
}

/* Weights in storage type, and flipped, or fp32 parameters with a bias; of the weight gradient both, since algorithms write
 * either. */
static flim_status take_weights(flim_conv_trial *t, flim_error *err)
{
    const flim_conv_problem *p = t->problem;
    flim_conv_arguments *a = &t->arguments;
    const uint32_t seed = p->op == FLIM_CONV_WEIGHT ? 0 : 2;
    flim_conv_problem flipped;
    if (p->master || p->op == FLIM_CONV_WEIGHT) {
        FLIM_TRY(take_floats(t, flim_conv_master_elements(p), seed, &a->master, err));
    }
    if (p->master) {
        FLIM_TRY(take_floats(t, p->out_channels, 4, &a->bias, err));
    } else {
        FLIM_TRY(take(t, p->type, flim_conv_w_elements(p), seed, &a->w, err));
    }
    if (!flim_conv_is_fused(p) && flim_conv_flip(p, &flipped)) {
        FLIM_TRY(take(t, p->type, flim_conv_w_elements(p), 0, &t->w_flipped, err));
        FLIM_TRY_CUDA(flim_k_flip(&t->launch, a->w, p->k, (int)flim_volume(p->kernel), p->c, t->w_flipped));
    }
    return FLIM_OK;
}

/* Sums over the output that are handed out. */
static bool gives_sums(const flim_conv_problem *p)
{
    return p->sums && !flim_stem_is_alone(p);
}

/* One number, 0.747, and 0 for the last channels of the last cell. */
static flim_status take_keep(flim_conv_trial *t, flim_error *err)
{
    const int64_t count = t->problem->n * t->problem->c, dropped = (t->problem->c + 1) / 2;
    float *keep;
    FLIM_TRY(take_floats(t, count, 0, &keep, err));
    FLIM_TRY_CUDA(cudaMemsetAsync(keep, 0x3f, (size_t)(count - dropped) * sizeof *keep, t->device->stream));
    FLIM_TRY_CUDA(cudaMemsetAsync(keep + count - dropped, 0, (size_t)dropped * sizeof *keep, t->device->stream));
    t->arguments.epilogue.keep = keep;
    return FLIM_OK;
}

static flim_status take_norms(flim_conv_trial *t, flim_error *err)
{
    const flim_conv_problem *p = t->problem;
    flim_conv_arguments *a = &t->arguments;
    if (gives_sums(p)) {
        FLIM_TRY(take_doubles(t, 2 * (p->op == FLIM_CONV_DATA ? p->c : p->k), &a->sums, err));
    }
    if (p->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD) {
        FLIM_TRY(take_floats(t, p->c, 5, &a->prologue.scale, err));
        FLIM_TRY(take_floats(t, p->c, 6, &a->prologue.shift, err));
    }
    if (p->epilogue) {
        FLIM_TRY(take(t, p->type, flim_conv_x_elements(p), 7, &a->epilogue.z, err));
        if (p->sign_mask) { /* any bits will do */
            FLIM_TRY(take_floats(t, flim_conv_x_elements(p) / 32 + 1, 8, &a->epilogue.sign_mask, err));
            FLIM_TRY(take_keep(t, err));
        } else {
            FLIM_TRY(take_floats(t, p->c, 8, &a->epilogue.scale, err));
            FLIM_TRY(take_floats(t, p->c, 9, &a->epilogue.shift, err));
        }
        FLIM_TRY(take_floats(t, p->c, 10, &a->epilogue.mean, err));
    }
    if (p->add) {
        FLIM_TRY(take(t, p->type, flim_conv_add_elements(p), 11, &a->epilogue.add, err));
    }
    if (p->dz_form == FLIM_INPUT_NORM_ON_LOAD) {
        FLIM_TRY(take_floats(t, p->k, 12, &a->dz_norm.a, err));
        FLIM_TRY(take_floats(t, p->k, 13, &a->dz_norm.b, err));
        FLIM_TRY(take_floats(t, p->k, 14, &a->dz_norm.d, err));
    }
    return FLIM_OK;
}

/* The stem's parameters; its mask holds in the first half of the pixels. */
static flim_status take_stem(flim_conv_trial *t, flim_error *err)
{
    const flim_conv_problem *p = t->problem;
    flim_conv_stem *s = &t->arguments.stem;
    const int64_t pixels = p->n * p->in[1] * p->in[2];
    const float one = 1.0f;
    char *mask = NULL;
    s->eps = 1e-5f;
    FLIM_TRY(take_floats(t, pixels / 4 + 1, 0, &mask, err));
    FLIM_TRY_CUDA(cudaMemsetAsync(mask, 1, (size_t)(pixels / 2), t->device->stream));
    FLIM_TRY_CUDA(cudaMemsetAsync(mask + pixels / 2, 0, (size_t)(pixels - pixels / 2), t->device->stream));
    s->mask = (const uint8_t *)mask;
    FLIM_TRY(take_floats(t, p->k * FLIM_STEM_WINDOW, 21, &s->weight, err));
    FLIM_TRY(take_floats(t, p->k, 22, &s->bias, err));
    FLIM_TRY(take_floats(t, p->k, 23, &s->gamma, err));
    FLIM_TRY(take_floats(t, p->k, 24, &s->beta, err));
    FLIM_TRY(take_floats(t, p->k, 25, &s->running_mean, err));
    FLIM_TRY(take_floats(t, p->k, 0, &s->running_var, err));
    for (int c = 0; c < p->k; c++) {
        FLIM_TRY_CUDA(cudaMemcpyAsync(s->running_var + c, &one, sizeof one, cudaMemcpyHostToDevice, t->device->stream));
    }
    FLIM_TRY(take_floats(t, (int64_t)flim_stem_state_bytes() / 4, 0, &s->state, err));
    if (p->op == FLIM_CONV_WEIGHT) {
        FLIM_TRY(take_floats(t, flim_conv_master_elements(p), 26, &s->down_weight, err));
        FLIM_TRY(take_floats(t, p->k, 27, &t->arguments.bias, err));
        FLIM_TRY(take_doubles(t, 2 * p->k, &t->arguments.sums, err));
        FLIM_TRY(take(t, p->type, flim_conv_y_elements(p), 0, &t->arguments.dz_norm.z, err));
        FLIM_TRY(take_floats(t, p->k * FLIM_STEM_WINDOW, 0, &s->dweight, err));
        FLIM_TRY(take_floats(t, p->k, 0, &s->dbias, err));
        FLIM_TRY(take_floats(t, p->k, 0, &s->dgamma, err));
        FLIM_TRY(take_floats(t, p->k, 0, &s->dbeta, err));
    }
    return FLIM_OK;
}

flim_status flim_conv_trial_make(flim_conv_trial *t, flim_cuda_device *device, const flim_conv_problem *p, flim_error *err)
{
    flim_status status;
    const int64_t x = p->stem ? p->n * flim_volume(p->in) : flim_conv_x_elements(p);
    *t = (flim_conv_trial){.device = device, .problem = p, .launch = {device->stream, p->type, device->card.processors}};
    FLIM_TRY_DONE(take(t, p->type, x, p->op == FLIM_CONV_DATA ? 0 : 1, &t->arguments.x, err));
    FLIM_TRY_DONE(take(t, p->type, flim_conv_y_elements(p), p->op == FLIM_CONV_FORWARD ? 0 : 3, &t->arguments.y, err));
    FLIM_TRY_DONE(take_weights(t, err));
    FLIM_TRY_DONE(take_norms(t, err));
    if (p->stem) {
        FLIM_TRY_DONE(take_stem(t, err));
    }
    FLIM_TRY_DONE(take_doubles(t, MOST_SAMPLES, &t->samples, err));
    FLIM_TRY_DONE(take_doubles(t, 1, &t->nonfinite, err));
    FLIM_TRY_CUDA_DONE(cudaEventCreate(&t->begin));
    FLIM_TRY_CUDA_DONE(cudaEventCreate(&t->end));
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
    (void)cudaFree(t->arguments.scratch);
    t->arguments.scratch = NULL;
    t->workspace_bytes = 0;
    FLIM_TRY(flim_cuda_malloc(t->device, bytes, "tuning a convolution", &t->arguments.scratch, err));
    t->workspace_bytes = bytes;
    return FLIM_OK;
}

/* ---- runs ---------------------------------------------------------------------------------------------------------------
 * */

/* The stem's gradients need the state that its forward pass leaves; that z lies where dz_norm has it. */
static flim_status run_stem_forward(flim_conv_trial *t, const flim_conv_choice *candidate, flim_error *err)
{
    flim_conv_choice forward = *candidate;
    flim_conv_arguments a = t->arguments;
    forward.problem.op = FLIM_CONV_FORWARD;
    forward.problem.dz_form = FLIM_INPUT_PLAIN;
    forward.problem.master = forward.problem.sums = true;
    a.master = (float *)a.stem.down_weight;
    a.y = (void *)a.dz_norm.z;
    return flim_conv_run(t->device, &forward, &a, err);
}

static flim_status run(flim_conv_trial *t, const flim_conv_choice *candidate, int64_t n, flim_error *err)
{
    flim_conv_arguments a = t->arguments;
    a.n = n;
    a.w = candidate->algorithm->flipped ? t->w_flipped : a.w;
    return flim_conv_run(t->device, candidate, &a, err);
}

flim_status flim_conv_trial_time(flim_conv_trial *t, const flim_conv_choice *c, double best, double *microseconds,
                                 flim_error *err)
{
    float ms = 0;
    *microseconds = HUGE_VAL;
    t->arguments.n = t->problem->n;
    if (t->problem->stem && t->problem->op == FLIM_CONV_WEIGHT) {
        FLIM_TRY(run_stem_forward(t, c, err));
    }
    for (int i = 0; i < 4; i++) {
        FLIM_TRY_CUDA(cudaEventRecord(t->begin, t->device->stream));
        FLIM_TRY(run(t, c, t->problem->n, err));
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

/* ---- checks -------------------------------------------------------------------------------------------------------------
 * */

typedef struct output {
    void *at;
    flim_storage type;
    int64_t elements;
} output;

static output output_of(const flim_conv_trial *t, const flim_conv_choice *c, int64_t n)
{
    flim_conv_problem p = *t->problem;
    p.n = n;
    if (p.op == FLIM_CONV_WEIGHT && c->algorithm->fp32_gradient) {
        return (output){t->arguments.master, FLIM_STORAGE_FP32, flim_conv_master_elements(&p)};
    }
    return p.op == FLIM_CONV_FORWARD ? (output){t->arguments.y, p.type, flim_conv_y_elements(&p)}
           : p.op == FLIM_CONV_DATA  ? (output){t->arguments.x, p.type, flim_conv_x_elements(&p)}
                                     : (output){t->arguments.w, p.type, flim_conv_w_elements(&p)};
}

/* All that the candidate is to write becomes NaN. */
static flim_status poison(flim_conv_trial *t, const output *out, flim_error *err)
{
    const flim_conv_problem *p = t->problem;
    const flim_conv_stem *s = &t->arguments.stem;
    const cudaStream_t stream = t->device->stream;
    FLIM_TRY_CUDA(cudaMemsetAsync(out->at, 0xff, (size_t)(out->elements * flim_storage_size(out->type)), stream));
    if (t->workspace_bytes > 0) {
        FLIM_TRY_CUDA(cudaMemsetAsync(t->arguments.scratch, 0xff, (size_t)t->workspace_bytes, stream));
    }
    if (t->arguments.sums) {
        FLIM_TRY_CUDA(cudaMemsetAsync(t->arguments.sums, 0xff,
                                      2 * (size_t)(p->op == FLIM_CONV_DATA ? p->c : p->k) * sizeof(double), stream));
    }
    if (s->dweight) {
        const size_t row = (size_t)p->k * sizeof(float);
        FLIM_TRY_CUDA(cudaMemsetAsync(s->dweight, 0xff, FLIM_STEM_WINDOW * row, stream));
        FLIM_TRY_CUDA(cudaMemsetAsync(s->dbias, 0xff, row, stream));
        FLIM_TRY_CUDA(cudaMemsetAsync(s->dgamma, 0xff, row, stream));
        FLIM_TRY_CUDA(cudaMemsetAsync(s->dbeta, 0xff, row, stream));
    }
    FLIM_TRY_CUDA(cudaMemsetAsync(t->nonfinite, 0, sizeof *t->nonfinite, stream));
    return FLIM_OK;
}

/* |got - expected| / |expected|; anything but 0 where all is expected to be 0 is infinite. */
static double relative_error(const double *expected, const double *got, int64_t count)
{
    double difference = 0, square = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = got[i] - expected[i];
        difference += d * d;
        square += expected[i] * expected[i];
    }
    return isfinite(difference) ? sqrt(difference / fmax(square, 1e-300)) : HUGE_VAL;
}

/* Whether the sums over the output are right, to what fp32 makes of them: value holds sums, sums of absolute values, and
 * those found. */
static bool sums_right(const double *value, int count)
{
    for (int i = 0; i < count; i++) {
        if (!(fabs(value[2 * count + i] - value[i]) <= 1e-5 * value[count + i] + 1e-30)) {
            return false;
        }
    }
    return true;
}

/* Fetches expected and found values and compares them, tensor by tensor. */
static flim_status compare(flim_conv_trial *t, const flim_conv_groups *groups, int sums, double *error, flim_error *err)
{
    int64_t samples = 0;
    for (int i = 0; i < groups->n; i++) {
        samples += groups->size[i];
    }
    flim_status status = FLIM_OK;
    unsigned long long nonfinite = 0;
    const size_t count = 2 * (size_t)samples + 3 * (size_t)sums;
    double *value = flim_alloc(count, sizeof *value, err);
    if (!value) {
        return FLIM_ERROR_MEMORY;
    }
    FLIM_TRY_CUDA_DONE(cudaMemcpyAsync(value, t->samples, count * sizeof *value, cudaMemcpyDeviceToHost, t->device->stream));
    FLIM_TRY_CUDA_DONE(
        cudaMemcpyAsync(&nonfinite, t->nonfinite, sizeof nonfinite, cudaMemcpyDeviceToHost, t->device->stream));
    FLIM_TRY_CUDA_DONE(cudaStreamSynchronize(t->device->stream));
    *error = nonfinite || (sums && !sums_right(value + 2 * samples, sums)) ? HUGE_VAL : 0.0;
    for (int64_t i = 0, at = 0; i < groups->n; at += groups->size[i++]) {
        *error = fmax(*error, relative_error(value + at, value + samples + at, groups->size[i]));
    }
done:
    flim_free(value);
    return status;
}

flim_status flim_conv_trial_check(flim_conv_trial *t, const flim_conv_choice *c, double *error, flim_error *err)
{
    const flim_conv_problem *p = t->problem;
    const int64_t n = p->stem && p->n > STEM_CELLS ? STEM_CELLS : p->n;
    const output out = output_of(t, c, n);
    const flim_launch launch = {t->launch.stream, out.type, t->launch.processors};
    const int sums = gives_sums(p) ? 2 * (p->op == FLIM_CONV_DATA ? p->c : p->k) : 0;
    flim_conv_groups groups = {.n = 1, .size = {p->op == FLIM_CONV_WEIGHT ? SAMPLES_WEIGHT : SAMPLES_POINT}};
    FLIM_TRY(poison(t, &out, err));
    t->arguments.n = n;
    if (p->stem && p->op == FLIM_CONV_WEIGHT) {
        FLIM_TRY(run_stem_forward(t, c, err));
    }
    FLIM_TRY(run(t, c, n, err));
    FLIM_TRY_CUDA(flim_k_count_nonfinite(&launch, out.at, out.elements, t->nonfinite));
    if (p->stem) {
        FLIM_TRY_CUDA(flim_stem_direct(&t->launch, p, &t->arguments, &groups, t->samples));
    } else {
        FLIM_TRY_CUDA(flim_conv_direct(&t->launch, p, &t->arguments, c->algorithm->fp32_gradient, &groups, t->samples));
    }
    if (sums) {
        FLIM_TRY_CUDA(flim_conv_direct_sums(&t->launch, p, &t->arguments, t->samples + 2 * groups.size[0]));
    }
    return compare(t, &groups, sums, error, err);
}

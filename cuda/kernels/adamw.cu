/* From gradients to new weights: gather, norm, AdamW, storage copies, counters.  State stays on the device, so that a
 * training step needs no answer from it. */
#include "cuda/kernels/ranks.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vector.cuh"

#include <math.h>

#define LOSS_SCALE_MOST 16777216.0f
#define AMAX_BLOCKS 64 /* that look for a weight's largest value */
#define LOSS_SCALE_GROWTH 2000 /* good updates until the scale doubles, as torch's GradScaler */

__device__ __forceinline__ const flim_weight_item &item_of(const flim_weight_table *table, int n, int64_t element)
{
    int k = n - 1;
    while (k > 0 && element < table->item[k].first) {
        k--;
    }
    return table->item[k];
}

static unsigned grid_for(int64_t count)
{
    int64_t blocks = (count + 255) / 256;
    return (unsigned)(blocks < 1 ? 1 : blocks > 4096 ? 4096 : blocks);
}

/* Grid (AMAX_BLOCKS, weights): the largest |weight| of each, whose order does not matter; the last block makes the scale. */
__global__ void __launch_bounds__(256)
    weight_amax_kernel(const flim_weight_table *table, const float *__restrict__ parameters, const flim_device_state *state)
{
    if (state && !state->update) {
        return;
    }
    const flim_weight_item &w = table->item[blockIdx.y];
    const int64_t count = (int64_t)w.o * w.i * w.taps;
    float most = 0;
#pragma unroll 4
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < count; i += AMAX_BLOCKS * 256) {
        most = fmaxf(most, fabsf(parameters[w.offset + i]));
    }
    most = block_reduce<256>(most, [](float a, float b) { return fmaxf(a, b); });
    if (threadIdx.x > 0) {
        return;
    }
    atomicMax(&w.amax[0], __float_as_uint(most)); /* floats from 0 on are in the order of their bits */
    __threadfence();
    if (atomicAdd(&w.amax[1], 1u) == AMAX_BLOCKS - 1) {
        most = __uint_as_float(atomicExch(&w.amax[0], 0u));
        w.amax[1] = 0;
        int exponent = 0;
        if (most > 0 && isfinite(most)) {
            frexpf(most, &exponent); /* most = f * 2^exponent, f in [0.5, 1) */
            exponent = 1 - exponent;
        }
        *w.scale = exp2f((float)(exponent > 100 ? 100 : exponent < -100 ? -100 : exponent));
    }
}

template <typename T>
__global__ void weights_kernel(const flim_weight_table *table, int n, int64_t elements, const float *__restrict__ parameters,
                               const flim_device_state *state)
{
    if (state && !state->update) {
        return;
    }
    for (int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; e < elements; e += (int64_t)gridDim.x * blockDim.x) {
        const flim_weight_item &w = item_of(table, n, e);
        int64_t at = e - w.first;
        int c = (int)(at % w.c), tap = (int)(at / w.c % w.taps), k = (int)(at / w.c / w.taps);
        float v = 0;
        if (c < w.i && k < w.o) {
            v = parameters[w.offset + ((int64_t)k * w.i + c) * w.taps + tap] * *w.scale;
        }
        ((T *)w.storage)[at] = from_float<T>(v);
    }
}

__global__ void unit_scale_kernel(const flim_weight_table *table, int n)
{
    if ((int)threadIdx.x < n) {
        *table->item[threadIdx.x].scale = 1.0f;
    }
}

cudaError_t flim_k_weights(const flim_launch *l, const flim_weight_table *table, int n, int64_t elements,
                           const float *parameters, bool scaled, const flim_device_state *state)
{
    if (n == 0) {
        return cudaSuccess;
    }
    if (scaled) {
        weight_amax_kernel<<<dim3(AMAX_BLOCKS, (unsigned)n), 256, 0, l->stream>>>(table, parameters, state);
    } else {
        unit_scale_kernel<<<1, 32, 0, l->stream>>>(table, n);
    }
    FLIM_BY_TYPE(l->type,
                 (weights_kernel<T><<<grid_for(elements), 256, 0, l->stream>>>(table, n, elements, parameters, state)));
    return cudaGetLastError();
}

template <typename T>
__global__ void flip_kernel(const T *__restrict__ storage, int k, int taps, int c, T *__restrict__ flipped)
{
    const int64_t count = (int64_t)k * taps * c;
    for (int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; e < count; e += (int64_t)gridDim.x * blockDim.x) {
        const int to_k = (int)(e % k), tap = (int)(e / k % taps), from_c = (int)(e / k / taps);
        flipped[e] = storage[((int64_t)to_k * taps + taps - 1 - tap) * c + from_c];
    }
}

cudaError_t flim_k_flip(const flim_launch *l, const void *storage, int k, int taps, int c, void *flipped)
{
    FLIM_BY_TYPE(l->type, (flip_kernel<T><<<grid_for((int64_t)k * taps * c), 256, 0, l->stream>>>((const T *)storage, k, taps,
                                                                                                  c, (T *)flipped)));
    return cudaGetLastError();
}

template <typename T>
__global__ void gather_kernel(const flim_weight_table *table, int n, int64_t elements, flim_range range,
                              const float *loss_scale, bool add, float *__restrict__ gradients)
{
    const float unscale = 1.0f / *loss_scale;
    for (int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; e < elements; e += (int64_t)gridDim.x * blockDim.x) {
        const flim_weight_item &w = item_of(table, n, e);
        if (!w.grad || w.offset < range.begin || w.offset >= range.end) {
            continue;
        }
        int64_t at = e - w.first;
        int c = (int)(at % w.c), tap = (int)(at / w.c % w.taps), k = (int)(at / w.c / w.taps);
        if (c < w.i && k < w.o) {
            float v = w.grad_is_float ? ((const float *)w.grad)[at] : to_float(((const T *)w.grad)[at]);
            v *= unscale * (w.grad_scale ? 1.0f / *w.grad_scale : 1.0f);
            float *to = gradients + w.offset + ((int64_t)k * w.i + c) * w.taps + tap;
            *to = add ? *to + v : v;
        }
    }
}

cudaError_t flim_k_gather(const flim_launch *l, const flim_weight_table *table, int n, int64_t elements,
                          const float *loss_scale, bool add, float *gradients)
{
    const flim_range all = {0, INT64_MAX};
    return flim_k_gather_range(l, table, n, elements, all, loss_scale, add, gradients);
}

cudaError_t flim_k_gather_range(const flim_launch *l, const flim_weight_table *table, int n, int64_t elements,
                                flim_range range, const float *loss_scale, bool add, float *gradients)
{
    if (n == 0) {
        return cudaSuccess;
    }
    FLIM_BY_TYPE(l->type, (gather_kernel<T>
                           <<<grid_for(elements), 256, 0, l->stream>>>(table, n, elements, range, loss_scale, add, gradients)));
    return cudaGetLastError();
}

/* One block; the loss in cell order. */
__global__ void __launch_bounds__(256) account_kernel(flim_device_state *state, const double *loss, const int32_t *correct,
                                                      const float *weight, int64_t cells, bool dynamic)
{
    const int tid = threadIdx.x;
    double l = 0, w = 0;
    int right = 0;
    for (int64_t n = tid; n < cells; n += 256) {
        l += loss[n];
        w += weight[n];
        right += correct[n];
    }
    l = block_sum<256>(l);
    w = block_sum<256>(w);
    right = block_sum<256>(right);
    if (tid == 0) {
        state->loss += l;
        state->weight += w;
        state->correct += right;
        state->cells += cells;
        if (!isfinite(l) && state->nonfinite_call < 0) {
            state->nonfinite_call = state->calls;
        }
        state->calls++;
    }
    (void)dynamic;
}

cudaError_t flim_k_account(const flim_launch *l, flim_device_state *state, const double *loss, const int32_t *correct,
                           const float *weight, int64_t cells, bool dynamic)
{
    account_kernel<<<1, 256, 0, l->stream>>>(state, loss, correct, weight, cells, dynamic);
    return cudaGetLastError();
}

/* Of the parameters that learn: a frozen encoder's are left out. */
__global__ void __launch_bounds__(256) square_kernel(const float *__restrict__ gradients, int64_t encoder, int64_t count,
                                                     const flim_device_step *step, double *partial)
{
    const int64_t first = step->encoder_hold >= 1.0f ? encoder : 0;
    double sum = 0;
    for (int64_t i = first + blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
        double g = gradients[i];
        sum += g * g; /* not finite if any gradient is not */
    }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
    }
}

/* Decides whether this accumulation ends in an update, and moves counters and loss scale.  dynamic: fp16's loss scaling. */
__global__ void __launch_bounds__(256)
    decide_kernel(flim_device_state *state, const flim_device_step *step, const double *partial, bool dynamic)
{
    double sum = block_sum<256>(partial[threadIdx.x]);
    if (threadIdx.x > 0) {
        return;
    }
    double norm = sqrt(sum);
    bool finite = isfinite(norm);
    state->grad_norm = norm;
    if (!dynamic && !finite && state->nonfinite_call < 0) {
        state->nonfinite_call = state->calls - 1;
    }
    state->update = finite && (dynamic || state->nonfinite_call < 0);
    if (state->update) {
        double clip = step->clip;
        state->grad_norm_sum += norm;
        state->grad_norm_least = state->updates > 0 ? fmin(state->grad_norm_least, norm) : norm;
        state->grad_norm_most = state->updates > 0 ? fmax(state->grad_norm_most, norm) : norm;
        state->clip_factor = clip > 0 ? (float)fmin(1.0, clip / (norm + 1e-6)) : 1.0f;
        state->adam_step++;
        state->updates++;
        state->skipped_in_row = 0;
        state->bias1 = (float)(1.0 - pow((double)step->beta1, (double)state->adam_step));
        state->bias2 = (float)(1.0 - pow((double)step->beta2, (double)state->adam_step));
        state->average_share =
            (float)(1.0 - fmin((double)step->average_decay, (double)state->adam_step / (9.0 + (double)state->adam_step)));
        if (dynamic && ++state->scale_growth >= LOSS_SCALE_GROWTH) {
            state->scale_growth = 0;
            state->loss_scale = fminf(state->loss_scale * 2.0f, LOSS_SCALE_MOST);
        }
    } else if (dynamic) {
        state->skipped++;
        state->skipped_in_row++;
        state->scale_growth = 0;
        state->loss_scale = fmaxf(state->loss_scale * 0.5f, 1.0f);
    }
}

/* torch.optim.AdamW: decay first, then the step. */
__global__ void __launch_bounds__(256)
    adamw_kernel(const flim_device_state *state, const flim_device_step *step, const flim_update u)
{
    float *__restrict__ parameters = u.parameters, *__restrict__ moment1 = u.moment1, *__restrict__ moment2 = u.moment2;
    float *__restrict__ average = u.average;
    const float *__restrict__ gradients = u.gradients;
    if (!state->update) {
        return;
    }
    const float lr = step->learning_rate, beta1 = step->beta1, beta2 = step->beta2, clip = state->clip_factor;
    const float slow = lr * (1.0f - step->encoder_hold), root = sqrtf(state->bias2);
    const float decays[2] = {(float)(1.0 - (double)lr * step->weight_decay), (float)(1.0 - (double)slow * step->weight_decay)};
    const float rates[2] = {lr / state->bias1, slow / state->bias1};
    const float share = state->average_share;
    const int64_t first = blockIdx.x * 256ll + threadIdx.x, stride = gridDim.x * 256ll;
    for (int64_t i = first; i < u.count; i += stride) {
        const bool held = i < u.encoder;
        const float decay = held ? decays[1] : decays[0], rate = held ? rates[1] : rates[0];
        float g = gradients[i] * clip, p = parameters[i] * decay;
        float m = moment1[i] + (1.0f - beta1) * (g - moment1[i]);
        float v = beta2 * moment2[i] + (1.0f - beta2) * g * g;
        moment1[i] = m;
        moment2[i] = v;
        p -= rate * m / (sqrtf(v) / root + step->epsilon);
        parameters[i] = p;
        if (average) {
            average[i] += share * (p - average[i]);
        }
    }
    for (int64_t i = first; i < u.n_statistics; i += stride) {
        u.statistics[i] = u.pending[i];
        if (average) {
            u.average_statistics[i] += share * (u.pending[i] - u.average_statistics[i]);
        }
    }
}

__global__ void __launch_bounds__(256) exchange_kernel(float *__restrict__ a, float *__restrict__ b, int64_t count)
{
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
        const float kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

cudaError_t flim_k_exchange(const flim_launch *l, float *a, float *b, int64_t count)
{
    if (count > 0) {
        exchange_kernel<<<grid_for(count), 256, 0, l->stream>>>(a, b, count);
    }
    return cudaGetLastError();
}

cudaError_t flim_k_update(const flim_launch *l, flim_device_state *state, const flim_device_step *step,
                          const flim_update *update, bool dynamic)
{
    square_kernel<<<FLIM_NORM_BLOCKS, 256, 0, l->stream>>>(update->gradients, update->encoder, update->count, step,
                                                           update->partial);
    decide_kernel<<<1, 256, 0, l->stream>>>(state, step, update->partial, dynamic);
    adamw_kernel<<<grid_for(update->count), 256, 0, l->stream>>>(state, step, *update);
    return cudaGetLastError();
}

#include "reference/formula.h"

#include <stdio.h>
#include <stdlib.h>

static void *zeroed(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count, size);
    if (!memory) {
        fprintf(stderr, "reference: out of memory for %lld x %zu bytes\n", (long long)count, size);
        abort();
    }
    return memory;
}

double ref_uniform(uint32_t tag, int64_t index)
{
    uint32_t x = tag * 0x9E3779B1u + (uint32_t)index; /* then MurmurHash3's finaliser */
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return (double)((x ^ x >> 16) >> 16) / 65536.0;
}

void ref_formula_weights(const flim_network *net, float *parameters, float *statistics)
{
    for (int k = 0; k < net->n_tensors; k++) {
        const flim_tensor *t = &net->tensor[k];
        float *at = (flim_tensor_is_statistic(t) ? statistics : parameters) + t->offset;
        const double fan_in = (double)(t->count / t->shape[0]);
        double bound = 1;
        while (bound * bound * fan_in > 3) {
            bound /= 2;
        }
        for (int64_t i = 0; i < t->count; i++) {
            double u = ref_uniform(1000 + (uint32_t)k, i);
            switch (t->role) {
            case FLIM_TENSOR_CONV_WEIGHT:
            case FLIM_TENSOR_LINEAR_WEIGHT: at[i] = (float)((2 * u - 1) * bound); break;
            case FLIM_TENSOR_BN_WEIGHT:
            case FLIM_TENSOR_RUNNING_VAR: at[i] = (float)(0.5 + u); break;
            case FLIM_TENSOR_BIAS:
            case FLIM_TENSOR_BN_BIAS:
            case FLIM_TENSOR_RUNNING_MEAN: at[i] = (float)((2 * u - 1) / 4); break;
            }
        }
    }
}

static float *new_floats(int64_t count)
{
    float *array = calloc(count > 0 ? (size_t)count : 1, sizeof *array);
    if (!array) {
        fprintf(stderr, "reference: out of memory for %lld floats\n", (long long)count);
        abort();
    }
    return array;
}

void ref_new_weights(const flim_network *net, float **parameters, float **statistics)
{
    *parameters = new_floats(net->parameters);
    *statistics = new_floats(net->statistics);
    ref_formula_weights(net, *parameters, *statistics);
}

flim_batch ref_formula_batch(const flim_network *net, int64_t first, int64_t n)
{
    const int64_t pixels = (int64_t)net->in[1] * net->in[2], voxels = pixels * net->in[0];
    flim_batch b = {.n = n, .capacity = n, .t = net->in[0], .h = net->in[1], .w = net->in[2]};
    b.signal = zeroed(n * voxels, sizeof *b.signal);
    b.mask = zeroed(n * pixels, sizeof *b.mask);
    b.label = zeroed(n, sizeof *b.label);
    b.weight = zeroed(n, sizeof *b.weight);
    b.id = zeroed(n, sizeof *b.id);
    for (int64_t c = 0; c < n; c++) {
        const uint32_t cell = (uint32_t)(first + c);
        for (int64_t i = 0; i < voxels; i++) {
            int k = (int)(ref_uniform(2 * cell + 1, i) * 65536);
            b.signal[c * voxels + i] = k % 3 == 0 ? (float)(k / 3 % 32) / 64.0f : 0.0f;
        }
        for (int64_t i = 0; i < pixels; i++) {
            b.mask[c * pixels + i] = ref_uniform(2 * cell + 2, i) >= 0.25;
        }
        b.label[c] = (int32_t)(cell % (uint32_t)net->classes);
        b.weight[c] = 1;
        b.id[c] = (flim_cell_id){.seed = 0x123456789abcdefu, .fold = 1, .epoch = 2, .cell = cell, .repeat = 3};
    }
    return b;
}

void ref_batch_free(flim_batch *batch)
{
    free(batch->signal);
    free(batch->mask);
    free(batch->label);
    free(batch->weight);
    free(batch->target);
    free(batch->id);
    *batch = (flim_batch){0};
}

/* Input preparation, layout changes at the edges, and dropout multipliers. */
#include "core/random_block.h"
#include "cuda/kernels/vector.cuh"

__global__ void probe_kernel(void)
{
}

cudaError_t flim_kernels_probe(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, probe_kernel);
}

static unsigned blocks_of(int64_t items, int threads)
{
    int64_t blocks = (items + threads - 1) / threads;
    return (unsigned)(blocks < 1 ? 1 : blocks > (1 << 20) ? (1 << 20) : blocks);
}

template <typename T>
__global__ void input_kernel(const float *__restrict__ signal, const uint8_t *__restrict__ mask, int64_t voxels, int64_t cell,
                             int hw, int c, T *__restrict__ x)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < voxels; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t n = i / cell;
        float8 out = {{signal[i], mask[n * hw + (i - n * cell) % hw] ? 1.0f : 0.0f, 0, 0, 0, 0, 0, 0}};
        store8<T>(x + i * c, out);
        for (int k = 8; k < c; k += 8) {
            store8<T>(x + i * c + k, {{0, 0, 0, 0, 0, 0, 0, 0}});
        }
    }
}

cudaError_t flim_k_input(const flim_launch *l, const float *signal, const uint8_t *mask, int64_t n, int t, int hw, int c,
                         void *x)
{
    int64_t cell = (int64_t)t * hw;
    FLIM_BY_TYPE(l->type, (input_kernel<T>
                           <<<blocks_of(n * cell, 256), 256, 0, l->stream>>>(signal, mask, n * cell, cell, hw, c, (T *)x)));
    return cudaGetLastError();
}

template <typename T>
__global__ void input_plain_kernel(const float *__restrict__ signal, const uint8_t *__restrict__ mask, int64_t voxels,
                                   int64_t pixels, T *__restrict__ signal_out, uint8_t *__restrict__ mask_out)
{
    const int64_t first = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < voxels / 8; i += stride) {
        store8<T>(signal_out + 8 * i, load8<float>(signal + 8 * i));
    }
    for (int64_t i = voxels / 8 * 8 + first; i < voxels; i += stride) {
        signal_out[i] = from_float<T>(signal[i]);
    }
    for (int64_t i = first; i < pixels; i += stride) {
        mask_out[i] = mask[i] != 0;
    }
}

cudaError_t flim_k_input_plain(const flim_launch *l, const float *signal, const uint8_t *mask, int64_t voxels, int64_t pixels,
                               void *signal_out, uint8_t *mask_out)
{
    FLIM_BY_TYPE(l->type, (input_plain_kernel<T><<<blocks_of(voxels / 8 + 1, 256), 256, 0, l->stream>>>(
                              signal, mask, voxels, pixels, (T *)signal_out, mask_out)));
    return cudaGetLastError();
}

template <typename T>
__global__ void to_planar_kernel(const T *__restrict__ in, int64_t total, int channels, int c, int64_t pixels,
                                 float *__restrict__ out)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t p = i % pixels, k = i / pixels % channels, cell = i / pixels / channels;
        out[i] = to_float(in[(cell * pixels + p) * c + k]);
    }
}

cudaError_t flim_k_to_planar(const flim_launch *l, const void *in, int64_t n, int channels, int c, int64_t pixels, float *out)
{
    int64_t total = n * pixels * channels;
    FLIM_BY_TYPE(l->type, (to_planar_kernel<T>
                           <<<blocks_of(total, 256), 256, 0, l->stream>>>((const T *)in, total, channels, c, pixels, out)));
    return cudaGetLastError();
}

__global__ void dropout_kernel(flim_dropout_table table, const flim_cell_id *__restrict__ id, int64_t cells)
{
    const auto &item = table.item[blockIdx.y];
    const float p = *item.p;
    int groups = item.c / 4;
    float keep = 1.0f / (1.0f - p);
    uint32_t threshold = (uint32_t)((double)p * 4294967296.0);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < cells * groups;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t cell = i / groups;
        uint32_t group = (uint32_t)(i % groups);
        uint32_t word[4];
        flim_random_block_of(&id[cell], FLIM_RANDOM_DROPOUT, item.unit << 16 | group, word);
        float4 out = make_float4(word[0] >= threshold ? keep : 0.0f, word[1] >= threshold ? keep : 0.0f,
                                 word[2] >= threshold ? keep : 0.0f, word[3] >= threshold ? keep : 0.0f);
        reinterpret_cast<float4 *>(item.multiplier)[i] = out;
    }
}

cudaError_t flim_k_dropout(const flim_launch *l, const flim_dropout_table *table, const flim_cell_id *id, int64_t cells)
{
    int most = 8;
    for (int i = 0; i < table->n; i++) {
        most = table->item[i].c > most ? table->item[i].c : most;
    }
    dim3 grid(blocks_of(cells * (most / 4), 128), (unsigned)table->n);
    dropout_kernel<<<grid, 128, 0, l->stream>>>(*table, id, cells);
    return cudaGetLastError();
}

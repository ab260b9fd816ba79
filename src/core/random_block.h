/* One block of counter-based random numbers, for C and CUDA: the layout that flim/random.h fixes, on Random123's
 * Philox4x32-10.
 *
 * For: random.c on the host and kernels on the device, which so draw equal bits.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_CORE_RANDOM_BLOCK_H
#define FLIM_CORE_RANDOM_BLOCK_H

#ifdef __CUDACC__ /* Random123 in functions of both sides, without SSE and C++ exceptions, neither of which Philox needs */
#define R123_CUDA_DEVICE __host__ __device__
#define R123_USE_SSE 0
#define R123_THROW(x) ((void)0)
#endif
#include <Random123/philox.h>

#include "flim/random.h"

#ifdef __CUDACC__
#define FLIM_HOST_DEVICE __host__ __device__
#else
#define FLIM_HOST_DEVICE
#endif

FLIM_HOST_DEVICE static inline void flim_random_block_of(const flim_cell_id *id, flim_random_purpose purpose, uint32_t index,
                                                         uint32_t out[4])
{
    const philox4x32_key_t key = {{(uint32_t)id->seed, (uint32_t)(id->seed >> 32)}};
    const philox4x32_ctr_t counter = {
        {index, id->cell, id->epoch, (uint32_t)purpose << 24 | (id->repeat & 255u) << 16 | (id->fold & 65535u)}};
    const philox4x32_ctr_t block = philox4x32(counter, key); /* 10 rounds */
    for (int i = 0; i < 4; i++) {
        out[i] = block.v[i];
    }
}

/* A block of a stream of its own: `key` are two words of a block above (of a step of a cell, say), (a, b, c) what is drawn for. */
FLIM_HOST_DEVICE static inline void flim_random_keyed_block(const uint32_t key[2], uint32_t a, uint32_t b, uint32_t c,
                                                            uint32_t out[4])
{
    const philox4x32_key_t k = {{key[0], key[1]}};
    const philox4x32_ctr_t counter = {{a, b, c, 0}};
    const philox4x32_ctr_t block = philox4x32(counter, k);
    for (int i = 0; i < 4; i++) {
        out[i] = block.v[i];
    }
}

#endif

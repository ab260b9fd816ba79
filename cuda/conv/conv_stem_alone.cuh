/* Shared by conv_stem_alone*.cu: how the stem alone is cut into blocks and warps. */
#ifndef FLIM_CUDA_CONV_STEM_ALONE_CUH
#define FLIM_CUDA_CONV_STEM_ALONE_CUH

#include "cuda/conv/conv_stem.cuh"

enum {
    ALONE_CHANNELS = 32, /* of a warp */
    ALONE_PIXELS = 16, /* of a block: its warps differ in their channels */
    ALONE_WARPS = 4,
    ALONE_THREADS = 32 * ALONE_WARPS,
    ALONE_BLOCKS = 1024 /* most, of all channels */
};

/* Warps that all channels take, and blocks of so many. */
static inline int alone_parts(int channels)
{
    return (channels + ALONE_CHANNELS - 1) / ALONE_CHANNELS;
}

static inline int alone_apart(int channels)
{
    return (alone_parts(channels) + ALONE_WARPS - 1) / ALONE_WARPS;
}

template <typename Kernel> inline int alone_grid(const stem_geometry &g, int apart, Kernel kernel, const flim_card *card)
{
    return stem_grid(g, ALONE_BLOCKS / apart, apart, kernel, ALONE_THREADS, card);
}

#endif

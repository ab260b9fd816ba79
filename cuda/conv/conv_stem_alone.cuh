/* Shared by conv_stem_alone*.cu: how the stem alone is cut into blocks and warps. */
#ifndef FLIM_CUDA_CONV_STEM_ALONE_CUH
#define FLIM_CUDA_CONV_STEM_ALONE_CUH

#include "cuda/conv/conv_stem.cuh"

enum {
    ALONE_CHANNELS = 32, /* of a warp */
    ALONE_PIXELS = 16, /* of a block: its warps differ in their channels */
    ALONE_WARPS = 4, /* most of a block */
    ALONE_THREADS = 32 * ALONE_WARPS,
    ALONE_BLOCKS = 1024 /* most, of all channels */
};

/* Warps that all channels take. */
static inline int alone_parts(int channels)
{
    return (channels + ALONE_CHANNELS - 1) / ALONE_CHANNELS;
}

/* Blocks that have them for the same pixels. */
static inline int alone_apart(int channels)
{
    return (alone_parts(channels) + ALONE_WARPS - 1) / ALONE_WARPS;
}

/* Warps of a block: as many in each as can be, for all walk equally far. */
static inline int alone_warps(int channels)
{
    return (alone_parts(channels) + alone_apart(channels) - 1) / alone_apart(channels);
}

/* Blocks that share a walk. */
template <typename Kernel> inline int alone_grid(const stem_geometry &g, int channels, Kernel kernel, const flim_card *card)
{
    const int apart = alone_apart(channels);
    return stem_grid(g, ALONE_BLOCKS / apart, apart, kernel, 32 * alone_warps(channels), card);
}

#endif

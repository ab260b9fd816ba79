/* How tensors are stored on the device: element type and channels.
 *
 * For: kernels, convolutions and programs.  Owns: nothing.
 */
#ifndef FLIM_CUDA_STORAGE_H
#define FLIM_CUDA_STORAGE_H

#include <stdint.h>

typedef enum flim_storage { FLIM_STORAGE_FP32, FLIM_STORAGE_FP16, FLIM_STORAGE_BF16 } flim_storage;

static inline int64_t flim_storage_size(flim_storage type)
{
    return type == FLIM_STORAGE_FP32 ? 4 : 2;
}

/* Channels as stored: the vector kernels move 8 at a time, and cuDNN's tensor core engines want multiples of 8. */
static inline int flim_storage_channels(int channels)
{
    return (channels + 7) / 8 * 8;
}

static inline int64_t flim_volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

#endif

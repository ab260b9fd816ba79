/* Pieces of device memory that are freed together, and copies in and out of them.
 *
 * For: layer.c and layer_head.c, which run a single layer on the caller's arrays and need dozens of small ones.
 * Owns: all pieces until flim_pieces_free.
 * Errors: FLIM_ERROR_MEMORY; FLIM_ERROR_DEVICE with CUDA's reason.
 */
#ifndef FLIM_CUDA_PIECES_H
#define FLIM_CUDA_PIECES_H

#include "cuda/device/cuda_device.h"
#include "cuda/kernels/kernels.h"

enum { FLIM_MAX_PIECES = 96 };

typedef struct flim_pieces {
    flim_cuda_device *device; /* set by the caller, all else 0 */
    int n;
    void *at[FLIM_MAX_PIECES];
} flim_pieces;

/* `bytes` of device memory filled with 0xff, so that every element is NaN until it is written; *out, of any pointer type, points
 * there. */
flim_status flim_pieces_take(flim_pieces *pieces, int64_t bytes, void *out, flim_error *err);
/* The same with a copy of `host` (NULL: left as it is), which must stay until the stream has been waited for. */
flim_status flim_pieces_copy(flim_pieces *pieces, const void *host, int64_t bytes, void *out, flim_error *err);
/* Enqueues a copy to `host`; NULL: nothing. */
flim_status flim_pieces_fetch(flim_pieces *pieces, void *host, const void *device, int64_t bytes, flim_error *err);
/* Dropout multipliers (n,c) of a layer with `channels` real channels, for cells id (n); `unit` as flim_random_purpose wants it. */
flim_status flim_pieces_dropout(flim_pieces *pieces, const flim_launch *launch, const flim_cell_id *id, int64_t n, float rate,
                                uint32_t unit, int channels, int c, float **out, flim_error *err);
void flim_pieces_free(flim_pieces *pieces);

#endif

/* What the convolution kernels of this folder share: the 16-bit type of their tensors and small helpers for callers.
 *
 * All tensors are NDHWC, dense, 16-byte aligned.  Sums are fp32 or double.  Every launch function only enqueues work on
 * `stream` (no allocation, no synchronisation, no host copy: it can be captured into a CUDA graph), returns the launch's error and
 * gives equal bits on equal runs: partial sums are stored by each block and added by a second kernel in fixed order.
 * Owns: nothing.  The caller owns all arrays and the scratch memory, whose size each module reports.
 */
#ifndef FLIM_CUDA_CONV_TYPES_H
#define FLIM_CUDA_CONV_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* fp16 also serves tf32: it has the same 10 mantissa bits; keeping values in its range (scales) is the caller's part. */
typedef enum flim_conv_type { FLIM_CONV_BF16, FLIM_CONV_FP16 } flim_conv_type;

/* BatchNorm + activation of the previous unit, applied to x as it is loaded:
 *   x = round(leaky_relu(z * scale[c] + shift[c], 0.01)) * dropout[cell][c], rounded again. */
typedef struct flim_conv_prologue {
    const float *scale, *shift; /* (C), device */
    const float *dropout; /* (n,C), device: 0 or 1/(1-p); NULL = none */
} flim_conv_prologue;

/* BatchNorm's backward pass, applied to the gradient of its output as that is loaded: where du is given in place of dz,
 *   dz = round(a[c] * du / *du_scale + b[c] * z + d[c]);
 * with r = 1/std, N positions:  a = gamma r,  b = -gamma r^2 (sum du zhat) / N,  d = -a (sum du) / N - b mean. */
typedef struct flim_conv_norm {
    const void *z; /* of the unit, shaped as du */
    const float *a, *b, *d; /* (channels), device */
    const float *du_scale; /* one float, a power of two, device: what du is stored times; NULL = 1 */
} flim_conv_norm;

#endif

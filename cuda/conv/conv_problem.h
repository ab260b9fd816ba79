/* A convolution problem as the kernels see it: storage channels, NDHWC, one direction.
 *
 * x (n,in[0],in[1],in[2],c), w (k,kernel[0],kernel[1],kernel[2],c), y (n,out[0],out[1],out[2],k), all of one storage type;
 * sums are fp32.  FORWARD writes y from x, w; DATA writes x from y, w; WEIGHT writes w from x, y.  Channels are padded to
 * multiples of 8; padding channels hold zeros.
 */
#ifndef FLIM_CUDA_CONV_PROBLEM_H
#define FLIM_CUDA_CONV_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum flim_conv_op { FLIM_CONV_FORWARD, FLIM_CONV_DATA, FLIM_CONV_WEIGHT } flim_conv_op;
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

typedef struct flim_conv_problem {
    flim_conv_op op;
    flim_storage type;
    bool deterministic; /* equal bits on equal runs */
    int64_t n;
    int c, k; /* storage channels of x and y */
    int in[3], out[3], kernel[3], stride[3], pad[3];
} flim_conv_problem;

#ifdef __cplusplus
extern "C" {
#endif

int64_t flim_conv_x_elements(const flim_conv_problem *p);
int64_t flim_conv_w_elements(const flim_conv_problem *p);
int64_t flim_conv_y_elements(const flim_conv_problem *p);
/* A data gradient of stride 1 is a forward convolution of dy with the kernel turned: w'[c][taps - 1 - tap][k] = w[k][tap][c].  *out gets
 * that problem, whose x is dy and whose y is dx; false for what is no such gradient. */
bool flim_conv_turn(const flim_conv_problem *p, flim_conv_problem *out);
/* Multiply-adds, padding channels included. */
int64_t flim_conv_macs(const flim_conv_problem *p);
/* "forward x(64,128,21,21,32) w(32,3,3,3,32) y(64,128,21,21,32) stride 1,1,1 pad 1,1,1 bf16": key of the plan cache and part
 * of error texts. */
void flim_conv_text(const flim_conv_problem *p, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif

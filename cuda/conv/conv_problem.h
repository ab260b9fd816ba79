/* A convolution problem: shapes, element type, direction, and what is fused with the convolution.
 *
 * x (n,in[0],in[1],in[2],c), w (k,kernel[0],kernel[1],kernel[2],c), y (n,out[0],out[1],out[2],k), all of one storage type,
 * NDHWC; sums are fp32.  FORWARD writes y from x, w; DATA writes x from y, w; WEIGHT writes w from x, y.  Channels are stored
 * padded to multiples of 8; padding channels hold zeros.
 *
 * For: conv_algorithm.h (which algorithm supports a problem), conv_store.h (which one is chosen for it), the kernels.
 * Owns: nothing.  Fields that a direction does not use are 0.
 */
#ifndef FLIM_CUDA_CONV_PROBLEM_H
#define FLIM_CUDA_CONV_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda/device/storage.h"

typedef enum flim_conv_op { FLIM_CONV_FORWARD, FLIM_CONV_DATA, FLIM_CONV_WEIGHT } flim_conv_op;

/* What a convolution does to a tensor as it loads it. */
typedef enum flim_input_form {
    FLIM_INPUT_PLAIN,
    FLIM_INPUT_NORM_ON_LOAD, /* dz: from the gradient of BatchNorm's output and z, by BatchNorm's backward pass */
    FLIM_INPUT_NORM_ACT_ON_LOAD /* x: from the previous unit's z, by its BatchNorm and activation */
} flim_input_form;

/* The gradient that a data gradient's epilogue adds. */
typedef enum flim_add_form {
    FLIM_ADD_NONE,
    FLIM_ADD_DENSE, /* as x */
    FLIM_ADD_STRIDED /* (n,out,c): contributes at multiples of the strides only */
} flim_add_form;

typedef struct flim_conv_problem {
    flim_conv_op op;
    flim_storage type;
    bool deterministic; /* equal bits on equal runs */
    int64_t n;
    int c, k; /* storage channels of x and y */
    int in_channels, out_channels; /* how many of them are real: WEIGHT in PyTorch's layout has no others */
    int in[3], out[3], kernel[3], stride[3], pad[3];
    flim_input_form x_form, dz_form; /* FORWARD and WEIGHT; WEIGHT */
    bool master; /* FORWARD, DATA: weights are the fp32 parameters in PyTorch's layout, and FORWARD adds the bias */
    /* FORWARD: of y and y^2 per channel (of the stem alone those of its BatchNorm, which it keeps); DATA with epilogue: those for
     * BatchNorm's backward pass */
    bool sums;
    bool epilogue; /* DATA: the gradient passes the activation of the previous unit */
    bool sign_mask; /* ... whose side is read as a bit, since that unit adds a skip; else it follows from z */
    flim_add_form add; /* ... after another gradient is added */
    /* FORWARD, WEIGHT: x is the network's input; the stem (7,1,1; BatchNorm; activation) is applied on load, or is all there is
     * (conv_stem.h) */
    bool stem;
} flim_conv_problem;

#ifdef __cplusplus
extern "C" {
#endif

int64_t flim_conv_x_elements(const flim_conv_problem *p);
int64_t flim_conv_w_elements(const flim_conv_problem *p);
int64_t flim_conv_y_elements(const flim_conv_problem *p);
/* Of the gradient that the epilogue adds; 0 if it adds none. */
int64_t flim_conv_add_elements(const flim_conv_problem *p);
/* w without padding channels: (out_channels,in_channels,kernel). */
int64_t flim_conv_master_elements(const flim_conv_problem *p);
bool flim_conv_same_problem(const flim_conv_problem *a, const flim_conv_problem *b);
/* True if the convolution has these sizes in t, y and x. */
bool flim_conv_has_shape(const flim_conv_problem *p, const int kernel[3], const int stride[3], const int pad[3]);
/* True if anything is fused with the convolution, or it works on the fp32 parameters: none of cuDNN's business. */
bool flim_conv_is_fused(const flim_conv_problem *p);
/* A data gradient of stride 1 is a forward convolution of dy with the kernel flipped: w'[c][taps - 1 - tap][k] =
 * w[k][tap][c].  *out gets that problem, whose x is dy and whose y is dx; false if there is none. */
bool flim_conv_flip(const flim_conv_problem *p, flim_conv_problem *out);
/* Multiply-adds, padding channels included. */
int64_t flim_conv_macs(const flim_conv_problem *p);
/* "forward x(64,128,21,21,32) w(32,3,3,3,32) y(64,128,21,21,32) stride 1,1,1 pad 1,1,1 bf16", then what is fused: key of the
 * choice cache and part of error texts. */
void flim_conv_text(const flim_conv_problem *p, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif

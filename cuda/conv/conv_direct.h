/* A convolution by direct summation in double: what an algorithm's output is checked against.
 *
 * For: conv_trial.c.  Owns: nothing.  Errors: the CUDA error of the launch.
 */
#ifndef FLIM_CUDA_CONV_DIRECT_H
#define FLIM_CUDA_CONV_DIRECT_H

#include "cuda/conv/conv_arguments.h"
#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `samples` outputs of the problem, spread over the output tensor, by direct summation in double; got gets the same elements
 * of the tensor under test.  master: the weight gradient under test is fp32 in PyTorch's layout. */
cudaError_t flim_conv_direct(const flim_launch *l, const flim_conv_problem *p, const void *x, const void *w, const void *y,
                             bool master, int samples, double *expected, double *got);

#ifdef __cplusplus
}
#endif
#endif

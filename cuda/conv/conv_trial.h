/* One convolution problem on tensors of its own in device memory, on which plans are tried: timed, and checked against direct sums.
 *
 * For: plan_search.c makes one a problem, tries all candidates on it and frees it.
 * Owns: x, w (also flipped) and y of the problem, filled with hashed values, and a workspace that grows; plans stay the caller's.
 * Errors: FLIM_ERROR_MEMORY where the tensors find no room or, of a check, host memory ends; FLIM_ERROR_DEVICE where a plan does not
 * run.
 */
#ifndef FLIM_CUDA_CONV_TRIAL_H
#define FLIM_CUDA_CONV_TRIAL_H

#include "cuda/conv/conv_choice.h"
#include "cuda/kernels/kernels.h"

typedef struct flim_conv_trial {
    struct flim_cuda_device *device;
    const flim_conv_problem *problem; /* the caller's */
    flim_launch launch;
    void *x, *w, *y, *workspace;
    void *w_flipped; /* for flipped plans; NULL where there can be none */
    int64_t workspace_bytes;
    double *samples; /* expected, then got */
    unsigned long long *nonfinite;
    cudaEvent_t begin, end;
} flim_conv_trial;

/* After a failure there is nothing to free. */
flim_status flim_conv_trial_make(flim_conv_trial *trial, struct flim_cuda_device *device, const flim_conv_problem *problem,
                                 flim_error *err);
void flim_conv_trial_free(flim_conv_trial *trial);

/* Makes the workspace at least so large: before a plan that needs it is timed or checked. */
flim_status flim_conv_trial_workspace(flim_conv_trial *trial, int64_t bytes, flim_error *err);

/* Fastest of three runs after one to warm up; a plan that is far behind `best` after the first is not timed further. */
flim_status flim_conv_trial_time(flim_conv_trial *trial, const flim_conv_choice *plan, double best, double *microseconds,
                                 flim_error *err);

/* Compares outputs spread over the tensor with direct sums in double; *error = |got - expected| / |expected|, infinite where any
 * output is not finite.  The whole tensor and the workspace hold NaN before the run. */
flim_status flim_conv_trial_check(flim_conv_trial *trial, const flim_conv_choice *plan, double *error, flim_error *err);

#endif

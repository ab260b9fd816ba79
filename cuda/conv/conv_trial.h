/* One convolution problem on tensors of its own in device memory, on which candidates are tried: timed, and checked against
 * direct sums.
 *
 * For: conv_search.c makes one per problem, tries all candidates on it and frees it.
 * Owns: the operands of the problem, filled with hashed values, and a workspace that grows; candidates stay the caller's.
 * Errors: FLIM_ERROR_MEMORY if the tensors find no room or, of a check, host memory ends; FLIM_ERROR_DEVICE if a candidate
 *         does not
 * run.
 */
#ifndef FLIM_CUDA_CONV_TRIAL_H
#define FLIM_CUDA_CONV_TRIAL_H

#include "cuda/conv/conv_choice.h"
#include "cuda/kernels/kernels.h"

enum { FLIM_TRIAL_ARRAYS = 32 };

typedef struct flim_conv_trial {
    struct flim_cuda_device *device;
    const flim_conv_problem *problem; /* the caller's */
    flim_launch launch;
    flim_conv_arguments arguments;
    void *w_flipped; /* for flipped candidates; NULL if there can be none */
    void *array[FLIM_TRIAL_ARRAYS]; /* all but the workspace */
    int n_arrays;
    int64_t workspace_bytes; /* of arguments.scratch */
    double *samples;
    unsigned long long *nonfinite;
    cudaEvent_t begin, end;
} flim_conv_trial;

/* After a failure there is nothing to free. */
flim_status flim_conv_trial_make(flim_conv_trial *trial, struct flim_cuda_device *device, const flim_conv_problem *problem,
                                 flim_error *err);
void flim_conv_trial_free(flim_conv_trial *trial);

/* Makes the workspace at least so large: before a candidate that needs it is timed or checked. */
flim_status flim_conv_trial_workspace(flim_conv_trial *trial, int64_t bytes, flim_error *err);

/* Fastest of three runs after one to warm up; a candidate that is far behind `best` after the first is not timed further. */
flim_status flim_conv_trial_time(flim_conv_trial *trial, const flim_conv_choice *candidate, double best, double *microseconds,
                                 flim_error *err);

/* Compares outputs spread over the tensor, and all sums, with direct sums in double; *error = |got - expected| / |expected|
 * of the worst tensor, infinite if any output is not finite or a sum over the output is wrong.  Outputs and the workspace
 * hold NaN before. */
flim_status flim_conv_trial_check(flim_conv_trial *trial, const flim_conv_choice *candidate, double *error, flim_error *err);

#endif

/* The search: for one convolution problem the fastest plan that computes rightly on this card.
 *
 * Candidates are our own kernels (conv_plan.h) and cuDNN's engines (cudnn_plan.h) that fit the workspace limit.  With benchmark all
 * are timed, and from the fastest on (of equals within 1 % the one with the least workspace) the first that agrees with direct sums is
 * taken; without, our own kernel where there is one, else
 * cuDNN's first, checked all the same.  For a described card nothing runs: it is what the search without timing would take.
 * Owns: the plan found is the caller's (flim_cudnn_plan_free).
 * Errors: FLIM_ERROR_DEVICE when nothing runs or is right, with cuDNN's reason; FLIM_ERROR_MEMORY when there is no room to try;
 * FLIM_INTERRUPTED when options->stop was set.
 */
#ifndef FLIM_CUDA_PLAN_SEARCH_H
#define FLIM_CUDA_PLAN_SEARCH_H

#include "cuda/conv/conv_choice.h"

/* out->problem and out->benchmarked are set by the caller, all else is 0; on failure it holds nothing. */
flim_status flim_conv_search(struct flim_cuda_device *device, const flim_conv_search_options *options, flim_conv_choice *out,
                             flim_error *err);

#endif

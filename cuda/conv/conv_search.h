/* The search: for one convolution problem the fastest choice that computes correctly on this card.
 *
 * Candidates are the variants of the table's algorithms (conv_choice.h) that support the problem and fit the workspace limit.
 * With benchmark all are timed, and from the fastest on (of those within 1 % the one with the least workspace) the first
 *  that agrees with
 * direct sums is taken; without, the first that agrees, in the table's order.  For a described card nothing runs: the search
 * takes what it would take without timing.
 * Owns: the choice found is the caller's (flim_cudnn_plan_free).
 * Errors: FLIM_ERROR_DEVICE if nothing runs or is correct, with cuDNN's reason; FLIM_ERROR_MEMORY if there is no room to try;
 * FLIM_INTERRUPTED if options->stop was set.
 */
#ifndef FLIM_CUDA_CONV_SEARCH_H
#define FLIM_CUDA_CONV_SEARCH_H

#include "cuda/conv/conv_choice.h"

/* out->problem and out->benchmarked are set by the caller, all else is 0; on failure it holds nothing. */
flim_status flim_conv_search(struct flim_cuda_device *device, const flim_conv_search_options *options, flim_conv_choice *out,
                             flim_error *err);

/* Whether a choice that was loaded agrees with direct sums on this card; why it does not is a note in the log.  Without room
 * to try it counts as right. */
bool flim_conv_is_right(struct flim_cuda_device *device, const flim_conv_search_options *options,
                        const flim_conv_choice *choice);

#endif

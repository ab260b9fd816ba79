/* When a step sums its gradients over the ranks: events of the compute stream and of NCCL's around each bucket.
 *
 * For: `flim_bench step --parallel data`.
 * Errors: FLIM_ERROR_USAGE for a program without ranks or that does not train; FLIM_ERROR_DEVICE with CUDA's reason.
 */
#ifndef FLIM_CUDA_RANKS_TIME_H
#define FLIM_CUDA_RANKS_TIME_H

#include "cuda/program/cuda_program.h"

flim_status flim_cuda_time_exchange(flim_program *program, flim_exchange *out, flim_error *err);

#endif

/* CUDA's return codes as flim errors. */
#ifndef FLIM_CUDA_CHECK_H
#define FLIM_CUDA_CHECK_H

#include <cuda_runtime.h>

#include "core/try.h"

/* FLIM_OK, or FLIM_ERROR_DEVICE with "what: CUDA's text"; FLIM_ERROR_MEMORY if the card or pinned memory is full. */
static inline flim_status flim_cuda_check(cudaError_t code, const char *what, flim_error *err)
{
    if (code == cudaSuccess) {
        return FLIM_OK;
    }
    (void)cudaGetLastError(); /* so that the next launch is not blamed */
    return flim_fail(err, code == cudaErrorMemoryAllocation ? FLIM_ERROR_MEMORY : FLIM_ERROR_DEVICE,
                     "CUDA: %s failed: %s (%s)", what, cudaGetErrorString(code), cudaGetErrorName(code));
}

/* status = ..., then leaves for the function's clean-up path. */
#define FLIM_TRY_CUDA(call) FLIM_TRY(flim_cuda_check((call), #call, err))
#define FLIM_TRY_CUDA_DONE(call) FLIM_TRY_DONE(flim_cuda_check((call), #call, err))

#endif

/* The CUDA device behind flim_device: card, libraries and streams.
 *
 * Owns: the cuDNN handle and the streams; it frees the store of convolution choices.  Programs only borrow them and are
 * destroyed
 *       first.
 */
#ifndef FLIM_CUDA_DEVICE_H
#define FLIM_CUDA_DEVICE_H

#include <cuda_runtime.h>

#include "backend/backend.h"
#include "cuda/device/cudnn_library.h"
#include "cuda/device/nvml.h"
#include "cuda/device/storage.h"

typedef struct flim_cuda_device {
    flim_device base;
    flim_device_ops ops; /* of this floor, completed by the backend */
    int ordinal;
    int sm; /* 10 * major + minor: 75, 89, 90 */
    flim_card card;
    flim_nvml nvml;
    char driver[32];
    flim_cudnn cudnn;
    cudnnHandle_t handle;
    cudaStream_t stream, copy_stream; /* compute; host-to-device copies */
    struct flim_conv_store *conv_store; /* conv_store.h makes it for programs; NULL until then */
    void (*free_conv_store)(struct flim_cuda_device *device); /* if there is a store, called when the device closes */
} flim_cuda_device;

static inline flim_cuda_device *flim_cuda_device_of(flim_device *device)
{
    return (flim_cuda_device *)device;
}

/* How a precision stores activations, their gradients and the weights' copies. */
static inline flim_storage flim_cuda_storage(flim_precision precision)
{
    return precision == FLIM_PRECISION_FP32   ? FLIM_STORAGE_FP32
           : precision == FLIM_PRECISION_BF16 ? FLIM_STORAGE_BF16
                                              : FLIM_STORAGE_FP16;
}

/* Makes the device current for the calling thread. */
flim_status flim_cuda_device_use(flim_cuda_device *device, flim_error *err);

flim_status flim_cuda_device_count(int *count, flim_error *err);
flim_status flim_cuda_device_open(int index, flim_device **out, flim_error *err);
/* In card.c: a device that stands for a card which is not there. */
flim_status flim_cuda_describe(const flim_card *card, flim_device **out, flim_error *err);

/* FLIM_ERROR_DEVICE, with the reason, for a card that is too old to run on and to plan for. */
flim_status flim_cuda_check_capability(const char *name, int capability, flim_error *err);

/* "; beside it on the card: python3 (pid 4711) 39.50 GiB", or "". */
void flim_cuda_beside(const flim_cuda_device *device, char *text, size_t size);
/* cudaMalloc whose failure says needed and free bytes, and who holds them; `what` names the need. */
flim_status flim_cuda_malloc(flim_cuda_device *device, int64_t bytes, const char *what, void **out, flim_error *err);

#endif

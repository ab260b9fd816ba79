/* cuDNN and the driver's management library, opened at run time.
 *
 * For: a program built with CUDA must start, and compute on the CPU, if neither a driver nor cuDNN is installed.  Nothing
 *      of these libraries is linked; the few functions in use are looked up in a table.
 * Owns: the caller owns the table and closes it.  Errors: FLIM_ERROR_DEVICE with the loader's own reason.
 */
#ifndef FLIM_CUDA_LIBRARY_H
#define FLIM_CUDA_LIBRARY_H

#include <stddef.h>

#include <cudnn_graph.h> /* types, attribute names, status codes */

#include "flim/status.h"

typedef struct flim_cudnn {
    void *library; /* dlopen's */
    size_t version; /* of the library that runs: 91900 = 9.19.0 */
    cudnnBackendDescriptor_t card; /* properties of a described card, for which plans are made; NULL: of the handle's own */
    size_t (*get_version)(void);
    const char *(*status_text)(cudnnStatus_t status);
    void (*last_error)(char *message, size_t size);
    cudnnStatus_t (*create)(cudnnHandle_t *handle);
    cudnnStatus_t (*destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*descriptor_create)(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out);
    cudnnStatus_t (*descriptor_destroy)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variant_pack);
} flim_cudnn;

/* Opens libcudnn.so.9.  Safe to call if it is missing: the error says where it was looked for. */
flim_status flim_cudnn_open(flim_cudnn *cudnn, flim_error *err);
void flim_cudnn_close(flim_cudnn *cudnn); /* zeroed is allowed */

/* Makes *cudnn plan for a card that need not be there: json has its properties as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
 * wants them (cuDNN 9.11 or later).  Handles are NULL from then on; flim_cudnn_close undoes it. */
flim_status flim_cudnn_describe(flim_cudnn *cudnn, const char *name, const char *json, flim_error *err);

/* "580.159.04", from the driver's management library or /proc; "unknown" if neither tells. */
void flim_driver_version(char *text, size_t size);

#endif

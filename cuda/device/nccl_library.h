/* NCCL, opened at run time where ranks train together on cards: a build needs none of its files.
 *
 * The types and prototypes below are those of NCCL 2's nccl.h (github.com/NVIDIA/nccl, src/nccl.h.in), whose ABI has kept them
 * since 2.0; what is not used is left out.
 * Owns: dlopen's handle, until flim_nccl_close.
 * Errors: FLIM_ERROR_DEVICE if libnccl.so.2 is not there or lacks a function.
 */
#ifndef FLIM_NCCL_LIBRARY_H
#define FLIM_NCCL_LIBRARY_H

#include <cuda_runtime.h>

#include "flim/status.h"

typedef struct ncclComm *flim_nccl_comm; /* ncclComm_t */
typedef struct flim_nccl_id { /* ncclUniqueId */
    char internal[128];
} flim_nccl_id;
enum {
    FLIM_NCCL_SUCCESS = 0,
    FLIM_NCCL_FLOAT = 7,
    FLIM_NCCL_DOUBLE = 8,
    FLIM_NCCL_SUM = 0
}; /* ncclResult_t, _DataType_t, _RedOp_t */

typedef struct flim_nccl {
    void *library;
    int version; /* 22809 = 2.28.9 */
    int (*get_version)(int *version);
    int (*get_id)(flim_nccl_id *id);
    int (*init_rank)(flim_nccl_comm *comm, int ranks, flim_nccl_id id, int rank);
    int (*destroy)(flim_nccl_comm comm);
    int (*abort_comm)(flim_nccl_comm comm);
    const char *(*error_text)(int code);
    const char *(*last_error)(flim_nccl_comm comm);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int op, flim_nccl_comm comm, cudaStream_t stream);
    int (*all_gather)(const void *in, void *out, size_t count, int type, flim_nccl_comm comm, cudaStream_t stream);
    int (*broadcast)(const void *in, void *out, size_t count, int type, int root, flim_nccl_comm comm, cudaStream_t stream);
} flim_nccl;

flim_status flim_nccl_open(flim_nccl *out, flim_error *err);
void flim_nccl_close(flim_nccl *nccl); /* zeroed is allowed */

#endif

/* A pass over the network as a list of operations with exact memory: training (forward and backward) or prediction.
 *
 * For: compile.c builds one pass for each and runs it; nothing here calls CUDA but the plan search.
 *
 * Saved for the backward pass of a unit is z, the convolution's output.  y is stored only where something must read it:
 *   - a unit without activation whose only reader adds it as a skip (the 1x1x1 skips) is folded: its reader applies its BatchNorm;
 *   - a unit whose readers apply BatchNorm and activation as they load z (conv_k3.h, conv_wgrad.h, the skip of a tail) is virtual;
 *   - where only cuDNN's forward convolution needs y, it lives until then.
 * With activation checkpointing less is kept (flim_pass_drop):
 *   - y that only later weight gradients read are written again by the pass that sums their gradient, which has z at hand;
 *   - blocks (flim_network_blocks) keep what other blocks read and no more: before the backward pass of a block its convolutions
 *     run again.  BatchNorm's statistics are those of the first time, so that the bits are, too.
 * The first two units (stem, down) are one kernel where conv_stem.h has it.  A convolution of conv_k3.h hands the sums over its
 * output to BatchNorm, and in the backward pass those that the unit before it needs, so that both need no pass of their own; the
 * stem's backward kernel takes BatchNorm's gradient of down as it loads.  A strided
 * 1x1x1 convolution's input gradient is computed on the strided grid and spread by its reader.
 *
 * Memory: every tensor is a buffer of an arena (backend/arena.h).  Last partial batches (n < batch) run the plans of the full batch: what the spare cells hold is never read, except by
 * cuDNN's weight gradients, before which the spare part of x and dz is zeroed.
 */
#ifndef FLIM_CUDA_PASS_H
#define FLIM_CUDA_PASS_H

#include "backend/arena.h"
#include "cuda/conv/conv3x3x3.h"
#include "cuda/conv/conv_stem.h"
#include "cuda/device/cuda_device.h"
#include "cuda/kernels/kernels.h"

enum { FLIM_MAX_OPERATIONS = 12 * FLIM_MAX_UNITS + 16 };

typedef enum flim_operation_kind {
    FLIM_OP_CONV, /* z = conv(x) */
    FLIM_OP_NORM, /* statistics -> affine */
    FLIM_OP_TAIL, /* y from z */
    FLIM_OP_HEAD, /* mean, head, and in training loss and the head's backward */
    FLIM_OP_GRAD_SUMS, /* sums over dy, parameter gradients of BatchNorm, coefficients */
    FLIM_OP_GRAD_APPLY, /* dz */
    FLIM_OP_WEIGHT, /* dw */
    FLIM_OP_DATA, /* dx; by conv_k3.h with the sums for the unit before */
    FLIM_OP_STEM_FORWARD, /* statistics of the stem, z of the second unit */
    FLIM_OP_STEM_BACKWARD /* parameter gradients of both */
} flim_operation_kind;

typedef struct flim_operation {
    flim_operation_kind kind;
    int unit;
    bool again; /* of the forward pass, run once more in the backward pass */
} flim_operation;

typedef enum flim_buffer_use {
    FLIM_USE_SAVED,
    FLIM_USE_PASSING,
    FLIM_USE_GRADIENT,
    FLIM_USE_WORKSPACE,
    FLIM_USES
} flim_buffer_use;

typedef struct flim_pass_unit {
    const flim_unit *unit;
    int c, k; /* storage channels of x and z */
    int folder; /* the unit that applies this one's BatchNorm, or -1 */
    int readers; /* units that read y, skips included */
    bool can_drop; /* y is read again in the backward pass, and the pass that sums its gradient can write it again */
    bool rewrites_y; /* and does so */
    bool remade; /* z is made again before the backward pass of its block, and y where anything still reads it */
    bool is_virtual; /* y is never stored: readers apply affine and activation to z */
    bool k3; /* forward and data gradient by conv_k3.h */
    bool weight_from_z; /* the weight gradient applies the input unit's affine and activation to its z */
    int gradient_from; /* the k3 unit whose data gradient comes through this unit's activation, with sums; or -1 */
    int gradient_add; /* then: the unit whose dv is added, or -1 */
    bool norm_on_load; /* dz is never stored: what reads it applies BatchNorm's backward pass to that gradient and z */
    bool
        gated; /* the forward pass notes the sign of what the activation sees, so that the backward pass need not add the skip again */
    bool compact_dx; /* dx is on the strided grid */
    const flim_conv_plan *plan[3]; /* by flim_conv_op; NULL = not needed */
    int z, y, gate, dz, dx, dv, workspace[3]; /* buffers; workspace by flim_conv_op */
    /* constants, set by the program when memory is there */
    flim_norm norm;
    flim_grad_affine grad;
    float *dv_scale, *dropout;
    void *w, *w_turned, *dw;
    double *sums, *conv_sums; /* of the backward pass; of the convolution's output */
    int *counter;
    float *add_scale;
    int weight_item; /* in the program's weight table, or -1 */
} flim_pass_unit;

typedef struct flim_pass {
    const flim_network *net;
    bool train;
    bool warm
        [2]
        [2]; /* [first][last] of a window: has run once, so that all its code is loaded and it can be captured into a graph */
    int64_t batch;
    flim_storage type;
    int n_operations;
    flim_operation operation[FLIM_MAX_OPERATIONS];
    flim_arena arena; /* its steps are the operations, its uses flim_buffer_use */
    int input; /* buffer of the prepared input; for the stem kernel the plain signal, then the masks at mask_offset */
    int64_t mask_offset;
    int stem, down; /* the units of conv_stem.h, or -1 */
    int block[FLIM_MAX_UNITS], n_blocks; /* of each unit */
    void *stem_state;
    flim_pass_unit unit[FLIM_MAX_UNITS];
    int peak; /* the operation that needs most */
    int64_t at_peak[FLIM_USES]; /* the same by use, at the operation that needs most; the rest is gaps */
} flim_pass;

/* What a training pass does not keep. */
typedef struct flim_pass_drop {
    int outputs; /* how many of the y that can be written again, the largest first; flim_pass_droppable says how many there are */
    uint32_t blocks; /* a bit for each block that is made again; one of which nothing can be is left as it is */
} flim_pass_drop;

/* Lists the operations, finds plans and lays out the arena. */
flim_status flim_pass_build(flim_pass *pass, flim_cuda_device *device, const flim_network *net, flim_storage type, bool train,
                            int64_t batch, bool deterministic, const flim_pass_drop *drop, const flim_plan_options *options,
                            flim_error *err);
int flim_pass_droppable(const flim_pass *pass);
/* Bytes of what a unit keeps for the backward pass, at the operation that needs most. */
int64_t flim_pass_saved_at_peak(const flim_pass *pass, int u);

/* Shapes for the own kernels, over n cells. */
flim_stem_shape flim_pass_stem_shape(const flim_pass *pass, int64_t n);
flim_k3_shape flim_pass_k3_shape(const flim_pass *pass, int u, int64_t n);

/* Address of a buffer in an arena; NULL for FLIM_NO_BUFFER. */
static inline void *flim_pass_at(const flim_pass *pass, void *arena, int buffer)
{
    return buffer == FLIM_NO_BUFFER ? NULL : (char *)arena + pass->arena.buffer[buffer].offset;
}

/* The convolution problem of a unit in one direction. */
flim_conv_problem flim_pass_problem(const flim_unit *unit, flim_conv_op op, flim_storage type, int64_t batch,
                                    bool deterministic);

/* The gradient of unit u's y, as contributions; u = last unit: `dmean`, the head's. */
flim_status flim_pass_sources(const flim_pass *pass, void *arena, int u, const float *dmean, flim_sources *out,
                              flim_error *err);
/* What follows unit u's convolution, over `cells` cells, as the forward or the backward pass has it. */
flim_tail flim_pass_tail(const flim_pass *pass, void *arena, int u, int64_t cells, bool backward);

#endif

/* The schedule of a forward (and backward) pass: a list of operations that carry their operands, with exact memory.
 *
 * For: schedule_build.h fills it, launch.h runs its operations; fusion.h decides which tensors exist at all.
 * Memory: every tensor is a buffer of an arena (backend/arena.h).  An operation names all buffers that it reads and writes,
 * and is
 *      the only one to do so: what is registered with an operation is what lives, and what its kernel gets.
 * Last partial batches (n < batch) run the convolutions of the full batch.  Rows n..batch-1 are garbage; only cuDNN's weight
 * gradient reads them, so they are zeroed first.
 */
#ifndef FLIM_CUDA_SCHEDULE_H
#define FLIM_CUDA_SCHEDULE_H

#include "backend/arena.h"
#include "cuda/conv/conv3x3x3.h"
#include "cuda/conv/conv_stem.h"
#include "cuda/conv/conv_store.h"
#include "cuda/device/cuda_device.h"
#include "cuda/kernels/kernels.h"

enum { FLIM_MAX_OPERATIONS = 12 * FLIM_MAX_UNITS + FLIM_MAX_HEADS + 16 };

typedef enum flim_operation_kind {
    FLIM_OP_CONV, /* z = conv(x) */
    FLIM_OP_NORM, /* statistics of z -> affine */
    FLIM_OP_EPILOGUE, /* y from z */
    FLIM_OP_HEAD, /* pooled: mean, head; in training loss and the head's backward; dense: loss and its share of dy */
    FLIM_OP_GRAD_SUMS, /* sums over dy, parameter gradients of BatchNorm, coefficients; may write y again */
    FLIM_OP_GRAD_APPLY, /* dz, and dv or the fused skip's dz */
    FLIM_OP_WEIGHT, /* dw */
    FLIM_OP_DATA, /* dx; or, with z of the input unit, du of that unit and the sums of its BatchNorm */
    FLIM_OP_STEM_FORWARD, /* statistics of the stem, z of the unit that reads it; of the stem alone: its y */
    FLIM_OP_STEM_BACKWARD /* parameter gradients of both, or of the stem alone */
} flim_operation_kind;

/* Slots of an operation's operands. */
enum {
    FLIM_IN_X, /* what a convolution or the head takes */
    FLIM_IN_Z, /* output of a convolution: the unit's own; DATA: its input unit's */
    FLIM_IN_TARGET = FLIM_IN_Z, /* HEAD, dense: the prepared input; of a loss over hidden voxels: what each voxel is */
    FLIM_IN_SKIP, /* what is added to BatchNorm's output, or in its place the signs that the forward pass noted; DATA: the input unit's signs */
    FLIM_IN_GRADIENT, /* and those after it: contributions to dy (GRAD_*); dz, and for DATA the gradient to add, a dv or a skip's compact dx */
    FLIM_OPERATION_INPUTS = FLIM_IN_GRADIENT + FLIM_MAX_GRAD_INPUTS
};
enum {
    FLIM_OUT, /* the tensor that gives the operation its name */
    FLIM_OUT_SIGN_MASK, /* EPILOGUE */
    FLIM_OUT_DV = 1, /* GRAD_APPLY */
    FLIM_OUT_SKIP_DZ, /* GRAD_APPLY, where the skip's BatchNorm is fused */
    FLIM_OPERATION_OUTPUTS
};

typedef struct flim_operation {
    flim_operation_kind kind;
    int unit, head; /* HEAD: the head, and the unit that it reads */
    int in[FLIM_OPERATION_INPUTS], out[FLIM_OPERATION_OUTPUTS], scratch; /* buffers, or FLIM_NO_BUFFER */
    flim_input_form
        input_form; /* of x, of what is added (NORM_ON_LOAD: z, to which BatchNorm is applied), or of STEM_BACKWARD's gradient */
    const flim_conv_choice *conv; /* of those that convolve */
    bool recomputed; /* of the forward pass, run once more in the backward pass */
} flim_operation;

typedef enum flim_buffer_use {
    FLIM_USE_SAVED,
    FLIM_USE_TRANSIENT,
    FLIM_USE_GRADIENT,
    FLIM_USE_WORKSPACE,
    FLIM_USES
} flim_buffer_use;

/* The tensors that a unit may have in the arena (docs/glossary.md). */
typedef enum flim_buffer_kind {
    FLIM_BUFFER_Z, /* (n,conv_out,k) */
    FLIM_BUFFER_Y, /* (n,out,k) */
    FLIM_BUFFER_SIGN_MASK, /* (n,conv_out,k/8): signs of what the activation sees */
    FLIM_BUFFER_DZ, /* as z */
    FLIM_BUFFER_DX, /* as x; of a strided 1x1x1 convolution (n,conv_out,c): its reader spreads it */
    FLIM_BUFFER_DV, /* as z: the gradient of what the unit adds */
    FLIM_BUFFER_HEAD_DY, /* as y, of a unit with a dense head: what the head gives to its gradient */
    FLIM_UNIT_BUFFERS,
    FLIM_BUFFER_INPUT = FLIM_UNIT_BUFFERS, /* the prepared input */
    FLIM_BUFFER_VOXEL, /* fp32 (n,T,H,W): what each voxel of the input is (backend/hidden.h) */
    FLIM_BUFFER_SCRATCH
} flim_buffer_kind;

typedef struct flim_buffer_label {
    flim_buffer_kind kind;
    int unit; /* -1 = none */
} flim_buffer_label;

/* How a unit's output reaches its readers. */
typedef enum flim_fusion {
    FLIM_FUSION_NONE, /* y is stored */
    FLIM_FUSION_SKIP, /* partner, the only reader, adds it and applies its BatchNorm to z */
    FLIM_FUSION_ON_LOAD, /* readers apply BatchNorm and activation as they load z */
    FLIM_FUSION_STEM, /* partner, the only reader, is computed by the same kernel: none of this unit's tensors is stored */
    FLIM_FUSION_STEM_ALONE /* y is stored, and nothing else: the stem's kernels apply BatchNorm, forward and backward */
} flim_fusion;

typedef enum flim_recompute_state {
    FLIM_KEPT,
    FLIM_Y_RECOMPUTABLE, /* y is kept for weight gradients only, and could be written again (fusion.h) */
    FLIM_Y_RECOMPUTED, /* and is */
    FLIM_Z_RECOMPUTED /* the convolution runs again before the backward pass of its block, or before a data gradient of the next one that
                       * reads its z; y, where anything still reads it */
} flim_recompute_state;

typedef struct flim_schedule_unit {
    const flim_unit *unit;
    int c, k; /* storage channels of x and z */
    flim_fusion fusion;
    int partner; /* the other unit of a fusion; of a stem's reader: the stem; or -1 */
    int gradient_from; /* the unit whose data gradient comes through this unit's activation, with sums, and is then its dv as well; or -1 */
    flim_recompute_state recompute;
    bool conv3x3x3; /* forward and data gradient by conv3x3x3.h on the parameters */
    bool gathers; /* the convolution on stored weights gathers the sums over its output */
    const flim_conv_choice *conv[3]; /* by flim_conv_op; NULL = not needed */
    int buffer[FLIM_UNIT_BUFFERS], scratch[3]; /* buffers; scratch by flim_conv_op */
    /* constants, set by the program when memory is there */
    flim_norm norm;
    flim_grad_affine grad;
    float *dv_scale, *dropout;
    void *w, *w_flipped, *dw;
    double *sums, *conv_sums; /* of the backward pass; of the convolution's output */
    int *counter;
    float *add_scale;
    void *stem_state; /* of a stem's reader */
    int weight_item; /* in the program's weight table, or -1 */
} flim_schedule_unit;

typedef struct flim_schedule {
    const flim_network *net;
    bool train;
    bool warm[2]
             [2]; /* [first][last] of an accumulation: has run once, so that its code is loaded and a graph can be captured */
    bool deterministic;
    bool no_stem; /* flim_conv_search_options.no_stem */
    int64_t batch;
    flim_storage type;
    int n_operations;
    flim_operation operation[FLIM_MAX_OPERATIONS];
    flim_arena arena; /* its steps are the operations, its uses flim_buffer_use */
    flim_buffer_label label[FLIM_ARENA_BUFFERS];
    int input; /* buffer of the prepared input */
    int voxel; /* buffer that says what each voxel is, of networks with a third input channel; else FLIM_NO_BUFFER */
    int64_t mask_offset; /* of the masks in it, where the first kernel takes signal and masks as they are; else 0 */
    uint8_t
        unfused[FLIM_MAX_UNITS]; /* bits by flim_conv_op: directions whose fused convolution failed its check on this card */
    int n_blocks; /* of the network: what recomputation takes as wholes */
    flim_schedule_unit unit[FLIM_MAX_UNITS];
    int peak; /* the operation that needs most */
    int64_t at_peak[FLIM_USES]; /* the same by use, at the operation that needs most; the rest is gaps */
} flim_schedule;

/* What a training step recomputes. */
typedef struct flim_recompute_set {
    int outputs; /* how many of the recomputable y, the largest first; flim_schedule_recomputable says how many there are */
    uint32_t blocks; /* a bit for each block; one in which nothing can be recomputed is left as it is */
} flim_recompute_set;

/* Address of a buffer in an arena; NULL for FLIM_NO_BUFFER. */
static inline void *flim_schedule_at(const flim_schedule *schedule, void *arena, int buffer)
{
    return buffer == FLIM_NO_BUFFER ? NULL : (char *)arena + schedule->arena.buffer[buffer].offset;
}

/* The buffer that holds unit u's dv, for the unit that it adds: one of its own, or the data gradient that came through its activation;
 * FLIM_NO_BUFFER if what it adds is fused into it. */
static inline int flim_schedule_dv_of(const flim_schedule *schedule, int u)
{
    const flim_schedule_unit *su = &schedule->unit[u];
    return su->gradient_from >= 0 ? schedule->unit[su->gradient_from].buffer[FLIM_BUFFER_DX] : su->buffer[FLIM_BUFFER_DV];
}

/* The stem that unit u's kernel computes: what u reads, or u itself if it is the stem alone; or -1. */
static inline int flim_schedule_stem_of(const flim_schedule *schedule, int u)
{
    const int partner = schedule->unit[u].partner;
    return schedule->unit[u].fusion == FLIM_FUSION_STEM_ALONE                   ? u
           : partner >= 0 && schedule->unit[partner].fusion == FLIM_FUSION_STEM ? partner
                                                                                : -1;
}

#endif

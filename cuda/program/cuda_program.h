/* A compiled network on a CUDA device: what its functions share.
 *
 * For: compile.c fills it, layout.c finds the offset of everything in its one allocation, program_ops.c allocates and
 * destroys it,
 *      state.c reads and writes its state, execute.c runs it by transfer.c, graph.c and launch.c.
 * Owns: its allocation, graphs, events and pinned memory; the device is borrowed and outlives it.
 */
#ifndef FLIM_CUDA_PROGRAM_H
#define FLIM_CUDA_PROGRAM_H

#include "cuda/device/nccl_library.h"
#include "cuda/kernels/ranks.h"
#include "cuda/program/device_cache.h"
#include "cuda/program/schedule.h"

enum { FLIM_STAGES = 2, FLIM_SLOTS = 4, FLIM_MAX_GRAPHS = 32 };

/* Small arguments of a call, filled on the host in pinned memory and copied before it. */
typedef struct flim_call_block {
    int64_t bytes;
    flim_device_step *step;
    int32_t *label; /* (batch) */
    float *weight; /* (batch) */
    float *target; /* (batch,K), or NULL if no head has soft targets */
    flim_cell_id *id; /* (batch) */
} flim_call_block;

typedef struct flim_stage { /* device copy of a batch on its way in */
    float *signal;
    uint8_t *mask;
    cudaEvent_t copied, free;
} flim_stage;

typedef struct flim_slot { /* pinned host memory of one call */
    char *block;
    cudaEvent_t done;
} flim_slot;

typedef struct flim_pending_logits {
    float *pinned, *to;
    int64_t count; /* 0 = nothing pending */
    cudaEvent_t done;
} flim_pending_logits;

typedef struct flim_graph {
    bool train, first, last;
    int64_t n;
    cudaGraphExec_t exec;
} flim_graph;

/* A part of the gradients that is summed over the ranks as soon as all of it is there. */
typedef struct flim_bucket {
    flim_range range;
    int ready; /* the operation of the training schedule after which it is */
} flim_bucket;
enum { FLIM_BUCKETS = 4 };

/* What a program has for ranks that train together (ranks.h); on = false: it trains alone. */
typedef struct flim_cuda_ranks {
    bool on;
    bool sync; /* BatchNorm is over the batches of all: `pending` then has the running statistics, as without ranks */
    int rank, size;
    flim_nccl nccl;
    flim_nccl_comm comm;
    cudaStream_t stream; /* of NCCL's calls, beside the backward pass */
    cudaEvent_t ready, done;
    flim_bucket bucket[FLIM_BUCKETS]; /* in the order in which they are ready */
    int n_buckets, forward_end; /* forward_end: the last operation of the forward pass */
    int64_t cells; /* of the step at work, on this rank */
    int single; /* of the step at work: see flim_step */
    float *running; /* (S) of the update at work; `pending` then has the moves of a call (S + 1) */
    float *all_moves, *all_gradients; /* (ranks, S + 1), (ranks, P) with `deterministic` */
    int64_t sums; /* doubles that the widest BatchNorm has to share, with `sync` */
    double *own, *all; /* (sums), (ranks, sums): of this rank's part of a batch, of all parts (kernels/ranks.h) */
} flim_cuda_ranks;

typedef struct flim_cuda_program {
    flim_program base;
    flim_cuda_device *device;
    flim_launch launch;
    bool scaled; /* tf32 as fp16 with a power-of-two scale per tensor */
    bool dynamic; /* fp16: loss scaling */
    flim_schedule train, predict; /* batch 0: none */
    int64_t batch; /* the larger of both */

    /* one allocation; laid out by layout.c, the arena and the device cache behind it */
    char *memory;
    int64_t fixed_bytes, arena_bytes;
    void *arena;
    float *parameters, *gradients, *moment1, *moment2, *statistics, *pending; /* (P) x 4, (S) x 2 */
    float *average, *average_statistics; /* (P), (S), or NULL */
    flim_device_state *state;
    flim_call_block call; /* on the device */
    flim_weight_table *weights; /* train's table where there is training, else predict's */
    flim_weight_table weights_host;
    double *norm_partial; /* FLIM_NORM_BLOCKS */
    float *partial; /* of statistics and gradient sums */
    flim_head_kernels head[FLIM_MAX_HEADS]; /* pooled heads by their numbers */
    flim_dense_kernels dense[FLIM_MAX_HEADS]; /* dense ones */
    flim_hidden_kernels hidden[FLIM_MAX_HEADS]; /* those of them with a loss over hidden voxels, beside dense */
    flim_cuda_ranks ranks;
    flim_stage stage[FLIM_STAGES];
    flim_cuda_cache cache; /* behind the arena */
    int64_t bytes_parameters, bytes_gradients, bytes_moments, bytes_average, bytes_statistics, bytes_weights, bytes_stages,
        bytes_scratch, bytes_ranks;

    flim_slot slot[FLIM_SLOTS];
    flim_pending_logits logits[FLIM_SLOTS];
    int64_t calls; /* train and predict */
    flim_graph graph[FLIM_MAX_GRAPHS];
    int n_graphs;
    bool graphs_off; /* capturing failed once, or tensors are to be inspected */
    float weight_scale[FLIM_MAX_UNITS]; /* inspected: of each unit's weights in the last call, before its update; 1 = none */
    flim_device_state host_state; /* counters set before allocation */
} flim_cuda_program;

static inline flim_cuda_program *flim_cuda_program_of(flim_program *program)
{
    return (flim_cuda_program *)program;
}

/* A tensor of the network in an array laid out like the parameters or the statistics; NULL where there is no such tensor or
 * no array yet. */
static inline float *flim_cuda_tensor(const flim_cuda_program *program, float *array, int unit, flim_tensor_role role,
                                      int index)
{
    const flim_tensor *t = flim_network_tensor(&program->base.net, unit, role, index);
    return t && array ? array + t->offset : NULL;
}

#endif

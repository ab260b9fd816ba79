/* What the files of a CPU program share: the network's nodes, its memory plan, its state, and how to find a tensor in it.
 *
 * Memory: every activation is (n,T,H,W,C) floats in one arena.  Of a unit, z = conv(x) + bias is stored from the forward to
 * the
 *   backward pass; y only if a skip, a pool or dropout went into it, else it is recomputed from z, cell by cell, in the
 *   worker's buffer just before the convolution that reads it.
 * Recompute: with activation checkpointing, the z inside a block is dropped after the forward pass and recomputed before the
 * block's
 *   backward pass, by the same convolutions from what the block before left.  BatchNorm's statistics stay those of the
 *   forward pass, so all bits are the same.
 * Order: a unit's loop over the cells does everything for one cell before the next, so that the cache holds what the next
 * pass reads.
 *   Threads are used in two ways: as long as there are at least as many cells as threads, each worker takes its share of them
 *   (MODE_CELLS); the rest is done one cell at a time by all threads (MODE_SHARED).
 * Steps of the memory plan: 0..U-1 forward of unit u, U the heads, 2U-u backward of unit u.
 * Files, each including only those before it: cell_loop, cpu_sync, cpu_layout, forward, heads, backward, cpu_ranks, cpu_predict,
 * cpu_compile.
 */
#ifndef FLIM_CPU_PROGRAM_H
#define FLIM_CPU_PROGRAM_H

#include "backend/arena.h"
#include "backend/backend.h"
#include "cpu/conv/cpu_conv.h"
#include "cpu/layers/cpu_head.h"
#include "cpu/layers/cpu_layer.h"

typedef struct flim_cpu_device {
    flim_device base;
    dnnl_engine_t engine;
    const flim_cpu_kernels *kernels;
} flim_cpu_device;

typedef enum flim_cpu_mode { FLIM_CPU_MODE_CELLS, FLIM_CPU_MODE_SHARED, FLIM_CPU_MODES } flim_cpu_mode;

/* A source of a unit's dy: the input gradient of the convolution of unit `from`, or (skip) the dv of unit `from`. */
typedef struct flim_cpu_source {
    int from;
    bool skip;
} flim_cpu_source;

typedef struct flim_cpu_node {
    flim_cpu_layer layer;
    flim_cpu_conv conv[FLIM_CPU_MODES];
    void *weight[FLIM_CPU_MODES][2]; /* laid out for FORWARD and BACKWARD_X */
    size_t weight_offset, bias_offset, gamma_offset, beta_offset; /* in the parameters, floats */
    size_t mean_offset, var_offset; /* in the statistics */
    /* training: numbers of buffers in the arena, FLIM_NO_BUFFER = none */
    int z, y, dx, dv;
    int dz; /* with `inspect`; else each worker has one cell of it */
    bool recomputed; /* z is dropped after the forward pass and recomputed in the backward pass */
    bool save_y; /* y has a buffer */
    bool store_dv; /* dv has a buffer; else apply computes it from dy */
    bool dv_in_next; /* the dv of a cell is computed in the backward loop of unit u+1, as soon as its dy is complete */
    bool y_in_next; /* a saved y is computed in the forward loop of unit u+1, which reads it */
    flim_cpu_source source[2 * FLIM_MAX_UNITS];
    int n_sources;
    int first_use, last_use; /* first and last unit that reads y, as x or as a skip; -1 = none */
    int heads; /* heads that read y */
    float *dropout; /* (train_batch,period), or NULL */
    /* prediction: numbers of buffers in eval_arena */
    int eval_z, eval_y;
} flim_cpu_node;

/* Of one head: mean and its gradient (n,Cin), logits (n,K'); work: flim_cpu_head_work doubles, or (n) losses of a dense head. */
typedef struct flim_cpu_head_memory {
    float *mean, *dmean, *logits;
    double *work;
} flim_cpu_head_memory;

/* What a thread has to itself. */
typedef struct flim_cpu_worker {
    flim_cpu_conv_memory memory[FLIM_MAX_UNITS];
    float *x, *dz; /* one cell each: largest input or y, largest z */
    double *margins; /* flim_cpu_hidden_work, of networks that predict hidden voxels */
    void *scratch; /* oneDNN's */
    void *dweight, *sum; /* one cell's weight gradient, and the sum over the worker's cells */
    bool summed; /* sum holds something */
} flim_cpu_worker;

/* What a rank's batch adds to the totals. */
typedef struct flim_cpu_share {
    flim_cpu_loss loss;
    int64_t cells;
} flim_cpu_share;

typedef struct flim_cpu_program {
    flim_program base;
    flim_cpu_device *device;
    int threads;
    flim_cpu_node node[FLIM_MAX_UNITS];
    flim_arena arena, eval_arena;
    int n_blocks, blocks_recomputed; /* the first of them drop their insides */
    bool uses[FLIM_CPU_MODES]; /* modes that some batch of this program needs */
    int cell_workers; /* threads, or 0 without MODE_CELLS */
    flim_cpu_worker *workers; /* (cell_workers), then one for MODE_SHARED where it is used */
    size_t x_floats, dz_floats, scratch_bytes[FLIM_CPU_MODES], dweight_bytes, plain_floats, partial_doubles;
    size_t sync_doubles; /* of the widest BatchNorm */
    size_t head_floats, head_doubles, head_partials; /* of all heads; doubles of one cell for the mean */
    /* allocated */
    unsigned char *activations; /* arena.bytes, or eval_arena.bytes per worker (with `inspect` per cell) */
    size_t activation_bytes;
    float *parameters, *gradients, *moment1, *moment2; /* (P) */
    float *statistics, *statistics_before; /* (S) */
    float *average, *average_statistics; /* (P), (S), or NULL */
    unsigned char *laid_out, *worker_memory;
    size_t laid_out_bytes, worker_bytes;
    double *partial;
    double *own; /* (sync_doubles): moments or sums of this program's batch for one BatchNorm */
    double *of_ranks; /* (ranks,sync_doubles): those of all, of programs that sync them */
    float *rows, *dropout_rows, *plain;
    unsigned char *hidden; /* (batch,T,H,W): which voxels are, or NULL: of networks with a third input channel */
    flim_hidden_totals *hidden_sums; /* (batch), likewise */
    size_t hidden_bytes, hidden_cells;
    size_t row_floats, dropout_floats;
    /* training shared by several ranks: this one's moves of the running statistics in a call (S), and those of all (ranks,S) */
    flim_cpu_move *moves, *all_moves;
    flim_cpu_share *shares; /* (ranks) */
    float *head_data; /* (head_floats), (head_doubles): divided among the heads */
    double *head_work;
    flim_cpu_head_memory head[FLIM_MAX_HEADS];
    /* state */
    bool stale[FLIM_CPU_MODES][2]; /* weights changed since they were laid out */
    flim_counters counters;
    flim_totals totals;
    const flim_step *step; /* the one being trained */
    double momentum; /* of the running statistics in it */
    bool noting; /* moves of the running statistics are noted in `moves` */
    bool frozen; /* BatchNorm's running statistics are constants in training: tests compare micro-batches with whole ones */
} flim_cpu_program;

/* Cell i of a buffer, `floats` per cell. */
static inline float *flim_cpu_cell(const flim_cpu_program *program, int buffer, size_t floats, int64_t i)
{
    return (float *)(void *)(program->activations + program->arena.buffer[buffer].offset) + (size_t)i * floats;
}

/* z of cell i of a unit. */
static inline float *flim_cpu_z(const flim_cpu_program *program, const flim_cpu_node *node, int64_t i)
{
    return flim_cpu_cell(program, node->z, node->layer.z_floats, i);
}

static inline flim_cpu_norm flim_cpu_node_norm(const flim_cpu_program *p, const flim_cpu_node *node)
{
    if (!node->layer.bn) {
        return (flim_cpu_norm){0};
    }
    return (flim_cpu_norm){.gamma = p->parameters + node->gamma_offset,
                           .beta = p->parameters + node->beta_offset,
                           .running_mean = p->statistics + node->mean_offset,
                           .running_var = p->statistics + node->var_offset,
                           .momentum = p->momentum,
                           .move_mean = p->noting ? p->moves + node->mean_offset : NULL,
                           .move_var = p->noting ? p->moves + node->var_offset : NULL};
}

static inline flim_cpu_team flim_cpu_team_of(const flim_cpu_program *p, flim_cpu_mode mode)
{
    return (flim_cpu_team){p->device->kernels, mode == FLIM_CPU_MODE_SHARED ? p->threads : 1};
}

#endif

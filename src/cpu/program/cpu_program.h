/* A network compiled for the CPU: its layers, its memory plan, and the passes of a step.
 *
 * Memory: every activation is (n,T,H,W,C) floats in one arena (plan.c).  Of a unit, z = conv(x) + bias is kept from the forward
 *   to the backward pass; y only where a skip, a pool or dropout went into it, else it is made again from z, cell by cell, in the
 *   worker's own buffer just before the convolution that reads it.
 * Recompute: units stand in blocks (stem + down, res1, ...).  With activation checkpointing the z of a block's inside is dropped
 *   after the forward pass and made again, by the same convolutions from what the block before left, before the block's backward pass;
 *   BatchNorm's statistics stay those of the forward pass, so all bits are the same.
 * Order: a unit's loop over the cells does everything for one cell before the next, so that what one pass writes the next finds
 *   in the cache.  Two ways to use the threads: as long as there are at least as many cells as threads each worker takes cells
 *   of its own (MODE_CELLS); what is left over is done one cell at a time by all threads (MODE_SHARED).
 * Steps of the plan: 0..U-1 forward of unit u, U the head, 2U-u backward of unit u.
 */
#ifndef FLIM_CPU_PROGRAM_H
#define FLIM_CPU_PROGRAM_H

#include "backend/arena.h"
#include "cpu/conv/cpu_conv.h"
#include "cpu/layers/cpu_head.h"
#include "cpu/layers/cpu_layer.h"
#include "backend/backend.h"

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
    bool remade; /* z is dropped after the forward pass and made again in the backward pass */
    bool save_y; /* y has a buffer */
    bool store_dv; /* gate writes dv; else apply reads dy and gates it itself */
    bool from_next; /* the gate of a cell runs in the backward loop of unit u+1, as soon as its dy is complete */
    bool y_in_next; /* a saved y is made in the forward loop of unit u+1, which reads it */
    flim_cpu_source source[2 * FLIM_MAX_UNITS];
    int n_sources;
    int first_use, last_use; /* first and last unit that reads y, as x or as a skip; -1 = none but the head */
    float *dropout; /* (train_batch,period), or NULL */
    /* prediction: numbers of buffers in eval_arena */
    int eval_z, eval_y;
} flim_cpu_node;

/* What a thread has to itself. */
typedef struct flim_cpu_worker {
    flim_cpu_conv_memory memory[FLIM_MAX_UNITS];
    float *x, *dz; /* one cell each: largest input or y, largest z */
    void *scratch; /* oneDNN's */
    void *dweight, *sum; /* one cell's weight gradient, and the sum over the worker's cells */
    bool summed; /* sum holds something */
} flim_cpu_worker;

typedef struct flim_cpu_program {
    flim_program base;
    flim_cpu_device *device;
    int threads;
    flim_cpu_node node[FLIM_MAX_UNITS];
    flim_arena arena, eval_arena;
    int n_blocks, blocks_remade; /* the first of them drop their insides */
    bool uses[FLIM_CPU_MODES]; /* modes that some batch of this program needs */
    int cell_workers; /* threads, or 0 without MODE_CELLS */
    flim_cpu_worker *workers; /* (cell_workers), then one for MODE_SHARED where it is used */
    size_t x_floats, dz_floats, scratch_bytes[FLIM_CPU_MODES], dweight_bytes, plain_floats, partial_doubles, head_doubles;
    /* allocated */
    unsigned char *activations; /* arena.bytes, or eval_arena.bytes a worker */
    size_t activation_bytes;
    float *parameters, *gradients, *moment1, *moment2; /* (P) */
    float *statistics, *statistics_before; /* (S) */
    unsigned char *laid_out, *worker_memory;
    size_t laid_out_bytes, worker_bytes;
    double *partial;
    float *rows, *dropout_rows, *plain;
    size_t row_floats, dropout_floats;
    float *mean, *dmean, *logits; /* head: (n,Cin), (n,Cin), (n,K') */
    double *head_work;
    /* state */
    bool stale[FLIM_CPU_MODES][2]; /* weights changed since they were laid out */
    flim_counters counters;
    flim_totals totals;
    bool window_bad; /* something in this window was not finite */
    bool dropping; /* this step has dropout */
    bool frozen; /* BatchNorm's running statistics are constants in training: tests compare micro-batches with whole ones */
} flim_cpu_program;

/* plan.c: which buffers there are, what they are for and where they lie; sizes of everything that allocate will allocate. */
void flim_cpu_plan(flim_cpu_program *program);
flim_status flim_cpu_plan_memory(const flim_cpu_program *program, flim_memory_plan *plan, flim_error *err);
flim_status flim_cpu_plan_allocate(flim_cpu_program *program, flim_error *err);
void flim_cpu_plan_free(flim_cpu_program *program);

/* Where cell i of a buffer lies; `floats` of a cell. */
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
    return (flim_cpu_norm){p->parameters + node->gamma_offset, p->parameters + node->beta_offset,
                           p->statistics + node->mean_offset, p->statistics + node->var_offset};
}

static inline flim_cpu_team flim_cpu_team_of(const flim_cpu_program *p, flim_cpu_mode mode)
{
    return (flim_cpu_team){p->device->kernels, mode == FLIM_CPU_MODE_SHARED ? p->threads : 1};
}

/* walk.c: runs `body` for cells 0..n-1: in MODE_CELLS by all workers at once for as many as divide evenly among them, the rest
 * in MODE_SHARED.  The first error ends it. */
typedef flim_status flim_cpu_body(flim_cpu_program *program, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell,
                                  void *context, flim_error *err);
flim_status flim_cpu_for_cells(flim_cpu_program *program, int64_t n, flim_cpu_body *body, void *context, flim_error *err);
/* Lays out the weights for the modes that a batch of n cells will use. */
flim_status flim_cpu_refresh_weights(flim_cpu_program *program, int64_t n, bool backward, flim_error *err);
/* The head with its parameters; gradients where `training`. */
flim_cpu_head flim_cpu_program_head(flim_cpu_program *program, bool training);

/* forward.c, backward.c, predict.c */
flim_status flim_cpu_forward_pass(flim_cpu_program *program, const flim_batch *batch, float dropout, flim_error *err);
flim_status flim_cpu_backward_pass(flim_cpu_program *program, const flim_batch *batch, flim_error *err);
/* Makes the dropped z of a block again. */
flim_status flim_cpu_remake_block(flim_cpu_program *program, const flim_batch *batch, int block, flim_error *err);
flim_status flim_cpu_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err);
/* x of unit u for a cell: the batch itself, a saved y, or made from z in worker->x. */
const float *flim_cpu_unit_input(const flim_cpu_program *program, flim_cpu_mode mode, flim_cpu_worker *worker,
                                 const flim_batch *batch, int u, int64_t cell);
/* The skip term of unit u for a cell in training. */
flim_cpu_term flim_cpu_unit_skip(const flim_cpu_program *program, int u, int64_t cell);

flim_status flim_cpu_compile(flim_device *device, const flim_network *net, const flim_program_options *options,
                             flim_program **out, flim_error *err);
/* unit_run.c */
flim_status flim_cpu_run_unit(flim_device *device, const flim_unit *unit, flim_precision precision, const flim_unit_run *run,
                              flim_error *err);
flim_status flim_cpu_run_head(flim_device *device, const flim_head *head, flim_precision precision, const flim_head_run *run,
                              flim_error *err);

#endif

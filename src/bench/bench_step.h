/* What the files of flim_bench step share: its options, what is measured, and how that is shown.
 *
 * For: bench_step.c, which measures, and bench_step_output.c, which prints and writes.
 * Owns: bench_step.c's `release` frees what a flim_bench_steps holds.
 * Errors: those of flim/device.h, and of writing files.
 */
#ifndef FLIM_BENCH_STEP_H
#define FLIM_BENCH_STEP_H

#include <stdio.h>

#include "flim/choices.h"
#include "flim/dataset.h"
#include "flim/device.h"

typedef struct flim_step_options {
    char *device, *data; /* texts are "" if not given */
    flim_precision precision;
    flim_parallel parallel;
    int preset; /* -1 = not given */
    char *weights_in, *weights_out, *grads_out, *losses, *json;
    int64_t width, depth, steps, warmup, batch, accumulate, classes, bins, pixels;
    uint64_t seed;
    double lr, weight_decay, epsilon, dropout, block_dropout;
    bool use_dropout, benchmark, deterministic, parts, allow_external, pretrain, reverse;
} flim_step_options;

/* What a run of steps needs. */
typedef struct flim_bench_steps {
    const flim_step_options *o;
    flim_ranks *ranks; /* NULL: this process alone */
    flim_device *device;
    flim_dataset *dataset; /* NULL: synthetic cells */
    flim_reader *reader;
    flim_network net;
    flim_precision precision;
    flim_program *program;
    float *parameters, *statistics; /* (P), (S) the initial weights */
    flim_batch batch;
    int64_t cells; /* N of the protocol */
    double *ms, *loss; /* (steps) */
} flim_bench_steps;

typedef struct flim_step_summary {
    double median, min, max, cells_per_s; /* cells of all ranks */
    double in_a_row; /* ms per step; 0 if steps cannot overlap with copies */
    int64_t peak_bytes;
    bool replays; /* flim_program_replays */
    char device[24]; /* "cpu", "cuda:0" */
    double work[FLIM_WORKS]; /* ms of its operations, each timed alone */
    double parts; /* their sum; 0 where the backend does not time them */
    flim_exchange exchange; /* n = 0: no ranks, or the backend does not time their sums */
} flim_step_summary;

/* Cells of a step, of all ranks. */
static inline int64_t flim_step_cells(const flim_bench_steps *b)
{
    return b->o->batch * b->o->accumulate * flim_ranks_size(b->ranks);
}

void flim_step_print(const flim_bench_steps *b, const flim_step_summary *s, FILE *out);
flim_status flim_step_write_json(const flim_bench_steps *b, const flim_step_summary *s, flim_error *err);
flim_status flim_step_write_losses(const flim_bench_steps *b, flim_error *err);
/* The gradients of the step just made, as a weights file without statistics. */
flim_status flim_step_write_gradients(const flim_bench_steps *b, flim_error *err);
flim_status flim_step_write_weights(const flim_bench_steps *b, flim_error *err);

#endif

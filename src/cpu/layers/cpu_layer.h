/* The part of a unit that is not its convolution, on one cell at a time: BatchNorm statistics, normalise + skip + leaky ReLU
 * + pool + dropout, and their backward; with the sums over a batch that lie between the passes.
 *
 * A training step does, for a unit u with z = conv(x) + bias of n cells:
 *   forward   moments of each cell as z is made -> merge_moments -> finish_moments -> forward of each cell, wherever y is wanted
 *   backward  dv of each cell as dy is computed -> sum_dv -> finish_dv -> apply of each cell gives dz
 * What merge_moments and sum_dv give may be joined with that of other batches before it is finished (program/cpu_sync.h).
 * Layout: z (T,H,W,C), y (T/pool,H,W,C), channels last, floats.  Rows are `period` floats (kernels.h).
 * Sums: each cell is cut into `chunks` runs of time bins, each with a partial sum of its own, added up in order in double:
 * the
 *   result does not depend on the number of threads.  partial is (n,chunks,2,period) doubles.
 * Owns: nothing; the caller hands in the memory.  Cannot fail.
 */
#ifndef FLIM_CPU_LAYER_H
#define FLIM_CPU_LAYER_H

#include <stdint.h>

#include "cpu/layers/moments.h"
#include "cpu/layers/running.h"
#include "cpu/layers/vector_kernels.h"
#include "flim/network.h"
#include "flim/random.h"

/* Who computes: all `threads` share one cell, or (threads = 1) the caller alone, perhaps inside a parallel region. */
typedef struct flim_cpu_team {
    const flim_cpu_kernels *kernels;
    int threads;
} flim_cpu_team;

enum { FLIM_CPU_LAYER_ROWS = 8 };

typedef struct flim_cpu_layer {
    flim_unit unit;
    bool bn;
    bool plain_y; /* y is leaky(scale * z + shift): no skip, pool or dropout, so that z and two rows stand for it */
    size_t period; /* floats of a row */
    size_t plane; /* floats of one time bin of z and y: H * W * C */
    size_t x_floats, z_floats, y_floats; /* of one cell */
    int chunks; /* runs of time bins that sums are taken over */
    bool frozen; /* set by finish_moments or use_running: the statistics are constants in the backward pass */
    double count; /* set by finish_moments: values per channel of the batch */
    /* (period) each, set by finish_moments or use_running: u = scale * z + shift; center is the mean */
    float *scale, *shift, *center;
    float *a, *b, *d; /* (period) each, set by finish_dv: dz = a * dv + b * (z - center) + d */
    float *one, *zero; /* (period) each: constant rows */
} flim_cpu_layer;

void flim_cpu_layer_init(flim_cpu_layer *layer, const flim_unit *unit);
static inline size_t flim_cpu_layer_row_floats(const flim_cpu_layer *layer)
{
    return FLIM_CPU_LAYER_ROWS * layer->period;
}
/* Doubles of `partial` for one cell. */
static inline size_t flim_cpu_layer_partials(const flim_cpu_layer *layer)
{
    return (size_t)layer->chunks * 2 * layer->period;
}
/* Hands over flim_cpu_layer_row_floats floats and sets the constant rows. */
void flim_cpu_layer_set_rows(flim_cpu_layer *layer, float *rows);

/* BatchNorm's parameters and statistics, (C) each; all NULL without BatchNorm. */
typedef struct flim_cpu_norm {
    const float *gamma, *beta;
    float *running_mean, *running_var;
    double momentum; /* of the running statistics in training */
    flim_cpu_move *move_mean, *move_var; /* (C): the moves are noted here and not made; NULL = they are made */
} flim_cpu_norm;

/* Where a unit's y comes from when it is the skip of another: its saved y, or, with a plain y, its z. */
flim_cpu_term flim_cpu_layer_term(const flim_cpu_layer *layer, const float *z, const float *y);

/* One cell's sums of z around a pivot taken from z itself. */
void flim_cpu_layer_moments(const flim_cpu_layer *layer, const flim_cpu_team *team, const float *z, double *partial);
/* Moments of n cells (z: (n) cells, partial: (n) cells; n = 0 is allowed): flim_cpu_moments of z's channels; nothing without
 * BatchNorm. */
void flim_cpu_layer_merge_moments(const flim_cpu_layer *layer, const float *z, const double *partial, int64_t n,
                                  double *moments);
/* Batch statistics, the running ones moved as PyTorch does; a single value per channel uses the running ones instead.  Sets
 * count, scale, shift, center. */
void flim_cpu_layer_finish_moments(flim_cpu_layer *layer, const double *moments, const flim_cpu_norm *norm);
/* Scale, shift and center from the running statistics. */
void flim_cpu_layer_use_running(flim_cpu_layer *layer, const flim_cpu_norm *norm);

/* The dropout row of a cell: 0 or 1 / (1 - p) a channel. */
void flim_cpu_layer_dropout(const flim_cpu_layer *layer, const flim_cell_id *id, uint32_t unit, float p, float *row);

/* y of one cell.  skip.data NULL = none; dropout NULL = none. */
void flim_cpu_layer_forward(const flim_cpu_layer *layer, const flim_cpu_team *team, const float *z, flim_cpu_term skip,
                            const float *dropout, float *y);
/* Sums over T,H,W of one cell's y, by chunk, to partial (its first half); finish: mean (C) of one cell. */
void flim_cpu_layer_pool(const flim_cpu_layer *layer, const flim_cpu_team *team, const float *y, double *partial);
void flim_cpu_layer_finish_pool(const flim_cpu_layer *layer, const double *partial, float *mean);

/* dv of one cell and its sums.  dy2 may be NULL.  y (saved) gives the activation's sign where not NULL and not pooled.
 * dv may be NULL where nothing is pooled: then apply must be told `from_dy`. */
typedef struct flim_cpu_layer_dv_run {
    const float *dy, *dy2, *z, *y, *dropout;
    flim_cpu_term skip;
    float *dv;
} flim_cpu_layer_dv_run;

void flim_cpu_layer_dv(const flim_cpu_layer *layer, const flim_cpu_team *team, const flim_cpu_layer_dv_run *run,
                       double *partial);
/* Sums over n cells (n = 0 is allowed): (2,C), of dv and of dv (z - mean). */
void flim_cpu_layer_sum_dv(const flim_cpu_layer *layer, const double *partial, int64_t n, double *sums);
/* Sets a, b, d of the sums of the whole batch, all (2,C), and gives what the cells whose sums are own (2,C) add to the gradients
 * of gamma, beta and the convolution's bias, (C) each.  In front of a BatchNorm with batch statistics the bias has the gradient
 * 0, exactly, and is given that. */
void flim_cpu_layer_finish_dv(flim_cpu_layer *layer, const double *own, const double *all, const flim_cpu_norm *norm,
                              float *dgamma, float *dbeta, float *dbias);
/* dz of one cell.  from_dy: dv is dy, still to be multiplied by the slope that z's sign gives. */
void flim_cpu_layer_apply(const flim_cpu_layer *layer, const flim_cpu_team *team, const float *dv, bool from_dy,
                          const float *z, float *dz);

#endif

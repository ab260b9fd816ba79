/* The passes between convolutions: BatchNorm, skip, leaky ReLU, pool, dropout, forward and backward, fused.
 *
 * Layout: a cell is (T,H,W,C), channels last and dense ("ndhwc").  A pass works on a flat run of `count` floats that starts
 * at
 *   channel 0, so the channel of element i is i % C.  What is per channel comes as a row of `period` floats, the channels
 *   repeated, where period is a multiple of C and of 16: the loops then run over whole vectors for any C.
 * Sums: single precision over at most FLIM_CPU_SUM_ROWS terms, then double.
 * One table a vector width (AVX-512, AVX2, portable), from the same source kernels.inc; chosen once by what the processor
 * has.
 */
#ifndef FLIM_CPU_KERNELS_H
#define FLIM_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

enum { FLIM_CPU_SUM_ROWS = 64 };

/* A tensor that enters an activation: u = scale * data + shift, then leaky ReLU of `slope` (1 = none).  data NULL = absent. */
typedef struct flim_cpu_term {
    const float *data;
    const float *scale, *shift; /* (period) */
    float slope;
} flim_cpu_term;

/* y = dropout * pool(leaky(z.scale * z + z.shift + skip)), slope z.slope. */
typedef struct flim_cpu_forward {
    flim_cpu_term z, skip;
    const float *dropout; /* (period): 0 or 1 / (1 - p); NULL = none */
    float *y;
} flim_cpu_forward;

/* dv = (dy + dy2) * dropout * leaky'(v) and its sums.  The sign of v is that of `sign` where given, else of z's term. */
typedef struct flim_cpu_act_backward {
    const float *dy, *dy2; /* dy2 may be NULL */
    const float *sign; /* y of the unit, or NULL */
    flim_cpu_term z;
    const float *center; /* (period): the mean of z */
    const float *dropout; /* (period) or NULL */
    float *dv; /* stored where not NULL; may be dy */
    double *sum; /* (2,period): adds sum(dv), sum(dv * (z - center)) */
} flim_cpu_act_backward;

/* The same through a max pool over two time bins; v = z.scale * z + z.shift + skip is computed again to find the maximum. */
typedef struct flim_cpu_unpool {
    const float *dy, *dy2;
    flim_cpu_term z, skip;
    const float *center, *dropout;
    float *dv; /* full size, stored */
    double *sum; /* (2,period) */
} flim_cpu_unpool;

/* dz = a * dv + b * (z - center) + d.  from_dy: dv = dy * leaky'(z.scale * z + z.shift) here, else dy is dv. */
typedef struct flim_cpu_apply {
    const float *dy;
    flim_cpu_term z;
    bool from_dy;
    const float *center, *a, *b, *d; /* (period) */
    float *dz;
} flim_cpu_apply;

typedef struct flim_cpu_kernels {
    const char *name; /* "avx512", "avx2", "portable" */
    /* (count) signal and (plane) mask -> (count,2) interleaved; first element of the run is pixel 0 of a time bin. */
    void (*input)(const float *signal, const unsigned char *mask, float *x, size_t bins, size_t plane);
    /* Adds sum(z - pivot), sum((z - pivot)^2) to sum (2,period). */
    void (*moments)(const float *z, const float *pivot, double *sum, size_t count, size_t period);
    void (*forward)(const flim_cpu_forward *run, size_t count, size_t period);
    /* count: floats of one time bin; pairs: pooled time bins; `odd`: bins left over at the end (0 or 1), which give nothing. */
    void (*forward_pool)(const flim_cpu_forward *run, size_t plane, size_t pairs, size_t period);
    void (*act_backward)(const flim_cpu_act_backward *run, size_t count, size_t period);
    void (*unpool)(const flim_cpu_unpool *run, size_t plane, size_t pairs, size_t period);
    void (*apply)(const flim_cpu_apply *run, size_t count, size_t period);
    void (*add)(float *to, const float *from, size_t count); /* to += from */
} flim_cpu_kernels;

extern const flim_cpu_kernels flim_cpu_kernels_avx512, flim_cpu_kernels_avx2, flim_cpu_kernels_portable;

/* The widest table that this processor can run. */
const flim_cpu_kernels *flim_cpu_kernels_choose(void);

#endif

/* One unit's convolution on one cell: forward, gradient of the input, gradient of the weights.  By oneDNN, or by conv_wgrad.h
 * and conv3x3x3_c8.h if they can.  A transposed unit runs the convolution whose transpose it is the other way round.
 *
 * Layout: x (T,H,W,Cin), z (To,Ho,Wo,Cout), channels last, one cell; weights in whatever layout oneDNN likes, made by
 *   flim_cpu_conv_load from PyTorch's (Cout,Cin,kt,ky,kx), transposed (Cin,Cout,kt,ky,kx).  Primitives are for one cell, so
 *   that any number of cells works and a cell stays in the cache from one pass to the next.
 * Threads: primitives made for `threads` threads.  With threads = 1 the functions may be called from several threads at once,
 *   each with its own flim_cpu_conv_memory; else they must be called outside a parallel region.
 * Owns: the primitives and memory descriptors; weight and scratch memory is the caller's (sizes below).
 * Errors: FLIM_ERROR_DEVICE with oneDNN's status.
 */
#ifndef FLIM_CPU_CONV_H
#define FLIM_CPU_CONV_H

#include "cpu/conv/onednn.h"
#include "cpu/layers/cpu_layer.h"
#include "flim/network.h"

typedef enum flim_cpu_direction { FLIM_CPU_FORWARD, FLIM_CPU_BACKWARD_X, FLIM_CPU_BACKWARD_W } flim_cpu_direction;

typedef struct flim_cpu_conv {
    dnnl_engine_t engine; /* not owned */
    dnnl_primitive_t primitive[3];
    dnnl_memory_desc_t x[3], z[3], weight[3], bias; /* as each primitive wants them */
    dnnl_primitive_t reorder[3]; /* PyTorch layout -> weight[0], -> weight[1], weight[2] -> PyTorch layout */
    dnnl_memory_desc_t plain[3]; /* PyTorch layout of the weights; of the flipped ones if backward_x is a forward */
    bool transposed; /* all else is about the convolution from the unit's z to its x */
    bool flipped; /* backward_x is a forward convolution of dz with flipped, transposed weights (stride 1) */
    int shape[5]; /* of the weights in PyTorch's layout */
    bool custom_w; /* backward_w is flim_cpu_wgrad: its layout is (kt,ky,kx,Cin,Cout) */
    bool c8; /* all of it is conv3x3x3_c8.h's */
    flim_unit unit;
    size_t weight_bytes[3]; /* by direction of the unit: 64-byte multiples; 0 if it has none */
    size_t scratch_bytes; /* the largest of the primitives and reorders */
    size_t weight_floats; /* Cout * Cin * kt * ky * kx */
} flim_cpu_conv;

/* What oneDNN is handed at a call: memory objects without data, one set per thread. */
typedef struct flim_cpu_conv_memory {
    dnnl_stream_t stream;
    dnnl_memory_t x[3], z[3], weight[3], bias, scratch[6], plain[3];
} flim_cpu_conv_memory;

/* Creates the primitives of `unit`: forward always; the gradients if asked. */
flim_status flim_cpu_conv_create(flim_cpu_conv *conv, dnnl_engine_t engine, const flim_unit *unit, bool want_x, bool want_w,
                                 int threads, flim_error *err);
void flim_cpu_conv_destroy(flim_cpu_conv *conv); /* zeroed is allowed */

flim_status flim_cpu_conv_memory_create(flim_cpu_conv_memory *memory, const flim_cpu_conv *conv, flim_error *err);
void flim_cpu_conv_memory_destroy(flim_cpu_conv_memory *memory);

/* plain (Cout,Cin,kt,ky,kx) -> to, in the layout of direction FORWARD or BACKWARD_X.  staging: weight_floats floats. */
flim_status flim_cpu_conv_load(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, flim_cpu_direction direction,
                               const float *plain, void *to, float *staging, void *scratch, flim_error *err);
/* A gradient in BACKWARD_W's layout -> plain (Cout,Cin,kt,ky,kx). */
flim_status flim_cpu_conv_unload(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const void *from, float *plain,
                                 void *scratch, flim_error *err);

/* z = conv(x) + bias. */
flim_status flim_cpu_conv_forward(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const flim_cpu_team *team,
                                  const float *x, const void *weight, const float *bias, float *z, void *scratch,
                                  flim_error *err);
/* dx = conv^T(dz), written whole. */
flim_status flim_cpu_conv_backward_x(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const flim_cpu_team *team,
                                     const float *dz, const void *weight, float *dx, void *scratch, flim_error *err);
/* sum = (first ? 0 : sum) + the weights' gradient of this cell.  cell: room for one such gradient. */
flim_status flim_cpu_conv_backward_w(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const flim_cpu_team *team,
                                     const float *x, const float *dz, bool first, void *sum, void *cell, void *scratch,
                                     flim_error *err);

#endif

/* The heads of the network: from the y of their units to the loss, and back to the gradient of y. */
#ifndef FLIM_CPU_HEADS_H
#define FLIM_CPU_HEADS_H

#include "cpu/program/cpu_program.h"

/* After the units' forward pass: logits of pooled heads, losses of all. */
flim_status flim_cpu_heads_forward(flim_cpu_program *program, const flim_batch *batch, flim_cpu_loss *out, flim_error *err);
/* In place of it where no loss is wanted: pooled heads move the running statistics of their BatchNorms. */
flim_status flim_cpu_heads_statistics(flim_cpu_program *program, const flim_batch *batch, flim_error *err);
/* Parameter gradients of pooled heads, and the gradients of their means. */
flim_status flim_cpu_heads_backward(flim_cpu_program *program, int64_t n, flim_error *err);
/* What the heads give to dy of unit u for a cell, in worker->x; NULL if none reads it. */
const float *flim_cpu_heads_dy(const flim_cpu_program *program, flim_cpu_mode mode, flim_cpu_worker *worker,
                               const flim_batch *batch, int u, int64_t cell);

/* Prediction: head k takes in y (T,H,W,C) of one cell; then logits of all heads for n cells, (n,outputs) of each in turn. */
void flim_cpu_heads_read(flim_cpu_program *program, flim_cpu_mode mode, int k, int64_t n, int64_t cell, const float *y,
                         float *logits);
void flim_cpu_heads_predict(flim_cpu_program *program, int64_t n, float *logits);

/* Evaluation: the hidden voxels of a cell, of y of head k; then those of n cells into the totals. */
void flim_cpu_heads_evaluate(flim_cpu_program *program, flim_cpu_worker *worker, int k, const flim_batch *batch, int64_t cell,
                             const float *y);
void flim_cpu_heads_add_hidden(flim_cpu_program *program, int64_t n);

#endif

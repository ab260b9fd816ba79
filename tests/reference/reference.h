/* The independent reference: every formula of flim/network.h and flim/device.h in double precision, as straight loops.
 *
 * For: tests.  Written from the definitions alone; it shares no code with the backends, not even the random generator, so
 *      that a common mistake cannot hide.  Slow: meant for cells of a few hundred voxels.
 * Shapes are PyTorch's, (N,C,T,H,W) on the host.  Arrays are the caller's.  Out of memory ends the program: a test cannot go
 * on.
 */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/batch.h"
#include "flim/device.h"
#include "flim/network.h"

/* count doubles, zeroed; free() them. */
double *ref_array(int64_t count);
double *ref_from_floats(const float *values, int64_t count);

/* Philox4x32-10 with the counter layout of flim/random.h. */
void ref_philox(const flim_cell_id *id, uint32_t purpose, uint32_t index, uint32_t out[4]);

/* Its word for dropout's purpose: 1 / (1 - p) if the channel is kept, else 0. */
double ref_dropout_factor(const flim_cell_id *id, uint32_t unit, uint32_t channel, double p);

/* What an observer sees, in this order, and may overwrite: what follows is computed from what it leaves.  As unit n_units
 * the head shows v of its hidden layer, y (its logits), dx's scale and dx. */
typedef enum ref_tensor {
    REF_Z, /* (n,Cout,conv_out) */
    REF_V, /* (n,Cout,conv_out): what the activation is applied to */
    REF_Y, /* (n,Cout,out) */
    REF_DV, /* (n,Cout,conv_out) */
    REF_DZ, /* (n,Cout,conv_out) */
    REF_DX_SCALE, /* as REF_DX, of a head: the size of the terms that dx is a difference of, see ref_head_run */
    REF_DX, /* (n,Cin,in): of this unit alone */
    REF_TENSORS
} ref_tensor;
typedef void ref_observe(void *observer, int unit, ref_tensor what, double *values, int64_t count);

typedef struct ref_unit_run {
    int64_t n;
    const flim_cell_id *id; /* (n); may be NULL without dropout */
    uint32_t unit; /* number for dropout, and for the observer */
    ref_observe *observe; /* may be NULL */
    void *observer;
    double dropout;
    bool training; /* batch statistics; backward needs it */
    double momentum; /* training: of the running statistics, which move by that share; 0 = they stay */
    const double *x, *skip; /* (n,Cin,in), (n,Cout,conv_out) or NULL */
    const double *weight, *bias, *gamma, *beta;
    double *running_mean, *running_var; /* (Cout) */
    const double *dy; /* (n,Cout,out); NULL = forward only */
    double *y; /* (n,Cout,out); may be NULL, as all below */
    double *v; /* (n,Cout,conv_out): what the activation is applied to */
    double *dx, *dskip, *dweight, *dbias, *dgamma, *dbeta;
    double *dbias_scale; /* (Cout): sum of |dz|, the size of which dbias' rounding error is a fraction */
    double *dbeta_scale; /* (Cout): sum of |dv| */
    double *dgamma_scale; /* (Cout): norm of dv times the normalised z: as independent roundings add up */
} ref_unit_run;

void ref_unit(const flim_unit *unit, const ref_unit_run *run);

typedef struct ref_head_run {
    int64_t n;
    int t, h, w;
    const flim_cell_id *id;
    uint32_t unit;
    double dropout, label_smoothing, focal_gamma;
    bool training;
    double momentum; /* as in ref_unit_run */
    double divisor;
    const int32_t *label; /* (n) */
    const float *cell_weight; /* (n) */
    const float *target; /* (n,K), for soft targets */
    const double *x; /* (n,Cin,t,h,w) */
    const double *fc1_weight, *fc1_bias, *gamma, *beta, *fc2_weight, *fc2_bias;
    double *running_mean, *running_var; /* (hidden) */
    double *logits; /* (n,K') */
    double *v; /* (n,hidden): what the activation is applied to; may be NULL */
    double loss; /* out: sum(weight * loss) / divisor */
    double *dx; /* added to; NULL, as all below = not wanted */
    double *dfc1_weight, *dfc1_bias, *dgamma, *dbeta, *dfc2_weight, *dfc2_bias;
    double *dfc1_bias_scale; /* (hidden), as in ref_unit_run */
    /* BatchNorm over a few cells takes nearly all of dz away: over two, all but epsilon's share of the variance.  Rounding is
     * a fraction of the terms before that, whose absolute values sum up to: */
    double *dx_scale; /* (n,Cin,t,h,w) */
    double *dfc1_weight_scale; /* (hidden,Cin) */
} ref_head_run;

void ref_head(const flim_head *head, ref_head_run *run);

/* A dense head: each voxel of y against the signal, squared. */
typedef struct ref_dense_run {
    int64_t n, voxels, pixels; /* T * H * W, H * W */
    const double *y; /* (n,1,T,H,W) */
    const float *signal; /* (n,T,H,W) */
    const uint8_t *mask; /* (n,H,W) */
    const int32_t *label; /* (n) */
    const float *cell_weight; /* (n) */
    double divisor;
    double loss; /* out */
    double *dy; /* (n,1,T,H,W), added to; NULL = not wanted */
} ref_dense_run;

void ref_dense_head(const flim_head *head, ref_dense_run *run);

/* Which voxels (T,H,W) of a cell a share hides: 0 or 1. */
void ref_hide(const flim_cell_id *id, double share, int t, int h, int w, const uint8_t *mask, uint8_t *hidden);

/* A dense head with a loss over hidden voxels. */
typedef struct ref_hidden_run {
    int64_t n;
    int t, pixels; /* T, H * W */
    const double *y; /* (n,1,T,H,W) */
    const float *signal, *cell_weight; /* (n,T,H,W), (n) */
    const uint8_t *mask, *hidden; /* (n,H,W), (n,T,H,W) */
    double divisor;
} ref_hidden_run;

/* *loss: sum(weight * loss) / divisor.  totals are added to, as is dy unless it is NULL. */
void ref_hidden_head(const flim_head *head, const ref_hidden_run *run, flim_hidden_totals *totals, double *loss, double *dy);

/* Global L2 norm; then, where clip > 0, torch.nn.utils.clip_grad_norm_: gradients *= min(1, clip / (norm + 1e-6)). */
double ref_clip(double *gradients, int64_t count, double clip);
/* torch.optim.AdamW's update number `t` (from 1). */
void ref_adamw(double *parameters, const double *gradients, double *m, double *v, int64_t count, int64_t t,
               const flim_step *step);

/* A whole network and its training state. */
typedef struct ref_network {
    const flim_network *net;
    ref_observe *observe; /* of every pass from now on; may be NULL */
    void *observer;
    double *parameters, *gradients, *m, *v; /* (P) */
    /* (P): at biases of convolutions and fc1 the sum of |dz|, at units' BatchNorm dgamma_scale and dbeta_scale, at fc1's
     * weights dfc1_weight_scale, else 0 */
    double *scale;
    double *statistics; /* (S) */
    double *average, *average_statistics; /* (P), (S): begin as the weights and statistics of create */
    int64_t updates;
    double loss; /* sum of weight * loss over all cells trained on so far */
    double grad_norm; /* of the last window, before clipping */
    int64_t correct;
    flim_hidden_totals hidden; /* over all cells trained on or evaluated so far */
} ref_network;

ref_network *ref_network_create(const flim_network *net, const float *parameters, const float *statistics);
void ref_network_free(ref_network *ref);

/* The contract of flim_program_train.  `gradients` keeps the window's sum before clipping. */
void ref_network_train(ref_network *ref, const flim_batch *batch, const flim_step *step);
/* The contract of flim_program_recalibrate. */
void ref_network_recalibrate(ref_network *ref, const flim_batch *batch, double share);
/* The contract of flim_program_predict: of each head in turn, logits (n,K') or y (n,1,T,H,W). */
void ref_network_predict(ref_network *ref, const flim_batch *batch, double *logits);
/* The contract of flim_program_evaluate. */
void ref_network_evaluate(ref_network *ref, const flim_batch *batch, const flim_step *step);
/* The loss that a train call would report, divided by the divisor; changes nothing. */
double ref_network_loss(const ref_network *ref, const flim_batch *batch, const flim_step *step);

#endif

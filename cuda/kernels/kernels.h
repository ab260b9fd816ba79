/* The CUDA kernels, as the C side calls them.  Nothing here knows units, networks or memory plans.
 *
 * Layouts: activations are NDHWC with storage channels C (a multiple of 8), one of three storage types; "pixels" are the
 * T*H*W
 *      positions of one cell.  Per-channel arrays are float[C] on the device.  All pointers are device pointers unless said.
 * Errors: each returns the launch's cudaError_t.  All sums are formed in a fixed order: equal inputs give equal bits.
 */
#ifndef FLIM_CUDA_KERNELS_H
#define FLIM_CUDA_KERNELS_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/device/storage.h"
#include "data/transform_math.h"
#include "flim/device.h"
#include "flim/network.h"
#include "flim/random.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flim_launch {
    cudaStream_t stream;
    flim_storage type; /* of activations and gradients */
    int processors; /* multiprocessors: how many blocks fill the card */
} flim_launch;

/* Whether this card can run the code compiled in. */
cudaError_t flim_kernels_probe(void);

/* ---- input.cu, device_cache_gather.cu ---------------------------------------------------------------------------------- */

/* signal (n,T,HW) fp32 and mask (n,HW) bytes -> x (n,T,HW,C): channel 0 signal, 1 mask at every t, the rest 0. */
cudaError_t flim_k_input(const flim_launch *l, const float *signal, const uint8_t *mask, int64_t n, int t, int hw, int c,
                         void *x);
/* The same input for kernels that read it as it is: signal in the storage type, and the mask bytes. */
cudaError_t flim_k_input_plain(const flim_launch *l, const float *signal, const uint8_t *mask, int64_t voxels, int64_t pixels,
                               void *signal_out, uint8_t *mask_out);
/* ---- hidden.cu ---- */
/* The input of networks with a third channel, C = 8: which of n cells' voxels are hidden by *share (flim_step.hide_share), what each
 * voxel is into voxel (n,T,H,W) (backend/hidden.h), and x (n,T,HW,8): signal where it is seen, mask, hidden. */
cudaError_t flim_k_hide(const flim_launch *l, const float *signal, const uint8_t *mask, const flim_cell_id *id,
                        const uint32_t *share, int64_t n, int t, int h, int w, float *voxel, void *x);

/* All cells of a data set in device memory, as flim_cuda_cache (cuda/program/device_cache.h) lays them out. */
typedef struct flim_cache_view {
    const char *memory;
    const float *value; /* (65536) */
    const uint64_t *offset; /* (cells) */
    const uint8_t *mask; /* (cells, HW) */
} flim_cache_view;
/* The cells id[i].cell of i < n -> signal (n,T,H,W) fp32 and mask (n,H,W): what flim_k_input and _plain take. */
cudaError_t flim_k_gather_cells(const flim_launch *l, const flim_cache_view *cache, const flim_cell_id *id, int64_t n, int t,
                                int h, int w, float *signal, uint8_t *mask);
/* What transforms and mixup do to a batch. */
typedef struct flim_drawn_batch {
    const flim_cell_transform *drawn; /* (n,parts) on the device, with the numbers of their cells */
    int parts; /* per cell: 2 if cells are mixed; a second part of share 0 is none */
    bool counts; /* two parts are mixed by their counts, else by their signals */
    bool moves; /* some move photons */
    float *scratch; /* (n,T,H,W), used if photons move and signals are mixed */
} flim_drawn_batch;
/* The same, changed and mixed as d says. */
cudaError_t flim_k_gather_transformed(const flim_launch *l, const flim_cache_view *cache, const flim_drawn_batch *d,
                                      int64_t n, int t, int h, int w, float *signal, uint8_t *mask);
/* (n,pixels,C) storage -> host layout (n,channels,pixels) fp32. */
cudaError_t flim_k_to_planar(const flim_launch *l, const void *in, int64_t n, int channels, int c, int64_t pixels,
                             float *out);

/* Dropout multipliers, 0 or 1 / (1 - p), of every (cell, channel) of up to 8 units in one launch. */
typedef struct flim_dropout_table {
    int n;
    struct {
        uint32_t unit;
        int channels, c; /* real, stored */
        const float *p; /* on the device */
        float *multiplier; /* (cells, c) */
    } item[8];
} flim_dropout_table;
/* id: (cells) on the device. */
cudaError_t flim_k_dropout(const flim_launch *l, const flim_dropout_table *table, const flim_cell_id *id, int64_t cells);

/* ---- batchnorm_forward.cu ---------------------------------------------------------------------------------------------- */

/* How a kernel that sums over all pixels is cut into blocks; partial sums lie as [sum][channel][block]. */
typedef struct flim_blocks {
    int64_t cells, pixels; /* of the tensor; each block stays within a cell */
    int chunks; /* blocks per cell */
    int64_t chunk; /* pixels per block, the last one fewer */
    int64_t blocks; /* cells * chunks */
} flim_blocks;
flim_blocks flim_blocks_for(int64_t cells, int64_t pixels, int c, int processors);
enum { FLIM_MAX_PARTIAL_SUMS = 4 };

/* v = z * scale + shift: BatchNorm and the bias of the convolution in one.  float[C] each. */
typedef struct flim_affine {
    float *scale, *shift;
} flim_affine;

/* BatchNorm of one unit as device pointers; arrays of the real channels, unless float[C] is said. */
typedef struct flim_norm {
    int channels, c;
    bool present; /* false: the unit has none; v = z / weight_scale + bias */
    const float *gamma, *beta, *bias;
    float *running_mean, *running_var;
    const double *momentum; /* of these in training */
    const float *weight_scale; /* one float, NULL = 1: z is that many times the convolution */
    flim_affine affine; /* out */
    float *mean, *invstd; /* out, float[C]: of z as stored; 0 in padding channels */
} flim_norm;

/* Partial sums of z (cells, pixels, C): two sums about a per-block origin, and the origin; 3 planes of [C][blocks]. */
cudaError_t flim_k_stats(const flim_launch *l, const void *z, flim_blocks b, int c, float *partial);
/* Batch statistics -> affine, invstd; moves the running statistics by *momentum (unbiased variance).  A single value per
 * channel: running statistics as constants. */
cudaError_t flim_k_norm_train(const flim_launch *l, const float *partial, flim_blocks b, const flim_norm *norm);
/* The same from sums over all `count` positions: sums is double (2,c), sum and sum of squares of z less the running mean
 * (*weight_scale times, as z). */
cudaError_t flim_k_norm_train_sums(const flim_launch *l, const double *sums, int64_t count, const flim_norm *norm);
/* Running statistics (or only the bias, without BatchNorm) -> affine, invstd. */
cudaError_t flim_k_norm_fixed(const flim_launch *l, const flim_norm *norm);

typedef enum flim_skip_kind {
    FLIM_SKIP_NONE,
    FLIM_SKIP_SIGN_MASK, /* backward only: one was added, and `sign_mask` has the sign of the sum */
    FLIM_SKIP_PLAIN, /* the tensor as it is */
    FLIM_SKIP_NORMALISED, /* z of a convolution: its BatchNorm is applied here */
    FLIM_SKIP_ACTIVATED /* the same, and leaky ReLU */
} flim_skip_kind;

/* What follows the convolution in a unit: y = dropout(pool(act(affine(z) + skip))). */
typedef struct flim_epilogue {
    int64_t cells;
    int t, hw; /* of z: pixels = t * hw; y has (t / pool) * hw */
    int c;
    int pool; /* 1 or 2 */
    bool act;
    flim_skip_kind skip;
    const void *z; /* (cells, t*hw, c) */
    flim_affine affine;
    const void *skip_in; /* like z: the tensor to add, or the z of a convolution whose BatchNorm is skip_affine */
    flim_affine skip_affine;
    const float *dropout; /* (cells, c) multipliers or NULL */
    /* (cells, t*hw, c / 8), a bit per channel, the lowest first: affine(z) + skip > 0.  The forward pass writes it if it is
     * not NULL (pool = 1), so that the backward pass, with FLIM_SKIP_SIGN_MASK, need not read the skip. */
    uint8_t *sign_mask;
} flim_epilogue;

cudaError_t flim_k_epilogue_forward(const flim_launch *l, const flim_epilogue *epilogue, void *y);
/* mean over pixels: y (cells, pixels, c) -> out (cells, c) fp32. */
cudaError_t flim_k_mean(const flim_launch *l, const void *y, int64_t cells, int64_t pixels, int c, float *out);

/* ---- epilogue_sums.cu, batchnorm_backward.cu, epilogue_backward.cu ----------------------------------------------------- */

typedef enum flim_grad_input_kind {
    FLIM_GRAD_INPUT_DENSE, /* storage type, shape of y */
    FLIM_GRAD_INPUT_STRIDED, /* storage type, (cells, st, sh, sw, c): contributes at multiples of the strides only */
    FLIM_GRAD_INPUT_BROADCAST /* float (cells, c): the same at every pixel */
} flim_grad_input_kind;

/* One contribution to dy; the value is what is stored divided by *scale_a * *scale_b (NULL = 1). */
typedef struct flim_grad_input {
    flim_grad_input_kind kind;
    const void *data;
    const float *scale_a, *scale_b;
    int stride[3], size[3]; /* STRIDED: strides in y and sizes (t,h,w) of the compact tensor */
} flim_grad_input;

enum { FLIM_MAX_GRAD_INPUTS = 4 };

typedef struct flim_grad_inputs {
    int n;
    int h, w; /* of y, for STRIDED */
    flim_grad_input item[FLIM_MAX_GRAD_INPUTS];
} flim_grad_inputs;

/* Sums over all pixels of dv, dv z, dv^2 and, with a normalised skip, dv z_skip: 4 planes [C][blocks]
 * over the blocks of y (flim_blocks_for(cells, pooled pixels, ...)).  y: also written if it is not NULL (recompute). */
cudaError_t flim_k_grad_sums(const flim_launch *l, const flim_epilogue *epilogue, const flim_grad_inputs *dy, flim_blocks b,
                             float *partial, void *y);

/* dz = a * dv + b * z + d, stored *scale times: float[C] each. */
typedef struct flim_grad_affine {
    float *a, *b, *d;
    float *scale; /* one float: the power of two */
    float *unscale; /* one float: 1 / (*scale * *loss_scale), what turns sums over stored dz into gradients */
} flim_grad_affine;

typedef struct flim_grad_norm {
    flim_norm norm;
    flim_grad_affine out;
    float *dgamma, *dbeta, *dbias; /* real channels, each may be NULL; assigned or, with add, added to */
} flim_grad_norm;

/* Finishes flim_k_grad_sums.  scaled: choose *scale by the gradient's rms (fp16 storage of tf32), else 1.  skip (may be
 * NULL): the BatchNorm of the normalised skip.  dv_scale (may be NULL): one float, scale for dv itself.  *loss_scale divides
 * what goes to dgamma, dbeta, dbias.  sums: 4 * C doubles of scratch; counter: one zeroed int, left zero. */
cudaError_t flim_k_grad_norm(const flim_launch *l, const float *partial, flim_blocks b, int64_t count,
                             const flim_grad_norm *main, const flim_grad_norm *skip, float *dv_scale, bool scaled, bool train,
                             bool add, const float *loss_scale, double *sums, int *counter);
/* A gradient behind an activation, du, as a convolution wrote it (conv3x3x3.h, conv_strided.h). */
typedef struct flim_written_gradient {
    const void *values; /* (count,c): *scale * *scale_b times the gradient */
    const float *scale, *scale_b; /* one float each; scale_b may be NULL = 1 */
    double *sums; /* (4,c): sum du and sum du (z - mean) of the values, that the convolution gathered; then scratch */
    int *counter; /* one zeroed int, left zero */
} flim_written_gradient;

/* The same from these sums.  The scale of dz is chosen by a sample of du. */
cudaError_t flim_k_grad_norm_sums(const flim_launch *l, const flim_written_gradient *du, int64_t count,
                                  const flim_grad_norm *main, bool scaled, bool add, const float *loss_scale);
/* *out = *a * *a_times / (*b * *b_times); a_times and b_times may be NULL = 1. */
cudaError_t flim_k_ratio(const flim_launch *l, const float *a, const float *a_times, const float *b, const float *b_times,
                         float *out);
/* Writes dz (like z), dz_skip (like z, with a normalised skip) and dv (like z, may be NULL). */
cudaError_t flim_k_grad_apply(const flim_launch *l, const flim_epilogue *epilogue, const flim_grad_inputs *dy,
                              const flim_grad_affine *main, const flim_grad_affine *skip, const float *dv_scale, void *dz,
                              void *dz_skip, void *dv);

/* ---- head.cu ----------------------------------------------------------------------------------------------------------- */

/* What the losses of a batch are computed from; the pointers are null for prediction. */
typedef struct flim_loss_batch {
    const int32_t *label; /* (cells) */
    const float *weight; /* (cells) */
    const float *target; /* (cells, classes), or NULL */
    int classes;
    const double *divisor;
    const float *loss_scale;
} flim_loss_batch;

/* What they come to, summed over the heads. */
typedef struct flim_loss_sums {
    bool add; /* not the first head */
    double *loss; /* (cells): weight * loss */
    int32_t *correct; /* (cells), of the first head */
    float *weight; /* (cells), of the first head with class weights; NULL = the batch's */
} flim_loss_sums;

typedef struct flim_head_kernels {
    flim_head head;
    int64_t cells;
    int in, c, hidden, outputs; /* c: storage channels of `mean` and `dmean` */
    const float *fc1_weight, *fc1_bias, *gamma, *beta, *fc2_weight, *fc2_bias;
    float *running_mean, *running_var;
    const float *mean; /* (cells, c) */
    const float *dropout; /* (cells, stored hidden) or NULL */
    int dropout_stride;
    float *z, *h; /* (cells, hidden): fc1's output; after BN, act and dropout */
    float *norm_mean, *norm_invstd; /* (hidden) */
    float *logits; /* (cells, outputs) */
    /* training */
    flim_loss_batch batch;
    flim_loss_sums sums;
    const float *smoothing, *focal_gamma;
    const double *momentum; /* of the running statistics */
    float *dlogits; /* (cells, outputs), loss_scale times the gradient */
    /* of a loss over the batch: outputs of length 1 and their gradient (cells, outputs), their lengths (cells), their
     * similarities and the slopes by these (cells, cells) */
    double *embedded, *embedded_gradient, *embedded_norm, *similarity_slope;
    float *similarity;
    float *dz; /* (cells, hidden) */
    float *dmean; /* (cells, c): gradient at each pixel, already divided by `pixels` */
    int64_t pixels;
    float *dfc1_weight, *dfc1_bias, *dgamma, *dbeta, *dfc2_weight, *dfc2_bias;
    bool add; /* to the gradients, instead of assigning */
} flim_head_kernels;

/* A dense head: channel 0 of y against channel 0 of the input, at all voxels or where its channel 1 is not 0. */
typedef struct flim_dense_kernels {
    flim_head head;
    int64_t cells, voxels, plane; /* T * H * W, H * W of a cell */
    int c, input_c; /* storage channels */
    const void *y, *input; /* (cells, voxels, c), (cells, voxels, input_c) */
    flim_loss_batch batch;
    flim_loss_sums sums;
    void *dy; /* (cells, voxels, c): loss_scale * scale times the gradient */
    double scale;
    float *dy_scale; /* gets `scale` */
    float *prediction; /* (cells, voxels), of y, without training */
} flim_dense_kernels;

/* A dense head over hidden voxels. */
enum { FLIM_HIDDEN_PARTS = 16 }; /* blocks that share a cell */
typedef struct flim_hidden_kernels {
    flim_head head;
    int64_t cells;
    int t, plane, c; /* T, H * W, storage channels of y */
    const void *y; /* (cells, T*H*W, c) */
    const float *voxel; /* (cells, T*H*W) of flim_k_hide */
    flim_loss_batch batch; /* with dy */
    flim_loss_sums sums; /* with dy */
    void *dy; /* like y: loss_scale * scale times the gradient; NULL: only the totals are wanted */
    double scale;
    float *dy_scale; /* gets `scale` */
    double *margins, *cell, *partial; /* (cells, 3 T + H*W), (cells, 2), (cells, FLIM_HIDDEN_PARTS, 2) of scratch */
    flim_hidden_totals *totals; /* added to */
} flim_hidden_kernels;

/* Totals; with dy losses and gradient, too. */
cudaError_t flim_k_hidden_loss(const flim_launch *l, const flim_hidden_kernels *d);

/* Losses and dy. */
cudaError_t flim_k_dense_loss(const flim_launch *l, const flim_dense_kernels *d);
/* fc1, BN (batch statistics if train; over one cell the running ones), act, dropout, fc2. */
cudaError_t flim_k_head_forward(const flim_launch *l, const flim_head_kernels *h, bool train);
/* Losses, correct answers and dlogits. */
cudaError_t flim_k_head_loss(const flim_launch *l, const flim_head_kernels *h);
/* The same for a loss over the batch. */
cudaError_t flim_k_batch_loss(const flim_launch *l, const flim_head_kernels *h);
cudaError_t flim_k_head_backward(const flim_launch *l, const flim_head_kernels *h, bool train);

/* ---- adamw.cu ---------------------------------------------------------------------------------------------------------- */

/* Everything about training that lives on the device. */
typedef struct flim_device_state {
    int64_t adam_step, skipped, skipped_in_row, scale_growth;
    double loss, weight; /* totals since the last reset */
    int64_t cells, correct, updates, calls;
    int64_t nonfinite_call; /* -1 = none */
    double grad_norm;
    double grad_norm_sum, grad_norm_least, grad_norm_most; /* over the updates since the last reset */
    float loss_scale;
    int update; /* decision of the current accumulation */
    float clip_factor, bias1, bias2; /* of the current update */
    float average_share; /* of the current values in the running averages */
    flim_hidden_totals hidden; /* since the last reset */
} flim_device_state;

/* Parameters of a train call, copied to the device before it. */
typedef struct flim_device_step {
    double divisor;
    double momentum; /* of BatchNorm's running statistics */
    float learning_rate, weight_decay, beta1, beta2, epsilon, clip, label_smoothing, dropout, block_dropout, focal_gamma,
        average_decay, encoder_hold;
    uint32_t hide_share;
} flim_device_step;

/* A convolution weight: fp32 master in PyTorch's layout (o,i,taps), storage copy (k,taps,c) and gradient (k,taps,c). */
typedef struct flim_weight_item {
    int o, i, taps, k, c;
    int64_t offset; /* in the parameter array */
    int64_t first; /* running element count of the stored items before this one, in (k,taps,c) order */
    void *storage; /* k*taps*c of the storage type; NULL = not stored, only the scale is made */
    const void *grad; /* k*taps*c, storage type or fp32 */
    int grad_is_float;
    const float *grad_scale; /* stored gradient = *grad_scale (NULL = 1) * gradient */
    float *scale; /* one float: power of two, storage = scale * weight */
    unsigned *amax; /* two, zero between launches: bits of the largest |weight|, blocks that have seen their part */
} flim_weight_item;

enum { FLIM_MAX_WEIGHTS = 28 };
typedef struct flim_weight_table {
    int n;
    int64_t elements; /* sum of k*taps*c */
    flim_weight_item item[FLIM_MAX_WEIGHTS];
} flim_weight_table;

/* Storage copies of the weights (table on the device).  scaled: by a power of two that brings the largest to [1,2).
 * state may be NULL, else nothing happens unless state->update. */
cudaError_t flim_k_weights(const flim_launch *l, const flim_weight_table *table, int n, int64_t elements,
                           const float *parameters, bool scaled, const flim_device_state *state);
/* A storage copy (k,taps,c) with its taps in reverse order and its channels exchanged (flim_conv_flip): flipped (c,taps,k). */
cudaError_t flim_k_flip(const flim_launch *l, const void *storage, int k, int taps, int c, void *flipped);
/* Gradients of the weights -> the gradient array in master layout, divided by their scale and *loss_scale. */
cudaError_t flim_k_gather(const flim_launch *l, const flim_weight_table *table, int n, int64_t elements,
                          const float *loss_scale, bool add, float *gradients);
/* Adds a train call's losses to the totals. */
cudaError_t flim_k_account(const flim_launch *l, flim_device_state *state, const double *loss, const int32_t *correct,
                           const float *weight, int64_t cells, bool dynamic);
/* What an update works on. */
typedef struct flim_update {
    int64_t count, encoder, n_statistics; /* P, of which the first are the encoder's, S */
    float *parameters, *moment1, *moment2; /* (P) */
    const float *gradients; /* (P) */
    float *statistics; /* (S): become the pending ones */
    const float *pending;
    float *average, *average_statistics; /* (P), (S), or NULL */
    double *partial; /* FLIM_NORM_BLOCKS */
} flim_update;

/* Norm, finite?, clipping; AdamW; loss scale, counters, running statistics and averages. */
enum { FLIM_NORM_BLOCKS = 256 };
cudaError_t flim_k_update(const flim_launch *l, flim_device_state *state, const flim_device_step *step,
                          const flim_update *update, bool dynamic);
/* Exchanges (count) floats. */
cudaError_t flim_k_exchange(const flim_launch *l, float *a, float *b, int64_t count);

/* ---- check_values.cu: for measurements and checks --------------------------------------------------------------------- */

/* Uniform values in [-1, 1) from a counter-based hash. */
cudaError_t flim_k_fill(const flim_launch *l, void *data, int64_t count, uint32_t seed);
/* *count (zeroed by the caller) += number of elements that are not finite. */
cudaError_t flim_k_count_nonfinite(const flim_launch *l, const void *data, int64_t count, unsigned long long *nonfinite);

#ifdef __cplusplus
}
#endif

#endif

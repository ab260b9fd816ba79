/* The network as data: a table of units and heads, the tensors they need, presets.
 *
 * For: the published network and its presets, and any other graph of units.  Backends walk this table; they hold no knowledge
 * of
 *      which network it is.  Shapes are (C,T,H,W) of one cell; PyTorch's layouts on the host.
 * Owns: a flim_network is a plain struct without pointers; copy it freely.
 * Errors: FLIM_ERROR_USAGE for impossible sizes.
 *
 * A unit is   z = conv(x) + bias;  u = BN(z);  v = u + skip;  a = leaky_relu(v, 0.01);  y = channel_dropout(max_pool(a))
 * where BN, skip, activation, pool and dropout are each optional.  One saved tensor per unit (z) is enough to recompute the
 * rest in the backward pass.  conv is a convolution or, in a transposed unit, the transpose of one.
 *
 * A head reads the y of one unit and has a loss.  A network has any number of heads up to FLIM_MAX_HEADS:
 *   POOLED   mean over T,H,W -> linear -> BN -> leaky ReLU -> dropout -> linear: `outputs` logits per cell;
 *   DENSE    y itself, one value per voxel of the input: a reconstruction.
 * The loss of a network is the sum over its heads of head.weight * loss.  A network without heads computes features: it
 * predicts, but a program that trains it does not compile.
 */
#ifndef FLIM_NETWORK_H
#define FLIM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/choices.h"
#include "flim/status.h"

enum { FLIM_MOST_EMBEDDED = 1024 }; /* outputs of a head with a loss over the batch */
enum { FLIM_MAX_UNITS = 28, FLIM_MAX_HEADS = 4, FLIM_MAX_TENSORS = 192, FLIM_NAME_MAX = 64, FLIM_MAX_CLASS_WEIGHTS = 16 };

/* The CUDA kernels compute with the decimal numbers in double, the CPU kernels with the nearest floats. */
#define FLIM_BN_EPS_EXACT 1e-5
#define FLIM_BN_MOMENTUM_EXACT 0.1
#define FLIM_BN_EPS ((float)FLIM_BN_EPS_EXACT)
#define FLIM_BN_MOMENTUM ((float)FLIM_BN_MOMENTUM_EXACT)
#define FLIM_LEAKY_SLOPE 0.01f

typedef struct flim_unit {
    char conv[FLIM_NAME_MAX]; /* state_dict prefix of the convolution: "res2.conv1", "res2.skip.conv" */
    char bn[FLIM_NAME_MAX]; /* of the BatchNorm: "res2.bn1"; empty = no BatchNorm */
    int input; /* unit whose y is x; -1 = the network's input */
    int skip; /* unit whose y is added before the activation; -1 = none */
    bool act; /* leaky ReLU, slope 0.01 */
    int pool_t; /* 1 = none, 2 = max over two time bins, stride 2, floor */
    bool dropout; /* channel dropout on y */
    /* z is the transpose of a convolution of this kernel, stride and padding, which maps (out_channels, conv_out) to
     * (in_channels, in); PyTorch's ConvTranspose3d with the output_padding that gives conv_out. */
    bool transposed;
    int block; /* activation checkpointing recomputes whole blocks: equal for consecutive units, ascending from 0 */
    int in_channels, out_channels;
    int kernel[3], stride[3], pad[3]; /* t, y, x */
    int in[3]; /* T,H,W of x */
    int conv_out[3]; /* T,H,W of z, u, v, a */
    int out[3]; /* T,H,W of y: conv_out with T / pool_t */
} flim_unit;

typedef enum flim_head_kind { FLIM_HEAD_POOLED, FLIM_HEAD_DENSE } flim_head_kind;

/* Rows of the table of losses (backend/loss.h).  Softmax and binary smooth their labels by flim_step's label_smoothing; they
 * and soft targets are focal losses where flim_step's focal_gamma is not 0. */
typedef enum flim_loss {
    FLIM_LOSS_BINARY, /* cross entropy of a sigmoid with the label 0 or 1: one output */
    FLIM_LOSS_SOFTMAX, /* cross entropy of a softmax with the label */
    FLIM_LOSS_SOFT_TARGETS, /* cross entropy with the batch's distribution over the classes; one output: with that of class 1 */
    FLIM_LOSS_SQUARED, /* dense: squared error to the input's signal, mean over T,H,W */
    FLIM_LOSS_SQUARED_MASKED, /* the same, mean over the voxels inside the mask; 0 for a cell without any */
    /* Dense, of networks with a third input channel, mean over the hidden voxels (flim_step.hide_share): */
    FLIM_LOSS_HIDDEN_POISSON, /* negative log likelihood of their counts at the rate exp(y), log n! left out */
    FLIM_LOSS_HIDDEN_SQUARED, /* squared error to their signal, log1p(counts) / 10 */
    /* Over the batch: NT-Xent (Chen et al., ICML 2020).  Cells 2i and 2i+1 are partners; a cell's loss is the cross entropy of
     * the softmax over its cosine similarities to the batch's other cells / temperature, with its partner as the label. */
    FLIM_LOSS_CONTRASTIVE,
    FLIM_LOSS_CONTRASTIVE_CLASS, /* the same without other cells of its class among the others */
    FLIM_LOSSES
} flim_loss;

/* Losses of dense heads, those of them over hidden voxels, and those that look at a cell's outputs beside the batch's. */
static inline bool flim_loss_is_hidden(flim_loss loss)
{
    return loss == FLIM_LOSS_HIDDEN_POISSON || loss == FLIM_LOSS_HIDDEN_SQUARED;
}

static inline bool flim_loss_is_dense(flim_loss loss)
{
    return loss == FLIM_LOSS_SQUARED || loss == FLIM_LOSS_SQUARED_MASKED || flim_loss_is_hidden(loss);
}

static inline bool flim_loss_is_over_batch(flim_loss loss)
{
    return loss == FLIM_LOSS_CONTRASTIVE || loss == FLIM_LOSS_CONTRASTIVE_CLASS;
}

typedef struct flim_head {
    int in_channels; /* of the unit it reads */
    int hidden; /* pooled: outputs of the first linear */
    int outputs; /* pooled: logits per cell, K', or of a loss over the batch any number; dense: 1 */
    char name[FLIM_NAME_MAX]; /* pooled: state_dict prefix of its tensors: "head" */
    flim_head_kind kind;
    int unit; /* whose y it reads */
    flim_loss loss;
    float weight; /* of the loss; 0 means 1 */
    float temperature; /* of a loss over the batch; 0 means 0.07 */
    /* Factors of a labelled cell's weight in this loss, by its label, of n_class_weights classes; 0 = every factor is 1. */
    int n_class_weights;
    float class_weight[FLIM_MAX_CLASS_WEIGHTS];
} flim_head;

/* Outputs of a classifier for K classes: one for two classes (of class 1, sigmoid), else K (softmax). */
static inline int flim_class_outputs(int classes)
{
    return classes == 2 ? 1 : classes;
}

static inline flim_loss flim_class_loss(int classes)
{
    return flim_class_outputs(classes) == 1 ? FLIM_LOSS_BINARY : FLIM_LOSS_SOFTMAX;
}

typedef enum flim_tensor_role {
    FLIM_TENSOR_CONV_WEIGHT, /* (O,I,kt,ky,kx); of a transposed unit (I,O,kt,ky,kx) */
    FLIM_TENSOR_LINEAR_WEIGHT, /* (O,I) */
    FLIM_TENSOR_BIAS, /* (O) */
    FLIM_TENSOR_BN_WEIGHT, /* gamma (C) */
    FLIM_TENSOR_BN_BIAS, /* beta (C) */
    FLIM_TENSOR_RUNNING_MEAN, /* (C), a statistic */
    FLIM_TENSOR_RUNNING_VAR /* (C), a statistic */
} flim_tensor_role;

/* One named tensor.  Learnable tensors lie one after the other in the parameter array (P floats), running statistics in the
 * statistics array (S floats), each in state_dict order. */
typedef struct flim_tensor {
    char name[FLIM_NAME_MAX]; /* state_dict name */
    flim_tensor_role role;
    int ndim;
    int shape[5];
    int64_t count; /* product of the shape */
    int64_t offset; /* in floats, in the parameter array or, for running statistics, in the statistics array */
    int unit; /* unit it belongs to; n_units + k = head k */
} flim_tensor;

typedef struct flim_network {
    char preset[16]; /* "base", ...; "custom" for others */
    int width, depth; /* w; residual blocks at each resolution */
    int classes; /* K >= 2 */
    int channels; /* of the input: signal and mask; 3 = and which voxels are hidden, whose signal is then 0 */
    int in[3]; /* T,H,W of the input */
    int n_units;
    flim_unit unit[FLIM_MAX_UNITS]; /* in order of execution; inputs and skips come earlier */
    int n_heads;
    flim_head head[FLIM_MAX_HEADS]; /* head 0 counts the correct cells */
    int n_tensors;
    flim_tensor tensor[FLIM_MAX_TENSORS]; /* state_dict order */
    int64_t parameters; /* P */
    int64_t statistics; /* S */
} flim_network;

/* What sets a network's size: its width w, and how many residual blocks follow one another at each of the three resolutions.
 * The published network has one (res1, res2, res3); further ones are res1_2, res1_3, res2_2, ... */
typedef struct flim_model_size {
    int width; /* a multiple of 4 from 4 to 1024 */
    int depth; /* 1 to FLIM_MAX_DEPTH */
} flim_model_size;
enum { FLIM_MAX_DEPTH = 3 };

/* Size of a preset: width 4 (nano), 8 (tiny), 16, 32 (base), 64, 128 (xlarge) of depth 1; 192 of depth 3 (giant). */
flim_model_size flim_preset_size(flim_preset preset);
int flim_preset_width(flim_preset preset);
/* The preset's, with another width or depth where that is not 0. */
flim_model_size flim_model_size_of(flim_preset preset, int64_t width, int64_t depth);

/* Builds the network of a size for an input size.  T >= 8, H, W >= 3, classes >= 2. */
flim_status flim_network_build_sized(flim_network *net, flim_model_size size, int classes, int t, int h, int w,
                                     flim_error *err);
/* The published one: of depth 1. */
flim_status flim_network_build(flim_network *net, int width, int classes, int t, int h, int w, flim_error *err);

/* What a network is to learn without labels. */
typedef struct flim_pretraining {
    bool
        masked; /* to predict hidden voxels, by a decoder of three transposed units (decoder.*); the stem has a third channel */
    bool squared; /* by the squared error to their signal, instead of the likelihood of their counts */
    float contrastive; /* weight of the loss that tells pairs of cells from others, by a head (projector.*); 0 = none */
    bool by_class; /* its pairs are cells of one class, of which the others of that class are not told apart */
    float temperature; /* 0 = 0.07 */
} flim_pretraining;
enum { FLIM_PROJECTED = 128 }; /* outputs of the projector */

/* The units of the classifier of that size, under the same names, with a decoder and a projector in place of its head.  classes: of
 * the labels that batches bring, at least 2. */
flim_status flim_network_build_pretraining(flim_network *net, flim_model_size size, int classes, int t, int h, int w,
                                           const flim_pretraining *what, flim_error *err);

/* Builds any other network: begin, add each unit in order of execution, add heads, finish. */
void flim_network_begin(flim_network *net, int classes, int channels, int t, int h, int w);
/* Adds a unit, which becomes number n_units - 1.  The caller sets names, input, skip, act, pool_t (0 means 1), dropout,
 * block, out_channels, kernel, stride and pad, and for a transposed unit conv_out; the other sizes follow. */
flim_status flim_network_add_unit(flim_network *net, const flim_unit *unit, flim_error *err);
/* Adds a head.  The caller sets name, kind, unit, hidden, outputs, loss, weight and class weights. */
flim_status flim_network_add_head(flim_network *net, const flim_head *head, flim_error *err);
/* Lists the tensors. */
flim_status flim_network_finish(flim_network *net, flim_error *err);

/* The tensor of that name, or NULL. */
const flim_tensor *flim_network_find(const flim_network *net, const char *name);

/* The tensor of a role that belongs to a unit (n_units + k = head k), or NULL.  For a head, `index` 0 is fc1 / bn, 1 is fc2. */
const flim_tensor *flim_network_tensor(const flim_network *net, int unit, flim_tensor_role role, int index);

static inline bool flim_tensor_is_statistic(const flim_tensor *t)
{
    return t->role == FLIM_TENSOR_RUNNING_MEAN || t->role == FLIM_TENSOR_RUNNING_VAR;
}

/* How many blocks there are for activation checkpointing. */
int flim_network_blocks(const flim_network *net);

/* Floats that a prediction has per cell: of each head in turn, logits (K') of a pooled one, y (1,T,H,W) of a dense one. */
int64_t flim_network_outputs(const flim_network *net);
/* How many parameters come before the first head's: those of the units. */
int64_t flim_network_encoder_parameters(const flim_network *net);
int64_t flim_head_outputs(const flim_network *net, int head);

/* Multiply-adds of the forward pass for one cell (convolutions and linears). */
int64_t flim_network_macs(const flim_network *net);
/* Sum over units of conv output elements for one cell; and the largest single tensor (input, z or y) for one cell. */
int64_t flim_network_conv_elements(const flim_network *net);
int64_t flim_network_largest_tensor(const flim_network *net);

/* Initial weights: Kaiming normal (fan out, leaky slope 0.01) for convolutions and fc1, normal sd 0.01 for a head's fc2,
 * biases 0, gamma 1, beta 0, running mean 0, running variance 1; keyed by (seed, fold).  parameters: P floats, statistics: S.
 * */
void flim_network_init(const flim_network *net, uint64_t seed, uint32_t fold, float *parameters, float *statistics);

/* BatchNorm over exactly one value per channel (a batch of one cell in the head) has no variance: in training it then uses
 * the running statistics as constants and leaves them unchanged.  Every backend does this. */

#endif

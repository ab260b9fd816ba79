/* The network as data: a table of units, the tensors it needs, presets.
 *
 * For: SPEC.md's `base` network and its presets, and any other chain of units.  Backends walk this table; they hold no
 *      knowledge of which network it is.  Shapes are (C,T,H,W) for one cell; PyTorch's layouts on the host.
 * Owns: a flim_network is a plain struct without pointers; copy it freely.
 * Errors: FLIM_ERROR_USAGE for impossible sizes.
 *
 * A unit is   z = conv(x) + bias;  u = BN(z);  v = u + skip;  a = leaky_relu(v, 0.01);  y = channel_dropout(max_pool(a))
 * where BN, skip, activation, pool and dropout are each optional.  One saved tensor a unit (z) is enough to recompute the
 * rest in the backward pass.  The head is  mean over T,H,W -> linear -> BN -> leaky ReLU -> dropout -> linear.
 */
#ifndef FLIM_NETWORK_H
#define FLIM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/status.h"

enum { FLIM_MAX_UNITS = 24, FLIM_MAX_TENSORS = 192, FLIM_NAME_MAX = 64 };

#define FLIM_BN_EPS 1e-5f
#define FLIM_BN_MOMENTUM 0.1f
#define FLIM_LEAKY_SLOPE 0.01f

typedef struct flim_unit {
    char conv[FLIM_NAME_MAX]; /* state_dict prefix of the convolution: "res2.conv1", "res2.skip.conv" */
    char bn[FLIM_NAME_MAX]; /* of the BatchNorm: "res2.bn1"; empty = no BatchNorm (layer tests only) */
    int input; /* unit whose y is x; -1 = the network's input */
    int skip; /* unit whose y is added before the activation; -1 = none */
    bool act; /* leaky ReLU, slope 0.01 */
    int pool_t; /* 1 = none, 2 = max over two time bins, stride 2, floor */
    bool dropout; /* channel dropout on y */
    int in_channels, out_channels;
    int kernel[3], stride[3], pad[3]; /* t, y, x */
    int in[3]; /* T,H,W of x */
    int conv_out[3]; /* T,H,W of z, u, v, a */
    int out[3]; /* T,H,W of y: conv_out with T / pool_t */
} flim_unit;

typedef struct flim_head {
    int in_channels; /* 4w: channels of the last unit */
    int hidden; /* 2w */
    int outputs; /* K': 1 for two classes (sigmoid), else the number of classes (softmax) */
} flim_head;

typedef enum flim_tensor_role {
    FLIM_TENSOR_CONV_WEIGHT, /* (O,I,kt,ky,kx) */
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
    int unit; /* unit it belongs to; n_units = the head */
} flim_tensor;

typedef struct flim_network {
    char preset[16]; /* "base", ...; "custom" for others */
    int width; /* w */
    int classes; /* K >= 2 */
    int channels; /* of the input: 2 */
    int in[3]; /* T,H,W of the input */
    int n_units;
    flim_unit unit[FLIM_MAX_UNITS]; /* in order of execution; inputs and skips come earlier */
    flim_head head;
    int n_tensors;
    flim_tensor tensor[FLIM_MAX_TENSORS]; /* state_dict order */
    int64_t parameters; /* P */
    int64_t statistics; /* S */
} flim_network;

/* Builds SPEC.md's network for a width and input size.  T >= 8, H, W >= 3, classes >= 2, width a multiple of 4. */
flim_status flim_network_build(flim_network *net, int width, int classes, int t, int h, int w, flim_error *err);

/* Width of a preset (tiny 8, small 16, base 32, large 64, xlarge 128); FLIM_ERROR_USAGE names the nearest preset. */
flim_status flim_network_preset_width(const char *preset, int *width, flim_error *err);

/* The tensor of that name, or NULL. */
const flim_tensor *flim_network_find(const flim_network *net, const char *name);

/* The tensor of a role that belongs to a unit (n_units = the head).  For the head, `index` 0 is fc1 / bn, 1 is fc2. */
const flim_tensor *flim_network_tensor(const flim_network *net, int unit, flim_tensor_role role, int index);

static inline bool flim_tensor_is_statistic(const flim_tensor *t)
{
    return t->role == FLIM_TENSOR_RUNNING_MEAN || t->role == FLIM_TENSOR_RUNNING_VAR;
}

/* The blocks that activation checkpointing keeps or makes again as wholes: units with the same first word of their names (res1,
 * res2, ...), and words of one unit each, one after the other (stem, down), as one.  block gets each unit's, ascending from 0;
 * returns how many there are. */
int flim_network_blocks(const flim_network *net, int block[FLIM_MAX_UNITS]);

/* Multiply-adds of the forward pass for one cell (convolutions and linears). */
int64_t flim_network_macs(const flim_network *net);
/* Sum over units of conv output elements for one cell; and the largest single tensor (input, z or y) for one cell. */
int64_t flim_network_conv_elements(const flim_network *net);
int64_t flim_network_largest_tensor(const flim_network *net);

/* Initial weights: Kaiming normal (fan out, leaky slope 0.01) for convolutions and fc1, normal sd 0.01 for head.fc2, biases
 * 0, gamma 1, beta 0, running mean 0, running variance 1; keyed by (seed, fold).  parameters: P floats, statistics: S. */
void flim_network_init(const flim_network *net, uint64_t seed, uint32_t fold, float *parameters, float *statistics);

/* BatchNorm over exactly one value a channel (a batch of one cell in the head) has no variance: in training it then uses the
 * running statistics as constants and leaves them unchanged.  Every backend does this. */

#endif

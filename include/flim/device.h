/* Devices and compiled programs: how the rest of the library computes.
 *
 * For: the CPU (oneDNN) and CUDA (cuDNN) behind one interface.  A program is (network, batch sizes, precision) compiled for a
 *      device; it can be asked for its exact memory need before anything is allocated, allocates once, and nothing in a step
 *      allocates.  Implementers see flim/backend.h.
 * Owns: the caller owns devices and programs and destroys programs before their device.  Host arrays given to read/write are
 *      the caller's.  A program is used from one thread at a time.
 * Errors: FLIM_ERROR_DEVICE no device, driver trouble, a refused operation; FLIM_ERROR_MEMORY needed and free bytes in the
 *      text; FLIM_ERROR_USAGE a precision or size that the device cannot do.
 *
 * Work may be asynchronous: a batch given to train or predict must stay unchanged until the next call of any flim_program_*
 * function on that program has returned; logits are written when flim_program_wait (or totals) has returned.
 */
#ifndef FLIM_DEVICE_H
#define FLIM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flim/batch.h"
#include "flim/choices.h"
#include "flim/log.h"
#include "flim/network.h"
#include "flim/ranks.h"
#include "flim/status.h"

typedef struct flim_device flim_device;
typedef struct flim_program flim_program;

typedef struct flim_device_info {
    char kind[8]; /* "cpu", "cuda" */
    int index; /* among the visible devices; 0 for the CPU */
    char name[128]; /* "NVIDIA L4"; the processor's model name */
    char id[64]; /* PCI bus id; empty for the CPU */
    char uuid[64];
    char libraries[256]; /* for the first start-up line: "CUDA 13.0 (driver 580.159) · cuDNN 9.19.0" or "oneDNN 2.6.3" */
    char architecture[32]; /* "sm_89", "avx512_core" */
    int64_t memory_bytes, memory_free; /* of the device; of the host for the CPU */
    int threads; /* of the host that compute; they set the order of sums.  0 = the device computes by itself */
    bool described; /* opened from a flim_card: it can be planned for, not run on */
    bool assumes_workspace; /* described, and the convolution library is not installed: the most it may take is assumed */
    unsigned precisions; /* bit (1u << flim_precision) for each it can do */
    flim_precision auto_precision, amp_precision; /* what AUTO and AMP are here; AMP itself: the device has none for it */
    const char *precision_reason; /* of auto_precision: a constant text */
    bool own_memory; /* apart from the host's: copies go there, it can be measured, it can cache cells */
} flim_device_info;

/* What a device can do at most, as measured: the ceilings that `flim_bench layers` compares with. */
typedef struct flim_device_limits {
    double copy; /* bytes a second, read + written, of a copy within device memory */
    double upload; /* bytes a second from host memory as flim_device_host_alloc gives it */
    /* Operations (2 a multiply-add) a second of a large matrix product in the type that a precision's tensors have (on CUDA
     * fp16 for tf32, too), by flim_precision; 0 = not measured. */
    double matrix[5];
} flim_device_limits;

/* A card by what decides its plans: for planning without it.  Figures are those that CUDA reports (cudaDeviceProp). */
typedef struct flim_card {
    char name[128]; /* "NVIDIA L4" */
    int64_t memory_bytes; /* what programs can have of it, all that the driver keeps left out */
    int64_t context_bytes; /* of a CUDA context with this program's code and cuDNN's; 0 = not known */
    int capability; /* 10 * major + minor: 75, 89, 90 */
    int processors; /* multiprocessors */
    int shared_bytes; /* most shared memory of a block (opt-in) */
    int registers, threads, blocks; /* of a multiprocessor, at most */
    int64_t l2_bytes;
    int core_khz, memory_khz;
    /* For people who compare cards, no plan depends on them; 0 = not known.  GB a second; TFLOP/s in fp32, and of fp16
     * products with fp32 sums on tensor cores. */
    double bandwidth_gb, fp32_tflops, half_tflops;
} flim_card;

enum { FLIM_LEAST_CAPABILITY = 75 }; /* the oldest cards that CUDA 13 and the kernels here have code for */

/* A device that stands for a card which need not be there: programs compile for it and tell their memory, and nothing else.
 * FLIM_ERROR_DEVICE where this build has no CUDA backend.  Nothing of a real card is used. */
flim_status flim_device_describe(const flim_card *card, flim_device **out, flim_error *err);
/* The properties of an open device's card; FLIM_ERROR_USAGE for the CPU. */
flim_status flim_device_get_card(const flim_device *device, flim_card *out, flim_error *err);

/* Opens "auto", "cpu", "cuda" or "cuda:N".  auto takes the first CUDA device, else the CPU, and tells `log` which and why;
 * an explicit cuda never falls back: FLIM_ERROR_DEVICE says no driver, driver too old (both versions), no visible device
 * (with CUDA_VISIBLE_DEVICES) or architecture not compiled in. */
flim_status flim_device_open(const char *spec, const flim_log *log, flim_device **out, flim_error *err);
/* How many CUDA devices are visible; FLIM_ERROR_DEVICE says why there is none.  It may initialise CUDA. */
flim_status flim_device_count(int *n, flim_error *err);
void flim_device_close(flim_device *device); /* NULL is allowed */
const flim_device_info *flim_device_get_info(const flim_device *device);
/* What a precision is on that device: AUTO and AMP become another, the rest stays. */
flim_precision flim_device_precision(const flim_device_info *info, flim_precision asked);

/* Elements per cell of the largest tensor that programs of a network store on a device in a precision (not AUTO), padding channels
 * included; a batch times it must stay below 2^31, which is as far as cuDNN, oneDNN and many kernels count. */
flim_status flim_device_largest_tensor(const flim_device *device, const flim_network *net, flim_precision precision,
                                       int64_t *elements, flim_error *err);

/* How the device does at this moment; NaN = not known, as always for the CPU and where the driver does not tell. */
typedef struct flim_device_status {
    double busy; /* share of the last interval (about 1/6 s to 1 s) in which a kernel ran */
    double memory_bytes; /* in use, by all programs */
    double watts, celsius;
} flim_device_status;

void flim_device_get_status(const flim_device *device, flim_device_status *out);

/* Bytes of the device (CPU: the host) that can be allocated at this moment. */
flim_status flim_device_memory_free(flim_device *device, int64_t *bytes, flim_error *err);

/* Measures; takes about a second and up to 1 GiB of device memory.  FLIM_ERROR_USAGE where the backend cannot. */
flim_status flim_device_measure_limits(flim_device *device, flim_device_limits *out, flim_error *err);

/* Host memory that the device copies from fast (pinned for CUDA, 64-byte aligned otherwise).  *pinned says which it became;
 * pinning that fails falls back to pageable. */
flim_status flim_device_host_alloc(flim_device *device, size_t bytes, void **out, bool *pinned, flim_error *err);
void flim_device_host_free(flim_device *device, void *memory);

typedef struct flim_program_options {
    flim_precision precision; /* not AUTO */
    int64_t train_batch; /* most cells in one training (micro-)batch; 0 = no training: no gradients, moments, saves */
    int64_t eval_batch; /* most cells in one predict call; 0 = none */
    bool benchmark; /* time the candidates for each convolution and keep the fastest correct one */
    bool deterministic; /* equal bits on equal runs */
    flim_recompute recompute; /* recompute the inside of blocks in the backward pass */
    int64_t memory_limit; /* AUTO: device bytes that the program should stay within */
    int64_t workspace_limit; /* bytes a single convolution may ask for; 0 = the backend's default */
    bool average; /* keep a running average of weights and statistics (flim_step.average_decay) */
    const char *cache_dir; /* where tuned plans are kept between runs; NULL = not kept */
    const flim_log *log; /* notes while compiling; may be NULL */
    bool inspect; /* for tests: every tensor of a call keeps bytes of its own (src/backend/inspect.h) */
    const volatile int *stop; /* polled while plans are sought; non-zero: FLIM_INTERRUPTED.  May be NULL */
    /* Training is shared with these: see flim_program_train.  NULL = the program trains alone.  They outlive it. */
    flim_ranks *ranks;
    bool sync_batchnorm; /* of the ranks: BatchNorm's statistics are over the batches of all of them in a call */
} flim_program_options;

/* Compiles.  Takes time (tuning), takes no memory that flim_program_memory reports. */
flim_status flim_program_compile(flim_device *device, const flim_network *net, const flim_program_options *options,
                                 flim_program **out, flim_error *err);
void flim_program_destroy(flim_program *program); /* NULL is allowed */

typedef enum flim_memory_place { FLIM_MEMORY_DEVICE, FLIM_MEMORY_PINNED, FLIM_MEMORY_HOST } flim_memory_place;

/* How an item follows the batch. */
typedef enum flim_memory_kind {
    FLIM_MEMORY_STEADY, /* it grows with it, or not at all */
    FLIM_MEMORY_WORKSPACE /* of convolutions: it jumps from batch to batch */
} flim_memory_kind;

typedef struct flim_memory_item {
    char name[48]; /* "parameters", "gradients", "Adam moments", "saved activations", ... */
    flim_memory_place place;
    flim_memory_kind kind;
    int64_t bytes;
} flim_memory_item;

typedef struct flim_memory_plan {
    int n;
    flim_memory_item item[48];
    int64_t total[3]; /* by flim_memory_place */
} flim_memory_plan;

/* Exact need by component.  Valid before and after allocation, and the same. */
flim_status flim_program_memory(const flim_program *program, flim_memory_plan *plan, flim_error *err);
/* Allocates all of it, in one place.  Parameters, statistics, moments and counters are unset until written. */
flim_status flim_program_allocate(flim_program *program, flim_error *err);

/* ---- Device cache: cells in device memory ------------------------------------------------------------------------ */

/* Counts of all cells of a data set, stored as narrow as each cell allows, for batches that bring only the cells' numbers. */
typedef struct flim_device_cache {
    int64_t n; /* cells; the program's T x H x W voxels and H x W mask pixels each */
    const uint8_t *bytes; /* (n) of a voxel: 1 or 2: counts as uint8 or uint16; 4: the finished signal as float */
    const float *value; /* (65536) signal of each count: what turns counts into a batch's signal, bit for bit */
} flim_device_cache;

/* Before flim_program_allocate: plans room for these cells, which flim_program_memory then lists; NULL takes them out again.
 * The arrays are copied.  FLIM_ERROR_USAGE where the device has no memory of its own. */
flim_status flim_program_plan_cache(flim_program *program, const flim_device_cache *cells, flim_error *err);
/* After it: stores one cell, voxels (T,H,W) of bytes[cell] each, mask (H,W) 0 or 1.  Returns when the arrays may change. 
 * From any thread, one at a time.  A batch that is device_cached needs each of its cells stored. */
flim_status flim_program_store_cell(flim_program *program, int64_t cell, const void *voxels, const uint8_t *mask,
                                    flim_error *err);

/* The program's state, host copies in the order and layouts of flim_network's tensor table. */
typedef enum flim_state {
    FLIM_STATE_PARAMETERS, /* P floats */
    FLIM_STATE_STATISTICS, /* S floats */
    FLIM_STATE_GRADIENTS, /* P floats, of the last accumulation, before clipping; read only */
    FLIM_STATE_MOMENT1, /* P floats: Adam's m */
    FLIM_STATE_MOMENT2, /* P floats: Adam's v */
    FLIM_STATE_AVERAGE_PARAMETERS, /* P floats: the running averages of an option's `average` */
    FLIM_STATE_AVERAGE_STATISTICS /* S floats */
} flim_state;

flim_status flim_program_read(flim_program *program, flim_state state, float *out, flim_error *err);
flim_status flim_program_write(flim_program *program, flim_state state, const float *in, flim_error *err);

#define FLIM_LOSS_SCALE_START 65536.0f /* of fp16, as PyTorch's GradScaler */

typedef struct flim_counters {
    int64_t adam_step; /* updates made; the next one is adam_step + 1 */
    int64_t skipped; /* updates left out because of non-finite gradients (fp16) */
    int64_t skipped_in_row;
    double loss_scale; /* fp16; 1 otherwise */
    int64_t scale_growth; /* good updates since the scale last changed */
} flim_counters;

flim_status flim_program_get_counters(flim_program *program, flim_counters *out, flim_error *err);
flim_status flim_program_set_counters(flim_program *program, const flim_counters *in, flim_error *err);

/* How one training micro-batch enters an update.  An accumulation is the micro-batches whose gradients are summed for one
 * update: usually one. */
typedef struct flim_step {
    bool first; /* first of its accumulation: gradients start from zero */
    bool last; /* last of its accumulation: clip, update */
    double divisor; /* sum of the cells' weights over the whole accumulation: the loss is sum(weight * loss) / divisor */
    float learning_rate, weight_decay, beta1, beta2, epsilon; /* AdamW, decoupled decay as torch.optim.AdamW */
    float clip; /* global L2 norm as torch.nn.utils.clip_grad_norm_; 0 = none */
    float label_smoothing; /* two classes: target y(1-s) + s/2; else torch's cross entropy */
    float dropout; /* probability of the head's dropout; 0 = none */
    float block_dropout; /* of the channel dropout of units */
    /* Focal loss (Lin et al., ICCV 2017) of cross entropies: each class's term times (1 - p)^gamma, p the probability that it
     * is given; 0 = cross entropy. */
    float focal_gamma;
    /* Of the running average: after u updates in all, average = d average + (1 - d) value with d = min(decay, u / (9 + u)),
     * so that the first values, which are none of training's, soon count for nothing.  In programs with `average` only. */
    float average_decay;
    /* What the encoder, all parameters before the first head's, goes without of the learning rate: 0 = nothing, 0.9 = it learns at
     * a tenth, 1 = its weights stay as they are and only the heads' gradients count in the norm.  Its moments follow its gradients
     * all the same, so that a rate that comes back finds them right. */
    float encoder_hold;
    /* Networks with a third input channel: the share, of 65536, of the voxels inside the mask that are hidden (data/hide_math.h);
     * keyed by the cells' ids.  0 = none. */
    uint32_t hide_share;
    /* With ranks: 1 + the rank whose batch of this call has one cell, over which BatchNorm may take its running statistics: they
     * are then those that the ranks before it have left; 0 = no batch has. */
    int single;
} flim_step;

/* One batch per update; torch's betas and epsilon; the rest is zero. */
flim_step flim_step_defaults(void);

/* Forward, loss, backward on 1 <= batch->n <= train_batch cells; update when step->last.  BatchNorm uses batch statistics and
 * moves the running ones.
 *
 * With `ranks` all of them call it together, each with a batch of its own, which may have no cells (n = 0).  The calls are one
 * accumulation: that of rank 0's batch, rank 1's, ... and then those of the next calls; step (first, last, divisor over the
 * cells of all) is the same for all.  Gradients are summed over the ranks before the update, running statistics are moved by
 * each batch in turn, and totals count all batches, so that state and totals are what one program would have that was given the
 * batches one after the other, but for the rounding of sums; they are the same bits on all ranks.  With `sync_batchnorm` the
 * batches of a call are one batch instead: state and totals are what one program would have that was given all their cells in
 * one call, but for the rounding of sums. */
flim_status flim_program_train(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err);

/* Forward as in training, without dropout, loss or update: BatchNorm's running statistics move towards the batch's by `share`
 * of the difference (a training step's is 0.1).  Shares 1, 1/2, 1/3, ... make them the mean of the statistics of as many
 * batches.  The head of a batch of one cell keeps its own.  1 <= batch->n <= train_batch.
 *
 * With `sync_batchnorm` all ranks call it together, each with its part of the batch, which may be empty; else a rank's call is its
 * own. */
flim_status flim_program_recalibrate(flim_program *program, const flim_batch *batch, double share, flim_error *err);

/* Exchanges weights and statistics with their running averages: predictions are then the averages'; a second call restores
 * every bit.  FLIM_ERROR_USAGE without `average`. */
flim_status flim_program_exchange_average(flim_program *program, flim_error *err);

/* Forward as in prediction, on the cells with step->hide_share of their voxels hidden: adds to the totals' `hidden`, and to nothing
 * else.  1 <= batch->n <= eval_batch.  FLIM_ERROR_USAGE for a network that predicts no hidden voxels. */
flim_status flim_program_evaluate(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err);

/* Forward with running statistics, no dropout.  logits: (n,K') floats, written by the time flim_program_wait returns. */
flim_status flim_program_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err);

/* What the pooled head `head` saw of each cell of the last predict call: the mean over T,H,W of its unit's output, (n,C) floats for
 * the n cells of that call; count = n C.  Finishes all work first.  FLIM_ERROR where there was none, or the head is not pooled. */
flim_status flim_program_read_pooled(flim_program *program, int head, float *out, int64_t count, flim_error *err);

/* Over the hidden voxels of all cells, in natural units. */
typedef struct flim_hidden_totals {
    double voxels, photons; /* hidden */
    double loss; /* sum of the dense head's loss; Poisson: negative log likelihood without log n! */
    double baseline; /* the same of a rate that needs no network: backend/hidden.h */
} flim_hidden_totals;

typedef struct flim_totals {
    double loss; /* sum of weight * loss (with smoothing) over training cells since the last reset */
    double weight; /* sum of weights */
    int64_t cells, correct;
    int64_t updates; /* since the last reset, skipped ones left out */
    double grad_norm; /* of the last accumulation, before clipping */
    double grad_norm_sum, grad_norm_least, grad_norm_most; /* over the updates; 0 without any */
    bool nonfinite; /* a loss or gradient was not finite and (outside fp16) no update was made from then on */
    int64_t calls; /* of train, since the last reset */
    int64_t nonfinite_call; /* which of them it was, 0-based; -1 = none */
    flim_hidden_totals hidden; /* of networks that predict hidden voxels, since the last reset */
} flim_totals;

/* What kind of work an operation of a training step is. */
typedef enum flim_work {
    FLIM_WORK_FORWARD, /* convolutions */
    FLIM_WORK_NORM, /* BatchNorm, activation, skip, dropout, pool */
    FLIM_WORK_HEAD, /* mean, head, loss, both ways */
    FLIM_WORK_NORM_GRADIENT,
    FLIM_WORK_DATA_GRADIENT, /* of convolutions */
    FLIM_WORK_WEIGHT_GRADIENT,
    FLIM_WORK_UPDATE, /* norm, clipping, AdamW, copies of the weights */
    FLIM_WORKS
} flim_work;
const char *flim_work_name(flim_work work);

/* One operation of a training step, timed alone. */
typedef struct flim_operation_time {
    flim_work work;
    char name[96]; /* "res1.conv1 weight gradient" */
    char how[32]; /* engine: "cuDNN 62", "own" */
    double ms; /* median */
    double operations; /* of its products, 2 a multiply-add; 0 where it only moves data */
} flim_operation_time;

/* Times every operation of a full training batch, in order; *n gets their number, at most `room`.  The program must have
 * trained once; its state is unspecified afterwards.  FLIM_ERROR_USAGE where the backend cannot. */
flim_status flim_program_profile(flim_program *program, flim_operation_time *out, int room, int *n, flim_error *err);

/* Finishes all work, then copies the totals; reset starts them from zero afterwards. */
flim_status flim_program_totals(flim_program *program, bool reset, flim_totals *out, flim_error *err);
/* Puts the totals where an interrupted epoch left them, so that they go on to the same bits. */
flim_status flim_program_set_totals(flim_program *program, const flim_totals *in, flim_error *err);
/* Finishes all work; logits of earlier predict calls are then in place. */
flim_status flim_program_wait(flim_program *program, flim_error *err);
/* Most device bytes that were allocated at once (CPU: bytes of the plan), workspace included, context not. */
int64_t flim_program_peak_bytes(const flim_program *program);
/* True where steps are replayed as a whole (a CUDA graph) since the second one, and not launched kernel by kernel. */
bool flim_program_replays(const flim_program *program);

#endif

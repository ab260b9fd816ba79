/* A convolution plan: the way in which one problem is computed on one card, by a kernel of our own or by cuDNN.
 *
 * For: plan_search.h finds plans, plan_cache.h keeps them on disk, plan_store.h hands them out; programs run them.
 * Owns: flim_cudnn_plan_free(&plan->cudnn) frees all that a plan holds; copies share it.
 * Errors: of a run, FLIM_ERROR_DEVICE with CUDA's or cuDNN's reason.
 */
#ifndef FLIM_CUDA_CONV_PLAN_H
#define FLIM_CUDA_CONV_PLAN_H

#include "cuda/conv/conv_fp32.h"
#include "cuda/conv/conv3x3x3_wgrad.h"
#include "cuda/conv/conv_cudnn.h"
#include "flim/log.h"

struct flim_cuda_device;

#define FLIM_TURNED " turned" /* end of a turned plan's engine */

typedef struct flim_conv_plan {
    flim_conv_problem problem;
    bool benchmarked;
    char engine[32]; /* "cuDNN 38", "cuDNN 38 turned", "own", "own 128x64" */
    double microseconds; /* as timed; 0 = not timed */
    bool own; /* conv_wgrad.h: reads the cells that there are, writes fp32 gradients in PyTorch's layout */
    int tile; /* conv_fp32.h's: reads and writes the cells that there are; 0 = not by it */
    bool turned; /* a data gradient as a forward convolution (flim_conv_turn): takes w turned (flim_k_turn) */
    int64_t workspace; /* bytes */
    flim_cudnn_plan cudnn; /* where neither */
} flim_conv_plan;

/* How plans are looked for. */
typedef struct flim_plan_options {
    bool benchmark; /* time the candidates; else our own kernel where there is one, then cuDNN's first that runs */
    int64_t workspace_limit; /* bytes a plan may ask for; 0 = default */
    const char *cache_dir; /* NULL = no file */
    const flim_log *log;
    const volatile int *stop; /* polled between candidates; may be NULL */
} flim_plan_options;

/* The workspace limit in bytes, the default put in. */
int64_t flim_plan_workspace_limit(const flim_plan_options *options);

/* The problem as conv_wgrad.h has it, for a gradient of in_channels and out_channels (the problem's c and k, less what is padding);
 * false where that kernel does not do it. */
bool flim_own_wgrad_shape(const flim_conv_problem *problem, int in_channels, int out_channels, int sm, flim_wgrad_shape *out);

/* Our own kernels' plans for base's problem, all else as in base, best guess first; returns how many. */
int flim_own_plans(const struct flim_cuda_device *device, const flim_conv_plan *base, flim_conv_plan list[FLIM_FP32_TILES]);

/* Enqueues a plan that is not `own` over the first n cells on the device's stream; what cuDNN writes of the other cells is not to be
 * read.  x, w, y as in conv_problem.h (device), but w turned where the plan is; workspace of plan->workspace bytes. */
flim_status flim_conv_plan_run(struct flim_cuda_device *device, const flim_conv_plan *plan, int64_t n, const void *x,
                               const void *w, const void *y, void *workspace, flim_error *err);

#endif

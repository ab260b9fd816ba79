/* Chosen convolution plans of a device: searched once a problem, checked once, kept in memory and in a file.
 *
 * For: programs ask for a plan a problem; folds, epochs and last partial batches (which run the full batch's plan) share them.
 * Owns: the store owns the plans until the device closes; pointers handed out stay valid.
 * Errors: FLIM_ERROR_DEVICE when nothing runs, with cuDNN's reason; FLIM_ERROR_MEMORY when there is no room to try.
 *
 * The file (folder options->cache_dir, one a card, driver and cuDNN version) holds, a plan, one line
 *   "plan" <bytes of JSON> <workspace> <microseconds> <engine> <problem>
 * and cuDNN's JSON.  An entry that does not load is searched again; a file that cannot be written is a note, not an error.
 */
#ifndef FLIM_CUDA_PLAN_STORE_H
#define FLIM_CUDA_PLAN_STORE_H

#include "conv_fp32.h"
#include "conv_wgrad.h"
#include "cudnn_plan.h"
#include "flim/log.h"

struct flim_cuda_device;

typedef struct flim_conv_plan {
    flim_conv_problem problem;
    bool benchmarked;
    char engine[32]; /* "cuDNN 38", "own", "own 128x64" */
    double microseconds; /* as timed; 0 = not timed */
    bool own; /* conv_wgrad.h: reads the cells that there are, writes fp32 gradients in PyTorch's layout */
    int tile; /* conv_fp32.h's: reads and writes the cells that there are; 0 = not by it */
    int64_t workspace; /* bytes */
    flim_cudnn_plan cudnn; /* where neither */
} flim_conv_plan;

typedef struct flim_plan_options {
    bool benchmark; /* time the candidates; else our own kernel where there is one, then cuDNN's first that runs */
    int64_t workspace_limit; /* bytes a plan may ask for; 0 = default */
    const char *cache_dir; /* NULL = no file */
    const flim_log *log;
    const volatile int *stop; /* polled between candidates; may be NULL */
} flim_plan_options;

typedef struct flim_cached_plan {
    char problem[320];
    char engine[32];
    double microseconds;
    int64_t workspace;
    char *json;
    size_t size;
} flim_cached_plan;

typedef struct flim_plan_store {
    flim_conv_plan **plan;
    int n, room;
    flim_cached_plan *cached;
    int n_cached, room_cached;
    bool file_read, file_stale;
    int searched, loaded; /* since the device was opened, for notes */
} flim_plan_store;

/* The plan for a problem; *out is the store's. */
flim_status flim_plan_store_get(struct flim_cuda_device *device, const flim_conv_problem *problem,
                                const flim_plan_options *options, const flim_conv_plan **out, flim_error *err);
/* The problem as conv_wgrad.h has it; false where that kernel does not do it. */
bool flim_own_wgrad_shape(const flim_conv_problem *problem, int sm, flim_wgrad_shape *out);

/* Enqueues a plan that is not `own` over the first n cells on the device's stream; what cuDNN writes of the other cells is not to be
 * read.  x, w, y as in conv_problem.h (device); workspace of plan->workspace bytes. */
flim_status flim_conv_plan_run(struct flim_cuda_device *device, const flim_conv_plan *plan, int64_t n, const void *x,
                               const void *w, const void *y, void *workspace, flim_error *err);

/* Writes the file where there are new plans. */
void flim_plan_store_save(struct flim_cuda_device *device, const flim_plan_options *options);
void flim_plan_store_free(struct flim_cuda_device *device);

#endif

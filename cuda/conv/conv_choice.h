/* A choice: the algorithm by which one problem is computed on one card, one of our own kernels or one of cuDNN's engines.
 *
 * For: conv_search.h finds choices, conv_cache.h keeps them on disk, conv_store.h hands them out; programs run them.
 * Owns: flim_cudnn_plan_free(&choice->cudnn) frees all that a choice holds; copies share it.
 * Errors: of a run, FLIM_ERROR_DEVICE with CUDA's or cuDNN's reason.
 */
#ifndef FLIM_CUDA_CONV_CHOICE_H
#define FLIM_CUDA_CONV_CHOICE_H

#include "cuda/conv/conv3x3x3_wgrad.h"
#include "cuda/conv/conv_cudnn.h"
#include "cuda/conv/conv_fp32.h"
#include "flim/log.h"

struct flim_cuda_device;

#define FLIM_FLIPPED " flipped" /* end of a flipped choice's engine */

typedef struct flim_conv_choice {
    flim_conv_problem problem;
    bool benchmarked;
    char engine[32]; /* "cuDNN 38", "cuDNN 38 flipped", "custom", "custom 128x64" */
    double microseconds; /* as timed; 0 = not timed */
    bool custom; /* conv3x3x3_wgrad.h: reads n cells, writes the fp32 gradient in PyTorch's layout */
    int tile; /* conv_fp32.h's: reads and writes n cells; 0 = not by it */
    bool flipped; /* a data gradient as a forward convolution (flim_conv_flip): takes w flipped (flim_k_flip) */
    int64_t workspace; /* bytes */
    flim_cudnn_plan cudnn; /* if neither */
} flim_conv_choice;

/* How choices are searched. */
typedef struct flim_conv_search_options {
    bool benchmark; /* time the candidates; else our own kernel if there is one, then cuDNN's first that runs */
    int64_t workspace_limit; /* bytes a choice may ask for; 0 = default */
    const char *cache_dir; /* NULL = no file */
    const flim_log *log;
    const volatile int *stop; /* polled between candidates; may be NULL */
} flim_conv_search_options;

/* The workspace limit in bytes, the default put in. */
int64_t flim_conv_workspace_limit(const flim_conv_search_options *options);

/* Our own kernels' choices for base's problem, all else as in base, best guess first; returns how many. */
int flim_custom_choices(const struct flim_cuda_device *device, const flim_conv_choice *base,
                        flim_conv_choice list[FLIM_FP32_TILES]);

/* Enqueues a choice over the first arguments->n cells on the device's stream; what cuDNN writes of the other cells is not to be read.
 * arguments->w is flipped if the choice is; scratch of choice->workspace bytes. */
flim_status flim_conv_run(struct flim_cuda_device *device, const flim_conv_choice *choice,
                          const flim_conv_arguments *arguments, flim_error *err);

#endif

/* The table of convolution algorithms, and a choice from it: the algorithm and variant by which one problem is computed on
 * one card.
 *
 * For: conv_search.h finds choices, conv_cache.h keeps them on disk, conv_store.h hands them out; programs run them.  A new
 *      algorithm is a file with one flim_conv_algorithm, listed in conv_choice.c.
 * Owns: flim_cudnn_plan_free(&choice->cudnn) frees all that a choice holds; copies share it.
 * Errors: of a run, FLIM_ERROR_DEVICE with CUDA's or cuDNN's reason.
 */
#ifndef FLIM_CUDA_CONV_CHOICE_H
#define FLIM_CUDA_CONV_CHOICE_H

#include "cuda/conv/conv_arguments.h"
#include "cuda/conv/conv_cudnn.h"
#include "flim/device.h"
#include "flim/log.h"

struct flim_cuda_device;

typedef struct flim_conv_choice {
    flim_conv_problem problem;
    const struct flim_conv_algorithm *algorithm;
    int variant; /* fp32: its tiling; fused_3x3x3: how its work is cut */
    flim_cudnn_plan cudnn; /* cuDNN: its execution plan */
    int64_t workspace; /* bytes of scratch */
    char engine[32]; /* "fused_3x3x3", "fp32 128x64x8", "cuDNN 38", "cuDNN 38 flipped": unique among a problem's candidates */
    double microseconds; /* as timed; 0 = not timed */
    bool benchmarked; /* the candidates were timed */
} flim_conv_choice;

/* Takes a candidate, with all that it holds; false: no more are wanted. */
typedef bool flim_conv_offer(void *to, const flim_conv_choice *candidate);

typedef struct flim_conv_algorithm {
    const char *name;
    bool fused; /* nothing else computes its problems: taken whatever its workspace */
    bool library; /* cuDNN's: always over the problem's n cells; not there without the library */
    bool flipped; /* reads arguments->w flipped (flim_k_flip) */
    bool fp32_gradient; /* WEIGHT: writes arguments->master, else arguments->w */
    bool (*supported)(const flim_conv_problem *problem, const flim_card *card);
    /* If candidates are not timed (deterministic runs): whether it is tried for a supported problem before those of which this is false;
     * NULL = always. */
    bool (*guess)(const flim_conv_problem *problem, const flim_card *card);
    /* A supported FORWARD problem with sums, on weights as stored, is best computed so, and not by another algorithm with a pass over y
     * after it; NULL = never. */
    bool (*gathers)(const flim_conv_problem *problem, const flim_card *card);
    /* Offers the ways to compute base's problem, best guess first, each as a copy of base.  A failure, also of only some of
     * them, leaves its reason in err. */
    flim_status (*variants)(struct flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err);
    flim_status (*run)(struct flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err);
} flim_conv_algorithm;

extern const flim_conv_algorithm flim_conv_fused_stem, flim_conv_fused_3x3x3, flim_conv_wgrad_narrow, flim_conv_wgrad_3x3x3,
    flim_conv_wgrad_wgmma, flim_conv_wgmma, flim_conv_strided, flim_conv_1x1x1, flim_conv_wgrad_1x1x1, flim_conv_fp32,
    flim_conv_cudnn, flim_conv_cudnn_flipped;

/* A `guess`: tried last. */
bool flim_conv_not_first(const flim_conv_problem *problem, const flim_card *card);

/* In the order in which they are tried if nothing is timed, but for their guesses. */
enum { FLIM_CONV_ALGORITHMS = 12 };
extern const flim_conv_algorithm *const flim_conv_algorithms[FLIM_CONV_ALGORITHMS];

/* How choices are searched. */
typedef struct flim_conv_search_options {
    bool benchmark; /* time the candidates; else the first algorithm of the table that computes the problem correctly */
    int64_t workspace_limit; /* bytes a choice may ask for; 0 = default */
    const char *cache_dir; /* NULL = no file */
    const flim_log *log;
    const volatile int *stop; /* polled between candidates; may be NULL */
    /* The kernel of the stem and what reads it is not taken: in its middle there are statistics to share with other ranks. */
    bool no_stem;
    const char *without; /* tests: name of an algorithm that is not taken; NULL = none */
} flim_conv_search_options;

/* The workspace limit in bytes, the default put in. */
int64_t flim_conv_workspace_limit(const flim_conv_search_options *options);
/* The algorithms that compute a problem on a card, in the order in which they are tried; returns how many. */
int flim_conv_candidates(const flim_conv_problem *problem, const flim_card *card, const flim_conv_search_options *options,
                         const flim_conv_algorithm *out[FLIM_CONV_ALGORITHMS]);
/* Some algorithm computes the problem on the card and is a good guess. */
bool flim_conv_is_guessed(const flim_conv_problem *problem, const flim_card *card);
/* Some algorithm computes a FORWARD problem with sums on weights as stored, and best so. */
bool flim_conv_gathers(const flim_conv_problem *problem, const flim_card *card);
/* True if a candidate's scratch memory is allowed. */
bool flim_conv_fits(const flim_conv_choice *candidate, const flim_conv_search_options *options);

/* For algorithms with one variant: offers it. */
flim_status flim_conv_offer_one(const flim_conv_choice *base, size_t workspace, flim_conv_offer *offer, void *to);

/* Enqueues a choice over the first arguments->n cells on the device's stream; what a library algorithm writes of the other
 * cells is not to be read.  arguments->w is flipped if the algorithm is; arguments->scratch has choice->workspace bytes. */
flim_status flim_conv_run(struct flim_cuda_device *device, const flim_conv_choice *choice,
                          const flim_conv_arguments *arguments, flim_error *err);

#endif

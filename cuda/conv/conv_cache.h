/* Tuned choices on disk, so that a card's next run need not search again.
 *
 * For: conv_store.c asks here before it searches, and hands on what a search found.
 * Owns: its entries; a choice that is found is loaded anew and the caller's (flim_cudnn_plan_free).
 * Errors: only FLIM_ERROR_MEMORY.  An entry that does not load is not found; a file that is damaged or cannot be written is a
 *         note in the log.
 *
 * The file (folder options->cache_dir, one per card, driver, cuDNN version and version of the kernels here) holds, per choice, one line
 *   "plan" <bytes of JSON> <workspace> <microseconds> <engine> <problem>
 * and cuDNN's JSON, or "custom".
 */
#ifndef FLIM_CUDA_CONV_CACHE_H
#define FLIM_CUDA_CONV_CACHE_H

#include "cuda/conv/conv_choice.h"

struct flim_cuda_device;

typedef struct flim_cached_choice {
    char problem[320];
    char engine[32];
    double microseconds;
    int64_t workspace;
    char *json;
    size_t size;
} flim_cached_choice;

typedef struct flim_conv_cache {
    flim_cached_choice *item;
    int n;
    bool read, stale; /* the file has been read; it lacks choices that are here */
} flim_conv_cache;

/* Loads the choice for out->problem; *found tells.  Only if candidates are timed: --no-benchmark means the first guess.
 * Reads the file the first time. */
flim_status flim_conv_cache_find(flim_conv_cache *cache, struct flim_cuda_device *device,
                                 const flim_conv_search_options *options, flim_conv_choice *out, bool *found,
                                 flim_error *err);
/* Takes a new timed choice in; one that cuDNN cannot write as text is simply not kept, nor is a described card's. */
flim_status flim_conv_cache_add(flim_conv_cache *cache, struct flim_cuda_device *device, const flim_conv_choice *choice,
                                flim_error *err);
/* Drops what is kept of this choice: it was loaded and does not compute correctly. */
void flim_conv_cache_forget(flim_conv_cache *cache, const flim_conv_choice *choice);
/* Writes the file if there are new choices. */
void flim_conv_cache_write(flim_conv_cache *cache, const struct flim_cuda_device *device,
                           const flim_conv_search_options *options);
void flim_conv_cache_free(flim_conv_cache *cache);

#endif

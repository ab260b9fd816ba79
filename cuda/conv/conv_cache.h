/* Tuned plans on disk, so that a card's next run need not search again.
 *
 * For: plan_store.c asks here before it searches, and hands on what a search found.
 * Owns: its entries; a plan that is found is loaded anew and the caller's (flim_cudnn_plan_free).
 * Errors: only FLIM_ERROR_MEMORY.  An entry that does not load is not found; a file that is damaged or cannot be written is a note in
 * the log.
 *
 * The file (folder options->cache_dir, one a card, driver and cuDNN version) holds, a plan, one line
 *   "plan" <bytes of JSON> <workspace> <microseconds> <engine> <problem>
 * and cuDNN's JSON, or "custom".
 */
#ifndef FLIM_CUDA_PLAN_CACHE_H
#define FLIM_CUDA_PLAN_CACHE_H

#include "cuda/conv/conv_choice.h"

struct flim_conv_store;

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
    bool read, stale; /* the file has been read; it lacks plans that are here */
} flim_conv_cache;

/* Loads the plan of out->problem; *found tells.  Only where plans are timed: --no-benchmark means the first guess.  Reads the file
 * the first time. */
flim_status flim_conv_cache_find(struct flim_conv_store *store, const flim_conv_search_options *options,
                                 flim_conv_choice *out, bool *found, flim_error *err);
/* Takes a new timed plan in; one that cuDNN cannot write as text is simply not kept, nor is a described card's. */
flim_status flim_conv_cache_add(struct flim_conv_store *store, const flim_conv_choice *plan, flim_error *err);
/* Writes the file where there are new plans. */
void flim_conv_cache_write(struct flim_conv_store *store, const flim_conv_search_options *options);
void flim_conv_cache_free(flim_conv_cache *cache);

#endif

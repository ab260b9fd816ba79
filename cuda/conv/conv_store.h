/* The choices made for one device: each problem is looked up in the cache, else searched, once.
 *
 * For: programs ask for the choice of a problem; folds, epochs and last partial batches (which run the full batch's choice)
 *      share them.
 * Owns: the store owns the choices; pointers handed out stay valid until the device closes, which frees the store.
 * Errors: those of conv_search.h; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_CUDA_CONV_STORE_H
#define FLIM_CUDA_CONV_STORE_H

#include "cuda/conv/conv_cache.h"
#include "cuda/conv/conv_choice.h"

typedef struct flim_conv_store {
    struct flim_cuda_device *device;
    flim_conv_choice **choice;
    int n;
    flim_conv_cache cache;
    int searched, loaded; /* since the device was opened, for notes */
} flim_conv_store;

/* The device's store, made on the first call. */
flim_status flim_conv_store_of(struct flim_cuda_device *device, flim_conv_store **out, flim_error *err);
/* The choice for a problem; *out is the store's.  FLIM_ERROR_DEVICE if no algorithm computes it here: of a fused problem that
 * is known from then on without another search, and the caller does without the fusion. */
flim_status flim_conv_choose(flim_conv_store *store, const flim_conv_problem *problem,
                             const flim_conv_search_options *options, const flim_conv_choice **out, flim_error *err);
/* No algorithm computed this fused problem, or the same with another number of cells. */
bool flim_conv_store_has_failed(const flim_conv_store *store, const flim_conv_problem *problem);
/* Writes the cache's file if there are new choices. */
void flim_conv_store_save(flim_conv_store *store, const flim_conv_search_options *options);

#endif

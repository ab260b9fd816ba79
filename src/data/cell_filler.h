/* One cell of a batch: read, transformed, mixed with its partner, and turned into the network's input.
 *
 * For: the loader's threads, one filler each.
 * Owns: its reader and scratch memory; flim_cell_filler_free.
 * Errors: those of the reader; FLIM_ERROR_DATA names file and cell whose counts are no photons where photons are needed.
 */
#ifndef FLIM_DATA_CELL_FILLER_H
#define FLIM_DATA_CELL_FILLER_H

#include "data/transform.h"
#include "flim/dataset.h"

typedef struct flim_cell_filler {
    flim_dataset *dataset;
    flim_reader *reader;
    float *counts; /* (T,H,W) before a transform or a mixture; NULL until prepared */
    uint8_t *mask; /* (H,W) likewise */
    float *partner; /* (T,H,W) a changed cell that is mixed into another; NULL until prepared */
    uint8_t *partner_mask; /* (H,W) likewise */
} flim_cell_filler;

flim_status flim_cell_filler_create(flim_dataset *dataset, flim_cell_filler *out, flim_error *err);
void flim_cell_filler_free(flim_cell_filler *filler); /* zeroed is allowed */
/* Memory for what will be done; what is there stays. */
flim_status flim_cell_filler_prepare(flim_cell_filler *filler, bool transforms, bool mixes, flim_error *err);

/* Fills signal and mask of batch entry `at` from id[at] and, in a batch that mixes, mix[at]. */
flim_status flim_cell_fill(flim_cell_filler *filler, const flim_transform_table *table, const flim_batch *batch, int64_t at,
                           flim_error *err);

/* Fills target[at] from the labels of id[at] and mix[at], smoothed: (1 - smoothing) share + smoothing / K; the label of the
 * entry becomes that of the larger share. */
void flim_mix_target(const flim_dataset *dataset, float smoothing, const flim_batch *batch, int64_t at);

#endif

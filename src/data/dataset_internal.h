/* The parts of a data set, for the modules of src/data/. */
#ifndef FLIM_DATA_DATASET_INTERNAL_H
#define FLIM_DATA_DATASET_INTERNAL_H

#include <sys/types.h>
#include <time.h>

#include "data/cell_cache.h"
#include "data/source.h"
#include "flim/dataset.h"

typedef struct flim_dataset_file {
    flim_source *source;
    int64_t first; /* number of its cell 0 in the data set */
    flim_mask_values mask_values; /* of its /mask */
    bool known; /* the two below are */
    dev_t device; /* where the file lies, and when it was written last: as it was opened */
    ino_t inode;
    struct timespec written;
} flim_dataset_file;

struct flim_dataset {
    flim_dataset_info info;
    flim_dataset_file *file; /* (n_files) */
    bool mask_counts;
    int64_t voxels, pixels; /* T x H x W, H x W */
    float *table; /* signal of 0..65535 counts */
    uint8_t *mask; /* (n,H,W), NULL if the files have none */
    flim_cell_cache *cache; /* NULL = none */
    int64_t decoded_bytes, available_bytes; /* what a cache takes at most, and free memory then; 0 = none was wanted */
    /* what info points to */
    char **path, **class_name, **group_name, **name;
    int32_t *label;
    int64_t *group;
};

/* Which file holds a cell; *local gets its number there. */
const flim_dataset_file *flim_dataset_locate(const flim_dataset *dataset, int64_t cell, int64_t *local);

/* A file's type may hold counts that a float does not (above 2^24). */
bool flim_dataset_has_wide_counts(const flim_dataset *dataset);
/* The counts (T,H,W) of the cell that the reader's last call took from the file, as doubles, which hold every count and every sum
 * of them; mask_counts applied.  False, with counts as they were, if floats hold them: of narrower types, or from the cache. */
bool flim_reader_exact_counts(const flim_reader *reader, int64_t cell, double *counts);

/* One cell as the file (or the cache) has it: T*H*W native values, in the reader's memory or the cache's until the reader's
 * next call, in the file's axis order.  Not checked for values that are no counts. */
flim_status flim_reader_values(flim_reader *reader, int64_t cell, flim_number *number, const void **values, flim_error *err);

/* As flim_reader_counts, but mask_counts is not applied: flim_reader_drop_outside does that. */
flim_status flim_reader_stored_counts(flim_reader *reader, int64_t cell, float *counts, uint8_t *mask, flim_error *err);
void flim_reader_drop_outside(const flim_dataset *dataset, int64_t cell, float *values);

#endif

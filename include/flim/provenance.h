/* The provenance of weights: from what, how and for which place they were trained.
 *
 * For: weight files, whose __metadata__ holds it as one JSON text (docs/file-format.md); train_cv, predict and fold_metrics,
 *      which ask it whether weights fit the data, the fold and each other, and which cells they have seen.
 * Owns: a provenance owns its lists and texts; flim_provenance_free.
 * Errors: FLIM_ERROR_DATA names the file, what it says and what was expected.
 */
#ifndef FLIM_PROVENANCE_H
#define FLIM_PROVENANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/log.h"
#include "flim/status.h"

typedef enum flim_mask_origin {
    FLIM_MASK_ORIGIN_UNKNOWN,
    FLIM_MASK_ORIGIN_FILE, /* /mask of the data */
    FLIM_MASK_ORIGIN_COUNTS /* pixels that hold a photon, since the data has no /mask */
} flim_mask_origin;

/* "unknown", "file", "counts". */
const char *flim_mask_origin_name(flim_mask_origin origin);

/* Cells by their hash (flim_cell_summary), sorted ascending, none twice, none 0. */
typedef struct flim_cell_set {
    uint64_t *hash; /* (n) */
    int64_t n;
} flim_cell_set;

/* Of hash[cell[0..n-1]], zeros and repeats left out; cell NULL: of hash[0..n-1]. */
flim_status flim_cell_set_make(const uint64_t *hash, const int64_t *cell, int64_t n, flim_cell_set *out, flim_error *err);
/* Adds the cells of another set, in linear time. */
flim_status flim_cell_set_join(flim_cell_set *to, const flim_cell_set *more, flim_error *err);
void flim_cell_set_free(flim_cell_set *set); /* leaves it zeroed; zeroed is allowed */
bool flim_cell_set_holds(const flim_cell_set *set, uint64_t hash);

typedef struct flim_provenance {
    bool is_known; /* false: a file without the block (older, or of another program); then only classes, t, h, w, mask_counts
                    * and preprocessing may be known, from its other metadata */
    char program[32]; /* version that wrote it */
    bool pretraining; /* kind: an encoder that was pretrained without a head (flim_weights_write_encoder) */
    int donors, files;
    char **donor; /* (donors) names of the groups that a pretraining saw, UTF-8; none: the data has no groups */
    char **file; /* (files) names, without folders, of the files that it read */
    int fold, folds; /* 0-based, of how many; fold -1 = no fold's */
    char splits_sha256[65]; /* of the run's splits.json; "" = none */
    uint64_t seed;
    int classes; /* names that are known: K, or 0 */
    char **class_name; /* (classes), UTF-8 */
    int t, h, w; /* 0 = not known */
    double time_range_ns; /* 0 = the data did not say */
    flim_mask_origin mask;
    bool mask_counts; /* counts outside the mask were zeroed */
    char preprocessing[256];
    char *recipe; /* the run's settings in words; may be NULL */
    bool cells_are_known; /* the sets below; false: the data was not scanned */
    flim_cell_set train, val; /* trained on; chose the epoch, or were only looked at by a pretraining */
    flim_cell_set inherited; /* what the starting weights had seen, in either way */
    bool inherited_is_known; /* false: the starting weights do not say */
} flim_provenance;

void flim_provenance_free(flim_provenance *provenance); /* leaves it zeroed; zeroed is allowed */
/* Copies the names. */
flim_status flim_provenance_set_classes(flim_provenance *provenance, int classes, const char *const *name, flim_error *err);

/* A copy of name (n), in out (flim_free_list) with its length in *count; what is there after an error is the caller's, too. */
flim_status flim_provenance_copy_names(char ***out, int *count, int n, const char *const *name, flim_error *err);

/* As the JSON text of a weight file, the caller's (flim_free); and back.  path is for messages. */
char *flim_provenance_text(const flim_provenance *provenance, flim_error *err);
flim_status flim_provenance_parse(const char *text, const char *path, flim_provenance *out, flim_error *err);

/* The provenance of a weight file: the one way to it.  A file without a block is no error. */
flim_status flim_provenance_read(const char *path, flim_provenance *out, flim_error *err);

/* What "not seen" means, for whoever says it: the hashes find equal cells alone, whereas a copy's scores are too good as well. */
#define FLIM_CELLS_AS_STORED                                                                                                 \
    "cells were compared as they are stored: a copy that is flipped, turned, shifted, multiplied, cut otherwise or under "   \
    "another mask would not be found"

/* Whether the weights have seen a cell, in any way; false for hash 0 (a cell without photons, which says nothing). */
bool flim_provenance_has_seen(const flim_provenance *provenance, uint64_t hash);

/* The weights in `path` must be those of this fold of these splits ("" = any); both are shown.  Weights that do not say are
 * accepted. */
flim_status flim_provenance_check_place(const flim_provenance *provenance, const char *path, int fold,
                                        const char *splits_sha256, flim_error *err);

struct flim_dataset_info;
/* The data's time bins must be as wide as those that the weights were trained with, as far as both say; how many there are is
 * another question. */
flim_status flim_provenance_check_bin_width(const flim_provenance *provenance, const char *path,
                                            const struct flim_dataset_info *info, flim_error *err);
/* Warns if only one of them says. */
void flim_provenance_warn_of_bin_width(const flim_provenance *provenance, const char *path,
                                       const struct flim_dataset_info *info, const flim_log *log);
/* The data's masks must come from where the weights' did, if these say. */
flim_status flim_provenance_check_mask(const flim_provenance *provenance, const char *path,
                                       const struct flim_dataset_info *info, flim_error *err);
static inline flim_mask_origin flim_mask_origin_of(bool has_mask)
{
    return has_mask ? FLIM_MASK_ORIGIN_FILE : FLIM_MASK_ORIGIN_COUNTS;
}

/* Two files whose outputs are to be averaged must mean the same: classes by name, shape, time range, masks, preprocessing. */
flim_status flim_provenance_check_alike(const flim_provenance *a, const char *path_a, const flim_provenance *b,
                                        const char *path_b, flim_error *err);

#endif

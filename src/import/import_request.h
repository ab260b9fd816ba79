/* What flim_import is asked for, and what it says of what it did. */
#ifndef FLIM_IMPORT_IMPORT_REQUEST_H
#define FLIM_IMPORT_IMPORT_REQUEST_H

#include "flim/train.h"
#include "import/field_cells.h"
#include "import/field_file.h"

typedef enum flim_import_group {
    FLIM_IMPORT_GROUP_FOLDER, /* the name of the folder that the file is in */
    FLIM_IMPORT_GROUP_FILE, /* the file's name without its ending: several cells of one file are a group */
    FLIM_IMPORT_GROUP_NONE
} flim_import_group;
extern const char *const flim_import_group_names[]; /* folder, file, none; ends in NULL */

typedef struct flim_import_request {
    const char *out;
    const char *const *input; /* (n_inputs) files, and folders whose files are taken with those of all folders below */
    int n_inputs;
    /* (n_rules) "TEXT=NAME", or several of them with commas between: files whose name holds TEXT are of class NAME; classes in
     * the order of their first mention.  A file with none of the texts is skipped, one with texts of two classes refused.
     * n_rules 0: no labels. */
    const char *const *class_rule;
    int n_rules;
    /* Instead of inputs: a CSV file with a row per field (import/manifest.h); NULL or "" = none. */
    const char *manifest;
    flim_import_group group;
    const char *group_prefix; /* what is taken off the begin of such a group's name; NULL = nothing */
    /* The mask of a field: "*" stands for the name of the field's file without its ending, and the path is that from the file's
     * folder; without a "*" it is one file's path, for one field.  NULL or "": no masks, each field is one cell. */
    const char *mask;
    flim_cells_rule cells; /* of masks; size 0 = 21 */
    bool mask_counts; /* what a cell's window holds outside its mask becomes 0 */
    flim_field_options fields; /* what the files do not say */
    /* The image to take of each file, counted from 1.  0: every image of an array file is a cell, an instrument file must have
     * but one. */
    int64_t channel;
    int64_t bins; /* time bins of a cell: neighbouring bins are added; 0 = as they are */
    bool align_t0; /* the decay of each cell is rolled so that its rising edge lies in bin t0_bin */
    int64_t t0_bin; /* of a cell; -1 = T / 8 */
    double range_ns; /* of the files that do not say; 0 = unknown */
    void (*progress)(void *context, const flim_progress *progress); /* after each image; may be NULL */
    void *progress_context;
    const volatile int *stop;
} flim_import_request;

/* Where the photons of the files are.  Each is counted once, by the pixel of the field that it is in:
 * total = cells + beyond + left_out + background + unplaced. */
typedef struct flim_photon_account {
    uint64_t total; /* of all images that were read */
    uint64_t cells; /* in the mask of a cell of OUT */
    uint64_t beyond; /* of such a cell, outside of its window (crop_large) */
    uint64_t left_out; /* of cells that are not in OUT */
    uint64_t background; /* of no cell */
    uint64_t unplaced; /* in no pixel (flim_field_file.unplaced) */
    uint64_t copies; /* in OUT outside of the masks: they are counted above where they belong, and here once per window */
} flim_photon_account;

typedef struct flim_import_result {
    int64_t files, cells, skipped; /* skipped: files without a class */
    int64_t at_border, too_large; /* cells left out */
    int64_t least_shift, most_shift; /* of align_t0, in bins, later is positive */
    int t, h, w;
    int classes;
    int64_t groups;
    flim_photon_account photons;
} flim_import_result;

#endif

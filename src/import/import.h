/* Instrument files and arrays as a data file: flim_import's substance.
 *
 * For: each image (field_file.h) becomes one cell.  Classes come from texts in the files' names, groups from their folders.
 *      Files are listed first, then read one at a time: any number fits.
 * Owns: nothing beyond the call.  OUT appears whole or not at all.
 * Errors: FLIM_ERROR_USAGE what the caller has to say, and an OUT that exists; FLIM_ERROR_DATA names the file; FLIM_ERROR_WRITE; FLIM_INTERRUPTED.
 */
#ifndef FLIM_IMPORT_IMPORT_H
#define FLIM_IMPORT_IMPORT_H

#include "flim/log.h"
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
    /* (n_classes) "TEXT=NAME": files whose name holds TEXT are of class NAME; classes in the order of their first mention.
     * A file with none of the texts is skipped, one with texts of two classes refused.  n_classes 0: no labels. */
    const char *const *class_rule;
    int n_classes;
    flim_import_group group;
    flim_array_axes axes; /* of bare arrays */
    int64_t
        channel; /* the image to take of each file, counted from 1; 0: every image of an array file is a cell, an instrument
                        file must have but one */
    int64_t bins; /* time bins of a cell: neighbouring bins are added; 0 = as they are */
    int64_t size; /* pixels of a cell, Y and X: smaller fields are centred and masked; 0 = all fields have the same size */
    double range_ns; /* of the files that do not say; 0 = unknown */
    const volatile int *stop;
} flim_import_request;

typedef struct flim_import_result {
    int64_t files, cells, skipped; /* skipped: files without a class */
    int t, h, w;
    int classes;
    int64_t groups;
    uint64_t photons; /* in the cells */
    uint64_t unplaced; /* of the files' photons, those in no pixel (flim_field_file.unplaced) */
} flim_import_result;

flim_status flim_import(const flim_import_request *request, const flim_log *log, flim_import_result *result, flim_error *err);

#endif

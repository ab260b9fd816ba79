/* The safetensors container: named little-endian arrays behind a JSON header.
 *
 * For: weights (flim/weights.h) and checkpoints.  The format (huggingface/safetensors, README "Format"): 8 bytes
 *      little-endian header length, the header {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
 *      "__metadata__": {string: string}}, then the data, which the arrays cover without hole or overlap.
 * Owns: an open file owns its table; names and metadata live until flim_safetensors_close.  Written data is the caller's.
 * Errors: FLIM_ERROR_DATA for whatever does not hold, with the file and the array's name; FLIM_ERROR_WRITE.  Everything in
 *      the header is checked against the file's size before anything of that size is allocated.
 */
#ifndef FLIM_FORMATS_SAFETENSORS_H
#define FLIM_FORMATS_SAFETENSORS_H

#include <stdint.h>

#include "formats/json.h"
#include "flim/status.h"

enum { FLIM_SAFETENSORS_MAX_DIMS = 8 };

typedef struct flim_safetensors flim_safetensors;

typedef struct flim_array_view {
    const char *name;
    const char *dtype; /* "F32", "F64", "I64", "U8", ... */
    int ndim;
    int64_t shape[FLIM_SAFETENSORS_MAX_DIMS];
    int64_t count; /* product of the shape */
    int64_t begin, end; /* bytes within the data */
} flim_array_view;

flim_status flim_safetensors_open(const char *path, flim_safetensors **out, flim_error *err);
void flim_safetensors_close(flim_safetensors *file); /* NULL is allowed */

/* Arrays in the order of the data. */
int64_t flim_safetensors_count(const flim_safetensors *file);
const flim_array_view *flim_safetensors_at(const flim_safetensors *file, int64_t index);
/* Value of a key of __metadata__, NULL if absent. */
const char *flim_safetensors_metadata(const flim_safetensors *file, const char *key);
/* Reads all data and compares its SHA-256 with the one that flim_safetensors_write left in the metadata; a file without one
 * (of another program) passes. */
flim_status flim_safetensors_verify(flim_safetensors *file, flim_error *err);
/* Reads one array's bytes (end - begin of them) into `out`. */
flim_status flim_safetensors_read(flim_safetensors *file, const flim_array_view *array, void *out, flim_error *err);

/* "(32,2,7,1,1)" into text. */
void flim_shape_text(const int64_t *shape, int ndim, char *text, size_t size);

typedef struct flim_array_item {
    const char *name;
    const char *dtype;
    int ndim;
    const int *shape;
    const void *data;
} flim_array_item;

/* Writes a file atomically, arrays in the order given; metadata: an object of strings or NULL, taken over and freed.  The
 * data's SHA-256 goes into the metadata as "sha256". */
flim_status flim_safetensors_write(const char *path, flim_json *metadata, const flim_array_item *items, int n_items,
                                   flim_error *err);

#endif

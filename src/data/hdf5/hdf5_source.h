/* What the rest of the library may know of HDF5: opaque files and cell sources.  Only src/data/hdf5*.c include hdf5.h.
 *
 * HDF5 holds global state and, built thread-safe or not, runs one call at a time: every function here takes one lock of ours
 * around its HDF5 calls, keeps the library's error stack from being printed, and puts the reason into the error text.
 * A file is opened read-only and never changes.  Nothing that a file says is believed before it was checked: sizes that are
 * to be allocated stay under flim_h5_limit, which follows the size of the file.
 * Errors: FLIM_ERROR_DATA with file, object, found and expected; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_DATA_HDF5_H
#define FLIM_DATA_HDF5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/number.h"
#include "flim/log.h"
#include "flim/status.h"

typedef struct flim_h5 flim_h5;
typedef struct flim_h5_cells flim_h5_cells;

bool flim_h5_thread_safe(void);
/* fork() while no other thread is inside HDF5, so that the child may use it. */
int flim_h5_fork(void);

/* errors (may be NULL) gets HDF5's own error stack, line by line, whenever a call into it fails; what its context points to must
 * outlive *out, and it may be called from any thread that reads, one at a time. */
flim_status flim_h5_open(const char *path, const flim_log *log, const flim_log *errors, flim_h5 **out, flim_error *err);
void flim_h5_close(flim_h5 *h5); /* NULL is allowed */
/* Most bytes that one array read from this file may take: 1100 x the file's size (deflate's best is 1032 : 1) + 16 MiB. */
int64_t flim_h5_limit(const flim_h5 *h5);
int64_t flim_h5_size(const flim_h5 *h5); /* of the file, bytes */

/* ---- columns: one value a cell.  `n` is the number of cells; another length is an error that states both. */
typedef enum flim_h5_kind { FLIM_H5_NONE, FLIM_H5_NUMBERS, FLIM_H5_STRINGS, FLIM_H5_OTHER } flim_h5_kind;

/* What /name holds; FLIM_H5_NONE where it does not exist (an error where `needed`, which names what does exist). */
flim_status flim_h5_column_kind(flim_h5 *h5, const char *name, bool needed, flim_h5_kind *kind, flim_error *err);
/* Integers of any width, enums, whole floats; values must have room for n. */
flim_status flim_h5_read_integers(flim_h5 *h5, const char *name, int64_t n, int64_t *values, flim_error *err);
/* Strings of any storage; list must have room for n, each string the caller's (flim_free), also after an error. */
flim_status flim_h5_read_strings(flim_h5 *h5, const char *name, int64_t n, char **list, flim_error *err);
/* The root attribute `name` as strings: *list (flim_free each and the list) and *count, 0 where there is none. */
flim_status flim_h5_attribute_strings(flim_h5 *h5, const char *name, char ***list, int64_t *count, flim_error *err);
/* The root attribute as one number; leaves *value where there is none. */
flim_status flim_h5_attribute_number(flim_h5 *h5, const char *name, double *value, flim_error *err);
/* /mask (N,H,W) in the order `axes` less T: mask gets 0/1, (n,h,w).  *found = false where there is none.  *other counts the
 * non-zero values that are not 1. */
flim_status flim_h5_read_mask(flim_h5 *h5, const char *axes, int64_t n, int h, int w, uint8_t *mask, bool *found,
                              int64_t *other, flim_error *err);
bool flim_h5_has(flim_h5 *h5, const char *name);
/* A dataset that looks like a misspelt `name` ("labels" for "label"), and an attribute that may be meant for it ("donor of
 * /counts"); empty text where there is none.  Both have room for `size` bytes. */
void flim_h5_similar(flim_h5 *h5, const char *name, char *dataset, char *attribute, size_t size);

/* The root's objects that docs/file-format.md does not name: "centre_yx, file_id"; empty where there are none. */
void flim_h5_others(flim_h5 *h5, char *text, size_t size);

/* ---- cells of /counts */
typedef enum flim_h5_mode {
    FLIM_H5_CONTIGUOUS, /* pread */
    FLIM_H5_CHUNKS, /* one cell a chunk: pread at known offsets, or raw chunks through the library; own inflate */
    FLIM_H5_LIBRARY /* H5Dread under the lock */
} flim_h5_mode;

typedef struct flim_h5_cells_info {
    int64_t n;
    int t, h, w;
    flim_number number; /* of the values that flim_h5_read_cell delivers */
    flim_h5_mode mode;
    bool transposed; /* cells come in the file's axis order, see order */
    int order[3]; /* axis of the file's cell (0, 1, 2) -> 0 = T, 1 = H, 2 = W */
    char type[64]; /* "uint16 little-endian" */
    char layout[256]; /* "chunked (1,256,21,21), shuffle + gzip 4" */
    int64_t cells_a_chunk;
    int64_t chunk_bytes, cache_bytes;
    int64_t stored_bytes;
    size_t raw_bytes; /* scratch that flim_h5_read_cell needs */
} flim_h5_cells_info;

/* axes: permutation of "NTYX".  cache: bytes that HDF5 may hold of decompressed chunks, 0 = default. */
flim_status flim_h5_cells_open(flim_h5 *h5, const char *axes, int64_t cache, const flim_log *log, flim_h5_cells **out,
                               flim_error *err);
void flim_h5_cells_close(flim_h5_cells *cells); /* before flim_h5_close; NULL is allowed */
const flim_h5_cells_info *flim_h5_cells_get_info(const flim_h5_cells *cells);

/* A thread's scratch memory for reading: two buffers of info.raw_bytes and a decompressor. */
typedef struct flim_h5_scratch {
    uint8_t *raw, *unpacked;
    size_t bytes;
    struct flim_inflater *inflater;
} flim_h5_scratch;

/* Values of one cell, native byte order, file axis order, T*H*W of them.  Safe from several threads, each with its scratch. */
flim_status flim_h5_read_cell(flim_h5_cells *cells, int64_t cell, flim_h5_scratch *scratch, void *values, flim_error *err);

#endif

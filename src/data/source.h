/* One open data file, whatever its format: cells, columns and attributes behind a table of functions.
 *
 * For: src/data.  A second native format is one folder src/data/<format>/ that fills the table, and a row in format.c.
 * Owns: a source owns its file, opened read-only, which never changes.  Nothing that a file says is believed before it was
 *      checked: sizes that are to be allocated stay under limit(), which follows the size of the file.
 * Errors: FLIM_ERROR_DATA with file, object, found and expected; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_DATA_SOURCE_H
#define FLIM_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/number.h"
#include "flim/log.h"
#include "flim/status.h"

typedef struct flim_source_options {
    const char *axes; /* order of /counts, a permutation of "NTYX"; NULL = NTYX, and a file that looks otherwise is refused */
    int64_t chunk_cache; /* bytes that the format's library may hold of decompressed chunks; 0 = its default */
    bool allow_external; /* the file may lead to files outside of its folder */
    bool first_look; /* by a process that reads some cells under limits: leave out what takes as long as the data are large */
    const volatile int *stop; /* polled where opening takes long; FLIM_INTERRUPTED; NULL = nobody asks */
    const flim_log *log; /* notes; may be NULL */
    /* The library's own error stack, from any thread that reads, one at a time; outlives the source; may be NULL. */
    const flim_log *errors;
} flim_source_options;

typedef struct flim_source_info {
    int64_t n; /* cells */
    int t, h, w;
    flim_number number; /* of the values that read_cell delivers */
    bool transposed; /* cells come in the file's axis order: */
    int order[3]; /* axis of the file's cell (0, 1, 2) -> 0 = T, 1 = H, 2 = W */
    bool best_layout; /* threads read and decode beside each other, not one at a time in the format's library */
    double largest; /* the largest value that the stored type can hold, as read_cell delivers it; INFINITY for floats */
    char gaps[160]; /* stored numbers that stand for no value, which come as NaN: "_FillValue 65535"; "" = there are none */
    char type[64]; /* "uint16 little-endian" */
    char layout[256]; /* "chunked (1,256,21,21), shuffle + gzip 4" */
    int64_t stored_bytes; /* of /counts */
    size_t raw_bytes; /* of each scratch buffer that read_cell needs; 0 = none */
} flim_source_info;

/* A thread's scratch memory for reading: two buffers of the largest raw_bytes, and a decompressor. */
typedef struct flim_scratch {
    uint8_t *raw, *unpacked;
    size_t bytes;
    struct flim_inflater *inflater;
} flim_scratch;

typedef enum flim_column_kind {
    FLIM_COLUMN_NONE,
    FLIM_COLUMN_NUMBERS,
    FLIM_COLUMN_STRINGS,
    FLIM_COLUMN_OTHER
} flim_column_kind;

/* What a /mask holds beside 0 and 1. */
typedef struct flim_mask_values {
    int64_t other; /* values that are neither */
    int64_t soft; /* of those, between 0 and 1 */
    double least, most; /* of the soft ones */
    int64_t mixed; /* cells with several whole numbers inside, such as 7 and 12 */
    int64_t mixed_cell[5]; /* the first of them, counted in their file */
    double pair[2]; /* two numbers in the first one */
} flim_mask_values;

typedef struct flim_source flim_source;

typedef struct flim_source_ops {
    void (*close)(flim_source *source);
    /* Most bytes that one array read from this file may take. */
    int64_t (*limit)(const flim_source *source);

    /* Values of one cell: T*H*W of info.number, native byte order, the file's axis order.  From several threads, each with
     * its scratch. */
    flim_status (*read_cell)(flim_source *source, int64_t cell, flim_scratch *scratch, void *values, flim_error *err);

    /* Columns: one value per cell ("label", "group", "name").  Another length than info.n is an error that states both. */
    bool (*has)(flim_source *source, const char *name);
    /* FLIM_COLUMN_NONE if there is none (an error if `needed`, which names what there is). */
    flim_status (*column_kind)(flim_source *source, const char *name, bool needed, flim_column_kind *kind, flim_error *err);
    /* values (n): integers of any width, enums, whole floats. */
    flim_status (*read_integers)(flim_source *source, const char *name, int64_t *values, flim_error *err);
    /* list (n): strings of any storage; each is the caller's (flim_free), also after an error. */
    flim_status (*read_strings)(flim_source *source, const char *name, char **list, flim_error *err);
    /* A list of texts of any length, which is no column: *list (flim_free_list) and *count. */
    flim_status (*read_texts)(flim_source *source, const char *name, char ***list, int64_t *count, flim_error *err);
    /* Names of the values 0 .. count - 1 of a column that has its own (categories, enumerations): *names (flim_free_list), NULL
     * and 0 where it has none. */
    flim_status (*column_names)(flim_source *source, const char *name, char ***names, int64_t *count, flim_error *err);
    /* mask (n,h,w) gets 0/1; axes as for /counts, less T.  *found = false if there is none. */
    flim_status (*read_mask)(flim_source *source, const char *axes, uint8_t *mask, bool *found, flim_mask_values *seen,
                             flim_error *err);

    /* Attributes of the file.  Strings: *list (flim_free each and the list) and *count, 0 if there is none.  Number: leaves
     * *value if there is none. */
    flim_status (*attribute_strings)(flim_source *source, const char *name, char ***list, int64_t *count, flim_error *err);
    flim_status (*attribute_number)(flim_source *source, const char *name, double *value, flim_error *err);

    /* A dataset that looks like a misspelt `name` ("labels" for "label"), and an attribute that may be meant for it ("donor
     * of /counts"); empty if there is none.  Both have `size` bytes. */
    void (*similar)(flim_source *source, const char *name, char *dataset, char *attribute, size_t size);
    /* Objects that the file format does not name: "centre_yx, file_id"; empty if there are none. */
    void (*others)(flim_source *source, char *text, size_t size);
} flim_source_ops;

struct flim_source {
    const flim_source_ops *ops;
    flim_source_info info;
};

/* What a format offers before a file of it is open. */
typedef struct flim_format {
    /* Opens a file and checks its layout. */
    flim_status (*open)(const char *path, const flim_source_options *options, flim_source **out, flim_error *err);
    /* fork() while no other thread is inside the format's library, so that the child may use it. */
    int (*fork)(void);
    /* Is the library built thread-safe?  It is called by one thread at a time either way. */
    bool (*thread_safe)(void);
} flim_format;

#endif

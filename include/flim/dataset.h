/* A FLIM data set: one or more HDF5 files opened read-only as one list of cells.
 *
 * For: the layout of docs/file-format.md.  Opening checks the whole layout (objects, ranks, sizes, types, labels, filters)
 *      and reads labels, groups, names and masks' presence; voxels are read cell by cell through readers, one reader per
 *      thread.
 * Owns: the data set owns everything flim_dataset_info points to.  A reader belongs to one thread at a time and must be
 *      destroyed before its data set.  HDF5 itself is called under one lock inside.
 * Errors: FLIM_ERROR_DATA names file, dataset, cell and voxel, what was found and what was expected.
 * Only src/data/hdf5/ knows HDF5.
 */
#ifndef FLIM_DATASET_H
#define FLIM_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/choices.h"
#include "flim/log.h"
#include "flim/status.h"

typedef struct flim_dataset flim_dataset;
typedef struct flim_reader flim_reader;

/* Version of the HDF5 library that runs, "1.10.8". */
void flim_hdf5_version(char out[32]);

typedef struct flim_dataset_options {
    /* Permutation of the file's axes, e.g. "TYXN"; NULL or "NTYX": N cells, T time bins, Y, X pixels. A file that looks
     * like another order is refused then; "NTHW" insists. /mask: the same order without T */
    const char *axes;
    bool mask_counts; /* zero the counts outside the mask */
    bool allow_external; /* a file may lead (links, views, external storage) to files outside of its folder */
    bool need_labels; /* a missing /label is an error */
    bool ignore_labels; /* /label is not read: the cells have none */
    bool need_groups; /* a missing /group is an error */
    int64_t chunk_cache; /* bytes HDF5 may cache for many-cells-a-chunk files; 0 = default, bounded */
    flim_cache cache;
    int processes; /* that share the host's memory with caches of their own; 0 = 1 */
    bool trusted; /* leave out the first opening in a child process, which guards against files that crash libhdf5 */
    const flim_log
        *hdf5_errors; /* gets HDF5's own error stack when a call into it fails, from any thread that reads, one at a
                                  * time; its context must outlive the data set; NULL = nobody does */
    const volatile int *stop; /* polled while a first process looks at the files; FLIM_INTERRUPTED; NULL = nobody asks */
    const flim_log *log; /* notes (layout advice, 0/255 masks, thread safety); may be NULL */
} flim_dataset_options;

typedef struct flim_dataset_info {
    int n_files;
    const char *const *path; /* (n_files) */
    int64_t n; /* cells in all files together */
    int t, h, w;
    int classes; /* K; 0 without labels */
    const char *const *class_name; /* (K); "0", "1", ... where the file has none */
    const int32_t *label; /* (n), NULL if there are none */
    int64_t groups; /* number of distinct groups; 0 if there are none */
    const char *const *group_name; /* (groups), sorted: integers by value, strings by bytes */
    const int64_t *group; /* (n) index into group_name, NULL if there are none */
    const char *const *name; /* (n) or NULL */
    bool has_mask;
    bool thread_safe_library;
    const char *counts_type; /* "uint16 little-endian" ... of the first file */
    const char *layout; /* "chunked (1,256,21,21), shuffle + gzip 4" ... of the first file */
    int64_t cache_bytes; /* most that decoded counts in RAM can come to; 0 = none stays there */
    int64_t bytes_on_disk; /* stored size of /counts, all files */
    double time_range_ns; /* 0 if unknown */
} flim_dataset_info;

flim_status flim_dataset_open(const char *const *paths, int n_paths, const flim_dataset_options *options, flim_dataset **out,
                              flim_error *err);
void flim_dataset_close(flim_dataset *dataset); /* NULL is allowed */
const flim_dataset_info *flim_dataset_get_info(const flim_dataset *dataset);
/* The file that holds a cell; *local gets its number there. */
const char *flim_dataset_path_of(const flim_dataset *dataset, int64_t cell, int64_t *local);

/* False if both are known and differ by more than a file's rounding: no data of the one may be used with the other. */
bool flim_same_time_range(double a_ns, double b_ns);

/* Logs as a note where decoded cells stay, as opening does unless the cache is FLIM_CACHE_DEVICE. */
void flim_dataset_log_cache(const flim_dataset *dataset, const flim_log *log);
/* Gives back the RAM of decoded cells, which are read from the file again from then on.  No reader may be at work. */
void flim_dataset_drop_cache(flim_dataset *dataset);

/* SHA-256 over N,T,H,W, the labels (int64, little endian) and the group and name strings, each ending in a zero byte, as
 * lower-case hex in out[65]: splits.json's data.sha256. */
void flim_dataset_sha256(const flim_dataset *dataset, char out[65]);

/* A reader has its own scratch memory; nothing allocates after it is made. */
flim_status flim_reader_create(flim_dataset *dataset, flim_reader **out, flim_error *err);
void flim_reader_destroy(flim_reader *reader); /* NULL is allowed */

/* Photon counts (T,H,W) of one cell as floats, checked (finite, >= 0), mask_counts applied; mask (H,W) 0/1, may be NULL. */
flim_status flim_reader_counts(flim_reader *reader, int64_t cell, float *counts, uint8_t *mask, flim_error *err);
/* The same as the network's channel 0: float32(log1p(counts)) / 10, to 1 ulp of numpy's, and the mask. */
flim_status flim_reader_signal(flim_reader *reader, int64_t cell, float *signal, uint8_t *mask, flim_error *err);

/* float32(log1p(counts)) / 10 of `count` values; in may equal out. */
void flim_signal_from_counts(const float *counts, float *signal, int64_t count);

/* What the numbers of a cell are: counts, or what was made of them. */
typedef enum flim_values {
    FLIM_VALUES_WHOLE,
    FLIM_VALUES_LOG1P, /* log(1 + count) */
    FLIM_VALUES_LOG1P_TENTH, /* the same / 10, the network's input */
    FLIM_VALUES_LOG10,
    FLIM_VALUES_LOG2, /* of 1 + count */
    FLIM_VALUES_ROOT,
    FLIM_VALUES_MULTIPLES, /* count x a unit that is not 1: normalised */
    FLIM_VALUES_OTHER,
    FLIM_N_VALUES
} flim_values;

/* Where a cell's mask might have belonged. */
typedef enum flim_mask_place {
    FLIM_MASK_AS_IT_IS,
    FLIM_MASK_INVERTED,
    FLIM_MASK_TRANSPOSED, /* this and the quarter turns: if H = W */
    FLIM_MASK_FLIPPED_ROWS,
    FLIM_MASK_FLIPPED_COLUMNS,
    FLIM_MASK_HALF_TURN,
    FLIM_MASK_QUARTER_TURN,
    FLIM_MASK_THREE_QUARTER_TURN,
    FLIM_MASK_OTHER_TRANSPOSED, /* over the other diagonal */
    FLIM_MASK_OF_CELL_BEFORE,
    FLIM_MASK_OF_CELL_AFTER,
    FLIM_MASK_SHIFTED, /* by up to three pixels, where it holds most */
    FLIM_N_MASK_PLACES
} flim_mask_place;

/* What a scan of every cell finds, for the data table and flim_info. */
typedef struct flim_cell_summary {
    double photons; /* sum of counts */
    int64_t zero_voxels; /* counts == 0 */
    int64_t mask_pixels;
    int32_t peak_bin; /* of the decay summed over the cell; -1 where all is zero */
    double max_count;
    int32_t count_bytes; /* that a voxel needs: 1 or 2 as an unsigned integer, 4 where only a float holds them all */
    uint64_t hash; /* of mask and counts inside it: equal cells have the same in every file; 0 = no photon inside */
    /* The rest is of the counts as they are stored, whatever mask_counts says. */
    double stored_photons; /* NaN: the cell could not be read */
    flim_values values;
    double unit; /* of FLIM_VALUES_MULTIPLES */
    /* Equal for counts that differ by a factor, a cyclic shift in time, flips or turns; 0 = too few to say. */
    uint64_t pattern;
    float inside[FLIM_N_MASK_PLACES]; /* share of the photons under /mask and under it elsewhere; NaN = none, or no /mask */
} flim_cell_summary;

/* The first file that was written to since it was opened, whatever else became of its name; NULL = none. */
const char *flim_dataset_changed_file(const flim_dataset *dataset);

/* Reads and checks every cell on `workers` threads.  summary: (n); decay: (n,T), the counts
 * of each time bin summed over the mask; both may be NULL.  *bad gets the number of bad cells; the
 * call fails with FLIM_ERROR_DATA and the first of them if there was any, up to 19 more are logged as warnings.  `stop` (may be NULL) is polled. */
flim_status flim_dataset_scan(flim_dataset *dataset, int workers, const volatile int *stop, const flim_log *log,
                              flim_cell_summary *summary, double *decay, int64_t *bad, flim_error *err);

#endif

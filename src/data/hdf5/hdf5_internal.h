/* Shared by src/data/hdf5/ only. */
#ifndef FLIM_DATA_HDF5_INTERNAL_H
#define FLIM_DATA_HDF5_INTERNAL_H

#include <hdf5.h>
#include <sys/stat.h>

#include "data/hdf5/hdf5_read_driver.h"
#include "data/source.h"

typedef struct flim_h5 {
    flim_source source;
    struct flim_h5_cells *cells; /* /counts */
    char *path;
    hid_t file;
    hid_t access, driver; /* how this file and those that it names are opened; -1 = not made */
    flim_h5_watch watch;
    int fd; /* our own, for pread */
    int64_t size; /* bytes */
    int64_t outside; /* bytes of other files that its datasets lie in */
    bool addresses; /* HDF5's addresses are offsets into fd */
    const volatile int *stop; /* polled while chunks are looked at; may be NULL */
    bool first_look; /* as flim_source_options.first_look */
    flim_log errors; /* gets HDF5's error stacks; .line NULL = nobody does */
} flim_h5;

static inline flim_h5 *flim_h5_of(flim_source *source)
{
    return (flim_h5 *)source;
}

bool flim_h5_thread_safe(void);
int flim_h5_fork(void);
flim_status flim_h5_open(const char *path, const flim_source_options *options, flim_h5 **out, flim_error *err);
void flim_h5_close(flim_h5 *h5); /* NULL is allowed */
/* 1100 x the size of the file and of those that its datasets lie in (deflate's best is 1032 : 1) + 16 MiB. */
int64_t flim_h5_limit(const flim_h5 *h5);

/* ---- flim_source_ops: hdf5_objects.c, hdf5_columns.c, hdf5_masks.c, hdf5_attributes.c */
bool flim_h5_has(flim_source *source, const char *name);
void flim_h5_similar(flim_source *source, const char *name, char *dataset, char *attribute, size_t size);
void flim_h5_others(flim_source *source, char *text, size_t size);
flim_status flim_h5_column_kind(flim_source *source, const char *name, bool needed, flim_column_kind *kind, flim_error *err);
flim_status flim_h5_read_integers(flim_source *source, const char *name, int64_t *values, flim_error *err);
flim_status flim_h5_read_strings(flim_source *source, const char *name, char **list, flim_error *err);
flim_status flim_h5_read_texts(flim_source *source, const char *name, char ***list, int64_t *count, flim_error *err);
flim_status flim_h5_column_names(flim_source *source, const char *name, char ***names, int64_t *count, flim_error *err);
flim_status flim_h5_read_mask(flim_source *source, const char *axes, uint8_t *mask, bool *found, flim_mask_values *seen,
                              flim_error *err);
flim_status flim_h5_attribute_strings(flim_source *source, const char *name, char ***list, int64_t *count, flim_error *err);
flim_status flim_h5_attribute_number(flim_source *source, const char *name, double *value, flim_error *err);

/* The lock around HDF5 and its error stack, kept from being printed; every entry has its leave. */
typedef struct flim_h5_guard {
    H5E_auto2_t function;
    void *data;
} flim_h5_guard;

/* h5 (may be NULL): its `errors` gets the stack of each call that fails, and must stay where it is until the leave. */
flim_h5_guard flim_h5_enter(flim_h5 *h5);
void flim_h5_leave(flim_h5_guard guard);

/* ---- to be called under the lock */
/* Closes what the id stands for, whatever that is; a negative one, which HDF5 returns where it fails, stands for nothing. */
void flim_h5_drop(hid_t id);
/* The innermost message of HDF5's error stack, one line. */
void flim_h5_reason(char *text, size_t size);
/* Opens /name for reading: exists, is a dataset, has a simple non-null dataspace, all filters present.  *out = -1 and FLIM_OK
 * where it does not exist and is not needed. */
flim_status flim_h5_dataset(flim_h5 *h5, const char *name, bool needed, const char *expected, hid_t dapl, hid_t *out,
                            flim_error *err);
/* "uint16 (64,256,21,21)" */
void flim_h5_describe(hid_t object, char *text, size_t size);
/* h5py's and pandas' bool: an enumeration of FALSE and TRUE. */
bool flim_h5_is_bool(hid_t type);
/* "uint16 little-endian"; brief leaves the byte order out. */
void flim_h5_type_name(hid_t type, bool brief, char *text, size_t size);
/* Every filter is there, and every other file that the dataset's bytes lie in. */
flim_status flim_h5_check_storage(flim_h5 *h5, const char *name, hid_t dataset, flim_error *err);
/* The same for a dataset that a view (of `file`, found at path `from`) takes values from. */
flim_status flim_h5_check_source_storage(flim_h5 *h5, const char *name, const char *from, hid_t file, hid_t dataset,
                                         int depth, flim_error *err);
/* A view (hdf5_views.c) `depth` views deep: its parts cover it, and their sources are there. */
flim_status flim_h5_check_view(flim_h5 *h5, const char *name, const char *from, hid_t file, hid_t dataset, hid_t dcpl,
                               int depth, flim_error *err);
/* Lets HDF5 open every source of a view through the handle that will read it.  No view: FLIM_OK. */
flim_status flim_h5_hold_view(flim_h5 *h5, const char *name, hid_t dataset, flim_error *err);
/* H5Dread, which fails also where a source of a view could not be opened. */
herr_t flim_h5_read_values(flim_h5 *h5, hid_t dataset, hid_t type, hid_t memory, hid_t file, hid_t transfer, void *values);
/* True, and err filled, where a file was refused or the process may open no more of them: what HDF5 says then is no reason. */
bool flim_h5_explain(const flim_h5 *h5, const char *name, flim_error *err);
/* The error where such a read failed for a source. */
flim_status flim_h5_view_lost(flim_h5 *h5, const char *name, flim_error *err);
/* The file's data lies in this file, too: what may be read from it is more. */
void flim_h5_count_outside(flim_h5 *h5, const struct stat *about);
/* False if a link led into another file: its addresses are not h5's. */
bool flim_h5_is_own(flim_h5 *h5, hid_t dataset);
/* "shuffle + gzip 4"; "no filter" */
void flim_h5_filter_names(hid_t dcpl, char *text, size_t size);
/* rank and sizes, at most 8 axes; false for null dataspaces and higher ranks. */
bool flim_h5_shape(hid_t dataset, int *rank, hsize_t sizes[8]);
/* Fails where count x size is over the file's limit. */
flim_status flim_h5_check_bytes(const flim_h5 *h5, const char *name, int64_t count, size_t size, flim_error *err);
/* The native-order twin of a type, for reading without conversion of values; -1 on failure. */
hid_t flim_h5_native(hid_t type);

#endif

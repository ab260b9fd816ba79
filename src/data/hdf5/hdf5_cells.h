/* /counts of a file: how its cells are read.  Shared by hdf5_counts.c, hdf5_layout.c and hdf5_cells.c. */
#ifndef FLIM_DATA_HDF5_CELLS_H
#define FLIM_DATA_HDF5_CELLS_H

#include "data/hdf5/hdf5_internal.h"
#include "data/hdf5/hdf5_packing.h"

typedef enum flim_h5_mode {
    FLIM_H5_CONTIGUOUS, /* pread */
    FLIM_H5_CHUNKS, /* one cell per chunk: pread at known offsets, or raw chunks through the library; own inflate */
    FLIM_H5_LIBRARY /* H5Dread under the lock */
} flim_h5_mode;

typedef struct flim_h5_cells {
    flim_h5 *h5;
    flim_source_info *info; /* h5's */
    flim_h5_mode mode;
    int64_t cells_per_chunk, chunk_bytes, cache_bytes; /* cache_bytes: that HDF5 may hold of decompressed chunks */
    hid_t dataset, memory_type; /* native order of the file's type, or a native type that holds all its values */
    flim_h5_packing packing;
    hid_t file_space, memory_space;
    int axis[4]; /* file axis i is N, T, Y, X = 0, 1, 2, 3 */
    hsize_t size[4]; /* of file axis i */
    int n_axis; /* file axis of N */
    int64_t voxels;
    size_t cell_bytes;
    bool shuffle, deflate;
    unsigned shuffle_bit, deflate_bit; /* of a chunk's filter mask */
    struct flim_h5_chunks *chunks; /* library: looked at before HDF5 unpacks them; NULL = there is nothing to look at */
    bool addresses; /* HDF5's addresses are offsets into h5's file */
    uint64_t offset; /* contiguous: of cell 0 in the file */
    uint64_t *address; /* chunks: (n) or NULL; UINT64_MAX if the library has to read it */
    uint32_t *length; /* (n) */
} flim_h5_cells;

/* Opens /counts and fills h5->source.info. */
flim_status flim_h5_cells_open(flim_h5 *h5, const flim_source_options *options, flim_h5_cells **out, flim_error *err);
void flim_h5_cells_close(flim_h5_cells *cells); /* before flim_h5_close; NULL is allowed */
flim_status flim_h5_read_cell(flim_h5_cells *cells, int64_t cell, flim_scratch *scratch, void *values, flim_error *err);

/* ---- to be called under the lock */
/* What the file's numbers are and as what they will be read.  *plain: raw bytes can be used without HDF5. */
flim_status flim_h5_choose_number(flim_h5_cells *cells, hid_t type, bool *plain, const flim_log *log, flim_error *err);
/* Four axes that make sense in this order, or in the file's own if axes is NULL. */
flim_status flim_h5_check_axes(flim_h5_cells *cells, const char *axes, const flim_log *log, flim_error *err);
/* The fastest mode that the layout allows, and what it needs. */
flim_status flim_h5_choose_mode(flim_h5_cells *cells, bool plain, int64_t cache, const flim_log *log, flim_error *err);

#endif

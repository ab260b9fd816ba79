/* /counts: checked once at open, then read cell by cell on the fastest way that its layout allows.
 *
 * HDF5 runs one call at a time, inflating included, so threads gain nothing inside it.  What can be had without it is: the
 * bytes of a contiguous dataset by pread; those of a dataset of one cell per chunk by pread at addresses found at open, or
 * through H5Dread_chunk (no filters, a few microseconds) where finding them all would take long.  Inflating, unshuffling and
 * byte order are then done by the calling thread.  Everything else, and each chunk with something unusual about it (never
 * written, a filter left out, larger than its cell), goes through H5Dread under the lock.
 */
#include "data/hdf5/hdf5_cells.h"
#include "data/hdf5/hdf5_chunks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/inflate.h"

/* Of a cell: products of it with a number's size, eight and more, stay far from overflow. */
#define MOST_VOXELS ((int64_t)1 << 40)

flim_status flim_h5_cells_open(flim_h5 *h5, const flim_source_options *options, flim_h5_cells **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    hid_t type = -1;
    bool plain = false;
    *out = NULL;
    flim_h5_cells *cells = flim_alloc(1, sizeof *cells, err);
    if (!cells) {
        return FLIM_ERROR_MEMORY;
    }
    cells->h5 = h5;
    cells->info = &h5->source.info;
    cells->dataset = cells->memory_type = cells->file_space = cells->memory_space = -1;
    flim_h5_guard guard = flim_h5_enter(h5);
    FLIM_TRY_DONE(flim_h5_dataset(h5, "counts", true, "photon counts (N,T,H,W)", H5P_DEFAULT, &cells->dataset, err));
    FLIM_TRY_DONE(flim_h5_check_axes(cells, options->axes, options->log, err));
    type = H5Dget_type(cells->dataset);
    flim_h5_type_name(type, false, cells->info->type, sizeof cells->info->type);
    FLIM_TRY_DONE(flim_h5_choose_number(cells, type, &plain, options->log, err));
    flim_source_info *info = cells->info;
    /* T x H x W without overflow: each is below 2^31, so the first product is below 2^62. */
    int64_t frame = (int64_t)info->h * info->w;
    cells->voxels = frame > MOST_VOXELS / info->t ? INT64_MAX / 16 : frame * info->t;
    if (cells->voxels > MOST_VOXELS) { /* a sparse file may be that large */
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: cells of %d x %d x %d voxels; expected at most %lld in all",
                           h5->path, info->t, info->h, info->w, (long long)MOST_VOXELS);
        goto done;
    }
    FLIM_TRY_DONE(flim_h5_check_bytes(h5, "counts (a cell)", cells->voxels, sizeof(double), err));
    FLIM_TRY_DONE(flim_h5_check_bytes(h5, "counts (cells)", info->n, 8, err));
    cells->cell_bytes = (size_t)cells->voxels * info->number.size;
    info->raw_bytes = flim_h5_chunk_room(cells->cell_bytes);
    info->stored_bytes = (int64_t)H5Dget_storage_size(cells->dataset);
    FLIM_TRY_DONE(flim_h5_choose_mode(cells, plain, options->chunk_cache, options->log, err));
    info->best_layout = cells->mode != FLIM_H5_LIBRARY;
    info->raw_bytes = cells->mode == FLIM_H5_CHUNKS ? info->raw_bytes : 0;
    if (cells->mode == FLIM_H5_LIBRARY) {
        FLIM_TRY_DONE(flim_h5_chunks_create(h5, "counts", cells->dataset, &cells->chunks, err));
    }
    hsize_t one[4];
    for (int i = 0; i < 4; i++) {
        one[i] = i == cells->n_axis ? 1 : cells->size[i];
    }
    cells->file_space = H5Dget_space(cells->dataset);
    cells->memory_space = H5Screate_simple(4, one, NULL);
    if (cells->file_space < 0 || cells->memory_space < 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: its shape cannot be read", h5->path);
    }
done:
    flim_h5_drop(type);
    flim_h5_leave(guard);
    if (status == FLIM_OK) {
        *out = cells;
    } else {
        flim_h5_cells_close(cells);
    }
    return status;
}

void flim_h5_cells_close(flim_h5_cells *cells)
{
    if (!cells) {
        return;
    }
    flim_h5_guard guard = flim_h5_enter(cells->h5);
    flim_h5_chunks_destroy(cells->chunks);
    flim_h5_drop(cells->memory_space);
    flim_h5_drop(cells->file_space);
    flim_h5_drop(cells->memory_type);
    flim_h5_drop(cells->dataset);
    flim_h5_leave(guard);
    flim_free(cells->address);
    flim_free(cells->length);
    flim_free(cells);
}

/* ---- reading */

static flim_status read_failed(const flim_h5_cells *cells, int64_t cell, const char *reason, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: cell %lld cannot be read: %s; the file is damaged there",
                     cells->h5->path, (long long)cell, reason);
}

/* Through H5Dread; under the lock. */
static flim_status read_library(flim_h5_cells *cells, int64_t cell, void *values, flim_error *err)
{
    hsize_t start[4] = {0, 0, 0, 0}, count[4];
    for (int i = 0; i < 4; i++) {
        count[i] = i == cells->n_axis ? 1 : cells->size[i];
    }
    start[cells->n_axis] = (hsize_t)cell;
    if (cells->chunks) {
        FLIM_TRY(flim_h5_chunks_check(cells->chunks, cell, start, count, err));
    }
    if (H5Sselect_hyperslab(cells->file_space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
        flim_h5_read_values(cells->h5, cells->dataset, cells->memory_type, cells->memory_space, cells->file_space,
                            H5P_DEFAULT, values) < 0) {
        char reason[512];
        flim_h5_reason(reason, sizeof reason);
        if (cells->h5->watch.lost[0]) {
            return flim_h5_view_lost(cells->h5, "counts", err);
        }
        return read_failed(cells, cell, reason, err);
    }
    double *value = values; /* what is packed is read as doubles */
    for (int64_t i = 0; flim_h5_is_packed(&cells->packing) && i < cells->voxels; i++) {
        value[i] = flim_h5_unpack(&cells->packing, value[i]);
    }
    return FLIM_OK;
}

static flim_status read_bytes(const flim_h5_cells *cells, int64_t cell, void *to, size_t bytes, uint64_t offset,
                              flim_error *err)
{
    uint8_t *at = to;
    while (bytes) {
        ssize_t got = pread(cells->h5->fd, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return read_failed(cells, cell, got < 0 ? strerror(errno) : "the file has become shorter", err);
        }
        at += got;
        bytes -= (size_t)got;
        offset += (uint64_t)got;
    }
    return FLIM_OK;
}

/* The stored bytes of a chunk into scratch->raw, *length of them, packed with the filters that *mask does not leave out; *done
 * where the cell is already in `values`. */
static flim_status fetch_chunk(flim_h5_cells *cells, int64_t cell, flim_scratch *scratch, size_t *length, uint32_t *mask,
                               bool *done, void *values, flim_error *err)
{
    *done = false;
    *mask = 0;
    if (cells->address && cells->address[cell] != UINT64_MAX) {
        *length = cells->length[cell];
        return read_bytes(cells, cell, scratch->raw, *length, cells->address[cell], err);
    }
    hsize_t offset[4] = {0, 0, 0, 0}, size = 0;
    flim_status status = FLIM_OK;
    offset[cells->n_axis] = (hsize_t)cell;
    flim_h5_guard guard = flim_h5_enter(cells->h5);
    const bool there = H5Dget_chunk_storage_size(cells->dataset, offset, &size) >= 0 && size > 0;
    if (there && size > flim_h5_chunk_room(cells->cell_bytes)) {
        char reason[120];
        snprintf(reason, sizeof reason, "its chunk takes %llu bytes, the cell has %zu", (unsigned long long)size,
                 cells->cell_bytes);
        status = read_failed(cells, cell, reason, err);
    } else if (!there || H5Dread_chunk(cells->dataset, H5P_DEFAULT, offset, mask, scratch->raw) < 0) {
        *done = true; /* never written, or HDF5 has the words for it */
        status = read_library(cells, cell, values, err);
    }
    flim_h5_leave(guard);
    *length = (size_t)size;
    return status;
}

flim_status flim_h5_read_cell(flim_h5_cells *cells, int64_t cell, flim_scratch *scratch, void *values, flim_error *err)
{
    flim_number number = cells->info->number;
    flim_status status = FLIM_OK;
    if (cells->mode == FLIM_H5_LIBRARY) {
        flim_h5_guard guard = flim_h5_enter(cells->h5);
        status = read_library(cells, cell, values, err);
        flim_h5_leave(guard);
        return status;
    }
    if (cells->mode == FLIM_H5_CONTIGUOUS) {
        status = read_bytes(cells, cell, values, cells->cell_bytes, cells->offset + (uint64_t)cell * cells->cell_bytes, err);
        if (status == FLIM_OK && number.swapped) {
            flim_number_swap(number, cells->voxels, values);
        }
        return status;
    }
    size_t length = 0;
    uint32_t mask = 0;
    bool done = false;
    status = fetch_chunk(cells, cell, scratch, &length, &mask, &done, values, err);
    if (status != FLIM_OK || done) {
        return status;
    }
    const bool shuffled = cells->shuffle && !(mask & cells->shuffle_bit);
    bool direct = !shuffled && !number.swapped; /* no pass after inflating: inflate into place */
    if (!cells->deflate || mask & cells->deflate_bit) {
        if (length != cells->cell_bytes) {
            return read_failed(cells, cell, "its chunk has another size than the cell", err);
        }
        flim_number_native(number, shuffled, scratch->raw, cells->voxels, values);
        return FLIM_OK;
    }
    if (!flim_inflate(scratch->inflater, scratch->raw, length, direct ? values : scratch->unpacked, cells->cell_bytes)) {
        return read_failed(cells, cell, "its compressed data does not unpack (checksum or length)", err);
    }
    if (!direct) {
        flim_number_native(number, shuffled, scratch->unpacked, cells->voxels, values);
    }
    return FLIM_OK;
}

/* The layout of /counts, and the fastest mode of reading that it allows. */
#include "data/hdf5/hdf5_cells.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/try.h"

/* Reading chunk addresses one by one costs HDF5 a walk over all of them each time; up to this many cells that is fast. */
enum { MOST_WALKED = 2048 };

static bool only_shuffle_and_deflate(flim_h5_cells *cells, hid_t dcpl)
{
    int n = H5Pget_nfilters(dcpl);
    for (int i = 0; i < n; i++) {
        unsigned flags = 0, value[4] = {0};
        size_t values = 4;
        H5Z_filter_t id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &values, value, 0, NULL, NULL);
        if (id == H5Z_FILTER_SHUFFLE && i == 0 && (values < 1 || value[0] == cells->info->number.size)) {
            cells->shuffle = true;
            cells->shuffle_bit = 1u << i;
        } else if (id == H5Z_FILTER_DEFLATE && i == n - 1) {
            cells->deflate = true;
            cells->deflate_bit = 1u << i;
        } else {
            return false;
        }
    }
    return n >= 0;
}

static void size_text(const hsize_t sizes[4], char separator, char *text, size_t size)
{
    snprintf(text, size, "%llu%c%llu%c%llu%c%llu", (unsigned long long)sizes[0], separator, (unsigned long long)sizes[1],
             separator, (unsigned long long)sizes[2], separator, (unsigned long long)sizes[3]);
}

static int64_t physical_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (int64_t)pages * page : (int64_t)1 << 32;
}

/* Reopens the dataset with a cache for its decompressed chunks, as far as the limit goes, and says what it means. */
static flim_status size_cache(flim_h5_cells *cells, int64_t limit, const hsize_t chunk[4], const flim_log *log,
                              flim_error *err)
{
    const char *path = cells->h5->path;
    int64_t chunks = 1, default_limit = physical_memory() / 8;
    for (int i = 0; i < 4; i++) {
        const int64_t along = (int64_t)((cells->size[i] + chunk[i] - 1) / chunk[i]);
        chunks = chunks > INT64_MAX / along ? INT64_MAX : chunks * along;
    }
    if (limit <= 0) {
        limit = default_limit < (int64_t)1 << 30 ? default_limit : (int64_t)1 << 30;
    }
    int64_t bytes = cells->chunk_bytes;
    int64_t total = chunks > INT64_MAX / bytes ? INT64_MAX : chunks * bytes;
    cells->cache_bytes = total < limit ? total : limit;
    /* Two chunks that hash to one slot push each other out: slots well above the number of chunks held, and odd.  The dataset
     * is closed first: a second handle would share the cache of the one that is open. */
    int64_t held = cells->cache_bytes / bytes + 1;
    size_t slots = held > 10000 ? 1000003 : (size_t)held * 100 + 1;
    hid_t dapl = H5Pcreate(H5P_DATASET_ACCESS);
    bool sized = dapl >= 0 && H5Pset_chunk_cache(dapl, slots, (size_t)cells->cache_bytes, 0.75) >= 0;
    H5Dclose(cells->dataset);
    flim_status status =
        flim_h5_dataset(cells->h5, "counts", true, "(N,T,H,W)", sized ? dapl : H5P_DEFAULT, &cells->dataset, err);
    flim_h5_drop(dapl);
    if (status != FLIM_OK) {
        return status;
    }
    if (total > cells->cache_bytes && cells->cells_per_chunk > 1) {
        hsize_t best[4];
        char best_text[96], found_text[96];
        for (int i = 0; i < 4; i++) {
            best[i] = i == cells->n_axis ? 1 : cells->size[i];
        }
        size_text(best, 'x', best_text, sizeof best_text);
        size_text(chunk, ',', found_text, sizeof found_text);
        flim_log_line(log, FLIM_LOG_WARNING,
                      "%s: /counts is slow to read in random order: chunks of (%s) have %lld cells each and all of them need "
                      "%.1f GiB, the cache has %.1f GiB; better: flim_repack IN OUT, or h5repack -l counts:CHUNK=%s -f "
                      "counts:SHUF -f counts:GZIP=4 IN OUT",
                      path, found_text, (long long)cells->cells_per_chunk, flim_gib(total), flim_gib(cells->cache_bytes),
                      best_text);
    }
    return FLIM_OK;
}

#if H5_VERSION_GE(1, 14, 0) || (H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE >= 3) ||                        \
    (H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 10 && H5_VERS_RELEASE >= 10)
#define HAVE_CHUNK_ITER 1
static int note_chunk(const hsize_t *offset, unsigned mask, haddr_t address, hsize_t size, void *data)
{
    flim_h5_cells *cells = data;
    hsize_t cell = offset[cells->n_axis];
    if (cell < (hsize_t)cells->info->n && mask == 0 && size <= UINT32_MAX) {
        cells->address[cell] = address;
        cells->length[cell] = (uint32_t)size;
    }
    return 0;
}
#endif

/* Finds where every chunk lies.  Leaves address NULL if that would be slow or uncertain; reading then asks the library. */
static flim_status find_chunks(flim_h5_cells *cells, flim_error *err)
{
    int64_t n = cells->info->n;
#ifndef HAVE_CHUNK_ITER
    if (n > MOST_WALKED) {
        return FLIM_OK;
    }
#endif
    if (!cells->addresses) {
        return FLIM_OK;
    }
    cells->address = flim_alloc((size_t)n, sizeof *cells->address, err);
    cells->length = flim_alloc((size_t)n, sizeof *cells->length, err);
    if (!cells->address || !cells->length) {
        return FLIM_ERROR_MEMORY;
    }
    memset(cells->address, 0xff, (size_t)n * sizeof *cells->address);
    bool good = true;
#ifdef HAVE_CHUNK_ITER
    good = H5Dchunk_iter(cells->dataset, H5P_DEFAULT, note_chunk, cells) >= 0;
#else
    for (int64_t cell = 0; cell < n && good; cell++) {
        hsize_t offset[4] = {0, 0, 0, 0}, size = 0;
        unsigned mask = 0;
        haddr_t address = HADDR_UNDEF;
        offset[cells->n_axis] = (hsize_t)cell;
        good = H5Dget_chunk_info_by_coord(cells->dataset, offset, &mask, &address, &size) >= 0;
        if (good && address != HADDR_UNDEF && mask == 0 && size <= UINT32_MAX) {
            cells->address[cell] = address;
            cells->length[cell] = (uint32_t)size;
        }
    }
#endif
    for (int64_t cell = 0; cell < n; cell++) {
        if (!good || (cells->address[cell] != UINT64_MAX &&
                      (cells->length[cell] > cells->info->raw_bytes || cells->length[cell] > (uint64_t)cells->h5->size ||
                       cells->address[cell] > (uint64_t)cells->h5->size - cells->length[cell]))) {
            cells->address[cell] = UINT64_MAX; /* the library finds the words for it */
        }
    }
    return FLIM_OK;
}

flim_status flim_h5_choose_mode(flim_h5_cells *cells, bool plain, int64_t cache, const flim_log *log, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_source_info *info = cells->info;
    hid_t dcpl = H5Dget_create_plist(cells->dataset);
    H5D_layout_t layout = dcpl >= 0 ? H5Pget_layout(dcpl) : H5D_LAYOUT_ERROR;
    char filters[96];
    cells->mode = FLIM_H5_LIBRARY;
    cells->cells_per_chunk = 1;
    cells->addresses = cells->h5->addresses && flim_h5_is_own(cells->h5, cells->dataset);
    if (layout == H5D_CONTIGUOUS) {
        haddr_t offset = H5Dget_offset(cells->dataset);
        const uint64_t size = (uint64_t)cells->h5->size;
        snprintf(info->layout, sizeof info->layout, "contiguous");
        if (plain && cells->addresses && cells->n_axis == 0 && H5Pget_external_count(dcpl) == 0 && offset != HADDR_UNDEF &&
            offset <= size && (size - offset) / cells->cell_bytes >= (uint64_t)info->n) {
            cells->mode = FLIM_H5_CONTIGUOUS;
            cells->offset = offset;
        }
    } else if (layout == H5D_CHUNKED) {
        hsize_t chunk[8] = {0};
        char chunk_text[96];
        bool whole = true;
        int64_t chunk_voxels = 1;
        if (H5Pget_chunk(dcpl, 8, chunk) != 4) {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: the shape of its chunks cannot be read", cells->h5->path);
            goto done;
        }
        for (int i = 0; i < 4; i++) {
            whole = whole && chunk[i] == (i == cells->n_axis ? 1 : cells->size[i]);
            if (chunk[i] == 0 || chunk[i] > INT32_MAX || chunk_voxels > INT32_MAX) {
                chunk_voxels = INT64_MAX / 16; /* HDF5 holds chunks under 4 GiB */
            } else {
                chunk_voxels *= (int64_t)chunk[i];
            }
        }
        size_t size = H5Tget_size(cells->memory_type);
        FLIM_TRY_DONE(flim_h5_check_bytes(cells->h5, "counts (a chunk)", chunk_voxels, size, err));
        cells->chunk_bytes = chunk_voxels * (int64_t)size;
        cells->cells_per_chunk = (int64_t)chunk[cells->n_axis];
        size_text(chunk, ',', chunk_text, sizeof chunk_text);
        flim_h5_filter_names(dcpl, filters, sizeof filters);
        snprintf(info->layout, sizeof info->layout, "chunked (%s), %s", chunk_text, filters);
        if (whole && plain && only_shuffle_and_deflate(cells, dcpl)) {
            cells->mode = FLIM_H5_CHUNKS;
            status = find_chunks(cells, err);
        } else {
            status = size_cache(cells, cache, chunk, log, err);
        }
    } else if (layout == H5D_COMPACT) {
        snprintf(info->layout, sizeof info->layout, "compact");
    } else if (layout == H5D_VIRTUAL) {
        snprintf(info->layout, sizeof info->layout, "virtual");
    } else {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: its layout cannot be read", cells->h5->path);
    }
done:
    flim_h5_drop(dcpl);
    return status;
}

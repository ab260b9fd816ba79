/* /counts: checked once at open, then read cell by cell on the fastest way that its layout allows.
 *
 * HDF5 runs one call at a time, inflating included, so threads gain nothing inside it.  What can be had without it is: the
 * bytes of a contiguous dataset by pread; those of a one-cell-a-chunk dataset by pread at addresses found at open, or through
 * H5Dread_chunk (no filters, a few microseconds) where finding them all would take long.  Inflating, unshuffling and byte
 * order are then done by the calling thread.  Everything else, and each chunk with something unusual about it (never written,
 * a filter left out, larger than its cell), goes through H5Dread under the lock.
 */
#include "data/hdf5/hdf5_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "data/inflate.h"

struct flim_h5_cells {
    flim_h5 *h5;
    flim_h5_cells_info info;
    hid_t dataset, memory_type; /* native order of the file's type, or a native type that holds all its values */
    hid_t file_space, memory_space;
    int axis[4]; /* file axis i is N, T, Y, X = 0, 1, 2, 3 */
    hsize_t size[4]; /* of file axis i */
    int n_axis; /* file axis of N */
    int64_t voxels;
    size_t cell_bytes;
    bool shuffle, deflate;
    bool addresses; /* HDF5's addresses are offsets into h5's file */
    uint64_t offset; /* contiguous: of cell 0 in the file */
    uint64_t *address; /* chunks: (n) or NULL; UINT64_MAX where the library has to read it */
    uint32_t *length; /* (n) */
};

/* Reading chunk addresses one by one costs HDF5 a walk over all of them each time; up to this many cells that is fast. */
enum { MOST_WALKED = 2048 };

static bool known_integer(hid_t type, flim_number *number)
{
    size_t size = H5Tget_size(type);
    H5T_order_t order = H5Tget_order(type);
    if ((size != 1 && size != 2 && size != 4 && size != 8) || H5Tget_precision(type) != 8 * size ||
        H5Tget_offset(type) != 0 || (size > 1 && order != H5T_ORDER_LE && order != H5T_ORDER_BE)) {
        return false;
    }
    *number = (flim_number){H5Tget_sign(type) == H5T_SGN_NONE ? FLIM_UNSIGNED : FLIM_SIGNED, size,
                            size > 1 && order != H5Tget_order(H5T_NATIVE_INT)};
    return true;
}

static bool known_float(hid_t type, flim_number *number)
{
    size_t size = H5Tget_size(type), sign, exponent, exponent_bits, mantissa, mantissa_bits;
    H5T_order_t order = H5Tget_order(type);
    static const struct {
        size_t size, exponent_bits, mantissa_bits, bias;
    } ieee[] = {{2, 5, 10, 15}, {4, 8, 23, 127}, {8, 11, 52, 1023}};
    if ((order != H5T_ORDER_LE && order != H5T_ORDER_BE) ||
        H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof ieee / sizeof ieee[0]; i++) {
        if (size == ieee[i].size && H5Tget_precision(type) == 8 * size && H5Tget_offset(type) == 0 && sign == 8 * size - 1 &&
            exponent == ieee[i].mantissa_bits && exponent_bits == ieee[i].exponent_bits && mantissa == 0 &&
            mantissa_bits == ieee[i].mantissa_bits && H5Tget_ebias(type) == ieee[i].bias &&
            H5Tget_norm(type) == H5T_NORM_IMPLIED) {
            *number = (flim_number){FLIM_FLOAT, size, order != H5Tget_order(H5T_NATIVE_INT)};
            return true;
        }
    }
    return false;
}

/* What the file's numbers are and as what they will be read.  *plain: raw bytes can be used without HDF5.  Other integer and
 * float formats (12 bits in 16, bfloat16, 80-bit floats) are read by HDF5 into the widest native type, which clips nothing. */
static flim_status choose_number(flim_h5_cells *cells, hid_t type, bool *plain, flim_error *err)
{
    flim_number *number = &cells->info.number;
    flim_status status = FLIM_OK;
    hid_t base = H5Tget_class(type) == H5T_ENUM ? H5Tget_super(type) : H5Tcopy(type); /* bool is an enum */
    H5T_class_t class = H5Tget_class(base);
    *plain = (class == H5T_INTEGER && known_integer(base, number)) || (class == H5T_FLOAT && known_float(base, number));
    if (*plain) {
        cells->memory_type = flim_h5_native(base);
    } else if (class == H5T_INTEGER && H5Tget_precision(base) <= 64) {
        bool is_signed = H5Tget_sign(base) != H5T_SGN_NONE;
        *number = (flim_number){is_signed ? FLIM_SIGNED : FLIM_UNSIGNED, 8, false};
        cells->memory_type = H5Tcopy(is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64);
    } else if (class == H5T_FLOAT) {
        *number = (flim_number){FLIM_FLOAT, 8, false};
        cells->memory_type = H5Tcopy(H5T_NATIVE_DOUBLE);
    } else {
        char found[80];
        flim_h5_type_name(type, true, found, sizeof found);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: found %s, expected integers of at most 64 bits or floats",
                           cells->h5->path, found);
    }
    if (status == FLIM_OK && cells->memory_type < 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: its number type cannot be read", cells->h5->path);
    }
    if (base >= 0) {
        H5Tclose(base);
    }
    return status;
}

static flim_status check_shape(flim_h5_cells *cells, const char *axes, const flim_log *log, flim_error *err)
{
    static const char letters[] = "NTYX";
    const char *path = cells->h5->path, *order = axes ? axes : letters;
    char found[256];
    int rank, next = 0;
    hsize_t sizes[8] = {0};
    flim_h5_describe(cells->dataset, found, sizeof found);
    if (!flim_h5_shape(cells->dataset, &rank, sizes) || rank != 4) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /counts: found %s, expected four axes (N,T,H,W): cells, time bins, rows, columns", path, found);
    }
    for (int i = 0; i < 4; i++) {
        const char *at = strchr(letters, order[i]);
        cells->axis[i] = (int)(at - letters);
        cells->size[i] = sizes[i];
        if (cells->axis[i] == 0) {
            cells->n_axis = i;
        } else {
            cells->info.order[next++] = cells->axis[i] - 1;
        }
        if (sizes[i] == 0) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: /counts: found %s, which holds no value; expected (N,T,H,W) with N >= 1", path, found);
        }
        if (sizes[i] > INT32_MAX) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: found %s, expected no axis longer than 2147483647", path,
                             found);
        }
        int *target[4] = {NULL, &cells->info.t, &cells->info.h, &cells->info.w};
        if (cells->axis[i] == 0) {
            cells->info.n = (int64_t)sizes[i];
        } else {
            *target[cells->axis[i]] = (int)sizes[i];
        }
    }
    cells->info.transposed = cells->info.order[0] != 0 || cells->info.order[1] != 1;
    /* Images are square or nearly so: rows and columns that differ much where two other neighbours agree is MATLAB's or
     * Julia's order, or time last. */
    bool reversed = sizes[0] == sizes[1] && sizes[2] >= 2 * sizes[1] && sizes[2] != sizes[3];
    bool time_last = sizes[1] == sizes[2] && sizes[3] >= 2 * sizes[2];
    if (!axes && (reversed || time_last)) {
        return flim_fail(
            err, FLIM_ERROR_DATA,
            "%s: /counts: found %s, expected (N,T,H,W): cells, time bins, rows, columns; this looks like %s: say "
            "the order with --axes, or --axes NTHW if it is right as it is",
            path, found, reversed ? "XYTN, as MATLAB and Julia write it" : "NYXT or TYXN");
    }
    if (cells->info.t < 8 || cells->info.h < 3 || cells->info.w < 3) {
        return flim_fail(
            err, FLIM_ERROR_DATA,
            "%s: /counts: found %s, read as %lld cells of T = %d, H = %d, W = %d; expected T >= 8, H and W >= 3; "
            "another order of axes is said with --axes",
            path, found, (long long)cells->info.n, cells->info.t, cells->info.h, cells->info.w);
    }
    if (!axes && (sizes[0] == sizes[1] || sizes[0] == sizes[2])) {
        flim_log_line(log, FLIM_LOG_NOTE,
                      "%s: /counts is %s: N cannot be told by its size; the first axis is taken as the cells (--axes says "
                      "otherwise)",
                      path, found);
    }
    return FLIM_OK;
}

/* ---- layout */

static bool only_shuffle_and_deflate(flim_h5_cells *cells, hid_t dcpl)
{
    int n = H5Pget_nfilters(dcpl);
    for (int i = 0; i < n; i++) {
        unsigned flags = 0, value[4] = {0};
        size_t values = 4;
        H5Z_filter_t id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &values, value, 0, NULL, NULL);
        if (id == H5Z_FILTER_SHUFFLE && i == 0 && (values < 1 || value[0] == cells->info.number.size)) {
            cells->shuffle = true;
        } else if (id == H5Z_FILTER_DEFLATE && i == n - 1) {
            cells->deflate = true;
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

/* Opens the dataset again with room for its decompressed chunks, as far as the limit goes, and says what it means. */
static flim_status size_cache(flim_h5_cells *cells, int64_t limit, const hsize_t chunk[4], const flim_log *log,
                              flim_error *err)
{
    const char *path = cells->h5->path;
    int64_t chunks = 1, default_limit = physical_memory() / 8;
    for (int i = 0; i < 4; i++) {
        chunks *= (int64_t)((cells->size[i] + chunk[i] - 1) / chunk[i]);
    }
    if (limit <= 0) {
        limit = default_limit < (int64_t)1 << 30 ? default_limit : (int64_t)1 << 30;
    }
    int64_t bytes = cells->info.chunk_bytes;
    int64_t total = chunks > INT64_MAX / bytes ? INT64_MAX : chunks * bytes;
    cells->info.cache_bytes = total < limit ? total : limit;
    /* Two chunks that hash to one slot push each other out: slots well above the number of chunks held, and odd.  The dataset
     * is closed first: a second handle would share the cache of the one that is open. */
    int64_t held = cells->info.cache_bytes / bytes + 1;
    size_t slots = held > 10000 ? 1000003 : (size_t)held * 100 + 1;
    hid_t dapl = H5Pcreate(H5P_DATASET_ACCESS);
    bool sized = dapl >= 0 && H5Pset_chunk_cache(dapl, slots, (size_t)cells->info.cache_bytes, 0.75) >= 0;
    H5Dclose(cells->dataset);
    flim_status status =
        flim_h5_dataset(cells->h5, "counts", true, "(N,T,H,W)", sized ? dapl : H5P_DEFAULT, &cells->dataset, err);
    if (dapl >= 0) {
        H5Pclose(dapl);
    }
    if (status != FLIM_OK) {
        return status;
    }
    if (total > cells->info.cache_bytes && cells->info.cells_a_chunk > 1) {
        hsize_t best[4];
        char best_text[96], found_text[96];
        for (int i = 0; i < 4; i++) {
            best[i] = i == cells->n_axis ? 1 : cells->size[i];
        }
        size_text(best, 'x', best_text, sizeof best_text);
        size_text(chunk, ',', found_text, sizeof found_text);
        flim_log_line(log, FLIM_LOG_WARNING,
                      "%s: /counts is slow to read in random order: chunks of (%s) hold %lld cells each and all of them take "
                      "%.1f GiB, the cache has %.1f GiB; better: flim_repack IN OUT, or h5repack -l counts:CHUNK=%s -f "
                      "counts:SHUF -f counts:GZIP=4 IN OUT",
                      path, found_text, (long long)cells->info.cells_a_chunk, (double)total / 0x1p30,
                      (double)cells->info.cache_bytes / 0x1p30, best_text);
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
    if (cell < (hsize_t)cells->info.n && mask == 0 && size <= UINT32_MAX) {
        cells->address[cell] = address;
        cells->length[cell] = (uint32_t)size;
    }
    return 0;
}
#endif

/* Finds where every chunk lies.  Leaves address NULL where that would be slow or uncertain; reading then asks the library. */
static flim_status find_chunks(flim_h5_cells *cells, flim_error *err)
{
    int64_t n = cells->info.n;
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
                      (cells->length[cell] > cells->info.raw_bytes || cells->length[cell] > (uint64_t)cells->h5->size ||
                       cells->address[cell] > (uint64_t)cells->h5->size - cells->length[cell]))) {
            cells->address[cell] = UINT64_MAX; /* the library finds the words for it */
        }
    }
    return FLIM_OK;
}

static flim_status choose_layout(flim_h5_cells *cells, bool plain, int64_t cache, const flim_log *log, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_h5_cells_info *info = &cells->info;
    hid_t dcpl = H5Dget_create_plist(cells->dataset);
    H5D_layout_t layout = dcpl >= 0 ? H5Pget_layout(dcpl) : H5D_LAYOUT_ERROR;
    char filters[96];
    info->mode = FLIM_H5_LIBRARY;
    info->cells_a_chunk = 1;
    cells->addresses = cells->h5->addresses && flim_h5_is_own(cells->h5, cells->dataset);
    if (layout == H5D_CONTIGUOUS) {
        haddr_t offset = H5Dget_offset(cells->dataset);
        uint64_t bytes = (uint64_t)cells->cell_bytes * (uint64_t)info->n, size = (uint64_t)cells->h5->size;
        snprintf(info->layout, sizeof info->layout, "contiguous");
        if (plain && cells->addresses && cells->n_axis == 0 && H5Pget_external_count(dcpl) == 0 && offset != HADDR_UNDEF &&
            bytes <= size && offset <= size - bytes) {
            info->mode = FLIM_H5_CONTIGUOUS;
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
        if ((status = flim_h5_check_bytes(cells->h5, "counts (a chunk)", chunk_voxels, size, err)) != FLIM_OK) {
            goto done;
        }
        info->chunk_bytes = chunk_voxels * (int64_t)size;
        info->cells_a_chunk = (int64_t)chunk[cells->n_axis];
        size_text(chunk, ',', chunk_text, sizeof chunk_text);
        flim_h5_filter_names(dcpl, filters, sizeof filters);
        snprintf(info->layout, sizeof info->layout, "chunked (%s), %s", chunk_text, filters);
        if (whole && plain && only_shuffle_and_deflate(cells, dcpl)) {
            info->mode = FLIM_H5_CHUNKS;
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
    if (dcpl >= 0) {
        H5Pclose(dcpl);
    }
    return status;
}

flim_status flim_h5_cells_open(flim_h5 *h5, const char *axes, int64_t cache, const flim_log *log, flim_h5_cells **out,
                               flim_error *err)
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
    cells->dataset = cells->memory_type = cells->file_space = cells->memory_space = -1;
    flim_h5_guard guard = flim_h5_enter(h5);
    status = flim_h5_dataset(h5, "counts", true, "photon counts (N,T,H,W)", H5P_DEFAULT, &cells->dataset, err);
    if (status != FLIM_OK || (status = check_shape(cells, axes, log, err)) != FLIM_OK) {
        goto done;
    }
    type = H5Dget_type(cells->dataset);
    flim_h5_type_name(type, false, cells->info.type, sizeof cells->info.type);
    if ((status = choose_number(cells, type, &plain, err)) != FLIM_OK) {
        goto done;
    }
    flim_h5_cells_info *info = &cells->info;
    /* T x H x W without overflow: each is below 2^31, so the first product is below 2^62. */
    int64_t frame = (int64_t)info->h * info->w;
    cells->voxels = frame > INT64_MAX / 16 / info->t ? INT64_MAX / 16 : frame * info->t;
    if ((status = flim_h5_check_bytes(h5, "counts (a cell)", cells->voxels, sizeof(double), err)) != FLIM_OK ||
        (status = flim_h5_check_bytes(h5, "counts (cells)", info->n, 8, err)) != FLIM_OK) {
        goto done;
    }
    cells->cell_bytes = (size_t)cells->voxels * info->number.size;
    info->raw_bytes = cells->cell_bytes + cells->cell_bytes / 8 + 4096;
    info->stored_bytes = (int64_t)H5Dget_storage_size(cells->dataset);
    if ((status = choose_layout(cells, plain, cache, log, err)) != FLIM_OK) {
        goto done;
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
    if (type >= 0) {
        H5Tclose(type);
    }
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
    if (cells->memory_space >= 0) {
        H5Sclose(cells->memory_space);
    }
    if (cells->file_space >= 0) {
        H5Sclose(cells->file_space);
    }
    if (cells->memory_type >= 0) {
        H5Tclose(cells->memory_type);
    }
    if (cells->dataset >= 0) {
        H5Dclose(cells->dataset);
    }
    flim_h5_leave(guard);
    flim_free(cells->address);
    flim_free(cells->length);
    flim_free(cells);
}

const flim_h5_cells_info *flim_h5_cells_get_info(const flim_h5_cells *cells)
{
    return &cells->info;
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
    if (H5Sselect_hyperslab(cells->file_space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
        H5Dread(cells->dataset, cells->memory_type, cells->memory_space, cells->file_space, H5P_DEFAULT, values) < 0) {
        char reason[512];
        flim_h5_reason(reason, sizeof reason);
        return read_failed(cells, cell, reason, err);
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

/* The stored bytes of a chunk into scratch->raw, *length of them; *done where the cell is already in `values`. */
static flim_status fetch_chunk(flim_h5_cells *cells, int64_t cell, flim_h5_scratch *scratch, size_t *length, bool *done,
                               void *values, flim_error *err)
{
    *done = false;
    if (cells->address && cells->address[cell] != UINT64_MAX) {
        *length = cells->length[cell];
        return read_bytes(cells, cell, scratch->raw, *length, cells->address[cell], err);
    }
    hsize_t offset[4] = {0, 0, 0, 0}, size = 0;
    uint32_t mask = 0;
    flim_status status = FLIM_OK;
    offset[cells->n_axis] = (hsize_t)cell;
    flim_h5_guard guard = flim_h5_enter(cells->h5);
    if (cells->address || H5Dget_chunk_storage_size(cells->dataset, offset, &size) < 0 || size == 0 ||
        size > scratch->bytes || H5Dread_chunk(cells->dataset, H5P_DEFAULT, offset, &mask, scratch->raw) < 0 || mask != 0) {
        *done = true;
        status = read_library(cells, cell, values, err);
    }
    flim_h5_leave(guard);
    *length = (size_t)size;
    return status;
}

flim_status flim_h5_read_cell(flim_h5_cells *cells, int64_t cell, flim_h5_scratch *scratch, void *values, flim_error *err)
{
    flim_number number = cells->info.number;
    flim_status status = FLIM_OK;
    if (cells->info.mode == FLIM_H5_LIBRARY) {
        flim_h5_guard guard = flim_h5_enter(cells->h5);
        status = read_library(cells, cell, values, err);
        flim_h5_leave(guard);
        return status;
    }
    if (cells->info.mode == FLIM_H5_CONTIGUOUS) {
        status = read_bytes(cells, cell, values, cells->cell_bytes, cells->offset + (uint64_t)cell * cells->cell_bytes, err);
        if (status == FLIM_OK && number.swapped) {
            flim_number_swap(number, cells->voxels, values);
        }
        return status;
    }
    size_t length = 0;
    bool done = false;
    status = fetch_chunk(cells, cell, scratch, &length, &done, values, err);
    if (status != FLIM_OK || done) {
        return status;
    }
    bool direct = !cells->shuffle && !number.swapped; /* no pass after inflating: inflate into place */
    if (!cells->deflate) {
        if (length != cells->cell_bytes) {
            return read_failed(cells, cell, "its chunk has another size than the cell", err);
        }
        flim_number_native(number, cells->shuffle, scratch->raw, cells->voxels, values);
        return FLIM_OK;
    }
    if (!flim_inflate(scratch->inflater, scratch->raw, length, direct ? values : scratch->unpacked, cells->cell_bytes)) {
        return read_failed(cells, cell, "its compressed data does not unpack (checksum or length)", err);
    }
    if (!direct) {
        flim_number_native(number, cells->shuffle, scratch->unpacked, cells->voxels, values);
    }
    return FLIM_OK;
}

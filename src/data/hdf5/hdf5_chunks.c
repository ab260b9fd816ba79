#include "data/hdf5/hdf5_chunks.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "core/try.h"
#include "data/inflate.h"

enum { RANK = 8, MOST_FILTERS = 32, MOST_NOTED = 1 << 27 };

typedef struct filter {
    H5Z_filter_t id;
    unsigned value[8];
    size_t values;
} filter;

struct flim_h5_chunks {
    const flim_h5 *h5;
    const char *name;
    hid_t dataset;
    int rank, filters;
    hsize_t extent[RANK], chunk[RANK], across[RANK]; /* across: chunks along an axis */
    size_t bytes; /* of a chunk */
    int64_t cell; /* that is read now, for messages; -1 = none */
    bool whole; /* contents are wanted, not only how long they are */
    bool plain_edges; /* chunks that the extent cuts are stored without filters */
    filter filter[MOST_FILTERS];
    uint8_t *seen; /* a bit per chunk; NULL where there are too many */
    uint8_t *buffer[3];
    size_t room[3];
    flim_inflater *inflater;
};

/* Bytes of an element in the file, which HDF5 does not tell for what lies in a global heap. */
static size_t stored_size(hid_t file, hid_t type)
{
    const H5T_class_t class = H5Tget_class(type);
    size_t addresses = 8, lengths = 8;
    if (class == H5T_VLEN || H5Tis_variable_str(type) > 0) {
        const hid_t fcpl = H5Fget_create_plist(file);
        if (fcpl >= 0) {
            H5Pget_sizes(fcpl, &addresses, &lengths);
            H5Pclose(fcpl);
        }
        return 8 + addresses;
    }
    return H5Tget_size(type);
}

static flim_status read_layout(flim_h5_chunks *c, hid_t dcpl, flim_error *err)
{
    const hid_t type = H5Dget_type(c->dataset), file = H5Iget_file_id(c->dataset);
    unsigned options = 0;
    uint64_t elements = 1;
    bool good = type >= 0 && flim_h5_shape(c->dataset, &c->rank, c->extent) && c->rank >= 1 &&
                H5Pget_chunk(dcpl, RANK, c->chunk) == c->rank && c->filters <= MOST_FILTERS;
    const size_t size = good ? stored_size(file, type) : 0;
    for (int i = 0; i < c->rank && good; i++) {
        good = c->chunk[i] > 0 && c->chunk[i] <= UINT32_MAX && elements <= UINT32_MAX / c->chunk[i]; /* HDF5's own bound */
        elements *= c->chunk[i];
        c->across[i] = c->chunk[i] ? (c->extent[i] + c->chunk[i] - 1) / c->chunk[i] : 0;
    }
    good = good && size > 0 && elements <= UINT32_MAX / size;
    c->bytes = good ? (size_t)elements * size : 0;
    c->plain_edges = H5Pget_chunk_opts(dcpl, &options) >= 0 && options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS;
    for (int i = 0; i < c->filters && good; i++) {
        unsigned flags = 0;
        c->filter[i].values = sizeof c->filter[i].value / sizeof c->filter[i].value[0];
        c->filter[i].id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &c->filter[i].values, c->filter[i].value, 0, NULL, NULL);
    }
    flim_h5_drop(type);
    flim_h5_drop(file);
    return good ? flim_h5_check_bytes(c->h5, c->name, (int64_t)elements, size, err)
                : flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: the shape of its chunks cannot be read", c->h5->path, c->name);
}

flim_status flim_h5_chunks_create(const flim_h5 *h5, const char *name, hid_t dataset, flim_h5_chunks **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_h5_chunks *c = NULL;
    const hid_t dcpl = H5Dget_create_plist(dataset);
    uint64_t chunks = 1;
    *out = NULL;
    if (dcpl < 0 || H5Pget_layout(dcpl) != H5D_CHUNKED || H5Pget_nfilters(dcpl) < 1) {
        goto done;
    }
    if (!(c = flim_alloc(1, sizeof *c, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    *c = (flim_h5_chunks){.h5 = h5, .name = name, .dataset = dataset, .filters = H5Pget_nfilters(dcpl)};
    FLIM_TRY_DONE(read_layout(c, dcpl, err));
    FLIM_TRY_DONE(flim_inflater_create(&c->inflater, err));
    for (int i = 0; i < c->rank; i++) {
        chunks = c->across[i] && chunks > MOST_NOTED / c->across[i] ? (uint64_t)MOST_NOTED + 1 : chunks * c->across[i];
    }
    if (chunks <= MOST_NOTED && !(c->seen = flim_alloc((size_t)chunks / 8 + 1, 1, err))) {
        status = FLIM_ERROR_MEMORY;
    }
done:
    flim_h5_drop(dcpl);
    if (status == FLIM_OK) {
        *out = c;
    } else {
        flim_h5_chunks_destroy(c);
    }
    return status;
}

void flim_h5_chunks_destroy(flim_h5_chunks *c)
{
    if (c) {
        flim_inflater_destroy(c->inflater);
        flim_free(c->seen);
        for (int i = 0; i < 3; i++) {
            flim_free(c->buffer[i]);
        }
        flim_free(c);
    }
}

/* ---- unpacking */

static flim_status bad_chunk(const flim_h5_chunks *c, const hsize_t *offset, const char *what, flim_error *err)
{
    char at[200];
    size_t used = 0;
    for (int i = 0; i < c->rank && used < sizeof at; i++) {
        used += (size_t)snprintf(at + used, sizeof at - used, "%s%llu", i ? "," : "", (unsigned long long)offset[i]);
    }
    char cell[48] = "";
    if (c->cell >= 0) {
        snprintf(cell, sizeof cell, "cell %lld cannot be read: ", (long long)c->cell);
    }
    return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: %sthe chunk at (%s) %s; the file is damaged there", c->h5->path, c->name,
                     cell, at, what);
}

static flim_status make_room(flim_h5_chunks *c, int which, size_t bytes, flim_error *err)
{
    if (c->room[which] < bytes) {
        uint8_t *more = flim_realloc(c->buffer[which], bytes, 1, err);
        if (!more) {
            return FLIM_ERROR_MEMORY;
        }
        c->buffer[which] = more;
        c->room[which] = bytes;
    }
    return FLIM_OK;
}

/* HDF5's shuffle undone: all first bytes, then all second bytes, ...; what is left over stands at the end as it is. */
static void unshuffle(const uint8_t *in, size_t length, size_t size, uint8_t *out)
{
    const size_t count = size ? length / size : 0;
    for (size_t i = 0; i < count && size == 2; i++) { /* the usual one, as vectors */
        out[2 * i] = in[i];
        out[2 * i + 1] = in[count + i];
    }
    for (size_t i = 0; i < count && size != 2; i++) {
        for (size_t k = 0; k < size; k++) {
            out[i * size + k] = in[k * count + i];
        }
    }
    memcpy(out + count * size, in + count * size, length - count * size);
}

/* A filter before number i (so undone after it) that unpacks what number i gives. */
static bool content_matters(const flim_h5_chunks *c, int i, unsigned mask)
{
    for (int j = 0; j < i; j++) {
        if (!(mask >> j & 1) && (c->filter[j].id == H5Z_FILTER_DEFLATE || c->filter[j].id == H5Z_FILTER_SZIP)) {
            return true;
        }
    }
    return false;
}

/* What is known of a chunk on its way back through the filters. */
typedef struct unpacking {
    int buffer; /* its bytes are in */
    size_t length;
    bool known; /* false: only its length is, or nothing */
} unpacking;

/* Undoes filter i; *ends: nothing can be said about what comes out. */
static flim_status undo(flim_h5_chunks *c, int i, unsigned mask, const hsize_t *offset, unpacking *u, bool *ends,
                        flim_error *err)
{
    const filter *f = &c->filter[i];
    const int next = u->buffer == 1 ? 2 : 1;
    char text[200];
    size_t room = flim_h5_chunk_room(c->bytes), got = 0;
    if (f->id == H5Z_FILTER_FLETCHER32) {
        if (u->length < 4) {
            return bad_chunk(c, offset, "is too short for its checksum", err);
        }
        u->length -= 4;
    } else if (f->id == H5Z_FILTER_SHUFFLE) {
        if (u->known && (c->whole || content_matters(c, i, mask)) && f->values >= 1 && f->value[0] > 1) {
            FLIM_TRY(make_room(c, next, u->length, err));
            unshuffle(c->buffer[u->buffer], u->length, f->value[0], c->buffer[next]);
            u->buffer = next;
        }
    } else if (f->id == H5Z_FILTER_DEFLATE && u->known) {
        room = u->length < room / 1040 ? u->length * 1040 + 64 : room; /* deflate's best is 1032 : 1 */
        FLIM_TRY(make_room(c, next, room, err));
        if (!flim_inflate_some(c->inflater, c->buffer[u->buffer], u->length, c->buffer[next], room, &got)) {
            if (got > room) {
                snprintf(text, sizeof text, "unpacks to far more than its %zu bytes (%zu are stored)", c->bytes, u->length);
                return bad_chunk(c, offset, text, err);
            }
            *ends = true; /* damaged, and not large: HDF5 will say so */
            return FLIM_OK;
        }
        u->buffer = next;
        u->length = got;
    } else if (f->id == H5Z_FILTER_SZIP && u->known) { /* its output's length comes first */
        const uint8_t *at = c->buffer[u->buffer];
        if (u->length < 4) {
            return bad_chunk(c, offset, "is too short for szip", err);
        }
        u->length = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
        u->known = false;
    } else if ((f->id == H5Z_FILTER_NBIT && f->values >= 5 && f->value[1] == 0) ||
               (f->id == H5Z_FILTER_SCALEOFFSET && f->values >= 5)) { /* elements x their size */
        u->length = (size_t)f->value[2] * f->value[4];
        u->known = false;
    } else if (f->id != H5Z_FILTER_NBIT || f->values < 2 || f->value[1] == 0) {
        *ends = true; /* a plugin's, or behind one whose output is not known */
    }
    return FLIM_OK;
}

static bool is_cut(const flim_h5_chunks *c, const hsize_t *offset)
{
    for (int i = 0; i < c->rank; i++) {
        if (offset[i] + c->chunk[i] > c->extent[i]) {
            return true;
        }
    }
    return false;
}

/* *contents: where its c->bytes bytes are, in one of c's buffers; NULL if that is not known, or it was never written. */
static flim_status unpack_chunk(flim_h5_chunks *c, const hsize_t *offset, const uint8_t **contents, flim_error *err)
{
    hsize_t stored = 0;
    uint32_t mask = 0;
    char text[200];
    bool ends = false;
    *contents = NULL;
    if (flim_stopped(c->h5->stop)) {
        return flim_fail(err, FLIM_INTERRUPTED, "interrupted while %s was opened", c->h5->path);
    }
    if (H5Dget_chunk_storage_size(c->dataset, offset, &stored) < 0 || stored == 0) {
        return FLIM_OK; /* never written: fill values */
    }
    if (stored > flim_h5_chunk_room(c->bytes)) {
        snprintf(text, sizeof text, "takes %llu bytes in the file, it has %zu", (unsigned long long)stored, c->bytes);
        return bad_chunk(c, offset, text, err);
    }
    FLIM_TRY(make_room(c, 0, (size_t)stored, err));
    if (H5Dread_chunk(c->dataset, H5P_DEFAULT, offset, &mask, c->buffer[0]) < 0) {
        return FLIM_OK; /* H5Dread will say why */
    }
    unpacking u = {0, (size_t)stored, true};
    if (c->plain_edges && is_cut(c, offset)) {
        mask = UINT32_MAX;
    }
    for (int i = c->filters - 1; i >= 0 && !ends; i--) {
        if (!(mask >> i & 1)) {
            FLIM_TRY(undo(c, i, mask, offset, &u, &ends, err));
        }
    }
    if (!ends && u.length != c->bytes) {
        snprintf(text, sizeof text, "unpacks to %zu bytes, expected %zu", u.length, c->bytes);
        return bad_chunk(c, offset, text, err);
    }
    *contents = !ends && u.known ? c->buffer[u.buffer] : NULL;
    return FLIM_OK;
}

static flim_status check_chunk(flim_h5_chunks *c, const hsize_t *offset, flim_error *err)
{
    const uint8_t *contents;
    return unpack_chunk(c, offset, &contents, err);
}

/* ---- boxes */

/* The chunks that a box touches, one after another. */
typedef struct chunk_walk {
    hsize_t at[RANK], first[RANK], end[RANK]; /* in chunks */
} chunk_walk;

/* False if the box is empty. */
static bool walk_begin(const flim_h5_chunks *c, const hsize_t *start, const hsize_t *count, chunk_walk *w)
{
    *w = (chunk_walk){0};
    for (int i = 0; i < c->rank; i++) {
        if (count[i] == 0) {
            return false;
        }
        w->at[i] = w->first[i] = start[i] / c->chunk[i];
        w->end[i] = (start[i] + count[i] - 1) / c->chunk[i] + 1;
    }
    return true;
}

/* False after the last. */
static bool walk_next(const flim_h5_chunks *c, chunk_walk *w)
{
    int axis = c->rank - 1;
    while (axis >= 0 && ++w->at[axis] == w->end[axis]) {
        w->at[axis] = w->first[axis];
        axis--;
    }
    return axis >= 0;
}

flim_status flim_h5_chunks_check(flim_h5_chunks *c, int64_t cell, const hsize_t *start, const hsize_t *count, flim_error *err)
{
    chunk_walk w;
    c->cell = cell;
    c->whole = false;
    for (bool more = walk_begin(c, start, count, &w); more; more = walk_next(c, &w)) {
        hsize_t offset[RANK] = {0};
        uint64_t number = 0;
        for (int i = 0; i < c->rank; i++) {
            number = number * c->across[i] + w.at[i];
            offset[i] = w.at[i] * c->chunk[i];
        }
        if (!c->seen || !(c->seen[number / 8] >> number % 8 & 1)) {
            FLIM_TRY(check_chunk(c, offset, err));
            if (c->seen) {
                c->seen[number / 8] = (uint8_t)(c->seen[number / 8] | 1u << number % 8);
            }
        }
    }
    return FLIM_OK;
}

/* What the chunk at `offset` and the box have in common, from the chunk's contents into the box's values: in runs along the last
 * axis. */
static void copy_overlap(const flim_h5_chunks *c, const hsize_t *offset, const uint8_t *contents, const hsize_t *start,
                         const hsize_t *count, size_t size, uint8_t *values)
{
    hsize_t begin[RANK] = {0}, end[RANK] = {0}, at[RANK];
    const int last = c->rank - 1;
    for (int i = 0; i < c->rank; i++) {
        begin[i] = offset[i] > start[i] ? offset[i] : start[i];
        end[i] = offset[i] + c->chunk[i] < start[i] + count[i] ? offset[i] + c->chunk[i] : start[i] + count[i];
    }
    memcpy(at, begin, sizeof at);
    for (;;) {
        size_t from = 0, to = 0;
        for (int i = 0; i < c->rank; i++) {
            from = from * (size_t)c->chunk[i] + (size_t)(at[i] - offset[i]);
            to = to * (size_t)count[i] + (size_t)(at[i] - start[i]);
        }
        memcpy(values + to * size, contents + from * size, (size_t)(end[last] - begin[last]) * size);
        int axis = last - 1;
        while (axis >= 0 && ++at[axis] == end[axis]) {
            at[axis] = begin[axis];
            axis--;
        }
        if (axis < 0) {
            return;
        }
    }
}

flim_status flim_h5_chunks_copy(flim_h5_chunks *c, const hsize_t *start, const hsize_t *count, size_t size, void *values,
                                bool *done, flim_error *err)
{
    chunk_walk w;
    size_t elements = 1;
    *done = false;
    for (int i = 0; i < c->filters; i++) {
        if (c->filter[i].id != H5Z_FILTER_DEFLATE && c->filter[i].id != H5Z_FILTER_SHUFFLE) {
            return FLIM_OK;
        }
    }
    for (int i = 0; i < c->rank; i++) {
        elements *= (size_t)c->chunk[i];
    }
    if (elements * size != c->bytes) {
        return FLIM_OK;
    }
    c->cell = -1;
    c->whole = true;
    for (bool more = walk_begin(c, start, count, &w); more; more = walk_next(c, &w)) {
        hsize_t offset[RANK] = {0};
        const uint8_t *contents;
        for (int i = 0; i < c->rank; i++) {
            offset[i] = w.at[i] * c->chunk[i];
        }
        FLIM_TRY(unpack_chunk(c, offset, &contents, err));
        if (!contents) {
            return FLIM_OK;
        }
        copy_overlap(c, offset, contents, start, count, size, values);
    }
    *done = true;
    return FLIM_OK;
}

flim_status flim_h5_check_chunks(const flim_h5 *h5, const char *name, hid_t dataset, flim_error *err)
{
    const hsize_t zero[RANK] = {0};
    flim_h5_chunks *c = NULL;
    FLIM_TRY(flim_h5_chunks_create(h5, name, dataset, &c, err));
    const flim_status status = c ? flim_h5_chunks_check(c, -1, zero, c->extent, err) : FLIM_OK;
    flim_h5_chunks_destroy(c);
    return status;
}

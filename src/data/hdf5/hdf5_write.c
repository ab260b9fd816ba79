#include "flim/dataset_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <hdf5.h>

#include "core/alloc.h"
#include "core/output.h"
#include "core/try.h"
#include "data/chunk_packer.h"
#include "data/hdf5/hdf5_internal.h"
#include "data/hdf5/hdf5_write_driver.h"

struct flim_dataset_writer {
    flim_file_writer out;
    int64_t n;
    int t, h, w;
    hid_t file, counts, driver;
    flim_chunk_packer *packer; /* a cell is a chunk */
    size_t cell_bytes; /* of its counts */
    int error; /* errno of the first failed write, kept by the driver */
    uint8_t *mask; /* (n,H,W), written by finish; NULL without masks */
    uint8_t *written; /* (n) 1 = the cell has come */
};

/* HDF5 keeps its own error stack and prints it unless told not to; ours is the only text that the user should see. */
#define QUIET(call)                                                                                                          \
    do {                                                                                                                     \
        H5E_BEGIN_TRY                                                                                                        \
        {                                                                                                                    \
            call;                                                                                                            \
        }                                                                                                                    \
        H5E_END_TRY;                                                                                                         \
    } while (0)

static herr_t innermost(unsigned depth, const H5E_error2_t *entry, void *context)
{
    (void)depth;
    const char **text = context;
    *text = entry->desc;
    return 1; /* the first entry of an upward walk is where it happened */
}

/* The disk's reason where it gave one, else HDF5's. */
static flim_status failed(const flim_dataset_writer *writer, const char *object, flim_error *err)
{
    if (writer->error) {
        return flim_fail(err, writer->error == ENOMEM ? FLIM_ERROR_MEMORY : FLIM_ERROR_WRITE, "cannot write %s: %s",
                         writer->out.path, strerror(writer->error));
    }
    const char *text = NULL;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, &text);
    return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s: %s", writer->out.path, object,
                     text ? text : "HDF5 gives no reason");
}

/* A property list for a dataset whose bytes do not depend on the time of day. */
static hid_t dataset_properties(int rank, const hsize_t *chunk)
{
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    if (list < 0) {
        return list;
    }
    if (H5Pset_obj_track_times(list, 0) < 0 ||
        (chunk && (H5Pset_chunk(list, rank, chunk) < 0 || H5Pset_shuffle(list) < 0 || H5Pset_deflate(list, 4) < 0))) {
        H5Pclose(list);
        return -1;
    }
    return list;
}

static hid_t make_dataset(hid_t file, const char *name, hid_t type, int rank, const hsize_t *dims, const hsize_t *chunk)
{
    hid_t space = H5Screate_simple(rank, dims, NULL), list = dataset_properties(rank, chunk), set = -1;
    if (space >= 0 && list >= 0) {
        set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    }
    flim_h5_drop(list);
    flim_h5_drop(space);
    return set;
}

static bool write_whole(hid_t file, const char *name, hid_t file_type, hid_t memory_type, int rank, const hsize_t *dims,
                        const hsize_t *chunk, const void *data)
{
    hid_t set = make_dataset(file, name, file_type, rank, dims, chunk);
    if (set < 0) {
        return false;
    }
    herr_t wrote = H5Dwrite(set, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    return (H5Dclose(set) >= 0) & (wrote >= 0);
}

/* Fixed-length UTF-8 strings, filled with zeros: (count) of them as a dataset, or as an attribute of the root. */
static flim_status write_strings(flim_dataset_writer *writer, const char *name, const char *const *text, int64_t count,
                                 bool attribute, flim_error *err)
{
    size_t longest = 1;
    for (int64_t i = 0; i < count; i++) {
        size_t length = strlen(text[i]);
        longest = length > longest ? length : longest;
    }
    char *flat = flim_alloc((size_t)count, longest, err);
    if (!flat) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(flat + (size_t)i * longest, text[i], strlen(text[i]));
    }
    bool good = false;
    hsize_t dims[1] = {(hsize_t)count};
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && H5Tset_size(type, longest) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
        H5Tset_cset(type, H5T_CSET_UTF8) >= 0) {
        if (attribute) {
            hid_t space = H5Screate_simple(1, dims, NULL);
            hid_t made = H5Acreate2(writer->file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
            good = made >= 0 && H5Awrite(made, type, flat) >= 0;
            good = made >= 0 && H5Aclose(made) >= 0 && good;
            H5Sclose(space);
        } else {
            good = write_whole(writer->file, name, type, type, 1, dims, NULL, flat);
        }
    }
    flim_status status = good ? FLIM_OK : failed(writer, name, err);
    flim_h5_drop(type);
    flim_free(flat);
    return status;
}

/* An attribute of the root of one value: a double, or a string where text is given. */
static flim_status write_attribute(flim_dataset_writer *writer, const char *name, double value, const char *text,
                                   flim_error *err)
{
    hid_t space = H5Screate(H5S_SCALAR), type = text ? H5Tcopy(H5T_C_S1) : H5Tcopy(H5T_IEEE_F64LE), made = -1;
    bool good = space >= 0 && type >= 0;
    if (good && text) {
        size_t length = strlen(text);
        good = H5Tset_size(type, length ? length : 1) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
               H5Tset_cset(type, H5T_CSET_UTF8) >= 0;
    }
    if (good) {
        made = H5Acreate2(writer->file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
        good = made >= 0 && H5Awrite(made, text ? type : H5T_NATIVE_DOUBLE, text ? (const void *)text : &value) >= 0;
    }
    flim_status status = good ? FLIM_OK : failed(writer, name, err);
    flim_h5_drop(made);
    flim_h5_drop(type);
    flim_h5_drop(space);
    return status;
}

static flim_status write_tables(flim_dataset_writer *writer, const flim_dataset_layout *layout, flim_error *err)
{
    hsize_t dims[1] = {(hsize_t)layout->n};
    if (layout->label && !write_whole(writer->file, "label", H5T_STD_I32LE, H5T_NATIVE_INT32, 1, dims, NULL, layout->label)) {
        return failed(writer, "label", err);
    }
    if (layout->group) {
        FLIM_TRY(write_strings(writer, "group", layout->group, layout->n, false, err));
    } else if (layout->group_number &&
               !write_whole(writer->file, "group", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, dims, NULL, layout->group_number)) {
        return failed(writer, "group", err);
    }
    if (layout->name) {
        FLIM_TRY(write_strings(writer, "name", layout->name, layout->n, false, err));
    }
    if (layout->classes > 0) {
        FLIM_TRY(write_strings(writer, "class_names", layout->class_name, layout->classes, true, err));
    }
    if (layout->time_range_ns > 0) {
        FLIM_TRY(write_attribute(writer, "time_range_ns", layout->time_range_ns, NULL, err));
    }
    return layout->note ? write_attribute(writer, "note", 0, layout->note, err) : FLIM_OK;
}

static bool create_file(flim_dataset_writer *writer)
{
    hid_t creation = H5Pcreate(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
    if (creation >= 0 && access >= 0 && H5Pset_obj_track_times(creation, 0) >= 0) {
        writer->driver = flim_h5_write_driver_use(access, fileno(writer->out.stream), &writer->error);
        if (writer->driver >= 0) {
            writer->file = H5Fcreate(writer->out.path, H5F_ACC_TRUNC, creation, access);
        }
    }
    flim_h5_drop(access);
    flim_h5_drop(creation);
    return writer->file >= 0;
}

static flim_status start(flim_dataset_writer *writer, const flim_dataset_layout *layout, flim_error *err)
{
    if (!create_file(writer)) {
        return failed(writer, "the file", err);
    }
    static const struct {
        int bytes;
        const hid_t *file; /* HDF5's type numbers exist only after its initialisation */
    } types[] = {{1, &H5T_STD_U8LE_g}, {2, &H5T_STD_U16LE_g}, {4, &H5T_STD_U32LE_g}, {4, &H5T_IEEE_F32LE_g}};
    int type = layout->count_float ? 3 : layout->count_bytes == 1 ? 0 : layout->count_bytes == 2 ? 1 : 2;
    hsize_t dims[4] = {(hsize_t)layout->n, (hsize_t)layout->t, (hsize_t)layout->h, (hsize_t)layout->w};
    hsize_t chunk[4] = {1, dims[1], dims[2], dims[3]};
    writer->counts = make_dataset(writer->file, "counts", *types[type].file, 4, dims, chunk);
    if (writer->counts < 0) {
        return failed(writer, "counts", err);
    }
    flim_status status = write_tables(writer, layout, err);
    return status == FLIM_OK && writer->error ? failed(writer, "the tables", err) : status;
}

flim_status flim_dataset_writer_create(const char *path, const flim_dataset_layout *layout, flim_dataset_writer **out,
                                       flim_error *err)
{
    *out = NULL;
    if (layout->n < 1 || layout->t < 1 || layout->h < 1 || layout->w < 1 ||
        (layout->count_bytes != 1 && layout->count_bytes != 2 && layout->count_bytes != 4) ||
        (layout->count_float && layout->count_bytes != 4)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "cannot write %s: bad layout: %" PRId64 " x %d x %d x %d of %d bytes", path,
                         layout->n, layout->t, layout->h, layout->w, layout->count_bytes);
    }
    flim_dataset_writer *writer = flim_alloc(1, sizeof *writer, err);
    if (!writer) {
        return FLIM_ERROR_MEMORY;
    }
    writer->file = writer->counts = writer->driver = -1;
    writer->n = layout->n;
    writer->t = layout->t;
    writer->h = layout->h;
    writer->w = layout->w;
    writer->cell_bytes = (size_t)layout->t * (size_t)layout->h * (size_t)layout->w * (size_t)layout->count_bytes;
    flim_status status = FLIM_OK;
    const flim_output output = {.path = path, .kind = "a data file", .seeks = true};
    writer->written = flim_alloc((size_t)layout->n, 1, err);
    if (layout->mask && writer->written) {
        writer->mask = flim_alloc((size_t)layout->n, (size_t)layout->h * (size_t)layout->w, err);
    }
    if (!writer->written || (layout->mask && !writer->mask)) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    FLIM_TRY_DONE(flim_chunk_packer_create((size_t)layout->t * (size_t)layout->h * (size_t)layout->w, layout->count_bytes,
                                           &writer->packer, err));
    FLIM_TRY_DONE(flim_output_begin(&output, &writer->out, err));
    QUIET(status = start(writer, layout, err));
    if (status == FLIM_OK) {
        *out = writer;
        writer = NULL;
    }
done:
    flim_dataset_writer_destroy(writer);
    return status;
}

/* Writes the oldest cell that is packed, if there is one; waits for it if `wait`. */
static flim_status write_packed(flim_dataset_writer *writer, bool wait, bool *wrote, flim_error *err)
{
    int64_t cell;
    const void *packed;
    size_t bytes;
    *wrote = flim_chunk_packer_take(writer->packer, wait, &cell, &packed, &bytes);
    if (!*wrote) {
        return FLIM_OK;
    }
    const hsize_t place[4] = {(hsize_t)cell, 0, 0, 0};
    const bool good =
        bytes > 0 && H5Dwrite_chunk(writer->counts, H5P_DEFAULT, 0, place, bytes, packed) >= 0 && !writer->error;
    return good ? FLIM_OK : failed(writer, "counts", err);
}

static flim_status find_room(flim_dataset_writer *writer, void **room, flim_error *err)
{
    bool wrote;
    FLIM_TRY(flim_chunk_packer_full(writer->packer) ? write_packed(writer, true, &wrote, err) : FLIM_OK);
    return flim_chunk_packer_room(writer->packer, room, err);
}

flim_status flim_dataset_writer_room(flim_dataset_writer *writer, void **counts, flim_error *err)
{
    flim_status status;
    QUIET(status = find_room(writer, counts, err));
    return status;
}

/* The cell goes to the threads that pack; what they have done until now goes out. */
static flim_status write_cell(flim_dataset_writer *writer, int64_t cell, const void *counts, flim_error *err)
{
    bool wrote = true;
    void *room;
    FLIM_TRY(find_room(writer, &room, err));
    if (counts != room) {
        memcpy(room, counts, writer->cell_bytes);
    }
    flim_chunk_packer_put(writer->packer, cell);
    while (wrote) {
        FLIM_TRY(write_packed(writer, false, &wrote, err));
    }
    return FLIM_OK;
}

/* All cells that have come.  Before anything else is written, so that a file's bytes do not depend on how fast its threads pack. */
static flim_status write_rest(flim_dataset_writer *writer, flim_error *err)
{
    bool wrote = true;
    while (wrote) {
        FLIM_TRY(write_packed(writer, true, &wrote, err));
    }
    return FLIM_OK;
}

flim_status flim_dataset_writer_cell(flim_dataset_writer *writer, int64_t cell, const void *counts, const uint8_t *mask,
                                     flim_error *err)
{
    if (cell < 0 || cell >= writer->n || writer->written[cell] || (mask != NULL) != (writer->mask != NULL)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "cannot write %s: cell %" PRId64 " of %" PRId64 " %s", writer->out.path, cell,
                         writer->n,
                         cell < 0 || cell >= writer->n ? "does not exist"
                         : writer->written[cell]       ? "was written before"
                                                       : "and the layout disagree about a mask");
    }
    if (mask) {
        size_t pixels = (size_t)writer->h * (size_t)writer->w;
        uint8_t *to = writer->mask + (size_t)cell * pixels;
        for (size_t p = 0; p < pixels; p++) {
            to[p] = mask[p] != 0;
        }
    }
    flim_status status;
    QUIET(status = write_cell(writer, cell, counts, err));
    writer->written[cell] = status == FLIM_OK;
    return status;
}

/* The group that a name with a slash stands in. */
static bool make_group(hid_t file, const char *name)
{
    const char *slash = strchr(name, '/');
    char group[64];
    if (!slash) {
        return true;
    }
    snprintf(group, sizeof group, "%.*s", (int)(slash - name), name);
    if (H5Lexists(file, group, H5P_DEFAULT) > 0) {
        return true;
    }
    hid_t list = H5Pcreate(H5P_GROUP_CREATE), made = -1;
    if (list >= 0 && H5Pset_obj_track_times(list, 0) >= 0) {
        made = H5Gcreate2(file, group, H5P_DEFAULT, list, H5P_DEFAULT);
    }
    flim_h5_drop(list);
    flim_h5_drop(made);
    return made >= 0;
}

static flim_status add_numbers(flim_dataset_writer *writer, const char *name, const int64_t *value, int64_t n,
                               flim_error *err)
{
    const hsize_t dims[1] = {(hsize_t)n};
    return make_group(writer->file, name) &&
                   write_whole(writer->file, name, H5T_STD_I64LE, H5T_NATIVE_INT64, 1, dims, NULL, value)
               ? FLIM_OK
               : failed(writer, name, err);
}

flim_status flim_dataset_writer_add_numbers(flim_dataset_writer *writer, const char *name, const int64_t *value, int64_t n,
                                            flim_error *err)
{
    flim_status status;
    QUIET(status = write_rest(writer, err));
    QUIET(status = status == FLIM_OK ? add_numbers(writer, name, value, n, err) : status);
    return status;
}

static flim_status add_texts(flim_dataset_writer *writer, const char *name, const char *const *text, int64_t n,
                             flim_error *err)
{
    return make_group(writer->file, name) ? write_strings(writer, name, text, n, false, err) : failed(writer, name, err);
}

flim_status flim_dataset_writer_add_texts(flim_dataset_writer *writer, const char *name, const char *const *text, int64_t n,
                                          flim_error *err)
{
    flim_status status;
    QUIET(status = write_rest(writer, err));
    QUIET(status = status == FLIM_OK ? add_texts(writer, name, text, n, err) : status);
    return status;
}

/* Masks go out last, in chunks of about 256 KiB: one cell's mask alone would be a chunk of a few dozen bytes. */
static flim_status write_masks(flim_dataset_writer *writer, flim_error *err)
{
    hsize_t dims[3] = {(hsize_t)writer->n, (hsize_t)writer->h, (hsize_t)writer->w};
    hsize_t cells = 262144 / (dims[1] * dims[2]);
    hsize_t chunk[3] = {cells < 1 ? 1 : cells > dims[0] ? dims[0] : cells, dims[1], dims[2]};
    return write_whole(writer->file, "mask", H5T_STD_U8LE, H5T_NATIVE_UINT8, 3, dims, chunk, writer->mask)
               ? FLIM_OK
               : failed(writer, "mask", err);
}

static flim_status close_file(flim_dataset_writer *writer, flim_error *err)
{
    if (writer->file < 0) {
        return FLIM_OK;
    }
    flim_status status = write_rest(writer, err);
    if (status == FLIM_OK && writer->mask) {
        status = write_masks(writer, err);
    }
    hid_t open[] = {writer->counts, writer->file};
    writer->counts = writer->file = -1;
    bool good = H5Dclose(open[0]) >= 0;
    good = H5Fclose(open[1]) >= 0 && good;
    if (status == FLIM_OK && (!good || writer->error)) { /* a full disk may show only here */
        status = failed(writer, "the file", err);
    }
    return status;
}

flim_status flim_dataset_writer_close(flim_dataset_writer *writer, const char **path, flim_error *err)
{
    *path = writer->out.temporary;
    for (int64_t i = 0; i < writer->n; i++) {
        if (!writer->written[i]) {
            return flim_fail(err, FLIM_ERROR_USAGE, "cannot write %s: cell %" PRId64 " of %" PRId64 " has not come",
                             writer->out.path, i, writer->n);
        }
    }
    flim_status status;
    QUIET(status = close_file(writer, err));
    return status;
}

flim_status flim_dataset_writer_finish(flim_dataset_writer *writer, flim_error *err)
{
    const char *unused;
    const flim_status status = flim_dataset_writer_close(writer, &unused, err);
    if (status == FLIM_OK) {
        return flim_file_commit(&writer->out, err);
    }
    flim_file_abandon(&writer->out);
    return status;
}

void flim_dataset_writer_destroy(flim_dataset_writer *writer)
{
    if (!writer) {
        return;
    }
    if (writer->counts >= 0) {
        QUIET(H5Dclose(writer->counts));
    }
    if (writer->file >= 0) {
        QUIET(H5Fclose(writer->file));
    }
    if (writer->driver >= 0) {
        QUIET(H5FDunregister(writer->driver));
    }
    flim_file_abandon(&writer->out);
    flim_chunk_packer_destroy(writer->packer);
    flim_free(writer->mask);
    flim_free(writer->written);
    flim_free(writer);
}

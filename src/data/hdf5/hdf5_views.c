/* Views (virtual datasets): every value has to come from somewhere.
 *
 * HDF5 reads fill values, without an error, where a view has no part, where a part's file or dataset is missing, shorter than
 * the part, or cannot be opened because the process has no descriptor left.  All of that is found here, at open: the parts
 * cover the view, each source is there and reaches as far as its part, and all of them stay open from then on.  HDF5 alone
 * knows which chunks of the sources a read through the view touches, so those are unpacked once here, too (hdf5_chunks.h),
 * of a large view not in a first look, which has a limit of time.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_boxes.h"
#include "data/hdf5/hdf5_chunks.h"
#include "data/hdf5/hdf5_internal.h"
#include "data/hdf5/hdf5_paths.h"

enum { MOST_DEPTH = 8, MOST_BLOCKS = 1 << 22, LARGEST_VALUE = 512 /* bytes */, MOST_FIRST = 1 << 24 /* values */ };

/* A view while it is looked at. */
typedef struct view {
    flim_h5 *h5;
    const char *name; /* in messages */
    const char *from; /* the file that holds the view: its sources are looked for beside it */
    hid_t file, dataset, dcpl;
    int rank, depth;
    hsize_t extent[FLIM_BOX_RANK];
    flim_boxes parts;
    /* the source that was looked at last; many parts may come from one */
    char source_file[FLIM_H5_PATH], source_name[FLIM_H5_PATH], label[600];
    hid_t source; /* -1 = none */
    flim_h5_chunks *chunks; /* of the source; NULL = there is nothing to look at */
    double unpacked; /* values whose chunks were looked at */
} view;

static flim_status bad_view(const view *v, flim_error *err, const char *format, ...) FLIM_PRINTF(3, 4);
static flim_status bad_view(const view *v, flim_error *err, const char *format, ...)
{
    char text[1400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s is a view of other files, %s; HDF5 would read fill values for it",
                     v->h5->path, v->name, text);
}

/* ---- mappings */

/* A part of the view and the source behind it, in the order of the sources. */
typedef struct mapping {
    size_t number;
    char *file, *source;
} mapping;

static int by_source(const void *a, const void *b)
{
    const mapping *x = a, *y = b;
    const int file = strcmp(x->file, y->file), source = strcmp(x->source, y->source);
    return file ? file : source ? source : (x->number > y->number) - (x->number < y->number);
}

static void free_mappings(mapping *list, size_t n)
{
    for (size_t i = 0; list && i < n; i++) {
        flim_free(list[i].file);
        flim_free(list[i].source);
    }
    flim_free(list);
}

/* *list (n) is the caller's to free_mappings. */
static flim_status list_mappings(const flim_h5 *h5, const char *name, hid_t dcpl, mapping **out, size_t *n, flim_error *err)
{
    char file[FLIM_H5_PATH], source[FLIM_H5_PATH];
    flim_status status = FLIM_OK;
    *n = 0;
    if (H5Pget_virtual_count(dcpl, n) < 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: the parts of its view cannot be read", h5->path, name);
    }
    mapping *list = flim_alloc(*n, sizeof *list, err); /* (n) */
    if (!list) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t i = 0; i < *n && status == FLIM_OK; i++) {
        const ssize_t a = H5Pget_virtual_filename(dcpl, i, file, sizeof file),
                      b = H5Pget_virtual_dsetname(dcpl, i, source, sizeof source);
        if (a < 0 || b < 0 || a >= (ssize_t)sizeof file || b >= (ssize_t)sizeof source) {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: source %zu of its view cannot be read", h5->path, name, i);
        } else {
            list[i] = (mapping){.number = i, .file = flim_strdup(file, err), .source = flim_strdup(source, err)};
            status = list[i].file && list[i].source ? FLIM_OK : FLIM_ERROR_MEMORY;
        }
    }
    if (status != FLIM_OK) {
        free_mappings(list, *n);
        return status;
    }
    qsort(list, *n, sizeof *list, by_source);
    *out = list;
    return FLIM_OK;
}

/* ---- sources */

/* The source reaches as far as the part that is taken from it. */
static flim_status check_reach(const view *v, hid_t source, hid_t part, const char *label, flim_error *err)
{
    int rank = 0;
    hsize_t sizes[8] = {0}, start[FLIM_BOX_RANK], end[FLIM_BOX_RANK];
    const int wanted = H5Sget_simple_extent_ndims(part);
    if (wanted < 1 || wanted > 8 || H5Sget_select_bounds(part, start, end) < 0) {
        return FLIM_OK;
    }
    if (!flim_h5_shape(source, &rank, sizes)) {
        rank = -1;
    }
    for (int i = 0; i < wanted && rank == wanted; i++) {
        if (end[i] >= sizes[i] && end[i] < UINT64_MAX - 1) { /* unlimited: HDF5 sizes the view by what there is */
            return bad_view(v, err, "and its source %s is too short: axis %d ends at %llu, the view takes %llu", label, i,
                            (unsigned long long)sizes[i], (unsigned long long)end[i] + 1);
        }
    }
    if (rank != wanted) {
        return bad_view(v, err, "and its source %s has %d axes, the view takes %d", label, rank, wanted);
    }
    return FLIM_OK;
}

static void close_source(view *v)
{
    flim_h5_chunks_destroy(v->chunks);
    flim_h5_drop(v->source);
    v->chunks = NULL;
    v->source = -1;
}

/* Opens a source: the file, and the dataset in it, which may be stored in any way itself. */
static flim_status open_source(view *v, const char *file_name, const char *source, flim_error *err)
{
    char path[FLIM_H5_PATH], text[1200];
    struct stat about;
    flim_h5 *h5 = v->h5;
    const bool own = strcmp(file_name, ".") == 0;
    hid_t file = v->file;
    flim_status status = FLIM_OK;
    close_source(v);
    snprintf(v->label, sizeof v->label, "%.250s in %.330s", source, own ? "the same file" : file_name);
    if (!own) {
        if (!flim_h5_find_file(v->from, file_name, "HDF5_VDS_PREFIX", true, true, path, &about)) {
            return bad_view(v, err, "and its source %s is not there", file_name);
        }
        snprintf(v->label, sizeof v->label, "%.250s in %.330s", source, path);
        if (!flim_h5_may_read(&h5->watch, path, "is a view of", text, sizeof text)) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s %s", h5->path, v->name, text);
        }
        flim_h5_count_outside(h5, &about);
        file = H5Fopen(path, H5F_ACC_RDONLY, h5->access);
    }
    v->source = file >= 0 ? H5Dopen2(file, source, H5P_DEFAULT) : -1;
    if (v->source < 0) {
        char reason[512];
        flim_h5_reason(reason, sizeof reason);
        if (!flim_h5_explain(h5, v->name, err)) {
            bad_view(v, err, "and its source %s cannot be opened: %s", v->label, reason);
        }
        status = FLIM_ERROR_DATA;
        goto done;
    }
    FLIM_TRY_DONE(flim_h5_check_source_storage(h5, v->name, own ? v->from : path, file, v->source, v->depth + 1, err));
    status = flim_h5_chunks_create(h5, v->label + strspn(v->label, "/"), v->source, &v->chunks, err);
done:
    if (!own && file >= 0) {
        H5Fclose(file); /* its dataset keeps it open */
    }
    if (status == FLIM_OK) {
        snprintf(v->source_file, sizeof v->source_file, "%s", file_name);
        snprintf(v->source_name, sizeof v->source_name, "%s", source);
    } else {
        close_source(v);
    }
    return status;
}

/* The chunks of the source that the part (a dataspace; -1 = all of it) takes values from. */
static flim_status check_chunks(view *v, hid_t part, flim_error *err)
{
    int rank = 0;
    hsize_t size[8] = {0}, start[8] = {0}, end[8];
    if (!v->chunks || !flim_h5_shape(v->source, &rank, size)) {
        return FLIM_OK;
    }
    if (part >= 0 && H5Sget_simple_extent_ndims(part) == rank && H5Sget_select_bounds(part, start, end) >= 0) {
        for (int i = 0; i < rank; i++) {
            end[i] = end[i] < size[i] ? end[i] + 1 : size[i];
            size[i] = start[i] < end[i] ? end[i] - start[i] : 0;
        }
    } else {
        memset(start, 0, sizeof start);
    }
    double values = 1;
    for (int i = 0; i < rank; i++) {
        values *= (double)size[i];
    }
    if (v->h5->first_look && v->unpacked + values > MOST_FIRST) {
        return FLIM_OK; /* the program itself looks */
    }
    v->unpacked += values;
    return flim_h5_chunks_check(v->chunks, -1, start, size, err);
}

/* One source, and the part (a dataspace, or -1) that is taken from it. */
static flim_status check_source(view *v, const char *file_name, const char *source, hid_t part, flim_error *err)
{
    if (v->source < 0 || strcmp(v->source_file, file_name) != 0 || strcmp(v->source_name, source) != 0) {
        FLIM_TRY(open_source(v, file_name, source, err));
    }
    FLIM_TRY(part < 0 ? FLIM_OK : check_reach(v, v->source, part, v->label, err));
    return check_chunks(v, part, err);
}

/* ---- parts */

/* A part that is repeated for ever along one axis. */
static bool is_unlimited(const view *v, hid_t space)
{
    hsize_t start[FLIM_BOX_RANK], stride[FLIM_BOX_RANK], count[FLIM_BOX_RANK], block[FLIM_BOX_RANK];
    bool found = false;
    if (H5Sget_select_type(space) == H5S_SEL_HYPERSLABS && H5Sis_regular_hyperslab(space) > 0 &&
        H5Sget_regular_hyperslab(space, start, stride, count, block) >= 0) {
        for (int i = 0; i < v->rank; i++) {
            found = found || count[i] == H5S_UNLIMITED || block[i] == H5S_UNLIMITED;
        }
    }
    return found;
}

static flim_status add_blocks(view *v, hid_t space, flim_error *err)
{
    flim_status status = FLIM_OK;
    const hssize_t blocks = H5Sget_select_hyper_nblocks(space);
    hsize_t *corner = NULL, box[2 * FLIM_BOX_RANK];
    if (blocks < 0 || blocks > MOST_BLOCKS - v->parts.n) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /%s is a view of more than %d blocks: whether they leave holes is not known", v->h5->path,
                         v->name, MOST_BLOCKS);
    }
    if (!(corner = flim_alloc((size_t)blocks + 1, sizeof box, err))) {
        return FLIM_ERROR_MEMORY;
    }
    if (H5Sget_select_hyper_blocklist(space, 0, (hsize_t)blocks, corner) < 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: the parts of its view cannot be read", v->h5->path, v->name);
    }
    for (hssize_t i = 0; i < blocks && status == FLIM_OK; i++) { /* rank first corners, then rank last ones */
        const hsize_t *at = corner + (size_t)i * 2 * (size_t)v->rank;
        status = flim_boxes_add(&v->parts, at, at + v->rank, err);
    }
    flim_free(corner);
    return status;
}

/* "x_%b.h5" and 7 -> "x_7.h5"; "%%" -> "%".  False if it does not fit. */
static bool fill_pattern(const char *pattern, hsize_t number, char *out, size_t size)
{
    size_t used = 0;
    for (; *pattern && used + 24 < size; pattern++) {
        if (pattern[0] == '%' && pattern[1] == 'b') {
            used += (size_t)snprintf(out + used, size - used, "%llu", (unsigned long long)number);
            pattern++;
        } else {
            out[used++] = *pattern;
            pattern += pattern[0] == '%' && pattern[1] == '%';
        }
    }
    out[used] = '\0';
    return *pattern == '\0';
}

/* A part that is repeated for ever: block b comes from source b where the names are a pattern, else from one source without
 * end.  HDF5 sizes the view by the sources that it can open, so one too many that is there was lost. */
static flim_status add_unlimited(view *v, hid_t space, const char *file_name, const char *source, bool pattern,
                                 flim_error *err)
{
    hsize_t start[FLIM_BOX_RANK], stride[FLIM_BOX_RANK], count[FLIM_BOX_RANK], block[FLIM_BOX_RANK];
    char names[2][FLIM_H5_PATH], path[FLIM_H5_PATH];
    struct stat about;
    int axis = -1;
    if (H5Sget_regular_hyperslab(space, start, stride, count, block) < 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: the parts of its view cannot be read", v->h5->path, v->name);
    }
    for (int i = 0; i < v->rank; i++) {
        axis = count[i] == H5S_UNLIMITED || block[i] == H5S_UNLIMITED ? i : axis;
    }
    if (axis < 0 || stride[axis] == 0) {
        return FLIM_OK;
    }
    hsize_t first[FLIM_BOX_RANK] = {0}, last[FLIM_BOX_RANK] = {0};
    for (int i = 0; i < v->rank; i++) {
        first[i] = start[i];
        last[i] = i == axis || count[i] == 0 ? start[i] : start[i] + (count[i] - 1) * stride[i] + block[i] - 1;
    }
    hsize_t b = 0;
    for (; first[axis] < v->extent[axis]; b++, first[axis] += stride[axis]) {
        last[axis] = block[axis] == H5S_UNLIMITED ? v->extent[axis] - 1 : first[axis] + block[axis] - 1;
        if (b >= (hsize_t)MOST_BLOCKS) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s is a view of more than %d blocks", v->h5->path, v->name,
                             MOST_BLOCKS);
        }
        FLIM_TRY(flim_boxes_add(&v->parts, first, last, err));
        if (pattern) {
            if (!fill_pattern(file_name, b, names[0], sizeof names[0]) ||
                !fill_pattern(source, b, names[1], sizeof names[1])) {
                return bad_view(v, err, "and a source's name is too long");
            }
            FLIM_TRY(check_source(v, names[0], names[1], -1, err));
        }
        if (block[axis] == H5S_UNLIMITED) {
            break;
        }
    }
    if (pattern && strchr(file_name, '%') && fill_pattern(file_name, b, names[0], sizeof names[0]) &&
        fill_pattern(source, b, names[1], sizeof names[1]) &&
        flim_h5_find_file(v->from, names[0], "HDF5_VDS_PREFIX", true, true, path, &about)) {
        FLIM_TRY(check_source(v, names[0], names[1], -1, err));
        return bad_view(v, err, "and its source %.500s is there but not in the view", path);
    }
    return FLIM_OK;
}

/* A mapping of the view: its part, and the source behind it. */
static flim_status check_part(view *v, size_t i, const char *file_name, const char *source, flim_error *err)
{
    flim_status status = FLIM_OK;
    const hid_t space = H5Pget_virtual_vspace(v->dcpl, i), from = H5Pget_virtual_srcspace(v->dcpl, i);
    const bool pattern = strchr(file_name, '%') || strchr(source, '%');
    hsize_t start[FLIM_BOX_RANK], end[FLIM_BOX_RANK];
    if (space < 0 || from < 0 || H5Sget_simple_extent_ndims(space) != v->rank) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: source %zu of its view cannot be read", v->h5->path, v->name, i);
        goto done;
    }
    const H5S_sel_type type = H5Sget_select_type(space);
    if (type == H5S_SEL_NONE) {
        goto done;
    }
    if (is_unlimited(v, space)) {
        FLIM_TRY_DONE(add_unlimited(v, space, file_name, source, pattern, err));
    } else if (type == H5S_SEL_ALL) {
        const hsize_t zero[FLIM_BOX_RANK] = {0};
        if (H5Sget_select_bounds(space, start, end) < 0) {
            goto done;
        }
        FLIM_TRY_DONE(flim_boxes_add(&v->parts, zero, end, err));
    } else {
        FLIM_TRY_DONE(add_blocks(v, space, err));
    }
    if (!pattern) {
        status = check_source(v, file_name, source, from, err);
    }
done:
    flim_h5_drop(space);
    flim_h5_drop(from);
    return status;
}

/* One source after the other: however the view takes turns, each is opened, and each of its chunks unpacked, once. */
static flim_status check_parts(view *v, flim_error *err)
{
    mapping *list;
    size_t n;
    FLIM_TRY(list_mappings(v->h5, v->name, v->dcpl, &list, &n, err));
    flim_status status = FLIM_OK;
    for (size_t i = 0; i < n && status == FLIM_OK; i++) {
        status = check_part(v, list[i].number, list[i].file, list[i].source, err);
    }
    free_mappings(list, n);
    return status;
}

/* Do the parts cover the whole view? */
static flim_status check_holes(view *v, flim_error *err)
{
    hsize_t hole[FLIM_BOX_RANK];
    char text[400];
    bool found = false, settled = false;
    FLIM_TRY(flim_boxes_hole(&v->parts, v->extent, hole, &found, &settled, err));
    if (!settled) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /%s is a view of %lld overlapping parts: whether they leave holes is not known", v->h5->path,
                         v->name, (long long)v->parts.n);
    }
    if (found) {
        size_t used = (size_t)snprintf(text, sizeof text, "and none of them covers index (");
        for (int i = 0; i < v->rank && used < sizeof text; i++) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%llu", i ? "," : "", (unsigned long long)hole[i]);
        }
        if (used < sizeof text) {
            snprintf(text + used, sizeof text - used, ") of its shape");
        }
        return bad_view(v, err, "%s", text);
    }
    return FLIM_OK;
}

/* ---- the view as a whole */

flim_status flim_h5_check_view(flim_h5 *h5, const char *name, const char *from, hid_t file, hid_t dataset, hid_t dcpl,
                               int depth, flim_error *err)
{
    view v = {
        .h5 = h5, .name = name, .from = from, .file = file, .dataset = dataset, .dcpl = dcpl, .depth = depth, .source = -1};
    flim_status status = FLIM_OK;
    hsize_t sizes[8] = {0};
    if (depth >= MOST_DEPTH) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s is a view of views, %d deep; expected less", h5->path, name, depth);
    }
    if (!flim_h5_shape(dataset, &v.rank, sizes) || v.rank < 1 || v.rank > FLIM_BOX_RANK) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s is a view of %d axes; expected 1 to %d", h5->path, name, v.rank,
                         FLIM_BOX_RANK);
    }
    memcpy(v.extent, sizes, sizeof v.extent);
    v.parts.rank = v.rank;
    FLIM_TRY_DONE(check_parts(&v, err));
    status = check_holes(&v, err);
done:
    close_source(&v);
    flim_boxes_free(&v.parts);
    return status;
}

/* Reads the first value of a part, so that its source is opened and stays open. */
static bool touch_part(hid_t dataset, hid_t dcpl, size_t number, hid_t type, hid_t space, hid_t one)
{
    uint64_t value[LARGEST_VALUE / sizeof(uint64_t)];
    hsize_t corner[2 * FLIM_BOX_RANK];
    const hid_t part = H5Pget_virtual_vspace(dcpl, number);
    bool good = part >= 0;
    if (good && H5Sget_select_type(part) == H5S_SEL_HYPERSLABS && H5Sget_select_hyper_nblocks(part) > 0) {
        good = H5Sget_select_hyper_blocklist(part, 0, 1, corner) < 0 ||
               (H5Sselect_elements(space, H5S_SELECT_SET, 1, corner) >= 0 &&
                H5Dread(dataset, type, one, space, H5P_DEFAULT, value) >= 0);
    }
    flim_h5_drop(part);
    return good;
}

flim_status flim_h5_hold_view(flim_h5 *h5, const char *name, hid_t dataset, flim_error *err)
{
    flim_status status = FLIM_OK;
    const hid_t dcpl = H5Dget_create_plist(dataset), type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    const hid_t one = H5Screate(H5S_SCALAR), native = type >= 0 ? flim_h5_native(type) : -1;
    const bool plain = native >= 0 && H5Tget_class(native) != H5T_STRING && H5Tget_class(native) != H5T_VLEN;
    mapping *list = NULL;
    size_t n = 0;
    if (h5->first_look || dcpl < 0 || H5Pget_layout(dcpl) != H5D_VIRTUAL || space < 0 || one < 0 || !plain ||
        H5Tget_size(native) > LARGEST_VALUE) {
        goto done; /* nothing is to be held, or no view; columns of strings are read at once */
    }
    FLIM_TRY_DONE(list_mappings(h5, name, dcpl, &list, &n, err));
    h5->watch.lost[0] = '\0';
    for (size_t i = 0; i < n && status == FLIM_OK; i++) {
        const bool same =
            i > 0 && strcmp(list[i].file, list[i - 1].file) == 0 && strcmp(list[i].source, list[i - 1].source) == 0;
        if (!same && (!touch_part(dataset, dcpl, list[i].number, native, space, one) || h5->watch.lost[0])) {
            status = flim_h5_view_lost(h5, name, err);
        }
    }
done:
    free_mappings(list, n);
    flim_h5_drop(space);
    flim_h5_drop(one);
    flim_h5_drop(native);
    flim_h5_drop(type);
    flim_h5_drop(dcpl);
    return status;
}

flim_status flim_h5_view_lost(flim_h5 *h5, const char *name, flim_error *err)
{
    if (flim_h5_explain(h5, name, err)) {
        return FLIM_ERROR_DATA;
    }
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: /%s is a view of other files, and %s cannot be opened now: %s; HDF5 would read fill "
                     "values for it",
                     h5->path, name, h5->watch.lost[0] ? h5->watch.lost : "one of them",
                     h5->watch.error ? strerror(h5->watch.error) : "no reason given");
}

#include "formats/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/try.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are read and written without swapping bytes");

#define HASH_KEY "sha256"

/* The format allows 100 MB; a thousand tensors need 0.1 MB, two million cells of a provenance 22 MB, and parsing takes a multiple of it. */
enum { LENGTH_BYTES = 8, LARGEST_HEADER = 64 << 20 };

struct flim_safetensors {
    char *path;
    FILE *stream;
    flim_json *header; /* names, dtypes and metadata point into it */
    int64_t data_at, data_bytes;
    int64_t n;
    flim_array_view *array; /* (n) sorted by begin */
};

/* Bytes of one element, 0 for an unknown dtype. */
static int64_t dtype_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        int bytes;
    } types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
                 {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(dtype, types[i].name) == 0) {
            return types[i].bytes;
        }
    }
    return 0;
}

void flim_shape_text(const int64_t *shape, int ndim, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < ndim && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? "," : "", shape[i]);
    }
    if (used < size) {
        snprintf(text + used, size - used, ")");
    }
}

/* ---- reading */

static flim_status parse_shape(const flim_safetensors *file, const flim_json *shape, flim_array_view *array, flim_error *err)
{
    if (!flim_json_is_array(shape) || flim_json_length(shape) > FLIM_SAFETENSORS_MAX_DIMS) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%.80s': its \"shape\" must be a list of at most %d numbers",
                         file->path, array->name, FLIM_SAFETENSORS_MAX_DIMS);
    }
    array->ndim = (int)flim_json_length(shape);
    array->count = 1;
    for (int i = 0; i < array->ndim; i++) {
        int64_t *size = &array->shape[i];
        if (!flim_json_integer(flim_json_at(shape, (size_t)i), size) || *size < 0 ||
            __builtin_mul_overflow(array->count, *size, &array->count)) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: tensor '%.80s': dimension %d of its \"shape\" is too large for a file", file->path,
                             array->name, i);
        }
    }
    return FLIM_OK;
}

/* One entry of the header: dtype, shape, offsets within the data, and that they agree. */
static flim_status parse_entry(const flim_safetensors *file, const flim_json *entry, flim_array_view *array, flim_error *err)
{
    array->dtype = flim_json_string(flim_json_get(entry, "dtype"));
    if (!array->dtype) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%.80s' has no \"dtype\"", file->path, array->name);
    }
    FLIM_TRY(parse_shape(file, flim_json_get(entry, "shape"), array, err));
    const flim_json *offsets = flim_json_get(entry, "data_offsets");
    if (flim_json_length(offsets) != 2 || !flim_json_integer(flim_json_at(offsets, 0), &array->begin) ||
        !flim_json_integer(flim_json_at(offsets, 1), &array->end)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: tensor '%.80s': its \"data_offsets\" must be two whole numbers",
                         file->path, array->name);
    }
    if (array->begin < 0 || array->end < array->begin || array->end > file->data_bytes) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: tensor '%.80s' lies at bytes %" PRId64 "..%" PRId64 " of the data, which has %" PRId64
                         " bytes: the file is damaged or truncated",
                         file->path, array->name, array->begin, array->end, file->data_bytes);
    }
    int64_t element = dtype_bytes(array->dtype), bytes;
    if (element && (__builtin_mul_overflow(array->count, element, &bytes) || bytes != array->end - array->begin)) {
        char shape[160];
        flim_shape_text(array->shape, array->ndim, shape, sizeof shape);
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: tensor '%.80s' has %" PRId64 " bytes, which does not fit its shape %s of %s", file->path,
                         array->name, array->end - array->begin, shape, array->dtype);
    }
    return FLIM_OK;
}

static int by_begin(const void *a, const void *b)
{
    const flim_array_view *x = a, *y = b;
    int64_t first = x->begin != y->begin ? x->begin : x->end, second = x->begin != y->begin ? y->begin : y->end;
    return (first > second) - (first < second);
}

/* The arrays must cover the data one after the other. */
static flim_status check_cover(const flim_safetensors *file, flim_error *err)
{
    int64_t at = 0;
    for (int64_t i = 0; i < file->n; i++) {
        const flim_array_view *array = &file->array[i];
        if (array->begin != at) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: tensor '%.80s' begins at byte %" PRId64 " of the data, the one before it ends at %" PRId64
                             ": tensors may neither overlap nor leave holes",
                             file->path, array->name, array->begin, at);
        }
        at = array->end;
    }
    if (at != file->data_bytes) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %" PRId64 " bytes of data, but its tensors cover %" PRId64, file->path,
                         file->data_bytes, at);
    }
    return FLIM_OK;
}

static flim_status check_metadata(const flim_safetensors *file, flim_error *err)
{
    const flim_json *metadata = flim_json_get(file->header, "__metadata__"), *value;
    if (metadata && !flim_json_is_object(metadata)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: __metadata__ must map strings to strings", file->path);
    }
    const char *key;
    for (void *at = NULL; flim_json_next(metadata, &at, &key, &value);) {
        if (!flim_json_string(value)) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: __metadata__: '%.80s' is not a string", file->path, key);
        }
    }
    return FLIM_OK;
}

static flim_status parse_header(flim_safetensors *file, flim_error *err)
{
    if (!flim_json_is_object(file->header)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: its header is not a JSON object: not a safetensors file", file->path);
    }
    FLIM_TRY(check_metadata(file, err));
    const char *key;
    const flim_json *value;
    int64_t n = 0;
    for (void *at = NULL; flim_json_next(file->header, &at, &key, &value);) {
        n++;
    }
    file->array = flim_alloc((size_t)n, sizeof *file->array, err);
    if (!file->array) {
        return FLIM_ERROR_MEMORY;
    }
    for (void *at = NULL; flim_json_next(file->header, &at, &key, &value);) {
        if (strcmp(key, "__metadata__") == 0) {
            continue;
        }
        flim_array_view *array = &file->array[file->n++];
        array->name = key;
        FLIM_TRY(parse_entry(file, value, array, err));
    }
    qsort(file->array, (size_t)file->n, sizeof *file->array, by_begin);
    return check_cover(file, err);
}

/* Other files that people have under this name, told by their first bytes. */
static flim_status other_format(const char *path, const unsigned char first[LENGTH_BYTES], flim_error *err)
{
    const bool zip = memcmp(first, "PK\3\4", 4) == 0, pickle = first[0] == 0x80 && first[1] >= 2 && first[1] <= 5;
    if (zip || pickle) {
        return flim_fail(
            err, FLIM_ERROR_DATA,
            "%s is a file of torch.save (%s), not safetensors. Convert it with the Python package (docs/python.md), "
            "which runs nothing that it holds: python -m flimcv.convert '%s' weights.safetensors",
            path, zip ? "a zip archive" : "a pickle", path);
    }
    if (memcmp(first, "\x89HDF\r\n\x1a\n", LENGTH_BYTES) == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s is an HDF5 file, not safetensors: data, or weights of Keras", path);
    }
    if (memcmp(first, "version ", LENGTH_BYTES) == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s is the pointer of Git LFS, not the file itself: run git lfs pull", path);
    }
    return FLIM_OK;
}

/* A folder where a file was asked for, with the weights in it if it is one of train_cv's or pretrain's. */
static flim_status refuse_folder(const char *folder, flim_error *err)
{
    static const char *const names[] = {"encoder", "best"};
    char path[4096];
    struct stat about;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s.safetensors", folder, names[i]);
        if (length > 0 && length < (int)sizeof path && stat(path, &about) == 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: it is a folder; its weights are %s", folder, path);
        }
    }
    return flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: it is a folder, expected a .safetensors file", folder);
}

/* Reads the length and the header's text, both checked against the file's size. */
static flim_status read_header(flim_safetensors *file, flim_error *err)
{
    struct stat about;
    unsigned char length[LENGTH_BYTES];
    char *text = NULL;
    if (fstat(fileno(file->stream), &about) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: %s", file->path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
        return flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: it is not a regular file", file->path);
    }
    if (fread(length, 1, sizeof length, file->stream) != sizeof length) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %lld bytes: too short for a safetensors file", file->path,
                         (long long)about.st_size);
    }
    FLIM_TRY(other_format(file->path, length, err));
    uint64_t bytes = 0;
    for (int i = LENGTH_BYTES; i-- > 0;) {
        bytes = bytes << 8 | length[i];
    }
    uint64_t left = (uint64_t)about.st_size - LENGTH_BYTES;
    if (bytes > left || bytes > LARGEST_HEADER) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: not a safetensors file, or truncated (header says %" PRIu64 " bytes, %" PRIu64
                         " present; at most %d are read)",
                         file->path, bytes, left, LARGEST_HEADER);
    }
    file->data_at = LENGTH_BYTES + (int64_t)bytes;
    file->data_bytes = (int64_t)(left - bytes);
    text = flim_alloc((size_t)bytes + 1, 1, err);
    if (!text) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status;
    if (fread(text, 1, (size_t)bytes, file->stream) != bytes) {
        status = flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: it ended early", file->path);
    } else {
        status = flim_json_parse(text, (size_t)bytes, file->path, &file->header, err);
        if (status == FLIM_ERROR_DATA) {
            flim_fail_prefix(err, "the header of ");
        }
    }
    flim_free(text);
    return status;
}

flim_status flim_safetensors_open(const char *path, flim_safetensors **out, flim_error *err)
{
    *out = NULL;
    flim_status status = FLIM_OK;
    flim_safetensors *file = flim_alloc(1, sizeof *file, err);
    FLIM_TRY_DONE(file && (file->path = flim_strdup(path, err)) ? FLIM_OK : FLIM_ERROR_MEMORY);
    struct stat about;
    FLIM_TRY_DONE(stat(path, &about) == 0 && S_ISDIR(about.st_mode) ? refuse_folder(path, err) : FLIM_OK);
    FLIM_TRY_DONE(flim_file_open(path, &file->stream, err));
    FLIM_TRY_DONE(read_header(file, err));
    FLIM_TRY_DONE(parse_header(file, err));
    *out = file;
    file = NULL;
done:
    flim_safetensors_close(file);
    return status;
}

void flim_safetensors_close(flim_safetensors *file)
{
    if (file) {
        if (file->stream) {
            fclose(file->stream);
        }
        flim_json_free(file->header);
        flim_free(file->array);
        flim_free(file->path);
        flim_free(file);
    }
}

int64_t flim_safetensors_count(const flim_safetensors *file)
{
    return file->n;
}

const flim_array_view *flim_safetensors_at(const flim_safetensors *file, int64_t index)
{
    return &file->array[index];
}

const char *flim_safetensors_metadata(const flim_safetensors *file, const char *key)
{
    return flim_json_string(flim_json_get(flim_json_get(file->header, "__metadata__"), key));
}

flim_status flim_safetensors_read(flim_safetensors *file, const flim_array_view *array, void *out, flim_error *err)
{
    size_t bytes = (size_t)(array->end - array->begin);
    if (fseeko(file->stream, (off_t)(file->data_at + array->begin), SEEK_SET) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: %s", file->path, strerror(errno));
    }
    if (fread(out, 1, bytes, file->stream) != bytes) {
        return flim_fail(err, FLIM_ERROR_DATA, "cannot read tensor '%.80s' of %s: it ended early", array->name, file->path);
    }
    return FLIM_OK;
}

flim_status flim_safetensors_verify(flim_safetensors *file, flim_error *err)
{
    const char *want = flim_safetensors_metadata(file, HASH_KEY);
    if (!want) {
        return FLIM_OK;
    }
    flim_sha256 hash = {0};
    char found[65];
    enum { CHUNK = 1 << 16 };
    unsigned char *chunk = flim_alloc(CHUNK, 1, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(chunk ? flim_sha256_begin(&hash, err) : FLIM_ERROR_MEMORY);
    bool ended_early = fseeko(file->stream, (off_t)file->data_at, SEEK_SET) != 0;
    for (int64_t left = file->data_bytes; left > 0 && !ended_early;) {
        size_t bytes = left < CHUNK ? (size_t)left : CHUNK;
        ended_early = fread(chunk, 1, bytes, file->stream) != bytes;
        flim_sha256_add(&hash, chunk, bytes);
        left -= (int64_t)bytes;
    }
    flim_sha256_end(&hash, found);
    if (ended_early) {
        status = flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: it ended early", file->path);
    } else if (strcmp(found, want) != 0) {
        status = flim_fail(err, FLIM_ERROR_DATA,
                           "%s: damaged: the data's SHA-256 is %.12s..., its metadata says %.12s... (a program that changes "
                           "tensors must leave the key sha256 out)",
                           file->path, found, want);
    }
done:
    flim_free(chunk);
    return status;
}

/* ---- writing */

static int64_t item_bytes(const flim_array_item *item)
{
    int64_t bytes = dtype_bytes(item->dtype);
    for (int i = 0; i < item->ndim; i++) {
        bytes *= item->shape[i];
    }
    return bytes;
}

static flim_status hash_items(const flim_array_item *items, int n_items, char out[65], flim_error *err)
{
    flim_sha256 hash = {0};
    FLIM_TRY(flim_sha256_begin(&hash, err));
    for (int i = 0; i < n_items; i++) {
        flim_sha256_add(&hash, items[i].data, (size_t)item_bytes(&items[i]));
    }
    flim_sha256_end(&hash, out);
    return FLIM_OK;
}

/* The header as one line of text; NULL when out of memory.  Takes metadata over. */
static char *header_text(flim_json *metadata, const flim_array_item *items, int n_items)
{
    flim_json *header = flim_json_object();
    flim_json_set(header, "__metadata__", metadata);
    int64_t at = 0;
    for (int i = 0; i < n_items; i++) {
        flim_json *entry = flim_json_object(), *shape = flim_json_array(), *offsets = flim_json_array();
        flim_json_set_string(entry, "dtype", items[i].dtype);
        for (int d = 0; d < items[i].ndim; d++) {
            flim_json_add_integer(shape, items[i].shape[d]);
        }
        flim_json_set(entry, "shape", shape);
        flim_json_add_integer(offsets, at);
        at += item_bytes(&items[i]);
        flim_json_add_integer(offsets, at);
        flim_json_set(entry, "data_offsets", offsets);
        flim_json_set(header, items[i].name, entry);
    }
    char *text = flim_json_text(header);
    flim_json_free(header);
    return text;
}

flim_status flim_safetensors_write(const char *path, flim_json *metadata, const flim_array_item *items, int n_items,
                                   flim_error *err)
{
    flim_file_writer writer = {0};
    char hash[65], *text = NULL;
    flim_json *described = metadata ? metadata : flim_json_object();
    flim_status status = hash_items(items, n_items, hash, err);
    if (status != FLIM_OK) {
        flim_json_free(described);
        goto done;
    }
    flim_json_set_string(described, HASH_KEY, hash);
    text = header_text(described, items, n_items);
    if (!text) {
        status = flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory while %s was put together", path);
        goto done;
    }
    const flim_file_kind kind = strcmp(path, "-") == 0 ? FLIM_FILE_NAMED : FLIM_FILE_OWN; /* standard output */
    FLIM_TRY_DONE(flim_file_begin_kind(&writer, path, kind, false, NULL, err));
    /* Blanks after the header bring the data to a multiple of 8 bytes, so that a mapped file has aligned arrays. */
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    unsigned char size[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++) {
        size[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    }
    fwrite(size, 1, sizeof size, writer.stream); /* commit sees errors of the stream */
    fprintf(writer.stream, "%-*s", (int)padded, text);
    for (int i = 0; i < n_items; i++) {
        fwrite(items[i].data, 1, (size_t)item_bytes(&items[i]), writer.stream);
    }
    status = flim_file_commit(&writer, err);
done:
    flim_json_text_free(text);
    return status;
}

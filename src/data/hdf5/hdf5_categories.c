/* Columns that are numbers of names: categoricals, factors, enumerations. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_column.h"

enum { MOST_MEMBERS = 65536 };

static bool has(hid_t file, const char *name, const char *part, char *path, size_t size)
{
    const int length = snprintf(path, size, "%s/%s", name, part);
    return length > 0 && (size_t)length < size && H5Lexists(file, path, H5P_DEFAULT) > 0;
}

/* The dataset of names that an attribute `categories` of a dataset of numbers refers to, or -1. */
static hid_t referred_names(hid_t dataset)
{
    hobj_ref_t reference = 0;
    hid_t found = -1;
    if (H5Aexists(dataset, "categories") <= 0) {
        return -1;
    }
    const hid_t id = H5Aopen(dataset, "categories", H5P_DEFAULT), type = id >= 0 ? H5Aget_type(id) : -1,
                space = id >= 0 ? H5Aget_space(id) : -1;
    if (type >= 0 && space >= 0 && H5Tequal(type, H5T_STD_REF_OBJ) > 0 && H5Sget_simple_extent_npoints(space) == 1 &&
        H5Aread(id, type, &reference) >= 0 && reference) {
        found = H5Rdereference2(dataset, H5P_DEFAULT, H5R_OBJECT, &reference);
    }
    flim_h5_drop(space);
    flim_h5_drop(type);
    flim_h5_drop(id);
    return found;
}

flim_status flim_h5_categories_find(const flim_h5_column *s, flim_h5_categories *out, flim_error *err)
{
    const hid_t file = s->h5->file;
    *out = (flim_h5_categories){.list = -1};
    if (H5Lexists(file, s->name, H5P_DEFAULT) <= 0) {
        return FLIM_OK;
    }
    s->h5->watch.refused[0] = '\0';
    const hid_t object = H5Oopen(file, s->name, H5P_DEFAULT);
    const H5I_type_t kind = object >= 0 ? H5Iget_type(object) : H5I_BADID;
    if (kind == H5I_GROUP) {
        if (has(file, s->name, "categories", out->names, sizeof out->names) &&
            has(file, s->name, "codes", out->codes, sizeof out->codes)) {
            out->base = 0;
        } else if (has(file, s->name, "levels", out->names, sizeof out->names) &&
                   has(file, s->name, "values", out->codes, sizeof out->codes)) {
            out->base = 1;
        } else {
            out->codes[0] = out->names[0] = '\0';
        }
    } else if (kind == H5I_DATASET) {
        const hid_t type = H5Dget_type(object);
        const int members = type >= 0 && H5Tget_class(type) == H5T_ENUM ? H5Tget_nmembers(type) : 0;
        out->list = referred_names(object);
        if (out->list >= 0 || (members > 0 && members <= MOST_MEMBERS && !flim_h5_is_bool(type))) {
            snprintf(out->codes, sizeof out->codes, "%s", s->name);
        }
        flim_h5_drop(type);
    }
    flim_h5_drop(object);
    (void)err;
    return FLIM_OK;
}

void flim_h5_categories_close(flim_h5_categories *c)
{
    flim_h5_drop(c->list);
    c->list = -1;
}

/* ---- enumerations */

typedef struct member {
    int64_t value;
    char *name;
} member;

static int by_value(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* The members in order of their values, which R counts from 1 and others from anywhere. */
static flim_status enumeration(const flim_h5_column *s, hid_t type, member **out, int64_t *count, flim_error *err)
{
    const int n = H5Tget_nmembers(type);
    flim_status status = FLIM_OK;
    const hid_t base = H5Tget_super(type);
    member *list = flim_alloc((size_t)(n > 0 ? n : 1), sizeof *list, err);
    *out = list;
    *count = 0;
    if (!list) {
        status = FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < n && status == FLIM_OK; i++) {
        int64_t value[4] = {0}; /* room for any integer that is converted in place */
        char *name = H5Tget_member_name(type, (unsigned)i);
        if (!name || base < 0 || H5Tget_size(base) > 8 || H5Tget_member_value(type, (unsigned)i, value) < 0 ||
            H5Tconvert(base, H5T_NATIVE_INT64, 1, value, NULL, H5P_DEFAULT) < 0) {
            status =
                flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: the names of its enumeration cannot be read", s->h5->path, s->name);
        } else {
            list[i] = (member){value[0], flim_strdup(name, err)};
            status = list[i].name ? FLIM_OK : FLIM_ERROR_MEMORY;
            *count = i + 1;
        }
        H5free_memory(name);
    }
    if (status == FLIM_OK) {
        qsort(list, (size_t)n, sizeof *list, by_value);
    }
    flim_h5_drop(base);
    return status;
}

static void free_members(member *list, int64_t count)
{
    for (int64_t i = 0; list && i < count; i++) {
        flim_free(list[i].name);
    }
    flim_free(list);
}

/* ---- names and numbers */

static flim_status enumeration_names(const flim_h5_column *s, const char *path, char ***names, int64_t *count,
                                     flim_error *err)
{
    member *list = NULL;
    flim_h5_column codes = flim_h5_column_beside(s, path);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_h5_column_open(&codes, true, "an enumeration", err));
    FLIM_TRY_DONE(enumeration(s, codes.type, &list, count, err));
    if (!(*names = flim_alloc((size_t)*count, sizeof **names, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    for (int64_t i = 0; i < *count; i++) {
        (*names)[i] = list[i].name;
        list[i].name = NULL;
    }
done:
    free_members(list, *names ? 0 : *count);
    flim_h5_column_close(&codes);
    return status;
}

flim_status flim_h5_categories_names(const flim_h5_column *s, const flim_h5_categories *c, char ***names, int64_t *count,
                                     flim_error *err)
{
    char path[160];
    int rank;
    hsize_t sizes[8] = {0};
    int64_t *number = NULL;
    flim_status status = FLIM_OK;
    *names = NULL;
    *count = 0;
    if (!c->names[0] && c->list < 0) {
        return enumeration_names(s, c->codes, names, count, err);
    }
    if (c->list >= 0) {
        const ssize_t length = H5Iget_name(c->list, path, sizeof path);
        if (length <= 1 || length >= (ssize_t)sizeof path) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: its categories cannot be found", s->h5->path, s->name);
        }
    } else {
        snprintf(path, sizeof path, "%s", c->names);
    }
    flim_h5_column list = flim_h5_column_beside(s, path[0] == '/' ? path + 1 : path);
    FLIM_TRY_DONE(flim_h5_column_open(&list, true, "the names of the categories", err));
    if (!flim_h5_shape(list.dataset, &rank, sizes) || rank != 1 || sizes[0] < 1 || sizes[0] > INT32_MAX) {
        status = flim_h5_column_wrong_kind(&list, "the names of the categories, at least one", err);
        goto done;
    }
    const int64_t n = (int64_t)sizes[0];
    flim_h5_column_close(&list);
    FLIM_TRY_DONE(flim_h5_column_open_values(&list, n, err));
    FLIM_TRY_DONE(flim_h5_check_bytes(s->h5, list.name, n, sizeof **names, err));
    if (!(*names = flim_alloc((size_t)n, sizeof **names, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    *count = n;
    if (flim_h5_column_text(&list) != FLIM_H5_NO_TEXT) {
        FLIM_TRY_DONE(flim_h5_column_texts(&list, n, *names, err));
        goto done;
    }
    if (!(number = flim_alloc((size_t)n, sizeof *number, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    FLIM_TRY_DONE(flim_h5_column_integers(&list, n, number, err));
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        (*names)[i] = flim_strprintf(err, "%" PRId64, number[i]);
        status = (*names)[i] ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
done:
    flim_free(number);
    flim_h5_column_close(&list);
    if (status != FLIM_OK) {
        flim_free_list(*names, *count);
        *names = NULL;
        *count = 0;
    }
    return status;
}

/* A value of the enumeration -> its place among the members. */
static flim_status places(const flim_h5_column *s, const member *list, int64_t count, int64_t n, int64_t *values,
                          flim_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        const member key = {values[i], NULL}, *found = bsearch(&key, list, (size_t)count, sizeof *list, by_value);
        if (!found) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: /%s: cell %" PRId64 ": found %" PRId64 ", which its enumeration has no name for",
                             s->h5->path, s->name, i, values[i]);
        }
        values[i] = found - list;
    }
    return FLIM_OK;
}

flim_status flim_h5_categories_numbers(const flim_h5_column *s, const flim_h5_categories *c, int64_t n, int64_t *values,
                                       flim_error *err)
{
    char **names = NULL;
    member *list = NULL;
    int64_t count = 0, members = 0;
    flim_h5_column codes = flim_h5_column_beside(s, c->codes);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_h5_column_open_values(&codes, n, err));
    FLIM_TRY_DONE(flim_h5_column_integers(&codes, n, values, err));
    if (!c->names[0] && c->list < 0) {
        FLIM_TRY_DONE(enumeration(s, codes.type, &list, &members, err));
        status = places(&codes, list, members, n, values, err);
        goto done;
    }
    FLIM_TRY_DONE(flim_h5_categories_names(s, c, &names, &count, err));
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        const int64_t code = values[i];
        values[i] = code - c->base;
        if (code < c->base || code - c->base >= count) {
            status =
                flim_fail(err, FLIM_ERROR_DATA,
                          "%s: /%s: cell %" PRId64 ": found %" PRId64 ", %s; expected %" PRId64 "..%" PRId64
                          ", a number of its %" PRId64 " categories; give the cell one, or leave it out",
                          s->h5->path, codes.name, i, code, code < c->base ? "which stands for no category" : "which is none",
                          c->base, c->base + count - 1, count);
        }
    }
done:
    flim_free_list(names, count);
    free_members(list, members);
    flim_h5_column_close(&codes);
    return status;
}

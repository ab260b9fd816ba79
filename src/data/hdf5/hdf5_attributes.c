/* Attributes of the root: lists of strings, numbers. */
#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_column.h"

/* The same for an attribute of the root: s->attribute stays -1 where there is none. */
static flim_status open_attribute(flim_h5_column *s, flim_error *err)
{
    if (H5Aexists(s->h5->file, s->name) <= 0) {
        return FLIM_OK;
    }
    s->attribute = H5Aopen(s->h5->file, s->name, H5P_DEFAULT);
    s->type = s->attribute >= 0 ? H5Aget_type(s->attribute) : -1;
    s->space = s->attribute >= 0 ? H5Aget_space(s->attribute) : -1;
    return s->type < 0 || s->space < 0 ? flim_h5_column_cannot_read(s, err) : FLIM_OK;
}

/* A list of strings, not empty. */
static flim_status check_strings(const flim_h5_column *s, int64_t *n, flim_error *err)
{
    *n = (int64_t)H5Sget_simple_extent_npoints(s->space);
    if (H5Tget_class(s->type) != H5T_STRING || H5Sget_simple_extent_type(s->space) == H5S_NULL || *n < 1) {
        char found[80];
        flim_h5_type_name(s->type, true, found, sizeof found);
        return flim_fail(err, FLIM_ERROR_DATA, "%s: attribute %s: found %lld x %s, expected a list of strings", s->h5->path,
                         s->name, (long long)(*n < 0 ? 0 : *n), found);
    }
    return flim_h5_check_bytes(s->h5, s->name, *n, sizeof(char *), err);
}

flim_status flim_h5_attribute_strings(flim_source *source, const char *name, char ***list, int64_t *count, flim_error *err)
{
    char **all = NULL;
    int64_t n = 0;
    *list = NULL;
    *count = 0;
    flim_h5_column s = flim_h5_column_enter(flim_h5_of(source), name);
    flim_status status = open_attribute(&s, err);
    if (status == FLIM_OK && s.attribute >= 0 && (status = check_strings(&s, &n, err)) == FLIM_OK) {
        all = flim_alloc((size_t)n, sizeof *all, err);
        status = all ? flim_h5_column_texts(&s, n, all, err) : FLIM_ERROR_MEMORY;
    }
    flim_h5_column_leave(&s);
    if (status == FLIM_OK) {
        *list = all;
        *count = all ? n : 0;
        return FLIM_OK;
    }
    flim_free_list(all, n);
    return status;
}

flim_status flim_h5_attribute_number(flim_source *source, const char *name, double *value, flim_error *err)
{
    double found = 0;
    flim_h5_column s = flim_h5_column_enter(flim_h5_of(source), name);
    flim_status status = open_attribute(&s, err);
    if (status == FLIM_OK && s.attribute >= 0) {
        H5T_class_t class = H5Tget_class(s.type);
        if ((class != H5T_INTEGER && class != H5T_FLOAT) || H5Sget_simple_extent_npoints(s.space) != 1) {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: attribute %s: expected one number", s.h5->path, name);
        } else if (H5Aread(s.attribute, H5T_NATIVE_DOUBLE, &found) < 0) {
            status = flim_h5_column_cannot_read(&s, err);
        } else {
            *value = found;
        }
    }
    flim_h5_column_leave(&s);
    return status;
}

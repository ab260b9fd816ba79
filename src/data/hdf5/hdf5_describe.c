/* HDF5's types and shapes as text for messages. */
#include "data/hdf5/hdf5_internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool flim_h5_is_bool(hid_t type)
{
    bool named = H5Tget_nmembers(type) == 2;
    for (unsigned i = 0; i < 2 && named; i++) {
        char *name = H5Tget_member_name(type, i);
        named = name && strcasecmp(name, i ? "TRUE" : "FALSE") == 0;
        H5free_memory(name);
    }
    return named;
}

void flim_h5_type_name(hid_t type, bool brief, char *text, size_t size)
{
    size_t bytes = H5Tget_size(type);
    H5T_class_t class = H5Tget_class(type);
    H5T_order_t order = H5Tget_order(type);
    const char *order_name = brief || bytes < 2      ? ""
                             : order == H5T_ORDER_LE ? " little-endian"
                             : order == H5T_ORDER_BE ? " big-endian"
                                                     : "";
    switch (class) {
    case H5T_INTEGER:
        snprintf(text, size, "%sint%zu%s", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", 8 * bytes, order_name);
        return;
    case H5T_FLOAT: snprintf(text, size, "float%zu%s", 8 * bytes, order_name); return;
    case H5T_STRING:
        if (H5Tis_variable_str(type) > 0) {
            snprintf(text, size, "string");
        } else {
            snprintf(text, size, "string of %zu bytes", bytes);
        }
        return;
    case H5T_ENUM:
        if (flim_h5_is_bool(type)) {
            snprintf(text, size, "bool");
        } else {
            snprintf(text, size, "enum (%zu byte%s)", bytes, bytes == 1 ? "" : "s");
        }
        return;
    case H5T_COMPOUND: snprintf(text, size, "compound"); return;
    case H5T_VLEN: snprintf(text, size, "variable-length list"); return;
    case H5T_ARRAY: snprintf(text, size, "array"); return;
    case H5T_BITFIELD: snprintf(text, size, "bitfield of %zu bytes%s", bytes, order_name); return;
    case H5T_OPAQUE: snprintf(text, size, "opaque"); return;
    case H5T_REFERENCE: snprintf(text, size, "reference"); return;
    default: snprintf(text, size, "unknown type"); return;
    }
}

bool flim_h5_shape(hid_t dataset, int *rank, hsize_t sizes[8])
{
    bool good = false;
    hid_t space = H5Dget_space(dataset);
    *rank = 0;
    if (space >= 0) {
        if (H5Sget_simple_extent_type(space) == H5S_SCALAR) {
            good = true;
        } else if (H5Sget_simple_extent_type(space) == H5S_SIMPLE) {
            int n = H5Sget_simple_extent_ndims(space);
            if (n >= 0 && n <= 8) {
                *rank = H5Sget_simple_extent_dims(space, sizes, NULL);
                good = *rank >= 0;
            }
        }
        H5Sclose(space);
    }
    return good;
}

static void shape_text(hid_t dataset, char *text, size_t size)
{
    hsize_t sizes[8];
    int rank;
    if (!flim_h5_shape(dataset, &rank, sizes)) {
        hid_t space = H5Dget_space(dataset);
        snprintf(text, size, "%s",
                 space >= 0 && H5Sget_simple_extent_type(space) == H5S_NULL ? "empty (null dataspace)"
                                                                            : "of unreadable shape");
        flim_h5_drop(space);
        return;
    }
    size_t used = 0;
    for (int i = 0; i < rank; i++) {
        int length = snprintf(text + used, size - used, "%s%llu", i ? "," : "(", (unsigned long long)sizes[i]);
        used += length > 0 ? (size_t)length : 0;
        if (used + 2 >= size) {
            return;
        }
    }
    snprintf(text + used, size - used, rank ? ")" : "scalar");
}

void flim_h5_describe(hid_t object, char *text, size_t size)
{
    if (H5Iget_type(object) != H5I_DATASET) {
        snprintf(text, size, "%s", H5Iget_type(object) == H5I_GROUP ? "group" : "named type");
        return;
    }
    char type[80] = "unreadable type", shape[200];
    hid_t id = H5Dget_type(object);
    if (id >= 0) {
        flim_h5_type_name(id, true, type, sizeof type);
        H5Tclose(id);
    }
    shape_text(object, shape, sizeof shape);
    snprintf(text, size, "%s %s", type, shape);
}

hid_t flim_h5_native(hid_t type)
{
    hid_t base = H5Tget_class(type) == H5T_ENUM ? H5Tget_super(type) : H5Tcopy(type);
    H5T_order_t native = H5Tget_order(H5T_NATIVE_INT);
    if (base >= 0 && H5Tget_order(base) != H5T_ORDER_NONE && H5Tset_order(base, native) < 0) {
        H5Tclose(base);
        return -1;
    }
    return base;
}

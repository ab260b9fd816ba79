#include "data/hdf5/hdf5_memory.h"

#include "core/alloc.h"
#include "data/hdf5/hdf5_internal.h"

hid_t flim_h5_memory_create(const char *name)
{
    enum { GROW = 1 << 20 };
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE), file = -1;
    if (access >= 0 && creation >= 0 && H5Pset_fapl_core(access, GROW, false) >= 0 &&
        H5Pset_obj_track_times(creation, 0) >= 0) {
        file = H5Fcreate(name, H5F_ACC_TRUNC, creation, access);
    }
    flim_h5_drop(creation);
    flim_h5_drop(access);
    return file;
}

bool flim_h5_memory_values(hid_t file, const char *name, hid_t file_type, hid_t type, int rank, const hsize_t *size,
                           const void *data)
{
    hid_t space = H5Screate_simple(rank, size, NULL), list = H5Pcreate(H5P_DATASET_CREATE), set = -1;
    bool good = space >= 0 && list >= 0 && H5Pset_obj_track_times(list, 0) >= 0; /* equal calls give equal bytes */
    if (good) {
        set = H5Dcreate2(file, name, file_type, space, H5P_DEFAULT, list, H5P_DEFAULT);
        good = set >= 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    }
    flim_h5_drop(set);
    flim_h5_drop(list);
    flim_h5_drop(space);
    return good;
}

hid_t flim_h5_memory_text(size_t length)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, length) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0)) {
        flim_h5_drop(type);
        type = -1;
    }
    return type;
}

bool flim_h5_memory_attribute(hid_t file, const char *name, hid_t file_type, hid_t type, const void *value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t made = H5Acreate2(file, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    const bool good = made >= 0 && H5Awrite(made, type, value) >= 0;
    flim_h5_drop(made);
    flim_h5_drop(space);
    return good;
}

flim_status flim_h5_memory_image(hid_t file, bool good, const char *what, void **bytes, size_t *count, flim_error *err)
{
    char reason[256];
    flim_status status = FLIM_OK;
    good = good && file >= 0 && H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0;
    const ssize_t size = good ? H5Fget_file_image(file, NULL, 0) : -1;
    *bytes = NULL;
    *count = 0;
    if (size <= 0) {
        flim_h5_reason(reason, sizeof reason);
        status = flim_fail(err, FLIM_ERROR, "HDF5 cannot make the file of %s: %s", what, reason);
    } else {
        *bytes = flim_alloc((size_t)size, 1, err);
        status = *bytes && H5Fget_file_image(file, *bytes, (size_t)size) == size ? FLIM_OK : FLIM_ERROR_MEMORY;
        *count = (size_t)size;
    }
    flim_h5_drop(file);
    return status;
}

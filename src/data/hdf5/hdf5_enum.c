/* The names that an enumerated column gives to its values. */
#include "data/hdf5/hdf5_internal.h"

#include <string.h>
#include <strings.h>

#include "core/alloc.h"
#include "core/try.h"

enum { MOST_MEMBERS = 1000 };

/* Member i as (value, name); the name is HDF5's, for H5free_memory. */
static bool member(hid_t type, unsigned i, int64_t *value, char **name)
{
    char bytes[8] = {0};
    const hid_t base = H5Tget_super(type);
    const size_t size = H5Tget_size(type);
    bool read = base >= 0 && size <= sizeof bytes && H5Tget_member_value(type, i, bytes) >= 0 &&
                H5Tconvert(base, H5T_NATIVE_INT64, 1, bytes, NULL, H5P_DEFAULT) >= 0;
    memcpy(value, bytes, sizeof *value);
    if (base >= 0) {
        H5Tclose(base);
    }
    *name = read ? H5Tget_member_name(type, i) : NULL;
    return *name != NULL;
}

/* h5py's and Julia's booleans are enums of FALSE and TRUE, which name nothing. */
static bool is_boolean(char *const *list, int64_t n)
{
    return n == 2 && list[0] && list[1] && strcasecmp(list[0], "false") == 0 && strcasecmp(list[1], "true") == 0;
}

/* *whole = false unless the values are 0..n-1, each once. */
static flim_status collect(hid_t type, char **list, int64_t n, bool *whole, flim_error *err)
{
    *whole = true;
    for (unsigned i = 0; i < (unsigned)n && *whole; i++) {
        int64_t value = -1;
        char *name;
        if (!member(type, i, &value, &name)) {
            *whole = false;
            break;
        }
        *whole = value >= 0 && value < n && !list[value];
        char *copy = *whole ? flim_strdup(name, err) : NULL;
        H5free_memory(name);
        if (*whole && !copy) {
            return FLIM_ERROR_MEMORY;
        }
        if (*whole) {
            list[value] = copy;
        }
    }
    *whole = *whole && !is_boolean(list, n);
    return FLIM_OK;
}

flim_status flim_h5_column_names(flim_source *source, const char *name, char ***list, int64_t *count, flim_error *err)
{
    flim_h5 *h5 = flim_h5_of(source);
    const flim_h5_guard guard = flim_h5_enter(h5);
    hid_t dataset = -1, type = -1;
    bool whole = false;
    flim_status status = FLIM_OK;
    *list = NULL;
    *count = 0;
    FLIM_TRY_DONE(flim_h5_dataset(h5, name, false, "an enumeration", H5P_DEFAULT, &dataset, err));
    if (dataset < 0 || (type = H5Dget_type(dataset)) < 0 || H5Tget_class(type) != H5T_ENUM) {
        goto done;
    }
    const int n = H5Tget_nmembers(type);
    if (n < 1 || n > MOST_MEMBERS) {
        goto done;
    }
    *list = flim_alloc((size_t)n, sizeof **list, err);
    *count = *list ? n : 0;
    FLIM_TRY_DONE(*list ? collect(type, *list, n, &whole, err) : FLIM_ERROR_MEMORY);
done:
    if (!whole) {
        flim_free_list(*list, *count);
        *list = NULL;
        *count = 0;
    }
    if (type >= 0) {
        H5Tclose(type);
    }
    if (dataset >= 0) {
        H5Dclose(dataset);
    }
    flim_h5_leave(guard);
    return status;
}

/* Embeddings as HDF5 files. */
#include <string.h>

#include "core/alloc.h"
#include "data/hdf5/hdf5_internal.h"
#include "data/hdf5/hdf5_memory.h"
#include "flim/embeddings.h"

/* n texts as a dataset of UTF-8 text of the longest one's length. */
static bool write_texts(hid_t file, const char *name, char *const *text, int64_t n)
{
    size_t longest = 1;
    for (int64_t i = 0; i < n; i++) {
        const size_t length = strlen(text[i]);
        longest = length > longest ? length : longest;
    }
    char *packed = flim_alloc((size_t)n, longest, NULL);
    hid_t type = flim_h5_memory_text(longest);
    for (int64_t i = 0; packed && i < n; i++) {
        for (size_t k = 0; text[i][k]; k++) {
            packed[(size_t)i * longest + k] = text[i][k];
        }
    }
    const hsize_t size[1] = {(hsize_t)n};
    const bool good = packed && type >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
                      flim_h5_memory_values(file, name, type, type, 1, size, packed);
    flim_h5_drop(type);
    flim_free(packed);
    return good;
}

static bool write_all(hid_t file, const flim_embeddings *e)
{
    const hsize_t size[3] = {(hsize_t)e->models, (hsize_t)e->n, (hsize_t)e->width};
    bool good = flim_h5_memory_values(file, "embedding", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 3, size, e->value);
    if (e->label) {
        good = good && flim_h5_memory_values(file, "label", H5T_STD_I32LE, H5T_NATIVE_INT32, 1, &size[1], e->label) &&
               write_texts(file, "class_name", e->class_name, e->classes);
    }
    good = good && (!e->group || write_texts(file, "group", e->group, e->n));
    return good && (!e->name || write_texts(file, "name", e->name, e->n));
}

flim_status flim_embeddings_hdf5(const flim_embeddings *e, void **bytes, size_t *count, flim_error *err)
{
    flim_h5_guard guard = flim_h5_enter(NULL);
    hid_t file = flim_h5_memory_create("embeddings");
    const bool good = file >= 0 && write_all(file, e);
    const flim_status status = flim_h5_memory_image(file, good, "embeddings", bytes, count, err);
    flim_h5_leave(guard);
    return status;
}

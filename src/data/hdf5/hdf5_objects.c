/* Finding what a file holds: datasets by name, what a misspelt one may be called, what is there besides. */
#include "data/hdf5/hdf5_internal.h"

#include <stdio.h>
#include <string.h>

#include "core/try.h"

enum { MOST_NAMES = 12 };

/* What people call our datasets. */
enum { MOST_OTHER = 8 };
typedef struct other_names {
    const char *name, *other[MOST_OTHER];
} other_names;
static const other_names known_names[] = {
    {"counts", {"count", "Counts", "volumes", "volume", "data", "photons", "decays", "images"}},
    {"label", {"labels", "Label", "y", "target", "targets", "class", "classes", "Labels"}},
    {"group", {"groups", "Group", "donor", "donors", "patient", "patients", "patient_id", "subject"}},
    {"mask", {"masks", "Mask", "cell_mask", "roi", "segmentation", "seg", "Masks", "cell_masks"}},
    {"name", {"names", "Name", "cell_name", "id", "ids", "cell_id", "filename", "filenames"}},
};

static const other_names *others_of(const char *name)
{
    for (size_t i = 0; i < sizeof known_names / sizeof known_names[0]; i++) {
        if (strcmp(known_names[i].name, name) == 0) {
            return &known_names[i];
        }
    }
    return NULL;
}

/* The first of those names that the file has, else "". */
static void other_name(flim_h5 *h5, const char *name, char *text, size_t size)
{
    const other_names *names = others_of(name);
    text[0] = '\0';
    for (int i = 0; names && i < MOST_OTHER; i++) {
        if (H5Lexists(h5->file, names->other[i], H5P_DEFAULT) > 0) {
            snprintf(text, size, "%s", names->other[i]);
            return;
        }
    }
}

/* The same among the attributes of the root and of /counts, under the right name, too: "donor of /counts". */
static void attribute_name(flim_h5 *h5, const char *name, char *text, size_t size)
{
    static const char *const objects[] = {"/counts", "/"};
    const other_names *names = others_of(name);
    text[0] = '\0';
    for (int i = -1; names && i < MOST_OTHER; i++) {
        const char *candidate = i < 0 ? name : names->other[i];
        for (int j = 0; j < 2; j++) {
            if (H5Aexists_by_name(h5->file, objects[j], candidate, H5P_DEFAULT) > 0) {
                snprintf(text, size, "%s of %s", candidate, objects[j]);
                return;
            }
        }
    }
}

/* "the file holds /volumes: uint16 (64,256,21,21); /labels: uint8 (64)" */
static void list_root(flim_h5 *h5, char *text, size_t size)
{
    H5G_info_t info;
    size_t used = 0;
    if (H5Gget_info(h5->file, &info) < 0 || info.nlinks == 0) {
        snprintf(text, size, "the file has no objects");
        return;
    }
    int n = 0;
    int length = snprintf(text, size, "the file has ");
    used += length > 0 ? (size_t)length : 0;
    for (hsize_t i = 0; i < info.nlinks && n < MOST_NAMES && used + 1 < size; i++) {
        char name[64], what[200] = "link that leads nowhere";
        if (H5Lget_name_by_idx(h5->file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT) < 0) {
            continue;
        }
        hid_t object = H5Oopen(h5->file, name, H5P_DEFAULT);
        if (object >= 0) {
            flim_h5_describe(object, what, sizeof what);
            H5Oclose(object);
        }
        length = snprintf(text + used, size - used, "%s/%s: %s", n ? "; " : "", name, what);
        used += length > 0 ? (size_t)length : 0;
        n++;
    }
    if (used < size && info.nlinks > MOST_NAMES) {
        snprintf(text + used, size - used, "; and %llu more", (unsigned long long)(info.nlinks - MOST_NAMES));
    }
}

flim_status flim_h5_dataset(flim_h5 *h5, const char *name, bool needed, const char *expected, hid_t dapl, hid_t *out,
                            flim_error *err)
{
    flim_status status = FLIM_OK;
    char found[256], reason[512];
    *out = -1;
    h5->watch.refused[0] = '\0';
    h5->watch.error = 0;
    htri_t link = H5Lexists(h5->file, name, H5P_DEFAULT);
    if (link == 0) {
        if (!needed) {
            return FLIM_OK;
        }
        char list[1200], other[64], hint[96] = "";
        list_root(h5, list, sizeof list);
        other_name(h5, name, other, sizeof other);
        if (other[0]) {
            snprintf(hint, sizeof hint, "; is it /%s? Rename it", other);
        }
        return flim_fail(err, FLIM_ERROR_DATA, "%s: there is no /%s, expected %s; %s%s", h5->path, name, expected, list,
                         hint);
    }
    hid_t object = H5Oopen(h5->file, name, H5P_DEFAULT);
    if (object < 0) {
        flim_h5_reason(reason, sizeof reason);
        if (flim_h5_explain(h5, name, err)) {
            return FLIM_ERROR_DATA;
        }
        return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s cannot be opened: %s; expected %s; is it a link that leads nowhere?",
                         h5->path, name, reason, expected);
    }
    if (H5Iget_type(object) != H5I_DATASET) {
        flim_h5_describe(object, found, sizeof found);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s is a %s, expected a dataset, %s", h5->path, name, found, expected);
        goto done;
    }
    hid_t space = H5Dget_space(object);
    H5S_class_t class = space >= 0 ? H5Sget_simple_extent_type(space) : H5S_NO_CLASS;
    flim_h5_drop(space);
    if (class != H5S_SIMPLE && class != H5S_SCALAR) {
        flim_h5_describe(object, found, sizeof found);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: found %s, expected %s", h5->path, name, found, expected);
        goto done;
    }
    FLIM_TRY_DONE(flim_h5_check_storage(h5, name, object, err));
    /* Closed first: handles of one dataset share their chunk cache, as the first of them has it. */
    H5Oclose(object);
    object = -1;
    *out = H5Dopen2(h5->file, name, dapl);
    if (*out < 0) {
        flim_h5_reason(reason, sizeof reason);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s cannot be opened: %s", h5->path, name, reason);
        goto done;
    }
    status = flim_h5_hold_view(h5, name, *out, err);
    if (status != FLIM_OK) {
        H5Dclose(*out);
        *out = -1;
    }
done:
    flim_h5_drop(object);
    return status;
}

bool flim_h5_has(flim_source *source, const char *name)
{
    flim_h5 *h5 = flim_h5_of(source);
    flim_h5_guard guard = flim_h5_enter(h5);
    bool found = H5Lexists(h5->file, name, H5P_DEFAULT) > 0;
    flim_h5_leave(guard);
    return found;
}

void flim_h5_similar(flim_source *source, const char *name, char *dataset, char *attribute, size_t size)
{
    flim_h5 *h5 = flim_h5_of(source);
    flim_h5_guard guard = flim_h5_enter(h5);
    other_name(h5, name, dataset, size);
    attribute_name(h5, name, attribute, size);
    flim_h5_leave(guard);
}

void flim_h5_others(flim_source *source, char *text, size_t size)
{
    flim_h5 *h5 = flim_h5_of(source);
    static const char *const ours[] = {"counts", "label", "group", "mask", "name", "import", "t0_shift"};
    H5G_info_t info = {0};
    size_t used = 0;
    text[0] = '\0';
    flim_h5_guard guard = flim_h5_enter(h5);
    if (H5Gget_info(h5->file, &info) < 0) {
        info.nlinks = 0;
    }
    for (hsize_t i = 0; i < info.nlinks && used < size; i++) {
        char name[64];
        bool own = H5Lget_name_by_idx(h5->file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT) < 0;
        for (size_t j = 0; j < sizeof ours / sizeof ours[0]; j++) {
            own = own || strcmp(name, ours[j]) == 0;
        }
        if (!own) {
            int length = snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
            used += length > 0 ? (size_t)length : 0;
        }
    }
    flim_h5_leave(guard);
}

/* How and where a dataset's bytes are stored: filters, and files other than the one that was opened.
 *
 * HDF5 is silent about bytes that are not there: a virtual dataset whose source is missing reads as fill values, and so does
 * the end of an external file that is cut short.  Both are found here, at open, for the whole dataset.
 */
#include "data/hdf5/hdf5_internal.h"
#include "data/hdf5/hdf5_paths.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/try.h"

/* ---- filters */

static const char *filter_name(H5Z_filter_t id)
{
    switch (id) {
    case H5Z_FILTER_DEFLATE: return "gzip";
    case H5Z_FILTER_SHUFFLE: return "shuffle";
    case H5Z_FILTER_FLETCHER32: return "fletcher32";
    case H5Z_FILTER_SZIP: return "szip";
    case H5Z_FILTER_NBIT: return "nbit";
    case H5Z_FILTER_SCALEOFFSET: return "scaleoffset";
    case 307: return "bzip2";
    case 32000: return "lzf";
    case 32001: return "blosc";
    case 32004: return "lz4";
    case 32008: return "bitshuffle";
    case 32013: return "zfp";
    case 32015: return "zstd";
    case 32026: return "blosc2";
    default: return NULL;
    }
}

void flim_h5_filter_names(hid_t dcpl, char *text, size_t size)
{
    int n = H5Pget_nfilters(dcpl);
    size_t used = 0;
    snprintf(text, size, "no filter");
    for (int i = 0; i < n && used < size; i++) {
        unsigned flags = 0, value[8] = {0};
        size_t values = 8;
        H5Z_filter_t id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &values, value, 0, NULL, NULL);
        const char *name = filter_name(id);
        int length;
        if (id == H5Z_FILTER_DEFLATE && values >= 1) {
            length = snprintf(text + used, size - used, "%sgzip %u", i ? " + " : "", value[0]);
        } else if (name) {
            length = snprintf(text + used, size - used, "%s%s", i ? " + " : "", name);
        } else {
            length = snprintf(text + used, size - used, "%sfilter %d", i ? " + " : "", (int)id);
        }
        used += length > 0 ? (size_t)length : 0;
    }
}

static flim_status check_filters(const flim_h5 *h5, const char *name, hid_t dcpl, flim_error *err)
{
    int n = H5Pget_nfilters(dcpl);
    for (int i = 0; i < n; i++) {
        unsigned flags = 0;
        size_t values = 0;
        char stored[64] = "";
        H5Z_filter_t id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &values, NULL, sizeof stored, stored, NULL);
        stored[sizeof stored - 1] = '\0';
        if (id < 0 || H5Zfilter_avail(id) <= 0) {
            const char *known = filter_name(id);
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: /%s is compressed with filter %d (%s), which this HDF5 %d.%d.%d does not have; install its "
                             "plugin and point HDF5_PLUGIN_PATH at it, or rewrite the file where it can be read: h5repack -f "
                             "SHUF -f GZIP=4 IN OUT",
                             h5->path, name, (int)id,
                             stored[0] ? stored
                             : known   ? known
                                       : "no name",
                             H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
        }
    }
    return FLIM_OK;
}

/* ---- other files */

void flim_h5_count_outside(flim_h5 *h5, const struct stat *about)
{
    h5->outside = h5->outside > INT64_MAX - about->st_size ? INT64_MAX : h5->outside + about->st_size;
}

static flim_status check_external(flim_h5 *h5, const char *name, const char *from, hid_t dataset, hid_t dcpl, flim_error *err)
{
    char refused[1024];
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    hssize_t points = space >= 0 ? H5Sget_simple_extent_npoints(space) : 0;
    size_t size = type >= 0 ? H5Tget_size(type) : 0;
    uint64_t left = points > 0 && size && (uint64_t)points <= UINT64_MAX / size ? (uint64_t)points * size : 0;
    int n = H5Pget_external_count(dcpl);
    flim_status status = FLIM_OK;
    for (int i = 0; i < n && left > 0 && status == FLIM_OK; i++) {
        char stored[FLIM_H5_PATH] = "", path[FLIM_H5_PATH];
        off_t offset = 0;
        hsize_t bytes = 0;
        struct stat about;
        H5Pget_external(dcpl, (unsigned)i, sizeof stored - 1, stored, &offset, &bytes);
        uint64_t need = bytes == H5F_UNLIMITED || bytes > left ? left : bytes;
        if (!flim_h5_find_file(from, stored, "HDF5_EXTFILE_PREFIX", false, false, path, &about)) {
            status =
                flim_fail(err, FLIM_ERROR_DATA,
                          "%s: /%s lies in the file %s, which is not there; start the program in the folder where it was "
                          "written, or set HDF5_EXTFILE_PREFIX to the folder of that file",
                          h5->path, name, stored);
        } else if (!flim_h5_may_read(&h5->watch, path, "lies in the file", refused, sizeof refused)) {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s %s", h5->path, name, refused);
        } else if (offset < 0 || need > INT64_MAX - (uint64_t)offset || (uint64_t)about.st_size < (uint64_t)offset + need) {
            status = flim_fail(err, FLIM_ERROR_DATA,
                               "%s: /%s lies in the file %s, which is cut short: it has %lld bytes, %" PRIu64
                               " are needed; was the copy incomplete?",
                               h5->path, name, path, (long long)about.st_size, (uint64_t)offset + need);
        } else {
            flim_h5_count_outside(h5, &about);
        }
        left -= need;
    }
    flim_h5_drop(type);
    flim_h5_drop(space);
    return status;
}

bool flim_h5_is_own(flim_h5 *h5, hid_t dataset)
{
    char own[FLIM_H5_PATH] = "", its[FLIM_H5_PATH] = "";
    return H5Fget_name(h5->file, own, sizeof own) > 0 && H5Fget_name(dataset, its, sizeof its) > 0 && strcmp(own, its) == 0;
}

flim_status flim_h5_check_source_storage(flim_h5 *h5, const char *name, const char *from, hid_t file, hid_t dataset,
                                         int depth, flim_error *err)
{
    flim_status status = FLIM_OK;
    hid_t dcpl = H5Dget_create_plist(dataset);
    H5D_layout_t layout = dcpl >= 0 ? H5Pget_layout(dcpl) : H5D_LAYOUT_ERROR;
    if (dcpl < 0 || H5Pget_nfilters(dcpl) < 0) {
        char reason[512];
        flim_h5_reason(reason, sizeof reason);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cannot read how it is stored: %s", h5->path, name, reason);
        goto done;
    }
    FLIM_TRY_DONE(check_filters(h5, name, dcpl, err));
    if (layout == H5D_CONTIGUOUS) {
        status = check_external(h5, name, from, dataset, dcpl, err);
    } else if (layout == H5D_VIRTUAL) {
        status = flim_h5_check_view(h5, name, from, file, dataset, dcpl, depth, err);
    }
done:
    flim_h5_drop(dcpl);
    return status;
}

flim_status flim_h5_check_storage(flim_h5 *h5, const char *name, hid_t dataset, flim_error *err)
{
    struct stat about;
    char path[FLIM_H5_PATH] = "";
    if (flim_h5_is_own(h5, dataset)) {
        return flim_h5_check_source_storage(h5, name, h5->path, h5->file, dataset, 0, err);
    }
    /* Through an external link: what the dataset names is looked for beside its own file. */
    if (H5Fget_name(dataset, path, sizeof path) > 0 && stat(path, &about) == 0) {
        flim_h5_count_outside(h5, &about);
    }
    const hid_t file = H5Iget_file_id(dataset);
    const flim_status status = flim_h5_check_source_storage(h5, name, path, file, dataset, 0, err);
    flim_h5_drop(file);
    return status;
}

/* How and where a dataset's bytes are stored: filters, and files other than the one that was opened.
 *
 * HDF5 is silent about bytes that are not there: a virtual dataset whose source is missing reads as fill values, and so does
 * the end of an external file that is cut short.  Both are found here, at open, for the whole dataset.
 */
#include "data/hdf5/hdf5_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/try.h"

enum { PATH_SIZE = 4096 };

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

/* The length of path up to and without its last slash, at least 1 for "/name"; 0 if there is none. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
}

/* prefix/name, with "${ORIGIN}" at the start of the prefix for the folder of h5; prefix NULL: name as it is. */
static bool exists(const flim_h5 *h5, const char *prefix, size_t length, const char *name, char path[PATH_SIZE],
                   struct stat *about)
{
    static const char origin[] = "${ORIGIN}";
    int made;
    if (!prefix) {
        made = snprintf(path, PATH_SIZE, "%s", name);
    } else if (length >= sizeof origin - 1 && strncmp(prefix, origin, sizeof origin - 1) == 0) {
        size_t folder = folder_length(h5->path), rest = length - (sizeof origin - 1);
        made = snprintf(path, PATH_SIZE, "%.*s%.*s/%s", folder ? (int)folder : 1, folder ? h5->path : ".", (int)rest,
                        prefix + sizeof origin - 1, name);
    } else {
        made = snprintf(path, PATH_SIZE, "%.*s/%s", (int)length, prefix, name);
    }
    return made > 0 && made < PATH_SIZE && stat(path, about) == 0 && S_ISREG(about->st_mode);
}

/* A file by the name that h5 has for it, looked for where HDF5 looks; variable: the environment's prefix for such files;
 * beside: HDF5 looks beside h5, too. */
static bool find_file(const flim_h5 *h5, const char *name, const char *variable, bool beside, char path[PATH_SIZE],
                      struct stat *about)
{
    const char *prefix = getenv(variable), *base = strrchr(name, '/');
    if (name[0] == '/') {
        if (exists(h5, NULL, 0, name, path, about)) {
            return true;
        }
        if (!beside) {
            return false;
        }
        name = base + 1; /* as for a folder that was moved */
    }
    return (prefix && prefix[0] && exists(h5, prefix, strlen(prefix), name, path, about)) ||
           (beside && folder_length(h5->path) && exists(h5, h5->path, folder_length(h5->path), name, path, about)) ||
           exists(h5, NULL, 0, name, path, about);
}

/* The file's data lies elsewhere, too: what may be read from it is more. */
static void count_outside(flim_h5 *h5, const struct stat *about)
{
    h5->outside = h5->outside > INT64_MAX - about->st_size ? INT64_MAX : h5->outside + about->st_size;
}

static flim_status check_external(flim_h5 *h5, const char *name, hid_t dataset, hid_t dcpl, flim_error *err)
{
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    hssize_t points = space >= 0 ? H5Sget_simple_extent_npoints(space) : 0;
    size_t size = type >= 0 ? H5Tget_size(type) : 0;
    uint64_t left = points > 0 && size && (uint64_t)points <= UINT64_MAX / size ? (uint64_t)points * size : 0;
    int n = H5Pget_external_count(dcpl);
    flim_status status = FLIM_OK;
    for (int i = 0; i < n && left > 0 && status == FLIM_OK; i++) {
        char stored[PATH_SIZE] = "", path[PATH_SIZE];
        off_t offset = 0;
        hsize_t bytes = 0;
        struct stat about;
        H5Pget_external(dcpl, (unsigned)i, sizeof stored - 1, stored, &offset, &bytes);
        uint64_t need = bytes == H5F_UNLIMITED || bytes > left ? left : bytes;
        if (!find_file(h5, stored, "HDF5_EXTFILE_PREFIX", false, path, &about)) {
            status =
                flim_fail(err, FLIM_ERROR_DATA,
                          "%s: /%s lies in the file %s, which is not there; start the program in the folder where it was "
                          "written, or set HDF5_EXTFILE_PREFIX to the folder of that file",
                          h5->path, name, stored);
        } else if (offset < 0 || need > INT64_MAX - (uint64_t)offset || (uint64_t)about.st_size < (uint64_t)offset + need) {
            status = flim_fail(err, FLIM_ERROR_DATA,
                               "%s: /%s lies in the file %s, which is cut short: it has %lld bytes, %" PRIu64
                               " are needed; was the copy incomplete?",
                               h5->path, name, path, (long long)about.st_size, (uint64_t)offset + need);
        } else {
            count_outside(h5, &about);
        }
        left -= need;
    }
    if (type >= 0) {
        H5Tclose(type);
    }
    if (space >= 0) {
        H5Sclose(space);
    }
    return status;
}

/* One source of a virtual dataset: the file and the dataset in it. */
static flim_status check_source(flim_h5 *h5, const char *name, const char *file_name, const char *source, flim_error *err)
{
    char path[PATH_SIZE];
    struct stat about;
    hid_t file = h5->file;
    bool own = strcmp(file_name, ".") == 0;
    if (!own && !find_file(h5, file_name, "HDF5_VDS_PREFIX", true, path, &about)) {
        return flim_fail(
            err, FLIM_ERROR_DATA,
            "%s: /%s is a view of other files, and its source %s is not there; HDF5 would read fill values for it", h5->path,
            name, file_name);
    }
    if (!own) {
        count_outside(h5, &about);
        file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    }
    hid_t dataset = file >= 0 ? H5Dopen2(file, source, H5P_DEFAULT) : -1;
    flim_status status = FLIM_OK;
    if (dataset < 0) {
        char reason[512];
        flim_h5_reason(reason, sizeof reason);
        status = flim_fail(err, FLIM_ERROR_DATA,
                           "%s: /%s is a view of other files, and its source %s in %s cannot be opened: %s; HDF5 would read "
                           "fill values for it",
                           h5->path, name, source, own ? "the same file" : path, reason);
    } else {
        H5Dclose(dataset);
    }
    if (!own && file >= 0) {
        H5Fclose(file);
    }
    return status;
}

static flim_status check_virtual(flim_h5 *h5, const char *name, hid_t dcpl, flim_error *err)
{
    char file[2][PATH_SIZE] = {"", ""}, source[2][PATH_SIZE] = {"", ""};
    size_t n = 0;
    H5Pget_virtual_count(dcpl, &n);
    for (size_t i = 0; i < n; i++) {
        char *now_file = file[i % 2], *now_source = source[i % 2]; /* the other ones are those of the mapping before */
        if (H5Pget_virtual_filename(dcpl, i, now_file, PATH_SIZE) < 0 ||
            H5Pget_virtual_dsetname(dcpl, i, now_source, PATH_SIZE) < 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: source %zu of its view cannot be read", h5->path, name, i);
        }
        if (strchr(now_file, '%') || strchr(now_source, '%')) {
            continue; /* a pattern: any number of sources, also none, is right */
        }
        if (i == 0 || strcmp(now_file, file[(i + 1) % 2]) != 0 || strcmp(now_source, source[(i + 1) % 2]) != 0) {
            FLIM_TRY(check_source(h5, name, now_file, now_source, err));
        }
    }
    return FLIM_OK;
}

bool flim_h5_is_own(flim_h5 *h5, hid_t dataset)
{
    char own[PATH_SIZE] = "", its[PATH_SIZE] = "";
    return H5Fget_name(h5->file, own, sizeof own) > 0 && H5Fget_name(dataset, its, sizeof its) > 0 && strcmp(own, its) == 0;
}

flim_status flim_h5_check_storage(flim_h5 *h5, const char *name, hid_t dataset, flim_error *err)
{
    hid_t dcpl = H5Dget_create_plist(dataset);
    H5D_layout_t layout = dcpl >= 0 ? H5Pget_layout(dcpl) : H5D_LAYOUT_ERROR;
    struct stat about;
    char path[PATH_SIZE] = "";
    if (dcpl < 0 || H5Pget_nfilters(dcpl) < 0) {
        char reason[512];
        flim_h5_reason(reason, sizeof reason);
        return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cannot read how it is stored: %s", h5->path, name, reason);
    }
    if (!flim_h5_is_own(h5, dataset) && H5Fget_name(dataset, path, sizeof path) > 0 && stat(path, &about) == 0) {
        count_outside(h5, &about); /* through an external link */
    }
    flim_status status;
    FLIM_TRY_DONE(check_filters(h5, name, dcpl, err));
    if (layout == H5D_CONTIGUOUS) {
        FLIM_TRY_DONE(check_external(h5, name, dataset, dcpl, err));
    } else if (layout == H5D_VIRTUAL) {
        FLIM_TRY_DONE(check_virtual(h5, name, dcpl, err));
    }
done:
    H5Pclose(dcpl);
    return status;
}

#include "data/hdf5/hdf5_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "flim/dataset.h"

/* The one lock around HDF5: the library's state is global, so its lock has to be. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static herr_t log_entry(unsigned n, const H5E_error2_t *error, void *data)
{
    const flim_log *log = data;
    const char *file = strrchr(error->file_name, '/');
    flim_log_line(log, FLIM_LOG_NOTE, "HDF5 #%u %s line %u in %s(): %s", n, file ? file + 1 : error->file_name, error->line,
                  error->func_name, error->desc && error->desc[0] ? error->desc : "no description");
    return 0;
}

/* Called by HDF5 when one of its functions fails. */
static herr_t log_stack(hid_t stack, void *data)
{
    return H5Ewalk2(stack, H5E_WALK_DOWNWARD, log_entry, data);
}

flim_h5_guard flim_h5_enter(flim_h5 *h5)
{
    flim_h5_guard guard = {NULL, NULL};
    pthread_mutex_lock(&lock);
    /* The error stack belongs to the thread (or, without thread safety, to the process): silenced or logged here, restored at
     * leave, so that a program that uses HDF5 itself keeps its setting. */
    H5Eget_auto2(H5E_DEFAULT, &guard.function, &guard.data);
    if (h5 && h5->errors.line) {
        H5Eset_auto2(H5E_DEFAULT, log_stack, &h5->errors);
    } else {
        H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    }
    return guard;
}

void flim_h5_leave(flim_h5_guard guard)
{
    H5Eset_auto2(H5E_DEFAULT, guard.function, guard.data);
    pthread_mutex_unlock(&lock);
}

static herr_t innermost(unsigned n, const H5E_error2_t *error, void *data)
{
    const char **text = data;
    if (n == 0) {
        *text = error->desc;
    }
    return 0;
}

void flim_h5_reason(char *text, size_t size)
{
    const char *reason = NULL;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, &reason);
    snprintf(text, size, "%s", reason && *reason ? reason : "no reason given");
}

void flim_hdf5_version(char out[32])
{
    unsigned major = 0, minor = 0, release = 0;
    flim_h5_guard guard = flim_h5_enter(NULL);
    H5get_libversion(&major, &minor, &release);
    flim_h5_leave(guard);
    snprintf(out, 32, "%u.%u.%u", major, minor, release);
}

bool flim_h5_thread_safe(void)
{
    hbool_t safe = 0;
    flim_h5_guard guard = flim_h5_enter(NULL);
    H5is_library_threadsafe(&safe);
    flim_h5_leave(guard);
    return safe;
}

int flim_h5_fork(void)
{
    pthread_mutex_lock(&lock);
    pid_t child = fork();
    pthread_mutex_unlock(&lock); /* in both processes: the child's copy belongs to its only thread */
    return child;
}

/* ---- opening */

/* Says why HDF5 would not open the file, with the remedy. */
static flim_status explain_open(const flim_h5 *h5, flim_error *err)
{
    char reason[512];
    flim_h5_reason(reason, sizeof reason);
    unsigned long long eof = 0, base = 0, stored = 0;
    const char *truncated = strstr(reason, "truncated file");
    if (truncated && sscanf(truncated, "truncated file: eof = %llu, sblock->base_addr = %llu, stored_eof = %llu", &eof, &base,
                            &stored) == 3) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: the file is cut short: it has %lld bytes, its header says %llu; was the copy incomplete?",
                         h5->path, (long long)h5->size, base + stored);
    }
    if (strstr(reason, "lock file")) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: cannot lock the file: another program has it open for writing (%s); close that program, or, if "
                         "none has it open, set HDF5_USE_FILE_LOCKING=FALSE in the environment",
                         h5->path, reason);
    }
    if (strstr(reason, "already open for write") || strstr(reason, "consistency flags") || strstr(reason, "SWMR")) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: the file is open for writing, or its writer was killed before closing it (%s); end the writer, "
                         "or, if there is none, run `h5clear -s` on a copy of the file and use the copy",
                         h5->path, reason);
    }
    return flim_fail(err, FLIM_ERROR_DATA, "%s: HDF5 cannot open the file: %s; it may be damaged", h5->path, reason);
}

/* Opens with locking, and without it where the file system has no locks (NFS, Lustre and read-only media say so with errno
 * 524, 37, 38, 95 or 30): another program's lock is errno 11 and stays an error. */
static hid_t open_file(const char *path, const flim_log *log)
{
    hid_t file = -1, fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl < 0) {
        return -1;
    }
    file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
    if (file < 0) {
        char reason[512];
        flim_h5_reason(reason, sizeof reason);
        int number = 0;
        const char *at = strstr(reason, "errno = ");
        if (strstr(reason, "lock file") && at && sscanf(at, "errno = %d", &number) == 1 && number != EAGAIN &&
            H5Pset_file_locking(fapl, 0, 1) >= 0) {
            file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
            if (file >= 0) {
                flim_log_line(log, FLIM_LOG_NOTE, "%s: the file system has no locks (errno %d); the file is read without one",
                              path, number);
            }
        }
    }
#else
    (void)log;
#endif
    if (file >= 0) {
        H5Pclose(fapl);
    } else {
        /* H5Pclose would clear the error stack that the caller is about to read. */
        hid_t keep = H5Eget_current_stack();
        H5Pclose(fapl);
        if (keep >= 0) {
            H5Eset_current_stack(keep);
        }
    }
    return file;
}

flim_status flim_h5_open(const char *path, const flim_log *log, const flim_log *errors, flim_h5 **out, flim_error *err)
{
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    flim_status status = FLIM_OK;
    *out = NULL;
    flim_h5 *h5 = flim_alloc(1, sizeof *h5, err);
    if (!h5) {
        return FLIM_ERROR_MEMORY;
    }
    h5->file = -1;
    h5->fd = -1;
    if (errors) {
        h5->errors = *errors;
    }
    struct stat about;
    if (!(h5->path = flim_strdup(path, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    if (stat(path, &about) != 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: cannot open the data file: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(about.st_mode)) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: expected an HDF5 file, found %s", path,
                           S_ISDIR(about.st_mode) ? "a directory" : "something that is no regular file");
        goto done;
    }
    h5->size = about.st_size;
    h5->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (h5->fd < 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: cannot open the data file: %s", path, strerror(errno));
        goto done;
    }
    /* The signature stands at 0 or, after a user block, at 512, 1024, 2048, ... */
    bool found = false;
    unsigned char start[8];
    for (int64_t at = 0; at + 8 <= h5->size && !found; at = at ? at * 2 : 512) {
        found = pread(h5->fd, start, 8, at) == 8 && memcmp(start, signature, 8) == 0;
    }
    if (!found) {
        status = h5->size == 0
                     ? flim_fail(err, FLIM_ERROR_DATA, "%s: the file is empty (0 bytes); expected an HDF5 file", path)
                     : flim_fail(err, FLIM_ERROR_DATA, "%s: not an HDF5 file: its %lld bytes hold no HDF5 signature", path,
                                 (long long)h5->size);
        goto done;
    }
    flim_h5_guard guard = flim_h5_enter(h5);
    h5->file = open_file(path, log);
    if (h5->file < 0) {
        status = explain_open(h5, err);
    } else {
        hid_t fcpl = H5Fget_create_plist(h5->file);
        hsize_t block = 1;
        h5->addresses = fcpl >= 0 && H5Pget_userblock(fcpl, &block) >= 0 && block == 0;
        if (fcpl >= 0) {
            H5Pclose(fcpl);
        }
    }
    flim_h5_leave(guard);
done:
    if (status == FLIM_OK) {
        *out = h5;
    } else {
        flim_h5_close(h5);
    }
    return status;
}

void flim_h5_close(flim_h5 *h5)
{
    if (!h5) {
        return;
    }
    if (h5->file >= 0) {
        flim_h5_guard guard = flim_h5_enter(h5);
        H5Fclose(h5->file);
        flim_h5_leave(guard);
    }
    if (h5->fd >= 0) {
        close(h5->fd);
    }
    flim_free(h5->path);
    flim_free(h5);
}

int64_t flim_h5_limit(const flim_h5 *h5)
{
    const int64_t base = 16 << 20, most = (INT64_MAX - base) / 1100;
    return h5->size > most || h5->outside > most - h5->size ? INT64_MAX : (h5->size + h5->outside) * 1100 + base;
}

int64_t flim_h5_size(const flim_h5 *h5)
{
    return h5->size;
}

flim_status flim_h5_check_bytes(const flim_h5 *h5, const char *name, int64_t count, size_t size, flim_error *err)
{
    if (count < 0 || (size && count > flim_h5_limit(h5) / (int64_t)size)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /%s: the file says %lld x %zu bytes, more than a file of %lld bytes can hold; it is damaged",
                         h5->path, name, (long long)count, size, (long long)h5->size);
    }
    return FLIM_OK;
}

/* ---- describing */

/* h5py's and pandas' bool: an enum of FALSE and TRUE. */
static bool is_bool(hid_t type)
{
    bool named = H5Tget_nmembers(type) == 2;
    for (unsigned i = 0; i < 2 && named; i++) {
        char *name = H5Tget_member_name(type, i);
        named = name && strcmp(name, i ? "TRUE" : "FALSE") == 0;
        H5free_memory(name);
    }
    return named;
}

void flim_h5_type_name(hid_t type, bool brief, char *text, size_t size)
{
    size_t bytes = H5Tget_size(type);
    H5T_class_t class = H5Tget_class(type);
    H5T_order_t order = H5Tget_order(type);
    const char *tail = brief || bytes < 2      ? ""
                       : order == H5T_ORDER_LE ? " little-endian"
                       : order == H5T_ORDER_BE ? " big-endian"
                                               : "";
    switch (class) {
    case H5T_INTEGER:
        snprintf(text, size, "%sint%zu%s", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", 8 * bytes, tail);
        return;
    case H5T_FLOAT: snprintf(text, size, "float%zu%s", 8 * bytes, tail); return;
    case H5T_STRING:
        if (H5Tis_variable_str(type) > 0) {
            snprintf(text, size, "string");
        } else {
            snprintf(text, size, "string of %zu bytes", bytes);
        }
        return;
    case H5T_ENUM:
        if (is_bool(type)) {
            snprintf(text, size, "bool");
        } else {
            snprintf(text, size, "enum (%zu byte%s)", bytes, bytes == 1 ? "" : "s");
        }
        return;
    case H5T_COMPOUND: snprintf(text, size, "compound"); return;
    case H5T_VLEN: snprintf(text, size, "variable-length list"); return;
    case H5T_ARRAY: snprintf(text, size, "array"); return;
    case H5T_BITFIELD: snprintf(text, size, "bitfield of %zu bytes%s", bytes, tail); return;
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
        if (space >= 0) {
            H5Sclose(space);
        }
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

/* ---- finding objects */

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
        snprintf(text, size, "the file holds no objects");
        return;
    }
    int n = 0;
    int length = snprintf(text, size, "the file holds ");
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
    if (space >= 0) {
        H5Sclose(space);
    }
    if (class != H5S_SIMPLE && class != H5S_SCALAR) {
        flim_h5_describe(object, found, sizeof found);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: found %s, expected %s", h5->path, name, found, expected);
        goto done;
    }
    if ((status = flim_h5_check_storage(h5, name, object, err)) != FLIM_OK) {
        goto done;
    }
    /* Closed first: handles of one dataset share their chunk cache, as the first of them has it. */
    H5Oclose(object);
    object = -1;
    *out = H5Dopen2(h5->file, name, dapl);
    if (*out < 0) {
        flim_h5_reason(reason, sizeof reason);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s cannot be opened: %s", h5->path, name, reason);
    }
done:
    if (object >= 0) {
        H5Oclose(object);
    }
    return status;
}

bool flim_h5_has(flim_h5 *h5, const char *name)
{
    flim_h5_guard guard = flim_h5_enter(h5);
    bool found = H5Lexists(h5->file, name, H5P_DEFAULT) > 0;
    flim_h5_leave(guard);
    return found;
}

void flim_h5_similar(flim_h5 *h5, const char *name, char *dataset, char *attribute, size_t size)
{
    flim_h5_guard guard = flim_h5_enter(h5);
    other_name(h5, name, dataset, size);
    attribute_name(h5, name, attribute, size);
    flim_h5_leave(guard);
}

void flim_h5_others(flim_h5 *h5, char *text, size_t size)
{
    static const char *const ours[] = {"counts", "label", "group", "mask", "name"};
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

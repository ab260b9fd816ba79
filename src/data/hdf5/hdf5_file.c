#include "data/hdf5/hdf5_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/hdf5_signature.h"
#include "core/try.h"
#include "data/file_kind.h"
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

void flim_h5_drop(hid_t id)
{
    switch (id >= 0 ? H5Iget_type(id) : H5I_BADID) {
    case H5I_FILE: H5Fclose(id); break;
    case H5I_GROUP: H5Gclose(id); break;
    case H5I_DATASET: H5Dclose(id); break;
    case H5I_DATASPACE: H5Sclose(id); break;
    case H5I_DATATYPE: H5Tclose(id); break;
    case H5I_ATTR: H5Aclose(id); break;
    case H5I_GENPROP_LST: H5Pclose(id); break;
    default: break;
    }
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

/* The innermost entry; but of a link into another file, the one that names the file, which HDF5 1.14 has further out. */
static herr_t innermost(unsigned n, const H5E_error2_t *error, void *data)
{
    const char **text = data;
    if (n == 0 || (error->desc && strstr(error->desc, "external link file name"))) {
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

/* ---- files that cannot be opened */

/* "%s: this process may have 1024 files open at once ..." */
static flim_status too_many_files(const char *path, int number, flim_error *err)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return flim_fail(
        err, FLIM_ERROR_DATA,
        "%s: too many open files%s: this process may have %llu open at once, and each data file or source of a "
        "view takes one or two; raise the limit, for example ulimit -n 65536 (as far as the hard limit, ulimit -Hn), "
        "or join the files with flim_repack",
        path, number == ENFILE ? " on this machine" : "", (unsigned long long)limit.rlim_cur);
}

bool flim_h5_explain(const flim_h5 *h5, const char *name, flim_error *err)
{
    if (h5->watch.refused[0]) {
        flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: %s", h5->path, name, h5->watch.refused);
        return true;
    }
    if (h5->watch.error == EMFILE || h5->watch.error == ENFILE) {
        too_many_files(h5->path, h5->watch.error, err);
        return true;
    }
    return false;
}

herr_t flim_h5_read_values(flim_h5 *h5, hid_t dataset, hid_t type, hid_t memory, hid_t file, hid_t transfer, void *values)
{
    h5->watch.lost[0] = '\0';
    h5->watch.error = 0;
    const herr_t read = H5Dread(dataset, type, memory, file, transfer, values);
    return h5->watch.lost[0] ? -1 : read;
}

/* ---- opening */

/* Says why HDF5 would not open the file, with the remedy. */
static flim_status explain_open(const flim_h5 *h5, flim_error *err)
{
    char reason[512];
    flim_h5_reason(reason, sizeof reason);
    if (h5->watch.error == EMFILE || h5->watch.error == ENFILE) {
        return too_many_files(h5->path, h5->watch.error, err);
    }
    if (h5->watch.error == ENOMEM) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "%s: out of host memory while the file was opened", h5->path);
    }
    unsigned long long eof = 0, base = 0, stored = 0;
    const char *truncated = strstr(reason, "truncated file");
    if (truncated && sscanf(truncated, "truncated file: eof = %llu, sblock->base_addr = %llu, stored_eof = %llu", &eof, &base,
                            &stored) == 3) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: the file is cut short: it has %lld bytes, its header says %llu; was the copy incomplete?",
                         h5->path, (long long)h5->size, base + stored);
    }
    if (h5->watch.locking) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: cannot lock the file: another program has it open for writing (%s); close that program, or, if "
                         "none has it open, set HDF5_USE_FILE_LOCKING=FALSE in the environment",
                         h5->path, strerror(h5->watch.error));
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
static hid_t open_file(flim_h5 *h5, const flim_log *log)
{
    const char *path = h5->path;
    hid_t file = -1, fapl = h5->access = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl < 0 || (h5->driver = flim_h5_read_driver_use(fapl, &h5->watch)) < 0) {
        return -1;
    }
    file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
    if (file < 0) {
        const int number = h5->watch.error;
        if (h5->watch.locking && number != EAGAIN && H5Pset_file_locking(fapl, 0, 1) >= 0) {
            h5->watch.locking = false;
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
    return file;
}

/* The file as bytes: a regular one that begins as HDF5 does. */
static flim_status open_bytes(flim_h5 *h5, const char *path, flim_error *err)
{
    struct stat about;
    if (stat(path, &about) != 0) {
        return flim_fail(
            err, FLIM_ERROR_DATA, "%s: cannot open the data file: %s%s", path, strerror(errno),
            errno == ENOENT ? " (flim_simulate --out FILE makes one to try, flim_import one from instrument files)" : "");
    }
    char kind[256] = "something that is no regular file";
    if (S_ISDIR(about.st_mode)) {
        flim_folder_kind(path, kind, sizeof kind);
    }
    if (!S_ISREG(about.st_mode)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: expected an HDF5 file, found %s", path, kind);
    }
    h5->size = about.st_size;
    h5->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (h5->fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        return too_many_files(path, errno, err);
    }
    if (h5->fd < 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: cannot open the data file: %s", path, strerror(errno));
    }
    if (h5->size == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: the file is empty (0 bytes); expected an HDF5 file", path);
    }
    if (flim_hdf5_signature(h5->fd) >= 0) {
        return FLIM_OK;
    }
    uint8_t start[FLIM_FILE_KIND_BYTES];
    const ssize_t count = pread(h5->fd, start, sizeof start, 0);
    const bool known = flim_file_kind(start, count > 0 ? (size_t)count : 0, kind, sizeof kind);
    return flim_fail(err, FLIM_ERROR_DATA, "%s: not an HDF5 file (no HDF5 signature in %lld bytes)%s%s", path,
                     (long long)h5->size, known ? "; " : "", kind);
}

flim_status flim_h5_open(const char *path, const flim_source_options *options, flim_h5 **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    *out = NULL;
    flim_h5 *h5 = flim_alloc(1, sizeof *h5, err);
    if (!h5) {
        return FLIM_ERROR_MEMORY;
    }
    h5->file = -1;
    h5->access = h5->driver = -1;
    h5->fd = -1;
    h5->stop = options->stop;
    h5->first_look = options->first_look;
    if (options->errors) {
        h5->errors = *options->errors;
    }
    if (!(h5->path = flim_strdup(path, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    h5->watch = (flim_h5_watch){.path = h5->path, .allow_external = options->allow_external};
    FLIM_TRY_DONE(open_bytes(h5, path, err));
    flim_h5_guard guard = flim_h5_enter(h5);
    h5->file = open_file(h5, options->log);
    if (h5->file < 0) {
        status = explain_open(h5, err);
    } else {
        hid_t fcpl = H5Fget_create_plist(h5->file);
        hsize_t block = 1;
        h5->addresses = fcpl >= 0 && H5Pget_userblock(fcpl, &block) >= 0 && block == 0;
        flim_h5_drop(fcpl);
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
    flim_h5_guard guard = flim_h5_enter(h5);
    flim_h5_drop(h5->file);
    flim_h5_drop(h5->access);
    if (h5->driver >= 0) {
        H5FDunregister(h5->driver);
    }
    flim_h5_leave(guard);
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

flim_status flim_h5_check_bytes(const flim_h5 *h5, const char *name, int64_t count, size_t size, flim_error *err)
{
    if (count < 0 || (size && count > flim_h5_limit(h5) / (int64_t)size)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /%s: the file says %lld x %zu bytes, more than a file of %lld bytes can hold; it is damaged",
                         h5->path, name, (long long)count, size, (long long)h5->size);
    }
    return FLIM_OK;
}

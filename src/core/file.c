#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "core/temporary_file.h"
#include "core/try.h"

enum { MOST_LINKS = 40 };

/* ---- folders and links */

static void folder_of(const char *path, char folder[FLIM_FILE_PATH])
{
    snprintf(folder, FLIM_FILE_PATH, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash) {
        snprintf(folder, FLIM_FILE_PATH, ".");
        return;
    }
    slash[slash == folder ? 1 : 0] = '\0';
}

static flim_status cannot_write(const char *path, int number, flim_error *err)
{
    char folder[FLIM_FILE_PATH];
    struct stat about;
    if (number == ENOENT && strlen(path) < sizeof folder) {
        folder_of(path, folder);
        if (stat(folder, &about) != 0 && errno == ENOENT) {
            return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: there is no folder %s", path, folder);
        }
    }
    return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", path, strerror(number));
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* fsync, so that renames in it last. */
static flim_status sync_folder(const char *path, flim_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return cannot_write(path, errno, err);
    }
    /* Some file systems (FUSE, CIFS) cannot sync a folder and say EINVAL: there rename is all there is. */
    int number = fsync(fd) != 0 ? errno : 0;
    close(fd);
    return number && number != EINVAL && number != ENOSYS ? cannot_write(path, number, err) : FLIM_OK;
}

static flim_status sync_folder_of(const char *path, flim_error *err)
{
    char folder[FLIM_FILE_PATH];
    folder_of(path, folder);
    return sync_folder(folder, err);
}

flim_status flim_path_in(const char *folder, const char *name, char out[FLIM_FILE_PATH], flim_error *err)
{
    const int length = snprintf(out, FLIM_FILE_PATH, "%s/%s", folder, name);
    return length > 0 && length < FLIM_FILE_PATH ? FLIM_OK
                                                 : flim_fail(err, FLIM_ERROR_DATA, "the path %.100s... is too long", folder);
}

flim_status flim_file_target(const char *path, char out[FLIM_FILE_PATH], flim_error *err)
{
    char link[FLIM_FILE_PATH], next[2 * FLIM_FILE_PATH], folder[FLIM_FILE_PATH];
    if (strlen(path) >= FLIM_FILE_PATH) {
        return cannot_write(path, ENAMETOOLONG, err);
    }
    snprintf(out, FLIM_FILE_PATH, "%s", path);
    for (int i = 0; i < MOST_LINKS; i++) {
        struct stat about;
        if (lstat(out, &about) != 0 || !S_ISLNK(about.st_mode)) {
            return FLIM_OK;
        }
        ssize_t length = readlink(out, link, sizeof link - 1);
        if (length < 0) {
            return cannot_write(path, errno, err);
        }
        link[length] = '\0';
        if (stat(out, &about) == 0 && !S_ISREG(about.st_mode)) {
            return FLIM_OK; /* a pipe behind /proc/self/fd has no other path */
        }
        folder_of(out, folder);
        int wrote = snprintf(next, sizeof next, "%s%s%s", link[0] == '/' ? "" : folder, link[0] == '/' ? "" : "/", link);
        if (wrote < 0 || wrote >= FLIM_FILE_PATH) {
            return cannot_write(path, ENAMETOOLONG, err);
        }
        snprintf(out, FLIM_FILE_PATH, "%.*s", FLIM_FILE_PATH - 1, next);
    }
    return cannot_write(path, ELOOP, err);
}

/* ---- targets that are written into */

/* The descriptor among standard output and error that is this file, or -1. */
static int standard_descriptor(const struct stat *about)
{
    struct stat own;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fstat(fd, &own) == 0 && own.st_dev == about->st_dev && own.st_ino == about->st_ino) {
            return fd;
        }
    }
    return -1;
}

bool flim_file_is_standard_output(const char *path)
{
    struct stat about, own;
    return strcmp(path, "-") == 0 || (stat(path, &about) == 0 && fstat(STDOUT_FILENO, &own) == 0 &&
                                      about.st_dev == own.st_dev && about.st_ino == own.st_ino && !S_ISCHR(about.st_mode));
}

/* Opens what is no regular file, or is an open stream of ours, for writing.  A pipe's reader is waited for. */
static flim_status open_special(const flim_file_writer *writer, int *out, flim_error *err)
{
    struct stat about;
    const bool dash = strcmp(writer->path, "-") == 0;
    const int own = dash ? STDOUT_FILENO : stat(writer->target, &about) == 0 ? standard_descriptor(&about) : -1;
    if (own >= 0) {
        fflush(own == STDOUT_FILENO ? stdout : stderr);
        *out = fcntl(own, F_DUPFD_CLOEXEC, 3);
        return *out >= 0 ? FLIM_OK : cannot_write(writer->path, errno, err);
    }
    const struct timespec pause = {.tv_nsec = 20000000};
    for (;;) {
        *out = open(writer->target, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (*out >= 0) {
            const int flags = fcntl(*out, F_GETFL);
            fcntl(*out, F_SETFL, flags & ~O_NONBLOCK);
            return FLIM_OK;
        }
        if (errno != ENXIO || stat(writer->target, &about) != 0 || !S_ISFIFO(about.st_mode)) {
            return cannot_write(writer->path, errno, err);
        }
        if (flim_stopped(writer->stop)) {
            return flim_fail(err, FLIM_INTERRUPTED, "interrupted: the pipe is closed: %s", writer->path);
        }
        nanosleep(&pause, NULL);
    }
}

/* True for what a rename must not replace. */
static bool is_special(const char *path, const char *target)
{
    struct stat about;
    return strcmp(path, "-") == 0 ||
           (stat(target, &about) == 0 && (!S_ISREG(about.st_mode) || standard_descriptor(&about) >= 0));
}

/* Mode, group and, as far as the process may, owner of the file that is about to be replaced.  If the group cannot be kept, its
 * rights must not go to another one. */
static void keep_mode(int fd, const struct stat *old)
{
    mode_t mode = old->st_mode & 07777;
    if (fchown(fd, old->st_uid, old->st_gid) != 0 && fchown(fd, (uid_t)-1, old->st_gid) != 0) {
        mode &= ~(mode_t)070;
    }
    (void)fchmod(fd, mode);
}

/* ---- the writer */

static flim_status begin_special(flim_file_writer *writer, bool seeks, int *fd, flim_error *err)
{
    if (!seeks) {
        writer->direct = true;
        return open_special(writer, fd, err);
    }
    const char *folder = getenv("TMPDIR");
    writer->copied = true;
    *fd = flim_temporary_file(folder && folder[0] ? folder : "/tmp", "flimcv", writer->temporary);
    return *fd >= 0 ? FLIM_OK : cannot_write(writer->path, errno, err);
}

static flim_status begin_beside(flim_file_writer *writer, int *fd, flim_error *err)
{
    char folder[FLIM_FILE_PATH];
    struct stat old = {0};
    const char *name = name_of(writer->target);
    const bool there = (writer->kind == FLIM_FILE_OWN ? lstat : stat)(writer->target, &old) == 0;
    if (!name[0] || (there && S_ISDIR(old.st_mode))) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: it is a folder", writer->path);
    }
    if (there && !S_ISREG(old.st_mode) && !S_ISLNK(old.st_mode)) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: it is not a regular file", writer->path);
    }
    if (there && writer->kind == FLIM_FILE_NEW) {
        return cannot_write(writer->path, EEXIST, err);
    }
    /* A rename would replace a read-only file, too; root's access() says yes to everything. */
    if (there && writer->kind == FLIM_FILE_NAMED && (!(old.st_mode & 0222) || access(writer->target, W_OK) != 0)) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: it is read-only (chmod u+w lets it be written)",
                         writer->path);
    }
    folder_of(writer->target, folder);
    flim_sweep_temporary_files(folder, name, false);
    *fd = flim_temporary_file(folder, name, writer->temporary);
    if (*fd < 0) {
        writer->temporary[0] = '\0';
        return cannot_write(writer->path, errno, err);
    }
    if (there && S_ISREG(old.st_mode)) {
        keep_mode(*fd, &old);
    }
    return FLIM_OK;
}

flim_status flim_file_begin_kind(flim_file_writer *writer, const char *path, flim_file_kind kind, bool seeks,
                                 const volatile int *stop, flim_error *err)
{
    int fd = -1;
    *writer = (flim_file_writer){.kind = kind, .stop = stop};
    if (snprintf(writer->path, sizeof writer->path, "%s", path) >= (int)sizeof writer->path) {
        return cannot_write(path, ENAMETOOLONG, err);
    }
    if (kind == FLIM_FILE_OWN) {
        snprintf(writer->target, sizeof writer->target, "%s", path);
    } else {
        FLIM_TRY(flim_file_target(path, writer->target, err));
    }
    struct stat about;
    const bool folder = stat(writer->target, &about) == 0 && S_ISDIR(about.st_mode);
    FLIM_TRY(kind != FLIM_FILE_OWN && !folder && is_special(path, writer->target) ? begin_special(writer, seeks, &fd, err)
                                                                                  : begin_beside(writer, &fd, err));
    writer->stream = fdopen(fd, "wb");
    if (writer->stream) {
        return FLIM_OK;
    }
    const int number = errno;
    close(fd);
    if (writer->temporary[0]) {
        unlink(writer->temporary);
    }
    return cannot_write(path, number, err);
}

flim_status flim_file_begin(flim_file_writer *writer, const char *path, flim_error *err)
{
    return flim_file_begin_kind(writer, path, FLIM_FILE_OWN, false, NULL, err);
}

/* Without replacing what is there: link, which fails then; file systems without links have to do with a look. */
static int move_to_new(const char *temporary, const char *target)
{
    if (link(temporary, target) == 0) {
        unlink(temporary);
        return 0;
    }
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) {
        return errno;
    }
    if (flim_file_exists(target)) {
        return EEXIST;
    }
    return rename(temporary, target) == 0 ? 0 : errno;
}

/* The bytes of the temporary file into the device or pipe; returns an errno. */
static flim_status copy_into_special(const flim_file_writer *writer, int from, flim_error *err)
{
    char bytes[65536];
    int to = -1, number = 0;
    ssize_t got = 0;
    off_t at = 0;
    FLIM_TRY(open_special(writer, &to, err));
    while (!number && (got = pread(from, bytes, sizeof bytes, at)) > 0) {
        for (ssize_t done = 0; done < got && !number;) {
            const ssize_t wrote = write(to, bytes + done, (size_t)(got - done));
            number = wrote < 0 && errno != EINTR ? errno : 0;
            done += wrote > 0 ? wrote : 0;
        }
        at += got;
    }
    number = !number && got < 0 ? errno : number;
    number = close(to) != 0 && !number ? errno : number;
    return number ? cannot_write(writer->path, number, err) : FLIM_OK;
}

flim_status flim_file_commit(flim_file_writer *writer, flim_error *err)
{
    FILE *stream = writer->stream;
    flim_status status = FLIM_OK;
    int number = errno; /* of a write that failed, if one has */
    writer->stream = NULL;
    (void)futimens(fileno(stream), NULL); /* its lock ends before its rename: it must not look stale */
    errno = number;
    number = 0;
    if (ferror(stream) || fflush(stream) != 0 || fsync(fileno(stream)) != 0) {
        number = errno ? errno : EIO;
    }
    if (writer->direct && (number == EINVAL || number == ENOTSUP || number == EROFS)) {
        number = 0; /* pipes and many devices know no sync */
    }
    if (!number && writer->copied) {
        status = copy_into_special(writer, fileno(stream), err);
    }
    if (fclose(stream) != 0 && !number) {
        number = errno;
    }
    if (!number && !writer->direct && !writer->copied) {
        number = writer->kind == FLIM_FILE_NEW                    ? move_to_new(writer->temporary, writer->target)
                 : rename(writer->temporary, writer->target) != 0 ? errno
                                                                  : 0;
    }
    if (writer->temporary[0] && (number || writer->copied)) {
        unlink(writer->temporary);
    }
    if (number) {
        return cannot_write(writer->path, number, err);
    }
    return writer->direct || writer->copied ? status : sync_folder_of(writer->target, err);
}

void flim_file_abandon(flim_file_writer *writer)
{
    if (writer->stream) {
        fclose(writer->stream);
        writer->stream = NULL;
        if (writer->temporary[0]) {
            unlink(writer->temporary);
        }
    }
}

flim_status flim_file_write(const char *path, const void *bytes, size_t count, flim_error *err)
{
    flim_file_writer writer;
    FLIM_TRY(flim_file_begin(&writer, path, err));
    fwrite(bytes, 1, count, writer.stream); /* commit sees the stream's error */
    return flim_file_commit(&writer, err);
}

flim_status flim_file_write_new(const char *path, const void *bytes, size_t count, mode_t mode, bool *exists, flim_error *err)
{
    flim_file_writer writer;
    struct stat about;
    *exists = lstat(path, &about) == 0;
    if (*exists) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_file_begin_kind(&writer, path, FLIM_FILE_NEW, false, NULL, err));
    (void)fchmod(fileno(writer.stream), mode);
    fwrite(bytes, 1, count, writer.stream);
    return flim_file_commit(&writer, err);
}

flim_status flim_file_rotate(const char *next, const char *path, const char *previous, flim_error *err)
{
    const bool moved = rename(path, previous) == 0;
    int number = moved || errno == ENOENT ? 0 : errno;
    if (!number && rename(next, path) != 0) {
        number = errno;
        if (moved) {
            (void)rename(previous, path); /* as it was, if that still can be */
        }
    }
    if (number) {
        unlink(next);
        return cannot_write(path, number, err);
    }
    return sync_folder_of(path, err);
}

flim_status flim_file_open_own(const char *path, int flags, int *out, flim_error *err)
{
    struct stat about;
    *out = open(path, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (*out < 0) {
        return errno == ELOOP
                   ? flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: it is a link, and no file of a run is one", path)
                   : cannot_write(path, errno, err);
    }
    if (fstat(*out, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(*out);
        *out = -1;
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: it is not a regular file", path);
    }
    return FLIM_OK;
}

/* ---- reading */

flim_status flim_file_open(const char *path, FILE **out, flim_error *err)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    *out = fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? fdopen(fd, "rb") : NULL;
    if (*out) {
        return FLIM_OK;
    }
    const int number = errno;
    if (fd < 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: %s", path, strerror(number));
    }
    close(fd);
    return flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: it is not a regular file", path);
}

flim_status flim_file_read(const char *path, size_t limit, char **bytes, size_t *count, flim_error *err)
{
    *bytes = NULL;
    *count = 0;
    flim_status status = FLIM_OK;
    char *memory = NULL;
    struct stat about;
    FILE *stream;
    FLIM_TRY(flim_file_open(path, &stream, err));
    if (fstat(fileno(stream), &about) != 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: %s", path, strerror(errno));
        goto done;
    }
    if ((size_t)about.st_size > limit) {
        status = flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: %lld bytes, more than the %zu that such a file may have",
                           path, (long long)about.st_size, limit);
        goto done;
    }
    size_t size = (size_t)about.st_size;
    memory = flim_alloc(size + 1, 1, err);
    FLIM_TRY_DONE(memory ? FLIM_OK : FLIM_ERROR_MEMORY);
    if (fread(memory, 1, size, stream) != size) {
        status = flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: it ended early", path);
        goto done;
    }
    *bytes = memory;
    *count = size;
    memory = NULL;
done:
    flim_free(memory);
    fclose(stream);
    return status;
}

flim_status flim_make_folder(const char *path, flim_error *err)
{
    char part[FLIM_FILE_PATH];
    int length = snprintf(part, sizeof part, "%s", path);
    if (length < 0 || (size_t)length >= sizeof part) {
        return cannot_write(path, ENAMETOOLONG, err);
    }
    for (char *at = part + 1;; at++) {
        if (*at != '/' && *at != '\0') {
            continue;
        }
        char end = *at;
        *at = '\0';
        struct stat about;
        if (mkdir(part, 0777) != 0 && (errno != EEXIST || stat(part, &about) != 0 || !S_ISDIR(about.st_mode))) {
            return flim_fail(err, FLIM_ERROR_WRITE, "cannot make the folder %s: %s", part,
                             errno == EEXIST ? "a file of that name exists" : strerror(errno));
        }
        *at = end;
        if (end == '\0') {
            return FLIM_OK;
        }
    }
}

flim_status flim_file_append_own(const char *path, const void *bytes, size_t count, bool *was_lost, flim_error *err)
{
    int file = -1;
    struct stat about;
    FLIM_TRY(flim_file_open_own(path, O_WRONLY | O_APPEND, &file, err));
    *was_lost = fstat(file, &about) == 0 && about.st_size == 0;
    if (*was_lost) {
        close(file);
        return FLIM_OK;
    }
    errno = ENOSPC; /* what a short write means */
    const bool written = write(file, bytes, count) == (ssize_t)count;
    const int number = errno;
    const bool closed = close(file) == 0;
    return written && closed
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", path, strerror(written ? errno : number));
}

bool flim_file_exists(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0;
}

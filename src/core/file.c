#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/try.h"

static flim_status cannot_write(const char *path, int number, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", path, strerror(number));
}

flim_status flim_file_begin(flim_file_writer *writer, const char *path, flim_error *err)
{
    *writer = (flim_file_writer){0};
    int length = snprintf(writer->path, sizeof writer->path, "%s", path);
    int temporary = snprintf(writer->temporary, sizeof writer->temporary, "%s.tmp", path);
    if (length < 0 || temporary < 0 || (size_t)temporary >= sizeof writer->temporary) {
        return cannot_write(path, ENAMETOOLONG, err);
    }
    writer->stream = fopen(writer->temporary, "wb");
    return writer->stream ? FLIM_OK : cannot_write(path, errno, err);
}

flim_status flim_sync_folder(const char *path, flim_error *err)
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
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash) {
        return flim_sync_folder(".", err);
    }
    slash[slash == folder ? 1 : 0] = '\0';
    return flim_sync_folder(folder, err);
}

/* What commit and replace share: `temporary` is closed and synced when `number` is 0, else its errno. */
static flim_status move_into_place(const char *temporary, const char *path, int number, flim_error *err)
{
    if (!number && rename(temporary, path) != 0) {
        number = errno;
    }
    if (number) {
        unlink(temporary);
        return cannot_write(path, number, err);
    }
    return sync_folder_of(path, err);
}

flim_status flim_file_commit(flim_file_writer *writer, flim_error *err)
{
    FILE *stream = writer->stream;
    writer->stream = NULL;
    int number = 0;
    if (ferror(stream) || fflush(stream) != 0 || fsync(fileno(stream)) != 0) {
        number = errno ? errno : EIO;
    }
    if (fclose(stream) != 0 && !number) {
        number = errno;
    }
    return move_into_place(writer->temporary, writer->path, number, err);
}

flim_status flim_file_replace(const char *temporary, const char *path, flim_error *err)
{
    int fd = open(temporary, O_RDONLY | O_CLOEXEC), number = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0) {
        close(fd);
    }
    return move_into_place(temporary, path, number, err);
}

void flim_file_abandon(flim_file_writer *writer)
{
    if (writer->stream) {
        fclose(writer->stream);
        writer->stream = NULL;
        unlink(writer->temporary);
    }
}

flim_status flim_file_write(const char *path, const void *bytes, size_t count, flim_error *err)
{
    flim_file_writer writer;
    FLIM_TRY(flim_file_begin(&writer, path, err));
    fwrite(bytes, 1, count, writer.stream); /* commit sees the stream's error */
    return flim_file_commit(&writer, err);
}

flim_status flim_file_read(const char *path, size_t limit, char **bytes, size_t *count, flim_error *err)
{
    *bytes = NULL;
    *count = 0;
    flim_status status = FLIM_OK;
    char *memory = NULL;
    struct stat about;
    FILE *stream = fopen(path, "rb");
    if (!stream || fstat(fileno(stream), &about) != 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(about.st_mode)) {
        status = flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: it is not a regular file", path);
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
    if (stream) {
        fclose(stream);
    }
    return status;
}

flim_status flim_make_folder(const char *path, flim_error *err)
{
    char part[4096];
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

bool flim_file_exists(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0;
}

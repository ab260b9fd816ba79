#include "import/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/try.h"

flim_status flim_mapped_open(const char *path, flim_mapped_file *out, flim_error *err)
{
    struct stat stat;
    flim_status status = FLIM_OK;
    *out = (flim_mapped_file){.path = path};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang */
    if (fd < 0 || fstat(fd, &stat) != 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(stat.st_mode)) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: not a plain file", path);
    } else if (stat.st_size == 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: the file is empty", path);
    } else {
        void *data = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: cannot be read: %s", path, strerror(errno));
        } else {
            out->data = data;
            out->size = (size_t)stat.st_size;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

void flim_mapped_close(flim_mapped_file *file)
{
    if (file->data) {
        munmap((void *)file->data, file->size);
    }
    *file = (flim_mapped_file){0};
}

flim_status flim_mapped_check(const flim_mapped_file *file, uint64_t offset, uint64_t bytes, const char *what,
                              flim_error *err)
{
    if (offset > file->size || bytes > file->size - offset) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: %s at offset %" PRIu64 " needs %" PRIu64
                         " bytes, but the file has %zu in all: it is damaged or truncated",
                         file->path, what, offset, bytes, file->size);
    }
    return FLIM_OK;
}

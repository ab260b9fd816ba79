#include "data/hdf5/hdf5_write_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "data/hdf5/hdf5_driver.h"

/* What travels in the property list. */
typedef struct driver_info {
    int fd; /* of the file to write */
    int *error;
} driver_info;

typedef struct driver_file {
    flim_h5_driver_file open;
    int *error;
} driver_file;

static void remember(const driver_file *file, int number)
{
    if (*file->error == 0) {
        *file->error = number;
    }
}

static H5FD_t *open_file(const char *name, unsigned flags, hid_t access, haddr_t longest)
{
    (void)name;
    (void)longest;
    const driver_info *info = H5Pget_driver_info(access);
    struct stat about;
    int fd = info ? fcntl(info->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0 && (flags & H5F_ACC_TRUNC) && ftruncate(fd, 0) != 0) {
        *info->error = errno;
    }
    driver_file *file = fd >= 0 && fstat(fd, &about) == 0 ? flim_alloc(1, sizeof *file, NULL) : NULL;
    if (!file) {
        if (fd >= 0) {
            *info->error = ENOMEM;
            close(fd);
        }
        return NULL;
    }
    file->open.fd = fd;
    file->open.eof = (haddr_t)about.st_size;
    file->error = info->error;
    return &file->open.base;
}

static herr_t close_file(H5FD_t *base)
{
    driver_file *file = (driver_file *)base;
    if (close(file->open.fd) != 0) {
        remember(file, errno);
    }
    flim_free(file);
    return 0;
}

static herr_t query(const H5FD_t *base, unsigned long *features)
{
    (void)base;
    *features =
        H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static herr_t read_bytes(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size, void *buffer)
{
    (void)type;
    (void)transfer;
    const driver_file *file = (const driver_file *)base;
    const int number = flim_h5_driver_read(file->open.fd, address, buffer, size);
    if (number != 0) {
        remember(file, number);
    }
    return 0;
}

static herr_t write_bytes(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size, const void *buffer)
{
    (void)type;
    (void)transfer;
    driver_file *file = (driver_file *)base;
    const char *at = buffer;
    while (size > 0) {
        ssize_t count = pwrite(file->open.fd, at, size, (off_t)address);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            remember(file, count < 0 ? errno : EIO);
            return 0;
        }
        at += count;
        address += (haddr_t)count;
        size -= (size_t)count;
        file->open.eof = address > file->open.eof ? address : file->open.eof;
    }
    return 0;
}

static herr_t truncate_file(H5FD_t *base, hid_t transfer, hbool_t closing)
{
    (void)transfer;
    (void)closing;
    driver_file *file = (driver_file *)base;
    if (file->open.eoa != file->open.eof) {
        if (ftruncate(file->open.fd, (off_t)file->open.eoa) != 0) {
            remember(file, errno);
        }
        file->open.eof = file->open.eoa;
    }
    return 0;
}

hid_t flim_h5_write_driver_use(hid_t access, int fd, int *error)
{
    static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
        .version = H5FD_CLASS_VERSION,
        .value = (H5FD_class_value_t)510, /* 256..511 are for tests and private drivers */
#endif
        .name = "flim_write",
        .maxaddr = (haddr_t)INT64_MAX,
        .fc_degree = H5F_CLOSE_WEAK,
        .fapl_size = sizeof(driver_info),
        .open = open_file,
        .close = close_file,
        .query = query,
        .get_eoa = flim_h5_driver_get_eoa,
        .set_eoa = flim_h5_driver_set_eoa,
        .get_eof = flim_h5_driver_get_eof,
        .read = read_bytes,
        .write = write_bytes,
        .truncate = truncate_file,
        .fl_map = H5FD_FLMAP_DICHOTOMY,
    };
    return flim_h5_driver_use(&driver, access, &(driver_info){.fd = fd, .error = error});
}

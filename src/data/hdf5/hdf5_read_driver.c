#include "data/hdf5/hdf5_read_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/hdf5_signature.h"
#include "core/little_endian.h"
#include "data/hdf5/hdf5_driver.h"
#include "data/hdf5/hdf5_paths.h"

/* What travels in the property list. */
typedef struct driver_info {
    flim_h5_watch *watch;
} driver_info;

typedef struct driver_file {
    flim_h5_driver_file open;
    flim_h5_watch *watch;
    bool usual_sizes; /* addresses and lengths of 8 bytes, as all but very old files have them */
    dev_t device;
    ino_t inode;
} driver_file;

/* ---- what travels */

static void *copy_info(const void *info)
{
    const driver_info *given = info;
    driver_info *copy = flim_alloc(1, sizeof *copy, NULL);
    if (copy) {
        *copy = *given;
    } else {
        given->watch->error = ENOMEM;
    }
    return copy;
}

/* Asked for when HDF5 opens another file on behalf of this one. */
static void *get_info(H5FD_t *base)
{
    return copy_info(&(driver_info){((const driver_file *)base)->watch});
}

static herr_t free_info(void *info)
{
    flim_free(info);
    return 0;
}

/* ---- opening */

/* The superblock's sizes of addresses and lengths: both 8? */
static bool has_usual_sizes(int fd)
{
    uint8_t start[16];
    const int64_t at = flim_hdf5_signature(fd);
    return at >= 0 && pread(fd, start, sizeof start, (off_t)at) == (ssize_t)sizeof start &&
           (start[8] < 2 ? start[13] == 8 && start[14] == 8 : start[9] == 8 && start[10] == 8);
}

/* A descriptor of a regular file (which can neither wait nor act) that may be read, or -1 with errno. */
static int open_allowed(flim_h5_watch *watch, const char *name, struct stat *about)
{
    if (stat(name, about) != 0) {
        return -1;
    }
    if ((watch->main_is_open && !flim_h5_may_read(watch, name, "leads to", watch->refused, sizeof watch->refused)) ||
        !S_ISREG(about->st_mode)) {
        errno = EACCES;
        return -1;
    }
    const int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, about) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static H5FD_t *open_file(const char *name, unsigned flags, hid_t access, haddr_t longest)
{
    const driver_info *info = H5Pget_driver_info(access);
    struct stat about;
    (void)longest;
    if (!info || flags & H5F_ACC_RDWR) {
        return NULL;
    }
    flim_h5_watch *watch = info->watch;
    const int fd = open_allowed(watch, name, &about);
    if (fd < 0) {
        watch->error = errno;
        /* A name that is not there is one of several that HDF5 tries. */
        if (watch->main_is_open && errno != ENOENT && errno != ENOTDIR && !watch->lost[0]) {
            snprintf(watch->lost, sizeof watch->lost, "%s", name);
        }
        return NULL;
    }
    driver_file *file = flim_alloc(1, sizeof *file, NULL);
    if (!file) {
        watch->error = ENOMEM;
        close(fd);
        return NULL;
    }
    *file = (driver_file){.open = {.fd = fd, .eof = (haddr_t)about.st_size},
                          .watch = watch,
                          .usual_sizes = has_usual_sizes(fd),
                          .device = about.st_dev,
                          .inode = about.st_ino};
    watch->main_is_open = true;
    return &file->open.base;
}

static herr_t close_file(H5FD_t *base)
{
    close(((const flim_h5_driver_file *)base)->fd);
    flim_free(base);
    return 0;
}

/* One file that is opened twice is one for HDF5. */
static int compare(const H5FD_t *a, const H5FD_t *b)
{
    const driver_file *x = (const driver_file *)a, *y = (const driver_file *)b;
    return x->device != y->device ? (x->device > y->device ? 1 : -1) : (x->inode > y->inode) - (x->inode < y->inode);
}

static herr_t query(const H5FD_t *base, unsigned long *features)
{
    (void)base;
    *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
                H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_SUPPORTS_SWMR_IO | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

/* Called for the data file, and not where locks are switched off. */
static herr_t lock_file(H5FD_t *base, hbool_t write)
{
    const driver_file *file = (const driver_file *)base;
    if (flock(file->open.fd, (write ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
        return 0;
    }
    file->watch->error = errno;
    file->watch->locking = true;
    return -1;
}

static herr_t unlock_file(H5FD_t *base)
{
    return flock(((const flim_h5_driver_file *)base)->fd, LOCK_UN) == 0 ? 0 : -1;
}

static herr_t write_bytes(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size, const void *buffer)
{
    (void)base;
    (void)type;
    (void)transfer;
    (void)address;
    (void)size;
    (void)buffer;
    return -1; /* data files are opened for reading only */
}

/* ---- reading */

/* A global heap collection (HDF5 File Format Specification, III.E) as HDF5 reads it: `size` bytes at its address, first a guess
 * of 4096, then all of it.  Every object lies inside, and the walk over them ends. */
static bool heap_is_sound(const uint8_t *heap, size_t size, uint64_t most)
{
    enum { HEADER = 16, OBJECT = 16 };
    if (size < HEADER || memcmp(heap, "GCOL", 4) != 0 || heap[4] != 1) {
        return false;
    }
    const uint64_t whole = flim_u64_at(heap + 8);
    if (whole < 4096 || whole > most) {
        return false;
    }
    if (whole > size) {
        return true; /* HDF5 comes back for the whole */
    }
    for (uint64_t at = HEADER; at + OBJECT <= whole;) {
        const uint64_t index = flim_u16_at(heap + at), length = flim_u64_at(heap + at + 8);
        if (length > whole - at || (index == 0 && length < OBJECT)) {
            return false;
        }
        const uint64_t need = index == 0 ? length : OBJECT + (length + 7) / 8 * 8;
        if (need > whole - at) {
            return false;
        }
        at += need;
    }
    return true;
}

static herr_t read_bytes(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size, void *buffer)
{
    const driver_file *file = (const driver_file *)base;
    const haddr_t eof = file->open.eof;
    (void)transfer;
    const int number = flim_h5_driver_read(file->open.fd, address, buffer, size);
    if (number != 0) {
        file->watch->error = number;
        return -1;
    }
    return type != H5FD_MEM_GHEAP || !file->usual_sizes || heap_is_sound(buffer, size, eof > address ? eof - address : 0)
               ? 0
               : -1;
}

hid_t flim_h5_read_driver_use(hid_t access, flim_h5_watch *watch)
{
    static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
        .version = H5FD_CLASS_VERSION,
        .value = (H5FD_class_value_t)511, /* 256..511 are for tests and private drivers */
#endif
        .name = "flim_read",
        .maxaddr = (haddr_t)INT64_MAX,
        .fc_degree = H5F_CLOSE_WEAK,
        .fapl_size = sizeof(driver_info),
        .fapl_get = get_info,
        .fapl_copy = copy_info,
        .fapl_free = free_info,
        .open = open_file,
        .close = close_file,
        .cmp = compare,
        .query = query,
        .get_eoa = flim_h5_driver_get_eoa,
        .set_eoa = flim_h5_driver_set_eoa,
        .get_eof = flim_h5_driver_get_eof,
        .read = read_bytes,
        .write = write_bytes,
        .lock = lock_file,
        .unlock = unlock_file,
        .fl_map = H5FD_FLMAP_DICHOTOMY,
    };
    return flim_h5_driver_use(&driver, access, &(driver_info){.watch = watch});
}

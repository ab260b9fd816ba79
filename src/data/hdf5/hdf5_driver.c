#include "data/hdf5/hdf5_driver.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

haddr_t flim_h5_driver_get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const flim_h5_driver_file *)base)->eoa;
}

herr_t flim_h5_driver_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t address)
{
    (void)type;
    ((flim_h5_driver_file *)base)->eoa = address;
    return 0;
}

haddr_t flim_h5_driver_get_eof(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const flim_h5_driver_file *)base)->eof;
}

int flim_h5_driver_read(int fd, haddr_t from, void *buffer, size_t size)
{
    char *at = buffer;
    while (size > 0) {
        const ssize_t count = pread(fd, at, size, (off_t)from);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            const int number = count < 0 ? errno : 0;
            memset(at, 0, size);
            return number;
        }
        at += count;
        from += (haddr_t)count;
        size -= (size_t)count;
    }
    return 0;
}

hid_t flim_h5_driver_use(const H5FD_class_t *driver, hid_t access, const void *info)
{
    const hid_t id = H5FDregister(driver);
    if (id >= 0 && H5Pset_driver(access, id, info) < 0) {
        H5FDunregister(id);
        return -1;
    }
    return id;
}

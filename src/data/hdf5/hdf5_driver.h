/* What the file drivers for reading (hdf5_read_driver.h) and for writing (hdf5_write_driver.h) share. */
#ifndef FLIM_DATA_HDF5_DRIVER_H
#define FLIM_DATA_HDF5_DRIVER_H

#include <hdf5.h>

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

/* An open file; a driver's own begins with it, as HDF5's begins it. */
typedef struct flim_h5_driver_file {
    H5FD_t base;
    int fd;
    haddr_t eoa; /* end of the addresses that HDF5 knows */
    haddr_t eof; /* length of the file */
} flim_h5_driver_file;

/* For H5FD_class_t. */
haddr_t flim_h5_driver_get_eoa(const H5FD_t *base, H5FD_mem_t type);
herr_t flim_h5_driver_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t address);
haddr_t flim_h5_driver_get_eof(const H5FD_t *base, H5FD_mem_t type);

/* size bytes from `from` on; behind the end of the file, as HDF5 wants it, and after an error there are zeros.  Returns 0 or
 * the errno of the read that failed. */
int flim_h5_driver_read(int fd, haddr_t from, void *buffer, size_t size);

/* Registers the driver and puts it into a file access property list with what travels there.  Returns its id, for
 * H5FDunregister once its files are closed, or -1. */
hid_t flim_h5_driver_use(const H5FD_class_t *driver, hid_t access, const void *info);

#endif

/* An HDF5 file driver for writing whose I/O never fails as far as HDF5 can see: the first error is remembered instead.
 *
 * Why: when a disk fills up, libhdf5 (1.10.8 among others) cannot close the file, keeps it half open, and crashes in its own
 * atexit handler.  With this driver the writer learns of the error, closes in peace and removes the file.
 */
#ifndef FLIM_DATA_HDF5_WRITE_DRIVER_H
#define FLIM_DATA_HDF5_WRITE_DRIVER_H

#include <hdf5.h>

/* Registers the driver and puts it into a file access property list: whatever name HDF5 then opens, it writes to `fd`, which
 * stays the caller's.  *error must be 0 and must outlive the file; it gets the
 * errno of the first failed read, write or truncation, ENOMEM where memory ran out.  Returns the driver's id, for
 * H5FDunregister once the file is closed, or -1. */
hid_t flim_h5_write_driver_use(hid_t access, int fd, int *error);

#endif

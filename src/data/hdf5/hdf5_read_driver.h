/* An HDF5 file driver for reading: it sees every file that the library opens on behalf of a data
 * file, and every global heap before the library believes it.
 *
 * Why: a view whose source cannot be opened (no descriptor left, gone) reads as fill values, without an error; a link or a view
 * may name any file of the machine; and libhdf5 (1.10.8 among others) copies an object of a global heap as long as the heap says
 * it is, past the heap's end.
 */
#ifndef FLIM_DATA_HDF5_READ_DRIVER_H
#define FLIM_DATA_HDF5_READ_DRIVER_H

#include <hdf5.h>

#include "data/hdf5/hdf5_watch.h"

/* Registers the driver and puts it into a file access property list.  Returns its id, for H5FDunregister once the files are
 * closed, or -1. */
hid_t flim_h5_read_driver_use(hid_t access, flim_h5_watch *watch);

#endif

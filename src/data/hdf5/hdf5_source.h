/* The HDF5 format, for src/data/format.c.  Only src/data/hdf5/ includes hdf5.h.
 *
 * HDF5 holds global state and, built thread-safe or not, runs one call at a time: every function here takes one lock of ours
 * around its HDF5 calls, keeps the library from printing its error stack, and puts the reason into the error text.
 */
#ifndef FLIM_DATA_HDF5_SOURCE_H
#define FLIM_DATA_HDF5_SOURCE_H

#include "data/source.h"

extern const flim_format flim_format_hdf5;

#endif

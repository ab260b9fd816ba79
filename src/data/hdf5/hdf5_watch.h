/* What opening files on behalf of a data file may do, and what became of it. */
#ifndef FLIM_DATA_HDF5_WATCH_H
#define FLIM_DATA_HDF5_WATCH_H

#include <stdbool.h>

/* Rules for the driver (hdf5_read_driver.h), and what it saw; lives as long as the files that are open through it. */
typedef struct flim_h5_watch {
    const char *path; /* of the data file, as it was given */
    bool allow_external; /* files outside its folder may be opened, too */
    bool main_is_open;
    bool locking; /* `error` is that of a lock */
    int error; /* errno of the last file that could not be opened, locked or read; 0 = none */
    char refused[1024]; /* why a file was not opened, a whole sentence less the path; "" = none was refused */
    char lost[512]; /* the first file beside the data file that could not be opened; "" = none */
} flim_h5_watch;

#endif

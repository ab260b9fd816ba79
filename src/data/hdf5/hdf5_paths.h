/* Files that a data file names: where HDF5 looks for them, and whether they may be read.  No HDF5 calls. */
#ifndef FLIM_DATA_HDF5_PATHS_H
#define FLIM_DATA_HDF5_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "data/hdf5/hdf5_watch.h"

enum { FLIM_H5_PATH = 4096 };

/* The one rule: a file that a data file names (external storage, an external link, a source of a view) may be read if it is a
 * regular file inside the data file's folder (as it was given, or where links lead), or if the caller allows every file.
 * False: text gets why and what to do, `how` being what the data file does with it ("its /counts lies in"). */
bool flim_h5_may_read(const flim_h5_watch *watch, const char *path, const char *how, char *text, size_t size);

/* A regular file by the name that the file `from` has for it, looked for where HDF5 looks; variable: the environment's prefixes
 * for such files, set apart by colons if `several`; beside: HDF5 looks beside `from`, too. */
bool flim_h5_find_file(const char *from, const char *name, const char *variable, bool several, bool beside,
                       char path[FLIM_H5_PATH], struct stat *about);

#endif

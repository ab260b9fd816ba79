/* Names made of paths.  What is returned is the caller's (flim_free); NULL when out of memory. */
#ifndef FLIM_IMPORT_FILE_NAMES_H
#define FLIM_IMPORT_FILE_NAMES_H

#include "flim/status.h"

const char *flim_path_base(const char *path); /* what follows the last slash; within path */
char *flim_path_stem(const char *path, flim_error *err); /* the same without its ending */
char *flim_path_folder(const char *path,
                       flim_error *err); /* the name of the folder that it is in, that of the disk for "." and ".." */

/* The path that a pattern means for a file: "*" stands for the file's stem, and what does not begin with a slash is in the file's
 * folder; a pattern without "*" is a path as it is. */
char *flim_path_beside(const char *path, const char *pattern, flim_error *err);

#endif

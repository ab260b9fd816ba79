/* The files of an import: those named, and those of folders. */
#ifndef FLIM_IMPORT_FILE_LIST_H
#define FLIM_IMPORT_FILE_LIST_H

#include "flim/string_list.h"

/* Adds to *out each path that is a file, and of each folder its files and those of the folders below, sorted by their bytes
 * with numbers by value (cell_2 before cell_10).  Names that begin with a dot are left out, links are followed, no deeper
 * than 32 folders.  FLIM_ERROR_DATA for what is not there; FLIM_ERROR_USAGE for a file that is named twice. */
flim_status flim_list_files(const char *const *path, int n_paths, flim_string_list *out, flim_error *err);

#endif

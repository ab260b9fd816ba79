/* What a file is that is no data file: told by its first bytes, with what to do about it.
 *
 * For: the message about a path that holds no HDF5 signature.  The table stands in file_kind.c: one row per kind.
 */
#ifndef FLIM_DATA_FILE_KIND_H
#define FLIM_DATA_FILE_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "it is a TIFF image: ..."; `start` are the first `count` bytes of a file.  False and "" where nothing is known
 * about them. */
bool flim_file_kind(const uint8_t *start, size_t count, char *text, size_t text_size);
/* The same for a folder: "a Zarr folder: ..."; "a directory" at least. */
void flim_folder_kind(const char *path, char *text, size_t text_size);

/* Bytes from the start of a file that flim_file_kind looks at. */
enum { FLIM_FILE_KIND_BYTES = 1024 };

#endif

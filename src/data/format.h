/* The formats of data files that can be read as they are. */
#ifndef FLIM_DATA_FORMAT_H
#define FLIM_DATA_FORMAT_H

#include "data/source.h"

/* The format of a file.  One format so far; the first bytes of a file would tell others apart. */
const flim_format *flim_format_of(const char *path);

#endif

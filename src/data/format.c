#include "data/format.h"

#include "data/hdf5/hdf5_source.h"

const flim_format *flim_format_of(const char *path)
{
    (void)path;
    return &flim_format_hdf5;
}

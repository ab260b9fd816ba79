#include <hdf5.h>
#include <stdio.h>

#include "flim/dataset.h"

void flim_hdf5_version(char out[32])
{
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    snprintf(out, 32, "%u.%u.%u", major, minor, release);
}

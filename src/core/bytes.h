/* Units of memory: binary ones for what is allocated, decimal ones for what is sold. */
#ifndef FLIM_CORE_BYTES_H
#define FLIM_CORE_BYTES_H

#include <stdint.h>

#define FLIM_KIB INT64_C(1024)
#define FLIM_MIB INT64_C(1048576)
#define FLIM_GIB INT64_C(1073741824)

static inline double flim_mib(int64_t bytes)
{
    return (double)bytes / (double)FLIM_MIB;
}

static inline double flim_gib(int64_t bytes)
{
    return (double)bytes / (double)FLIM_GIB;
}

#endif

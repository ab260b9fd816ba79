/* Wall-clock seconds that never go back, for durations. */
#ifndef FLIM_CORE_CLOCK_H
#define FLIM_CORE_CLOCK_H

#include <time.h>

static inline double flim_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif

/* The flag that asks for the end: a signal handler writes it, threads poll it. */
#ifndef FLIM_CORE_STOP_H
#define FLIM_CORE_STOP_H

#include <stdbool.h>
#include <stddef.h>

/* stop may be NULL: nobody asks. */
static inline bool flim_stopped(const volatile int *stop)
{
    return stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
}

#endif

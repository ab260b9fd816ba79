#include "hdf5_guard.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_long calls, meetings;
static atomic_int inside; /* threads */
static _Thread_local int depth; /* calls of this thread: HDF5 calls itself, and us, who call it */

long hdf5_guard_calls(void)
{
    return atomic_load(&calls);
}

long hdf5_guard_meetings(void)
{
    return atomic_load(&meetings);
}

void hdf5_guard_reset(void)
{
    atomic_store(&calls, 0);
    atomic_store(&meetings, 0);
}

static void *enter(_Atomic(void *) *real, const char *name)
{
    void *function = atomic_load(real);
    if (!function) {
        if (!(function = dlsym(RTLD_NEXT, name))) {
            fprintf(stderr, "hdf5_guard: libhdf5 has no %s\n", name);
            abort();
        }
        atomic_store(real, function);
    }
    if (depth++ == 0) {
        atomic_fetch_add(&calls, 1);
        if (atomic_fetch_add(&inside, 1) > 0) {
            atomic_fetch_add(&meetings, 1);
        }
        sched_yield();
    }
    return function;
}

static void leave(void)
{
    if (--depth == 0) {
        atomic_fetch_sub(&inside, 1);
    }
}

/* All their arguments are integers and pointers, at most six of them in registers and more on the stack: handing eight words
 * on hands on whatever the caller gave, in the calling conventions of x86-64 and AArch64.  hdf5.h must not be included here.
 * */
#define GUARD(name)                                                                                                          \
    long name(long a, long b, long c, long d, long e, long f, long g, long h);                                               \
    long name(long a, long b, long c, long d, long e, long f, long g, long h)                                                \
    {                                                                                                                        \
        static _Atomic(void *) real;                                                                                         \
        long (*function)(long, long, long, long, long, long, long, long);                                                    \
        *(void **)&function = enter(&real, #name);                                                                           \
        long result = function(a, b, c, d, e, f, g, h);                                                                      \
        leave();                                                                                                             \
        return result;                                                                                                       \
    }
#include "hdf5_guard_list.h" /* GUARD(H5Aclose) ... */

/* The one with a double among its arguments. */
int H5Pset_chunk_cache(long a, size_t b, size_t c, double d);
int H5Pset_chunk_cache(long a, size_t b, size_t c, double d)
{
    static _Atomic(void *) real;
    int (*function)(long, size_t, size_t, double);
    *(void **)&function = enter(&real, "H5Pset_chunk_cache");
    int result = function(a, b, c, d);
    leave();
    return result;
}

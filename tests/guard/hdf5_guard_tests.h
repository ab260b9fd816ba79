/* The two tests of every program that is linked with hdf5_guard.c: first in its group and last. */
#ifndef TESTS_HDF5_GUARD_TESTS_H
#define TESTS_HDF5_GUARD_TESTS_H

#include <pthread.h>

#include "core/clock.h"
#include "hdf5_guard.h"

static void *call_hdf5(void *unused)
{
    (void)unused;
    for (double begun = flim_seconds(); hdf5_guard_meetings() == 0 && flim_seconds() - begun < 30;) {
        H5Sclose(H5Screate(H5S_SCALAR));
    }
    return NULL;
}

/* Without a lock threads do meet, and that is seen. */
static void the_guard_sees_threads_that_meet(void **state)
{
    (void)state;
    hbool_t safe = 0;
    pthread_t thread[2];
    assert_true(H5is_library_threadsafe(&safe) >= 0);
    if (safe) { /* else the calls would really harm */
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&thread[i], NULL, call_hdf5, NULL), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
        }
        assert_true(hdf5_guard_meetings() > 0);
    }
    hdf5_guard_reset();
}

/* Our lock suffices for any libhdf5. */
static void no_two_threads_were_inside_libhdf5(void **state)
{
    (void)state;
    assert_true(hdf5_guard_calls() > 1000);
    assert_int_equal(hdf5_guard_meetings(), 0);
}

#endif

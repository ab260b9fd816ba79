/* A libhdf5 that watches: every function that the library under test calls first notes the thread, so that two threads inside
 * libhdf5 at once are seen, whatever build of libhdf5 runs.
 *
 * hdf5_guard.c defines functions with HDF5's names, which the linker prefers; they call the real ones.  Their list is made
 * from libflim at build time.  A call stays inside for a moment longer than it needs, so that threads that may meet do meet.
 */
#ifndef TESTS_HDF5_GUARD_H
#define TESTS_HDF5_GUARD_H

long hdf5_guard_calls(void); /* so far, from any thread */
long hdf5_guard_meetings(void); /* calls that found another thread inside */
void hdf5_guard_reset(void);

#endif

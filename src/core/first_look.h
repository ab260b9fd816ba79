/* A first look at files in a child process (Linux: it dies with its parent).
 *
 * For: files that go to a library which believes what they say.  libhdf5 (1.10 to 1.14 at least) crashes, loops for ever or asks for
 *      absurd memory on some damaged files, and can leave its own state broken after a failed open.  The child finds out, under
 *      limits of time and memory that follow the size of the files; the parent opens only what the child has opened, and otherwise
 *      hands on the child's error.
 */
#ifndef FLIM_CORE_FIRST_LOOK_H
#define FLIM_CORE_FIRST_LOOK_H

#include <stdbool.h>

#include "flim/status.h"

typedef struct flim_first_look {
    const char *const *paths; /* (n_paths), at least one */
    int n_paths;
    const char *library; /* "HDF5 1.10.8", for the message */
    const volatile int *stop; /* polled while the child looks; may be NULL */
    int (*fork)(void); /* as fork(2), with the library's locks in order on both sides */
    /* In the child, which has no use for what it leaves behind: opens the files as the parent will, reads some of each and closes
     * them, as damage to the heap shows when it is given back. */
    flim_status (*look)(void *context, flim_error *err);
    void *context;
} flim_first_look;

/* FLIM_OK if the child's look was, or if no child can be made; else its error, or FLIM_ERROR_DATA that names the first file and says
 * how the child ended; FLIM_INTERRUPTED.  *ended: it came to its end with an answer, and did not crash. */
flim_status flim_look_first(const flim_first_look *look, bool *ended, flim_error *err);

#endif

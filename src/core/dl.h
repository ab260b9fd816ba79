/* Functions of libraries that are opened at run time.
 *
 * For: the CUDA backend, which must start without a driver, cuDNN or cuBLAS.  Owns: nothing; dlopen's handle is the caller's.
 */
#ifndef FLIM_CORE_DL_H
#define FLIM_CORE_DL_H

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* Looks up `name`; *function, a pointer to a function, gets its address, or NULL with false.  dlsym gives a void *; POSIX
 * promises that it can hold a function's address. */
static inline bool flim_dl_find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

#endif

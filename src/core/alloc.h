/* Checked host memory: every allocation of the library goes through here.
 *
 * Sizes are count x size with overflow checked; a failure fills err (FLIM_ERROR_MEMORY, with the bytes asked for).  In builds
 * with FLIM_TEST_HOOKS a test can let the n-th allocation fail (curl's torture test).
 */
#ifndef FLIM_CORE_ALLOC_H
#define FLIM_CORE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "flim/status.h"

/* count x size zeroed bytes, or NULL with err set.  count = 0 gives a valid pointer.  Free with flim_free. */
void *flim_alloc(size_t count, size_t size, flim_error *err);
/* The same, for an array of many MiB that is filled at once: asks the kernel for huge pages, whose first touch costs far less. */
void *flim_alloc_large(size_t count, size_t size, flim_error *err);
/* The same, unset, aligned to 64 bytes (a cache line; oneDNN's and AVX-512's wish).  Free with flim_free. */
void *flim_alloc_aligned(size_t count, size_t size, flim_error *err);
/* Grows to count x size bytes, new bytes unset; on failure NULL with err set and `memory` stays valid. */
void *flim_realloc(void *memory, size_t count, size_t size, flim_error *err);
char *flim_strdup(const char *text, flim_error *err);
/* printf into fresh memory. */
char *flim_strprintf(flim_error *err, const char *format, ...) FLIM_PRINTF(2, 3);
void flim_free(void *memory);
/* A list of n texts and the list itself; NULL is allowed, for a text too. */
void flim_free_list(char **list, int64_t n);

#ifdef FLIM_TEST_HOOKS
/* The allocation number `n` from now (1 = the next) fails, in any thread; 0 = none.  Returns the count made since the last
 * call. */
long flim_alloc_fail_at(long n);
#endif

#endif

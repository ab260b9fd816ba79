#include "core/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef FLIM_TEST_HOOKS
#include <stdatomic.h>

static atomic_long made, fail_at;

long flim_alloc_fail_at(long n)
{
    long before = atomic_exchange(&made, 0);
    atomic_store(&fail_at, n);
    return before;
}

static int refused(void)
{
    return atomic_fetch_add(&made, 1) + 1 == atomic_load(&fail_at);
}
#else
static int refused(void)
{
    return 0;
}
#endif

static void *out_of_memory(size_t count, size_t size, flim_error *err)
{
    flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: %zu x %zu bytes requested", count, size);
    return NULL;
}

static int overflows(size_t count, size_t size)
{
    return size != 0 && count > (SIZE_MAX - 64) / size;
}

void *flim_alloc(size_t count, size_t size, flim_error *err)
{
    if (overflows(count, size) || refused()) {
        return out_of_memory(count, size, err);
    }
    size_t bytes = count * size;
    void *memory = calloc(bytes ? bytes : 1, 1);
    return memory ? memory : out_of_memory(count, size, err);
}

void *flim_alloc_large(size_t count, size_t size, flim_error *err)
{
    const uintptr_t large = (uintptr_t)8 << 20, page = (uintptr_t)64 << 10; /* a multiple of any page size that Linux has */
    void *memory = flim_alloc(count, size, err);
    if (memory && count * size >= large) {
        const uintptr_t begin = ((uintptr_t)memory + page - 1) / page * page;
        const uintptr_t end = ((uintptr_t)memory + count * size) / page * page;
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* no more than a wish */
    }
    return memory;
}

void *flim_alloc_aligned(size_t count, size_t size, flim_error *err)
{
    if (overflows(count, size) || refused()) {
        return out_of_memory(count, size, err);
    }
    size_t bytes = (count * size + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes ? bytes : 64);
    return memory ? memory : out_of_memory(count, size, err);
}

void *flim_realloc(void *memory, size_t count, size_t size, flim_error *err)
{
    if (overflows(count, size) || refused()) {
        return out_of_memory(count, size, err);
    }
    size_t bytes = count * size;
    void *grown = realloc(memory, bytes ? bytes : 1);
    return grown ? grown : out_of_memory(count, size, err);
}

char *flim_strdup(const char *text, flim_error *err)
{
    size_t bytes = strlen(text) + 1;
    char *copy = flim_alloc(bytes, 1, err);
    if (copy) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

char *flim_strprintf(flim_error *err, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : flim_alloc((size_t)length + 1, 1, err);
    if (text) {
        vsnprintf(text, (size_t)length + 1, format, again);
    }
    va_end(again);
    return text;
}

void flim_free(void *memory)
{
    free(memory);
}

void flim_free_list(char **list, int64_t n)
{
    for (int64_t i = 0; list && i < n; i++) {
        flim_free(list[i]);
    }
    flim_free(list);
}

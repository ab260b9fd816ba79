/* One block of memory shared by buffers that are not needed at the same time.
 *
 * Buffers are declared with a size and the span of steps [first,last] in which they hold something; flim_cpu_arena_place gives
 * each an offset so that no two that overlap in time overlap in memory (first fit, in order of size), and the total.
 */
#ifndef FLIM_CPU_ARENA_H
#define FLIM_CPU_ARENA_H

#include <stddef.h>

enum { FLIM_CPU_MOST_BUFFERS = 128 };

typedef struct flim_cpu_buffer {
    size_t bytes, offset; /* multiples of 64 */
    int first, last;
} flim_cpu_buffer;

typedef struct flim_cpu_arena {
    flim_cpu_buffer buffer[FLIM_CPU_MOST_BUFFERS];
    int n;
    size_t bytes; /* after place */
} flim_cpu_arena;

/* Declares a buffer; returns its number. */
int flim_cpu_arena_add(flim_cpu_arena *arena, size_t bytes, int first, int last);
/* Keeps a buffer until step `last` at least. */
void flim_cpu_arena_extend(flim_cpu_arena *arena, int buffer, int last);
void flim_cpu_arena_place(flim_cpu_arena *arena);

#endif

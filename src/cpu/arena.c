#include "cpu/arena.h"

#include <stdbool.h>

int flim_cpu_arena_add(flim_cpu_arena *arena, size_t bytes, int first, int last)
{
    arena->buffer[arena->n] = (flim_cpu_buffer){.bytes = (bytes + 63) / 64 * 64, .first = first, .last = last};
    return arena->n++;
}

void flim_cpu_arena_extend(flim_cpu_arena *arena, int buffer, int last)
{
    if (arena->buffer[buffer].last < last) {
        arena->buffer[buffer].last = last;
    }
}

/* The lowest offset at which `b` meets none of the placed buffers that live at the same time. */
static size_t lowest_offset(const flim_cpu_arena *arena, const bool *placed, const flim_cpu_buffer *b)
{
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < arena->n; i++) {
            const flim_cpu_buffer *other = &arena->buffer[i];
            bool in_time = other->first <= b->last && b->first <= other->last;
            if (placed[i] && in_time && offset < other->offset + other->bytes && other->offset < offset + b->bytes) {
                offset = other->offset + other->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

void flim_cpu_arena_place(flim_cpu_arena *arena)
{
    bool placed[FLIM_CPU_MOST_BUFFERS] = {false};
    arena->bytes = 0;
    for (int done = 0; done < arena->n; done++) {
        int largest = 0; /* of those without a place; there is one, since one a round gets its place */
        while (placed[largest]) {
            largest++;
        }
        for (int i = largest + 1; i < arena->n; i++) {
            if (!placed[i] && arena->buffer[i].bytes > arena->buffer[largest].bytes) {
                largest = i;
            }
        }
        flim_cpu_buffer *b = &arena->buffer[largest];
        b->offset = lowest_offset(arena, placed, b);
        placed[largest] = true;
        arena->bytes = b->offset + b->bytes > arena->bytes ? b->offset + b->bytes : arena->bytes;
    }
}

/* One block of memory shared by buffers that are not needed at the same time.
 *
 * For: the activations and gradients of a pass.  A buffer is declared with its size and touched by the steps that use it; it
 * lives
 *      from the first to the last of these, or twice, if it is recomputed after its bytes were given away.  flim_arena_place
 *      then gives each an offset so that no two that live at the same time overlap (largest first, each at the lowest free
 *      offset), and the total.
 * Owns: a plain struct without pointers; the memory itself is the caller's.
 */
#ifndef FLIM_BACKEND_ARENA_H
#define FLIM_BACKEND_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/network.h"

enum { FLIM_ARENA_BUFFERS = 12 * FLIM_MAX_UNITS + 16, FLIM_ARENA_LIVES = 2, FLIM_NO_BUFFER = -1 };

typedef struct flim_arena_life {
    int first, last; /* steps */
} flim_arena_life;

typedef struct flim_arena_buffer {
    int64_t bytes, offset; /* multiples of the arena's alignment */
    int use; /* the caller's word for what it is */
    flim_arena_life life[FLIM_ARENA_LIVES];
    int lives; /* 0: never touched, takes no room */
    bool reborn; /* the next touch begins another life */
    int alias; /* shares the bytes of this buffer, or FLIM_NO_BUFFER */
} flim_arena_buffer;

typedef struct flim_arena {
    int64_t alignment;
    flim_arena_buffer buffer[FLIM_ARENA_BUFFERS];
    int n;
    int64_t bytes; /* after place */
} flim_arena;

/* Declares a buffer; returns its number. */
int flim_arena_add(flim_arena *arena, int use, int64_t bytes);
/* A step uses a buffer (FLIM_NO_BUFFER: nothing happens): its present life reaches there. */
void flim_arena_touch(flim_arena *arena, int buffer, int step);
/* The next step to touch a buffer writes it anew; until then its bytes are free for others.  At most once a buffer. */
void flim_arena_begin_again(flim_arena *arena, int buffer);
/* From now on `buffer` is another name for `of`, which has as many bytes or more. */
void flim_arena_alias(flim_arena *arena, int buffer, int of);
void flim_arena_place(flim_arena *arena);
/* In its stead: every buffer, aliases too, gets bytes that it shares with no other. */
void flim_arena_place_apart(flim_arena *arena);
/* The buffer holds something at that step.  False for aliases: what they stand for does. */
bool flim_arena_lives_at(const flim_arena *arena, int buffer, int step);

#endif

#include "backend/arena.h"

int flim_arena_add(flim_arena *arena, int use, int64_t bytes)
{
    arena->buffer[arena->n] = (flim_arena_buffer){
        .bytes = (bytes + arena->alignment - 1) / arena->alignment * arena->alignment, .use = use, .alias = FLIM_NO_BUFFER};
    return arena->n++;
}

static flim_arena_buffer *root_of(flim_arena *arena, int buffer)
{
    while (arena->buffer[buffer].alias != FLIM_NO_BUFFER) {
        buffer = arena->buffer[buffer].alias;
    }
    return &arena->buffer[buffer];
}

void flim_arena_touch(flim_arena *arena, int buffer, int step)
{
    if (buffer == FLIM_NO_BUFFER) {
        return;
    }
    flim_arena_buffer *b = root_of(arena, buffer);
    if (b->lives == 0 || b->reborn) {
        b->life[b->lives++] = (flim_arena_life){step, step};
        b->reborn = false;
    }
    flim_arena_life *life = &b->life[b->lives - 1];
    life->first = step < life->first ? step : life->first;
    life->last = step > life->last ? step : life->last;
}

void flim_arena_begin_again(flim_arena *arena, int buffer)
{
    root_of(arena, buffer)->reborn = true;
}

void flim_arena_alias(flim_arena *arena, int buffer, int of)
{
    arena->buffer[buffer].alias = of;
}

static bool lives_meet(const flim_arena_buffer *a, const flim_arena_buffer *b)
{
    for (int i = 0; i < a->lives; i++) {
        for (int k = 0; k < b->lives; k++) {
            if (a->life[i].first <= b->life[k].last && b->life[k].first <= a->life[i].last) {
                return true;
            }
        }
    }
    return false;
}

/* The lowest offset at which `b` meets none of the n placed buffers that live when it does. */
static int64_t lowest_offset(const flim_arena *arena, const int *placed, int n, const flim_arena_buffer *b)
{
    int64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const flim_arena_buffer *o = &arena->buffer[placed[i]];
            if (lives_meet(b, o) && offset < o->offset + o->bytes && o->offset < offset + b->bytes) {
                offset = o->offset + o->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

void flim_arena_place(flim_arena *arena)
{
    int order[FLIM_ARENA_BUFFERS], n = 0; /* largest first; of equals the older */
    for (int i = 0; i < arena->n; i++) {
        if (arena->buffer[i].alias == FLIM_NO_BUFFER && arena->buffer[i].lives > 0) {
            int at = n++;
            for (; at > 0 && arena->buffer[order[at - 1]].bytes < arena->buffer[i].bytes; at--) {
                order[at] = order[at - 1];
            }
            order[at] = i;
        }
    }
    arena->bytes = 0;
    for (int i = 0; i < n; i++) {
        flim_arena_buffer *b = &arena->buffer[order[i]];
        b->offset = lowest_offset(arena, order, i, b);
        arena->bytes = b->offset + b->bytes > arena->bytes ? b->offset + b->bytes : arena->bytes;
    }
    for (int i = 0; i < arena->n; i++) {
        arena->buffer[i].offset = root_of(arena, i)->offset;
    }
}

void flim_arena_place_apart(flim_arena *arena)
{
    arena->bytes = 0;
    for (int i = 0; i < arena->n; i++) {
        arena->buffer[i].offset = arena->bytes;
        arena->bytes += arena->buffer[i].bytes;
    }
}

bool flim_arena_lives_at(const flim_arena *arena, int buffer, int step)
{
    const flim_arena_buffer *b = &arena->buffer[buffer];
    bool lives = false;
    for (int i = 0; i < b->lives; i++) {
        lives = lives || (b->life[i].first <= step && step <= b->life[i].last);
    }
    return lives && b->alias == FLIM_NO_BUFFER;
}

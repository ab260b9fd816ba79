/* The arena of activations: nothing that lives at the same time overlaps, and nothing is larger than it must be by much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/arena.h"

/* A linear congruential sequence: the same buffers in every run. */
static uint32_t noise_state = 1;
static int noise(int below)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (int)(noise_state >> 8) % below;
}

enum { STEPS = 40 };

/* What the test knows of a buffer, kept apart from the arena: at which steps it holds something. */
typedef struct expected {
    int number;
    int64_t bytes;
    bool at[STEPS];
} expected;

static void declare(flim_arena *arena, expected *e)
{
    const int first = noise(STEPS / 2), last = first + noise(STEPS / 4);
    e->bytes = noise(5000);
    e->number = flim_arena_add(arena, 0, e->bytes);
    flim_arena_touch(arena, e->number, last);
    flim_arena_touch(arena, e->number, first); /* in any order */
    int from = first, to = last;
    for (int part = 0; part < 2; part++) {
        for (int t = from; t <= to; t++) {
            e->at[t] = true;
        }
        if (part == 1 || noise(3) == 0) {
            return;
        }
        from = last + 1 + noise(5);
        to = from + noise(STEPS - 1 - from > 0 ? STEPS - from : 1);
        flim_arena_begin_again(arena, e->number);
        flim_arena_touch(arena, e->number, from);
        flim_arena_touch(arena, e->number, to);
    }
}

static void what_lives_together_lies_apart(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        static flim_arena arena;
        static expected e[60];
        const int n = 2 + noise(58);
        arena = (flim_arena){.alignment = 64};
        for (int i = 0; i < n; i++) {
            e[i] = (expected){0};
            declare(&arena, &e[i]);
        }
        const int unused = flim_arena_add(&arena, 0, 1 << 20); /* never touched: takes no room */
        const int alias = flim_arena_add(&arena, 0, 64);
        flim_arena_alias(&arena, alias, e[0].number);
        const int late = STEPS - 1;
        flim_arena_touch(&arena, alias, late); /* keeps what it stands for */
        int64_t most = 0, sum = 0;
        flim_arena_place(&arena);
        assert_int_equal(arena.buffer[alias].offset, arena.buffer[e[0].number].offset);
        assert_true(flim_arena_lives_at(&arena, e[0].number, late) && !flim_arena_lives_at(&arena, alias, late));
        assert_false(flim_arena_lives_at(&arena, unused, 0));
        for (int t = 0; t < STEPS; t++) {
            int64_t live = 0;
            for (int i = 0; i < n; i++) {
                const flim_arena_buffer *a = &arena.buffer[e[i].number];
                assert_true(a->bytes >= e[i].bytes && a->bytes < e[i].bytes + 64 && a->offset % 64 == 0);
                assert_true(a->offset + a->bytes <= arena.bytes);
                assert_true(!e[i].at[t] || flim_arena_lives_at(&arena, e[i].number, t));
                live += flim_arena_lives_at(&arena, e[i].number, t) ? a->bytes : 0;
                for (int k = 0; k < i; k++) {
                    const flim_arena_buffer *b = &arena.buffer[e[k].number];
                    if (e[i].at[t] && e[k].at[t] && a->bytes > 0 && b->bytes > 0 &&
                        !(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset)) {
                        fail_msg("round %d, step %d: buffers %d and %d overlap", round, t, k, i);
                    }
                }
            }
            most = live > most ? live : most;
        }
        for (int i = 0; i < n; i++) {
            sum += arena.buffer[e[i].number].bytes;
        }
        assert_true(arena.bytes >= most && arena.bytes <= sum);
    }
}

/* Bytes given away between two lives are used by others. */
static void a_place_is_free_between_two_lives(void **state)
{
    (void)state;
    flim_arena arena = {.alignment = 256};
    const int twice = flim_arena_add(&arena, 0, 1000), between = flim_arena_add(&arena, 0, 1000);
    flim_arena_touch(&arena, twice, 0);
    flim_arena_touch(&arena, twice, 1);
    flim_arena_begin_again(&arena, twice);
    flim_arena_touch(&arena, twice, 5);
    flim_arena_touch(&arena, between, 2);
    flim_arena_touch(&arena, between, 4);
    flim_arena_place(&arena);
    assert_int_equal(arena.bytes, 1024);
    flim_arena_touch(&arena, between, 5);
    flim_arena_place(&arena);
    assert_int_equal(arena.bytes, 2048);
}

static void placed_apart_nothing_is_shared(void **state)
{
    (void)state;
    flim_arena arena = {.alignment = 256};
    const int one = flim_arena_add(&arena, 0, 1000), two = flim_arena_add(&arena, 0, 300),
              alias = flim_arena_add(&arena, 0, 10);
    flim_arena_touch(&arena, one, 0);
    flim_arena_touch(&arena, two, 1);
    flim_arena_alias(&arena, alias, one);
    flim_arena_place_apart(&arena);
    assert_int_equal(arena.buffer[one].offset, 0);
    assert_int_equal(arena.buffer[two].offset, 1024);
    assert_int_equal(arena.buffer[alias].offset, 1024 + 512);
    assert_int_equal(arena.bytes, 1024 + 512 + 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_lives_together_lies_apart),
                                       cmocka_unit_test(a_place_is_free_between_two_lives),
                                       cmocka_unit_test(placed_apart_nothing_is_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

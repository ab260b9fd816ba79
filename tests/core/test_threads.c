/* flim_share_work: every item once with any number of threads; failures end it, are told once, and leave nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/threads.h"

enum { N = 1000 };

typedef struct shared {
    atomic_int done[N], begun, ended;
    int64_t bad; /* the item that fails; -1 = none */
    bool bad_begin;
} shared;

typedef struct mine {
    shared *all;
    void *memory;
    int64_t last; /* a thread's items come in order */
} mine;

static flim_status begin(void *context, void *own, flim_error *err)
{
    mine *m = own;
    assert_null(m->memory); /* zeros before */
    m->all = context;
    m->last = -1;
    atomic_fetch_add(&m->all->begun, 1);
    if (m->all->bad_begin) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "no scratch today");
    }
    return (m->memory = flim_alloc(8, 8, err)) ? FLIM_OK : FLIM_ERROR_MEMORY;
}

static flim_status item(void *context, void *own, int64_t number, flim_error *err)
{
    shared *all = context;
    mine *m = own;
    assert_true(number > m->last && number < N && m->memory);
    m->last = number;
    if (number == all->bad) {
        return flim_fail(err, FLIM_ERROR_DATA, "item %d is bad", (int)number);
    }
    atomic_fetch_add(&all->done[number], 1);
    return FLIM_OK;
}

static void end(void *own)
{
    mine *m = own;
    if (m->all) { /* else begin was not reached */
        atomic_fetch_add(&m->all->ended, 1);
    }
    flim_free(m->memory);
}

static flim_status share(shared *all, int64_t items, int64_t stride, int threads, flim_error *err)
{
    const flim_shared_work work = {items, stride, all, begin, item, end, sizeof(mine)};
    const flim_status status = flim_share_work(&work, threads, err);
    assert_int_equal(all->begun, all->ended);
    return status;
}

static void every_item_is_done_once(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 7, 64};
    static const int64_t items[] = {0, 1, 15, 16, N}, strides[] = {1, 16, 2000};
    for (int i = 0; i < 4 * 5 * 3; i++) {
        shared all = {.bad = -1};
        const int64_t n = items[i / 4 % 5];
        assert_int_equal(share(&all, n, strides[i / 20], threads[i % 4], NULL), FLIM_OK);
        for (int64_t k = 0; k < N; k++) {
            assert_int_equal(all.done[k], k < n);
        }
    }
}

static void the_first_failure_ends_it(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        shared all = {.bad = 500};
        flim_error err = {0};
        assert_int_equal(share(&all, N, 4, threads, &err), FLIM_ERROR_DATA);
        assert_string_equal(err.text, "item 500 is bad");
        assert_int_equal(all.done[500], 0);
        for (int k = 0; k < N; k++) {
            assert_true(all.done[k] <= 1 && (threads > 1 || all.done[k] == (k < 500)));
        }
        shared none = {.bad = -1, .bad_begin = true};
        assert_int_equal(share(&none, N, 4, threads, &err), FLIM_ERROR_DEVICE);
        assert_string_equal(err.text, "no scratch today");
    }
    shared all = {.bad = -1};
    assert_int_equal(share(&all, N, 4, 0, NULL), FLIM_ERROR_USAGE);
}

static void each_failed_allocation_is_told(void **state)
{
    (void)state;
    for (long k = 1;; k++) {
        shared all = {.bad = -1};
        flim_error err = {0};
        flim_alloc_fail_at(k);
        const flim_status status = share(&all, N, 1, 3, &err);
        const bool reached = flim_alloc_fail_at(0) >= k;
        assert_int_equal(status, reached ? FLIM_ERROR_MEMORY : FLIM_OK);
        if (!reached) {
            assert_true(k > 3);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(the_first_failure_ends_it),
        cmocka_unit_test(each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What ranks exchange (flim/ranks.h), of one process; test_ranks.sh starts it with mpirun, too.  Sums are compared bit for bit with those
 * of a plain loop over the ranks.
 *
 *   mpirun -n N test_rank_sums COUNT ROUNDS    no test: the time of a sum of so many floats, as an update's gradients are summed
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "flim/ranks.h"

static flim_ranks *ranks;

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s", err->text);
    }
}

/* Value i of a rank: of sizes between which a sum in another order shows. */
static double value(int rank, size_t i)
{
    const uint64_t bits = ((uint64_t)rank * 1000003u + i + 1) * 0x9e3779b97f4a7c15u;
    return ((double)(bits >> 40) - 8388608.0) * ldexp(1.0, (int)(bits >> 8 & 15) - 30);
}

static void sums_are_those_of_a_loop(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 7, 1000, 100003};
    const int n = flim_ranks_size(ranks), rank = flim_ranks_rank(ranks);
    flim_error err = {0};
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        const size_t count = counts[k];
        float *f = malloc(count * sizeof *f);
        double *d = malloc(count * sizeof *d);
        assert_true(f && d);
        for (size_t i = 0; i < count; i++) {
            d[i] = value(rank, i);
            f[i] = (float)d[i];
        }
        ok(flim_ranks_sum_floats(ranks, f, count, &err), &err);
        ok(flim_ranks_sum_doubles(ranks, d, count, &err), &err);
        for (size_t i = 0; i < count; i++) {
            float expected_f = (float)value(0, i);
            double expected_d = value(0, i);
            for (int r = 1; r < n; r++) {
                expected_f += (float)value(r, i);
                expected_d += value(r, i);
            }
            if (f[i] != expected_f || d[i] != expected_d) {
                fail_msg("rank %d of %d, value %zu of %zu: %a and %a, expected %a and %a", rank, n, i, count, (double)f[i],
                         d[i], (double)expected_f, expected_d);
            }
        }
        free(f);
        free(d);
    }
}

static void gather_and_broadcast(void **state)
{
    (void)state;
    const int n = flim_ranks_size(ranks), rank = flim_ranks_rank(ranks);
    flim_error err = {0};
    int32_t mine[3] = {rank, 10 * rank, -rank}, word = rank == 0 ? 4711 : -1;
    int32_t(*all)[3] = malloc((size_t)n * sizeof *all);
    assert_non_null(all);
    memset(all, 0xff, (size_t)n * sizeof *all);
    ok(flim_ranks_gather(ranks, mine, sizeof mine, all, &err), &err);
    for (int r = 0; r < n; r++) {
        assert_int_equal(all[r][0], r);
        assert_int_equal(all[r][1], 10 * r);
        assert_int_equal(all[r][2], -r);
    }
    ok(flim_ranks_broadcast(ranks, &word, sizeof word, &err), &err);
    assert_int_equal(word, 4711);
    word = rank == 0 ? 815 : -1;
    ok(flim_ranks_await(ranks, &word, sizeof word, &err), &err);
    assert_int_equal(word, 815);
    free(all);
}

static void an_error_of_one_is_every_ones(void **state)
{
    (void)state;
    const int n = flim_ranks_size(ranks), rank = flim_ranks_rank(ranks);
    char text[64];
    flim_error err = {0};
    assert_int_equal(flim_ranks_settle(ranks, FLIM_OK, &err), FLIM_OK);
    const flim_status own = rank == n - 1 ? flim_fail(&err, FLIM_ERROR_DATA, "cell 7") : FLIM_OK;
    assert_int_equal(flim_ranks_settle(ranks, own, &err), FLIM_ERROR_DATA);
    assert_int_equal(err.status, FLIM_ERROR_DATA);
    snprintf(text, sizeof text, "rank %d of %d (on ", n - 1, n);
    assert_non_null(strstr(err.text, n > 1 ? text : "cell 7"));
    assert_non_null(strstr(err.text, "cell 7"));
}

static void nothing_goes_on_after_a_break(void **state)
{
    (void)state;
    flim_error err = {0};
    float one = 1;
    flim_ranks_break(ranks);
    assert_true(flim_ranks_is_broken(ranks));
    assert_int_equal(flim_ranks_sum_floats(ranks, &one, 1, &err),
                     flim_ranks_size(ranks) > 1 ? FLIM_ERROR : FLIM_OK); /* a process alone needs nobody */
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median and least of rank 0's seconds. */
static int measure(size_t count, int rounds)
{
    flim_error err = {0};
    float *values = calloc(count, sizeof *values);
    double *seconds = calloc((size_t)rounds, sizeof *seconds);
    flim_status status = values && seconds ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int i = -2; i < rounds && status == FLIM_OK; i++) { /* two to warm up */
        status = flim_ranks_settle(ranks, FLIM_OK, &err); /* together */
        const double begun = flim_seconds();
        status = status == FLIM_OK ? flim_ranks_sum_floats(ranks, values, count, &err) : status;
        seconds[i < 0 ? 0 : i] = flim_seconds() - begun;
    }
    if (status == FLIM_OK && flim_ranks_rank(ranks) == 0) {
        qsort(seconds, (size_t)rounds, sizeof *seconds, by_size);
        printf("%d ranks, %zu floats: median %.3f ms, least %.3f ms of %d\n", flim_ranks_size(ranks), count,
               1e3 * seconds[rounds / 2], 1e3 * seconds[0], rounds);
    } else if (status != FLIM_OK) {
        fprintf(stderr, "%s\n", err.text);
    }
    free(values);
    free(seconds);
    return status == FLIM_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    flim_error err = {0};
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_a_loop), cmocka_unit_test(gather_and_broadcast),
                                       cmocka_unit_test(an_error_of_one_is_every_ones)};
    const struct CMUnitTest last[] = {cmocka_unit_test(nothing_goes_on_after_a_break)};
    if (flim_ranks_open(&ranks, &err) != FLIM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (argc == 3 && atol(argv[1]) > 0 && atol(argv[2]) > 0) {
        const int failed = measure((size_t)atol(argv[1]), (int)atol(argv[2]));
        flim_ranks_close(ranks, failed);
        return failed;
    }
    printf("rank %d of %d\n", flim_ranks_rank(ranks), flim_ranks_size(ranks));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (flim_ranks_size(ranks) == 1) { /* it ends all processes of a group */
        failed += cmocka_run_group_tests(last, NULL, NULL);
    }
    flim_ranks_close(ranks, failed);
    return failed;
}

/* Suggestions of the planner: each fits, gains something over the others, and the recommended one keeps the cells an update. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"

static const char devices[] = FLIM_SOURCE_DIR "/configs/devices";

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s", err->text);
    }
}

static flim_suggestions all; /* large, and freed by nobody where a test is skipped */

static flim_device *describe(const char *name)
{
    flim_error err = {0};
    flim_card card;
    flim_device *device = NULL;
    ok(flim_card_find(devices, name, &card, NULL, &err), &err);
    if (flim_device_describe(&card, &device, &err) != FLIM_OK) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    return device;
}

typedef struct asked {
    const char *card;
    int width; /* of the network */
    flim_precision precision; /* AUTO: the card's */
    int64_t batch, effective, cells, eval;
} asked;

static void suggest(const asked *a, flim_network *net, flim_suggestions *s)
{
    flim_error err = {0};
    flim_device *device = describe(a->card);
    ok(flim_network_build(net, a->width, 2, 256, 21, 21, &err), &err);
    const flim_plan_budget budget = flim_plan_budget_of(device, 0.85);
    const flim_plan_request request = {
        .net = net,
        .precision = a->precision == FLIM_PRECISION_AUTO ? flim_device_get_info(device)->auto_precision : a->precision,
        .batch = a->batch,
        .eval_batch = a->eval,
        .accumulate = 1,
        .prefetch = 2};
    ok(flim_plan_suggest(device, &request, &budget, a->effective, a->cells, s, &err), &err);
    for (int i = 0; i < s->n; i++) {
        assert_true(s->plan[i].program_bytes <= budget.bytes);
    }
    flim_device_close(device);
}

static int64_t cells_an_update(const flim_plan *p)
{
    return p->request.batch * p->request.accumulate;
}

static void every_suggestion_fits_and_gains(void **state)
{
    (void)state;
    static const asked cases[] = {
        {"t4", 32, FLIM_PRECISION_AUTO, 64, 0, 100000, 0},     {"t4", 128, FLIM_PRECISION_AUTO, 64, 0, 100000, 256},
        {"l4", 32, FLIM_PRECISION_AUTO, 64, 0, 100000, 256},   {"l4", 128, FLIM_PRECISION_FP32, 64, 0, 100000, 0},
        {"l4", 128, FLIM_PRECISION_FP32, 64, 1009, 100000, 0}, {"l4", 128, FLIM_PRECISION_FP32, 97, 0, 100000, 0},
        {"h100", 32, FLIM_PRECISION_BF16, 1, 0, 100000, 0},    {"a10", 64, FLIM_PRECISION_AUTO, 1000, 0, 40, 0}};
    flim_suggestions *s = &all;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        flim_network net;
        suggest(&cases[c], &net, s);
        assert_true(s->n >= 1 && s->recommended >= 0 && s->recommended < s->n);
        for (int i = 0; i < s->n; i++) {
            const flim_plan *a = &s->plan[i];
            assert_true(a->request.batch <= cases[c].cells && s->note[i] && s->note[i][0]);
            assert_true(i == 0 || a->device_bytes >= s->plan[i - 1].device_bytes);
            for (int k = 0; k < s->n; k++) { /* what has a price at the same batches takes clearly less memory */
                const flim_plan *b = &s->plan[k];
                const bool alike = a->request.batch == b->request.batch && a->request.accumulate == b->request.accumulate;
                const bool precise = a->request.precision == b->request.precision;
                const bool computes_once = b->recompute == FLIM_RECOMPUTE_NONE;
                const bool price =
                    precise ? a->recompute != FLIM_RECOMPUTE_NONE : b->request.precision == s->current.request.precision;
                if (i != k && alike && computes_once && price && (double)a->device_bytes > 0.9 * (double)b->device_bytes) {
                    fail_msg("case %zu: %d gains nothing over %d", c, i + 1, k + 1);
                }
                assert_true(i == k || !alike || !precise || a->recompute != b->recompute); /* none twice */
            }
        }
        const int64_t wanted = cases[c].effective ? cases[c].effective : cases[c].batch;
        const int64_t most = wanted < cases[c].cells ? wanted : cases[c].cells;
        const double off = (double)cells_an_update(&s->plan[s->recommended]) / (double)most - 1;
        assert_true(cases[c].effective ? cells_an_update(&s->plan[s->recommended]) == most : off < 0.05 && off > -0.05);
    }
}

/* 97 cells an update do not fit at once and have no divisor: as many as that where they are asked for, 96 or so where they
 * are only what a config has. */
static void cells_that_nothing_divides(void **state)
{
    (void)state;
    flim_suggestions *s = &all;
    flim_network net;
    asked a = {"l4", 128, FLIM_PRECISION_FP32, 97, 0, 100000, 0};
    suggest(&a, &net, s);
    const flim_plan *best = &s->plan[s->recommended];
    if (best->request.batch < 16 || llabs(cells_an_update(best) - 97) > 2 || !strstr(s->why, "instead of 97")) {
        fail_msg("batch %lld x %lld; %s", (long long)best->request.batch, (long long)best->request.accumulate, s->why);
    }
    a.effective = 97;
    suggest(&a, &net, s);
    best = &s->plan[s->recommended];
    if (cells_an_update(best) != 97 || !strstr(s->why, "would be much faster")) {
        fail_msg("batch %lld x %lld; %s", (long long)best->request.batch, (long long)best->request.accumulate, s->why);
    }
}

/* What fits is left as it is, an eval batch of its own choice included. */
static void what_fits_is_kept(void **state)
{
    (void)state;
    flim_suggestions *s = &all;
    flim_network net;
    const asked a = {"l4", 32, FLIM_PRECISION_TF32, 48, 0, 100000, 256};
    suggest(&a, &net, s);
    const flim_plan_request *r = &s->plan[s->recommended].request;
    assert_true(s->current_fits && r->batch == 48 && r->accumulate == 1 && r->eval_batch == 256);
    assert_true(r->precision == FLIM_PRECISION_TF32 && s->plan[s->recommended].recompute == FLIM_RECOMPUTE_NONE);
}

/* Cells so large that only 16 bits with everything recomputed have budget, and ones that nothing has budget for. */
static void the_last_resort_is_found(void **state)
{
    (void)state;
    flim_device *device = describe("t4");
    const flim_plan_budget budget = flim_plan_budget_of(device, 0.85);
    bool tight = false, refused = false;
    for (int side = 60; side <= 180; side += 30) {
        flim_error err = {0};
        flim_network net;
        ok(flim_network_build(&net, 32, 2, 2048, side, side, &err), &err);
        const flim_plan_request request = {
            .net = &net, .precision = FLIM_PRECISION_FP32, .batch = 64, .accumulate = 1, .prefetch = 2};
        const flim_status status = flim_plan_suggest(device, &request, &budget, 0, 1000, &all, &err);
        if (status == FLIM_ERROR_MEMORY) {
            assert_non_null(strstr(err.text, "less is needed by a smaller preset")); /* all else was tried */
            assert_null(strstr(err.text, "--precision"));
            refused = true;
            continue;
        }
        ok(status, &err);
        const flim_plan *best = &all.plan[all.recommended];
        assert_int_equal(cells_an_update(best), 64);
        tight = tight || (best->request.precision == FLIM_PRECISION_FP16 && best->recompute != FLIM_RECOMPUTE_NONE);
        print_message("%d x %d pixels: batch %lld, %s, recomputation %s\n", side, side, (long long)best->request.batch,
                      flim_precision_name(best->request.precision), flim_recompute_name(best->recompute));
    }
    assert_true(tight && refused);
    flim_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_suggestion_fits_and_gains),
                                       cmocka_unit_test(cells_that_nothing_divides), cmocka_unit_test(what_fits_is_kept),
                                       cmocka_unit_test(the_last_resort_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

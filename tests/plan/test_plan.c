/* The planner on devices that are there and described: card files, sizes as text, plans that equal what a program allocates,
 * the batch search against a plain one, suggestions that fit, and configs that are changed in place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/test_folder.h"
#include "flim/loader.h"
#include "plan/plan.h"

static const char *const cards[] = {"t4",   "l4",      "a10",        "a30",      "a100-40", "a100-80",
                                    "l40s", "rtx3090", "rtx4080",    "rtx4090",  "rtx5090", "rtx6000",
                                    "b200", "h100",    "rtx6000ada", "rtxa6000", "h200"};
enum { N_CARDS = sizeof cards / sizeof cards[0] };

static const char devices[] = FLIM_SOURCE_DIR "/configs/devices";

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s: %s", flim_status_name(status), err->text);
    }
}

/* ---- cards and sizes ------------------------------------------------------------------------------------------------- */

static void every_card_has_its_figures(void **state)
{
    (void)state;
    for (int i = 0; i < N_CARDS; i++) {
        flim_error err = {0};
        flim_card card;
        char path[4096];
        ok(flim_card_find(devices, cards[i], &card, path, &err), &err);
        assert_true(card.memory_bytes > (int64_t)14 << 30 && card.memory_bytes < (int64_t)192e9);
        assert_true(card.bandwidth_gb >= 300 && card.fp32_tflops > 8 && card.half_tflops > card.fp32_tflops);
        /* twice the memory's clock times the bits of its bus, which are a multiple of 64 */
        const double bits = card.bandwidth_gb * 1e9 * 8 / (2e3 * card.memory_khz), whole = 64 * round(bits / 64);
        if (fabs(bits / whole - 1) > 0.01) {
            fail_msg("%s: %g GB/s at %d kHz are %g bits", cards[i], card.bandwidth_gb, card.memory_khz, bits);
        }
        assert_true(card.context_bytes > 0 && card.processors >= 40 && card.capability >= 75);
        ok(flim_card_find(devices, card.name, &card, NULL, &err), &err); /* by its own name, too */
    }
    flim_card card;
    flim_error err = {0};
    ok(flim_card_find(devices, "RTX 6000 Ada", &card, NULL, &err), &err);
    assert_string_equal(card.name, "NVIDIA RTX 6000 Ada Generation");
    assert_int_equal(flim_card_find(devices, "L44", &card, NULL, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "did you mean 'l4'"));
    ok(flim_card_nearest(devices, (int64_t)16e9, &card, &err), &err);
    assert_string_equal(card.name, "Tesla T4");
    ok(flim_card_nearest(devices, (int64_t)17e9, &card, &err), &err); /* a V100's, which cannot be planned for */
    assert_string_equal(card.name, "NVIDIA GeForce RTX 4080");
}

/* A card that is too old is known by name, and refused with the reason where a program would be made for it. */
static void an_old_card_is_refused(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_card card;
    flim_device *device = NULL;
    ok(flim_card_find(devices, "V100", &card, NULL, &err), &err);
    assert_int_equal(card.capability, 70);
    assert_int_equal(flim_device_describe(&card, &device, &err), FLIM_ERROR_DEVICE);
    assert_null(device);
    assert_true(strstr(err.text, "compute capability 7.0; 7.5 (T4) is the oldest") || strstr(err.text, "build with CUDA"));
}

static flim_status count_names(void *context, const char *stem, const flim_card *card, flim_error *err)
{
    int *found = context;
    (void)err;
    for (int i = 0; i < N_CARDS; i++) {
        *found += strcmp(stem, cards[i]) == 0;
    }
    *found += card->capability < FLIM_LEAST_CAPABILITY ? 100 : 0;
    return FLIM_OK;
}

static void every_card_is_listed(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_json *json = NULL;
    int found = 0;
    ok(flim_card_each(devices, count_names, &found, &err), &err);
    assert_int_equal(found, N_CARDS + 100); /* and the V100 */
    ok(flim_gpu_plan_list(devices, 0, NULL, &json, &err), &err);
    assert_int_equal(flim_json_length(flim_json_get(json, "cards")), N_CARDS + 1);
    flim_json_free(json);
    assert_int_equal(flim_gpu_plan_list("/nowhere", 0, NULL, &json, &err), FLIM_ERROR_USAGE);
    flim_json_free(json);
}

static void a_figure_without_a_source_is_refused(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_card card;
    char path[] = "/tmp/flim_card_XXXXXX";
    static const char text[] = "{\"name\": \"X\", \"memory_bytes\": {\"value\": 17000000000}}\n";
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    close(file);
    assert_int_equal(flim_card_read(path, &card, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "memory_bytes"));
    unlink(path);
}

static void sizes_are_decimal_or_binary(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"24GB", 24000000000}, {"22.5GiB", 24159191040}, {"512 MiB", 536870912}, {"1e3 mb", 1000000000},
                {"123", 123000000000}, {"80gib", 85899345920},   {"80", 80000000000},    {"22.5", 22500000000}};
    static const char *const bad[] = {"", "GB", "24XB", "-3GB", "1e99GB", "0GB", "24GBs", "nan", "24000000000", "80B"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t bytes = 0;
        flim_error err = {0};
        ok(flim_parse_bytes("size", good[i].text, &bytes, &err), &err);
        if (bytes != good[i].bytes) {
            fail_msg("'%s' gave %lld, expected %lld", good[i].text, (long long)bytes, (long long)good[i].bytes);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t bytes = 0;
        flim_error err = {0};
        if (flim_parse_bytes("size", bad[i], &bytes, &err) != FLIM_ERROR_USAGE) {
            fail_msg("'%s' was taken for %lld bytes", bad[i], (long long)bytes);
        }
    }
}

/* ---- plans ----------------------------------------------------------------------------------------------------------- */

static flim_plan_request request_of(const flim_network *net, flim_precision precision, int64_t batch)
{
    return (flim_plan_request){.net = net, .precision = precision, .batch = batch, .accumulate = 1, .prefetch = 2};
}

/* The device of a card, or NULL, with a message, where this build has no CUDA. */
static flim_device *describe(const char *name, flim_card *card)
{
    flim_error err = {0};
    flim_device *device = NULL;
    ok(flim_card_find(devices, name, card, NULL, &err), &err);
    if (flim_device_describe(card, &device, &err) != FLIM_OK) {
        print_message("skipped: %s\n", err.text);
    }
    return device;
}

static void a_plan_is_what_the_program_allocates(void **state)
{
    (void)state;
    flim_device *device = NULL;
    flim_error err = {0};
    flim_network net;
    flim_plan plan;
    flim_plan_trial trial;
    if (flim_device_open("cpu", NULL, &device, &err) != FLIM_OK) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    ok(flim_network_build(&net, 8, 2, 16, 9, 9, &err), &err);
    const flim_plan_budget budget = flim_plan_budget_of(device, 0.85);
    flim_plan_request request = request_of(&net, FLIM_PRECISION_FP32, 5);
    ok(flim_plan_make(device, &request, &budget, &plan, &err), &err);
    const int64_t cell = 16 * 81 * 4 + 81 + 4 + 4 + (int64_t)sizeof(flim_cell_id); /* signal, mask, label, weight, id */
    assert_true(plan.memory.total[FLIM_MEMORY_HOST] >= 3 * 5 * cell);
    assert_true(plan.memory.total[FLIM_MEMORY_HOST] <= 3 * (5 * cell + 5 * 64));
    assert_int_equal(plan.memory.total[FLIM_MEMORY_HOST], flim_loader_buffer_bytes(2, 5, 16, 9, 9));
    flim_program *program = NULL;
    ok(flim_plan_compile(device, &request, &budget, &program, &err), &err);
    ok(flim_program_allocate(program, &err), &err);
    assert_int_equal(flim_program_peak_bytes(program), plan.program_bytes);
    /* On the CPU batches and kept cells lie in the memory that the budget bounds; of a card's they do not. */
    request.cache_bytes = 1 << 20;
    ok(flim_plan_make(device, &request, &budget, &plan, &err), &err);
    assert_int_equal(plan.bounded_bytes, plan.program_bytes + plan.memory.total[FLIM_MEMORY_HOST]);
    const flim_plan_budget exact = {.total = budget.total, .margin = 1, .bytes = plan.bounded_bytes};
    const flim_plan_budget less = {.total = budget.total, .margin = 1, .bytes = plan.bounded_bytes - 1};
    assert_true(flim_plan_fits(&plan, &exact) && !flim_plan_fits(&plan, &less));
    assert_int_equal(flim_plan_limit(device, &request, &exact), plan.program_bytes);
    request.cache_bytes = 0;
    flim_program_destroy(program);
    ok(flim_plan_try(device, &request, &budget, &trial, &err), &err);
    assert_true(trial.train_ms > 0 && trial.predict_ms > 0);
    flim_device_close(device);
}

/* A trial runs what a run of the network would: hidden voxels are evaluated, pairs stay whole. */
static void networks_of_every_kind_are_tried(void **state)
{
    (void)state;
    static const flim_pretraining kinds[] = {{.masked = true},
                                             {.masked = true, .squared = true},
                                             {.contrastive = 0.1f},
                                             {.masked = true, .contrastive = 0.1f},
                                             {.masked = true, .contrastive = 0.1f, .by_class = true}};
    flim_device *device = NULL;
    flim_error err = {0};
    if (flim_device_open("cpu", NULL, &device, &err) != FLIM_OK) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    const flim_plan_budget budget = {.total = (int64_t)1 << 40, .margin = 0.85, .bytes = (int64_t)1 << 40};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        flim_network net;
        flim_plan plan;
        flim_plan_trial trial;
        print_message("kind %zu\n", i);
        ok(flim_network_build_pretraining(&net, (flim_model_size){4, 1}, 2, 16, 9, 9, &kinds[i], &err), &err);
        const flim_plan_request request = request_of(&net, FLIM_PRECISION_FP32, 6);
        ok(flim_plan_try(device, &request, &budget, &trial, &err), &err);
        assert_true(trial.train_ms > 0 && trial.predict_ms > 0);
        ok(flim_plan_auto(device, &request, &budget, 34, NULL, &plan, &trial, &err), &err);
        assert_int_equal(plan.request.batch, 34);
    }
    flim_device_close(device);
}

/* Every batch tried one after the other. */
static int64_t plain_search(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                            int64_t cap)
{
    int64_t best = 0;
    for (int64_t b = 1; b <= cap; b++) {
        flim_plan plan;
        flim_error err = {0};
        flim_plan_request r = *request;
        if (b > 32 && b % 8 != 0 && b != cap) {
            continue;
        }
        r.batch = b;
        ok(flim_plan_make(device, &r, budget, &plan, &err), &err);
        best = flim_plan_fits(&plan, budget) ? b : best;
    }
    return best;
}

static void the_search_finds_what_a_plain_one_finds(void **state)
{
    (void)state;
    flim_card card;
    flim_error err = {0};
    flim_network net;
    flim_device *device = describe("l4", &card);
    const bool is_card = device != NULL;
    if (!device && flim_device_open("cpu", NULL, &device, &err) != FLIM_OK) {
        skip();
    }
    static const struct {
        int64_t budget, cap, eval; /* eval: cells of prediction, 0 = the batch, -1 = none */
        flim_precision precision;
        flim_recompute recompute;
        int64_t kept; /* of the eval batch, in the plan */
    } cases[] = {{20 << 20, 40, 0, FLIM_PRECISION_FP32, FLIM_RECOMPUTE_NONE, 0},
                 {60 << 20, 40, 0, FLIM_PRECISION_FP32, FLIM_RECOMPUTE_NONE, 0},
                 {(int64_t)1 << 40, 45, 0, FLIM_PRECISION_FP32, FLIM_RECOMPUTE_NONE, 0},
                 {600 << 20, 1, 0, FLIM_PRECISION_FP32, FLIM_RECOMPUTE_NONE, 0},
                 {150 << 20, 72, 0, FLIM_PRECISION_FP32, FLIM_RECOMPUTE_ALL, 0},
                 {150 << 20, 35, -1, FLIM_PRECISION_FP32, FLIM_RECOMPUTE_NONE, -1},
                 /* prediction takes most of the budget, so that the need is flat up to some batch */
                 {300 << 20, 100, 90, FLIM_PRECISION_FP32, FLIM_RECOMPUTE_NONE, 90},
                 {50 << 20, 20, 100000, FLIM_PRECISION_FP32, FLIM_RECOMPUTE_NONE, 0}, /* more than fits beside a cell */
                 {50 << 20, 20, 1 << 20, FLIM_PRECISION_FP32, FLIM_RECOMPUTE_NONE, 0}}; /* 2^31 elements */
    ok(flim_network_build(&net, 16, 2, 64, 15, 15, &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_plan plan;
        const flim_plan_budget budget = {.total = (int64_t)1 << 40, .margin = 0.85, .bytes = cases[i].budget};
        flim_plan_request request = request_of(&net, is_card ? cases[i].precision : FLIM_PRECISION_FP32, 1);
        request.recompute = cases[i].recompute;
        request.eval_batch = cases[i].kept;
        const int64_t expected = plain_search(device, &request, &budget, cases[i].cap);
        request.eval_batch = cases[i].eval;
        flim_status status = flim_plan_largest(device, &request, &budget, cases[i].cap, &plan, &err);
        if (expected == 0) {
            assert_int_equal(status, FLIM_ERROR_MEMORY);
            continue;
        }
        ok(status, &err);
        if (plan.request.batch != expected || plan.request.eval_batch != cases[i].kept) {
            fail_msg("case %zu: found batch %lld, eval batch %lld; by trying each %lld, and %lld", i,
                     (long long)plan.request.batch, (long long)plan.request.eval_batch, (long long)expected,
                     (long long)cases[i].kept);
        }
        assert_true(flim_plan_fits(&plan, &budget));
        print_message("at most %4lld cells in %7.1f MiB beside eval batch %4lld: %lld\n", (long long)cases[i].cap,
                      (double)budget.bytes / 0x1p20, (long long)cases[i].kept, (long long)expected);
    }
    flim_device_close(device);
}

static void count_steps_down(void *context, flim_log_level level, const char *text)
{
    *(int *)context +=
        level == FLIM_LOG_NOTE && strncmp(text, "batch auto: ", 12) == 0 && strstr(text, "cells do not fit") != NULL;
}

/* Each allocation fails in turn: where that is one of the try, fewer cells run, by one step, and a note says so. */
static void a_batch_that_does_not_run_steps_down(void **state)
{
    (void)state;
    flim_device *device = NULL;
    flim_error err = {0};
    flim_network net;
    flim_plan most, plan;
    flim_plan_trial trial;
    if (flim_device_open("cpu", NULL, &device, &err) != FLIM_OK) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    ok(flim_network_build(&net, 8, 2, 8, 3, 3, &err), &err);
    const flim_plan_budget budget = {.total = (int64_t)1 << 40, .margin = 0.85, .bytes = (int64_t)1 << 40};
    const flim_plan_request request = request_of(&net, FLIM_PRECISION_FP32, 1);
    const int64_t cap = 45;
    ok(flim_plan_largest(device, &request, &budget, cap, &most, &err), &err);
    assert_int_equal(most.request.batch, cap);
    int stepped = 0, refused = 0;
    for (long n = 1;; n++) {
        int notes = 0;
        const flim_log log = {count_steps_down, &notes};
        flim_alloc_fail_at(n);
        flim_status status = flim_plan_auto(device, &request, &budget, cap, &log, &plan, &trial, &err);
        const long made = flim_alloc_fail_at(0);
        if (status != FLIM_OK) { /* while it was searched */
            assert_int_equal(status, FLIM_ERROR_MEMORY);
            assert_int_equal(notes, 0);
            refused++;
            continue;
        }
        assert_true(trial.train_ms > 0 && trial.predict_ms > 0);
        if (plan.request.batch != (notes ? 40 : cap) || notes > 1) { /* 45 - 45 / 16, rounded down to a multiple of 8 */
            fail_msg("allocation %ld failed: %d steps down to a batch of %lld", n, notes, (long long)plan.request.batch);
        }
        stepped += notes;
        if (made < n) {
            break;
        }
    }
    assert_true(stepped > 3 && refused > 3);
    flim_device_close(device);
}

static void no_tensor_reaches_31_bits(void **state)
{
    (void)state;
    flim_card card;
    flim_error err = {0};
    flim_network net;
    flim_plan plan;
    flim_device *device = describe("h200", &card);
    if (!device) {
        skip();
    }
    ok(flim_network_build(&net, 8, 2, 256, 21, 21, &err), &err);
    const flim_plan_budget budget = flim_plan_budget_of(device, 0.85);
    const flim_plan_request request = request_of(&net, FLIM_PRECISION_BF16, 1);
    ok(flim_plan_largest(device, &request, &budget, 1000000, &plan, &err), &err);
    const int64_t elements = 8 * 128 * 441; /* of down's and res1's: the stem's output, twice as large, is not stored */
    assert_true(plan.request.batch * elements < (int64_t)1 << 31);
    assert_true((plan.request.batch + 8) * elements >= (int64_t)1 << 31);
    ok(flim_plan_largest(device, &request, &budget, 123, &plan, &err), &err);
    assert_int_equal(plan.request.batch, 123); /* all of a training set that fits */
    flim_device_close(device);
}

/* ---- each listed card ------------------------------------------------------------------------------------------------ */

static void each_card_has_a_plan_in_time(void **state)
{
    (void)state;
    const double most_seconds = 10;
    for (int i = 0; i < N_CARDS; i++) {
        flim_card card;
        flim_error err = {0};
        flim_network net;
        flim_suggestions *s = malloc(sizeof *s);
        assert_non_null(s);
        const double begun = flim_seconds();
        flim_device *device = describe(cards[i], &card);
        if (!device) {
            free(s);
            skip();
        }
        const flim_device_info *info = flim_device_get_info(device);
        ok(flim_network_build(&net, 32, 2, 256, 21, 21, &err), &err);
        const flim_plan_budget budget = flim_plan_budget_of(device, 0.85);
        const flim_plan_request request = request_of(&net, info->auto_precision, 64);
        ok(flim_plan_suggest(device, &request, &budget, 0, 100000, s, &err), &err);
        const double took = flim_seconds() - begun;
        for (int k = 0; k < s->n; k++) {
            const flim_plan *p = &s->plan[k];
            assert_true(p->program_bytes > 0 && p->program_bytes + card.context_bytes == p->device_bytes);
            assert_true((double)p->device_bytes <= 0.85 * (double)card.memory_bytes);
            assert_true(k == 0 || p->device_bytes >= s->plan[k - 1].device_bytes); /* safest first */
        }
        const flim_plan *best = &s->plan[s->recommended];
        assert_int_equal(best->request.batch * best->request.accumulate, 64);
        print_message("%-30s %s, %s: batch %lld x %lld, %.2f GiB; largest %lld; %.2f s\n", info->name, info->libraries,
                      flim_precision_name(best->request.precision), (long long)best->request.batch,
                      (long long)best->request.accumulate, (double)best->device_bytes / 0x1p30,
                      (long long)s->plan[s->n - 1].request.batch, took);
        if (took > most_seconds) {
            fail_msg("%s took %.1f s, allowed are %.0f", cards[i], took, most_seconds);
        }
        flim_program *program = NULL;
        ok(flim_plan_compile(device, &best->request, &budget, &program, &err), &err);
        assert_int_equal(flim_program_allocate(program, &err), FLIM_ERROR_DEVICE); /* it is not there */
        flim_program_destroy(program);
        flim_device_close(device);
        free(s);
    }
}

/* Networks with and without kernels of our own, cells that divide and that do not: what is recomputed never adds to the plan,
 * and AUTO stays within every limit that ALL can keep, without recomputing where nothing must be. */
static void recomputation_keeps_every_limit(void **state)
{
    (void)state;
    static const struct {
        int width, t, h, w;
        flim_precision precision;
    } cases[] = {{8, 256, 21, 21, FLIM_PRECISION_TF32},   {32, 256, 21, 21, FLIM_PRECISION_TF32},
                 {32, 256, 21, 21, FLIM_PRECISION_FP32},  {32, 33, 7, 9, FLIM_PRECISION_TF32},
                 {128, 256, 21, 21, FLIM_PRECISION_TF32}, {128, 33, 7, 9, FLIM_PRECISION_FP32}};
    flim_card card;
    flim_device *device = describe("h100", &card);
    if (!device) {
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_error err = {0};
        flim_network net;
        flim_plan none, all, some;
        flim_plan_budget budget = flim_plan_budget_of(device, 0.85);
        ok(flim_network_build(&net, cases[i].width, 2, cases[i].t, cases[i].h, cases[i].w, &err), &err);
        flim_plan_request request = request_of(&net, cases[i].precision, 6);
        ok(flim_plan_make(device, &request, &budget, &none, &err), &err);
        request.recompute = FLIM_RECOMPUTE_ALL;
        ok(flim_plan_make(device, &request, &budget, &all, &err), &err);
        request.recompute = FLIM_RECOMPUTE_AUTO;
        enum { LIMITS = 7 };
        for (int k = 0; k < LIMITS; k++) {
            budget.bytes = none.program_bytes - (none.program_bytes - all.program_bytes) * k / (LIMITS - 1);
            ok(flim_plan_make(device, &request, &budget, &some, &err), &err);
            if (all.program_bytes > none.program_bytes || some.program_bytes > budget.bytes ||
                (k == 0 && some.program_bytes != none.program_bytes)) {
                fail_msg("case %zu: none %lld, all %lld, auto below %lld: %lld bytes", i, (long long)none.program_bytes,
                         (long long)all.program_bytes, (long long)budget.bytes, (long long)some.program_bytes);
            }
        }
    }
    flim_device_close(device);
}

static void recomputation_makes_room_on_a_card(void **state)
{
    (void)state;
    flim_card card;
    flim_error err = {0};
    flim_network net;
    flim_plan none, all, some;
    flim_device *device = describe("l4", &card);
    if (!device) {
        skip();
    }
    ok(flim_network_build(&net, 128, 2, 256, 21, 21, &err), &err); /* xlarge at batch 64 fits a card of 24 GB */
    flim_plan_budget budget = flim_plan_budget_of(device, 0.85);
    flim_plan_request request = request_of(&net, FLIM_PRECISION_TF32, 64);
    ok(flim_plan_make(device, &request, &budget, &none, &err), &err);
    request.recompute = FLIM_RECOMPUTE_ALL;
    ok(flim_plan_make(device, &request, &budget, &all, &err), &err);
    assert_true(all.program_bytes <= budget.bytes && all.program_bytes < none.program_bytes);
    budget.bytes = (all.program_bytes + none.program_bytes) / 2;
    request.recompute = FLIM_RECOMPUTE_AUTO;
    ok(flim_plan_make(device, &request, &budget, &some, &err), &err);
    assert_true(some.program_bytes <= budget.bytes && some.program_bytes > all.program_bytes);
    print_message("xlarge, batch 64, tf32 on an L4: %.2f GiB, all recomputed %.2f GiB, below %.2f GiB: %.2f GiB\n",
                  (double)none.program_bytes / 0x1p30, (double)all.program_bytes / 0x1p30, (double)budget.bytes / 0x1p30,
                  (double)some.program_bytes / 0x1p30);
    flim_device_close(device);
}

/* ---- configs --------------------------------------------------------------------------------------------------------- */

static const char config_text[] = "# a run of ours, größer\n"
                                  "preset: base      # 909,057 parameters\n"
                                  "batch:   64       # as in the paper\n"
                                  "\n"
                                  "accumulate: 1\n"
                                  "precision: 'auto' # let it choose\n"
                                  "checkpoint_activations: none\n"
                                  "data: [a.h5, b.h5]  # two files\n"
                                  "epochs: 7";

static char folder[] = "/tmp/flim_plan_XXXXXX";

static void path_of(const char *name, char out[4096])
{
    snprintf(out, 4096, "%s/%s", folder, name);
}

static void expect_file(const char *path, const char *expected)
{
    char *bytes = NULL;
    size_t count;
    flim_error err = {0};
    ok(flim_file_read(path, 1 << 20, &bytes, &count, &err), &err);
    assert_string_equal(bytes, expected);
    flim_free(bytes);
}

static flim_plan some_plan(const flim_network *net)
{
    flim_plan plan = {.request = request_of(net, FLIM_PRECISION_TF32, 32),
                      .auto_precision = FLIM_PRECISION_TF32,
                      .recompute = FLIM_RECOMPUTE_ALL};
    plan.request.accumulate = 2;
    return plan;
}

static void applying_keeps_every_other_byte(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_network net = {0};
    const flim_plan plan = some_plan(&net);
    char config[4096], backup[4096], first[4096], second[4096];
    path_of("run.yaml", config);
    path_of("run.yaml.backup.1", first);
    path_of("run.yaml.backup.2", second);
    ok(flim_file_write(config, config_text, strlen(config_text), &err), &err);
    ok(flim_plan_apply(&plan, NULL, 0, config, backup, &(int){0}, &err), &err);
    static const char expected[] = "# a run of ours, größer\n"
                                   "preset: base      # 909,057 parameters\n"
                                   "batch:   32       # as in the paper\n"
                                   "\n"
                                   "accumulate: 2\n"
                                   "precision: tf32 # let it choose\n"
                                   "checkpoint_activations: all\n"
                                   "data: [a.h5, b.h5]  # two files\n"
                                   "epochs: 7";
    expect_file(config, expected);
    expect_file(first, config_text);
    ok(flim_plan_apply(&plan, NULL, 0, config, backup, &(int){0}, &err),
       &err); /* twice: a second backup, the first as it was */
    expect_file(config, expected);
    expect_file(first, config_text);
    expect_file(second, expected);
    flim_settings settings;
    ok(flim_settings_init(&settings, &err), &err);
    ok(flim_settings_read(&settings, config, &err), &err);
    assert_int_equal(settings.batch, 32);
    assert_int_equal(settings.accumulate, 2);
    assert_int_equal(settings.precision, FLIM_PRECISION_TF32);
    assert_int_equal(settings.checkpoint_activations, FLIM_RECOMPUTE_ALL);
    assert_int_equal(settings.epochs, 7);
    flim_settings_free(&settings);
}

static void refuse(const char *name, const char *text, mode_t mode, flim_status expected, const char *says)
{
    flim_error err = {0};
    flim_network net = {.preset = "base", .width = 32, .depth = 1};
    const flim_plan plan = some_plan(&net);
    char config[4096], backup[4096], left[4096];
    path_of(name, config);
    ok(flim_file_write(config, text, strlen(text), &err), &err);
    assert_int_equal(chmod(config, mode), 0);
    flim_status status = flim_plan_apply(&plan, NULL, 0, config, backup, &(int){0}, &err);
    if (status != expected || !strstr(err.text, says) || strchr(err.text, '\n')) {
        fail_msg("%s: %s '%s', expected one line that says '%s'", name, flim_status_name(status), err.text, says);
    }
    expect_file(config, text);
    snprintf(left, sizeof left, "%.4000s.backup.1", config);
    assert_false(flim_file_exists(left));
    snprintf(left, sizeof left, "%.4000s.tmp", config);
    assert_false(flim_file_exists(left));
}

/* Forms that YAML has for the same config, and what a Windows editor makes of it. */
static void applying_keeps_every_form(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
    } cases[] = {{"batch: 64\r\naccumulate: 1 # one\r\ncheckpoint_activations: none\r\n",
                  "batch: 32\r\naccumulate: 2 # one\r\ncheckpoint_activations: all\r\n"},
                 {"\xef\xbb\xbf# größer\nbatch: 64\naccumulate: 1\ncheckpoint_activations: none",
                  "\xef\xbb\xbf# größer\nbatch: 32\naccumulate: 2\ncheckpoint_activations: all"},
                 {"\xef\xbb\xbf{batch: 64, accumulate: 1, checkpoint_activations: none}\n",
                  "\xef\xbb\xbf{batch: 32, accumulate: 2, checkpoint_activations: all}\n"},
                 {"batch:\t\"64\"\naccumulate:   '1'\ncheckpoint_activations: none\n",
                  "batch:\t32\naccumulate:   2\ncheckpoint_activations: all\n"},
                 {"---\n? batch\n: 64\n\"accumulate\": 1\ncheckpoint_activations: auto\n...\n",
                  "---\n? batch\n: 32\n\"accumulate\": 2\ncheckpoint_activations: all\n...\n"},
                 {"batch: auto\naccumulate: 1\neval_batch: 256\ncheckpoint_activations: none\n",
                  "batch: 32\naccumulate: 2\neval_batch: 32\ncheckpoint_activations: all\n"},
                 /* keys that are missing are added, in the file's own form */
                 {"batch: 64\n", "batch: 32\naccumulate: 2\ncheckpoint_activations: all\n"},
                 {"batch: 64 # none behind it", "batch: 32 # none behind it\naccumulate: 2\ncheckpoint_activations: all\n"},
                 {"", "batch: 32\naccumulate: 2\ncheckpoint_activations: all\n"},
                 {"# nothing yet\n", "# nothing yet\nbatch: 32\naccumulate: 2\ncheckpoint_activations: all\n"},
                 {"  batch: 64\n  # accumulate: 1\n",
                  "  batch: 32\n  # accumulate: 1\n  accumulate: 2\n  checkpoint_activations: all\n"},
                 {"batch: 64\r\nepochs: 2", "batch: 32\r\nepochs: 2\r\naccumulate: 2\r\ncheckpoint_activations: all\r\n"},
                 {"{batch: 64}\n", "{batch: 32, accumulate: 2, checkpoint_activations: all}\n"},
                 {"{}", "{batch: 32, accumulate: 2, checkpoint_activations: all}"},
                 {"---\nbatch: 64\n...\n", "---\nbatch: 32\naccumulate: 2\ncheckpoint_activations: all\n...\n"},
                 {"stages:\n  - batch: 8\nepochs: 2\n",
                  "stages:\n  - batch: 8\nepochs: 2\nbatch: 32\naccumulate: 2\ncheckpoint_activations: all\n"},
                 {"batch: 32\naccumulate: 2\ncheckpoint_activations: all\nstages:\n  - batch: 8\n    accumulate: 1\n",
                  "batch: 32\naccumulate: 2\ncheckpoint_activations: all\nstages:\n  - batch: 8\n    accumulate: 1\n"}};
    flim_network net = {.preset = "base", .width = 32, .depth = 1};
    const flim_plan plan = some_plan(&net);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_error err = {0};
        char config[4096], backup[4096], name[32];
        snprintf(name, sizeof name, "form%zu.yaml", i);
        path_of(name, config);
        ok(flim_file_write(config, cases[i].before, strlen(cases[i].before), &err), &err);
        ok(flim_plan_apply(&plan, NULL, 0, config, backup, &(int){0}, &err), &err);
        expect_file(config, cases[i].after);
        expect_file(backup, cases[i].before);
        flim_settings settings;
        ok(flim_settings_init(&settings, &err), &err);
        ok(flim_settings_read(&settings, config, &err), &err);
        assert_true(settings.batch == 32 && settings.accumulate == 2);
        flim_settings_free(&settings);
    }
}

/* precision: auto, said or not, stays where it comes to the plan's on that card, and only there. */
static void an_automatic_precision_is_replaced_by_another(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_network net = {.preset = "base", .width = 32, .depth = 1};
    flim_plan plan = some_plan(&net);
    char config[4096], backup[4096];
    static const char text[] = "batch: 64\naccumulate: 1\ncheckpoint_activations: none\n";
    path_of("precision.yaml", config);
    ok(flim_file_write(config, text, strlen(text), &err), &err);
    plan.request.precision = FLIM_PRECISION_FP16; /* where fp32, what this card's auto is, does not fit */
    plan.auto_precision = FLIM_PRECISION_FP32;
    ok(flim_plan_apply(&plan, NULL, 0, config, backup, &(int){0}, &err), &err);
    expect_file(config, "batch: 32\naccumulate: 2\ncheckpoint_activations: all\nprecision: fp16\n");
    ok(flim_file_write(config, text, strlen(text), &err), &err);
    plan.request.precision = FLIM_PRECISION_FP32;
    ok(flim_plan_apply(&plan, NULL, 0, config, backup, &(int){0}, &err), &err);
    expect_file(config, "batch: 32\naccumulate: 2\ncheckpoint_activations: all\n");
}

static void what_cannot_be_applied_leaves_the_file(void **state)
{
    (void)state;
    refuse("readonly.yaml", config_text, 0444, FLIM_ERROR_WRITE, "read-only");
    refuse("folded.yaml", "batch: >-\n  64\naccumulate: 1\ncheckpoint_activations: none\n", 0644, FLIM_ERROR_USAGE,
           "'batch' is written in a form that cannot be changed in place");
    refuse("preset.yaml", "preset: tiny\nbatch: 64\naccumulate: 1\ncheckpoint_activations: none\n", 0644, FLIM_ERROR_USAGE,
           "has preset tiny (width 8, depth 1), and the plan is for base");
    refuse("broken.yaml", "batch: 64\naccumulate: [1\n", 0644, FLIM_ERROR_USAGE, "broken.yaml");
    refuse("unknown.yaml", "batch: 64\nbacth: 1\n", 0644, FLIM_ERROR_USAGE, "unknown key");
    refuse("twice.yaml", "batch: 64\nbatch: 32\n", 0644, FLIM_ERROR_USAGE, "already set in line 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_card_has_its_figures),
        cmocka_unit_test(an_old_card_is_refused),
        cmocka_unit_test(every_card_is_listed),
        cmocka_unit_test(a_figure_without_a_source_is_refused),
        cmocka_unit_test(sizes_are_decimal_or_binary),
        cmocka_unit_test(a_plan_is_what_the_program_allocates),
        cmocka_unit_test(the_search_finds_what_a_plain_one_finds),
        cmocka_unit_test(networks_of_every_kind_are_tried),
        cmocka_unit_test(a_batch_that_does_not_run_steps_down),
        cmocka_unit_test(no_tensor_reaches_31_bits),
        cmocka_unit_test(each_card_has_a_plan_in_time),
        cmocka_unit_test(recomputation_keeps_every_limit),
        cmocka_unit_test(recomputation_makes_room_on_a_card),
        cmocka_unit_test(applying_keeps_every_other_byte),
        cmocka_unit_test(applying_keeps_every_form),
        cmocka_unit_test(an_automatic_precision_is_replaced_by_another),
        cmocka_unit_test(what_cannot_be_applied_leaves_the_file),
    };
    return RUN_IN_FOLDER(folder, tests);
}

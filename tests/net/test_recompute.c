/* Activation checkpointing: three updates, a window of unequal micro-batches among them, end in the same bits with nothing,
 * some or all of the inside of blocks recomputed; the memory plan shows what that saves. */
#include "reference/device_test.h"
#include "reference/formula.h"

static const struct {
    flim_state state;
    const char *name;
} states[] = {{FLIM_STATE_PARAMETERS, "parameters"},
              {FLIM_STATE_STATISTICS, "statistics"},
              {FLIM_STATE_GRADIENTS, "gradients"},
              {FLIM_STATE_MOMENT1, "moment1"},
              {FLIM_STATE_MOMENT2, "moment2"}};
enum { N_STATES = sizeof states / sizeof states[0], BATCH = 5 };

typedef struct outcome {
    float *state[N_STATES];
    double loss;
    int64_t bytes, updates;
} outcome;

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s", err->text);
    }
}

static int64_t count_of(const flim_network *net, int k)
{
    return states[k].state == FLIM_STATE_STATISTICS ? net->statistics : net->parameters;
}

/* 5 cells; 3 + 2 in one window; 4 cells. */
static void train(flim_program *program, const flim_network *net)
{
    static const struct {
        int64_t n;
        bool first, last;
        double divisor;
    } calls[] = {{5, true, true, 5}, {3, true, false, 5}, {2, false, true, 5}, {4, true, true, 4}};
    int64_t cell = 0;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        flim_error err = {0};
        flim_batch batch = ref_formula_batch(net, cell, calls[i].n);
        const flim_step step = {.first = calls[i].first,
                                .last = calls[i].last,
                                .divisor = calls[i].divisor,
                                .learning_rate = 0.001f,
                                .weight_decay = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.999f,
                                .epsilon = 1e-8f,
                                .clip = 1,
                                .label_smoothing = 0.1f,
                                .dropout = 0.25f,
                                .block_dropout = 0.25f};
        ok(flim_program_train(program, &batch, &step, &err), &err);
        ok(flim_program_wait(program, &err), &err);
        ref_batch_free(&batch);
        cell += calls[i].n;
    }
}

static int64_t planned_bytes(flim_program *program)
{
    flim_error err = {0};
    flim_memory_plan plan;
    ok(flim_program_memory(program, &plan, &err), &err);
    return plan.total[FLIM_MEMORY_DEVICE];
}

static flim_program *compile(const flim_network *net, flim_recompute recompute, int64_t limit, int64_t batch)
{
    flim_error err = {0};
    flim_program *program = NULL;
    const flim_program_options options = {.precision = target->precision,
                                          .train_batch = batch,
                                          .eval_batch = 2,
                                          .deterministic = true,
                                          .recompute = recompute,
                                          .memory_limit = limit};
    ok(flim_program_compile(target->device, net, &options, &program, &err), &err);
    return program;
}

static outcome run(const flim_network *net, flim_recompute recompute, int64_t limit)
{
    flim_error err = {0};
    outcome out = {0};
    flim_program *program = compile(net, recompute, limit, BATCH);
    out.bytes = planned_bytes(program);
    ok(flim_program_allocate(program, &err), &err);
    assert_int_equal(planned_bytes(program), out.bytes);
    float *parameters, *statistics;
    ref_new_weights(net, &parameters, &statistics);
    float *zeros = calloc((size_t)net->parameters, sizeof *zeros);
    assert_non_null(zeros);
    ok(flim_program_write(program, FLIM_STATE_PARAMETERS, parameters, &err), &err);
    ok(flim_program_write(program, FLIM_STATE_STATISTICS, statistics, &err), &err);
    ok(flim_program_write(program, FLIM_STATE_MOMENT1, zeros, &err), &err);
    ok(flim_program_write(program, FLIM_STATE_MOMENT2, zeros, &err), &err);
    const flim_counters counters = {.loss_scale = target->precision == FLIM_PRECISION_FP16 ? 16 : 1};
    ok(flim_program_set_counters(program, &counters, &err), &err);
    train(program, net);
    for (int k = 0; k < N_STATES; k++) {
        const size_t bytes = (size_t)count_of(net, k) * sizeof(float);
        out.state[k] = malloc(bytes);
        assert_non_null(out.state[k]);
        memset(out.state[k], 0xff, bytes);
        ok(flim_program_read(program, states[k].state, out.state[k], &err), &err);
    }
    flim_totals totals;
    ok(flim_program_totals(program, true, &totals, &err), &err);
    assert_true(totals.updates == 3 || target->precision == FLIM_PRECISION_FP16); /* an overflow there skips one */
    assert_true(totals.updates > 0);
    out.updates = totals.updates;
    out.loss = totals.loss;
    flim_program_destroy(program);
    free(parameters);
    free(statistics);
    free(zeros);
    return out;
}

static void release(outcome *o)
{
    for (int k = 0; k < N_STATES; k++) {
        free(o->state[k]);
    }
}

static void same_bits(const flim_network *net, const outcome *a, const outcome *b, const char *what)
{
    for (int k = 0; k < N_STATES; k++) {
        for (int64_t i = 0; i < count_of(net, k); i++) {
            if (memcmp(&a->state[k][i], &b->state[k][i], sizeof(float)) != 0) {
                fail_msg("%s: %s[%lld] is %.9g, without recomputation %.9g; reproduce: FLIM_TEST_DEVICE=%s "
                         "FLIM_TEST_PRECISION=%s tests/test_checkpointing",
                         what, states[k].name, (long long)i, (double)b->state[k][i], (double)a->state[k][i], target->spec,
                         flim_precision_name(target->precision));
            }
        }
    }
    assert_true(a->loss == b->loss && a->updates == b->updates);
}

static void recomputation_changes_no_bit(void **state)
{
    (void)state;
    flim_network net;
    /* width, depth, classes, T, H, W */
    static const int sizes[][6] = {
        {4, 1, 2, 9, 5, 5}, {8, 1, 3, 33, 9, 7}, {32, 1, 2, 16, 6, 6}, {12, 2, 2, 16, 6, 6}, {72, 1, 2, 9, 5, 5}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int *s = sizes[i];
        assert_int_equal(flim_network_build_sized(&net, (flim_model_size){s[0], s[1]}, s[2], s[3], s[4], s[5], NULL),
                         FLIM_OK);
        outcome none = run(&net, FLIM_RECOMPUTE_NONE, 0), all = run(&net, FLIM_RECOMPUTE_ALL, 0);
        same_bits(&net, &none, &all, "all");
        /* On a card the scratch of kernels, which differs with the form of their input, is most of what so small a network needs. */
        const int64_t scratch = flim_device_get_info(target->device)->own_memory ? (int64_t)32 << 20 : 0;
        assert_true(all.bytes <= none.bytes + scratch);
        release(&all);
        enum { LIMITS = 5 };
        for (int k = 0; k < LIMITS; k++) { /* from all the room that is wanted down to the least */
            const int64_t least = all.bytes < none.bytes ? all.bytes : none.bytes;
            const int64_t limit = none.bytes - (none.bytes - least) * k / (LIMITS - 1);
            outcome some = run(&net, FLIM_RECOMPUTE_AUTO, limit);
            same_bits(&net, &none, &some, "auto");
            assert_true(some.bytes <= limit);
            assert_true(k > 0 || some.bytes == none.bytes);
            release(&some);
        }
        release(&none);
    }
}

/* At the sizes of real cells, where activations are nearly all that there is; of base, since of large little is stored that could be
 * dropped where its kernels apply activations as they load.  Nothing is allocated. */
static void the_plan_shows_the_gain(void **state)
{
    (void)state;
    flim_network net;
    assert_int_equal(flim_network_build(&net, 32, 2, 256, 21, 21, NULL), FLIM_OK);
    flim_program *none = compile(&net, FLIM_RECOMPUTE_NONE, 0, 8), *all = compile(&net, FLIM_RECOMPUTE_ALL, 0, 8);
    const int64_t most = planned_bytes(none), least = planned_bytes(all), middle = (most + least) / 2;
    flim_program *some = compile(&net, FLIM_RECOMPUTE_AUTO, middle, 8);
    print_message("base, 8 cells, %s on %s: %.1f MiB, with recomputation %.1f MiB, auto below %.1f MiB: %.1f MiB\n",
                  flim_precision_name(target->precision), target->spec, (double)most / 0x1p20, (double)least / 0x1p20,
                  (double)middle / 0x1p20, (double)planned_bytes(some) / 0x1p20);
    assert_true(least < most * 97 / 100);
    assert_true(planned_bytes(some) <= middle);
    flim_program_destroy(none);
    flim_program_destroy(all);
    flim_program_destroy(some);
}

REF_DEVICE_TESTS(cmocka_unit_test(recomputation_changes_no_bit), cmocka_unit_test(the_plan_shows_the_gain))

/* What training keeps beside the weights, through flim_program_*: the running average of weights and statistics, running
 * statistics made again (flim_program_recalibrate), the norms of an epoch's gradients.  The average and the norms are held to
 * the program's own weights and norms after each update, so that they are exact in every precision; the statistics to the
 * double-precision reference. */
#include "backend/backend.h"
#include "backend/inspect.h"
#include "reference/device_test.h"
#include "reference/formula.h"
#include "reference/reference.h"

enum { CELLS = 3, UPDATES = 6 };

typedef struct scene {
    flim_network net;
    float *parameters, *statistics; /* P, S: at the beginning */
    flim_program *program;
} scene;

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s; reproduce: FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s tests/test_training_state", err->text,
                 target->spec, flim_precision_name(target->precision));
    }
}

static flim_program *make_program(const scene *s, bool average)
{
    const flim_program_options options = {
        .train_batch = CELLS, .eval_batch = CELLS, .average = average, .deterministic = true};
    flim_program *program = ref_program_create_with(target, &s->net, options, s->parameters, s->statistics);
    assert_non_null(program);
    return program;
}

static scene begin(int classes, bool average)
{
    scene s;
    flim_error err = {0};
    ok(flim_network_build(&s.net, 8, classes, 9, 5, 5, &err), &err);
    ref_new_weights(&s.net, &s.parameters, &s.statistics);
    s.program = make_program(&s, average);
    return s;
}

static void end(scene *s)
{
    flim_program_destroy(s->program);
    free(s->parameters);
    free(s->statistics);
}

static int64_t floats_of(const scene *s, flim_state state)
{
    return state == FLIM_STATE_STATISTICS || state == FLIM_STATE_AVERAGE_STATISTICS ? s->net.statistics : s->net.parameters;
}

/* The caller's to free; NaN before the read. */
static float *read_state(const scene *s, flim_program *program, flim_state state)
{
    const int64_t count = floats_of(s, state);
    flim_error err = {0};
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    ok(flim_program_read(program, state, values, &err), &err);
    return values;
}

static bool same_state(const scene *s, flim_program *a, flim_program *b, flim_state state)
{
    float *of_a = read_state(s, a, state), *of_b = read_state(s, b, state);
    const bool same = memcmp(of_a, of_b, (size_t)floats_of(s, state) * sizeof *of_a) == 0;
    free(of_a);
    free(of_b);
    return same;
}

static flim_step step_of(void)
{
    flim_step step = flim_step_defaults();
    step.divisor = CELLS;
    step.learning_rate = 0.0078125f;
    step.weight_decay = 0.0078125f;
    step.epsilon = 1e-3f;
    step.dropout = step.block_dropout = 0.25f;
    return step;
}

static void train(const scene *s, flim_program *program, int update, const flim_step *step)
{
    flim_error err = {0};
    flim_batch batch = ref_formula_batch(&s->net, update * CELLS, CELLS);
    ok(flim_program_train(program, &batch, step, &err), &err);
    ok(flim_program_wait(program, &err), &err);
    ref_batch_free(&batch);
}

/* (CELLS,K') of cells that training has not seen. */
static void predict(const scene *s, flim_program *program, float *logits)
{
    flim_error err = {0};
    flim_batch batch = ref_formula_batch(&s->net, 1000, CELLS);
    for (int64_t i = 0; i < CELLS * s->net.head[0].outputs; i++) {
        logits[i] = NAN;
    }
    ok(flim_program_predict(program, &batch, logits, &err), &err);
    ok(flim_program_wait(program, &err), &err);
    ref_batch_free(&batch);
}

/* ---- averages ----------------------------------------------------------------------------------------------------------- */

/* mean of update t (from 1): d mean + (1 - d) value, d = min(decay, t / (9 + t)). */
static void follow(const scene *s, flim_state of, double decay, int64_t t, double *mean)
{
    float *now = read_state(s, s->program, of);
    const double most = (double)t / (double)(9 + t), d = decay < most ? decay : most;
    for (int64_t i = 0; i < floats_of(s, of); i++) {
        mean[i] = d * mean[i] + (1 - d) * (double)now[i];
    }
    free(now);
}

static void close_to(const scene *s, flim_state of, const double *mean, double decay, int64_t t)
{
    float *found = read_state(s, s->program, of);
    const double distance = ref_distance(found, mean, floats_of(s, of));
    if (!(distance <= 1e-6)) {
        fail_msg("decay %g, update %lld: the average of %s is off by %g of its size; reproduce: FLIM_TEST_DEVICE=%s "
                 "FLIM_TEST_PRECISION=%s tests/test_training_state",
                 decay, (long long)t, of == FLIM_STATE_AVERAGE_PARAMETERS ? "the weights" : "the statistics", distance,
                 target->spec, flim_precision_name(target->precision));
    }
    free(found);
}

/* Decays that the beginning's bound keeps away at first (0.3 from update 4 on), always (0.99) and never (0). */
static void the_average_is_that_of_the_weights_after_each_update(void **state)
{
    (void)state;
    static const double decays[] = {0, 0.25, 0.99};
    for (int k = 0; k < 3; k++) {
        scene s = begin(2 + k % 2, true);
        double *weights = ref_from_floats(s.parameters, s.net.parameters);
        double *statistics = ref_from_floats(s.statistics, s.net.statistics);
        flim_step step = step_of();
        step.average_decay = (float)decays[k];
        for (int t = 1; t <= UPDATES; t++) {
            train(&s, s.program, t, &step);
            follow(&s, FLIM_STATE_PARAMETERS, (double)step.average_decay, t, weights);
            follow(&s, FLIM_STATE_STATISTICS, (double)step.average_decay, t, statistics);
            close_to(&s, FLIM_STATE_AVERAGE_PARAMETERS, weights, decays[k], t);
            close_to(&s, FLIM_STATE_AVERAGE_STATISTICS, statistics, decays[k], t);
        }
        free(weights);
        free(statistics);
        end(&s);
    }
}

/* Micro-batches enter no average before the update that they end in. */
static void an_accumulation_is_one_update(void **state)
{
    (void)state;
    scene s = begin(2, true);
    flim_step step = step_of();
    step.average_decay = 0.5f;
    step.last = false;
    float *before = read_state(&s, s.program, FLIM_STATE_AVERAGE_PARAMETERS);
    train(&s, s.program, 0, &step);
    float *between = read_state(&s, s.program, FLIM_STATE_AVERAGE_PARAMETERS);
    assert_memory_equal(before, between, (size_t)s.net.parameters * sizeof *before);
    step.first = false;
    step.last = true;
    train(&s, s.program, 1, &step);
    float *after = read_state(&s, s.program, FLIM_STATE_AVERAGE_PARAMETERS);
    assert_memory_not_equal(before, after, (size_t)s.net.parameters * sizeof *before);
    free(before);
    free(between);
    free(after);
    end(&s);
}

/* Predictions after an exchange are those of a program with the averages as its weights; a second exchange restores every
 * bit, and training goes on as without.  On a device whose steps have equal bits, all of it is bit for bit. */
static void the_average_is_exchanged_and_back(void **state)
{
    (void)state;
    scene s = begin(3, true);
    flim_program *undisturbed = make_program(&s, true), *plain = make_program(&s, false);
    flim_step step = step_of();
    flim_error err = {0};
    float found[CELLS * 3], want[CELLS * 3], training[CELLS * 3];
    step.average_decay = 0.5f;
    for (int t = 0; t < UPDATES; t++) {
        train(&s, s.program, t, &step);
        train(&s, undisturbed, t, &step);
        predict(&s, s.program, training);
        ok(flim_program_exchange_average(s.program, &err), &err);
        predict(&s, s.program, found);
        for (int i = 0; i < 2; i++) {
            static const flim_state from[] = {FLIM_STATE_AVERAGE_PARAMETERS, FLIM_STATE_AVERAGE_STATISTICS},
                                    to[] = {FLIM_STATE_PARAMETERS, FLIM_STATE_STATISTICS};
            float *values = read_state(&s, undisturbed, from[i]);
            ok(flim_program_write(plain, to[i], values, &err), &err);
            free(values);
        }
        predict(&s, plain, want);
        assert_memory_equal(found, want, sizeof want);
        assert_memory_not_equal(found, training, sizeof found);
        ok(flim_program_exchange_average(s.program, &err), &err);
        predict(&s, s.program, found);
        assert_memory_equal(found, training, sizeof found);
        for (int i = FLIM_STATE_PARAMETERS; i <= FLIM_STATE_AVERAGE_STATISTICS; i++) {
            assert_true(same_state(&s, s.program, undisturbed, (flim_state)i));
        }
    }
    flim_program_destroy(undisturbed);
    flim_program_destroy(plain);
    end(&s);
}

/* Averages change nothing else, and a program without them refuses to show any. */
static void programs_without_averages(void **state)
{
    (void)state;
    scene s = begin(2, false);
    flim_program *averaging = make_program(&s, true);
    flim_step step = step_of();
    flim_error err = {0};
    step.average_decay = 0.5f;
    for (int t = 0; t < 3; t++) {
        train(&s, s.program, t, &step);
        train(&s, averaging, t, &step);
    }
    for (int i = FLIM_STATE_PARAMETERS; i <= FLIM_STATE_MOMENT2; i++) {
        assert_true(same_state(&s, s.program, averaging, (flim_state)i));
    }
    assert_int_equal(flim_program_exchange_average(s.program, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "no averages"));
    assert_int_equal(flim_program_read(s.program, FLIM_STATE_AVERAGE_PARAMETERS, s.parameters, &err), FLIM_ERROR);
    flim_memory_plan with, without;
    ok(flim_program_memory(averaging, &with, &err), &err);
    ok(flim_program_memory(s.program, &without, &err), &err);
    assert_true(with.total[FLIM_MEMORY_DEVICE] >=
                without.total[FLIM_MEMORY_DEVICE] + (int64_t)sizeof(float) * (s.net.parameters + s.net.statistics));
    flim_program_destroy(averaging);
    end(&s);
}

/* ---- an encoder that is held back ------------------------------------------------------------------------------------------- */

/* hold times in turn: AdamW by the double-precision formula, the encoder's at its share of the rate, from the program's own
 * gradients; the norm, by which both are clipped, is the heads' alone while the encoder is frozen, and a frozen one keeps its bits. */
static void an_encoder_learns_at_its_own_rate(void **state)
{
    (void)state;
    static const float hold[] = {0, 0.75f, 1, 1, 0.75f, 0};
    scene s = begin(3, false);
    const int64_t all = s.net.parameters, encoder = flim_network_encoder_parameters(&s.net);
    double *m = ref_array(all), *v = ref_array(all);
    assert_true(encoder > 0 && encoder < all);
    assert_string_equal(flim_network_find(&s.net, "head.fc1.weight")->name, "head.fc1.weight");
    assert_int_equal(flim_network_find(&s.net, "head.fc1.weight")->offset, encoder);
    for (int t = 0; t < (int)(sizeof hold / sizeof hold[0]); t++) {
        flim_step step = step_of();
        step.clip = 0.5f;
        step.encoder_hold = hold[t];
        float *before = read_state(&s, s.program, FLIM_STATE_PARAMETERS);
        train(&s, s.program, t, &step);
        float *raw = read_state(&s, s.program, FLIM_STATE_GRADIENTS),
              *after = read_state(&s, s.program, FLIM_STATE_PARAMETERS);
        double *gradients = ref_from_floats(raw, all), *want = ref_from_floats(before, all);
        const int64_t first = hold[t] >= 1 ? encoder : 0;
        double squares = 0;
        for (int64_t i = first; i < all; i++) {
            squares += gradients[i] * gradients[i];
        }
        const double factor = fmin(1, (double)step.clip / (sqrt(squares) + 1e-6));
        for (int64_t i = 0; i < all; i++) {
            gradients[i] *= factor;
        }
        flim_step slow = step;
        slow.learning_rate = step.learning_rate * (1 - hold[t]);
        ref_adamw(want, gradients, m, v, encoder, t + 1, &slow);
        ref_adamw(want + encoder, gradients + encoder, m + encoder, v + encoder, all - encoder, t + 1, &step);
        double difference[2] = {0, 0}, movement[2] = {0, 0};
        for (int64_t i = 0; i < all; i++) {
            difference[i >= encoder] += pow((double)after[i] - want[i], 2);
            movement[i >= encoder] += pow(want[i] - (double)before[i], 2);
        }
        for (int part = 0; part < 2; part++) {
            if (!(difference[part] <= 1e-8 * movement[part]) && !(part == 0 && hold[t] >= 1)) {
                fail_msg("update %d, hold %g: the %s is off by %g of its movement; reproduce: FLIM_TEST_DEVICE=%s "
                         "FLIM_TEST_PRECISION=%s tests/test_training_state",
                         t, (double)hold[t], part ? "head" : "encoder", sqrt(difference[part] / movement[part]), target->spec,
                         flim_precision_name(target->precision));
            }
        }
        assert_true((memcmp(before, after, (size_t)encoder * sizeof *after) == 0) == (hold[t] >= 1));
        flim_totals totals;
        flim_error err = {0};
        ok(flim_program_totals(s.program, false, &totals, &err), &err);
        assert_true(fabs(totals.grad_norm - sqrt(squares)) <= 1e-5 * sqrt(squares));
        free(before);
        free(raw);
        free(after);
        free(gradients);
        free(want);
    }
    free(m);
    free(v);
    end(&s);
}

/* What the head pools is the mean of the last unit's output, cell by cell, and of the last prediction only. */
static void the_pooled_output_is_the_mean(void **state)
{
    (void)state;
    scene s = begin(2, false);
    flim_error err = {0};
    const flim_head *head = &s.net.head[0];
    const flim_unit *last = &s.net.unit[head->unit];
    const int64_t channels = head->in_channels, voxels = (int64_t)last->out[0] * last->out[1] * last->out[2];
    flim_program *inside = ref_program_create_inspected(target, &s.net, CELLS, CELLS, s.parameters, s.statistics);
    float *y = malloc((size_t)(CELLS * channels * voxels) * sizeof *y),
          *found = malloc((size_t)(CELLS * channels) * sizeof *found);
    float logits[CELLS * 3];
    assert_true(inside && y && found);
    assert_int_equal(flim_program_read_pooled(s.program, 0, found, CELLS * channels, &err), FLIM_ERROR);
    for (int64_t i = 0; i < CELLS * channels; i++) {
        found[i] = NAN;
    }
    predict(&s, s.program, logits);
    predict(&s, inside, logits);
    ok(flim_program_read_pooled(s.program, 0, found, CELLS * channels, &err), &err);
    ok(flim_program_read_tensor(inside, head->unit, FLIM_INSPECT_Y, y, CELLS * channels * voxels, &err), &err);
    for (int64_t i = 0; i < CELLS * channels; i++) {
        double mean = 0, size = 0;
        for (int64_t k = 0; k < voxels; k++) {
            mean += (double)y[i * voxels + k] / (double)voxels;
            size += fabs((double)y[i * voxels + k]) / (double)voxels;
        }
        if (!(fabs((double)found[i] - mean) <= 1e-5 * (size + 1e-3))) {
            fail_msg("cell %lld, channel %lld: %g, the mean is %g; reproduce: FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s "
                     "tests/test_training_state",
                     (long long)(i / channels), (long long)(i % channels), (double)found[i], mean, target->spec,
                     flim_precision_name(target->precision));
        }
    }
    assert_int_equal(flim_program_read_pooled(s.program, 0, found, CELLS * channels - 1, &err), FLIM_ERROR);
    assert_int_equal(flim_program_read_pooled(s.program, 1, found, CELLS * channels, &err), FLIM_ERROR);
    flim_program_destroy(inside);
    free(y);
    free(found);
    end(&s);
}

/* ---- statistics made again ------------------------------------------------------------------------------------------------ */

/* Of units.  Over three cells the head's BatchNorm makes much of one rounding of 16 bits: it is compared in fp32 only. */
static double statistic_tolerance(void)
{
    return target->precision == FLIM_PRECISION_FP32 ? 1e-5 : ref_network_tolerance(target->precision) / 10;
}

static void check_statistics(const scene *s, const ref_network *ref, const char *when)
{
    float *found = read_state(s, s->program, FLIM_STATE_STATISTICS);
    for (int k = 0; k < s->net.n_tensors; k++) {
        const flim_tensor *t = &s->net.tensor[k];
        const bool compared =
            flim_tensor_is_statistic(t) && (t->unit < s->net.n_units || target->precision == FLIM_PRECISION_FP32);
        const double distance = compared ? ref_distance(found + t->offset, ref->statistics + t->offset, t->count) : 0;
        if (!(distance <= statistic_tolerance())) {
            fail_msg("%s: %s is off by %g of its size, allowed %g; reproduce: FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s "
                     "tests/test_training_state",
                     when, t->name, distance, statistic_tolerance(), target->spec, flim_precision_name(target->precision));
        }
    }
    free(found);
}

static bool same_totals(const flim_totals *a, const flim_totals *b)
{
    return a->loss == b->loss && a->weight == b->weight && a->cells == b->cells && a->correct == b->correct &&
           a->updates == b->updates && a->calls == b->calls && a->grad_norm == b->grad_norm &&
           a->grad_norm_sum == b->grad_norm_sum && a->nonfinite == b->nonfinite;
}

static void recalibrate(const scene *s, ref_network *ref, int64_t first, int64_t n, double share)
{
    flim_error err = {0};
    flim_batch batch = ref_formula_batch(&s->net, first, n);
    ok(flim_program_recalibrate(s->program, &batch, share, &err), &err);
    ok(flim_program_wait(s->program, &err), &err);
    ref_network_recalibrate(ref, &batch, share);
    ref_batch_free(&batch);
}

/* Shares 1, 1/2, 1/3, ... give the mean of the batches' statistics, whatever was there before; dropout takes no part, and
 * nothing but the statistics changes: weights, moments, averages, totals and counters keep their bits. */
static void recalibrated_statistics_are_means_over_batches(void **state)
{
    (void)state;
    for (int classes = 2; classes <= 3; classes++) {
        scene s = begin(classes, true);
        flim_program *other = make_program(&s, true);
        flim_step step = step_of();
        flim_totals before, after;
        flim_counters counted, counts;
        flim_error err = {0};
        for (int t = 0; t < 2; t++) {
            train(&s, s.program, t, &step);
            train(&s, other, t, &step);
        }
        float *parameters = read_state(&s, s.program, FLIM_STATE_PARAMETERS);
        float *statistics = read_state(&s, s.program, FLIM_STATE_STATISTICS);
        ref_network *ref = ref_network_create(&s.net, parameters, statistics);
        ok(flim_program_totals(s.program, false, &before, &err), &err);
        ok(flim_program_get_counters(s.program, &counted, &err), &err);
        for (int k = 0; k < 4; k++) {
            recalibrate(&s, ref, 40 + 3 * k, CELLS, 1.0 / (k + 1));
            check_statistics(&s, ref, "after a batch");
        }
        double *sum = ref_array(s.net.statistics); /* the same as a plain mean of single batches */
        for (int k = 0; k < 4; k++) {
            ref_network *one = ref_network_create(&s.net, parameters, statistics);
            flim_batch batch = ref_formula_batch(&s.net, 40 + 3 * k, CELLS);
            ref_network_recalibrate(one, &batch, 1);
            for (int64_t i = 0; i < s.net.statistics; i++) {
                sum[i] += one->statistics[i] / 4;
            }
            ref_batch_free(&batch);
            ref_network_free(one);
        }
        memcpy(ref->statistics, sum, (size_t)s.net.statistics * sizeof *sum);
        check_statistics(&s, ref, "the mean of four batches");
        for (int i = FLIM_STATE_PARAMETERS; i <= FLIM_STATE_AVERAGE_STATISTICS; i++) {
            assert_true(i == FLIM_STATE_STATISTICS || same_state(&s, s.program, other, (flim_state)i));
        }
        ok(flim_program_totals(s.program, false, &after, &err), &err);
        ok(flim_program_get_counters(s.program, &counts, &err), &err);
        assert_true(same_totals(&before, &after));
        assert_memory_equal(&counted, &counts, sizeof counts);
        ok(flim_program_write(s.program, FLIM_STATE_STATISTICS, statistics, &err), &err);
        train(&s, s.program, 2, &step); /* and training goes on as if nothing had been */
        train(&s, other, 2, &step);
        for (int i = FLIM_STATE_PARAMETERS; i <= FLIM_STATE_AVERAGE_STATISTICS; i++) {
            assert_true(same_state(&s, s.program, other, (flim_state)i));
        }
        free(sum);
        free(parameters);
        free(statistics);
        ref_network_free(ref);
        flim_program_destroy(other);
        end(&s);
    }
}

/* Predictions use them. */
static void predictions_follow_recalibration(void **state)
{
    (void)state;
    if (target->precision != FLIM_PRECISION_FP32) {
        skip();
    }
    scene s = begin(2, false);
    ref_network *ref = ref_network_create(&s.net, s.parameters, s.statistics);
    float found[CELLS];
    double want[CELLS];
    recalibrate(&s, ref, 7, CELLS, 1);
    recalibrate(&s, ref, 19, CELLS - 1, 0.25); /* fewer cells than the program was compiled for */
    predict(&s, s.program, found);
    flim_batch batch = ref_formula_batch(&s.net, 1000, CELLS);
    ref_network_predict(ref, &batch, want);
    ref_batch_free(&batch);
    const double distance = ref_distance(found, want, CELLS);
    if (!(distance <= ref_network_tolerance(target->precision))) {
        fail_msg("logits are off by %g of their size; reproduce: FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s "
                 "tests/test_training_state",
                 distance, target->spec, flim_precision_name(target->precision));
    }
    ref_network_free(ref);
    end(&s);
}

/* One cell has no variance in the head, whose statistics stay; the units' move. */
static void a_batch_of_one_cell_leaves_the_head(void **state)
{
    (void)state;
    scene s = begin(2, false);
    ref_network *ref = ref_network_create(&s.net, s.parameters, s.statistics);
    recalibrate(&s, ref, 5, 1, 0.5);
    check_statistics(&s, ref, "one cell");
    float *found = read_state(&s, s.program, FLIM_STATE_STATISTICS);
    const flim_tensor *head = flim_network_tensor(&s.net, s.net.n_units, FLIM_TENSOR_RUNNING_MEAN, 0);
    const flim_tensor *unit = flim_network_tensor(&s.net, 0, FLIM_TENSOR_RUNNING_MEAN, 0);
    assert_memory_equal(found + head->offset, s.statistics + head->offset, (size_t)head->count * sizeof *found);
    assert_memory_not_equal(found + unit->offset, s.statistics + unit->offset, (size_t)unit->count * sizeof *found);
    free(found);
    ref_network_free(ref);
    end(&s);
}

static void shares_that_are_none_are_refused(void **state)
{
    (void)state;
    static const double bad[] = {0, -0.5, 1.5, (double)NAN};
    scene s = begin(2, false);
    flim_batch batch = ref_formula_batch(&s.net, 0, CELLS);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        flim_error err = {0};
        assert_int_equal(flim_program_recalibrate(s.program, &batch, bad[i], &err), FLIM_ERROR);
        assert_non_null(strstr(err.text, "of the difference"));
    }
    ref_batch_free(&batch);
    end(&s);
}

/* ---- norms of an epoch's gradients ---------------------------------------------------------------------------------------- */

/* Sum, least and most over the updates of an epoch, each update's norm as it stands in the totals after it; a reset begins
 * anew, and totals that are put back go on. */
static void norms_are_summed_over_the_updates(void **state)
{
    (void)state;
    scene s = begin(2, false);
    const flim_step step = step_of();
    flim_error err = {0};
    for (int epoch = 0; epoch < 2; epoch++) {
        double sum = 0, least = (double)INFINITY, most = 0;
        flim_totals totals;
        for (int t = 0; t < UPDATES; t++) {
            train(&s, s.program, UPDATES * epoch + t, &step);
            ok(flim_program_totals(s.program, false, &totals, &err), &err);
            sum += totals.grad_norm;
            least = totals.grad_norm < least ? totals.grad_norm : least;
            most = totals.grad_norm > most ? totals.grad_norm : most;
            assert_true(totals.grad_norm > 0 && totals.grad_norm_sum == sum && totals.grad_norm_least == least &&
                        totals.grad_norm_most == most);
            if (t == 2) { /* as a resumed epoch does */
                const flim_totals none = {.nonfinite_call = -1};
                ok(flim_program_set_totals(s.program, &none, &err), &err);
                ok(flim_program_set_totals(s.program, &totals, &err), &err);
            }
        }
        assert_true(least < most);
        ok(flim_program_totals(s.program, true, &totals, &err), &err);
        ok(flim_program_totals(s.program, false, &totals, &err), &err);
        assert_true(totals.grad_norm_sum == 0 && totals.grad_norm_least == 0 && totals.grad_norm_most == 0);
    }
    end(&s);
}

REF_DEVICE_TESTS(cmocka_unit_test(the_average_is_that_of_the_weights_after_each_update),
                 cmocka_unit_test(an_accumulation_is_one_update), cmocka_unit_test(the_average_is_exchanged_and_back),
                 cmocka_unit_test(programs_without_averages), cmocka_unit_test(an_encoder_learns_at_its_own_rate),
                 cmocka_unit_test(the_pooled_output_is_the_mean),
                 cmocka_unit_test(recalibrated_statistics_are_means_over_batches),
                 cmocka_unit_test(predictions_follow_recalibration), cmocka_unit_test(a_batch_of_one_cell_leaves_the_head),
                 cmocka_unit_test(shares_that_are_none_are_refused), cmocka_unit_test(norms_are_summed_over_the_updates))

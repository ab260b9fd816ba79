/* Accumulated micro-batches against one large batch, with BatchNorm's statistics held (else each micro-batch has its own):
 * gradients, loss, norm and the update agree to the rounding of fp32, for unequal windows and for weighted classes, clipping
 * included. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/formula.h"
#include "reference/target.h"
#ifdef FLIM_HAVE_CPU
#include "cpu/program/cpu_program.h"

typedef struct outcome {
    float *gradients, *parameters, *moment2; /* P */
    double loss, grad_norm, weight;
    flim_counters counters;
} outcome;

static flim_device *device;

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s", err->text);
    }
}

static float *read_state(flim_program *program, flim_state state, int64_t count)
{
    flim_error err = {0};
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    ok(flim_program_read(program, state, values, &err), &err);
    return values;
}

/* One update over sizes[0] + sizes[1] + ... cells (0 ends the list); class_weight NULL: all 1.  Then, to see that nothing is
 * carried on, a second one over the first three cells, whose gradients are returned in `next`. */
static outcome update(const flim_network *net, const int64_t *sizes, const float *class_weight, float clip, float **next)
{
    flim_error err = {0};
    flim_program *program = NULL;
    int64_t most = 3, cell = 0;
    double divisor = 0;
    for (int i = 0; sizes[i]; i++) {
        most = sizes[i] > most ? sizes[i] : most;
        for (int64_t k = 0; k < sizes[i]; k++, cell++) {
            divisor += class_weight ? (double)class_weight[cell % net->classes] : 1;
        }
    }
    float *parameters, *statistics;
    ref_new_weights(net, &parameters, &statistics);
    float *zeros = calloc((size_t)net->parameters, sizeof *zeros);
    assert_non_null(zeros);
    const flim_program_options options = {.precision = FLIM_PRECISION_FP32, .train_batch = most};
    ok(flim_program_compile(device, net, &options, &program, &err), &err);
    ok(flim_program_allocate(program, &err), &err);
    ok(flim_program_write(program, FLIM_STATE_PARAMETERS, parameters, &err), &err);
    ok(flim_program_write(program, FLIM_STATE_STATISTICS, statistics, &err), &err);
    ok(flim_program_write(program, FLIM_STATE_MOMENT1, zeros, &err), &err);
    ok(flim_program_write(program, FLIM_STATE_MOMENT2, zeros, &err), &err);
    ((flim_cpu_program *)(void *)program)->frozen = true;
    flim_step step = {.divisor = divisor,
                      .learning_rate = 0.001f,
                      .beta1 = 0.9f,
                      .beta2 = 0.999f,
                      .epsilon = 1e-3f,
                      .clip = clip,
                      .dropout = 0.25f,
                      .block_dropout = 0.25f};
    cell = 0;
    for (int i = 0; sizes[i]; i++) {
        flim_batch batch = ref_formula_batch(net, cell, sizes[i]);
        for (int64_t k = 0; class_weight && k < batch.n; k++) {
            batch.weight[k] = class_weight[batch.label[k]];
        }
        step.first = i == 0;
        step.last = sizes[i + 1] == 0;
        ok(flim_program_train(program, &batch, &step, &err), &err);
        cell += sizes[i];
        ref_batch_free(&batch);
    }
    outcome out = {.gradients = read_state(program, FLIM_STATE_GRADIENTS, net->parameters),
                   .parameters = read_state(program, FLIM_STATE_PARAMETERS, net->parameters),
                   .moment2 = read_state(program, FLIM_STATE_MOMENT2, net->parameters)};
    flim_totals totals;
    ok(flim_program_totals(program, true, &totals, &err), &err);
    ok(flim_program_get_counters(program, &out.counters, &err), &err);
    assert_int_equal(totals.cells, cell);
    assert_int_equal(totals.updates, 1);
    out.loss = totals.loss;
    out.weight = totals.weight;
    out.grad_norm = totals.grad_norm;
    float *left = read_state(program, FLIM_STATE_STATISTICS, net->statistics);
    assert_memory_equal(left, statistics, (size_t)net->statistics * sizeof *left);
    flim_batch batch = ref_formula_batch(net, 50, 3);
    step.first = step.last = true;
    step.divisor = 3;
    ok(flim_program_write(program, FLIM_STATE_PARAMETERS, parameters, &err), &err);
    ok(flim_program_train(program, &batch, &step, &err), &err);
    *next = read_state(program, FLIM_STATE_GRADIENTS, net->parameters);
    ref_batch_free(&batch);
    flim_program_destroy(program);
    free(left);
    free(parameters);
    free(statistics);
    free(zeros);
    return out;
}

static void release(outcome *o)
{
    free(o->gradients);
    free(o->parameters);
    free(o->moment2);
}

/* ||a - b|| / ||b|| tensor by tensor, against sums of fp32 in another order. */
static void close_to(const flim_network *net, const float *a, const float *b, const char *what)
{
    const double allowed = 2e-5;
    int compared = 0;
    for (int k = 0; k < net->n_tensors; k++) {
        const flim_tensor *t = &net->tensor[k];
        double difference = 0, size = 0;
        for (int64_t i = t->offset; !flim_tensor_is_statistic(t) && i < t->offset + t->count; i++) {
            difference += pow((double)a[i] - (double)b[i], 2);
            size += pow((double)b[i], 2);
        }
        compared += size > 0;
        if (!(sqrt(difference) <= allowed * sqrt(size))) {
            fail_msg("%s of %s: distance %.3g of its size, allowed %.0e", what, t->name, sqrt(difference / size), allowed);
        }
    }
    assert_true(compared > 10);
}

static void same_update(const int64_t *window, const int64_t *whole, const float *class_weight, float clip)
{
    flim_network net;
    float *next[2];
    assert_int_equal(flim_network_build(&net, 8, 3, 17, 7, 6, NULL), FLIM_OK);
    outcome a = update(&net, window, class_weight, clip, &next[0]), b = update(&net, whole, class_weight, clip, &next[1]);
    close_to(&net, a.gradients, b.gradients, "gradients");
    close_to(&net, a.moment2, b.moment2, "second moments");
    close_to(&net, a.parameters, b.parameters, "parameters");
    close_to(&net, next[0], next[1], "gradients of the next window");
    assert_true(fabs(a.loss / b.loss - 1) < 1e-6);
    assert_true(a.weight == b.weight);
    assert_true(fabs(a.grad_norm / b.grad_norm - 1) < 1e-5);
    if (clip > 0) {
        assert_true(b.grad_norm > (double)clip); /* it did clip */
    }
    assert_int_equal(a.counters.adam_step, 1);
    release(&a);
    release(&b);
    free(next[0]);
    free(next[1]);
}

static const int64_t ten[] = {10, 0}, four_four_two[] = {4, 4, 2, 0}, nine[] = {9, 0}, eight_one[] = {8, 1, 0};

static void windows_of_4_4_2(void **state)
{
    (void)state;
    same_update(four_four_two, ten, NULL, 0);
}

static void windows_of_8_1(void **state)
{
    (void)state;
    same_update(eight_one, nine, NULL, 0);
}

static void weighted_classes(void **state)
{
    (void)state;
    static const float weight[] = {0.5f, 1.25f, 3};
    same_update(four_four_two, ten, weight, 0);
    same_update(eight_one, nine, weight, 0);
}

static void clipping_sees_the_whole_window(void **state)
{
    (void)state;
    same_update(four_four_two, ten, NULL, 1e-3f);
}

int main(void)
{
    flim_error err = {0};
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_of_4_4_2), cmocka_unit_test(windows_of_8_1),
                                       cmocka_unit_test(weighted_classes), cmocka_unit_test(clipping_sees_the_whole_window)};
    if (flim_device_open("cpu", NULL, &device, &err) != FLIM_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    flim_device_close(device);
    return failed;
}
#else
int main(void)
{
    printf("skipped: this build has no CPU backend, whose BatchNorm can be held for this test\n");
    return 77;
}
#endif

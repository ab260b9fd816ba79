/* Networks beside the published one: a transposed unit and a dense head (an ref_autoencoder), several heads, none; losses by
 * soft targets and with class weights.  Some updates on the device, each against the double-precision reference: loss, all
 * gradients, running statistics, what is predicted.  The reference's gradients are held to central differences of its loss.
 */
#include "backend/inspect.h"
#include "backend/loss.h"
#include "reference/device_test.h"
#include "reference/formula.h"
#include "reference/networks.h"
#include "reference/reference.h"

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s", err->text);
    }
}

enum { BATCH = 5 };

/* ---- a network on the device and in the reference ------------------------------------------------------------------------- */

typedef struct fixture {
    flim_network net;
    float *parameters, *statistics; /* P, S */
    ref_network *ref;
    flim_program *program;
} fixture;

static fixture *create_with(ref_build_network *build, bool inspected)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    build(&f->net);
    ref_new_weights(&f->net, &f->parameters, &f->statistics);
    f->ref = ref_network_create(&f->net, f->parameters, f->statistics);
    f->program = (inspected ? ref_program_create_inspected : ref_program_create)(target, &f->net, BATCH, BATCH, f->parameters,
                                                                                 f->statistics);
    assert_non_null(f->program);
    return f;
}

static fixture *create(ref_build_network *build)
{
    return create_with(build, false);
}

static void release(fixture *f)
{
    flim_program_destroy(f->program);
    ref_network_free(f->ref);
    free(f->parameters);
    free(f->statistics);
    free(f);
}

/* A batch with a target for each cell: shares that sum to 1, not the label's alone. */
static flim_batch batch_of(const flim_network *net, int64_t first, int64_t n)
{
    flim_batch b = ref_formula_batch(net, first, n);
    const int classes = net->classes;
    b.target = calloc((size_t)(n * classes), sizeof *b.target);
    assert_non_null(b.target);
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < classes; k++) {
            b.target[i * classes + k] = k == b.label[i] ? 0.5f : 0.5f / (float)(classes - 1);
        }
        b.weight[i] = 1 + (float)(i % 2) / 2;
    }
    return b;
}

static flim_step step_of(double divisor, bool first, bool last, float dropout)
{
    return (flim_step){.first = first,
                       .last = last,
                       .divisor = divisor,
                       .learning_rate = 0.0009765625f,
                       .weight_decay = 0.0078125f,
                       .beta1 = 0.9f,
                       .beta2 = 0.999f,
                       .epsilon = 1e-8f,
                       .label_smoothing = 0.125f,
                       .dropout = dropout,
                       .block_dropout = dropout,
                       .hide_share = 39322};
}

/* NaN before the read. */
static float *read_state(flim_program *program, flim_state state, int64_t count)
{
    flim_error err = {0};
    float *values = malloc((size_t)count * sizeof *values + 1);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    ok(flim_program_read(program, state, values, &err), &err);
    return values;
}

static double tolerance(void)
{
    return 10 * ref_layer_tolerance(target->precision);
}

static int failures;

static void compare(const char *what, const char *name, double found, double allowed)
{
    if (!(found <= allowed)) {
        failures++;
        print_error("%s of %s: distance %.3g, allowed %.3g\n", what, name, found, allowed);
    }
}

static void end_checks(const char *test)
{
    const int n = failures;
    failures = 0;
    if (n > 0) {
        fail_msg("reproduce: FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s CMOCKA_TEST_FILTER=%s tests/test_heads", target->spec,
                 flim_precision_name(target->precision), test);
    }
}

static double size_of(const double *values, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        squares += values[i] * values[i];
    }
    return sqrt(squares);
}

/* The reference goes on from z and y of the device's last call, where they are stored: each is compared first with what the
 * reference makes of the operation before it.
 *
 * Stored in 16 bits, some activations stand on the other side of their kink than in the reference, or the other bin of a pool is
 * the largest, and each takes all of its dy along.  Between heads that pull against each other over a few cells that moved
 * gradients of an encoder by more than their size, on an H200 as in the reference with its z, y and weights rounded; the
 * gradients' own rounding moved them by a thousandth. */
static void take_stored(void *context, int unit, ref_tensor what, double *values, int64_t count)
{
    const fixture *f = context;
    flim_error err = {0};
    if (unit >= f->net.n_units || (what != REF_Z && what != REF_Y)) {
        return;
    }
    float *stored = malloc((size_t)count * sizeof *stored);
    assert_non_null(stored);
    for (int64_t i = 0; i < count; i++) {
        stored[i] = NAN;
    }
    const flim_status status =
        flim_program_read_tensor(f->program, unit, what == REF_Z ? FLIM_INSPECT_Z : FLIM_INSPECT_Y, stored, count, &err);
    if (status == FLIM_OK) {
        /* Where no BatchNorm follows, few channels are summed, and what they take away from each other leaves their rounding:
         * 2.3e-3 in tf32 on an H200. */
        compare(what == REF_Z ? "z" : "y", f->net.unit[unit].conv, ref_distance(stored, values, count),
                (f->net.unit[unit].bn[0] ? 1 : 2) * ref_layer_tolerance(target->precision));
        for (int64_t i = 0; i < count; i++) {
            values[i] = (double)stored[i];
        }
    } else {
        assert_int_equal(status, FLIM_ERROR_USAGE); /* not stored: its readers make it of what is */
    }
    free(stored);
}

/* The reference's part of a call that the device has made. */
static void train_reference(fixture *f, bool stored, const flim_batch *batch, const flim_step *step)
{
    f->ref->loss = 0;
    f->ref->hidden = (flim_hidden_totals){0};
    f->ref->observe = stored ? take_stored : NULL;
    f->ref->observer = f;
    ref_network_train(f->ref, batch, step);
    f->ref->observe = NULL;
}

/* Gradients tensor by tensor; the bias before a BatchNorm has none but rounding, a fraction of the sum of |dz|.  BatchNorm's
 * own bias sums up dv, of which the heads' BatchNorm leaves little over the few cells: rounding is a fraction of the sum of
 * |dv|; of its weight, whose terms have either sign, a fraction of their norm. */
static void compare_gradients(const fixture *f)
{
    float *gradients = read_state(f->program, FLIM_STATE_GRADIENTS, f->net.parameters);
    for (int k = 0; k < f->net.n_tensors; k++) {
        const flim_tensor *t = &f->net.tensor[k];
        if (!flim_tensor_is_statistic(t)) {
            const double *expected = f->ref->gradients + t->offset;
            const double size = size_of(expected, t->count), summed = size_of(f->ref->scale + t->offset, t->count);
            const double share = t->role != FLIM_TENSOR_BIAS ? ref_layer_tolerance(target->precision) : tolerance();
            const double rounding = t->role == FLIM_TENSOR_LINEAR_WEIGHT ? 0 : share * summed;
            double difference = 0;
            for (int64_t i = 0; i < t->count; i++) {
                difference += pow((double)gradients[t->offset + i] - expected[i], 2);
            }
            compare("gradient", t->name, sqrt(difference), tolerance() * size + rounding);
            assert_true(size + summed > 0);
        }
    }
    free(gradients);
}

/* Puts the reference at the device's state, so that the next update is compared on its own. */
static void follow(fixture *f)
{
    const struct {
        flim_state state;
        double *to;
        int64_t count;
    } copy[] = {{FLIM_STATE_PARAMETERS, f->ref->parameters, f->net.parameters},
                {FLIM_STATE_STATISTICS, f->ref->statistics, f->net.statistics}};
    for (int k = 0; k < 2; k++) {
        float *values = read_state(f->program, copy[k].state, copy[k].count);
        if (copy[k].count > 0) {
            compare("values", k == 0 ? "parameters" : "statistics", ref_distance(values, copy[k].to, copy[k].count),
                    k == 0 ? 1e-2 : tolerance());
        }
        for (int64_t i = 0; i < copy[k].count; i++) {
            copy[k].to[i] = (double)values[i];
        }
        free(values);
    }
}

static void compare_predictions(fixture *f, int64_t n)
{
    flim_error err = {0};
    flim_batch batch = batch_of(&f->net, 40, n);
    const int64_t count = n * flim_network_outputs(&f->net);
    float *out = malloc((size_t)count * sizeof *out);
    double *expected = ref_array(count);
    assert_non_null(out);
    for (int64_t i = 0; i < count; i++) {
        out[i] = NAN;
    }
    ok(flim_program_predict(f->program, &batch, out, &err), &err);
    ok(flim_program_wait(f->program, &err), &err);
    ref_network_predict(f->ref, &batch, expected);
    int64_t at = 0;
    for (int k = 0; k < f->net.n_heads; k++) {
        const int64_t here = n * flim_head_outputs(&f->net, k);
        compare("prediction", f->net.head[k].name, ref_distance(out + at, expected + at, here), tolerance());
        at += here;
    }
    free(out);
    free(expected);
    ref_batch_free(&batch);
}

static void compare_hidden(const fixture *f, const flim_hidden_totals *found, const char *test)
{
    const flim_hidden_totals *expected = &f->ref->hidden;
    assert_true(found->voxels == expected->voxels && found->photons == expected->photons); /* whole numbers */
    if (expected->voxels > 0) {
        compare("loss of hidden voxels", test, fabs(found->loss / expected->loss - 1), tolerance());
        compare("baseline", test, fabs(found->baseline / expected->baseline - 1), 1e-6);
    }
}

static void compare_evaluation(fixture *f, int64_t n, const char *test)
{
    flim_error err = {0};
    flim_batch batch = batch_of(&f->net, 60, n);
    const flim_step step = step_of(1, true, true, 0);
    flim_totals totals;
    if (f->net.channels == 3) {
        ok(flim_program_totals(f->program, true, &totals, &err), &err);
        f->ref->hidden = (flim_hidden_totals){0};
        ok(flim_program_evaluate(f->program, &batch, &step, &err), &err);
        ok(flim_program_totals(f->program, true, &totals, &err), &err);
        ref_network_evaluate(f->ref, &batch, &step);
        assert_true(f->ref->hidden.voxels > 0 && totals.cells == 0 && totals.loss == 0);
        compare_hidden(f, &totals.hidden, test);
    } else {
        assert_int_equal(flim_program_evaluate(f->program, &batch, &step, &err), FLIM_ERROR_USAGE);
    }
    ref_batch_free(&batch);
}

/* Three updates; the second is of two micro-batches.  In fp32 loss and gradients are compared from end to end, in what is stored
 * in 16 bits from the device's z and y (take_stored). */
static void train_and_compare(ref_build_network *build, const char *test)
{
    static const struct {
        int64_t n;
        bool first, last;
        float dropout;
    } call[] = {{BATCH, true, true, 0}, {3, true, false, 0.25f}, {2, false, true, 0.25f}, {4, true, true, 0.25f}};
    const bool stored = target->precision != FLIM_PRECISION_FP32;
    fixture *f = create_with(build, stored);
    int64_t cell = 0;
    flim_error err = {0};
    compare_predictions(f, 3);
    for (size_t i = 0; i < sizeof call / sizeof call[0]; i++) {
        flim_batch batch = batch_of(&f->net, cell, call[i].n);
        const flim_step step = step_of(5, call[i].first, call[i].last, call[i].dropout);
        flim_totals totals;
        ok(flim_program_train(f->program, &batch, &step, &err), &err);
        train_reference(f, stored, &batch, &step);
        ok(flim_program_totals(f->program, true, &totals, &err), &err);
        compare_hidden(f, &totals.hidden, test);
        compare("loss", test, fabs(totals.loss / f->ref->loss - 1), tolerance());
        assert_int_equal(totals.cells, call[i].n);
        if (call[i].last) {
            compare_gradients(f);
            follow(f);
        }
        cell += call[i].n;
        ref_batch_free(&batch);
    }
    compare_predictions(f, BATCH);
    compare_evaluation(f, BATCH, test);
    release(f);
    end_checks(test);
}

static void an_autoencoder_of_two_units(void **state)
{
    (void)state;
    train_and_compare(ref_autoencoder, __func__);
}

static void transposed_units_of_other_shapes(void **state)
{
    (void)state;
    train_and_compare(ref_masked_autoencoder, __func__);
}

static void three_heads_on_two_units(void **state)
{
    (void)state;
    train_and_compare(ref_three_heads, __func__);
}

static void a_classifier_and_a_reconstruction(void **state)
{
    (void)state;
    train_and_compare(ref_two_tasks, __func__);
}

static void hidden_counts_and_pairs_of_views(void **state)
{
    (void)state;
    train_and_compare(ref_pretraining, __func__);
}

static void hidden_signal_and_pairs_of_a_class(void **state)
{
    (void)state;
    train_and_compare(ref_pretraining_by_class, __func__);
}

static void heads_with_class_weights(void **state)
{
    (void)state;
    train_and_compare(ref_class_weights, __func__);
}

/* Gradients of one update with the inside of blocks recomputed or not. */
static float *gradients_with(const flim_network *net, flim_recompute recompute)
{
    flim_error err = {0};
    flim_program *program = NULL;
    const flim_program_options options = {
        .precision = target->precision, .train_batch = BATCH, .deterministic = true, .recompute = recompute};
    float *parameters, *statistics;
    ref_new_weights(net, &parameters, &statistics);
    ok(flim_program_compile(target->device, net, &options, &program, &err), &err);
    ok(flim_program_allocate(program, &err), &err);
    ok(flim_program_write(program, FLIM_STATE_PARAMETERS, parameters, &err), &err);
    ok(flim_program_write(program, FLIM_STATE_STATISTICS, statistics, &err), &err);
    const flim_counters counters = {.loss_scale = target->precision == FLIM_PRECISION_FP16 ? 1024 : 1};
    ok(flim_program_set_counters(program, &counters, &err), &err);
    flim_batch batch = batch_of(net, 0, BATCH);
    const flim_step step = step_of(BATCH, true, false, 0.25f);
    ok(flim_program_train(program, &batch, &step, &err), &err);
    float *gradients = read_state(program, FLIM_STATE_GRADIENTS, net->parameters);
    ref_batch_free(&batch);
    flim_program_destroy(program);
    free(parameters);
    free(statistics);
    return gradients;
}

static void recomputation_changes_no_bit_of_these(void **state)
{
    (void)state;
    static ref_build_network *const networks[] = {ref_masked_autoencoder, ref_three_heads, ref_pretraining};
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        flim_network net;
        networks[i](&net);
        float *none = gradients_with(&net, FLIM_RECOMPUTE_NONE), *all = gradients_with(&net, FLIM_RECOMPUTE_ALL);
        assert_memory_equal(all, none, (size_t)net.parameters * sizeof *none);
        free(none);
        free(all);
    }
}

static void an_autoencoder_learns(void **state)
{
    (void)state;
    fixture *f = create(ref_autoencoder);
    flim_error err = {0};
    double first = 0, last = 0;
    for (int i = 0; i < 60; i++) {
        flim_batch batch = batch_of(&f->net, 0, BATCH);
        flim_step step = step_of(BATCH, true, true, 0);
        flim_totals totals;
        step.learning_rate = 0.01f;
        ok(flim_program_train(f->program, &batch, &step, &err), &err);
        ok(flim_program_totals(f->program, true, &totals, &err), &err);
        first = i == 0 ? totals.loss : first;
        last = totals.loss;
        ref_batch_free(&batch);
    }
    if (!(last < 0.5 * first)) {
        fail_msg("the loss went from %g to %g in 60 updates", first, last);
    }
    release(f);
}

/* ---- losses ---------------------------------------------------------------------------------------------------------------- */

/* Gradients of one update with the batch that `prepare` makes. */
static float *gradients_of(ref_build_network *build, void (*prepare)(const flim_network *net, flim_batch *batch),
                           flim_totals *totals)
{
    fixture *f = create(build);
    flim_error err = {0};
    flim_batch batch = batch_of(&f->net, 0, BATCH);
    flim_step step = step_of(6, true, true, 0);
    step.label_smoothing = 0;
    prepare(&f->net, &batch);
    ok(flim_program_train(f->program, &batch, &step, &err), &err);
    ok(flim_program_totals(f->program, true, totals, &err), &err);
    float *gradients = read_state(f->program, FLIM_STATE_GRADIENTS, f->net.parameters);
    ref_batch_free(&batch);
    release(f);
    return gradients;
}

static void same_gradients(ref_build_network *a, void (*prepare_a)(const flim_network *net, flim_batch *batch),
                           ref_build_network *b, void (*prepare_b)(const flim_network *net, flim_batch *batch))
{
    flim_network net;
    flim_totals totals[2];
    float *of_a = gradients_of(a, prepare_a, &totals[0]), *of_b = gradients_of(b, prepare_b, &totals[1]);
    a(&net);
    double *expected = ref_from_floats(of_a, net.parameters);
    const double found = ref_distance(of_b, expected, net.parameters);
    const double allowed = target->precision == FLIM_PRECISION_FP32 ? 1e-5 : ref_layer_tolerance(target->precision);
    if (!(found < allowed)) { /* the same sums, in another order perhaps */
        fail_msg("gradients differ by %g", found);
    }
    assert_true(fabs(totals[0].loss / totals[1].loss - 1) < 1e-6);
    assert_true(fabs(totals[0].weight / totals[1].weight - 1) < 1e-6);
    assert_int_equal(totals[0].correct, totals[1].correct);
    free(expected);
    free(of_a);
    free(of_b);
}

static void plain(const flim_network *net, flim_batch *batch)
{
    (void)net, (void)batch;
}

/* The class weights of ref_class_weights, as weights of the cells. */
static void weigh_cells(const flim_network *net, flim_batch *batch)
{
    flim_network weighted;
    (void)net;
    ref_class_weights(&weighted);
    for (int64_t i = 0; i < batch->n; i++) {
        batch->weight[i] *= weighted.head[0].class_weight[batch->label[i]];
    }
}

static void class_weights_are_weights_of_cells(void **state)
{
    (void)state;
    same_gradients(ref_class_weights, plain, ref_three_heads, weigh_cells);
}

/* All heads by the labels. */
static void by_labels(flim_network *net)
{
    ref_three_heads(net);
    for (int k = 0; k < net->n_heads; k++) {
        net->head[k].loss = FLIM_LOSS_SOFTMAX;
    }
}

static void by_targets(flim_network *net)
{
    ref_three_heads(net);
    for (int k = 0; k < net->n_heads; k++) {
        net->head[k].loss = FLIM_LOSS_SOFT_TARGETS;
    }
}

static void certain_targets(const flim_network *net, flim_batch *batch)
{
    for (int64_t i = 0; i < batch->n * net->classes; i++) {
        batch->target[i] = i % net->classes == batch->label[i / net->classes];
    }
}

static void certain_targets_are_labels(void **state)
{
    (void)state;
    same_gradients(by_labels, plain, by_targets, certain_targets);
}

/* Every row of the table: its slope is the derivative of its loss. */
static void slopes_are_derivatives(void **state)
{
    (void)state;
    static const float x[REF_CLASSES] = {0.5f, -1.25f, 2}, share[REF_CLASSES] = {0.25f, 0.25f, 0.5f};
    static const double gammas[] = {0, 0.5, 1, 2, 5}; /* of the focal losses */
    for (int i = 0; i < FLIM_LOSSES * 5; i++) {
        const int loss = i / 5;
        const flim_target t = {.label = 1, .smoothing = 0.125, .gamma = gammas[i % 5], .distribution = share, .signal = 0.75};
        const bool over_batch = flim_loss_is_over_batch((flim_loss)loss);
        const bool several = loss == FLIM_LOSS_SOFTMAX || loss == FLIM_LOSS_SOFT_TARGETS || over_batch;
        const int outputs = several ? REF_CLASSES : 1;
        double norm[FLIM_LOSS_NORMS] = {NAN, NAN};
        assert_true(flim_loss_of((flim_loss)loss, x, outputs, &t, norm) > 0);
        for (int k = 0; k < outputs; k++) {
            const float h = 1.0f / 1024;
            float up[REF_CLASSES], down[REF_CLASSES];
            double ignored[FLIM_LOSS_NORMS];
            memcpy(up, x, sizeof up);
            memcpy(down, x, sizeof down);
            up[k] += h;
            down[k] -= h;
            const double difference = flim_loss_of((flim_loss)loss, up, outputs, &t, ignored) -
                                      flim_loss_of((flim_loss)loss, down, outputs, &t, ignored);
            const double slope = flim_loss_slope((flim_loss)loss, x, k, outputs, &t, norm);
            if (!(fabs(difference / (2 * (double)h) - slope) < 1e-6)) {
                fail_msg("%s, gamma %g, output %d: slope %g, by differences %g", flim_loss_name((flim_loss)loss), t.gamma, k,
                         slope, difference / (2 * (double)h));
            }
        }
    }
}

/* The reference against central differences of its own loss: some parameters of each tensor of each network. */
static void the_reference_has_true_gradients(void **state)
{
    (void)state;
    static ref_build_network *const networks[] = {ref_autoencoder,         ref_masked_autoencoder, ref_three_heads,
                                                  ref_two_tasks,           ref_class_weights,      ref_pretraining,
                                                  ref_pretraining_by_class};
    for (size_t b = 0; b < sizeof networks / sizeof networks[0]; b++) {
        flim_network net;
        networks[b](&net);
        float *parameters, *statistics;
        ref_new_weights(&net, &parameters, &statistics);
        ref_network *ref = ref_network_create(&net, parameters, statistics);
        ref_network *at = ref_network_create(&net, parameters, statistics);
        flim_batch batch = batch_of(&net, 0, 4);
        const flim_step step = step_of(4, true, true, 0.25f);
        ref_network_train(ref, &batch, &step);
        for (int k = 0; k < net.n_tensors; k++) {
            const flim_tensor *t = &net.tensor[k];
            for (int64_t i = 0; !flim_tensor_is_statistic(t) && i < t->count; i += t->count / 3 + 1) {
                const double h = 1e-6;
                double *p = &at->parameters[t->offset + i];
                *p += h;
                const double up = ref_network_loss(at, &batch, &step);
                *p -= 2 * h;
                const double down = ref_network_loss(at, &batch, &step);
                *p += h;
                const double slope = ref->gradients[t->offset + i], found = (up - down) / (2 * h);
                if (!(fabs(found - slope) < 1e-6 + 1e-4 * fabs(slope))) {
                    fail_msg("network %zu, %s[%lld]: gradient %.9g, by differences %.9g", b, t->name, (long long)i, slope,
                             found);
                }
            }
        }
        ref_batch_free(&batch);
        ref_network_free(ref);
        ref_network_free(at);
        free(parameters);
        free(statistics);
    }
}

/* ---- none, and what is refused --------------------------------------------------------------------------------------------- */

static void a_network_without_heads_predicts_nothing_and_learns_nothing(void **state)
{
    (void)state;
    flim_network net;
    flim_error err = {0};
    ref_features(&net);
    assert_int_equal(flim_network_outputs(&net), 0);
    float *parameters, *statistics;
    ref_new_weights(&net, &parameters, &statistics);
    flim_program *program = ref_program_create(target, &net, 0, 2, parameters, statistics);
    assert_non_null(program);
    flim_batch batch = batch_of(&net, 0, 2);
    float guard = 0.5f;
    ok(flim_program_predict(program, &batch, &guard, &err), &err);
    ok(flim_program_wait(program, &err), &err);
    assert_true(guard == 0.5f);
    ref_batch_free(&batch);
    flim_program_destroy(program);
    const flim_program_options options = {.precision = target->precision, .train_batch = 2};
    assert_int_equal(flim_program_compile(target->device, &net, &options, &program, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "no loss"));
    free(parameters);
    free(statistics);
}

static void impossible_networks_are_refused(void **state)
{
    (void)state;
    flim_network net;
    flim_error err = {0};
    flim_network_begin(&net, 2, 2, 12, 5, 4);
    ref_add_unit(&net, ref_new_unit("encoder", -1, 8, 3, 3, 2, 1));
    flim_unit wrong = ref_decoder(&net, 4, 3, 2, 1);
    wrong.conv_out[0] = 15; /* a convolution of 15 gives 7, not 6 */
    assert_int_equal(flim_network_add_unit(&net, &wrong, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "from 6 to 15"));
    wrong = ref_new_unit("wide", 0, 8, 99, 3, 1, 1);
    wrong.pad[0] = 0;
    assert_int_equal(flim_network_add_unit(&net, &wrong, &err), FLIM_ERROR_USAGE);
    wrong = ref_new_unit("later", 3, 8, 3, 3, 1, 1);
    assert_int_equal(flim_network_add_unit(&net, &wrong, &err), FLIM_ERROR_USAGE);
    wrong = ref_new_unit("shape", 0, 4, 3, 3, 1, 1);
    wrong.skip = 0;
    assert_int_equal(flim_network_add_unit(&net, &wrong, &err), FLIM_ERROR_USAGE);
    const flim_head heads[] = {{.name = "a", .unit = 1, .hidden = 4, .outputs = 1},
                               {.name = "b", .unit = 0, .hidden = 4, .outputs = 2},
                               {.name = "c", .unit = 0, .hidden = 4, .outputs = 1, .loss = FLIM_LOSS_SQUARED},
                               {.name = "d", .unit = 0, .kind = FLIM_HEAD_DENSE, .loss = FLIM_LOSS_SQUARED},
                               {.name = "e", .unit = 0, .hidden = 4, .outputs = 1, .n_class_weights = 3}};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        assert_int_equal(flim_network_add_head(&net, &heads[i], &err), FLIM_ERROR_USAGE);
    }
    ref_add_unit(&net, ref_new_unit("unread", 0, 8, 3, 3, 1, 1));
    ref_add_head(&net, "head", 0, FLIM_LOSS_BINARY, 1);
    ref_finish(&net);
    flim_program *program = NULL;
    const flim_program_options options = {.precision = target->precision, .train_batch = 2};
    assert_int_equal(flim_program_compile(target->device, &net, &options, &program, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "unread"));
}

static void soft_targets_need_targets(void **state)
{
    (void)state;
    fixture *f = create(ref_three_heads);
    flim_error err = {0};
    flim_batch batch = ref_formula_batch(&f->net, 0, 2);
    const flim_step step = step_of(2, true, true, 0);
    assert_int_equal(flim_program_train(f->program, &batch, &step, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "soft targets"));
    ref_batch_free(&batch);
    release(f);
}

REF_DEVICE_TESTS(cmocka_unit_test(an_autoencoder_of_two_units), cmocka_unit_test(transposed_units_of_other_shapes),
                 cmocka_unit_test(three_heads_on_two_units), cmocka_unit_test(a_classifier_and_a_reconstruction),
                 cmocka_unit_test(hidden_counts_and_pairs_of_views), cmocka_unit_test(hidden_signal_and_pairs_of_a_class),
                 cmocka_unit_test(heads_with_class_weights), cmocka_unit_test(recomputation_changes_no_bit_of_these),
                 cmocka_unit_test(an_autoencoder_learns), cmocka_unit_test(class_weights_are_weights_of_cells),
                 cmocka_unit_test(certain_targets_are_labels), cmocka_unit_test(slopes_are_derivatives),
                 cmocka_unit_test(the_reference_has_true_gradients),
                 cmocka_unit_test(a_network_without_heads_predicts_nothing_and_learns_nothing),
                 cmocka_unit_test(impossible_networks_are_refused), cmocka_unit_test(soft_targets_need_targets))

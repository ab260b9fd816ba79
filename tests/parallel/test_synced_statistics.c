/* BatchNorm over the batches of all ranks (flim_program_options.sync_batchnorm): after each update state and totals are those of
 * one program, and (in fp32) of the double-precision reference, that were given all cells as one batch; they have the same bits on all
 * ranks, and each time.  test_sync_batchnorm.sh starts it with mpirun, for 1, 2, 3 and 5 ranks.
 */
#include "backend/backend.h"
#include "reference/device_test.h"
#include "reference/formula.h"
#include "reference/networks.h"
#include "reference/reference.h"

enum { BATCH = 3 }; /* of a rank */

static flim_ranks *ranks;

static int n_ranks(void)
{
    return flim_ranks_size(ranks);
}

static int64_t most_cells(void)
{
    return BATCH * (int64_t)n_ranks();
}

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("rank %d: %s", flim_ranks_rank(ranks), err->text);
    }
}

static int failures, far_off; /* how many are more than allowed, and more than twice that */

static void compare(const char *what, const char *name, double found, double allowed)
{
    if (!(found <= allowed)) {
        failures++;
        far_off += !(found <= 2 * allowed);
        print_error("rank %d: %s of %s: distance %.3g, allowed %.3g\n", flim_ranks_rank(ranks), what, name, found, allowed);
    }
}

static void end_checks(const char *test)
{
    const int n = failures;
    failures = far_off = 0;
    if (n > 0) {
        fail_msg("reproduce: FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s CMOCKA_TEST_FILTER=%s mpirun --oversubscribe "
                 "--bind-to none -n %d tests/test_synced_statistics",
                 getenv("FLIM_TEST_DEVICE") ? "cuda" : "cpu", flim_precision_name(target->precision), test, n_ranks());
    }
}

/* ---- how a call's cells are shared ---------------------------------------------------------------------------------------- */

typedef enum share {
    FULL, /* BATCH each */
    ONE_SHORT, /* the last rank has one fewer */
    LAST_EMPTY,
    SINGLE, /* one cell in all, rank 0's */
    LAST_ALONE, /* all cells are the last rank's */
    SHARES
} share;

static int64_t cells_of(share s, int rank)
{
    const bool first = rank == 0, last = rank == n_ranks() - 1;
    switch (s) {
    case FULL: return BATCH;
    case ONE_SHORT: return last ? BATCH - 1 : BATCH;
    case LAST_EMPTY: return last && !first ? 0 : BATCH;
    case SINGLE: return first ? 1 : 0;
    case LAST_ALONE: return last ? BATCH : 0;
    case SHARES: break;
    }
    return 0;
}

static int64_t cells_before(share s, int rank)
{
    int64_t sum = 0;
    for (int r = 0; r < rank; r++) {
        sum += cells_of(s, r);
    }
    return sum;
}

/* Cells from number `first` on, each with its own target and weight. */
static flim_batch batch_of(const flim_network *net, int64_t first, int64_t n)
{
    if (n == 0) {
        return (flim_batch){.t = net->in[0], .h = net->in[1], .w = net->in[2]};
    }
    flim_batch b = ref_formula_batch(net, first, n);
    const int classes = net->classes;
    b.target = calloc((size_t)(n * classes), sizeof *b.target);
    assert_non_null(b.target);
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < classes; k++) {
            b.target[i * classes + k] = k == b.label[i] ? 0.5f : 0.5f / (float)(classes - 1);
        }
        b.weight[i] = 1 + (float)((first + i) % 2) / 2;
    }
    return b;
}

/* ---- programs ------------------------------------------------------------------------------------------------------------- */

typedef struct scene {
    flim_network net;
    float *parameters, *statistics; /* P, S */
    flim_program *alone, *ranked; /* one that has all cells, and one of these ranks */
    ref_network *ref;
} scene;

static flim_program *make_program(const scene *s, bool ranked, bool sync, flim_recompute recompute)
{
    const flim_program_options options = {.train_batch = ranked ? BATCH : most_cells(),
                                          .eval_batch = BATCH,
                                          .average = true,
                                          .deterministic = true,
                                          .recompute = recompute,
                                          .ranks = ranked ? ranks : NULL,
                                          .sync_batchnorm = ranked && sync};
    flim_program *program = ref_program_create_with(target, &s->net, options, s->parameters, s->statistics);
    assert_non_null(program);
    return program;
}

static scene *begin(ref_build_network *build, bool sync)
{
    scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    build(&s->net);
    ref_new_weights(&s->net, &s->parameters, &s->statistics);
    s->alone = make_program(s, false, false, FLIM_RECOMPUTE_NONE);
    s->ranked = make_program(s, true, sync, FLIM_RECOMPUTE_NONE);
    s->ref = ref_network_create(&s->net, s->parameters, s->statistics);
    return s;
}

static void end(scene *s)
{
    ref_network_free(s->ref);
    flim_program_destroy(s->alone);
    flim_program_destroy(s->ranked);
    free(s->parameters);
    free(s->statistics);
    free(s);
}

static int64_t floats_of(const flim_network *net, flim_state state)
{
    return state == FLIM_STATE_STATISTICS || state == FLIM_STATE_AVERAGE_STATISTICS ? net->statistics : net->parameters;
}

/* The caller's to free; NaN before the read. */
static float *read_state(const flim_network *net, flim_program *program, flim_state state)
{
    const int64_t count = floats_of(net, state);
    flim_error err = {0};
    float *values = malloc((size_t)count * sizeof *values + 1);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    ok(flim_program_read(program, state, values, &err), &err);
    return values;
}

static flim_step step_of(bool first, bool last, double divisor)
{
    flim_step step = flim_step_defaults();
    step.first = first;
    step.last = last;
    step.divisor = divisor;
    step.learning_rate = 0.0009765625f;
    step.weight_decay = 0.0078125f;
    step.epsilon = 1e-3f;
    step.clip = 1;
    step.label_smoothing = 0.125f;
    step.dropout = step.block_dropout = 0.25f;
    step.average_decay = 0.5f;
    return step;
}

static void train_ranked(const scene *s, flim_program *program, share how, int64_t first, const flim_step *step)
{
    const int rank = flim_ranks_rank(ranks);
    flim_error err = {0};
    flim_batch batch = batch_of(&s->net, first + cells_before(how, rank), cells_of(how, rank));
    ok(flim_program_train(program, &batch, step, &err), &err);
    ok(flim_program_wait(program, &err), &err);
    ref_batch_free(&batch);
}

/* ---- comparisons ---------------------------------------------------------------------------------------------------------- */

static bool on_cpu(void)
{
    return strcmp(flim_device_get_info(target->device)->kind, "cpu") == 0;
}

/* Against the reference: of sums on the CPU; on cards through all layers, whose values are stored in the precision. */
static double tolerance(void)
{
    return on_cpu() ? 10 * ref_layer_tolerance(target->precision) : ref_network_tolerance(target->precision);
}

/* Against one program, which on cards may have other kernels. */
static double tolerance_alone(void)
{
    return on_cpu() ? ref_layer_tolerance(target->precision) : 2 * tolerance();
}

/* Over few cells the head's BatchNorm makes much of one rounding of 16 bits: its statistics are compared in fp32 only. */
static bool is_compared(const scene *s, const flim_tensor *t)
{
    return !flim_tensor_is_statistic(t) || t->unit < s->net.n_units || target->precision == FLIM_PRECISION_FP32;
}

static double distance_of(const float *found, const double *expected, int64_t count)
{
    double difference = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)found[i] - expected[i], 2);
    }
    return isnan(difference) ? (double)INFINITY : sqrt(difference);
}

static double difference_of(const double *a, const double *b, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        squares += pow(a[i] - b[i], 2);
    }
    return sqrt(squares);
}

static double size_of(const double *values, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        squares += values[i] * values[i];
    }
    return sqrt(squares);
}

/* Tensor by tensor: gradients, of which the reference knows how large the terms are that they are sums of, or statistics.
 * relative: to that size, what they may be off by.  draw (or NULL): a rounding of the same numbers, from which `expected` is as far as roundings
 * make it: then twice that is allowed, too. */
static void compare_tensors(const scene *s, flim_state state, const float *found, const double *expected, double relative,
                            const double *draw, const char *to)
{
    char what[64];
    snprintf(what, sizeof what, "%s against %s", state == FLIM_STATE_STATISTICS ? "statistics" : "gradients", to);
    for (int k = 0; k < s->net.n_tensors; k++) {
        const flim_tensor *t = &s->net.tensor[k];
        if (flim_tensor_is_statistic(t) == (state == FLIM_STATE_STATISTICS) && is_compared(s, t)) {
            const double size = size_of(expected + t->offset, t->count);
            const double summed = state == FLIM_STATE_GRADIENTS ? size_of(s->ref->scale + t->offset, t->count) : 0;
            const double distance = distance_of(found + t->offset, expected + t->offset, t->count),
                         apart = draw ? difference_of(draw + t->offset, expected + t->offset, t->count) : 0,
                         allowed = relative * (size + summed);
            if (distance > allowed && draw) {
                print_message(
                    "%s of %s: distance %.3g, allowed %.3g; off the reference one program is %.3g, the ranks %.3g\n", what,
                    t->name, distance, allowed, apart, distance_of(found + t->offset, draw + t->offset, t->count));
            }
            compare(what, t->name, distance, fmax(allowed, 2 * apart));
        }
    }
}

static void compare_state(const scene *s, flim_state state)
{
    float *found = read_state(&s->net, s->ranked, state), *alone = read_state(&s->net, s->alone, state);
    const double *reference = state == FLIM_STATE_STATISTICS ? s->ref->statistics : s->ref->gradients;
    double *expected = ref_from_floats(alone, floats_of(&s->net, state));
    /* In 16 bits a head's BatchNorm over few cells makes much of a rounding, of which those of the ranks are another draw. */
    const bool rounds = !on_cpu() && target->precision != FLIM_PRECISION_FP32;
    compare_tensors(s, state, found, expected, tolerance_alone(), rounds ? reference : NULL, "one program");
    if (!rounds) {
        compare_tensors(s, state, found, reference, tolerance(), NULL, "the reference");
    }
    free(found);
    free(alone);
    free(expected);
}

static void compare_totals(const scene *s, int64_t cells, int64_t calls)
{
    flim_error err = {0};
    flim_totals found, alone;
    ok(flim_program_totals(s->ranked, false, &found, &err), &err);
    ok(flim_program_totals(s->alone, false, &alone, &err), &err);
    assert_true(found.cells == cells && found.calls == calls && alone.cells == cells && alone.calls == calls);
    assert_true(found.weight == alone.weight && found.updates == alone.updates);
    assert_true(found.correct == alone.correct || target->precision != FLIM_PRECISION_FP32);
    compare("loss", "the totals", fabs(found.loss / alone.loss - 1), tolerance_alone());
    compare("gradient norm", "the totals", fabs(found.grad_norm / alone.grad_norm - 1),
            on_cpu() ? tolerance() : tolerance_alone());
}

/* Weights after an update, and all that training keeps beside them. */
static void compare_updated(const scene *s)
{
    static const struct {
        flim_state state;
        const char *name;
    } compared[] = {{FLIM_STATE_PARAMETERS, "parameters"},
                    {FLIM_STATE_MOMENT1, "first moments"},
                    {FLIM_STATE_MOMENT2, "second moments"},
                    {FLIM_STATE_AVERAGE_PARAMETERS, "averages"},
                    {FLIM_STATE_AVERAGE_STATISTICS, "averages of statistics"}};
    for (size_t k = 0; k < sizeof compared / sizeof compared[0]; k++) {
        float *found = read_state(&s->net, s->ranked, compared[k].state),
              *alone = read_state(&s->net, s->alone, compared[k].state);
        double *expected = ref_from_floats(alone, floats_of(&s->net, compared[k].state));
        compare(compared[k].name, "one program", ref_distance(found, expected, floats_of(&s->net, compared[k].state)),
                on_cpu() ? tolerance() : 2 * tolerance_alone());
        free(found);
        free(alone);
        free(expected);
    }
}

static void same_on_all_ranks(const void *values, size_t bytes, const char *what)
{
    flim_error err = {0};
    char *all = malloc(bytes * (size_t)n_ranks() + 1);
    assert_non_null(all);
    ok(flim_ranks_gather(ranks, values, bytes, all, &err), &err);
    for (int r = 1; r < n_ranks(); r++) {
        compare("bits", what, memcmp(all, all + (size_t)r * bytes, bytes) == 0 ? 0 : 1, 0);
    }
    free(all);
}

static void compare_ranks(const scene *s, flim_program *program)
{
    flim_error err = {0};
    for (int i = FLIM_STATE_PARAMETERS; i <= FLIM_STATE_AVERAGE_STATISTICS; i++) {
        float *values = read_state(&s->net, program, (flim_state)i);
        same_on_all_ranks(values, (size_t)floats_of(&s->net, (flim_state)i) * sizeof *values, "a state on all ranks");
        free(values);
    }
    flim_totals totals;
    ok(flim_program_totals(program, false, &totals, &err), &err);
    same_on_all_ranks(&totals.loss, sizeof totals.loss, "the loss on all ranks");
    same_on_all_ranks(&totals.grad_norm, sizeof totals.grad_norm, "the gradient norm on all ranks");
}

/* The next update is compared on its own. */
static void put_together(const scene *s)
{
    flim_error err = {0};
    for (int i = FLIM_STATE_PARAMETERS; i <= FLIM_STATE_AVERAGE_STATISTICS; i++) {
        if (i != FLIM_STATE_GRADIENTS) {
            float *values = read_state(&s->net, s->alone, (flim_state)i);
            ok(flim_program_write(s->ranked, (flim_state)i, values, &err), &err);
            free(values);
        }
    }
    float *parameters = read_state(&s->net, s->alone, FLIM_STATE_PARAMETERS);
    float *statistics = read_state(&s->net, s->alone, FLIM_STATE_STATISTICS);
    for (int64_t i = 0; i < s->net.parameters; i++) {
        s->ref->parameters[i] = (double)parameters[i];
    }
    for (int64_t i = 0; i < s->net.statistics; i++) {
        s->ref->statistics[i] = (double)statistics[i];
    }
    free(parameters);
    free(statistics);
}

/* ---- tests ---------------------------------------------------------------------------------------------------------------- */

/* A call by the ranks, by one program and by the reference; returns its cells. */
static int64_t train_all(const scene *s, share how, int64_t first, const flim_step *step)
{
    flim_error err = {0};
    const int64_t n = cells_before(how, n_ranks());
    flim_batch batch = batch_of(&s->net, first, n);
    ok(flim_program_train(s->alone, &batch, step, &err), &err);
    ok(flim_program_wait(s->alone, &err), &err);
    ref_network_train(s->ref, &batch, step);
    ref_batch_free(&batch);
    train_ranked(s, s->ranked, how, first, step);
    return n;
}

/* Stored in 16 bits, a value that a rounding carries over its activation's kink makes O(1) differences over so few cells, in the ranks or in the
 * one program: so much is granted to one update of a network if it is no more than twice what is allowed; bits that differ between ranks to none. */
static void grant_one(int *granted, const char *test)
{
    if (failures > 0 && far_off == 0 && *granted == 0 && !on_cpu() && target->precision != FLIM_PRECISION_FP32) {
        print_message("rank %d: %s: these %d are taken for a value on the other side of its kink\n", flim_ranks_rank(ranks),
                      test, failures);
        failures = 0;
        (*granted)++;
    }
}

/* An update of each kind of share, and one of two calls with others. */
static void train_and_compare(ref_build_network *build, const char *test)
{
    scene *s = begin(build, true);
    int64_t cells = 0, calls = 0;
    int granted = 0;
    for (int how = 0; how <= (int)SHARES; how++) {
        const bool accumulates = how == (int)SHARES;
        flim_step step = step_of(true, !accumulates, (double)most_cells());
        cells += train_all(s, accumulates ? ONE_SHORT : (share)how, 100 * how, &step);
        calls++;
        if (accumulates) {
            step = step_of(false, true, (double)most_cells());
            cells += train_all(s, LAST_EMPTY, 100 * how + 50, &step);
            calls++;
        }
        compare_state(s, FLIM_STATE_GRADIENTS);
        compare_state(s, FLIM_STATE_STATISTICS);
        compare_updated(s);
        compare_totals(s, cells, calls);
        grant_one(&granted, test);
        compare_ranks(s, s->ranked);
        put_together(s);
    }
    end(s);
    end_checks(test);
}

static void build_two_classes(flim_network *net)
{
    flim_error err = {0};
    ok(flim_network_build(net, 8, 2, 9, 5, 5, &err), &err);
}

static void build_three_classes(flim_network *net)
{
    flim_error err = {0};
    ok(flim_network_build(net, 8, 3, 8, 5, 4, &err), &err);
}

static void two_classes(void **state)
{
    (void)state;
    train_and_compare(build_two_classes, __func__);
}

static void three_classes(void **state)
{
    (void)state;
    train_and_compare(build_three_classes, __func__);
}

static void three_heads_on_two_units(void **state)
{
    (void)state;
    train_and_compare(ref_three_heads, __func__);
}

static void transposed_units_and_a_dense_head(void **state)
{
    (void)state;
    train_and_compare(ref_masked_autoencoder, __func__);
}

static void a_classifier_and_a_reconstruction(void **state)
{
    (void)state;
    train_and_compare(ref_two_tasks, __func__);
}

/* The moves of a call are those of one batch, whatever share they are made by. */
static void recalibrated_statistics_are_those_of_all_cells(void **state)
{
    (void)state;
    static const share shares[] = {FULL, ONE_SHORT, LAST_EMPTY, SINGLE};
    scene *s = begin(build_two_classes, true);
    flim_error err = {0};
    for (int i = 0; i < 4; i++) {
        const int rank = flim_ranks_rank(ranks);
        const int64_t n = cells_before(shares[i], n_ranks()), first = 40 + 20 * i;
        flim_batch all = batch_of(&s->net, first, n);
        flim_batch own = batch_of(&s->net, first + cells_before(shares[i], rank), cells_of(shares[i], rank));
        ok(flim_program_recalibrate(s->alone, &all, 1.0 / (i + 1), &err), &err);
        ok(flim_program_recalibrate(s->ranked, &own, 1.0 / (i + 1), &err), &err);
        ok(flim_program_wait(s->ranked, &err), &err);
        ref_network_recalibrate(s->ref, &all, 1.0 / (i + 1));
        compare_state(s, FLIM_STATE_STATISTICS);
        float *found = read_state(&s->net, s->ranked, FLIM_STATE_STATISTICS);
        same_on_all_ranks(found, (size_t)s->net.statistics * sizeof *found, "recalibrated statistics on all ranks");
        free(found);
        ref_batch_free(&all);
        ref_batch_free(&own);
    }
    end(s);
    end_checks(__func__);
}

/* Three updates of a program. */
static void train_three(const scene *s, flim_program *program)
{
    static const share shares[] = {FULL, LAST_EMPTY, ONE_SHORT};
    for (int i = 0; i < 3; i++) {
        const flim_step step = step_of(true, true, (double)most_cells());
        train_ranked(s, program, shares[i], 30 * i, &step);
    }
}

static void twice_the_same_bits(void **state)
{
    (void)state;
    scene *s = begin(build_two_classes, true);
    flim_program *again = make_program(s, true, true, FLIM_RECOMPUTE_NONE);
    flim_program *recomputed = make_program(s, true, true, FLIM_RECOMPUTE_ALL);
    train_three(s, s->ranked);
    train_three(s, again);
    train_three(s, recomputed);
    for (int i = FLIM_STATE_PARAMETERS; i <= FLIM_STATE_AVERAGE_STATISTICS; i++) {
        const size_t bytes = (size_t)floats_of(&s->net, (flim_state)i) * sizeof(float);
        float *a = read_state(&s->net, s->ranked, (flim_state)i), *b = read_state(&s->net, again, (flim_state)i);
        float *c = read_state(&s->net, recomputed, (flim_state)i);
        assert_memory_equal(a, b, bytes);
        assert_true(!on_cpu() || memcmp(a, c, bytes) == 0);
        free(a);
        free(b);
        free(c);
    }
    flim_program_destroy(again);
    flim_program_destroy(recomputed);
    end(s);
}

/* What the comparisons above would find: gradients of batches each by its own statistics are others. */
static void without_the_option_each_batch_is_its_own(void **state)
{
    (void)state;
    scene *s = begin(build_two_classes, false);
    const flim_step step = step_of(true, true, (double)most_cells());
    (void)train_all(s, FULL, 0, &step);
    float *found = read_state(&s->net, s->ranked, FLIM_STATE_GRADIENTS);
    const double distance = ref_distance(found, s->ref->gradients, s->net.parameters);
    if (n_ranks() > 1) {
        assert_true(distance > 0.1);
    } else {
        assert_true(distance <= tolerance());
    }
    free(found);
    end(s);
}

/* A cell that is not finite, on one rank: all of them note the call, and none makes an update from then on. */
static void what_is_not_finite_stops_all_ranks(void **state)
{
    (void)state;
    if (target->precision == FLIM_PRECISION_FP16) {
        skip(); /* there an update is left out and training goes on */
    }
    scene *s = begin(build_two_classes, true);
    const int rank = flim_ranks_rank(ranks);
    const flim_step step = step_of(true, true, (double)most_cells());
    flim_error err = {0};
    flim_totals totals;
    train_ranked(s, s->ranked, FULL, 0, &step);
    float *parameters = read_state(&s->net, s->ranked, FLIM_STATE_PARAMETERS);
    float *statistics = read_state(&s->net, s->ranked, FLIM_STATE_STATISTICS);
    flim_batch batch = batch_of(&s->net, 50 + rank * BATCH, BATCH);
    if (rank == n_ranks() - 1) {
        batch.signal[0] = NAN;
    }
    ok(flim_program_train(s->ranked, &batch, &step, &err), &err);
    ok(flim_program_wait(s->ranked, &err), &err);
    ref_batch_free(&batch);
    ok(flim_program_totals(s->ranked, false, &totals, &err), &err);
    assert_true(totals.nonfinite && totals.nonfinite_call == 1 && totals.calls == 2 && totals.updates == 1);
    float *parameters_after = read_state(&s->net, s->ranked, FLIM_STATE_PARAMETERS);
    float *statistics_after = read_state(&s->net, s->ranked, FLIM_STATE_STATISTICS);
    assert_memory_equal(parameters, parameters_after, (size_t)s->net.parameters * sizeof *parameters);
    assert_memory_equal(statistics, statistics_after, (size_t)s->net.statistics * sizeof *statistics);
    free(parameters);
    free(statistics);
    free(parameters_after);
    free(statistics_after);
    end(s);
}

REF_DEVICE_GROUP(cmocka_unit_test(two_classes), cmocka_unit_test(three_classes), cmocka_unit_test(three_heads_on_two_units),
                 cmocka_unit_test(transposed_units_and_a_dense_head), cmocka_unit_test(a_classifier_and_a_reconstruction),
                 cmocka_unit_test(recalibrated_statistics_are_those_of_all_cells), cmocka_unit_test(twice_the_same_bits),
                 cmocka_unit_test(without_the_option_each_batch_is_its_own),
                 cmocka_unit_test(what_is_not_finite_stops_all_ranks))

/* Each rank takes the card of its own number on its host; with FLIM_TEST_ONE_CARD all of them take the first, which real NCCL refuses. */
static bool choose_device(void)
{
    const char *spec = getenv("FLIM_TEST_DEVICE");
    char own[32];
    int cards = 0;
    flim_error err = {0};
    if (!spec || strcmp(spec, "cuda") != 0 || getenv("FLIM_TEST_ONE_CARD")) {
        return true;
    }
    if (flim_device_count(&cards, &err) != FLIM_OK || cards < flim_ranks_local_size(ranks)) {
        printf("skipped: %d processes on a host of %d cards%s%s\n", flim_ranks_local_size(ranks), cards,
               err.text[0] ? ": " : "", err.text);
        return false;
    }
    snprintf(own, sizeof own, "cuda:%d", flim_ranks_local_rank(ranks));
    return setenv("FLIM_TEST_DEVICE", own, 1) == 0;
}

int main(void)
{
    flim_error err = {0};
    if (flim_ranks_open(&ranks, &err) != FLIM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("rank %d of %d\n", flim_ranks_rank(ranks), n_ranks());
    const int failed = choose_device() ? ref_target_run(group) : 77;
    if (failed && failed != 77) {
        flim_ranks_break(ranks); /* the others may wait for this one */
    }
    flim_ranks_close(ranks, failed);
    return failed;
}

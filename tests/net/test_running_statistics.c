/* Running statistics of BatchNorm against the two formulas, with numbers that a person can check:
 * mean += momentum * (batch mean - mean), var += momentum * (unbiased batch variance - var), momentum 0.1, kept in fp32. */
#include "reference/device_test.h"
#include "reference/formula.h"
#include "reference/small_network.h"

enum { T = 4 };

/* A network whose first unit copies the signal to each channel (1x1x1) and has BatchNorm, for n cells of T bins, one pixel.
 */
typedef struct scene {
    flim_network net;
    flim_program *program;
    flim_batch batch;
    float *parameters, *statistics; /* P, S */
    int64_t mean, var; /* offsets of the unit's statistics */
} scene;

static scene begin(int channels, int64_t n)
{
    static const int size[3] = {T, 1, 1};
    const ref_row row = {-1, -1, channels, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, REF_BN};
    scene s = {.net = ref_small_network(size, &row, 1, 8, 1)};
    s.parameters = calloc((size_t)s.net.parameters, sizeof(float));
    s.statistics = calloc((size_t)s.net.statistics, sizeof(float));
    assert_true(s.parameters && s.statistics);
    ref_small_weights(&s.net, 1, s.parameters, s.statistics);
    const flim_tensor *weight = flim_network_find(&s.net, "a.conv.weight"), *bias = flim_network_find(&s.net, "a.conv.bias");
    s.mean = flim_network_find(&s.net, "a.bn.running_mean")->offset;
    s.var = flim_network_find(&s.net, "a.bn.running_var")->offset;
    for (int c = 0; c < channels; c++) {
        s.parameters[weight->offset + 2 * c] = 1;
        s.parameters[weight->offset + 2 * c + 1] = 0;
        s.parameters[bias->offset + c] = 0;
        s.statistics[s.mean + c] = 0;
        s.statistics[s.var + c] = 1;
    }
    s.program = ref_program_create(target, &s.net, n, 0, s.parameters, s.statistics);
    assert_non_null(s.program);
    s.batch = ref_formula_batch(&s.net, 0, n);
    return s;
}

static void end(scene *s)
{
    flim_program_destroy(s->program);
    ref_batch_free(&s->batch);
    free(s->parameters);
    free(s->statistics);
}

static void step(scene *s)
{
    const flim_step step = {
        .first = true, .last = true, .divisor = (double)s->batch.n, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
    flim_error err = {0};
    if (flim_program_train(s->program, &s->batch, &step, &err) != FLIM_OK ||
        flim_program_read(s->program, FLIM_STATE_STATISTICS, s->statistics, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
}

static void expect(const scene *s, const char *when, double mean, double var, double tolerance)
{
    for (int c = 0; c < s->net.unit[0].out_channels; c++) {
        const double m = (double)s->statistics[s->mean + c], v = (double)s->statistics[s->var + c];
        if (!(fabs(m - mean) <= tolerance) || !(fabs(v - var) <= tolerance)) {
            fail_msg("%s, %d channels: channel %d has mean %.9g, variance %.9g; expected %.9g, %.9g within %g; reproduce: "
                     "FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s tests/test_running_statistics",
                     when, s->net.unit[0].out_channels, c, m, v, mean, var, tolerance, target->spec,
                     flim_precision_name(target->precision));
        }
    }
}

/* 0, 1, 2, 3: mean 1.5, biased variance 1.25, unbiased 5/3. */
static void statistics_of_0_1_2_3(void **state)
{
    (void)state;
    for (int channels = 4; channels <= 8; channels += 4) {
        scene s = begin(channels, 1);
        for (int i = 0; i < T; i++) {
            s.batch.signal[i] = (float)i;
        }
        step(&s);
        expect(&s, "after a step", 0.15, 1.0666667, 2e-7); /* the biased one would give 1.025 */
        step(&s);
        expect(&s, "after two steps", 0.285, 1.1266667, 2e-7);
        end(&s);
    }
}

/* A constant 1 brings the mean to 1 in fp32; kept in bf16 it would stall at 0.984375. */
static void the_mean_of_ones_does_not_stall(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 2; n++) {
        scene s = begin(n == 1 ? 8 : 4, n);
        for (int i = 0; i < n * T; i++) {
            s.batch.signal[i] = 1;
        }
        for (int i = 0; i < 200; i++) {
            step(&s);
        }
        expect(&s, "ones after 200 steps", 1 - pow(0.9, 200), pow(0.9, 200), 1e-6);
        end(&s);
    }
}

REF_DEVICE_TESTS(cmocka_unit_test(statistics_of_0_1_2_3), cmocka_unit_test(the_mean_of_ones_does_not_stall))

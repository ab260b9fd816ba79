/* The probe of activations against the plain reference: shares at or below zero, and channels that never are above it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "core/test_folder.h"
#include "flim/simulate.h"
#include "reference/reference.h"
#include "reference/target.h"
#include "train/activations.h"

enum { CELLS = 21, BINS = 16, PIXELS = 5, MOST_CHANNELS = 64 };

static char folder[] = "/tmp/flim_activations_XXXXXX";
static const ref_target *target;
static flim_dataset *dataset;

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s: %s", flim_status_name(status), err->text);
    }
}

/* What the reference saw of a pass. */
typedef struct seen {
    const flim_network *net;
    int64_t cells, channels, dead;
    int64_t doubtful; /* channels whose largest value rounding may put on the other side of zero */
    double shares;
    double near; /* share of the values that rounding may put there */
    int units;
} seen;

/* What a call's rounding may move a value by, as a share of its unit's root mean square. */
static double rounding(void)
{
    switch (target->precision) {
    case FLIM_PRECISION_TF32:
    case FLIM_PRECISION_FP16: return 0.01;
    case FLIM_PRECISION_BF16: return 0.08;
    case FLIM_PRECISION_AUTO:
    case FLIM_PRECISION_AMP:
    case FLIM_PRECISION_FP32: break;
    }
    return 1e-5;
}

/* values (n,C,voxels) behind the leaky ReLU. */
static void observe(void *observer, int unit, ref_tensor what, double *values, int64_t count)
{
    const double slope = 0.01;
    seen *s = observer;
    if (what != REF_Y || unit >= s->net->n_units || s->net->unit[unit].input < 0 || !s->net->unit[unit].act) {
        return;
    }
    const int channels = s->net->unit[unit].out_channels;
    const int64_t pixels = count / (s->cells * channels);
    double most[MOST_CHANNELS], square = 0;
    int64_t inactive = 0, near = 0;
    for (int c = 0; c < channels; c++) {
        most[c] = -INFINITY;
    }
    for (int64_t i = 0; i < count; i++) {
        const double before = values[i] > 0 ? values[i] : values[i] / slope;
        square += before * before;
        most[i / pixels % channels] = fmax(most[i / pixels % channels], before);
    }
    const double margin = rounding() * sqrt(square / (double)count);
    for (int64_t i = 0; i < count; i++) {
        inactive += values[i] <= 0;
        near += fabs(values[i] > 0 ? values[i] : values[i] / slope) < margin;
    }
    for (int c = 0; c < channels; c++) {
        s->dead += most[c] <= 0;
        s->doubtful += fabs(most[c]) < margin;
    }
    s->channels += channels;
    s->shares += (double)inactive / (double)count;
    s->near += (double)near / (double)count;
    s->units++;
}

static float *floats(int64_t n)
{
    float *out = calloc((size_t)n, sizeof *out);
    assert_non_null(out);
    return out;
}

/* The first channel of a unit in the middle never lights, if `kill`. */
static void compare(const flim_network *net, uint64_t seed, bool kill)
{
    static const int64_t cell[] = {1,  2,  3,  5,  6,  7,  8,  9, 11,
                                   12, 13, 14, 15, 16, 17, 18, 20}; /* 17 cells, of which 8 are taken */
    enum { N = sizeof cell / sizeof cell[0] };
    const int64_t voxels = (int64_t)BINS * PIXELS * PIXELS, pixels = PIXELS * PIXELS;
    flim_error err = {0};
    flim_activations *probe = NULL;
    flim_reader *reader = NULL;
    flim_activation_figures found;
    float *parameter = floats(net->parameters), *statistic = floats(net->statistics);
    flim_batch batch = {.n = FLIM_PROBE_CELLS, .capacity = FLIM_PROBE_CELLS, .t = BINS, .h = PIXELS, .w = PIXELS};
    double logits[FLIM_PROBE_CELLS * 4];
    flim_network_init(net, seed, 0, parameter, statistic);
    for (int64_t i = 0; i < net->statistics; i++) { /* not those of a fresh network, which normalise nothing */
        statistic[i] += 0.01f * (float)((i * 7 + (int64_t)seed) % 5);
    }
    int killed = -1;
    for (int u = 0; u < net->n_units && kill && killed < 0; u++) {
        const flim_unit *unit = &net->unit[u];
        if (unit->input >= 0 && unit->act && unit->skip < 0 && unit->bn[0]) {
            parameter[flim_network_tensor(net, u, FLIM_TENSOR_BN_WEIGHT, 0)->offset] = 0;
            parameter[flim_network_tensor(net, u, FLIM_TENSOR_BN_BIAS, 0)->offset] = -1;
            killed = u;
        }
    }
    ok(flim_activations_create(target->device, net, target->precision, false, dataset, cell, N, &probe, &err), &err);
    assert_true(flim_activations_bytes(probe) > 0);
    ok(flim_activations_measure(probe, parameter, statistic, &found, &err), &err);
    const flim_activation_figures first = found;
    ok(flim_activations_measure(probe, parameter, statistic, &found, &err), &err); /* again: the same bits */
    assert_true(first.inactive == found.inactive && first.dead == found.dead);
    flim_activations_destroy(probe);

    batch.signal = floats(FLIM_PROBE_CELLS * voxels);
    batch.mask = calloc(FLIM_PROBE_CELLS, (size_t)pixels);
    batch.id = calloc(FLIM_PROBE_CELLS, sizeof *batch.id);
    batch.label = calloc(FLIM_PROBE_CELLS, sizeof *batch.label);
    assert_true(batch.mask && batch.id && batch.label);
    ok(flim_reader_create(dataset, &reader, &err), &err);
    for (int i = 0; i < FLIM_PROBE_CELLS; i++) {
        ok(flim_reader_signal(reader, cell[i * N / FLIM_PROBE_CELLS], batch.signal + i * voxels, batch.mask + i * pixels,
                              &err),
           &err);
    }
    flim_reader_destroy(reader);
    seen s = {.net = net, .cells = FLIM_PROBE_CELLS};
    ref_network *ref = ref_network_create(net, parameter, statistic);
    ref->observe = observe;
    ref->observer = &s;
    ref_network_predict(ref, &batch, logits);
    ref_network_free(ref);
    const double want = s.shares / s.units, dead = (double)s.dead / (double)s.channels;
    const double doubtful = (double)s.doubtful / (double)s.channels;
    if (!(fabs(found.inactive - want) <= s.near / s.units + 1e-12) || !(fabs(found.dead - dead) <= doubtful + 1e-12) ||
        (kill && s.dead == 0)) {
        fail_msg("%s, seed %llu: inactive %.9g (reference %.9g, within %.3g), dead %.9g (reference %.9g, within %.3g)",
                 flim_precision_name(target->precision), (unsigned long long)seed, found.inactive, want, s.near / s.units,
                 found.dead, dead, doubtful);
    }
    free(batch.signal);
    free(batch.mask);
    free(batch.id);
    free(batch.label);
    free(parameter);
    free(statistic);
}

static void shares_are_those_of_the_reference(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_network net;
    for (int preset = 0; preset < 2; preset++) {
        ok(flim_network_build_sized(&net, (flim_model_size){preset ? 8 : 4, preset ? 1 : 2}, 2, BINS, PIXELS, PIXELS, &err),
           &err);
        compare(&net, 3, false);
        compare(&net, 4, true);
    }
}

static void make_cells(void)
{
    flim_error err = {0};
    flim_simulation *simulation = NULL;
    flim_simulate_options simulate = flim_simulate_defaults();
    char path[256];
    const char *const files[] = {path};
    const flim_dataset_options options = {.axes = "NTYX", .cache = FLIM_CACHE_NONE};
    simulate.cells = CELLS;
    simulate.donors = 3;
    simulate.bins = BINS;
    simulate.height = simulate.width = PIXELS;
    simulate.photons = 200;
    snprintf(path, sizeof path, "%s/c.h5", folder);
    ok(flim_simulation_create(&simulate, &simulation, &err), &err);
    ok(flim_simulation_write(simulation, path, NULL, NULL, &err), &err);
    flim_simulation_destroy(simulation);
    ok(flim_dataset_open(files, 1, &options, &dataset, &err), &err);
}

static int setup(void **state)
{
    (void)state;
    if (!dataset) {
        make_cells();
    }
    return 0;
}

static int group(const ref_target *on)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares_are_those_of_the_reference)};
    target = on;
    return cmocka_run_group_tests(tests, setup, NULL);
}

int main(void)
{
    if (!mkdtemp(folder)) {
        return 1;
    }
    const int failed = ref_target_run(group);
    flim_dataset_close(dataset);
    return end_of_folder(folder, failed);
}

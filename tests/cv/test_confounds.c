/* What the baselines must make plain: simulated cells with and without a confound, donors that give themselves away, random
 * labels; split by cell and by donor. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cv/baseline.h"
#include "flim/metrics.h"
#include "flim/random.h"
#include "flim/simulate.h"

enum { CELLS = 600, DONORS = 6 };

typedef struct study {
    flim_split_data data;
    int32_t label[CELLS];
    int64_t group[CELLS];
    double x[CELLS * 3]; /* log photons, mask area, peak bin */
} study;

/* The default simulation (256 x 21 x 21 unless `bins` says otherwise) with a confound, as features. */
static void simulate(study *s, flim_confound confound, int bins)
{
    flim_simulate_options options = flim_simulate_defaults();
    flim_simulation *simulation;
    flim_error err = {0};
    options.confound = confound;
    options.bins = bins;
    assert_int_equal(options.cells, CELLS);
    assert_int_equal(options.donors, DONORS);
    if (flim_simulation_create(&options, &simulation, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    const flim_simulation_info *info = flim_simulation_get_info(simulation);
    int64_t pixels = (int64_t)options.height * options.width;
    uint16_t *counts = calloc((size_t)(bins * pixels), sizeof *counts);
    uint8_t *mask = calloc((size_t)pixels, 1);
    double *decay = calloc((size_t)bins, sizeof *decay);
    assert_true(counts && mask && decay);
    for (int64_t i = 0; i < CELLS; i++) {
        assert_int_equal(flim_simulation_cell(simulation, i, counts, mask, &err), FLIM_OK);
        double total = 0, area = 0;
        int peak = 0;
        memset(decay, 0, (size_t)bins * sizeof *decay);
        for (int64_t v = 0; v < bins * pixels; v++) {
            total += counts[v];
            decay[v / pixels] += mask[v % pixels] ? counts[v] : 0;
        }
        for (int64_t p = 0; p < pixels; p++) {
            area += mask[p];
        }
        for (int t = 1; t < bins; t++) {
            peak = decay[t] > decay[peak] ? t : peak;
        }
        s->x[3 * i] = log1p(total);
        s->x[3 * i + 1] = area;
        s->x[3 * i + 2] = peak;
        s->label[i] = info->label[i];
        s->group[i] = info->donor[i];
    }
    free(counts);
    free(mask);
    free(decay);
    flim_simulation_destroy(simulation);
    s->data = (flim_split_data){.n = CELLS, .classes = 2, .label = s->label, .groups = DONORS, .group = s->group};
}

static flim_metrics baseline(const study *s, flim_split_mode mode)
{
    flim_split_request request = {.mode = mode, .folds = 5, .val_fraction = 0.15, .seed = 42};
    flim_logistic_options options = {.ridge = 1, .balanced = true};
    static float logits[CELLS];
    static int32_t predicted[CELLS];
    double threshold[DONORS];
    flim_splits splits;
    flim_metrics m;
    assert_int_equal(flim_splits_make(&s->data, &request, &splits, NULL), FLIM_OK);
    assert_int_equal(flim_baseline_run(&splits, &s->data, s->x, 3, &options, logits, predicted, threshold, NULL), FLIM_OK);
    assert_int_equal(flim_metrics_of_decisions(CELLS, 2, s->label, logits, predicted, &m, NULL), FLIM_OK);
    flim_splits_free(&splits);
    return m;
}

static const flim_split_mode modes[] = {FLIM_SPLIT_STRATIFIED, FLIM_SPLIT_STRATIFIED_GROUP, FLIM_SPLIT_LEAVE_ONE_GROUP_OUT};

static void default_simulation_cannot_be_told_by_brightness_size_or_peak(void **state)
{
    (void)state;
    static study s;
    simulate(&s, FLIM_CONFOUND_NONE, 256);
    for (size_t i = 0; i < 3; i++) {
        flim_metrics m = baseline(&s, modes[i]);
        print_message("no confound, %s: balanced accuracy %.3f, AUC %.3f\n", flim_split_mode_name(modes[i]),
                      m.value[FLIM_BALANCED_ACCURACY], m.value[FLIM_ROC_AUC]);
        assert_true(m.value[FLIM_BALANCED_ACCURACY] <= 0.60);
    }
}

static void confounds_are_seen_by_the_baseline(void **state)
{
    (void)state;
    static study s;
    static const flim_confound confounds[] = {FLIM_CONFOUND_BRIGHTNESS, FLIM_CONFOUND_SIZE};
    for (int c = 0; c < 2; c++) {
        simulate(&s, confounds[c], 32);
        for (size_t i = 0; i < 3; i++) {
            flim_metrics m = baseline(&s, modes[i]);
            print_message("confound %d, %s: balanced accuracy %.3f, AUC %.3f\n", c, flim_split_mode_name(modes[i]),
                          m.value[FLIM_BALANCED_ACCURACY], m.value[FLIM_ROC_AUC]);
            assert_true(m.value[FLIM_ROC_AUC] > 0.9);
        }
    }
}

/* Each donor has one label, drawn at random, and a spectrum of its own: cells of a donor in the training set give its test
 * cells away, a donor left out cannot be told. */
static void donors_that_give_themselves_away(void **state)
{
    (void)state;
    static study s;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 12}, FLIM_RANDOM_SIMULATE);
    double by_cell = 0, by_donor = 0;
    int rounds = 30;
    for (int r = 0; r < rounds; r++) {
        double spectrum[DONORS][3];
        for (int d = 0; d < DONORS; d++) {
            for (int j = 0; j < 3; j++) {
                spectrum[d][j] = 10 * flim_random_normal(&random);
            }
        }
        int64_t order[DONORS] = {0, 1, 2, 3, 4, 5};
        flim_random_shuffle(&random, order, DONORS);
        for (int64_t i = 0; i < CELLS; i++) {
            s.group[i] = i % DONORS;
            s.label[i] = order[s.group[i]] < 3; /* three donors of each class */
            for (int j = 0; j < 3; j++) {
                s.x[3 * i + j] = spectrum[s.group[i]][j] + flim_random_normal(&random);
            }
        }
        s.data = (flim_split_data){.n = CELLS, .classes = 2, .label = s.label, .groups = DONORS, .group = s.group};
        by_cell += baseline(&s, FLIM_SPLIT_STRATIFIED).value[FLIM_ACCURACY] / rounds;
        by_donor += baseline(&s, FLIM_SPLIT_LEAVE_ONE_GROUP_OUT).value[FLIM_ACCURACY] / rounds;
    }
    print_message("labels of donors: accuracy %.3f split by cell, %.3f leaving donors out\n", by_cell, by_donor);
    assert_true(by_cell > 0.85);
    assert_true(by_donor < 0.6);
}

/* Labels at random: out-of-fold accuracy stays within binomial error of one half, thresholds and all. */
static void random_labels_score_as_chance(void **state)
{
    (void)state;
    static study s;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 15}, FLIM_RANDOM_SIMULATE);
    double sum = 0;
    int rounds = 40;
    for (int r = 0; r < rounds; r++) {
        for (int64_t i = 0; i < CELLS; i++) {
            s.group[i] = i % DONORS;
            s.label[i] = (int32_t)flim_random_below(&random, 2);
            for (int j = 0; j < 3; j++) {
                s.x[3 * i + j] = flim_random_normal(&random);
            }
        }
        s.data = (flim_split_data){.n = CELLS, .classes = 2, .label = s.label, .groups = DONORS, .group = s.group};
        double accuracy = baseline(&s, modes[r % 3]).value[FLIM_ACCURACY];
        assert_true(fabs(accuracy - 0.5) < 4.5 * 0.5 / sqrt(CELLS));
        sum += accuracy / rounds;
    }
    print_message("random labels: accuracy %.4f over %d studies\n", sum, rounds);
    assert_true(fabs(sum - 0.5) < 4 * 0.5 / sqrt((double)CELLS * rounds));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_simulation_cannot_be_told_by_brightness_size_or_peak),
        cmocka_unit_test(confounds_are_seen_by_the_baseline),
        cmocka_unit_test(donors_that_give_themselves_away),
        cmocka_unit_test(random_labels_score_as_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Mixup: shares, partners, and the mixtures that the loader makes of them. */
#include "data/h5_files.h"

#include <math.h>

#include "core/exact_math.h"
#include "cv/mixup.h"
#include "data/transform.h"
#include "flim/dataset_writer.h"
#include "flim/loader.h"

enum { CELLS = 60, GROUPS = 5, CLASSES = 3, DRAWS = 4000, BATCH = 32 };

static void exponential_and_logarithm_are_exact(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const double x = -0.03 * i, y = exp(0.01 * (i - 10000));
        assert_true(fabs(flim_exact_exp(x) - exp(x)) <= 1e-12 * exp(x));
        assert_true(fabs(flim_exact_log(y) - log(y)) <= 1e-14 * (1 + fabs(log(y))));
    }
    assert_true(flim_exact_exp(0) == 1 && flim_exact_exp(-1e9) == 0 && flim_exact_log(1) == 0);
}

/* Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)), symmetric; for a = 1 uniform, for a = 1/2 the arcsine law. */
static void shares_are_beta(void **state)
{
    (void)state;
    static const double alphas[] = {0.01, 0.2, 0.5, 1, 2, 4};
    enum { N = 40000 };
    for (size_t k = 0; k < sizeof alphas / sizeof alphas[0]; k++) {
        const double a = alphas[k], variance = 1 / (4 * (2 * a + 1));
        flim_random random = flim_random_begin(&(flim_cell_id){.seed = 3 + k}, FLIM_RANDOM_MIXUP);
        double sum = 0, squares = 0, quarter = 0;
        for (int i = 0; i < N; i++) {
            const double l = flim_draw_beta(&random, a);
            assert_true(l >= 0 && l <= 1);
            sum += l;
            squares += (l - 0.5) * (l - 0.5);
            quarter += l < 0.25;
        }
        assert_true(fabs(sum / N - 0.5) < 5 * sqrt(variance / N));
        assert_true(fabs(squares / N / variance - 1) < 0.03);
        assert_true(a != 1 || fabs(quarter / N - 0.25) < 0.011);
        assert_true(a != 0.5 || fabs(quarter / N - 1.0 / 3) < 0.012); /* (2 / pi) asin(sqrt(1/4)) */
    }
}

static int32_t label[CELLS];
static int64_t group[CELLS];
static flim_draw draws[DRAWS];
static flim_mix mix[DRAWS], again[DRAWS];

static flim_split_data make_split_data(void)
{
    for (int i = 0; i < CELLS; i++) {
        label[i] = i % 7 == 0 ? 2 : i % 2;
        group[i] = i * i % GROUPS; /* 0, 1, 4 only: two groups without cells */
    }
    for (int i = 0; i < DRAWS; i++) {
        draws[i] = (flim_draw){(uint32_t)(i * 31 % 45), (uint32_t)(i / 45), 1}; /* cells 45 and on are in no draw */
    }
    return (flim_split_data){.n = CELLS, .classes = CLASSES, .label = label, .groups = GROUPS, .group = group};
}

static void draw_mix(const flim_mixup_rule *rule, uint32_t epoch, flim_mix *out)
{
    const flim_split_data data = make_split_data();
    flim_error err = {0};
    if (flim_mixup_draw(rule, &data, 42, 1, epoch, draws, DRAWS, BATCH, out, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
}

static void partners_come_from_the_draws_or_the_group(void **state)
{
    (void)state;
    for (int by_group = 0; by_group < 2; by_group++) {
        for (int by_batch = 0; by_batch < 2; by_batch++) {
            const flim_mixup_rule rule = {0.4, 0.7, by_batch ? FLIM_MIXUP_SHARE_BATCH : FLIM_MIXUP_SHARE_CELL,
                                          by_group ? FLIM_MIXUP_PARTNER_GROUP : FLIM_MIXUP_PARTNER_ALL};
            int times[CELLS] = {0}, alone = 0, same = 0;
            draw_mix(&rule, 3, mix);
            draw_mix(&rule, 3, again);
            assert_memory_equal(mix, again, sizeof mix);
            draw_mix(&rule, 4, again);
            assert_memory_not_equal(mix, again, sizeof mix);
            for (int i = 0; i < DRAWS; i++) {
                assert_true(mix[i].cell < 45 && mix[i].repeat >= 128 && mix[i].repeat < 256);
                assert_true(mix[i].share >= 0 && mix[i].share <= 1);
                assert_true(!by_group || group[mix[i].cell] == group[draws[i].cell]);
                assert_true(!by_batch || mix[i].share == mix[i / BATCH * BATCH].share);
                times[mix[i].cell]++;
                alone += mix[i].share == 0;
                same += i > 0 && mix[i].share == mix[i - 1].share;
            }
            assert_true(fabs(alone / (double)DRAWS - 0.3) < (by_batch ? 0.2 : 0.04));
            assert_true(by_batch ? same > DRAWS / 2 : same < DRAWS / 4);
            for (int c = 0; c < 45; c++) {
                assert_true(by_group || abs(times[c] - DRAWS / 45) < 50);
            }
        }
    }
    const flim_mixup_rule rule = {0.4, 1, FLIM_MIXUP_SHARE_CELL, FLIM_MIXUP_PARTNER_GROUP};
    flim_split_data data = make_split_data();
    data.group = NULL;
    data.groups = 0;
    flim_error err = {0};
    assert_int_equal(flim_mixup_draw(&rule, &data, 1, 1, 1, draws, DRAWS, BATCH, mix, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "no /group"));
}

/* ---- through the loader */

enum { T = 12, SIDE = 5, PIXELS = SIDE * SIDE, VOXELS = T * PIXELS, SOME = 50 };

static void fill(int64_t cell, float *counts, uint8_t *mask)
{
    for (int i = 0; i < VOXELS; i++) {
        counts[i] = i % PIXELS % 4 == cell % 4 ? (float)((i * 7 + cell) % 40) : 0;
    }
    for (int p = 0; p < PIXELS; p++) {
        mask[p] = p % 4 == cell % 4;
    }
}

static flim_dataset *make_data(float fraction)
{
    static const char *const classes[] = {"a", "b", "c"};
    make_split_data();
    const flim_dataset_layout layout = {.n = CELLS,
                                        .t = T,
                                        .h = SIDE,
                                        .w = SIDE,
                                        .count_bytes = 4,
                                        .count_float = true,
                                        .mask = true,
                                        .classes = CLASSES,
                                        .class_name = classes,
                                        .label = label};
    const char *path = scratch_path("mixup.h5");
    flim_dataset_writer *writer;
    unlink(path);
    assert_int_equal(flim_dataset_writer_create(path, &layout, &writer, NULL), FLIM_OK);
    for (int64_t cell = 0; cell < CELLS; cell++) {
        float counts[VOXELS];
        uint8_t mask[PIXELS];
        fill(cell, counts, mask);
        counts[0] += cell == 44 ? fraction : 0;
        assert_int_equal(flim_dataset_writer_cell(writer, cell, counts, mask, NULL), FLIM_OK);
    }
    assert_int_equal(flim_dataset_writer_finish(writer, NULL), FLIM_OK);
    flim_dataset_writer_destroy(writer);
    return open_good(path, &(flim_dataset_options){.cache = FLIM_CACHE_NONE, .need_labels = true});
}

/* One phase over SOME draws; signal (SOME,VOXELS), mask (SOME,PIXELS), target (SOME,CLASSES), label (SOME). */
typedef struct delivered {
    float signal[SOME][VOXELS], target[SOME][CLASSES];
    uint8_t mask[SOME][PIXELS];
    int32_t label[SOME];
} delivered;

static flim_status deliver(flim_dataset *d, int workers, int64_t batch_cells, const flim_phase *phase, delivered *out,
                           flim_error *err)
{
    const flim_loader_options options = {.workers = workers, .prefetch = 2, .batch = batch_cells, .mixes = true};
    const flim_batch *batch;
    flim_loader *loader;
    int64_t seen = 0;
    assert_int_equal(flim_loader_create(d, &options, &loader, NULL), FLIM_OK);
    flim_phase own = *phase;
    own.batch = batch_cells;
    flim_status status = flim_loader_begin(loader, &own, err);
    while (status == FLIM_OK && (status = flim_loader_next(loader, &batch, err)) == FLIM_OK && batch) {
        for (int64_t i = 0; i < batch->n; i++, seen++) {
            memcpy(out->signal[seen], batch->signal + i * VOXELS, sizeof out->signal[0]);
            memcpy(out->mask[seen], batch->mask + i * PIXELS, PIXELS);
            if (batch->target) {
                memcpy(out->target[seen], batch->target + i * CLASSES, sizeof out->target[0]);
            }
            out->label[seen] = batch->label[i];
        }
        assert_true((batch->target != NULL) == (phase->mix != NULL));
        flim_loader_release(loader, batch);
    }
    flim_loader_destroy(loader);
    assert_true(status != FLIM_OK || seen == SOME);
    return status;
}

static delivered one, two, alone[2];

static void targets_are_shares_and_batches_do_not_depend_on_threads(void **state)
{
    (void)state;
    const flim_transform transform = {
        3, {{FLIM_TRANSFORM_DIHEDRAL, 1, 0, 7}, {FLIM_TRANSFORM_THIN, 0.5, 0.4, 1}, {FLIM_TRANSFORM_BLUR, 0.3, 0.5, 0.5}}};
    const flim_mixup_rule rule = {0.4, 0.8, FLIM_MIXUP_SHARE_CELL, FLIM_MIXUP_PARTNER_ALL};
    flim_error err = {0};
    draw_mix(&rule, 1, mix);
    flim_dataset *d = make_data(0);
    for (int of = 0; of < 2; of++) {
        const flim_phase phase = {.draws = draws,
                                  .n_draws = SOME,
                                  .seed = 4,
                                  .epoch = 1,
                                  .transform = transform,
                                  .mix = mix,
                                  .mix_of = (flim_mix_of)of,
                                  .smoothing = 0.06f};
        memset(&one, 77, sizeof one);
        assert_int_equal(deliver(d, 1, 7, &phase, &one, &err), FLIM_OK);
        memset(&two, 77, sizeof two);
        assert_int_equal(deliver(d, 8, 11, &phase, &two, &err), FLIM_OK);
        assert_memory_equal(&one, &two, sizeof one);
        for (int i = 0; i < SOME; i++) {
            const double share = (double)mix[i].share;
            const int32_t own = label[draws[i].cell], other = label[mix[i].cell];
            for (int k = 0; k < CLASSES; k++) {
                const double want = 0.94 * ((own == k) * (1 - share) + (other == k) * share) + 0.02;
                assert_true(fabs((double)one.target[i][k] - want) < 1e-6);
            }
            assert_int_equal(one.label[i], share > 0.5 ? other : own);
        }
    }
    flim_dataset_close(d);
}

/* input: the signals of both by their shares.  counts: each photon by its share: over many epochs the mean of the counts is
 * l n1 + (1 - l) n2 and their variance l (1 - l) (n1 + n2), voxel by voxel.  Both: the union of the masks. */
static void mixtures_are_what_they_say(void **state)
{
    (void)state;
    enum { EPOCHS = 400 };
    static double sum[VOXELS], squares[VOXELS];
    static float counts[2][VOXELS];
    flim_error err = {0};
    uint8_t mask[2][PIXELS];
    flim_dataset *d = make_data(0);
    make_split_data();
    for (int i = 0; i < SOME; i++) {
        mix[i] = (flim_mix){(uint32_t)(i * 13 % 45), 128, i % 5 == 0 ? 0 : 0.1f * (float)(i % 10)};
    }
    flim_phase phase = {.draws = draws, .n_draws = SOME, .seed = 4, .mix = mix, .mix_of = FLIM_MIX_INPUT};
    assert_int_equal(deliver(d, 2, 10, &phase, &one, &err), FLIM_OK);
    flim_draw partners[SOME];
    for (int i = 0; i < SOME; i++) {
        partners[i] = (flim_draw){mix[i].cell, mix[i].repeat, 1};
    }
    const flim_phase first = {.draws = draws, .n_draws = SOME, .seed = 4},
                     second = {.draws = partners, .n_draws = SOME, .seed = 4};
    assert_int_equal(deliver(d, 2, 10, &first, &alone[0], &err), FLIM_OK);
    assert_int_equal(deliver(d, 2, 10, &second, &alone[1], &err), FLIM_OK);
    for (int i = 0; i < SOME; i++) {
        const double s = (double)mix[i].share;
        for (int v = 0; v < VOXELS; v++) {
            assert_true(fabs((double)one.signal[i][v] - (1 - s) * (double)alone[0].signal[i][v] -
                             s * (double)alone[1].signal[i][v]) < 1e-6);
        }
        for (int p = 0; p < PIXELS; p++) {
            assert_int_equal(one.mask[i][p], alone[0].mask[i][p] || (s > 0 && alone[1].mask[i][p]));
        }
    }
    const int at = 7;
    const double s = (double)mix[at].share; /* 0.7 */
    fill(draws[at].cell, counts[0], mask[0]);
    fill(mix[at].cell, counts[1], mask[1]);
    phase.mix_of = FLIM_MIX_COUNTS;
    memset(sum, 0, sizeof sum);
    memset(squares, 0, sizeof squares);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        phase.epoch = epoch;
        assert_int_equal(deliver(d, 2, 10, &phase, &one, &err), FLIM_OK);
        for (int v = 0; v < VOXELS; v++) {
            const double n = expm1(10 * (double)one.signal[at][v]);
            assert_true(fabs(n - round(n)) < 1e-3);
            sum[v] += n;
            squares[v] += n * n;
        }
        assert_memory_equal(one.signal[0], alone[0].signal[0], sizeof one.signal[0]); /* share 0: as it is */
    }
    double all = 0, want_all = 0;
    for (int v = 0; v < VOXELS; v++) {
        const double mean = (1 - s) * (double)counts[0][v] + s * (double)counts[1][v],
                     variance = s * (1 - s) * ((double)counts[0][v] + (double)counts[1][v]);
        assert_true(fabs(sum[v] / EPOCHS - mean) <= 5 * sqrt(variance / EPOCHS) + 1e-9);
        all += squares[v] / EPOCHS - sum[v] / EPOCHS * (sum[v] / EPOCHS);
        want_all += variance;
    }
    assert_true(fabs(all / want_all - 1) < 0.05);
    flim_dataset_close(d);
}

static void what_cannot_be_mixed_is_refused(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_dataset *d = make_data(0.5f);
    make_split_data();
    for (int i = 0; i < SOME; i++) {
        mix[i] = (flim_mix){(uint32_t)i % 44, 128, 0.5f};
    }
    mix[20].cell = 44; /* has half a photon */
    flim_phase phase = {.draws = draws, .n_draws = SOME, .mix = mix, .mix_of = FLIM_MIX_INPUT};
    for (int i = 0; i < SOME; i++) {
        assert_true(draws[i].cell != 44 || i > 20);
    }
    assert_int_equal(deliver(d, 2, 10, &phase, &one, &err), FLIM_OK); /* signals can be */
    phase.mix_of = FLIM_MIX_COUNTS;
    assert_int_equal(deliver(d, 2, 10, &phase, &one, &err), FLIM_ERROR_DATA);
    if (!strstr(err.text, "mixup.h5: /counts: cell 44: ") || !strstr(err.text, "--mixup counts")) {
        fail_msg("'%s'", err.text);
    }
    mix[3].share = 1.5f;
    assert_int_equal(deliver(d, 2, 10, &phase, &one, &err), FLIM_ERROR_USAGE);
    mix[3].share = NAN;
    assert_int_equal(deliver(d, 2, 10, &phase, &one, &err), FLIM_ERROR_USAGE);
    mix[3] = (flim_mix){CELLS, 0, 0.5f};
    assert_int_equal(deliver(d, 2, 10, &phase, &one, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "draw 3"));
    flim_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponential_and_logarithm_are_exact),
        cmocka_unit_test(shares_are_beta),
        cmocka_unit_test(partners_come_from_the_draws_or_the_group),
        cmocka_unit_test(targets_are_shares_and_batches_do_not_depend_on_threads),
        cmocka_unit_test(mixtures_are_what_they_say),
        cmocka_unit_test(what_cannot_be_mixed_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}

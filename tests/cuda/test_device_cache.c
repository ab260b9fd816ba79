/* --cache device: batches that bring only cell numbers give the same bits as batches with voxels. */
#include "reference/device_test.h"
#include "data/h5_files.h"

#include <math.h>
#include <unistd.h>

#include "flim/dataset_writer.h"
#include "data/device_cache.h"
#include "flim/loader.h"

enum { N = 23, DRAWS = 61, BATCH = 8, STEPS = 4 };

typedef struct shape {
    int t, h, w;
} shape;
static const shape shapes[] = {{16, 5, 6}, {9, 3, 5}, {9, 5, 5}}; /* 480 voxels, a multiple of 8; 135; 225, square */

/* Of every batch of a run; all but the first act on most cells. */
static const flim_transform transforms[] = {
    {0},
    {2, {{FLIM_TRANSFORM_DIHEDRAL, 1, 0, 7}, {FLIM_TRANSFORM_TIME_SHIFT, 0.75, -3, 5}}},
    {4,
     {{FLIM_TRANSFORM_TIME_SHIFT, 1, 1, 1},
      {FLIM_TRANSFORM_DIHEDRAL, 0.5, 1, 3},
      {FLIM_TRANSFORM_DIHEDRAL, 0.9, 0, 7},
      {FLIM_TRANSFORM_TIME_SHIFT, 0.5, -40, 40}}},
    {2, {{FLIM_TRANSFORM_SHIFT_FILL, 1, -8, 8}, {FLIM_TRANSFORM_MASK_DROP, 0.4, 0, 0}}},
    {2, {{FLIM_TRANSFORM_SHIFT_ZERO, 1, -3, 3}, {FLIM_TRANSFORM_DIHEDRAL, 1, 0, 7}}},
    /* from here on: of photons */
    {5,
     {{FLIM_TRANSFORM_DIHEDRAL, 1, 0, 7},
      {FLIM_TRANSFORM_DRIFT_FILL, 0.9, -5, 5},
      {FLIM_TRANSFORM_THIN, 0.8, 0.4, 1},
      {FLIM_TRANSFORM_BACKGROUND, 0.7, 0, 3},
      {FLIM_TRANSFORM_MASK_DROP, 0.2, 0, 0}}},
    {6,
     {{FLIM_TRANSFORM_MATCH, 0.8, 300, 40000},
      {FLIM_TRANSFORM_DIHEDRAL, 0.5, 0, 7},
      {FLIM_TRANSFORM_DRIFT, 0.9, -3.5, 3.5},
      {FLIM_TRANSFORM_SCALE, 0.5, 0.6, 1.4},
      {FLIM_TRANSFORM_TIME_SHIFT, 0.5, -4, 4},
      {FLIM_TRANSFORM_BOOTSTRAP, 0.5, 0, 0}}},
    {6,
     {{FLIM_TRANSFORM_DIHEDRAL, 0.8, 0, 7},
      {FLIM_TRANSFORM_ZOOM, 0.8, 0.6, 1.6},
      {FLIM_TRANSFORM_DRIFT_FILL, 0.5, -2, 2},
      {FLIM_TRANSFORM_ELASTIC, 0.6, 0, 2},
      {FLIM_TRANSFORM_THIN, 1, 0.002, 0.5},
      {FLIM_TRANSFORM_BLUR, 0.6, 0, 1.5}}}};

/* What a cell needs: cell i is of kind i % 4. */
enum { SMALL, WIDE, FRACTIONS, LARGE };
static const int bytes_of_kind[] = {1, 2, 4, 4};

static float count_of(int64_t cell, int64_t voxel)
{
    unsigned mixed = (unsigned)(cell * 7919 + voxel * 104729 + 11) % 1000;
    if (mixed < 700) {
        return 0;
    }
    switch (cell % 4) {
    case SMALL: return (float)(mixed % 256);
    case WIDE: return voxel % 50 == 0 ? 65535.0f : (float)(mixed * 7);
    case FRACTIONS: return (float)mixed + 0.25f;
    default: return 65536.0f + (float)(mixed * 1000);
    }
}

/* kinds: how many of the kinds above the file's type holds: 1 = uint8, 2 = uint16, 4 = float. */
static flim_dataset *make(const shape *s, int kinds, bool mask, bool zero_outside)
{
    static const char *const classes[] = {"no", "yes"};
    const int64_t pixels = (int64_t)s->h * s->w, voxels = pixels * s->t;
    int32_t label[N];
    for (int i = 0; i < N; i++) {
        label[i] = i % 3 == 0;
    }
    const flim_dataset_layout layout = {.n = N,
                                        .t = s->t,
                                        .h = s->h,
                                        .w = s->w,
                                        .count_bytes = kinds,
                                        .count_float = kinds == 4,
                                        .mask = mask,
                                        .classes = 2,
                                        .class_name = classes,
                                        .label = label};
    const char *path = scratch_path("device_cache.h5");
    flim_dataset_writer *writer;
    unlink(path); /* of an earlier run */
    assert_int_equal(flim_dataset_writer_create(path, &layout, &writer, NULL), FLIM_OK);
    for (int64_t i = 0; i < N; i++) {
        float counts[480];
        uint16_t counts2[480];
        uint8_t counts1[480], inside[30];
        for (int64_t v = 0; v < voxels; v++) {
            counts[v] = count_of(kinds == 1 ? 4 * i : kinds == 2 ? 4 * i + i % 2 : i, v);
            counts2[v] = kinds <= 2 ? (uint16_t)counts[v] : 0;
            counts1[v] = kinds == 1 ? (uint8_t)counts[v] : 0;
        }
        for (int64_t p = 0; p < pixels; p++) {
            inside[p] = (i + p) % 3 != 0;
        }
        const void *data = kinds == 1 ? (const void *)counts1 : kinds == 2 ? (const void *)counts2 : (const void *)counts;
        assert_int_equal(flim_dataset_writer_cell(writer, i, data, mask ? inside : NULL, NULL), FLIM_OK);
    }
    assert_int_equal(flim_dataset_writer_finish(writer, NULL), FLIM_OK);
    flim_dataset_writer_destroy(writer);
    return open_good(path, &(flim_dataset_options){.mask_counts = zero_outside});
}

static void scan(flim_dataset *d, flim_cell_summary *summary)
{
    flim_error err = {0};
    if (flim_dataset_scan(d, 3, NULL, NULL, summary, NULL, NULL, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
}

/* Draws with repetition; the last batch is smaller. */
static void draw(flim_draw draws[DRAWS])
{
    for (int i = 0; i < DRAWS; i++) {
        draws[i] = (flim_draw){(uint32_t)(i * i + 3 * i) % N, (uint32_t)i / 9, i % 2 ? 1.0f : 0.5f};
    }
}

typedef enum mixing { ALONE, PHOTONS, SIGNALS } mixing; /* of the cells of a run */

/* Partners for the draws: with cells of both widths, some alone. */
static void draw_partners(flim_mix mix[DRAWS])
{
    for (int i = 0; i < DRAWS; i++) {
        mix[i] = (flim_mix){(uint32_t)(i * 5 + 2) % N, 128 + (uint32_t)i / 9, i % 4 == 0 ? 0 : (float)(i % 8) / 7};
    }
}

static flim_loader *loader_of(flim_dataset *d, bool device_cached)
{
    flim_error err = {0};
    flim_loader *loader;
    const flim_loader_options options = {
        .workers = 3, .prefetch = 2, .batch = BATCH, .device = target->device, .device_cached = device_cached, .mixes = true};
    if (flim_loader_create(d, &options, &loader, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    return loader;
}

static void widths_are_as_narrow_as_counts_allow(void **state)
{
    (void)state;
    for (int kinds = 1; kinds <= 4; kinds *= 2) {
        uint8_t with[N], without[N];
        flim_cell_summary summary[N];
        flim_dataset *d = make(&shapes[0], kinds, false, false);
        scan(d, summary);
        flim_device_cache_widths(d, summary, with);
        flim_device_cache_widths(d, NULL, without);
        for (int i = 0; i < N; i++) {
            assert_int_equal(with[i], kinds == 1 ? 1 : kinds == 2 ? 1 + i % 2 : bytes_of_kind[i % 4]);
            assert_int_equal(without[i], kinds);
        }
        flim_dataset_close(d);
    }
}

static void batches_bring_only_numbers(void **state)
{
    (void)state;
    flim_draw draws[DRAWS];
    flim_error err = {0};
    flim_dataset *d = make(&shapes[1], 2, false, false);
    flim_loader *loader = loader_of(d, true), *voxels = loader_of(d, false);
    flim_loader_stats stats, full;
    draw(draws);
    flim_loader_get_stats(loader, &stats);
    flim_loader_get_stats(voxels, &full);
    assert_true(stats.buffer_bytes < 3 * (BATCH * 64 + 5 * 64));
    assert_true(full.buffer_bytes > stats.buffer_bytes + 3 * BATCH * 135 * 4 - 1);
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        const flim_phase phase = {.draws = draws, .n_draws = DRAWS, .batch = BATCH - 1, .seed = 9, .fold = 2, .epoch = epoch};
        const flim_batch *batch;
        int64_t seen = 0;
        assert_int_equal(flim_loader_begin(loader, &phase, &err), FLIM_OK);
        while (flim_loader_next(loader, &batch, &err) == FLIM_OK && batch) {
            assert_true(batch->device_cached);
            assert_null(batch->signal);
            assert_null(batch->mask);
            assert_int_equal(batch->n, DRAWS - seen < BATCH - 1 ? DRAWS - seen : BATCH - 1);
            for (int64_t i = 0; i < batch->n; i++) {
                const flim_draw *want = &draws[seen + i];
                const flim_cell_id id = {9, 2, epoch, want->cell, want->repeat};
                assert_memory_equal(&batch->id[i], &id, sizeof id);
                assert_int_equal(batch->label[i], want->cell % 3 == 0);
                assert_true(batch->weight[i] == want->weight);
            }
            seen += batch->n;
            flim_loader_release(loader, batch);
        }
        assert_int_equal(seen, DRAWS);
    }
    flim_loader_destroy(voxels);
    flim_loader_destroy(loader);
    flim_dataset_close(d);
}

/* The program applies a phase's transform, so batches carry it; one that does not fit the cells is refused at once. */
static void batches_carry_the_transform(void **state)
{
    (void)state;
    flim_draw draws[DRAWS];
    flim_error err = {0};
    const flim_batch *batch;
    flim_dataset *d = make(&shapes[1], 1, false, false);
    flim_loader *loader = loader_of(d, true);
    flim_phase phase = {.draws = draws, .n_draws = DRAWS, .batch = BATCH};
    draw(draws);
    for (int n = 0; n < 3; n++) {
        phase.transform = transforms[n];
        assert_int_equal(flim_loader_begin(loader, &phase, &err), FLIM_OK);
        assert_int_equal(flim_loader_next(loader, &batch, &err), FLIM_OK);
        assert_int_equal(batch->transform.n, transforms[n].n);
        assert_memory_equal(batch->transform.step, transforms[n].step, sizeof transforms[n].step);
        flim_loader_release(loader, batch);
    }
    phase.transform = (flim_transform){1, {{FLIM_TRANSFORM_DIHEDRAL, 1, 4, 7}}};
    assert_int_equal(flim_loader_begin(loader, &phase, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "symmetry"));
    flim_loader_destroy(loader);
    flim_dataset_close(d);
}

/* ---- On the device --------------------------------------------------------------------------------------------------- */

typedef struct fixture {
    flim_network net;
    flim_program *program;
    float *parameters, *statistics, *zeros; /* P, S, P */
} fixture;

static bool make_program(fixture *f, const flim_dataset *d, const uint8_t *bytes)
{
    const flim_dataset_info *info = flim_dataset_get_info(d);
    flim_error err = {0};
    assert_int_equal(flim_network_build(&f->net, 8, 2, info->t, info->h, info->w, &err), FLIM_OK);
    const flim_program_options options = {
        .precision = target->precision, .train_batch = BATCH, .eval_batch = BATCH, .deterministic = true};
    assert_int_equal(flim_program_compile(target->device, &f->net, &options, &f->program, &err), FLIM_OK);
    if (!flim_device_get_info(target->device)->own_memory) {
        assert_int_equal(flim_device_cache_plan(f->program, d, bytes, &err), FLIM_ERROR_USAGE);
        assert_non_null(strstr(err.text, "no memory of its own"));
        flim_program_destroy(f->program);
        return false;
    }
    f->parameters = calloc((size_t)f->net.parameters, sizeof(float));
    f->zeros = calloc((size_t)f->net.parameters, sizeof(float));
    f->statistics = calloc((size_t)f->net.statistics, sizeof(float));
    assert_true(f->parameters && f->zeros && f->statistics);
    flim_network_init(&f->net, 5, 0, f->parameters, f->statistics);
    return true;
}

static void free_program(fixture *f)
{
    flim_program_destroy(f->program);
    free(f->parameters);
    free(f->zeros);
    free(f->statistics);
}

static void must(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s tests/test_device_cache: %s", target->spec,
                 flim_precision_name(target->precision), err->text);
    }
}

/* STEPS training steps and one prediction from the initial state: parameters (P), statistics (S), logits (DRAWS). */
static void run(fixture *f, flim_loader *loader, const flim_transform *transform, mixing mixed, float *parameters,
                float *statistics, float *logits)
{
    flim_draw draws[DRAWS];
    flim_mix mix[DRAWS];
    flim_error err = {0};
    const flim_batch *batch, *held = NULL;
    const flim_counters counters = {.loss_scale = 1024};
    flim_totals totals;
    int64_t done = 0;
    draw(draws);
    draw_partners(mix);
    must(flim_program_write(f->program, FLIM_STATE_PARAMETERS, f->parameters, &err), &err);
    must(flim_program_write(f->program, FLIM_STATE_STATISTICS, f->statistics, &err), &err);
    must(flim_program_write(f->program, FLIM_STATE_MOMENT1, f->zeros, &err), &err);
    must(flim_program_write(f->program, FLIM_STATE_MOMENT2, f->zeros, &err), &err);
    must(flim_program_set_counters(f->program, &counters, &err), &err);
    must(flim_program_totals(f->program, true, &totals, &err), &err);
    const flim_step step = {.first = true,
                            .last = true,
                            .divisor = BATCH,
                            .learning_rate = 1e-3f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .epsilon = 1e-8f,
                            .dropout = 0.25f,
                            .block_dropout = 0.25f};
    for (int train = 1; train >= 0; train--) {
        const flim_phase phase = {.draws = draws,
                                  .n_draws = train ? STEPS * BATCH - 3 : DRAWS,
                                  .batch = BATCH,
                                  .seed = 1,
                                  .fold = 2,
                                  .epoch = 3,
                                  .transform = *transform,
                                  .mix = mixed == ALONE ? NULL : mix,
                                  .mix_of = mixed == SIGNALS ? FLIM_MIX_INPUT : FLIM_MIX_COUNTS};
        must(flim_loader_begin(loader, &phase, &err), &err);
        for (;;) {
            must(flim_loader_next(loader, &batch, &err), &err);
            if (!batch) {
                break;
            }
            must(train ? flim_program_train(f->program, batch, &step, &err)
                       : flim_program_predict(f->program, batch, logits + done, &err),
                 &err);
            done += train ? 0 : batch->n;
            if (held) {
                flim_loader_release(loader, held);
            }
            held = batch;
        }
        must(flim_program_wait(f->program, &err), &err);
        flim_loader_release(loader, held);
        held = NULL;
    }
    assert_int_equal(done, DRAWS);
    must(flim_program_read(f->program, FLIM_STATE_PARAMETERS, parameters, &err), &err);
    must(flim_program_read(f->program, FLIM_STATE_STATISTICS, statistics, &err), &err);
}

static void same_bits(const char *what, const float *cached, const float *sent, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&cached[i], &sent[i], sizeof *cached) != 0 || isnan(cached[i])) {
            fail_msg("FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s tests/test_device_cache: %s %lld: %.9g from the device "
                     "cache, %.9g from "
                     "voxels that were sent",
                     target->spec, flim_precision_name(target->precision), what, (long long)i, (double)cached[i],
                     (double)sent[i]);
        }
    }
}

/* Cells that are kept as finished signal have no photons left. */
static void refuses_cells_without_photons(fixture *f, flim_dataset *d, const flim_transform *transform, mixing mixed)
{
    flim_draw draws[DRAWS];
    flim_mix mix[DRAWS];
    float logits[DRAWS];
    flim_error err = {0};
    const flim_batch *batch;
    flim_loader *loader = loader_of(d, true);
    const flim_phase phase = {.draws = draws,
                              .n_draws = DRAWS,
                              .batch = BATCH,
                              .transform = *transform,
                              .mix = mixed == ALONE ? NULL : mix,
                              .mix_of = mixed == SIGNALS ? FLIM_MIX_INPUT : FLIM_MIX_COUNTS};
    draw(draws);
    draw_partners(mix);
    must(flim_loader_begin(loader, &phase, &err), &err);
    must(flim_loader_next(loader, &batch, &err), &err);
    assert_int_equal(flim_program_predict(f->program, batch, logits, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "whole numbers"));
    flim_loader_cancel(loader);
    flim_loader_destroy(loader);
    must(flim_program_wait(f->program, &err), &err);
}

static void compare(const shape *s, int kinds, bool mask, bool zero_outside)
{
    fixture f = {0};
    flim_error err = {0};
    flim_cell_summary summary[N];
    uint8_t bytes[N];
    flim_dataset *d = make(s, kinds, mask, zero_outside);
    scan(d, summary);
    flim_device_cache_widths(d, summary, bytes);
    if (!make_program(&f, d, bytes)) {
        flim_dataset_close(d);
        return;
    }
    flim_memory_plan before, after;
    must(flim_program_memory(f.program, &before, &err), &err);
    must(flim_device_cache_plan(f.program, d, bytes, &err), &err);
    must(flim_program_memory(f.program, &after, &err), &err);
    int64_t voxels = (int64_t)s->t * s->h * s->w, least = 0;
    for (int i = 0; i < N; i++) {
        least += voxels * bytes[i];
    }
    int64_t more = after.total[FLIM_MEMORY_DEVICE] - before.total[FLIM_MEMORY_DEVICE];
    assert_true(llabs(more - flim_device_cache_bytes(d, bytes)) < 1 << 20);
    assert_true(more >= least && more < least + N * 256 + (1 << 19));
    must(flim_program_allocate(f.program, &err), &err);
    assert_true(flim_program_peak_bytes(f.program) >= after.total[FLIM_MEMORY_DEVICE]);
    must(flim_device_cache_fill(f.program, d, bytes, 3, NULL, &err), &err);

    const size_t p = (size_t)f.net.parameters, q = (size_t)f.net.statistics;
    float *out[2][3], plain[DRAWS];
    for (int cached = 0; cached < 2; cached++) {
        out[cached][0] = malloc(p * sizeof(float));
        out[cached][1] = malloc(q * sizeof(float));
        out[cached][2] = malloc(DRAWS * sizeof(float));
        assert_true(out[cached][0] && out[cached][1] && out[cached][2]);
    }
    for (size_t k = 0; k < 3 * sizeof transforms / sizeof transforms[0]; k++) {
        const size_t n = k / 3;
        const mixing mixed = (mixing)(k % 3);
        if (kinds == 4 && (mixed == PHOTONS || flim_transform_needs_photons(&transforms[n]))) {
            refuses_cells_without_photons(&f, d, &transforms[n], mixed);
            continue;
        }
        for (int cached = 0; cached < 2; cached++) {
            flim_loader *loader = loader_of(d, cached);
            for (int i = 0; i < DRAWS; i++) {
                out[cached][2][i] = NAN;
            }
            run(&f, loader, &transforms[n], mixed, out[cached][0], out[cached][1], out[cached][2]);
            flim_loader_destroy(loader);
        }
        same_bits("parameter", out[1][0], out[0][0], (int64_t)p);
        same_bits("statistic", out[1][1], out[0][1], (int64_t)q);
        same_bits("logit", out[1][2], out[0][2], DRAWS);
        assert_memory_not_equal(out[1][0], f.parameters, p * sizeof(float));
        if (k == 0) {
            memcpy(plain, out[1][2], sizeof plain);
        } else {
            assert_memory_not_equal(out[1][2], plain, sizeof plain); /* the transform did something */
        }
    }
    for (int cached = 0; cached < 2; cached++) {
        for (int i = 0; i < 3; i++) {
            free(out[cached][i]);
        }
    }
    free_program(&f);
    flim_dataset_close(d);
}

static void cached_cells_give_the_same_bits(void **state)
{
    (void)state;
    for (int s = 0; s < 3; s++) {
        for (int kinds = 1; kinds <= 4; kinds *= 2) {
            compare(&shapes[s], kinds, kinds != 2, kinds == 4);
        }
    }
}

static void cells_that_are_not_cached_are_refused(void **state)
{
    (void)state;
    flim_error err = {0};
    uint8_t bytes[N];
    fixture f = {0};
    flim_dataset *d = make(&shapes[1], 1, false, false);
    flim_device_cache_widths(d, NULL, bytes);
    if (make_program(&f, d, bytes)) {
        int32_t label = 0;
        float weight = 1, logit;
        flim_cell_id id = {.cell = 0};
        const flim_batch batch = {.n = 1,
                                  .capacity = 1,
                                  .t = 9,
                                  .h = 3,
                                  .w = 5,
                                  .label = &label,
                                  .weight = &weight,
                                  .id = &id,
                                  .device_cached = true};
        must(flim_device_cache_plan(f.program, d, bytes, &err), &err);
        must(flim_program_plan_cache(f.program, NULL, &err), &err); /* taken out again */
        must(flim_program_allocate(f.program, &err), &err);
        assert_int_equal(flim_program_predict(f.program, &batch, &logit, &err), FLIM_ERROR);
        assert_non_null(strstr(err.text, "cell 0 of 0"));
        assert_int_equal(flim_program_store_cell(f.program, 0, &label, (uint8_t *)&label, &err), FLIM_ERROR);
        assert_int_equal(flim_device_cache_plan(f.program, d, bytes, &err), FLIM_ERROR);
        free_program(&f);
    }
    flim_dataset_close(d);
}

REF_DEVICE_GROUP(cmocka_unit_test(widths_are_as_narrow_as_counts_allow), cmocka_unit_test(batches_bring_only_numbers),
                 cmocka_unit_test(batches_carry_the_transform), cmocka_unit_test(cached_cells_give_the_same_bits),
                 cmocka_unit_test(cells_that_are_not_cached_are_refused))

int main(void)
{
    int failed = ref_target_run(group);
    scratch_remove();
    return failed;
}

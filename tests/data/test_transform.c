/* Transforms: every voxel against a plain reference that applies one step after the other, the draws, and the loader's batches. */
#include "data/h5_files.h"

#include <math.h>
#include <unistd.h>

#include "core/alloc.h"
#include "data/transform.h"
#include "flim/dataset_writer.h"
#include "flim/loader.h"
#include "reference/reference.h"

enum { MOST_VOXELS = 12 * 7 * 7 };

typedef struct shape {
    int t, h, w;
} shape;
static const shape shapes[] = {{8, 5, 5}, {9, 3, 6}, {12, 7, 4}, {1, 1, 1}, {10, 7, 7}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- the reference: written out, no map, no composition */

/* Where each symmetry takes output pixel (y,x) from. */
static void source_of(int symmetry, int h, int w, int y, int x, int *from_y, int *from_x)
{
    switch (symmetry) {
    case 0: *from_y = y, *from_x = x; return; /* as it is */
    case 1: *from_y = y, *from_x = w - 1 - x; return; /* left and right exchanged */
    case 2: *from_y = h - 1 - y, *from_x = x; return; /* top and bottom exchanged */
    case 3: *from_y = h - 1 - y, *from_x = w - 1 - x; return; /* turned by half */
    case 4: *from_y = x, *from_x = y; return; /* transposed */
    case 5: *from_y = x, *from_x = w - 1 - y; return; /* turned by a quarter */
    case 6: *from_y = h - 1 - x, *from_x = y; return; /* turned by a quarter the other way */
    default: *from_y = h - 1 - x, *from_x = w - 1 - y; return; /* transposed about the other diagonal */
    }
}

/* The number that step `number` draws for a cell, or false where it does not act. */
static bool drawn(const flim_transform *transform, int number, const flim_cell_id *id, const shape *s, int *value)
{
    const flim_transform_step *step = &transform->step[number];
    uint32_t word[4];
    ref_philox(id, 5, (uint32_t)number, word); /* 5: FLIM_RANDOM_AUGMENT */
    double high = step->op == FLIM_TRANSFORM_DIHEDRAL && s->h != s->w && step->high > 3 ? 3 : step->high;
    *value = (int)(step->low + floor((double)word[1] * (high - step->low + 1) / 4294967296.0));
    return (double)word[0] < floor(step->probability * 4294967296.0);
}

static void reference(const flim_transform *transform, const flim_cell_id *id, const shape *s, float *counts, uint8_t *mask)
{
    float before[MOST_VOXELS];
    uint8_t mask_before[MOST_VOXELS];
    for (int n = 0; n < transform->n; n++) {
        int value;
        if (!drawn(transform, n, id, s, &value)) {
            continue;
        }
        memcpy(before, counts, sizeof(float) * (size_t)(s->t * s->h * s->w));
        memcpy(mask_before, mask, (size_t)(s->h * s->w));
        for (int t = 0; t < s->t; t++) {
            for (int y = 0; y < s->h; y++) {
                for (int x = 0; x < s->w; x++) {
                    int from_t = t, from_y = y, from_x = x;
                    if (transform->step[n].op == FLIM_TRANSFORM_DIHEDRAL) {
                        source_of(value, s->h, s->w, y, x, &from_y, &from_x);
                    } else {
                        from_t = ((t - value) % s->t + s->t) % s->t;
                    }
                    counts[(t * s->h + y) * s->w + x] = before[(from_t * s->h + from_y) * s->w + from_x];
                    mask[y * s->w + x] = mask_before[from_y * s->w + from_x];
                }
            }
        }
    }
}

static void fill(const shape *s, int64_t cell, float *counts, uint8_t *mask)
{
    for (int i = 0; i < s->t * s->h * s->w; i++) {
        counts[i] = (float)((i * 37 + cell * 11) % 251);
    }
    for (int i = 0; i < s->h * s->w; i++) {
        mask[i] = (i * 5 + cell) % 3 != 0;
    }
}

static void compile(const flim_transform *transform, const shape *s, flim_transform_table *table)
{
    flim_error err = {0};
    if (flim_transform_compile(transform, s->t, s->h, s->w, table, &err) != FLIM_OK) {
        fail_msg("(%d,%d,%d): %s", s->t, s->h, s->w, err.text);
    }
}

/* ---- tests */

static void equals_the_reference_voxel_by_voxel(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 77}, FLIM_RANDOM_SAMPLER);
    for (int trial = 0; trial < 3000; trial++) {
        const shape *s = &shapes[trial % SHAPES];
        flim_transform transform = {.n = trial % (FLIM_MAX_TRANSFORM_STEPS + 1)};
        flim_transform_table table;
        for (int n = 0; n < transform.n; n++) {
            flim_transform_step *step = &transform.step[n];
            step->op = flim_random_below(&random, 2) ? FLIM_TRANSFORM_DIHEDRAL : FLIM_TRANSFORM_TIME_SHIFT;
            step->probability = (double)flim_random_below(&random, 5) / 4;
            const int most = step->op == FLIM_TRANSFORM_TIME_SHIFT ? 61 : s->h == s->w ? 8 : 4;
            const double a = (double)flim_random_below(&random, (uint64_t)most),
                         b = (double)flim_random_below(&random, (uint64_t)most);
            const double base = step->op == FLIM_TRANSFORM_TIME_SHIFT ? -30 : 0;
            step->low = base + fmin(a, b);
            step->high = base + fmax(a, b);
        }
        compile(&transform, s, &table);
        const flim_cell_id id = {0x123456789abcdefu + (uint64_t)trial, (uint32_t)trial % 7, (uint32_t)trial % 11,
                                 (uint32_t)trial, (uint32_t)trial % 3};
        float counts[MOST_VOXELS], want[MOST_VOXELS], got[MOST_VOXELS];
        uint8_t mask[MOST_VOXELS], want_mask[MOST_VOXELS], got_mask[MOST_VOXELS];
        const int pixels = s->h * s->w, voxels = s->t * pixels;
        fill(s, trial, counts, mask);
        fill(s, trial, want, want_mask);
        reference(&transform, &id, s, want, want_mask);
        for (int i = 0; i < voxels; i++) {
            got[i] = NAN;
        }
        memset(got_mask, 99, sizeof got_mask);
        assert_int_equal(flim_transform_apply(&table, &id, counts, mask, got, got_mask, NULL), FLIM_OK);
        for (int i = 0; i < voxels; i++) {
            if (!(got[i] == want[i])) {
                fail_msg("trial %d, %d steps, voxel (%d,%d,%d): %g, expected %g", trial, transform.n, i / pixels,
                         i % pixels / s->w, i % s->w, (double)got[i], (double)want[i]);
            }
        }
        if (memcmp(got_mask, want_mask, (size_t)pixels) != 0) {
            fail_msg("trial %d, %d steps: the mask differs", trial, transform.n);
        }
    }
}

/* Counts how often a one-step transform does each of its numbers, by what it does to the cell; [most] = cells it leaves out. */
static void tally(const flim_transform *transform, const shape *s, int cells, int least, int most, int *seen)
{
    flim_transform_table table;
    compile(transform, s, &table);
    const int voxels = s->t * s->h * s->w;
    for (int cell = 0; cell < cells; cell++) {
        const flim_cell_id id = {5, 1, 2, (uint32_t)cell, 0};
        float counts[MOST_VOXELS], got[MOST_VOXELS], want[MOST_VOXELS];
        uint8_t mask[MOST_VOXELS], got_mask[MOST_VOXELS], want_mask[MOST_VOXELS];
        for (int i = 0; i < voxels; i++) {
            counts[i] = (float)i; /* every voxel is told apart */
        }
        fill(s, cell, want, mask);
        assert_int_equal(flim_transform_apply(&table, &id, counts, mask, got, got_mask, NULL), FLIM_OK);
        int found = -1;
        for (int value = least; value <= most && found < 0; value++) {
            const flim_transform one = {1, {{transform->step[0].op, 1, value, value}}};
            memcpy(want, counts, sizeof counts);
            memcpy(want_mask, mask, sizeof mask);
            reference(&one, &id, s, want, want_mask);
            found = memcmp(got, want, sizeof(float) * (size_t)voxels) == 0 ? value - least : -1;
        }
        if (found < 0) {
            fail_msg("cell %d was changed in another way than numbers %d to %d do", cell, least, most);
        }
        seen[found]++;
    }
}

static void every_symmetry_is_reached(void **state)
{
    (void)state;
    const flim_transform all = {1, {{FLIM_TRANSFORM_DIHEDRAL, 1, 0, 7}}}, some = {1, {{FLIM_TRANSFORM_DIHEDRAL, 1, 2, 5}}};
    int square[8] = {0}, other[8] = {0}, part[8] = {0};
    tally(&all, &shapes[0], 8000, 0, 7, square);
    tally(&all, &shapes[1], 4000, 0, 3, other);
    tally(&some, &shapes[4], 4000, 0, 7, part);
    for (int k = 0; k < 8; k++) {
        assert_true(abs(square[k] - 1000) < 150);
        assert_true(k < 4 ? abs(other[k] - 1000) < 150 : other[k] == 0);
        assert_true(k >= 2 && k <= 5 ? abs(part[k] - 1000) < 150 : part[k] == 0);
    }
}

static void every_shift_of_the_range_is_reached(void **state)
{
    (void)state;
    static const struct {
        int low, high;
    } range[] = {{-3, 4}, {-7, -2}, {2, 2}, {0, 0}};
    for (size_t i = 0; i < sizeof range / sizeof range[0]; i++) {
        const flim_transform transform = {1, {{FLIM_TRANSFORM_TIME_SHIFT, 1, range[i].low, range[i].high}}};
        int seen[8 * 2] = {0}; /* shapes[2] has 12 bins: -7..4 are told apart */
        tally(&transform, &shapes[2], 6000, -7, 4, seen);
        const int numbers = range[i].high - range[i].low + 1;
        for (int value = -7; value <= 4; value++) {
            const bool inside = value >= range[i].low && value <= range[i].high;
            assert_true(inside ? abs(seen[value + 7] - 6000 / numbers) < 200 : seen[value + 7] == 0);
        }
    }
}

static void acts_as_often_as_its_probability_says(void **state)
{
    (void)state;
    static const double probability[] = {0, 0.1, 0.5, 0.9, 1};
    for (size_t i = 0; i < sizeof probability / sizeof probability[0]; i++) {
        const flim_transform transform = {1, {{FLIM_TRANSFORM_TIME_SHIFT, probability[i], 3, 3}}};
        int seen[4] = {0};
        tally(&transform, &shapes[0], 10000, 0, 3, seen);
        assert_int_equal(seen[1] + seen[2], 0);
        assert_true(fabs(seen[3] / 10000.0 - probability[i]) < 0.02);
        assert_true(probability[i] > 0 || seen[3] == 0);
        assert_true(probability[i] < 1 || seen[0] == 0);
    }
}

static flim_voxel_map map_of(const flim_transform_table *table, const flim_cell_id *id)
{
    flim_cell_transform drawn;
    flim_transform_draw(table, id, 0, &drawn);
    return drawn.map;
}

static bool same_map(const flim_voxel_map *a, const flim_voxel_map *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void every_part_of_the_id_and_the_step_decide(void **state)
{
    (void)state;
    const flim_transform wide = {1, {{FLIM_TRANSFORM_TIME_SHIFT, 1, 0, 1048576}}},
                         twice = {2,
                                  {{FLIM_TRANSFORM_TIME_SHIFT, 0, 0, 1048576}, {FLIM_TRANSFORM_TIME_SHIFT, 1, 0, 1048576}}};
    flim_transform_table table, second;
    assert_int_equal(flim_transform_compile(&wide, 1 << 20, 3, 3, &table, NULL), FLIM_OK);
    assert_int_equal(flim_transform_compile(&twice, 1 << 20, 3, 3, &second, NULL), FLIM_OK);
    const flim_cell_id base = {1, 2, 3, 4, 5}, other[] = {{2, 2, 3, 4, 5}, {1, 3, 3, 4, 5}, {1, 2, 4, 4, 5},
                                                          {1, 2, 3, 5, 5}, {1, 2, 3, 4, 6}, {1ull << 40 | 1, 2, 3, 4, 5}};
    const flim_voxel_map map = map_of(&table, &base), repeated = map_of(&table, &base);
    assert_true(same_map(&map, &repeated));
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        const flim_voxel_map changed = map_of(&table, &other[i]);
        assert_false(same_map(&map, &changed));
    }
    const flim_voxel_map later = map_of(&second, &base);
    assert_false(same_map(&map, &later));
}

static void steps_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        flim_transform_step step;
        const char *text;
    } bad[] = {{{FLIM_TRANSFORM_DIHEDRAL, -0.1, 0, 7}, "probability -0.1"},
               {{FLIM_TRANSFORM_DIHEDRAL, 1.5, 0, 7}, "probability 1.5"},
               {{FLIM_TRANSFORM_DIHEDRAL, NAN, 0, 7}, "probability"},
               {{FLIM_TRANSFORM_DIHEDRAL, 1, -1, 7}, "-1 to 7"},
               {{FLIM_TRANSFORM_DIHEDRAL, 1, 0, 8}, "0 to 8"},
               {{FLIM_TRANSFORM_DIHEDRAL, 1, 0.5, 3}, "0.5 to 3"},
               {{FLIM_TRANSFORM_DIHEDRAL, 1, 4, 7}, "exchange rows"},
               {{FLIM_TRANSFORM_TIME_SHIFT, 1, 3, 2}, "3 to 2"},
               {{FLIM_TRANSFORM_TIME_SHIFT, 1, 0, NAN}, "shift: the range"},
               {{FLIM_TRANSFORM_TIME_SHIFT, 1, 0, 1e9}, "shift: the range"},
               {{FLIM_TRANSFORM_OPS, 1, 0, 1}, "not known"}};
    flim_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const flim_transform transform = {2, {{FLIM_TRANSFORM_TIME_SHIFT, 1, 0, 0}, bad[i].step}};
        assert_int_equal(flim_transform_check(&transform, 16, 4, 6, &err), FLIM_ERROR_USAGE);
        if (!strstr(err.text, bad[i].text) || !strstr(err.text, "step 1")) {
            fail_msg("'%s' lacks '%s' or the step's number", err.text, bad[i].text);
        }
    }
    assert_int_equal(flim_transform_check(&(flim_transform){.n = FLIM_MAX_TRANSFORM_STEPS + 1}, 16, 4, 6, &err),
                     FLIM_ERROR_USAGE);
    assert_int_equal(flim_transform_check(&(flim_transform){.n = -1}, 16, 4, 6, &err), FLIM_ERROR_USAGE);
    assert_int_equal(flim_transform_check(&(flim_transform){1, {{FLIM_TRANSFORM_DIHEDRAL, 1, 0, 7}}}, 65536, 256, 256, &err),
                     FLIM_ERROR_USAGE);
    assert_int_equal(flim_transform_check(&(flim_transform){0}, 16, 4, 6, &err), FLIM_OK);
}

/* ---- through the loader */

enum { CELLS = 40, DRAWS = 130 };

static flim_dataset *make_data(const shape *s, bool with_mask, flim_cache cache)
{
    const flim_dataset_layout layout = {.n = CELLS, .t = s->t, .h = s->h, .w = s->w, .count_bytes = 1, .mask = with_mask};
    const char *path = scratch_path("transform.h5");
    flim_dataset_writer *writer;
    unlink(path); /* of an earlier run */
    assert_int_equal(flim_dataset_writer_create(path, &layout, &writer, NULL), FLIM_OK);
    for (int64_t cell = 0; cell < CELLS; cell++) {
        float counts[MOST_VOXELS];
        uint8_t mask[MOST_VOXELS], bytes[MOST_VOXELS];
        fill(s, cell, counts, mask);
        for (int i = 0; i < s->t * s->h * s->w; i++) {
            bytes[i] = (uint8_t)counts[i];
        }
        assert_int_equal(flim_dataset_writer_cell(writer, cell, bytes, with_mask ? mask : NULL, NULL), FLIM_OK);
    }
    assert_int_equal(flim_dataset_writer_finish(writer, NULL), FLIM_OK);
    flim_dataset_writer_destroy(writer);
    return open_good(path, &(flim_dataset_options){.cache = cache, .mask_counts = with_mask});
}

/* One phase; every batch entry against the reference on the counts that a reader gives. */
static void check_phase(flim_loader *loader, flim_reader *reader, const shape *s, const flim_phase *phase)
{
    flim_error err = {0};
    const flim_batch *batch;
    int64_t seen = 0;
    const int pixels = s->h * s->w, voxels = s->t * pixels;
    assert_int_equal(flim_loader_begin(loader, phase, &err), FLIM_OK);
    while (flim_loader_next(loader, &batch, &err) == FLIM_OK && batch) {
        assert_int_equal(batch->transform.n, 0); /* nothing is left to do */
        for (int64_t i = 0; i < batch->n; i++) {
            const flim_draw *draw = &phase->draws[seen + i];
            const flim_cell_id id = {phase->seed, phase->fold, phase->epoch, draw->cell, draw->repeat};
            float want[MOST_VOXELS];
            uint8_t mask[MOST_VOXELS];
            assert_int_equal(flim_reader_counts(reader, draw->cell, want, mask, &err), FLIM_OK);
            reference(&phase->transform, &id, s, want, mask);
            flim_signal_from_counts(want, want, voxels);
            if (memcmp(batch->signal + i * voxels, want, sizeof(float) * (size_t)voxels) != 0 ||
                memcmp(batch->mask + i * pixels, mask, (size_t)pixels) != 0) {
                fail_msg("draw %lld, cell %u, repeat %u, %d steps: the batch differs", (long long)(seen + i), draw->cell,
                         draw->repeat, phase->transform.n);
            }
        }
        seen += batch->n;
        flim_loader_release(loader, batch);
    }
    assert_int_equal(err.status, FLIM_OK);
    assert_int_equal(seen, phase->n_draws);
}

static void batches_are_transformed_counts_with_any_threads(void **state)
{
    (void)state;
    static const flim_transform transforms[] = {{0},
                                                {1, {{FLIM_TRANSFORM_DIHEDRAL, 1, 0, 7}}},
                                                {3,
                                                 {{FLIM_TRANSFORM_DIHEDRAL, 0.5, 0, 7},
                                                  {FLIM_TRANSFORM_TIME_SHIFT, 0.75, -20, 20},
                                                  {FLIM_TRANSFORM_DIHEDRAL, 1, 1, 3}}}};
    static const struct {
        int workers, prefetch;
        int64_t batch;
    } pools[] = {{1, 1, 7}, {4, 2, 16}, {9, 6, 1}, {3, 1, 130}};
    flim_draw draws[DRAWS];
    for (int i = 0; i < DRAWS; i++) {
        draws[i] = (flim_draw){(uint32_t)(i * 17 % CELLS), (uint32_t)(i / CELLS), 1};
    }
    for (int i = 0; i < 6; i++) {
        const shape *s = &shapes[i % 3];
        flim_dataset *d = make_data(s, i % 2, i < 3 ? FLIM_CACHE_HOST : FLIM_CACHE_NONE);
        flim_reader *reader;
        assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
        for (size_t p = 0; p < sizeof pools / sizeof pools[0]; p++) {
            const flim_loader_options options = {
                .workers = pools[p].workers, .prefetch = pools[p].prefetch, .batch = pools[p].batch};
            flim_loader *loader;
            assert_int_equal(flim_loader_create(d, &options, &loader, NULL), FLIM_OK);
            for (uint32_t epoch = 0; epoch < 6; epoch++) { /* phases with and without, in one loader */
                check_phase(loader, reader, s,
                            &(flim_phase){.draws = draws,
                                          .n_draws = DRAWS,
                                          .batch = pools[p].batch,
                                          .seed = 3,
                                          .fold = 1,
                                          .epoch = epoch,
                                          .transform = transforms[epoch % 3]});
            }
            flim_phase phase = {.draws = draws, .n_draws = DRAWS, .batch = pools[p].batch};
            phase.transform = (flim_transform){1, {{FLIM_TRANSFORM_DIHEDRAL, 2, 0, 7}}};
            flim_error err = {0};
            assert_int_equal(flim_loader_begin(loader, &phase, &err), FLIM_ERROR_USAGE);
            assert_non_null(strstr(err.text, "probability 2"));
            flim_loader_destroy(loader);
        }
        flim_reader_destroy(reader);
        flim_dataset_close(d);
    }
}

/* A phase with a transform allocates when it begins: a failure is told, and the loader goes on. */
static void a_failed_allocation_leaves_the_loader_usable(void **state)
{
    (void)state;
    flim_draw draws[CELLS];
    for (int i = 0; i < CELLS; i++) {
        draws[i] = (flim_draw){(uint32_t)i, 0, 1};
    }
    const shape *s = &shapes[0];
    flim_dataset *d = make_data(s, true, FLIM_CACHE_NONE);
    flim_reader *reader;
    assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
    const flim_phase phase = {
        .draws = draws, .n_draws = CELLS, .batch = 8, .transform = {1, {{FLIM_TRANSFORM_DIHEDRAL, 1, 0, 7}}}};
    flim_status status = FLIM_ERROR;
    for (long k = 1; status != FLIM_OK; k++) {
        flim_loader *loader;
        assert_int_equal(
            flim_loader_create(d, &(flim_loader_options){.workers = 3, .prefetch = 2, .batch = 8}, &loader, NULL), FLIM_OK);
        flim_alloc_fail_at(k);
        status = flim_loader_begin(loader, &phase, NULL);
        flim_alloc_fail_at(0);
        assert_true(status == FLIM_ERROR_MEMORY || (status == FLIM_OK && k > 6)); /* draws, and two arrays per thread */
        check_phase(loader, reader, s, &phase);
        flim_loader_destroy(loader);
    }
    flim_reader_destroy(reader);
    flim_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference_voxel_by_voxel),
        cmocka_unit_test(every_symmetry_is_reached),
        cmocka_unit_test(every_shift_of_the_range_is_reached),
        cmocka_unit_test(acts_as_often_as_its_probability_says),
        cmocka_unit_test(every_part_of_the_id_and_the_step_decide),
        cmocka_unit_test(steps_that_make_no_sense_are_refused),
        cmocka_unit_test(batches_are_transformed_counts_with_any_threads),
        cmocka_unit_test(a_failed_allocation_leaves_the_loader_usable),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}

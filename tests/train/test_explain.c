/* Explanations: effects are the differences of ordinary predictions of cells without those photons; networks whose dependence is
 * known; the file and back; and what must be refused. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/file.h"
#include "flim/dataset_writer.h"
#include "flim/predict.h"
#include "flim/random.h"
#include "flim/weights.h"
#include "train/small_run.h"

enum { CELLS = 5, T = 8, H = 6, W = 5, PIXELS = H * W, VOXELS = T * PIXELS, BINS = 3, SIDE = 2, BT = 3, BY = 3, BX = 3 };
enum { VIEWS = 1 + BT + BY * BX };

static uint8_t counts[CELLS][VOXELS], mask[CELLS][PIXELS];

/* Cells that are round, with photons in their masks only and none in the last two bins. */
static void make_cells(void)
{
    for (int c = 0; c < CELLS; c++) {
        flim_random random = flim_random_begin(&(flim_cell_id){.seed = 3, .cell = (uint32_t)c}, FLIM_RANDOM_SIMULATE);
        for (int p = 0; p < PIXELS; p++) {
            const int y = p / W - H / 2, x = p % W - W / 2;
            mask[c][p] = y * y + x * x <= 5;
            for (int t = 0; t < T; t++) {
                const double value = 9 * exp(-t / 3.0) * (1 + c) + 2 * flim_random_normal(&random);
                counts[c][t * PIXELS + p] = (uint8_t)(mask[c][p] && t < T - 2 ? fmax(0, value) : 0);
            }
        }
    }
}

/* Cell `cell` of the file: cell / VIEWS of ours, as view cell % VIEWS has it: whole, without a time block, without a pixel block. */
static void view_of(int64_t cell, uint8_t *out, uint8_t *out_mask)
{
    const int c = (int)(cell / VIEWS), view = (int)(cell % VIEWS), block = view - 1 - BT;
    memcpy(out, counts[c], VOXELS);
    memcpy(out_mask, mask[c], PIXELS);
    for (int v = 0; v < VOXELS; v++) {
        const int t = v / PIXELS, y = v % PIXELS / W, x = v % W, p = y * W + x;
        const bool in_time = view > 0 && block < 0 && t / BINS == view - 1;
        const bool in_space = block >= 0 && y / SIDE == block / BX && x / SIDE == block % BX;
        if (in_time || in_space) {
            out[v] = 0;
        }
        if (in_space) {
            out_mask[p] = 0;
        }
    }
}

static void write_data(const char *name, int views)
{
    char path[256];
    flim_error err = {0};
    flim_dataset_writer *writer;
    int32_t label[CELLS * VIEWS];
    uint8_t one[VOXELS], one_mask[PIXELS];
    const int64_t n = (int64_t)CELLS * views;
    for (int64_t i = 0; i < n; i++) {
        label[i] = (int32_t)(i % 2);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const flim_dataset_layout layout = {
        .n = n, .t = T, .h = H, .w = W, .count_bytes = 1, .mask = true, .classes = 0, .label = label};
    ok(flim_dataset_writer_create(path, &layout, &writer, &err), &err);
    for (int64_t i = 0; i < n; i++) {
        view_of(views == 1 ? i * VIEWS : i, one, one_mask);
        ok(flim_dataset_writer_cell(writer, i, one, one_mask, &err), &err);
    }
    ok(flim_dataset_writer_finish(writer, &err), &err);
    flim_dataset_writer_destroy(writer);
}

/* Random weights; blind: the channel of the input (0 signal, 1 mask) whose weights are 0, so that the network cannot see it; -1 =
 * none. */
static void write_weights(const char *name, int classes, int blind)
{
    char path[256];
    flim_error err = {0};
    static flim_network net;
    ok(flim_network_build(&net, 8, classes, T, H, W, &err), &err);
    float *parameter = calloc((size_t)net.parameters, sizeof *parameter),
          *statistic = calloc((size_t)net.statistics, sizeof *statistic);
    assert_true(parameter && statistic);
    flim_network_init(&net, 11, 0, parameter, statistic);
    for (int i = 0; i < net.n_tensors; i++) {
        const flim_tensor *t = &net.tensor[i];
        for (int64_t j = 0; t->role == FLIM_TENSOR_LINEAR_WEIGHT && j < t->count; j++) {
            parameter[t->offset + j] *= 20; /* so that effects are far above rounding */
        }
        if (blind < 0 || t->role != FLIM_TENSOR_CONV_WEIGHT || t->unit >= net.n_units || net.unit[t->unit].input >= 0) {
            continue;
        }
        const int64_t taps = (int64_t)t->shape[2] * t->shape[3] * t->shape[4]; /* (O,I,kt,ky,kx) */
        for (int64_t o = 0; o < t->shape[0]; o++) {
            memset(parameter + t->offset + (o * t->shape[1] + blind) * taps, 0, (size_t)taps * sizeof *parameter);
        }
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ok(flim_weights_write(path, &net, NULL, parameter, statistic, &err), &err);
    free(parameter);
    free(statistic);
}

static flim_status predict(const char *model, const char *data, const int64_t *cell, int64_t n, flim_explanation *explanation,
                           flim_predictions *out, flim_error *err)
{
    char path[2][256];
    snprintf(path[0], sizeof path[0], "%s/%s", folder, model);
    snprintf(path[1], sizeof path[1], "%s/%s", folder, data);
    const flim_predict_request request = {.model = (const char *const[]){path[0]},
                                          .n_models = 1,
                                          .data = (const char *const[]){path[1]},
                                          .n_data = 1,
                                          .axes = "NTYX",
                                          .device = "cpu",
                                          .precision = FLIM_PRECISION_AUTO,
                                          .batch = 4, /* neither all views nor a divisor of them */
                                          .workers = 2,
                                          .prefetch = 2,
                                          .threshold = NAN,
                                          .any_mask = true,
                                          .explanation = explanation,
                                          .explain_cell = cell,
                                          .n_explain_cells = n,
                                          .explain_bins = BINS,
                                          .explain_pixels = SIDE};
    const flim_status status = flim_predict(&request, &(flim_train_hooks){0}, out, NULL, err);
    if (status == FLIM_ERROR_DEVICE) {
        print_message("skipped: %s\n", err->text);
        skip();
    }
    return status;
}

static void need_data(void)
{
    static bool made;
    if (!made) {
        make_cells();
        write_data("cells.h5", 1);
        write_data("views.h5", VIEWS);
        made = true;
    }
}

/* Cells are named in another order than they have in the data. */
static const int64_t chosen[] = {4, 0, 2};
enum { CHOSEN = sizeof chosen / sizeof chosen[0] };

static void explain(const char *model, flim_explanation *out)
{
    flim_predictions predictions;
    flim_error err = {0};
    ok(predict(model, "cells.h5", chosen, CHOSEN, out, &predictions, &err), &err);
    flim_predictions_free(&predictions);
    assert_true(out->models == 1 && out->n == CHOSEN && out->t_blocks == BT && out->y_blocks == BY && out->x_blocks == BX);
}

static void effects_are_differences_of_predictions(void **state)
{
    (void)state;
    need_data();
    for (int classes = 2; classes <= 3; classes++) {
        const int outputs = classes == 2 ? 1 : classes;
        flim_explanation e;
        flim_predictions views;
        flim_error err = {0};
        double largest = 0;
        write_weights("whole.safetensors", classes, -1);
        explain("whole.safetensors", &e);
        assert_int_equal(e.outputs, outputs);
        ok(predict("whole.safetensors", "views.h5", NULL, 0, NULL, &views, &err), &err);
        for (int i = 0; i < CHOSEN; i++) {
            assert_true(e.cell[i] == chosen[i]);
            for (int k = 0; k < outputs; k++) {
                const float *z = views.logits + chosen[i] * VIEWS * outputs; /* (VIEWS,K') */
                assert_true(fabs((double)(e.logits[i * outputs + k] - z[k])) < 1e-5);
                for (int b = 0; b < BT + BY * BX; b++) {
                    const double effect = b < BT ? (double)e.time[(i * BT + b) * outputs + k]
                                                 : (double)e.space[(i * BY * BX + b - BT) * outputs + k];
                    const double want = (double)z[k] - (double)z[(1 + b) * outputs + k];
                    largest = fmax(largest, fabs(want));
                    if (!(fabs(effect - want) < 1e-5)) {
                        fail_msg("%d classes, cell %" PRId64 ", block %d, output %d: %.9g, by predictions %.9g", classes,
                                 chosen[i], b, k, effect, want);
                    }
                }
            }
        }
        assert_true(largest > 1e-2); /* the network does look */
        flim_predictions_free(&views);
        flim_explanation_free(&e);
    }
}

/* A network that cannot see photons has no effect in time; one that cannot see the mask has none where there are no photons. */
static void known_dependence_is_found(void **state)
{
    (void)state;
    flim_explanation e;
    double largest = 0;
    need_data();
    write_weights("mask.safetensors", 2, 0);
    explain("mask.safetensors", &e);
    for (int i = 0; i < CHOSEN * BT; i++) {
        assert_true(e.time[i] == 0);
    }
    for (int i = 0; i < CHOSEN * BY * BX; i++) {
        largest = fmax(largest, fabs((double)e.space[i]));
    }
    assert_true(largest > 1e-4);
    flim_explanation_free(&e);

    write_weights("photons.safetensors", 2, 1);
    explain("photons.safetensors", &e);
    largest = 0;
    for (int i = 0; i < CHOSEN; i++) {
        for (int b = 0; b < BT; b++) {
            largest = fmax(largest, fabs((double)e.time[i * BT + b]));
        }
        assert_true(e.time[i * BT + BT - 1] == 0); /* bins 6 and 7 */
    }
    assert_true(largest > 1e-4);
    flim_explanation_free(&e);
}

static void the_file_holds_all_of_it(void **state)
{
    (void)state;
    flim_explanation e, back;
    flim_error err = {0};
    char path[256];
    void *bytes, *again;
    size_t count, count_again;
    need_data();
    write_weights("whole.safetensors", 3, -1);
    explain("whole.safetensors", &e);
    e.fold[0] = 2;
    memset(e.splits[0], 'a', 64);
    snprintf(path, sizeof path, "%s/maps.h5", folder);
    ok(flim_explanation_encode(&e, &bytes, &count, &err), &err);
    ok(flim_explanation_encode(&e, &again, &count_again, &err), &err);
    assert_true(count == count_again && memcmp(bytes, again, count) == 0); /* no time of day in it */
    ok(flim_file_write(path, bytes, count, &err), &err);
    ok(flim_explanation_read(path, &back, &err), &err);
    assert_true(back.models == 1 && back.n == CHOSEN && back.outputs == 3 && back.fold[0] == 2);
    assert_true(back.t_blocks == BT && back.y_blocks == BY && back.x_blocks == BX);
    assert_string_equal(back.splits[0], e.splits[0]);
    assert_string_equal(back.data_sha256, e.data_sha256);
    assert_memory_equal(back.cell, chosen, sizeof chosen);
    assert_memory_equal(back.t_edge, ((int32_t[]){0, 3, 6, 8}), 4 * sizeof(int32_t));
    assert_memory_equal(back.y_edge, ((int32_t[]){0, 2, 4, 6}), 4 * sizeof(int32_t));
    assert_memory_equal(back.x_edge, ((int32_t[]){0, 2, 4, 5}), 4 * sizeof(int32_t));
    assert_memory_equal(back.logits, e.logits, CHOSEN * 3 * sizeof(float));
    assert_memory_equal(back.time, e.time, (size_t)CHOSEN * BT * 3 * sizeof(float));
    assert_memory_equal(back.space, e.space, (size_t)CHOSEN * BY * BX * 3 * sizeof(float));
    flim_explanation_free(&back);

    /* cut short anywhere, or other files: refused, and nothing is left */
    for (size_t cut = 0; cut < count; cut += count / 9 + 1) {
        ok(flim_file_write(path, bytes, cut, &err), &err);
        assert_int_equal(flim_explanation_read(path, &back, &err), FLIM_ERROR_DATA);
        assert_true(back.n == 0 && back.cell == NULL);
    }
    snprintf(path, sizeof path, "%s/cells.h5", folder);
    assert_int_equal(flim_explanation_read(path, &back, &err), FLIM_ERROR_DATA);
    snprintf(path, sizeof path, "%s/whole.safetensors", folder);
    assert_int_equal(flim_explanation_read(path, &back, &err), FLIM_ERROR_DATA);
    flim_free(bytes);
    flim_free(again);
    flim_explanation_free(&e);
}

static void what_cannot_be_explained_is_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t cell[2];
        const char *said;
    } cases[] = {{{1, 1}, "cell 1 to explain: named twice"},
                 {{0, CELLS}, "cell 5 to explain: the data has no cell of this number"},
                 {{-1, 0}, "cell -1 to explain: the data has no cell of this number"}};
    need_data();
    write_weights("whole.safetensors", 2, -1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_explanation e;
        flim_predictions predictions;
        flim_error err = {0};
        assert_int_equal(predict("whole.safetensors", "cells.h5", cases[i].cell, 2, &e, &predictions, &err),
                         FLIM_ERROR_USAGE);
        assert_non_null(strstr(err.text, cases[i].said));
        assert_true(e.n == 0 && e.time == NULL && predictions.n == 0);
    }
    static const int64_t sizes[][2] = {{0, 1}, {T + 1, 1}, {1, 0}, {1, H + 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        flim_explanation e;
        flim_error err = {0};
        assert_int_equal(flim_explanation_create(1, 1, 2, T, H, W, sizes[i][0], sizes[i][1], &e, &err), FLIM_ERROR_USAGE);
        assert_non_null(strstr(err.text, "expected 1 to 8 bins and 1 to 6 pixels"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(effects_are_differences_of_predictions),
        cmocka_unit_test(known_dependence_is_found),
        cmocka_unit_test(the_file_holds_all_of_it),
        cmocka_unit_test(what_cannot_be_explained_is_refused),
    };
    return SMALL_MAIN(tests);
}

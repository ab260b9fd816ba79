/* The network table: docs/network.md's parameter counts, shapes, names and multiply-adds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "flim/network.h"

static flim_network build(int width, int classes, int t, int h, int w)
{
    flim_network net;
    flim_error err = {0};
    assert_int_equal(flim_network_build(&net, width, classes, t, h, w, &err), FLIM_OK);
    return net;
}

static void presets_have_the_parameters_of_the_specification(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters;
    } want[] = {{"nano", 14513},    {"tiny", 57345},      {"small", 227969},   {"base", 909057},
                {"large", 3630593}, {"xlarge", 14511105}, {"giant", 116265217}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        int preset;
        assert_int_equal(flim_parse_choice("preset", want[i].name, flim_preset_names, &preset, NULL), FLIM_OK);
        flim_network net;
        assert_int_equal(flim_network_build_sized(&net, flim_preset_size((flim_preset)preset), 2, 256, 21, 21, NULL),
                         FLIM_OK);
        assert_int_equal(net.parameters, want[i].parameters);
        assert_string_equal(net.preset, want[i].name);
    }
    assert_null(flim_preset_names[sizeof want / sizeof want[0]]);
    assert_string_equal(build(12, 2, 256, 21, 21).preset, "custom");
}

static void shapes_and_work_of_base(void **state)
{
    (void)state;
    flim_network net = build(32, 2, 256, 21, 21);
    const flim_unit *last = &net.unit[net.n_units - 1];
    assert_int_equal(last->out_channels, 128);
    assert_int_equal(last->out[0], 32);
    assert_int_equal(last->out[1], 6);
    assert_int_equal(last->out[2], 6);
    assert_int_equal(flim_network_macs(&net) / 10000000, 749); /* 7.49 G */
    int64_t outputs = 0; /* of all convolutions, for one cell */
    for (int i = 0; i < net.n_units; i++) {
        const flim_unit *u = &net.unit[i];
        outputs += (int64_t)u->out_channels * u->conv_out[0] * u->conv_out[1] * u->conv_out[2];
    }
    assert_int_equal(outputs / 100000, 128); /* 12.9 M: 12.89 */
    assert_string_equal(net.tensor[0].name, "stem.conv.weight");
    assert_non_null(flim_network_find(&net, "res2.skip.bn.running_var"));
    assert_null(flim_network_find(&net, "res1.skip.conv.weight"));
    assert_string_equal(net.tensor[net.n_tensors - 1].name, "head.fc2.bias");
}

/* Further blocks follow the first of their resolution; the published one is depth 1, tensor by tensor. */
static void depth_adds_blocks(void **state)
{
    (void)state;
    flim_network net, published = build(8, 2, 64, 9, 9);
    for (int depth = 1; depth <= FLIM_MAX_DEPTH; depth++) {
        assert_int_equal(flim_network_build_sized(&net, (flim_model_size){8, depth}, 2, 64, 9, 9, NULL), FLIM_OK);
        assert_int_equal(net.n_units, 4 + 6 * depth);
        assert_int_equal(flim_network_blocks(&net), flim_network_blocks(&published));
        /* per further block two 3x3x3 convolutions w -> w, 2w -> 2w, 4w -> 4w with bias, and their BatchNorms */
        const int64_t more = 2 * (27 * (64 + 256 + 1024) + 3 * (8 + 16 + 32));
        assert_int_equal(net.parameters, published.parameters + (depth - 1) * more);
        assert_memory_equal(net.unit[net.n_units - 1].out, published.unit[published.n_units - 1].out, sizeof net.unit[0].out);
        for (int i = 0; i < published.n_tensors; i++) {
            assert_non_null(flim_network_find(&net, published.tensor[i].name));
        }
        assert_true((flim_network_find(&net, "res2_2.conv1.weight") != NULL) == (depth >= 2));
        assert_true((flim_network_find(&net, "res3_3.bn2.running_var") != NULL) == (depth >= 3));
        assert_null(flim_network_find(&net, "res2_2.skip.conv.weight"));
    }
    flim_network bad;
    flim_error err = {0};
    assert_int_equal(flim_network_build_sized(&bad, (flim_model_size){8, 4}, 2, 64, 9, 9, &err), FLIM_ERROR_USAGE);
    assert_int_equal(flim_network_build_sized(&bad, (flim_model_size){8, 0}, 2, 64, 9, 9, &err), FLIM_ERROR_USAGE);
    assert_int_equal(flim_network_build_sized(&bad, (flim_model_size){10, 1}, 2, 64, 9, 9, &err), FLIM_ERROR_USAGE);
    const flim_model_size size = flim_model_size_of(FLIM_PRESET_GIANT, 12, 0);
    assert_true(size.width == 12 && size.depth == 3);
}

static void odd_times_follow_the_floor(void **state)
{
    (void)state;
    flim_network net = build(8, 3, 133, 5, 7);
    assert_int_equal(net.unit[1].out[0], 67); /* 133 -> 67 -> 33 -> 16 */
    assert_int_equal(net.unit[net.n_units - 1].out[0], 16);
    assert_int_equal(net.head[0].outputs, 3);
    flim_network bad;
    assert_int_equal(flim_network_build(&bad, 8, 2, 7, 21, 21, NULL), FLIM_ERROR_USAGE);
    assert_int_equal(flim_network_build(&bad, 8, 2, 8, 2, 21, NULL), FLIM_ERROR_USAGE);
    assert_int_equal(flim_network_build(&bad, 8, 1, 8, 3, 3, NULL), FLIM_ERROR_USAGE);
    assert_int_equal(build(4, 2, 8, 3, 3).unit[1].out[0], 4);
}

static void initial_weights_follow_seed_and_fold(void **state)
{
    (void)state;
    flim_network net = build(8, 2, 16, 5, 5);
    float *p[3], *s = calloc((size_t)net.statistics, sizeof *s);
    assert_non_null(s);
    for (int i = 0; i < 3; i++) {
        p[i] = calloc((size_t)net.parameters, sizeof *p[i]);
        assert_non_null(p[i]);
        flim_network_init(&net, 42, i == 2, p[i], s);
    }
    size_t bytes = (size_t)net.parameters * sizeof(float);
    assert_memory_equal(p[0], p[1], bytes);
    assert_memory_not_equal(p[0], p[2], bytes);
    const flim_tensor *w = flim_network_find(&net, "res3.conv2.weight"); /* fan out 32 * 27: sd 0.0481 */
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < w->count; i++) {
        double v = (double)p[0][w->offset + i];
        sum += v;
        squares += v * v;
    }
    double n = (double)w->count, variance = squares / n - sum / n * (sum / n);
    assert_true(variance > 0.95 * 2 / 1.0001 / 864 && variance < 1.05 * 2 / 1.0001 / 864);
    assert_true(s[flim_network_find(&net, "stem.bn.running_var")->offset] == 1.0f);
    for (int i = 0; i < 3; i++) {
        free(p[i]);
    }
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_parameters_of_the_specification),
        cmocka_unit_test(shapes_and_work_of_base),
        cmocka_unit_test(depth_adds_blocks),
        cmocka_unit_test(odd_times_follow_the_floor),
        cmocka_unit_test(initial_weights_follow_seed_and_fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

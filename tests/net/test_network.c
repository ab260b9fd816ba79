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
    } want[] = {{"tiny", 57345}, {"small", 227969}, {"base", 909057}, {"large", 3630593}, {"xlarge", 14511105}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        int preset;
        assert_int_equal(flim_parse_choice("preset", want[i].name, flim_preset_names, &preset, NULL), FLIM_OK);
        const flim_network net = build(flim_preset_width((flim_preset)preset), 2, 256, 21, 21);
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
    assert_int_equal(flim_network_conv_elements(&net) / 100000, 128); /* 12.9 M: 12.89 */
    assert_string_equal(net.tensor[0].name, "stem.conv.weight");
    assert_non_null(flim_network_find(&net, "res2.skip.bn.running_var"));
    assert_null(flim_network_find(&net, "res1.skip.conv.weight"));
    assert_string_equal(net.tensor[net.n_tensors - 1].name, "head.fc2.bias");
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
        cmocka_unit_test(odd_times_follow_the_floor),
        cmocka_unit_test(initial_weights_follow_seed_and_fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

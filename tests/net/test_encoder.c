/* The file of a pretrained encoder: the classifier's tensors of the units, with the values that the pretrained network has for them, and
 * no others; of the stem the first two input channels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "flim/weights.h"
#include "formats/safetensors.h"

#define PATH "test_encoder.safetensors"

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s", err->text);
    }
}

/* A value that tells tensor and element. */
static float value_of(int tensor, int64_t element)
{
    return (float)(tensor * 100000 + element);
}

static void check_file(const flim_network *net, const flim_network *classifier)
{
    flim_error err = {0};
    flim_safetensors *file;
    int units = 0;
    ok(flim_safetensors_open(PATH, &file, &err), &err);
    for (int i = 0; i < classifier->n_tensors; i++) {
        units += classifier->tensor[i].unit < classifier->n_units;
    }
    assert_int_equal(flim_safetensors_count(file), units);
    for (int64_t k = 0; k < flim_safetensors_count(file); k++) {
        const flim_array_view *found = flim_safetensors_at(file, k);
        const flim_tensor *want = flim_network_find(classifier, found->name), *from = flim_network_find(net, found->name);
        assert_true(want && from && want->unit < classifier->n_units && found->count == want->count);
        float *values = malloc((size_t)found->count * sizeof *values);
        assert_non_null(values);
        ok(flim_safetensors_read(file, found, values, &err), &err);
        const int64_t taps = want->ndim == 5 ? (int64_t)want->shape[2] * want->shape[3] * want->shape[4] : 1;
        const int64_t in = want->ndim == 5 ? want->shape[1] : 1, in_from = from->ndim == 5 ? from->shape[1] : 1;
        for (int64_t e = 0; e < found->count; e++) { /* (O,I,taps), with more input channels perhaps */
            const int64_t o = e / taps / in, i = e / taps % in, tap = e % taps;
            const int64_t element = taps > 1 || in > 1 ? (o * in_from + i) * taps + tap : e;
            if (values[e] != value_of((int)(from - net->tensor), element)) {
                fail_msg("%s[%lld] is %g", found->name, (long long)e, (double)values[e]);
            }
        }
        free(values);
    }
    flim_safetensors_close(file);
}

static void an_encoder_has_the_units_of_the_classifier(void **state)
{
    (void)state;
    static const flim_pretraining kinds[] = {{.masked = true, .contrastive = 0.1f}, {.masked = true}, {.contrastive = 1}};
    for (int depth = 1; depth <= FLIM_MAX_DEPTH; depth++) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            flim_network net, classifier;
            flim_error err = {0};
            const flim_provenance about = {.is_known = true, .pretraining = true, .fold = -1};
            ok(flim_network_build_pretraining(&net, (flim_model_size){8, depth}, 2, 19, 6, 5, &kinds[k], &err), &err);
            ok(flim_network_build_sized(&classifier, (flim_model_size){8, depth}, 4, 19, 6, 5, &err), &err);
            float *parameters = malloc((size_t)net.parameters * sizeof *parameters);
            float *statistics = malloc((size_t)net.statistics * sizeof *statistics);
            assert_true(parameters && statistics);
            for (int t = 0; t < net.n_tensors; t++) {
                const flim_tensor *tensor = &net.tensor[t];
                float *at = (flim_tensor_is_statistic(tensor) ? statistics : parameters) + tensor->offset;
                for (int64_t e = 0; e < tensor->count; e++) {
                    at[e] = value_of(t, e);
                }
            }
            ok(flim_weights_write_encoder(PATH, &classifier, &net, &about, parameters, statistics, &err), &err);
            check_file(&net, &classifier);
            free(parameters);
            free(statistics);
        }
    }
    unlink(PATH);
}

/* Sizes that are odd at every halving come back through the decoder. */
static void the_decoder_ends_at_the_input(void **state)
{
    (void)state;
    static const int sizes[][3] = {{256, 21, 21}, {133, 21, 21}, {8, 3, 3}, {9, 4, 5}, {11, 7, 6}, {255, 8, 9}, {64, 16, 3}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int depth = 1; depth <= FLIM_MAX_DEPTH; depth++) {
            flim_network net;
            flim_error err = {0};
            const flim_pretraining what = {.masked = true};
            ok(flim_network_build_pretraining(&net, (flim_model_size){4, depth}, 2, sizes[i][0], sizes[i][1], sizes[i][2],
                                              &what, &err),
               &err);
            assert_memory_equal(net.unit[net.n_units - 1].out, sizes[i], sizeof sizes[i]);
        }
    }
    flim_network net;
    const flim_pretraining nothing = {0};
    assert_int_equal(flim_network_build_pretraining(&net, (flim_model_size){4, 1}, 2, 16, 5, 5, &nothing, NULL),
                     FLIM_ERROR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_encoder_has_the_units_of_the_classifier),
                                       cmocka_unit_test(the_decoder_ends_at_the_input)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

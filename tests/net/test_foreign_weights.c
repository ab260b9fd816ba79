/* Weights as other programs leave them: prefixes of PyTorch's wrappers, other types of floats, other numbers of classes, and
 * files that are no safetensors at all.  The files are written here byte by byte. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "flim/weights.h"

#define PATH "test_foreign_weights.safetensors"

static flim_network build(int classes)
{
    flim_network net;
    assert_int_equal(flim_network_build(&net, 4, classes, 16, 5, 7, NULL), FLIM_OK);
    return net;
}

static float *floats(int64_t n, double value)
{
    float *out = malloc((size_t)n * sizeof *out);
    assert_non_null(out);
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)value;
    }
    return out;
}

/* A value as the bytes of a type; halves hold it exactly or not at all. */
static void put_value(FILE *f, const char *dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (strcmp(dtype, "F64") == 0) {
        const double wide = (double)value;
        fwrite(&wide, 8, 1, f);
    } else if (strcmp(dtype, "BF16") == 0) {
        const uint16_t half = (uint16_t)(bits >> 16);
        assert_int_equal(bits & 0xffff, 0);
        fwrite(&half, 2, 1, f);
    } else if (strcmp(dtype, "F16") == 0) {
        const int exponent = (int)(bits >> 23 & 255) - 127 + 15;
        const uint16_t half = value == 0 ? 0 : (uint16_t)(bits >> 31 << 15 | (unsigned)exponent << 10 | (bits >> 13 & 1023));
        assert_true(value == 0 || (exponent > 0 && exponent < 31 && (bits & 0x1fff) == 0));
        fwrite(&half, 2, 1, f);
    } else {
        fwrite(&value, 4, 1, f);
    }
}

static int bytes_of(const char *dtype)
{
    return strcmp(dtype, "F64") == 0 ? 8 : strcmp(dtype, "F32") == 0 ? 4 : 2;
}

/* Tensor t named PREFIX + its name and typed dtype[t % 4]; twice: the first tensor once more under another prefix. */
static void write_file(const flim_network *net, const char *prefix, const char *const dtype[4], const float *parameters,
                       const float *statistics, bool twice)
{
    static char header[65536];
    size_t used = 0;
    int64_t at = 0;
    header[used++] = '{';
    for (int i = 0; i < net->n_tensors + twice; i++) {
        const flim_tensor *t = &net->tensor[i % net->n_tensors];
        const int64_t bytes = t->count * bytes_of(dtype[i % 4]);
        used += (size_t)snprintf(header + used, sizeof header - used, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[",
                                 i ? "," : "", i < net->n_tensors ? prefix : "module.module.", t->name, dtype[i % 4]);
        for (int d = 0; d < t->ndim; d++) {
            used += (size_t)snprintf(header + used, sizeof header - used, "%s%d", d ? "," : "", t->shape[d]);
        }
        used += (size_t)snprintf(header + used, sizeof header - used, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                                 (long long)(at + bytes));
        at += bytes;
    }
    used +=
        (size_t)snprintf(header + used, sizeof header - used,
                         ",\"%sstem.bn.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[%lld,%lld]}}",
                         prefix, (long long)at, (long long)at + 8);
    FILE *f = fopen(PATH, "wb");
    assert_non_null(f);
    const uint64_t length = used;
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, used, f);
    for (int i = 0; i < net->n_tensors + twice; i++) {
        const flim_tensor *t = &net->tensor[i % net->n_tensors];
        const float *base = flim_tensor_is_statistic(t) ? statistics : parameters;
        for (int64_t k = 0; k < t->count; k++) {
            put_value(f, dtype[i % 4], base[t->offset + k]);
        }
    }
    fwrite(&length, 8, 1, f);
    assert_int_equal(fclose(f), 0);
}

static void prefixes_and_types_are_read_to_the_bit(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"", "module.", "_orig_mod.", "model.", "_orig_mod.module.", "model._orig_mod."};
    static const char *const types[][4] = {{"F32", "F32", "F32", "F32"},
                                           {"F64", "F64", "F64", "F64"},
                                           {"F16", "F16", "F16", "F16"},
                                           {"BF16", "BF16", "BF16", "BF16"},
                                           {"F32", "F16", "F64", "BF16"}};
    const flim_network net = build(2);
    float *p = floats(net.parameters, 0), *s = floats(net.statistics, 0);
    for (int64_t i = 0; i < net.parameters; i++) { /* 7 bits of fraction: all types hold them */
        p[i] = (float)(i % 2 ? -1 : 1) * (float)(128 + i % 128) / (float)(1 << (i % 16));
    }
    for (int64_t i = 0; i < net.statistics; i++) {
        s[i] = (float)(i % 100) / 16;
    }
    for (size_t n = 0; n < sizeof prefixes / sizeof prefixes[0]; n++) {
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            float *p_back = floats(net.parameters, (double)NAN), *s_back = floats(net.statistics, (double)NAN);
            flim_weights_info info;
            flim_error err = {0};
            write_file(&net, prefixes[n], types[k], p, s, false);
            if (flim_weights_read(PATH, &net, p_back, s_back, &err) != FLIM_OK) {
                fail_msg("prefix '%s', types %zu: %s", prefixes[n], k, err.text);
            }
            assert_memory_equal(p, p_back, (size_t)net.parameters * sizeof *p);
            assert_memory_equal(s, s_back, (size_t)net.statistics * sizeof *s);
            assert_int_equal(flim_weights_probe(PATH, false, &info, &err), FLIM_OK);
            assert_true(info.width == 4 && info.classes == 2 && !info.has_metadata);
            free(p_back);
            free(s_back);
        }
    }
    flim_error err = {0};
    write_file(&net, "module.", types[0], p, s, true);
    assert_int_equal(flim_weights_read(PATH, &net, p, s, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "are the same tensor"));
    write_file(&net, "teacher.", types[0], p, s, false);
    assert_int_equal(flim_weights_read(PATH, &net, p, s, &err), FLIM_ERROR_DATA);
    free(p);
    free(s);
    unlink(PATH);
}

/* Every finite half, against its definition; one that is not finite, and a double beyond a float, are errors that name it. */
static void every_half_is_what_its_bits_say(void **state)
{
    (void)state;
    static const char *const f16[4] = {"F16", "F16", "F16", "F16"};
    const flim_network net = build(2);
    const flim_tensor *stem = flim_network_find(&net, "stem.conv.weight");
    float *p = floats(net.parameters, 1), *s = floats(net.statistics, 1);
    const int count = (int)stem->count; /* the first tensor of the file */
    assert_ptr_equal(stem, &net.tensor[0]);
    for (int first = 0; first < 65536; first += count) {
        flim_error err = {0};
        uint64_t length;
        write_file(&net, "", f16, p, s, false);
        FILE *f = fopen(PATH, "r+b");
        assert_non_null(f);
        assert_int_equal(fread(&length, 8, 1, f), 1);
        assert_int_equal(fseek(f, (long)(8 + length), SEEK_SET), 0);
        bool finite = true;
        for (int i = 0; i < count; i++) {
            const uint16_t half = (uint16_t)(first + i < 65536 ? first + i : 0);
            finite = finite && (half >> 10 & 31) != 31;
            fwrite(&half, 2, 1, f);
        }
        fclose(f);
        float *p_back = floats(net.parameters, (double)NAN), *s_back = floats(net.statistics, (double)NAN);
        const flim_status status = flim_weights_read(PATH, &net, p_back, s_back, &err);
        if (status != (finite ? FLIM_OK : FLIM_ERROR_DATA) || (!finite && !strstr(err.text, "stem.conv.weight"))) {
            fail_msg("halves from %d: %s", first, err.text);
        }
        for (int i = 0; finite && i < count; i++) {
            const int half = first + i < 65536 ? first + i : 0, exponent = half >> 10 & 31, fraction = half & 1023;
            const double magnitude = exponent ? pow(2, exponent - 15) * (1 + fraction / 1024.0) : fraction * pow(2, -24);
            const float got = p_back[stem->offset + i];
            if ((double)got != (half & 0x8000 ? -magnitude : magnitude) || (signbit(got) != 0) != (half >> 15)) {
                fail_msg("half %04x is read as %.9g", (unsigned)half, (double)got);
            }
        }
        free(p_back);
        free(s_back);
    }
    free(p);
    free(s);
    unlink(PATH);
}

static void another_number_of_classes_leaves_the_last_layer(void **state)
{
    (void)state;
    static const char *const f32[4] = {"F32", "F32", "F32", "F32"};
    for (int from = 2; from <= 4; from++) {
        for (int to = 2; to <= 4; to++) {
            const flim_network there = build(from), here = build(to);
            float *p = floats(there.parameters, 3), *s = floats(there.statistics, 2);
            float *p_back = floats(here.parameters, (double)NAN), *s_back = floats(here.statistics, (double)NAN);
            bool is_new = from == to;
            flim_error err = {0};
            write_file(&there, "", f32, p, s, false);
            if (flim_weights_read_to_start(PATH, &here, p_back, s_back, &is_new, &err) != FLIM_OK) {
                fail_msg("%d to %d classes: %s", from, to, err.text);
            }
            assert_int_equal(is_new, from != to);
            for (int i = 0; i < here.n_tensors; i++) {
                const flim_tensor *t = &here.tensor[i];
                for (int64_t k = 0; k < t->count; k++) {
                    const float got = (flim_tensor_is_statistic(t) ? s_back : p_back)[t->offset + k];
                    const bool kept = is_new && flim_weights_is_last_layer(t);
                    assert_true(kept ? isnan(got) : got == (flim_tensor_is_statistic(t) ? 2.0f : 3.0f));
                }
            }
            assert_int_equal(flim_weights_read(PATH, &here, p_back, s_back, &err), from == to ? FLIM_OK : FLIM_ERROR_DATA);
            free(p);
            free(s);
            free(p_back);
            free(s_back);
        }
    }
    unlink(PATH);
}

static void other_files_are_recognised(void **state)
{
    (void)state;
#define BYTES(text) text, sizeof text
    static const struct {
        const char *bytes;
        size_t n;
        const char *says[2];
    } cases[] = {{BYTES("PK\3\4\0\0\0\0\0\0 archive/data.pkl"), {"torch.save (a zip archive)", "flimcv.convert"}},
                 {BYTES("\x80\2}q\0(X\5\0\0\0epoch"), {"torch.save (a pickle)", "flimcv.convert '" PATH "'"}},
                 {BYTES("\x80\4\x95\0\0\0\0\0\0\0\0}"), {"torch.save (a pickle)", "flimcv.convert"}},
                 {BYTES("\x89HDF\r\n\x1a\n\0\0\0\0"), {"HDF5", "not safetensors"}},
                 {BYTES("version https://git-lfs.github.com/spec/v1\noid"), {"Git LFS", "git lfs pull"}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_weights_info info;
        flim_error err = {0};
        FILE *f = fopen(PATH, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(cases[i].bytes, 1, cases[i].n, f), cases[i].n);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(flim_weights_probe(PATH, false, &info, &err), FLIM_ERROR_DATA);
        for (int k = 0; k < 2; k++) {
            if (!strstr(err.text, cases[i].says[k])) {
                fail_msg("case %zu: '%s' is not in: %s", i, cases[i].says[k], err.text);
            }
        }
    }
    unlink(PATH);
}

static void what_is_not_finite_is_found_before_it_is_written(void **state)
{
    (void)state;
    const flim_network net = build(2);
    float *p = floats(net.parameters, 0.5), *s = floats(net.statistics, 0.5);
    flim_error err = {0};
    assert_int_equal(flim_weights_check_finite(&net, p, s, &err), FLIM_OK);
    for (int i = 0; i < net.n_tensors; i++) {
        const flim_tensor *t = &net.tensor[i];
        float *value = (flim_tensor_is_statistic(t) ? s : p) + t->offset + t->count - 1;
        for (int k = 0; k < 3; k++) {
            *value = k == 0 ? NAN : k == 1 ? INFINITY : -INFINITY;
            assert_int_equal(flim_weights_check_finite(&net, p, s, &err), FLIM_ERROR_DATA);
            assert_non_null(strstr(err.text, t->name));
        }
        *value = 0.5f;
    }
    free(p);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_and_types_are_read_to_the_bit),           cmocka_unit_test(every_half_is_what_its_bits_say),
        cmocka_unit_test(another_number_of_classes_leaves_the_last_layer),  cmocka_unit_test(other_files_are_recognised),
        cmocka_unit_test(what_is_not_finite_is_found_before_it_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

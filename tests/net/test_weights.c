/* Weight files: round trip, PyTorch's layout, and every way a file can be wrong.  Bad files are made by hand from a header
 * text and bytes, so that the reader is not tested by our own writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/temporary_files.h"
#include "formats/json.h"
#include "flim/weights.h"
#include "formats/safetensors.h"

#define PATH "test_weights.safetensors"

static flim_network build(int width, int classes)
{
    flim_network net;
    assert_int_equal(flim_network_build(&net, width, classes, 16, 5, 7, NULL), FLIM_OK);
    return net;
}

/* P + S floats that tell their place, and NaN-filled arrays to read into. */
typedef struct arrays {
    float *parameters, *statistics, *p_back, *s_back;
} arrays;

static float *floats(int64_t count, float first)
{
    float *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = isnan(first) ? first : first + (float)i;
    }
    return values;
}

static arrays make_arrays(const flim_network *net)
{
    return (arrays){floats(net->parameters, -1000), floats(net->statistics, 0.25f), floats(net->parameters, NAN),
                    floats(net->statistics, NAN)};
}

static void free_arrays(arrays *a)
{
    free(a->parameters);
    free(a->statistics);
    free(a->p_back);
    free(a->s_back);
}

static void expect_equal(const flim_network *net, const arrays *a)
{
    assert_memory_equal(a->parameters, a->p_back, (size_t)net->parameters * sizeof(float));
    assert_memory_equal(a->statistics, a->s_back, (size_t)net->statistics * sizeof(float));
}

static void write_bytes(const char *bytes, size_t count) /* without flim_file_write's fsync: many files in a loop */
{
    FILE *f = fopen(PATH, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

/* Writes length + header + data, the length as given (or the header's own where it is 0). */
static void write_raw(const char *header, uint64_t length, const void *data, size_t bytes)
{
    FILE *f = fopen(PATH, "wb");
    assert_non_null(f);
    if (length == 0) {
        length = strlen(header);
    }
    assert_int_equal(fwrite(&length, 1, 8, f), 8);
    fputs(header, f);
    if (bytes) {
        assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    }
    assert_int_equal(fclose(f), 0);
}

static void round_trip(void **state)
{
    (void)state;
    for (int classes = 2; classes <= 3; classes++) {
        flim_network net = build(8, classes);
        arrays a = make_arrays(&net);
        flim_error err = {0};
        char *names[] = {"quiet \"T\" cell", "active", "\xce\xb2"};
        const flim_provenance about = {.classes = classes, .class_name = names};
        assert_int_equal(flim_weights_write(PATH, &net, &about, a.parameters, a.statistics, &err), FLIM_OK);
        assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_OK);
        expect_equal(&net, &a);
        flim_weights_info info;
        assert_int_equal(flim_weights_probe(PATH, false, &info, &err), FLIM_OK);
        assert_true(info.has_metadata && info.width == 8 && info.classes == classes);
        assert_true(info.t == 16 && info.h == 5 && info.w == 7);
        assert_string_equal(info.preprocessing, "log1p(counts)/10, mask");
        assert_false(info.mask_counts);
        flim_provenance back;
        assert_int_equal(flim_provenance_read(PATH, &back, &err), FLIM_OK);
        assert_int_equal(back.classes, classes);
        for (int k = 0; k < classes; k++) {
            assert_string_equal(back.class_name[k], names[k]);
        }
        flim_provenance_free(&back);
        free_arrays(&a);
    }
    unlink(PATH);
}

static void the_bytes_are_the_published_layout(void **state)
{
    (void)state;
    flim_network net = build(8, 2);
    arrays a = make_arrays(&net);
    flim_error err = {0};
    assert_int_equal(flim_weights_write(PATH, &net, NULL, a.parameters, a.statistics, &err), FLIM_OK);
    char *bytes;
    size_t count;
    assert_int_equal(flim_file_read(PATH, 10000000, &bytes, &count, &err), FLIM_OK);
    uint64_t length;
    memcpy(&length, bytes, 8);
    assert_int_equal(length % 8, 0);
    assert_int_equal(count, 8 + length + 4 * (uint64_t)(net.parameters + net.statistics));
    const char *start =
        "{\"__metadata__\": {\"flimcv_format\": \"1\", \"preset\": \"tiny\", \"width\": \"8\", \"T\": \"16\", "
        "\"H\": \"5\", \"W\": \"7\", \"preprocessing\": \"log1p(counts)/10, mask\", \"sha256\": \"";
    const char *after = "\"}, \"stem.conv.weight\": {\"dtype\": \"F32\", \"shape\": [8, 2, 7, 1, 1], \"data_offsets\": [0, "
                        "448]}, \"stem.conv.bias\": ";
    assert_memory_equal(bytes + 8, start, strlen(start));
    assert_memory_equal(bytes + 8 + strlen(start) + 64, after, strlen(after));
    assert_memory_equal(bytes + 8 + length, a.parameters, 448); /* stem.conv.weight comes first */
    flim_json *header;
    assert_int_equal(flim_json_parse(bytes + 8, length, "header", &header, &err), FLIM_OK);
    void *at = NULL;
    const char *key;
    const flim_json *value;
    assert_true(flim_json_next(header, &at, &key, &value));
    for (int i = 0; i < net.n_tensors; i++) { /* state_dict order */
        assert_true(flim_json_next(header, &at, &key, &value));
        assert_string_equal(key, net.tensor[i].name);
    }
    assert_false(flim_json_next(header, &at, &key, &value));
    flim_json_free(header);
    flim_free(bytes);
    free_arrays(&a);
    unlink(PATH);
}

/* A file as PyTorch users make it: no metadata of ours, tensors in reverse order, num_batches_tracked between them.  `mutate`
 * may be NULL: it gets the tensor number and the entry's text and may change that, or empty it to leave the tensor out. */
typedef void mutation(const flim_network *net, int i, char *entry, size_t size);

static void write_foreign(const flim_network *net, const arrays *a, mutation *mutate, const char *metadata, bool statistics)
{
    size_t capacity = 100000, used = 0, bytes = 0;
    char *header = calloc(capacity, 1);
    char *data = calloc((size_t)(net->parameters + net->statistics) + 1000, 4);
    assert_non_null(header);
    assert_non_null(data);
    used += (size_t)snprintf(header, capacity, "{%s", metadata);
    for (int i = net->n_tensors; i-- > 0;) {
        const flim_tensor *t = &net->tensor[i];
        if (!statistics && flim_tensor_is_statistic(t)) {
            continue;
        }
        char entry[512], shape[100] = "";
        for (int d = 0; d < t->ndim; d++) {
            size_t length = strlen(shape);
            snprintf(shape + length, sizeof shape - length, "%s%d", d ? "," : "", t->shape[d]);
        }
        snprintf(entry, sizeof entry, "\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", t->name, shape,
                 bytes, bytes + 4 * (size_t)t->count);
        if (mutate) {
            mutate(net, i, entry, sizeof entry);
        }
        if (entry[0]) {
            const float *from = (flim_tensor_is_statistic(t) ? a->statistics : a->parameters) + t->offset;
            memcpy(data + bytes, from, 4 * (size_t)t->count);
            bytes += 4 * (size_t)t->count;
            used += (size_t)snprintf(header + used, capacity - used, "%s%s", header[used - 1] == '{' ? "" : ",", entry);
        }
        if (t->role == FLIM_TENSOR_RUNNING_MEAN) {
            char name[FLIM_NAME_MAX];
            snprintf(name, sizeof name, "%s", t->name);
            *strrchr(name, '.') = '\0';
            used +=
                (size_t)snprintf(header + used, capacity - used,
                                 ",\"%s.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[%zu,%zu]}",
                                 name, bytes, bytes + 8);
            bytes += 8;
        }
        assert_true(used < capacity - 1000);
    }
    snprintf(header + used, capacity - used, "}");
    write_raw(header, 0, data, bytes);
    free(header);
    free(data);
}

static void a_state_dict_of_pytorch_is_read(void **state)
{
    (void)state;
    flim_network net = build(4, 5);
    arrays a = make_arrays(&net);
    flim_error err = {0};
    for (int with = 0; with < 2; with++) {
        write_foreign(&net, &a, NULL, with ? "\"__metadata__\":{\"format\":\"pt\"}" : "", true);
        if (flim_weights_read(PATH, &net, a.p_back, a.s_back, &err) != FLIM_OK) {
            fail_msg("%s", err.text);
        }
        expect_equal(&net, &a);
        flim_weights_info info;
        assert_int_equal(flim_weights_probe(PATH, false, &info, &err), FLIM_OK);
        assert_true(!info.has_metadata && info.width == 4 && info.classes == 5 && info.t == 0);
        flim_provenance about;
        assert_int_equal(flim_provenance_read(PATH, &about, &err), FLIM_OK);
        assert_int_equal(about.classes, 0);
        flim_provenance_free(&about);
    }
    free_arrays(&a);
    unlink(PATH);
}

static void gradients_have_no_statistics(void **state)
{
    (void)state;
    flim_network net = build(4, 2);
    arrays a = make_arrays(&net);
    flim_error err = {0};
    assert_int_equal(flim_weights_write(PATH, &net, NULL, a.parameters, NULL, &err), FLIM_OK);
    assert_int_equal(flim_weights_read(PATH, &net, a.p_back, NULL, &err), FLIM_OK);
    assert_memory_equal(a.parameters, a.p_back, (size_t)net.parameters * sizeof(float));
    assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "'stem.bn.running_mean' is missing"));
    free_arrays(&a);
    unlink(PATH);
}

static void replace(char *text, size_t size, const char *from, const char *to)
{
    char *at = strstr(text, from);
    assert_non_null(at);
    char tail[512];
    snprintf(tail, sizeof tail, "%s", at + strlen(from));
    snprintf(at, size - (size_t)(at - text), "%s%s", to, tail);
}

static bool is(const flim_network *net, int i, const char *name)
{
    return strcmp(net->tensor[i].name, name) == 0;
}

static void drop_bias(const flim_network *net, int i, char *entry, size_t size)
{
    (void)size;
    if (is(net, i, "res2.skip.conv.bias")) {
        entry[0] = '\0';
    }
}

static void rename_tensor(const flim_network *net, int i, char *entry, size_t size)
{
    if (is(net, i, "head.fc1.bias")) {
        replace(entry, size, "head.fc1.bias", "head.fc3.bias");
    }
}

static void turn_shape(const flim_network *net, int i, char *entry, size_t size)
{
    if (is(net, i, "head.fc1.weight")) {
        replace(entry, size, "[8,16]", "[16,8]");
    }
}

static void flatten_shape(const flim_network *net, int i, char *entry, size_t size)
{
    if (is(net, i, "down.conv.weight")) {
        replace(entry, size, "[4,4,3,1,1]", "[4,4,3]");
    }
}

static void other_dtype(const flim_network *net, int i, char *entry, size_t size)
{
    if (is(net, i, "res1.bn1.weight")) {
        replace(entry, size, "\"F32\"", "\"I32\"");
    }
}

static void half_dtype(const flim_network *net, int i, char *entry, size_t size)
{
    if (is(net, i, "res1.bn1.weight")) {
        replace(entry, size, "\"F32\",\"shape\":[4]", "\"BF16\",\"shape\":[8]");
    }
}

static void unknown_dtype(const flim_network *net, int i, char *entry, size_t size)
{
    if (is(net, i, "res1.bn1.weight")) {
        replace(entry, size, "\"F32\"", "\"F8_E4M3\"");
    }
}

static void size_of_other_dtype(const flim_network *net, int i, char *entry, size_t size)
{
    if (is(net, i, "res1.bn1.weight")) {
        replace(entry, size, "\"F32\"", "\"F64\"");
    }
}

static void wrong_tensors_are_named(void **state)
{
    (void)state;
    static const struct {
        mutation *mutate;
        const char *metadata, *want;
    } cases[] = {
        {drop_bias, "", "tensor 'res2.skip.conv.bias' is missing"},
        {rename_tensor, "", "tensor 'head.fc3.bias' does not belong to this network"},
        {turn_shape, "", "tensor 'head.fc1.weight' has shape (16,8), the network wants (8,16)"},
        {flatten_shape, "", "tensor 'down.conv.weight' has shape (4,4,3), the network wants (4,4,3,1,1)"},
        {other_dtype, "", "tensor 'res1.bn1.weight' is of type I32; F32, F64, F16 and BF16 are read"},
        {half_dtype, "", "tensor 'res1.bn1.weight' has shape (8), the network wants (4)"},
        {unknown_dtype, "", "tensor 'res1.bn1.weight' is of type F8_E4M3; F32, F64, F16 and BF16 are read"},
        {size_of_other_dtype, "", "tensor 'res1.bn1.weight' has 16 bytes, which does not fit its shape (4) of F64"},
        {NULL, "\"__metadata__\":{\"flimcv_format\":\"2\"}", "format version 2, this program reads version 1"},
        {NULL, "\"__metadata__\":{\"flimcv_format\":\"1\",\"T\":\"32\",\"H\":\"5\",\"W\":\"7\"}",
         "32 time bins x 5 x 7 pixels, but the data has 16 x 5 x 7"},
        {NULL, "\"__metadata__\":{\"flimcv_format\":\"1\",\"T\":\"many\"}", "T is 'many', which is not a size"},
        {NULL, "\"__metadata__\":{\"flimcv_format\":\"1\",\"class_names\":\"[\\\"a\\\"]\"}", "a list of 2 names"},
        {NULL, "\"__metadata__\":{\"flimcv_format\":\"1\",\"class_names\":\"[\\\"a\\\",1]\"}", "a list of 2 names"},
        {NULL, "\"__metadata__\":{\"flimcv_format\":\"1\",\"class_names\":\"oops\"}", "class_names:1:"},
        {NULL, "\"__metadata__\":{\"flimcv_format\":\"1\",\"preprocessing\":\"sqrt\"}", "for the preprocessing 'sqrt'"},
        {NULL, "\"__metadata__\":{\"flimcv_format\":1}", "__metadata__: 'flimcv_format' is not a string"},
        {NULL, "\"__metadata__\":[]", "__metadata__ must map strings to strings"},
    };
    flim_network net = build(4, 2);
    arrays a = make_arrays(&net);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_foreign(&net, &a, cases[i].mutate, cases[i].metadata, true);
        flim_error err = {0};
        flim_status status = flim_weights_read(PATH, &net, a.p_back, a.s_back, &err);
        if (status != FLIM_ERROR_DATA || !strstr(err.text, cases[i].want) || !strstr(err.text, PATH)) {
            fail_msg("case %zu: status %d, '%s' should hold '%s'", i, (int)status, err.text, cases[i].want);
        }
    }
    free_arrays(&a);
    unlink(PATH);
}

static void another_network_is_said_as_such(void **state)
{
    (void)state;
    flim_network net = build(8, 2), wide = build(16, 2), three = build(8, 3);
    arrays a = make_arrays(&net), b = make_arrays(&wide);
    flim_error err = {0};
    assert_int_equal(flim_weights_write(PATH, &net, NULL, a.parameters, a.statistics, &err), FLIM_OK);
    assert_int_equal(flim_weights_read(PATH, &wide, b.p_back, b.s_back, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "width 8, but the network has width 16 (preset small)"));
    assert_int_equal(flim_weights_read(PATH, &three, b.p_back, b.s_back, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "2 classes, but the data has 3"));
    free_arrays(&a);
    free_arrays(&b);
    unlink(PATH);
}

static void values_must_be_finite(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        float value;
        const char *want;
    } cases[] = {{"res3.conv2.weight", NAN, "tensor 'res3.conv2.weight': value 1 is "},
                 {"head.fc2.weight", INFINITY, "tensor 'head.fc2.weight': value 1 is inf"},
                 {"down.bn.running_var", -0.5f, "tensor 'down.bn.running_var': value 1 is -0.5, but a variance"},
                 {"down.bn.running_mean", -INFINITY, "tensor 'down.bn.running_mean': value 1 is -inf"}};
    flim_network net = build(4, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        arrays a = make_arrays(&net);
        const flim_tensor *t = flim_network_find(&net, cases[i].tensor);
        (flim_tensor_is_statistic(t) ? a.statistics : a.parameters)[t->offset + 1] = cases[i].value;
        flim_error err = {0};
        assert_int_equal(flim_weights_write(PATH, &net, NULL, a.parameters, a.statistics, &err), FLIM_OK);
        assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_ERROR_DATA);
        if (!strstr(err.text, cases[i].want)) {
            fail_msg("'%s' should hold '%s'", err.text, cases[i].want);
        }
        free_arrays(&a);
    }
    unlink(PATH);
}

static void damaged_containers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        uint64_t length; /* 0 = as it is */
        size_t bytes; /* of data */
        const char *want;
    } cases[] = {
        {"{}", 100, 0, "header says 100 bytes, 2 present"},
        {"{}", UINT64_MAX, 0, "header says 18446744073709551615 bytes"},
        {"{}", 0, 4, "4 bytes of data, but its tensors cover 0"},
        {"[]", 0, 0, "not a JSON object"},
        {"{\"a\":", 0, 0, "not valid JSON"},
        {"{\"a\":1}", 0, 0, "tensor 'a' has no \"dtype\""},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, "tensor 'a' has no \"dtype\""},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 0, 4, "tensor 'a': its \"shape\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 0, 4, "at most 8 numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 0, 4, "dimension 0 of its \"shape\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 0, 4, "dimension 0 of its \"shape\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 0, 4, "dimension 1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, 0,
         "does not fit its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 0, 4, "\"data_offsets\" must be two"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", 0, 4, "\"data_offsets\" must be two"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 0, 4, "lies at bytes -4..0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 0, 4, "lies at bytes 4..0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 0, 4, "truncated"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 0, 8, "begins at byte 4 of the data"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         0, 12, "tensor 'b' begins at byte 4 of the data, the one before it ends at 8"},
        {"{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         0, 12, "tensor 'b' begins at byte 8 of the data, the one before it ends at 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         0, 4, "duplicate object key"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}        ", 0, 0, "no tensor 'stem.conv.weight'"},
    };
    char data[16] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_raw(cases[i].header, cases[i].length, data, cases[i].bytes);
        flim_weights_info info;
        flim_error err = {0};
        flim_status status = flim_weights_probe(PATH, false, &info, &err);
        if (status != FLIM_ERROR_DATA || !strstr(err.text, cases[i].want) || !strstr(err.text, PATH)) {
            fail_msg("case %zu: status %d, '%s' should hold '%s'", i, (int)status, err.text, cases[i].want);
        }
    }
    flim_weights_info info;
    flim_error err = {0};
    assert_int_equal(flim_weights_probe("/no/such/file", false, &info, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "cannot read /no/such/file: No such file"));
    assert_int_equal(flim_weights_probe("/tmp", false, &info, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "it is a folder, expected a .safetensors file"));
    unlink(PATH);
}

/* One flipped bit anywhere in the data is seen, if not by its value then by the hash. */
static void a_flipped_bit_is_seen(void **state)
{
    (void)state;
    flim_network net = build(4, 2);
    arrays a = make_arrays(&net);
    flim_error err = {0};
    assert_int_equal(flim_weights_write(PATH, &net, NULL, a.parameters, a.statistics, &err), FLIM_OK);
    char *bytes;
    size_t count;
    assert_int_equal(flim_file_read(PATH, 10000000, &bytes, &count, &err), FLIM_OK);
    uint64_t length;
    memcpy(&length, bytes, 8);
    const size_t places[] = {8 + length, 8 + length + 5000, count - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        bytes[places[i]] = (char)(bytes[places[i]] ^ 1);
        write_bytes(bytes, count);
        assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_ERROR_DATA);
        assert_non_null(strstr(err.text, "damaged: the data's SHA-256 is "));
        bytes[places[i]] = (char)(bytes[places[i]] ^ 1);
    }
    write_bytes(bytes, count);
    assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_OK);
    flim_free(bytes);
    free_arrays(&a);
    unlink(PATH);
}

/* A disk that is full, or a quota: the error is seen, the old file stays as it was, nothing else is left behind. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    flim_network net = build(4, 2);
    arrays a = make_arrays(&net);
    flim_error err = {0};
    assert_int_equal(flim_weights_write(PATH, &net, NULL, a.parameters, a.statistics, &err), FLIM_OK);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    const rlim_t sizes[] = {0, 1000, 20000, 40000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        small = (struct rlimit){sizes[i], before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        a.parameters[0] = 12345;
        flim_status status = flim_weights_write(PATH, &net, NULL, a.parameters, a.statistics, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, FLIM_ERROR_WRITE);
        assert_non_null(strstr(err.text, "cannot write " PATH ": File too large"));
        assert_int_equal(temporary_files_of(PATH), 0);
    }
    signal(SIGXFSZ, handler);
    assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_OK);
    assert_true(a.p_back[0] == -1000);
    free_arrays(&a);
    unlink(PATH);
}

/* Cut anywhere, a file is refused, and no single flipped byte of the header crashes the reader (run under the sanitizers). */
static void cut_and_garbled_files(void **state)
{
    (void)state;
    flim_network net = build(4, 2);
    arrays a = make_arrays(&net);
    flim_error err = {0};
    assert_int_equal(flim_weights_write(PATH, &net, NULL, a.parameters, a.statistics, &err), FLIM_OK);
    char *bytes;
    size_t count, refused = 0, tried = 0;
    assert_int_equal(flim_file_read(PATH, 10000000, &bytes, &count, &err), FLIM_OK);
    uint64_t length;
    memcpy(&length, bytes, 8);
    for (size_t cut = 0; cut < count; cut += cut < 8 ? 1 : count / 40) {
        write_bytes(bytes, cut);
        assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_ERROR_DATA);
    }
    for (size_t at = 0; at < 8 + length; at += 29) {
        bytes[at] = (char)(bytes[at] ^ (1 << at % 7));
        write_bytes(bytes, count);
        refused += flim_weights_read(PATH, &net, a.p_back, a.s_back, &err) == FLIM_ERROR_DATA;
        tried++;
        bytes[at] = (char)(bytes[at] ^ (1 << at % 7));
    }
    assert_true(refused > tried * 8 / 10); /* a changed word of the metadata or blank may pass */
    flim_free(bytes);
    free_arrays(&a);
    unlink(PATH);
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    flim_network net = build(4, 2);
    arrays a = make_arrays(&net);
    char *names[] = {"a", "b"};
    uint64_t cells[] = {7, 9};
    const flim_provenance about = {.is_known = true,
                                   .classes = 2,
                                   .class_name = names,
                                   .recipe = names[0],
                                   .cells_are_known = true,
                                   .train = {cells, 2},
                                   .val = {cells, 1}};
    flim_error err = {0};
    assert_int_equal(flim_weights_write(PATH, &net, &about, a.parameters, a.statistics, &err), FLIM_OK);
    flim_alloc_fail_at(0);
    assert_int_equal(flim_weights_write(PATH, &net, &about, a.parameters, a.statistics, &err), FLIM_OK);
    long writes = flim_alloc_fail_at(0);
    assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_OK);
    long reads = flim_alloc_fail_at(0);
    assert_true(writes > 10 && reads >= 4);
    for (long n = 1; n <= reads; n++) {
        flim_alloc_fail_at(n);
        assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_ERROR_MEMORY);
    }
    for (long n = 1; n <= writes; n++) {
        flim_alloc_fail_at(n);
        assert_int_equal(flim_weights_write(PATH, &net, &about, a.parameters, a.statistics, &err), FLIM_ERROR_MEMORY);
    }
    flim_alloc_fail_at(0);
    assert_int_equal(flim_weights_read(PATH, &net, a.p_back, a.s_back, &err), FLIM_OK); /* the old file is whole */
    assert_int_equal(flim_weights_write("/proc/no/x.safetensors", &net, &about, a.parameters, a.statistics, &err),
                     FLIM_ERROR_WRITE);
    free_arrays(&a);
    unlink(PATH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(the_bytes_are_the_published_layout),
        cmocka_unit_test(a_state_dict_of_pytorch_is_read),
        cmocka_unit_test(gradients_have_no_statistics),
        cmocka_unit_test(wrong_tensors_are_named),
        cmocka_unit_test(another_network_is_said_as_such),
        cmocka_unit_test(values_must_be_finite),
        cmocka_unit_test(damaged_containers_are_refused),
        cmocka_unit_test(a_flipped_bit_is_seen),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(cut_and_garbled_files),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The provenance of weights: through a file and back, what a damaged one is told, and what fits together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/text.h"
#include "flim/dataset.h"
#include "flim/weights.h"

#define PATH "test_provenance.safetensors"

static char *names[] = {"quiet", "active"}, *donors[] = {"D1", "D\u00e9"}, *files[] = {"cells \"a\".h5"};
static uint64_t train[] = {1, 5, 0x8000000000000000u, UINT64_MAX}, val[] = {7}, inherited[] = {5, 9};

static flim_provenance example(void)
{
    return (flim_provenance){.is_known = true,
                             .program = "flimcv 9.9",
                             .fold = 3,
                             .folds = 5,
                             .splits_sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                             .seed = UINT64_MAX,
                             .classes = 2,
                             .class_name = names,
                             .t = 16,
                             .h = 5,
                             .w = 7,
                             .time_range_ns = 12.5,
                             .mask = FLIM_MASK_ORIGIN_FILE,
                             .mask_counts = true,
                             .preprocessing = "log1p(counts inside mask)/10, mask",
                             .recipe = "lr 1, \"quoted\"\nand more",
                             .cells_are_known = true,
                             .train = {train, 4},
                             .val = {val, 1},
                             .inherited = {inherited, 2},
                             .inherited_is_known = true};
}

static void same_set(const flim_cell_set *a, const flim_cell_set *b)
{
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        assert_true(a->hash[i] == b->hash[i]);
    }
}

static void same(const flim_provenance *a, const flim_provenance *b)
{
    assert_true(a->is_known == b->is_known && a->fold == b->fold && a->folds == b->folds && a->seed == b->seed);
    assert_string_equal(a->program, b->program);
    assert_string_equal(a->splits_sha256, b->splits_sha256);
    assert_int_equal(a->classes, b->classes);
    for (int k = 0; k < a->classes; k++) {
        assert_string_equal(a->class_name[k], b->class_name[k]);
    }
    assert_true(a->t == b->t && a->h == b->h && a->w == b->w && a->time_range_ns == b->time_range_ns);
    assert_true(a->mask == b->mask && a->mask_counts == b->mask_counts);
    assert_string_equal(a->preprocessing, b->preprocessing);
    assert_string_equal(a->recipe, b->recipe);
    assert_true(a->pretraining == b->pretraining && a->donors == b->donors && a->files == b->files);
    for (int i = 0; i < a->donors; i++) {
        assert_string_equal(a->donor[i], b->donor[i]);
    }
    for (int i = 0; i < a->files; i++) {
        assert_string_equal(a->file[i], b->file[i]);
    }
    assert_true(a->cells_are_known == b->cells_are_known && a->inherited_is_known == b->inherited_is_known);
    same_set(&a->train, &b->train);
    same_set(&a->val, &b->val);
    same_set(&a->inherited, &b->inherited);
}

/* Writes weights with that provenance. */
static void write_weights(const flim_provenance *about)
{
    flim_network net;
    flim_error err = {0};
    assert_int_equal(flim_network_build(&net, 4, 2, 16, 5, 7, NULL), FLIM_OK);
    float *parameters = calloc((size_t)net.parameters, sizeof(float));
    float *statistics = calloc((size_t)net.statistics, sizeof(float));
    assert_true(parameters && statistics);
    if (flim_weights_write(PATH, &net, about, parameters, statistics, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    free(parameters);
    free(statistics);
}

static void a_file_gives_it_back(void **state)
{
    (void)state;
    flim_provenance variant[5] = {example(), example(), example(), example(), example()}, got;
    variant[1].time_range_ns = 0; /* what is not known */
    variant[1].mask = FLIM_MASK_ORIGIN_COUNTS;
    variant[1].mask_counts = variant[1].inherited_is_known = false;
    variant[1].train.n = variant[1].inherited.n = 0;
    snprintf(variant[1].preprocessing, sizeof variant[1].preprocessing, "%s", flim_preprocessing_name(false));
    variant[2].cells_are_known = variant[2].inherited_is_known = false;
    variant[2].train.n = variant[2].val.n = variant[2].inherited.n = 0;
    variant[3].fold = -1;
    variant[3].folds = 0;
    variant[3].splits_sha256[0] = '\0';
    variant[4].pretraining = true;
    variant[4].donor = donors;
    variant[4].donors = 2;
    variant[4].file = files;
    variant[4].files = 1;
    for (int i = 0; i < 5; i++) {
        flim_error err = {0};
        write_weights(&variant[i]);
        if (flim_provenance_read(PATH, &got, &err) != FLIM_OK) {
            fail_msg("variant %d: %s", i, err.text);
        }
        same(&variant[i], &got);
        flim_provenance_free(&got);
    }
    unlink(PATH);
}

static void a_file_without_one_says_what_its_other_keys_do(void **state)
{
    (void)state;
    flim_provenance about = example(), got;
    flim_error err = {0};
    about.is_known = false;
    write_weights(&about);
    assert_int_equal(flim_provenance_read(PATH, &got, &err), FLIM_OK);
    assert_true(!got.is_known && !got.cells_are_known && got.fold == -1 && got.classes == 2 && got.t == 16 && got.w == 7);
    assert_string_equal(got.class_name[1], "active");
    assert_true(got.mask_counts && got.mask == FLIM_MASK_ORIGIN_UNKNOWN);
    flim_provenance_free(&got);
    write_weights(NULL);
    assert_int_equal(flim_provenance_read(PATH, &got, &err), FLIM_OK);
    assert_true(!got.is_known && got.classes == 0);
    flim_provenance_free(&got);
    unlink(PATH);
    assert_int_equal(flim_provenance_read(PATH, &got, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, PATH));
}

/* Every key missing or of another kind is an error that names file and key; so is any cut. */
static void a_damaged_text_is_an_error_that_names_the_key(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {{"\"format\": 1", "\"format\": 2", "'format'"},
                 {"\"program\": \"flimcv 9.9\"", "\"program\": 9", "'program'"},
                 {"flimcv 9.9", "flimcv 9.9 and a version text that is too long for it", "'program'"},
                 {"\"fold\": 3", "\"fold\": -2", "'fold'"},
                 {"\"fold\": 3", "\"fold\": 3.5", "'fold'"},
                 {"\"folds\": 5", "\"folds\": 99999999", "'folds'"},
                 {"\"splits_sha256\"", "\"splits\"", "'splits_sha256'"},
                 {"18446744073709551615", "18446744073709551616", "'seed'"},
                 {"[\"quiet\", \"active\"]", "[\"quiet\", 3]", "'classes'"},
                 {"[\"quiet\", \"active\"]", "{}", "'classes'"},
                 {"[16, 5, 7]", "[16, 5]", "'shape'"},
                 {"[16, 5, 7]", "[16, 5, -7]", "'shape'"},
                 {"12.5", "-12.5", "'time_range_ns'"},
                 {"12.5", "1e300", "'time_range_ns'"},
                 {"12.5", "\"12.5\"", "'time_range_ns'"},
                 {"\"mask\": \"file\"", "\"mask\": \"moon\"", "'mask'"},
                 {"\"mask_counts\": true", "\"mask_counts\": 1", "'mask_counts'"},
                 {"\"recipe\"", "\"recipes\"", "'recipe'"},
                 {"\"val\": \"BwAAAAAAAAA=\"", "\"val\": \"BwAAAAAAAA==\"", "'val'"}, /* 7 bytes */
                 {"\"val\": \"BwAAAAAAAAA=\"", "\"val\": \"BwAAAAAAAAA\"", "'val'"},
                 {"\"val\": \"BwAAAAAAAAA=\"", "\"val\": \"BwAA!AAAAAA=\"", "'val'"},
                 {"\"val\": \"BwAAAAAAAAA=\"", "\"val\": \"AAAAAAAAAAA=\"", "'val'"}, /* hash 0 */
                 {"\"val\": \"BwAAAAAAAAA=\"", "\"val\": null", "val"},
                 {"\"val\": \"BwAAAAAAAAA=\"", "\"val\": \"BwAAAAAAAAAHAAAAAAAAAA==\"", "'val'"}, /* twice */
                 {"\"inherited_is_known\": true", "\"inherited_is_known\": null", "'inherited_is_known'"}};
    const flim_provenance about = example();
    char *text = flim_provenance_text(&about, NULL);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *at = strstr(text, cases[i].from);
        flim_provenance got;
        flim_error err = {0};
        if (!at) {
            fail_msg("'%s' is not in %s", cases[i].from, text);
        }
        char *changed = flim_strprintf(NULL, "%.*s%s%s", (int)(at - text), text, cases[i].to, at + strlen(cases[i].from));
        assert_non_null(changed);
        if (flim_provenance_parse(changed, "w.safetensors", &got, &err) != FLIM_ERROR_DATA || got.classes || got.recipe) {
            fail_msg("'%s' is taken", cases[i].to);
        }
        if (!strstr(err.text, cases[i].says) || !strstr(err.text, "w.safetensors")) {
            fail_msg("'%s': %s", cases[i].to, err.text);
        }
        flim_free(changed);
    }
    for (size_t length = 0; length < strlen(text); length++) {
        flim_provenance got;
        char *cut = flim_strprintf(NULL, "%.*s", (int)length, text);
        assert_int_equal(flim_provenance_parse(cut, "w", &got, NULL), FLIM_ERROR_DATA);
        flim_free(cut);
    }
    flim_free(text);
}

static void sets_are_sorted_and_know_their_cells(void **state)
{
    (void)state;
    const uint64_t hash[] = {9, 0, 3, 9, UINT64_MAX, 3, 4};
    const int64_t cells[] = {0, 1, 3, 5};
    flim_cell_set all, some, joined, none = {0};
    assert_int_equal(flim_cell_set_make(hash, NULL, 7, &all, NULL), FLIM_OK);
    assert_int_equal(all.n, 4);
    assert_true(all.hash[0] == 3 && all.hash[1] == 4 && all.hash[2] == 9 && all.hash[3] == UINT64_MAX);
    assert_int_equal(flim_cell_set_make(hash, cells, 4, &some, NULL), FLIM_OK);
    assert_int_equal(some.n, 2);
    assert_true(flim_cell_set_holds(&some, 9) && !flim_cell_set_holds(&some, 4) && !flim_cell_set_holds(&some, 0));
    assert_false(flim_cell_set_holds(&none, 9));
    joined = none;
    assert_int_equal(flim_cell_set_join(&joined, &none, NULL), FLIM_OK);
    assert_int_equal(joined.n, 0);
    assert_int_equal(flim_cell_set_join(&joined, &some, NULL), FLIM_OK);
    same_set(&joined, &some);
    assert_int_equal(flim_cell_set_join(&joined, &all, NULL), FLIM_OK);
    same_set(&joined, &all);
    assert_int_equal(flim_cell_set_join(&joined, &some, NULL), FLIM_OK);
    same_set(&joined, &all);
    flim_cell_set_free(&all);
    flim_cell_set_free(&some);
    flim_cell_set_free(&joined);
}

static void base64_is_read_back(void **state)
{
    (void)state;
    unsigned char bytes[64];
    for (size_t n = 0; n < sizeof bytes; n++) {
        unsigned char *back;
        size_t count = 99;
        bytes[n] = (unsigned char)(n * 37 + 200);
        char *text = flim_base64(bytes, n, NULL);
        assert_int_equal(flim_base64_decode(text, &back, &count, NULL), FLIM_OK);
        assert_int_equal(count, n);
        assert_memory_equal(back, bytes, n);
        flim_free(back);
        flim_free(text);
    }
    static const char *const wrong[] = {"A", "AA", "AAA", "A===", "=AAA", "AA=A", "AA A", "AAAA=", "====", "A-_A"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        unsigned char *back;
        size_t count;
        if (flim_base64_decode(wrong[i], &back, &count, NULL) != FLIM_ERROR_DATA) {
            fail_msg("'%s' is taken", wrong[i]);
        }
    }
}

static void weights_in_another_place_are_refused_with_both(void **state)
{
    (void)state;
    flim_provenance p = example();
    flim_error err = {0};
    char other[65];
    assert_int_equal(flim_provenance_check_place(&p, "w", 3, p.splits_sha256, &err), FLIM_OK);
    assert_int_equal(flim_provenance_check_place(&p, "w", 3, "", &err), FLIM_OK);
    assert_int_equal(flim_provenance_check_place(&p, "w", 1, p.splits_sha256, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "fold 3"));
    assert_non_null(strstr(err.text, "fold 1"));
    memset(other, 'e', 64);
    other[64] = '\0';
    assert_int_equal(flim_provenance_check_place(&p, "w", 3, other, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "0123456789abcdef"));
    assert_non_null(strstr(err.text, "eeeeeeeeeeeeeeee"));
    p.fold = -1; /* a final model has seen every test cell */
    assert_int_equal(flim_provenance_check_place(&p, "w", 3, p.splits_sha256, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "weights of no fold"));
    p.is_known = false; /* older weights say nothing */
    assert_int_equal(flim_provenance_check_place(&p, "w", 1, other, &err), FLIM_OK);
}

static void what_differs_is_not_averaged(void **state)
{
    (void)state;
    char *turned[] = {names[1], names[0]}, *three[] = {names[0], names[1], names[0]};
    flim_provenance base = example(), changed[7];
    static const char *const says[] = {"class 0 is 'quiet'", "2 classes",       "16 x 5 x 7", "12.5",
                                       "masks from the",     "different inputs"};
    flim_error err = {0};
    for (int i = 0; i < 7; i++) {
        changed[i] = example();
    }
    changed[0].class_name = turned;
    changed[1].class_name = three;
    changed[1].classes = 3;
    changed[2].h = 6;
    changed[3].time_range_ns = 25;
    changed[4].mask = FLIM_MASK_ORIGIN_COUNTS;
    changed[5].preprocessing[0] = 'x';
    changed[6] = (flim_provenance){0}; /* one that says nothing goes with all */
    for (int i = 0; i < 7; i++) {
        const flim_status status = flim_provenance_check_alike(&base, "one", &changed[i], "two", &err);
        assert_int_equal(status, i < 6 ? FLIM_ERROR_DATA : FLIM_OK);
        if (i < 6 && !(strstr(err.text, says[i]) && strstr(err.text, "one") && strstr(err.text, "two"))) {
            fail_msg("change %d: %s", i, err.text);
        }
    }
    changed[3].time_range_ns = 12.5 * (1 + 1e-7); /* as float32 rounds */
    assert_int_equal(flim_provenance_check_alike(&base, "one", &changed[3], "two", &err), FLIM_OK);
    assert_int_equal(flim_provenance_check_alike(&base, "one", &base, "two", &err), FLIM_OK);
}

/* An encoder takes any number of bins: what must be the same is their width, not their range. */
static void bins_are_compared_by_their_width(void **state)
{
    (void)state;
    const char *const path[] = {"d.h5"};
    const flim_provenance p = example(); /* 16 bins of 12.5 ns */
    static const struct {
        int t;
        double range_ns;
        bool fits;
        const char *says;
    } data[] = {{16, 12.5, true, NULL},
                {8, 6.25, true, NULL},
                {32, 25, true, NULL},
                {32, 12.5, false, "32 bins of 0.3906 ns"},
                {8, 12.5, false, "8 bins of 1.562 ns"},
                {32, 0, true, NULL},
                {8, 6.25 * (1 + 1e-7), true, NULL},
                {8, 6.3, false, "16 bins of 0.7812 ns"}};
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++) {
        const flim_dataset_info info = {
            .path = path, .n = 3, .t = data[i].t, .h = 5, .w = 7, .time_range_ns = data[i].range_ns};
        flim_error err = {0};
        const flim_status status = flim_provenance_check_bin_width(&p, "w", &info, &err);
        if (status != (data[i].fits ? FLIM_OK : FLIM_ERROR_DATA) || (data[i].says && !strstr(err.text, data[i].says))) {
            fail_msg("%d bins of %g ns: %s", data[i].t, data[i].range_ns, err.text);
        }
    }
}

static void data_of_another_bin_width_or_mask_is_refused(void **state)
{
    (void)state;
    const char *const path[] = {"d.h5"};
    flim_provenance p = example();
    flim_dataset_info info = {.path = path, .n = 3, .t = 16, .h = 5, .w = 7, .time_range_ns = 12.5, .has_mask = true};
    flim_error err = {0};
    assert_int_equal(flim_provenance_check_bin_width(&p, "w", &info, &err), FLIM_OK);
    info.time_range_ns = 0; /* not known is not another */
    assert_int_equal(flim_provenance_check_bin_width(&p, "w", &info, &err), FLIM_OK);
    info.time_range_ns = 25;
    assert_int_equal(flim_provenance_check_bin_width(&p, "w", &info, &err), FLIM_ERROR_DATA);
    assert_true(strstr(err.text, "25") && strstr(err.text, "12.5") && strstr(err.text, "d.h5"));
    assert_int_equal(flim_provenance_check_mask(&p, "w", &info, &err), FLIM_OK);
    info.has_mask = false;
    assert_int_equal(flim_provenance_check_mask(&p, "w", &info, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "d.h5 has no /mask"));
    p.mask = FLIM_MASK_ORIGIN_COUNTS;
    assert_int_equal(flim_provenance_check_mask(&p, "w", &info, &err), FLIM_OK);
    info.has_mask = true;
    assert_int_equal(flim_provenance_check_mask(&p, "w", &info, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "leave /mask out"));
    p.mask = FLIM_MASK_ORIGIN_UNKNOWN;
    assert_int_equal(flim_provenance_check_mask(&p, "w", &info, &err), FLIM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_gives_it_back),
        cmocka_unit_test(a_file_without_one_says_what_its_other_keys_do),
        cmocka_unit_test(a_damaged_text_is_an_error_that_names_the_key),
        cmocka_unit_test(sets_are_sorted_and_know_their_cells),
        cmocka_unit_test(base64_is_read_back),
        cmocka_unit_test(weights_in_another_place_are_refused_with_both),
        cmocka_unit_test(what_differs_is_not_averaged),
        cmocka_unit_test(bins_are_compared_by_their_width),
        cmocka_unit_test(data_of_another_bin_width_or_mask_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

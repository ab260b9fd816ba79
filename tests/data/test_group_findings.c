/* What is said of groups and classes: missing groups, names that look alike, groups of one cell or class. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "data/findings.h"

enum { N = 12 };

/* 12 cells, cell i of class i % 2 and of the group named `of[i]`; names in any order. */
static flim_findings findings_of(const char *const of[N], bool by_group)
{
    static const char *const classes[] = {"a", "b"};
    const char *name[N];
    int64_t group[N];
    int32_t label[N];
    int64_t groups = 0;
    for (int i = 0; i < N; i++) {
        int64_t g = 0;
        for (; g < groups && strcmp(name[g], of[i]) != 0; g++) {
        }
        name[g] = of[i];
        groups += g == groups;
        group[i] = g;
        label[i] = i / 2 % 2;
    }
    const flim_dataset_info info = {
        .n = N, .classes = 2, .class_name = classes, .label = label, .groups = groups, .group_name = name, .group = group};
    flim_findings found = {0};
    flim_error err = {0};
    assert_int_equal(flim_find_in_groups(&info, by_group, &found, &err), FLIM_OK);
    return found;
}

static const flim_finding *of_kind(const flim_findings *found, flim_finding_kind kind)
{
    for (int i = 0; i < found->n; i++) {
        if (found->item[i].kind == kind) {
            return &found->item[i];
        }
    }
    return NULL;
}

/* Cells 3 and 7 have the group `name`, the others are of donors D1 and D2 (or 1 and 2). */
static void among_others(const char *name, bool numbers, flim_finding_kind kind, bool expected)
{
    const char *a = numbers ? "1" : "D1", *b = numbers ? "2" : "D2";
    const char *const of[N] = {a, b, a, name, b, a, b, name, a, b, a, b};
    flim_findings found = findings_of(of, true);
    const flim_finding *it = of_kind(&found, kind);
    if ((it != NULL) != expected) {
        fail_msg("group '%s' among '%s' and '%s': %s %s", name, a, b, flim_finding_name(kind),
                 expected ? "was expected" : "was not expected");
    }
    if (it) {
        assert_int_equal(it->cells.count, 2);
        assert_int_equal(it->cells.cell[0], 3);
        assert_int_equal(it->cells.cell[1], 7);
        assert_int_equal(it->severity, kind == FLIM_FINDING_GROUP_MISSING ? FLIM_FINDING_ERROR : FLIM_FINDING_WARNING);
    }
    flim_findings_free(&found);
}

static void missing_donors(void **state)
{
    (void)state;
    static const char *const missing[] = {"", " ", "\t", "\xef\xbb\xbf", "\xc2\xa0\xe2\x80\x8b", "''", "b''"};
    static const char *const fills[] = {"-9223372036854775808", "-9223372036854775806", "-2147483648",
                                        "-2147483647",          "4294967295",           "-32767"};
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        among_others(missing[i], false, FLIM_FINDING_GROUP_MISSING, true);
        among_others(missing[i], false, FLIM_FINDING_GROUP_DOUBTFUL, false);
        among_others(missing[i], false, FLIM_FINDING_GROUPS_ALIKE, false);
    }
    for (size_t i = 0; i < sizeof fills / sizeof fills[0]; i++) {
        among_others(fills[i], true, FLIM_FINDING_GROUP_MISSING, true);
    }
    among_others("-2147483647", false, FLIM_FINDING_GROUP_MISSING, true); /* as a text, too */
}

static void doubtful_donors(void **state)
{
    (void)state;
    static const char *const words[] = {"nan", "NaN", "NA",  "N/A", "None", "null", "<NA>",    "unknown",
                                        "?",   " ? ", "NaT", "nil", "-",    "TBD",  "Missing", "n.a."};
    static const char *const codes[] = {"-1", "-99", "-999", "-9999", "2147483647", "9223372036854775807", "65535", "255"};
    static const char *const names[] = {"Nan Li", "NA12878", "D?", "null-7", "none1", "-x", "Unknown Soldier", "A"};
    static const char *const numbers[] = {"0", "3", "254", "-3", "65534", "1000000"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        among_others(words[i], false, FLIM_FINDING_GROUP_DOUBTFUL, true);
        among_others(words[i], false, FLIM_FINDING_GROUP_MISSING, false);
    }
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        among_others(codes[i], true, FLIM_FINDING_GROUP_DOUBTFUL, true);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        among_others(names[i], false, FLIM_FINDING_GROUP_DOUBTFUL, false);
        among_others(names[i], false, FLIM_FINDING_GROUP_MISSING, false);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        among_others(numbers[i], true, FLIM_FINDING_GROUP_DOUBTFUL, false);
        among_others(numbers[i], true, FLIM_FINDING_GROUP_MISSING, false);
    }
    /* numbers that are codes only if the others do not say otherwise */
    static const char *const signed_numbers[N] = {"-1", "-2", "-3", "-1", "-2", "-3", "-1", "-2", "-3", "1", "2", "3"};
    static const char *const many[N] = {"253", "254", "255", "253", "254", "255", "253", "254", "255", "253", "254", "255"};
    flim_findings a = findings_of(signed_numbers, true), b = findings_of(many, true);
    assert_null(of_kind(&a, FLIM_FINDING_GROUP_DOUBTFUL));
    assert_null(of_kind(&b, FLIM_FINDING_GROUP_DOUBTFUL));
    flim_findings_free(&a);
    flim_findings_free(&b);
}

static void missing_is_a_warning_without_groups_to_keep_whole(void **state)
{
    (void)state;
    static const char *const of[N] = {"A", "", "B", "A", "", "B", "A", "", "B", "A", "", "B"};
    flim_findings found = findings_of(of, false);
    const flim_finding *it = of_kind(&found, FLIM_FINDING_GROUP_MISSING);
    assert_non_null(it);
    assert_int_equal(it->severity, FLIM_FINDING_WARNING);
    assert_null(flim_findings_refusal(&found));
    flim_findings_free(&found);
    found = findings_of(of, true);
    it = flim_findings_refusal(&found);
    assert_non_null(it);
    assert_non_null(strstr(it->text, "4 of 12 cells have no group"));
    assert_non_null(strstr(it->text, "cell 1 first"));
    flim_findings_free(&found);
}

static void names_that_look_alike(void **state)
{
    (void)state;
    static const char *const of[N] = {"D1",
                                      "D2",
                                      "\xef\xbb\xbf"
                                      "D1",
                                      "D2",
                                      "D1",
                                      "D2",
                                      "D1",
                                      "D2",
                                      "\xef\xbb\xbf"
                                      "D1",
                                      "D02",
                                      "D10",
                                      "D20"};
    flim_findings found = findings_of(of, true);
    const flim_finding *it = of_kind(&found, FLIM_FINDING_GROUPS_ALIKE);
    assert_non_null(it);
    assert_int_equal(it->severity, FLIM_FINDING_WARNING);
    assert_int_equal(it->cells.count, 3);
    assert_int_equal(it->cells.cell[0], 2);
    assert_int_equal(it->cells.cell[2], 9);
    assert_non_null(strstr(it->text, "'D1' and '\\ufeffD1' differ only by invisible characters"));
    assert_non_null(strstr(it->text, "'D2' and 'D02' differ only by leading zeros"));
    assert_null(strstr(it->text, "D10"));
    flim_findings_free(&found);
}

/* What is said of these names, cell i being of class i % classes: `words`, of so many cells; NULL = nothing. */
static void classes_of(const char *const *name, int classes, bool labels, const char *words, int64_t cells)
{
    int32_t label[N];
    flim_findings found = {0};
    flim_error err = {0};
    for (int i = 0; i < N; i++) {
        label[i] = i % classes;
    }
    label[N - 1] = -1; /* a cell of no class */
    const flim_dataset_info info = {.n = N, .classes = classes, .class_name = name, .label = labels ? label : NULL};
    assert_int_equal(flim_find_in_classes(&info, &found, &err), FLIM_OK);
    const flim_finding *it = of_kind(&found, FLIM_FINDING_CLASSES_ALIKE);
    if (words ? !it || !strstr(it->text, words) : it != NULL) {
        fail_msg("'%s' and others: '%s', expected '%s'", name[0], it ? it->text : "nothing", words ? words : "nothing");
    }
    if (it) {
        assert_int_equal(found.n, 1);
        assert_int_equal(it->severity, FLIM_FINDING_WARNING);
        assert_int_equal(it->cells.count, cells);
        assert_true(cells == 0 || it->cells.cell[0] == 1);
    }
    flim_findings_free(&found);
}

static void classes_that_look_alike(void **state)
{
    (void)state;
    static const char *const case_only[] = {"act", "Act"}, *const blank[] = {"act", "act ", "rest"};
    static const char *const hidden[] = {"act", "\xe2\x80\x8b"
                                                "act"};
    static const char *const apart[] = {"act", "inact"}, *const numbers[] = {"0", "1", "10", "-1"};
    static const char *const many[] = {"a", "A", "b", "B", "c", "C", "d", "D", "e", "E"};
    classes_of(case_only, 2, true,
               "classes 'act' and 'Act' differ only by case: they are treated as different; are they one class?", 5);
    classes_of(case_only, 2, false, "classes 'act' and 'Act' differ only by case", 0);
    classes_of(blank, 3, true, "classes 'act' and 'act ' differ only by blanks: ", 4);
    classes_of(hidden, 2, true, "classes 'act' and '\\u200bact' differ only by invisible characters: ", 5);
    classes_of(apart, 2, true, NULL, 0);
    classes_of(numbers, 4, true, NULL, 0);
    classes_of(many, 10, true, "; and 1 more: they are treated as different", 5);
    flim_findings found = {0};
    flim_error err = {0};
    assert_int_equal(flim_find_in_classes(&(flim_dataset_info){.n = N}, &found, &err), FLIM_OK); /* no classes at all */
    assert_int_equal(found.n, 0);
}

static void sizes_of_groups(void **state)
{
    (void)state;
    static const char *const own[N] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};
    static const char *const one[N] = {"a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a"};
    static const char *const by_class[N] = {"a", "a", "b", "b", "a", "a", "b", "b", "c", "c", "b", "b"};
    static const char *const good[N] = {"a", "a", "a", "b", "a", "a", "b", "b", "b", "b", "a", "c"};
    flim_findings found = findings_of(own, true);
    assert_non_null(of_kind(&found, FLIM_FINDING_GROUPS_OF_ONE_CELL));
    assert_int_equal(found.n, 1);
    assert_int_equal(found.item[0].cells.count, N);
    flim_findings_free(&found);
    found = findings_of(one, true);
    assert_non_null(of_kind(&found, FLIM_FINDING_ONE_GROUP));
    assert_int_equal(found.n, 1);
    flim_findings_free(&found);
    found = findings_of(by_class, true);
    assert_non_null(of_kind(&found, FLIM_FINDING_GROUPS_OF_ONE_CLASS));
    assert_int_equal(found.n, 1);
    flim_findings_free(&found);
    found = findings_of(good, true);
    assert_int_equal(found.n, 0);
    flim_findings_free(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(missing_donors),
                                       cmocka_unit_test(doubtful_donors),
                                       cmocka_unit_test(missing_is_a_warning_without_groups_to_keep_whole),
                                       cmocka_unit_test(names_that_look_alike),
                                       cmocka_unit_test(classes_that_look_alike),
                                       cmocka_unit_test(sizes_of_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* predictions.csv: bits of the logits survive, odd names are quoted, broken files are named by line. */
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

#include "core/alloc.h"
#include "core/file.h"
#include "flim/predictions.h"
#include "flim/random.h"

static char path[] = "/tmp/flim_predictions_XXXXXX";

static int set_up(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void round_trip(int classes)
{
    static const char *const names[] = {"", "plain", "with,comma", "with \"quotes\"", "two\nlines", "Zürich µ", " blanks "};
    enum { N = 1000 };
    flim_predictions p, got;
    flim_error err = {0};
    const flim_cell_id id = {.seed = 5};
    flim_random random = flim_random_begin(&id, FLIM_RANDOM_SIMULATE);
    assert_int_equal(flim_predictions_create(N, classes, &p, NULL), FLIM_OK);
    for (int i = 0; i < N; i++) {
        p.index[i] = 3 * i;
        p.name[i] = flim_strdup(names[i % 7], NULL);
        p.group[i] = flim_strdup(names[(i + 3) % 7], NULL);
        p.label[i] = i % 5 == 4 ? -1 : i % classes;
        p.predicted[i] = (i + 1) % classes;
        for (int k = 0; k < p.outputs; k++) {
            p.logits[i * p.outputs + k] = (float)(flim_random_normal(&random) * pow(10, i % 40 - 20));
        }
    }
    assert_int_equal(flim_predictions_write(&p, path, NULL), FLIM_OK);
    if (flim_predictions_read(path, &got, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(got.n, N);
    assert_int_equal(got.classes, classes);
    assert_memory_equal(got.index, p.index, N * sizeof *p.index);
    assert_memory_equal(got.label, p.label, N * sizeof *p.label);
    assert_memory_equal(got.predicted, p.predicted, N * sizeof *p.predicted);
    assert_memory_equal(got.logits, p.logits, (size_t)(N * p.outputs) * sizeof *p.logits);
    for (int i = 0; i < N; i++) {
        assert_string_equal(got.name[i], p.name[i]);
        assert_string_equal(got.group[i], p.group[i]);
    }
    flim_predictions_free(&p);
    flim_predictions_free(&got);
}

static void two_and_five_classes_round_trip(void **state)
{
    (void)state;
    round_trip(2);
    round_trip(5);
}

static void broken_files_are_named_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", ":1: the header"},
        {"index,name,group,label,predicted\n", ":1: the header"},
        {"index,name,group,label,guess,logit_1,prob_1\n", ":1: the header"},
        {"index,name,group,label,predicted,logit_1,prob_1\n1,a,b,0,1,0.5\n", ":2: too few"},
        {"index,name,group,label,predicted,logit_1,prob_1\n1,a,b,0,1,0.5,0.6,7\n", ":2: too many"},
        {"index,name,group,label,predicted,logit_1,prob_1\n1,a,b,0,1,0.5,0.6225\n2,a,b,2,1,0.5,0.6225\n", ":3: label"},
        {"index,name,group,label,predicted,logit_1,prob_1\n1,a,b,0,1,nan,0.6\n", ":2: logit"},
        {"index,name,group,label,predicted,logit_1,prob_1\n-1,a,b,0,1,1,0.6\n", ":2: index"},
        {"index,name,group,predicted,label,logit_1,prob_1\n1,a,b,0,1,0,0.5\n", ":1: the header's column 4 is 'predicted'"},
        {"index,name,group,label,predicted,prob_1,logit_1\n1,a,b,0,1,0.5,0\n", ":1: the header's column 6 is 'prob_1'"},
        {"index,name,group,label,predicted,logit_0,prob_0\n1,a,b,0,1,0,0.5\n", "'logit_0', expected 'logit_1'"},
        {"index,name,group,label,predicted,logit_0,logit_2,logit_1,prob_0,prob_1,prob_2\n", "'logit_2', expected 'logit_1'"},
        {"index,name,group,label,predicted,logit_0,logit_1,logit_2,prob_0,prob_1,prob_1\n", "'prob_1', expected 'prob_2'"},
        {"index,name,group,label,predicted,logit_1,prob_1\n1,a,b,0,1,0.5,0.6225\n2,a,b,0,1,0.5,0.5\n",
         ":3: prob_1 is 0.5, but the row's logits give 0.622459"},
        {"index,name,group,label,predicted,logit_1,prob_1\n1,a,b,0,1,0.5,x\n", ":2: prob"},
        {"index,name,group,label,predicted,logit_1,prob_1\n1,a,b,0,1,0.5,1.5\n", ":2: prob"},
        {"index,name,group,label,predicted,logit_0,logit_1,logit_2,prob_0,prob_1,prob_2\n1,a,b,0,1,1,2,3,0.2447,0.0900,0."
         "6652\n",
         ":2: prob_0 is 0.2447"},
        {"index,name,group,label,predicted,logit_1,prob_1\n1,\"a,b,0,1,1,0.6\n", "a quoted field does not end"},
        {"index,name,group,label,predicted,logit_1,prob_1\n1,\"a\"b,c,0,1,1,0.6\n", ":2: text follows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_predictions got;
        flim_error err = {0};
        assert_int_equal(flim_file_write(path, cases[i].text, strlen(cases[i].text), NULL), FLIM_OK);
        assert_int_equal(flim_predictions_read(path, &got, &err), FLIM_ERROR_DATA);
        if (!strstr(err.text, cases[i].said) || !strstr(err.text, path)) {
            fail_msg("case %zu: '%s' where '%s' was expected", i, err.text, cases[i].said);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_and_five_classes_round_trip),
        cmocka_unit_test(broken_files_are_named_by_line),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Folds of groups are never less even than scikit-learn's, on kept tables (tests/cv/make_split_reference.py). */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cv/split/split_internal.h"

enum { MOST_GROUPS = 64, MOST_CLASSES = 6, MOST_FOLDS = 16 };

/* Gaps, and the mean over classes of the standard deviation over folds of the share. */
static double spread_of(int64_t groups, int classes, int folds, const int64_t *count, const int *fold_of, int *gaps)
{
    double spread = 0;
    *gaps = 0;
    for (int c = 0; c < classes; c++) {
        double in[MOST_FOLDS] = {0}, total = 0, squares = 0;
        for (int64_t g = 0; g < groups; g++) {
            in[fold_of[g]] += (double)count[g * classes + c];
            total += (double)count[g * classes + c];
        }
        for (int f = 0; f < folds; f++) {
            double off = in[f] / total - 1.0 / folds;
            squares += off * off;
            *gaps += in[f] == 0;
        }
        spread += sqrt(squares / folds) / classes;
    }
    return spread;
}

static int64_t next_number(char **save)
{
    const char *word = strtok_r(NULL, " \n", save);
    assert_non_null(word);
    return strtoll(word, NULL, 10);
}

static void never_less_even_than_scikit_learn(void **state)
{
    (void)state;
    FILE *file = fopen(FLIM_SOURCE_DIR "/tests/cv/split_reference.txt", "r");
    assert_non_null(file);
    static char line[1 << 14];
    int64_t groups = 0, count[MOST_GROUPS * MOST_CLASSES], size[MOST_GROUPS];
    int classes = 0, folds = 0, cases = 0, fewer_gaps = 0, more_even = 0, fold_of[MOST_GROUPS], gaps;
    while (fgets(line, sizeof line, file)) {
        char *save = NULL, *word = strtok_r(line, " \n", &save);
        if (strcmp(word, "case") == 0) {
            groups = next_number(&save);
            classes = (int)next_number(&save);
            folds = (int)next_number(&save);
            assert_true(groups <= MOST_GROUPS && classes <= MOST_CLASSES && folds <= MOST_FOLDS);
            cases++;
        } else if (strcmp(word, "count") == 0) {
            memset(size, 0, sizeof size);
            for (int64_t i = 0; i < groups * classes; i++) {
                count[i] = next_number(&save);
                size[i / classes] += count[i];
            }
        } else if (strcmp(word, "stratified_group") == 0) {
            int their_gaps = (int)next_number(&save);
            double theirs = strtod(strtok_r(NULL, " \n", &save), NULL);
            flim_cover cover;
            assert_int_equal(flim_assign_groups(groups, classes, count, folds, 42, &cover, fold_of, NULL), FLIM_OK);
            double ours = spread_of(groups, classes, folds, count, fold_of, &gaps);
            assert_int_equal(cover == FLIM_COVER_FOUND, gaps == 0);
            if (their_gaps >= 0 && (gaps > their_gaps || (gaps == their_gaps && ours > theirs + 1e-12))) {
                fail_msg("case %d: %d gaps, spread %.9f; scikit-learn %d gaps, %.9f", cases, gaps, ours, their_gaps, theirs);
            }
            fewer_gaps += gaps < their_gaps;
            more_even += gaps == their_gaps && ours < theirs - 1e-9;
        } else if (strcmp(word, "group") == 0) {
            double theirs = strtod(strtok_r(NULL, " \n", &save), NULL);
            assert_int_equal(flim_assign_groups(groups, 0, size, folds, 42, NULL, fold_of, NULL), FLIM_OK);
            double ours = spread_of(groups, 1, folds, size, fold_of, &gaps);
            if (gaps || ours > theirs + 1e-12) {
                fail_msg("case %d: group folds spread %.9f, %d empty; scikit-learn %.9f", cases, ours, gaps, theirs);
            }
        }
    }
    fclose(file);
    print_message("%d tables: fewer gaps in %d, more even in %d, worse in 0\n", cases, fewer_gaps, more_even);
    assert_true(cases > 100 && fewer_gaps + more_even > cases / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(never_less_even_than_scikit_learn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

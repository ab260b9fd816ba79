/* Overfits, underfits or sound: the rule at its edges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "report/fit.h"

static void the_rule_at_its_edges(void **state)
{
    (void)state;
    const double none = (double)NAN;
    static const double half = 0.5;
    const struct {
        int64_t n_val;
        double common, train, val, train_end, loss[2], loss_end[2]; /* losses: training, validation */
        report_fit_verdict verdict;
        bool later;
    } cases[] = {
        {1000, half, 0.90, 0.85, 0.95, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_SOUND, false},
        {1000, half, 0.90, 0.79, 0.95, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_OVERFITS, false},
        {1000, half, 0.90, 0.805, 0.95, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_SOUND, false}, /* less than 0.10 */
        {40, half, 0.90, 0.78, 0.95, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_SOUND, false}, /* less than two errors of 0.064 */
        {40, half, 0.95, 0.78, 0.95, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_OVERFITS, false},
        {4, half, 1.00, 0.75, 1.00, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_SOUND, false}, /* one of four cells */
        {1000, half, 0.80, 0.95, 0.95, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_SOUND, false}, /* augmentation is harder */
        {1000, half, 0.54, 0.52, 0.549, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_UNDERFITS, false},
        {1000, half, 0.54, 0.52, 0.56, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_SOUND, false}, /* it has learned since */
        {1000, 0.73, 0.76, 0.60, 0.77, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_UNDERFITS, false}, /* always the common class */
        {1000, half, 0.90, 0.85, 0.95, {0.3, 0.4}, {0.2, 0.49}, REPORT_FIT_SOUND, true},
        {1000, half, 0.90, 0.85, 0.95, {0.3, 0.4}, {0.31, 0.49}, REPORT_FIT_SOUND, false}, /* training diverges, too */
        {1000, half, none, 0.85, 0.95, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_UNKNOWN, false},
        {1000, half, 0.90, none, 0.95, {0.3, none}, {0.2, none}, REPORT_FIT_UNKNOWN, false},
        {0, half, 0.90, 0.80, 0.95, {0.3, 0.4}, {0.2, 0.45}, REPORT_FIT_UNKNOWN, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        report_fit fit = {.n_val = cases[i].n_val,
                          .common = cases[i].common,
                          .chosen = {3, cases[i].loss[0], cases[i].loss[1], cases[i].train, cases[i].val},
                          .last = {9, cases[i].loss_end[0], cases[i].loss_end[1], cases[i].train_end, 0.5}};
        report_fit_judge(&fit);
        if (fit.verdict != cases[i].verdict || fit.later != cases[i].later) {
            fail_msg("case %zu: %s%s (gap %.3f, standard error %.4f), expected %s%s", i, report_fit_name(fit.verdict),
                     fit.later ? ", later" : "", fit.gap, fit.se, report_fit_name(cases[i].verdict),
                     cases[i].later ? ", later" : "");
        }
        assert_true(strlen(report_fit_advice(&fit)) > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_rule_at_its_edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

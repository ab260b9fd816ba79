/* The tables for a terminal. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/text.h"
#include "report/report_internal.h"

enum { WORST = 10, NAME_WIDTH = 36, VALUE_WIDTH = 8 };

static const flim_metric shown[] = {FLIM_ACCURACY, FLIM_BALANCED_ACCURACY, FLIM_RECALL,   FLIM_SPECIFICITY, FLIM_F1,
                                    FLIM_MCC,      FLIM_ROC_AUC,           FLIM_LOG_LOSS, FLIM_BRIER,       FLIM_ECE};
enum { SHOWN = sizeof shown / sizeof shown[0] };

/* "0.812" or "n/a" */
static const char *number(double value, char text[16])
{
    if (isnan(value)) {
        return "n/a";
    }
    snprintf(text, 16, "%.3f", value);
    return text;
}

/* "0.041", "< 0.001" or "n/a" */
static const char *p_value(double value, char text[16])
{
    return value < 0.001 ? "< 0.001" : number(value, text);
}

/* Appends text padded on the right to `width` columns. */
static void pad(char *line, size_t size, const char *text, int width)
{
    size_t used = strlen(line), columns = 0;
    for (const char *at = text; *at; at++) {
        columns += ((unsigned char)*at & 0xC0) != 0x80;
    }
    int blanks = width > (int)columns ? width - (int)columns : 0;
    snprintf(line + used, size - used, "%s%*s", text, blanks, "");
}

/* Metrics of one table: shown[from..to-1]. */
typedef struct part {
    int from, to;
} part;

static void row_line(const report_row *row, part metrics, const flim_log *log)
{
    char line[512] = "  ", text[16], first[128];
    snprintf(first, sizeof first, "%s", row->name);
    if (row->kind == REPORT_FOLD) {
        snprintf(first, sizeof first, "%s (%" PRId64 " cell%s, best epoch %" PRId64 ")", row->name, row->fold->n_test,
                 flim_s(row->fold->n_test), row->fold->best_epoch);
    }
    pad(line, sizeof line, first, NAME_WIDTH);
    for (int i = metrics.from; i < metrics.to; i++) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, " %7s", number(row->value[shown[i]], text));
    }
    flim_log_line(log, FLIM_LOG_INFO, "%s", line);
}

static void head_line(const char *first, part metrics, const flim_log *log)
{
    char line[512] = "  ";
    pad(line, sizeof line, first, NAME_WIDTH);
    for (int i = metrics.from; i < metrics.to; i++) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, " %7s", flim_metric_head(shown[i]));
    }
    flim_log_line(log, FLIM_LOG_INFO, "%s", line);
}

static void groups_table(const report_run *run, const flim_log *log)
{
    int64_t groups = run->groups;
    if (groups == 0) {
        return;
    }
    char a[16], b[16], c[16], d[16], e[16];
    flim_log_line(log, FLIM_LOG_INFO, "  groups, worst first%s", groups > WORST ? " (10 of them)" : "");
    flim_log_line(log, FLIM_LOG_INFO, "       n   prev    acc recall   spec    AUC  group");
    for (int64_t g = 0; g < groups && g < WORST; g++) {
        const report_group *r = &run->group[g];
        flim_log_line(log, FLIM_LOG_INFO, "  %6" PRId64 " %6s %6s %6s %6s %6s  %s", r->n, number(r->prevalence, a),
                      number(r->accuracy, b), number(r->sensitivity, c), number(r->specificity, d), number(r->auc, e),
                      r->name);
    }
}

static void matrix_table(const report_run *run, const flim_log *log)
{
    flim_log_line(log, FLIM_LOG_INFO, "  confusion, pooled (rows: label, columns: predicted)");
    for (int c = 0; c < run->classes; c++) {
        char line[1024] = "  ";
        pad(line, sizeof line, run->class_name[c], 20);
        for (int d = 0; d < run->classes && strlen(line) + 16 < sizeof line; d++) {
            size_t used = strlen(line);
            snprintf(line + used, sizeof line - used, " %7" PRId64, run->matrix[c * run->classes + d]);
        }
        flim_log_line(log, FLIM_LOG_INFO, "%s", line);
    }
}

/* The network against the baselines that have learned something, in pairs. */
static void baselines_table(const report_run *run, const flim_log *log)
{
    bool any = false;
    for (int b = FLIM_BASELINE_PRIOR + 1; b < FLIM_N_BASELINES; b++) {
        const report_pair *pair = &run->against[b];
        const flim_paired_test *test = &pair->fold_test[FLIM_ROC_AUC];
        char line[256] = "  ", d[16] = "n/a", p[16], q[16];
        if (!pair->paired) {
            continue;
        }
        if (!any) {
            pad(line, sizeof line, "network against baseline", NAME_WIDTH);
            flim_log_line(log, FLIM_LOG_INFO, "%*s  correct only by", NAME_WIDTH + 18, "");
            flim_log_line(log, FLIM_LOG_INFO, "%s %7s %7s %8s %8s %7s", line, "AUC", "p", "network", "baseline", "p");
            line[2] = '\0';
            any = true;
        }
        if (!isnan(test->difference)) {
            snprintf(d, sizeof d, "%+.3f", test->difference);
        }
        pad(line, sizeof line, flim_baseline_title(b), NAME_WIDTH);
        flim_log_line(log, FLIM_LOG_INFO, "%s %7s %7s %8" PRId64 " %8" PRId64 " %7s", line, d, p_value(test->p, p),
                      pair->only_b, pair->only_a, p_value(pair->cell_test.p, q));
    }
    if (any) {
        flim_log_line(log, FLIM_LOG_INFO,
                      "    AUC: mean difference by fold, corrected resampled t-test; cells: McNemar's exact test");
    }
}

/* "-" where a fold has no calibration. */
static void calibration_table(const report_run *run, const flim_log *log)
{
    bool any = false;
    flim_log_line(log, FLIM_LOG_INFO, "  calibration of the test sets, before and after (fitted on validation sets)");
    flim_log_line(log, FLIM_LOG_INFO, "           temperature      ECE              Brier            log loss");
    flim_log_line(log, FLIM_LOG_INFO, "                         before   after   before   after   before   after");
    for (int r = 0; r < run->n_calibration; r++) {
        const report_calibration *row = &run->calibration[r];
        char line[160], text[16];
        snprintf(line, sizeof line, "    %-8s %10s ", row->name,
                 isnan(row->temperature) ? "" : number(row->temperature, text));
        for (int i = 0; i < REPORT_N_CALIBRATION; i++) {
            char before[16], after[16];
            const size_t used = strlen(line);
            snprintf(line + used, sizeof line - used, " %8s %7s", number(row->before[i], before),
                     isnan(row->after[i]) ? "-" : number(row->after[i], after));
        }
        any = any || !isnan(row->temperature);
        flim_log_line(log, FLIM_LOG_INFO, "%s", line);
    }
    if (!any) {
        flim_log_line(log, FLIM_LOG_INFO, "    -: none: the validation set lacks a class, or there is no such set");
    }
}

static void metrics_table(const report_run *run, part metrics, const flim_log *log)
{
    head_line(run->classes == 2 ? "test sets, chosen thresholds" : "test sets", metrics, log);
    bool baselines = false;
    for (int r = 0; r < run->n_rows; r++) {
        if (run->row[r].kind == REPORT_BASELINE && !baselines) {
            baselines = true;
            head_line("baselines on the same folds (pooled)", metrics, log);
        }
        row_line(&run->row[r], metrics, log);
    }
}

/* How many metrics fit beside each other; columns: of the terminal, 0 = all of them. */
static int metrics_per_table(int columns)
{
    const int room = (columns - NAME_WIDTH - 2) / VALUE_WIDTH;
    return columns == 0 || room >= SHOWN ? SHOWN : room < SHOWN / 2 ? SHOWN / 2 : room;
}

static void run_tables(const report_run *run, int columns, const flim_log *log)
{
    char low[16], high[16], auc[16];
    const int per_table = metrics_per_table(columns);
    flim_log_line(log, FLIM_LOG_INFO, "%s: %s, %d fold%s, %" PRId64 " cell%s tested, %" PRId64 " group%s, classes %d",
                  run->folder, report_mode(run), run->n_folds, flim_s(run->n_folds), run->pool.n, flim_s(run->pool.n),
                  run->groups, flim_s(run->groups), run->classes);
    for (int from = 0; from < SHOWN; from += per_table) {
        metrics_table(run, (part){from, from + per_table < SHOWN ? from + per_table : SHOWN}, log);
    }
    if (!isnan(run->delong.low)) {
        flim_log_line(log, FLIM_LOG_INFO, "  pooled AUC %s, DeLong 95 %% %s..%s (cells taken as independent)",
                      number(run->delong_auc, auc), number(run->delong.low, low), number(run->delong.high, high));
    }
    baselines_table(run, log);
    flim_log_line(log, FLIM_LOG_INFO, "  intervals: bootstrap over %s", run->by_group ? "groups" : "cells (no groups)");
    matrix_table(run, log);
    calibration_table(run, log);
    groups_table(run, log);
    if (run->errors) {
        error_tables_print(run, log);
    }
    for (int i = 0; i < run->n_findings; i++) {
        flim_log_line(log, FLIM_LOG_INFO, "  %s: %s", run->finding[i].level == FLIM_LOG_WARNING ? "WARNING" : "note",
                      run->finding[i].text);
    }
}

static void pooled_line(const report_run *run, part metrics, const flim_log *log)
{
    report_row row = *report_row_of(run, REPORT_POOLED);
    snprintf(row.name, sizeof row.name, "%.*s", (int)flim_utf8_cut(run->label, 60), run->label);
    row_line(&row, metrics, log);
}

static void comparison_table(const report_comparison *c, int columns, const flim_log *log)
{
    const int per_table = metrics_per_table(columns);
    char d[16], p[16], text[1024];
    flim_log_line(log, FLIM_LOG_INFO, "%s against %s", c->b->label, c->a->label);
    if (!c->pair.paired) {
        report_explain_unpaired(c, text, sizeof text);
        flim_log_line(log, FLIM_LOG_INFO, "  %s", text);
    }
    for (int from = 0; from < SHOWN && !c->pair.paired && c->same_data; from += per_table) {
        const part metrics = {from, from + per_table < SHOWN ? from + per_table : SHOWN};
        head_line("pooled", metrics, log);
        pooled_line(c->a, metrics, log);
        pooled_line(c->b, metrics, log);
    }
    if (!c->pair.paired) {
        return;
    }
    flim_log_line(log, FLIM_LOG_INFO, "  difference by fold (corrected resampled t-test)");
    for (int i = 0; i < SHOWN; i++) {
        const flim_paired_test *t = &c->pair.fold_test[shown[i]];
        flim_log_line(log, FLIM_LOG_INFO, "    %-8s %8s   p %s", flim_metric_head(shown[i]), number(t->difference, d),
                      p_value(t->p, p));
    }
    flim_log_line(log, FLIM_LOG_INFO, "  cells correct in only one: %" PRId64 " in %s, %" PRId64 " in %s; McNemar p %s",
                  c->pair.only_a, c->a->label, c->pair.only_b, c->b->label, p_value(c->pair.cell_test.p, p));
}

flim_status flim_report_print(const flim_report *report, int columns, const flim_log *log, flim_error *err)
{
    (void)err;
    for (int i = 0; i < report->n_runs; i++) {
        run_tables(&report->run[i], columns, log);
    }
    if (report->components.n > 0) {
        component_tables_print(report, log);
    }
    for (int i = 0; i + 1 < report->n_runs; i++) {
        comparison_table(&report->comparison[i], columns, log);
    }
    return FLIM_OK;
}

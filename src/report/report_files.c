/* The report as CSV, JSON and Markdown. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/output.h"
#include "core/text.h"
#include "core/try.h"
#include "formats/csv.h"
#include "formats/json.h"
#include "report/report_internal.h"

/* ---- CSV */

flim_status flim_report_write_csv(const flim_report *report, const flim_output *output, flim_error *err)
{
    if (report->options.errors) {
        return error_csv_write(report, output, err);
    }
    flim_file_writer writer;
    FLIM_TRY(flim_output_begin(output, &writer, err));
    FILE *stream = writer.stream;
    flim_result_csv_head(stream, "run,row");
    for (int i = 0; i < report->n_runs; i++) {
        const report_run *run = &report->run[i];
        for (int r = 0; r < run->n_rows; r++) {
            const report_row *row = &run->row[r];
            flim_csv_put(stream, run->folder);
            putc(',', stream);
            flim_csv_put(stream, row->name);
            flim_result_csv_row(stream, row->fold, row->value);
        }
    }
    return flim_file_commit(&writer, err);
}

/* ---- JSON */

static flim_json *interval_object(double low, double high)
{
    flim_json *array = flim_json_array();
    flim_json_add_number(array, low);
    flim_json_add_number(array, high);
    return array;
}

/* "corrected_t_test": {metric: {difference, t, p}}, "mcnemar": {...} of b against a, under the names given. */
static void set_pair(flim_json *object, const report_pair *pair, const char *name_a, const char *name_b)
{
    flim_json *folds = flim_json_object(), *cells = flim_json_object();
    char key[64];
    for (int m = 0; pair->paired && m < FLIM_N_METRICS; m++) {
        flim_json *test = flim_json_object();
        flim_json_set_number(test, "difference", pair->fold_test[m].difference);
        flim_json_set_number(test, "t", pair->fold_test[m].statistic);
        flim_json_set_number(test, "p", pair->fold_test[m].p);
        flim_json_set(test, "interval_95",
                      interval_object(pair->fold_test[m].interval.low, pair->fold_test[m].interval.high));
        flim_json_set(folds, flim_metric_name((flim_metric)m), test);
    }
    flim_json_set(object, "corrected_t_test", folds);
    if (pair->paired) {
        snprintf(key, sizeof key, "right_only_in_%s", name_a);
        flim_json_set_integer(cells, key, pair->only_a);
        snprintf(key, sizeof key, "right_only_in_%s", name_b);
        flim_json_set_integer(cells, key, pair->only_b);
        flim_json_set_number(cells, "p", pair->cell_test.p);
    }
    flim_json_set(object, "mcnemar", cells);
}

static flim_json *quality_object(const double value[REPORT_N_CALIBRATION])
{
    flim_json *object = flim_json_object();
    for (int i = 0; i < REPORT_N_CALIBRATION; i++) {
        flim_json_set_number(object, flim_metric_name(report_calibration_metric[i]), value[i]);
    }
    return object;
}

/* "folds": one each, "mean", "pooled". */
static flim_json *calibration_object(const report_run *run)
{
    flim_json *object = flim_json_object(), *folds = flim_json_array();
    for (int r = 0; r < run->n_calibration; r++) {
        const report_calibration *row = &run->calibration[r];
        flim_json *one = flim_json_object();
        flim_json_set_number(one, "temperature", row->temperature);
        flim_json_set(one, "before", quality_object(row->before));
        flim_json_set(one, "after", quality_object(row->after));
        if (row->fold >= 0) {
            flim_json_set_integer(one, "fold", row->fold);
            flim_json_add(folds, one);
        } else {
            flim_json_set(object, row->name, one);
        }
    }
    flim_json_set(object, "folds", folds);
    return object;
}

static flim_json *run_object(const report_run *run)
{
    static const struct {
        report_kind kind;
        const char *key;
    } keys[] = {{REPORT_MEAN, "mean"},
                {REPORT_SD1, "sd"},
                {REPORT_SD0, "sd_ddof0"},
                {REPORT_MEAN_HALF, "mean_at_0.5"},
                {REPORT_POOLED, "pooled"},
                {REPORT_POOLED_HALF, "pooled_at_0.5"},
                {REPORT_CALIBRATED, "pooled_calibrated"},
                {REPORT_CORRECTED, "pooled_prior_corrected"},
                {REPORT_HOLDOUT, "holdout"}};
    flim_json *object = flim_json_object(), *folds = flim_json_array(), *baselines = flim_json_object();
    flim_json *intervals = flim_json_object(), *groups = flim_json_array(), *notes = flim_json_array(),
              *names = flim_json_array(), *against = flim_json_object();
    flim_json *matrix = flim_json_array(), *delong = flim_json_object(), *used = flim_json_object();
    flim_json_set_string(object, "run", run->folder);
    flim_json_set_string(object, "mode", report_mode(run));
    for (int c = 0; c < run->classes; c++) {
        flim_json *line = flim_json_array();
        flim_json_add_string(names, run->class_name[c]);
        for (int d = 0; d < run->classes; d++) {
            flim_json_add_integer(line, run->matrix[c * run->classes + d]);
        }
        flim_json_add(matrix, line);
    }
    flim_json_set(object, "class_names", names);
    for (int f = 0; f < run->n_folds; f++) {
        flim_json_add(folds, flim_fold_result_json(&run->fold[f]));
    }
    flim_json_set(object, "folds", folds);
    flim_json_set_null(object, "holdout");
    for (int r = 0; r < run->n_rows; r++) {
        const report_row *row = &run->row[r];
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            if (row->kind == keys[i].kind) {
                flim_json_set(object, keys[i].key, flim_metrics_json(row->value));
            }
        }
        if (row->kind == REPORT_BASELINE) {
            const char *name = flim_baseline_name(row->baseline);
            flim_json *pair = flim_json_object();
            flim_json_set(baselines, name, flim_metrics_json(row->value));
            set_pair(pair, &run->against[row->baseline], "baseline", "network");
            flim_json_set(against, name, pair);
        }
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        const char *name = flim_metric_name((flim_metric)m);
        flim_json_set(intervals, name, interval_object(run->interval[m].low, run->interval[m].high));
        flim_json_set_integer(used, name, run->used[m]);
    }
    flim_json_set(object, "folds_used", used);
    flim_json_set(object, "interval_95", intervals);
    flim_json_set_string(object, "interval_resamples", run->by_group ? "groups" : "cells");
    flim_json_set_number(delong, "roc_auc", run->delong_auc);
    flim_json_set_number(delong, "se", run->delong_se);
    flim_json_set(delong, "interval_95", interval_object(run->delong.low, run->delong.high));
    flim_json_set(object, "delong", delong);
    flim_json_set(object, "baselines", baselines);
    flim_json_set(object, "network_against_baselines", against);
    flim_json_set(object, "confusion", matrix);
    flim_json_set(object, "calibration", calibration_object(run));
    for (int64_t g = 0; g < run->groups; g++) {
        const report_group *r = &run->group[g];
        flim_json *group = flim_json_object();
        flim_json_set_string(group, "group", r->name);
        flim_json_set_integer(group, "n", r->n);
        flim_json_set_number(group, "prevalence", r->prevalence);
        flim_json_set_number(group, "accuracy", r->accuracy);
        flim_json_set_number(group, "sensitivity", r->sensitivity);
        flim_json_set_number(group, "specificity", r->specificity);
        flim_json_set_number(group, "roc_auc", r->auc);
        flim_json_add(groups, group);
    }
    flim_json_set(object, "groups", groups);
    if (run->errors) {
        flim_json_set(object, "errors", error_json(run));
    }
    for (int i = 0; i < run->n_findings; i++) {
        flim_json_add_string(notes, run->finding[i].text);
    }
    flim_json_set(object, "notes", notes);
    return object;
}

static flim_json *comparison_object(const report_comparison *c)
{
    flim_json *object = flim_json_object();
    flim_json_set_string(object, "a", c->a->folder);
    flim_json_set_string(object, "b", c->b->folder);
    flim_json_set_bool(object, "same_data", c->same_data);
    flim_json_set_bool(object, "same_splits", c->pair.paired);
    set_pair(object, &c->pair, "a", "b");
    return object;
}

flim_status flim_report_write_json(const flim_report *report, const flim_output *output, flim_error *err)
{
    flim_json *root = flim_json_object(), *runs = flim_json_array(), *pairs = flim_json_array();
    for (int i = 0; i < report->n_runs; i++) {
        flim_json_add(runs, run_object(&report->run[i]));
    }
    for (int i = 0; i + 1 < report->n_runs; i++) {
        flim_json_add(pairs, comparison_object(&report->comparison[i]));
    }
    flim_json_set(root, "runs", runs);
    flim_json_set(root, "comparisons", pairs);
    if (report->components.n > 0) {
        flim_json_set(root, "embeddings", component_json(report));
    }
    flim_status status = flim_json_write_output(root, output, err);
    flim_json_free(root);
    return status;
}

/* ---- Markdown */

/* A bar would end the cell of a table, < would begin a tag. */
void report_markdown_cell(FILE *stream, const char *text)
{
    for (size_t length; *text; text += length) {
        length = strcspn(text, "|<>");
        if (length) {
            char part[256];
            length = flim_utf8_cut(text, length < sizeof part - 1 ? length : sizeof part - 1);
            memcpy(part, text, length);
            part[length] = '\0';
            flim_text_put(stream, part);
            continue;
        }
        fputs(*text == '|' ? "\\|" : *text == '<' ? "&lt;" : "&gt;", stream);
        length = 1;
    }
}

static void put_number(FILE *stream, double value)
{
    if (isnan(value)) {
        fputs(" n/a |", stream);
    } else {
        fprintf(stream, " %.3f |", value);
    }
}

static void put_p(FILE *stream, double p)
{
    fprintf(stream, isnan(p) ? "p n/a" : "p = %.3g", p);
}

static void markdown_calibration(FILE *stream, const report_run *run)
{
    fputs("\n| calibration | temperature |", stream);
    for (int i = 0; i < REPORT_N_CALIBRATION; i++) {
        const char *title = flim_metric_title(report_calibration_metric[i]);
        fprintf(stream, " %s | calibrated |", title);
    }
    fputs("\n|---|---:|---:|---:|---:|---:|---:|---:|\n", stream);
    for (int r = 0; r < run->n_calibration; r++) {
        const report_calibration *row = &run->calibration[r];
        fprintf(stream, "| %s |", row->name);
        put_number(stream, row->temperature);
        for (int i = 0; i < REPORT_N_CALIBRATION; i++) {
            put_number(stream, row->before[i]);
            put_number(stream, row->after[i]);
        }
        putc('\n', stream);
    }
}

static void markdown_run(FILE *stream, const report_run *run)
{
    fputs("## ", stream);
    report_markdown_cell(stream, run->folder);
    fprintf(stream, "\n\n%s, %d fold%s, %" PRId64 " cell%s tested, %" PRId64 " group%s. Intervals: bootstrap over %s.\n\n",
            report_mode(run), run->n_folds, flim_s(run->n_folds), run->pool.n, flim_s(run->pool.n), run->groups,
            flim_s(run->groups), run->by_group ? "groups" : "cells");
    fputs("| |", stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fprintf(stream, " %s |", flim_metric_title((flim_metric)m));
    }
    fputs("\n|---|", stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fputs("---:|", stream);
    }
    for (int r = 0; r < run->n_rows; r++) {
        fprintf(stream, "\n| %s%s |", run->row[r].kind == REPORT_BASELINE ? "baseline: " : "", run->row[r].name);
        for (int m = 0; m < FLIM_N_METRICS; m++) {
            put_number(stream, run->row[r].value[m]);
        }
    }
    fputs("\n", stream);
    if (!isnan(run->delong.low)) {
        fprintf(stream, "\nPooled ROC AUC %.3f, DeLong 95 %% %.3f..%.3f (cells taken as independent).\n", run->delong_auc,
                run->delong.low, run->delong.high);
    }
    for (int b = 0; b < FLIM_N_BASELINES; b++) {
        const report_pair *pair = &run->against[b];
        const flim_paired_test *test = &pair->fold_test[FLIM_ROC_AUC];
        if (pair->paired && b != FLIM_BASELINE_PRIOR) {
            fprintf(stream, "\nNetwork against %s: ", flim_baseline_title(b));
            if (!isnan(test->difference)) {
                fprintf(stream, "ROC AUC %+.3f by fold (corrected resampled t-test, ", test->difference);
                put_p(stream, test->p);
                fputs("); ", stream);
            }
            fprintf(stream, "%" PRId64 " cells correct only by the network, %" PRId64 " only by the baseline (McNemar, ",
                    pair->only_b, pair->only_a);
            put_p(stream, pair->cell_test.p);
            fputs(").\n", stream);
        }
    }
    markdown_calibration(stream, run);
    if (run->groups) {
        fputs("\n| group | n | prevalence | accuracy | recall | specificity | ROC AUC |\n|---|---:|---:|---:|---:|---:|---:|",
              stream);
    }
    for (int64_t g = 0; g < run->groups; g++) {
        const report_group *group = &run->group[g];
        fputs("\n| ", stream);
        report_markdown_cell(stream, group->name);
        fprintf(stream, " | %" PRId64 " |", group->n);
        const double value[] = {group->prevalence, group->accuracy, group->sensitivity, group->specificity, group->auc};
        for (int i = 0; i < 5; i++) {
            put_number(stream, value[i]);
        }
    }
    fputs("\n", stream);
    for (int i = 0; i < run->n_findings; i++) {
        fprintf(stream, "%s- %s", i ? "" : "\n", run->finding[i].level == FLIM_LOG_WARNING ? "**Warning:** " : "");
        report_markdown_cell(stream, run->finding[i].text);
        fputs("\n", stream);
    }
    if (run->errors) {
        error_markdown_write(stream, run);
    }
    fputs("\n", stream);
}

static void markdown_comparison(FILE *stream, const report_comparison *c)
{
    fputs("## ", stream);
    report_markdown_cell(stream, c->b->label);
    fputs(" against ", stream);
    report_markdown_cell(stream, c->a->label);
    fputs("\n\n", stream);
    if (!c->pair.paired) {
        char text[1024];
        report_explain_unpaired(c, text, sizeof text);
        fprintf(stream, "%s\n\n", text);
    }
    if (!c->pair.paired && c->same_data) {
        fputs("| metric, pooled | ", stream);
        report_markdown_cell(stream, c->a->label);
        fputs(" | ", stream);
        report_markdown_cell(stream, c->b->label);
        fputs(" |\n|---|---:|---:|\n", stream);
        for (int m = 0; m < FLIM_N_METRICS; m++) {
            fprintf(stream, "| %s |", flim_metric_title((flim_metric)m));
            put_number(stream, report_row_of(c->a, REPORT_POOLED)->value[m]);
            put_number(stream, report_row_of(c->b, REPORT_POOLED)->value[m]);
            putc('\n', stream);
        }
        putc('\n', stream);
    }
    if (!c->pair.paired) {
        return;
    }
    fputs("| metric | mean difference by fold | p (corrected resampled t-test) |\n|---|---:|---:|\n", stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fprintf(stream, "| %s |", flim_metric_title((flim_metric)m));
        put_number(stream, c->pair.fold_test[m].difference);
        put_number(stream, c->pair.fold_test[m].p);
        putc('\n', stream);
    }
    fprintf(stream, "\nCells classified correctly by only one of them: %" PRId64 " in ", c->pair.only_a);
    report_markdown_cell(stream, c->a->label);
    fprintf(stream, ", %" PRId64 " in ", c->pair.only_b);
    report_markdown_cell(stream, c->b->label);
    fputs(" (McNemar ", stream);
    put_p(stream, c->pair.cell_test.p);
    fputs(").\n\n", stream);
}

flim_status flim_report_write_markdown(const flim_report *report, const flim_output *output, flim_error *err)
{
    flim_file_writer writer;
    FLIM_TRY(flim_output_begin(output, &writer, err));
    fputs(FLIM_REPORT_MARKDOWN_BEGINS "\n", writer.stream);
    for (int i = 0; i < report->n_runs; i++) {
        markdown_run(writer.stream, &report->run[i]);
    }
    if (report->components.n > 0) {
        component_markdown_write(writer.stream, report);
    }
    for (int i = 0; i + 1 < report->n_runs; i++) {
        markdown_comparison(writer.stream, &report->comparison[i]);
    }
    return flim_file_commit(&writer, err);
}

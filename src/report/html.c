/* The report as one self-contained HTML page: no script, no file beside it; pictures are embedded as data. */
#include "report/html.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "flim/version.h"
#include "report/plots.h"

enum { MOST_CONFIG = 1 << 20 };

static const char style[] =
    ":root{--ink:#1d2329;--soft:#5b6570;--line:#dfe3e8;--paper:#fff;--tint:#f5f7f9;--blue:#0072b2}\n"
    "*{box-sizing:border-box}\n"
    "body{font:14px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;color:var(--ink);background:var(--paper);"
    "margin:0 auto;max-width:1340px;padding:28px 24px 60px}\n"
    "h1{font-size:26px;margin:0 0 4px}\nh2{font-size:20px;margin:40px 0 4px;padding-top:14px;border-top:3px solid "
    "var(--ink)}\n"
    "h3{font-size:16px;margin:28px 0 6px}\n.about{color:var(--soft);margin:0 0 12px;max-width:1000px}\n"
    ".cards{display:flex;flex-wrap:wrap;gap:12px;margin:14px 0}\n"
    ".card{border:1px solid var(--line);border-radius:6px;padding:10px 16px;min-width:200px}\n"
    ".card .what{color:var(--soft);font-size:12px}\n.card .number{font-size:26px;font-weight:600;line-height:1.25}\n"
    ".card .more{font-size:12px;color:var(--soft)}\n"
    ".note,.warning{margin:5px 0;padding:6px 12px;border-left:4px solid #9aa5b1;background:var(--tint)}\n"
    ".warning{border-color:#d55e00;background:#fdf1e8}\n"
    "table{border-collapse:collapse;font-size:12.5px;font-variant-numeric:tabular-nums}\n"
    "td,th{padding:4px 8px;text-align:right;border-bottom:1px solid var(--line);vertical-align:bottom}\n"
    "th{font-weight:600;border-bottom:1.5px solid var(--ink)}\ntd:first-child,th:first-child{text-align:left}\n"
    "td{white-space:nowrap}\n.wide+.about,table+.about{margin-top:8px}\ntd small,.matrix small{color:var(--soft)}\n"
    "tr.pooled td{font-weight:700}\ntr.part td{border-top:1.5px solid var(--ink)}\ntr.baseline td{color:var(--soft)}\n"
    "tr.head td{font-weight:600;text-align:left;border-bottom:1px solid var(--line);padding-top:10px}\n"
    ".wide{overflow-x:auto}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(390px,1fr));gap:16px;margin:18px 0}\n"
    ".double{grid-column:span 2;overflow-x:auto;max-height:700px;overflow-y:auto}\n.double table{width:100%;margin:8px 0}\n"
    "figure{margin:0;border:1px solid var(--line);border-radius:6px;padding:8px;background:var(--paper)}\n"
    "figure>img{display:block;width:100%;max-width:430px;margin:0 auto}\n"
    "figcaption{font-size:12px;color:var(--soft);padding:4px 6px}\nfigcaption b{color:var(--ink)}\n"
    ".matrix{margin:24px auto}\n.matrix td,.matrix th{text-align:center;border:1px solid var(--line);padding:10px 14px}\n"
    ".matrix td{font-size:16px;min-width:84px}\n.matrix th{border-bottom-width:1px;font-size:12px}\n"
    ".gallery{display:grid;grid-template-columns:repeat(auto-fill,minmax(190px,1fr));gap:12px}\n"
    ".gallery figure{padding:10px}\n.gallery img.cell{width:150px;height:150px;image-rendering:pixelated;object-fit:contain;"
    "background:#000;margin:0 auto}\n.gallery svg{display:block;margin:6px auto 0}\n"
    ".gallery figcaption{overflow-wrap:anywhere;line-height:1.4}\n"
    "svg text{font:8px sans-serif;fill:#5b6570}\nsvg .e{text-anchor:end}\nsvg .s{text-anchor:start}\n"
    "svg line.g{stroke:#e6eaee}\nsvg line.a{stroke:#8a949e}\nsvg polyline{fill:none;stroke:var(--blue);stroke-width:1.2}\n"
    "pre{background:var(--tint);padding:12px 16px;font-size:11.5px;line-height:1.4;columns:3 320px;column-gap:28px;"
    "white-space:pre-wrap;overflow-wrap:anywhere}\nsummary{cursor:pointer;font-weight:600;margin-top:8px}\n"
    "footer{margin-top:40px;color:var(--soft);font-size:12px}\n"
    "@media print{body{max-width:none;padding:0}figure,tr{break-inside:avoid}.plots{grid-template-columns:1fr 1fr}}\n";

void html_put_text(FILE *stream, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", stream); break;
        case '>': fputs("&gt;", stream); break;
        case '&': fputs("&amp;", stream); break;
        case '"': fputs("&quot;", stream); break;
        default: putc(*text, stream);
        }
    }
}

void html_put_base64(FILE *stream, const unsigned char *bytes, size_t count)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        unsigned word =
            (unsigned)bytes[i] << 16 | (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
        putc(digit[word >> 18 & 63], stream);
        putc(digit[word >> 12 & 63], stream);
        putc(left > 1 ? digit[word >> 6 & 63] : '=', stream);
        putc(left > 2 ? digit[word & 63] : '=', stream);
    }
}

static void put_number(FILE *stream, double value)
{
    if (isnan(value)) {
        fputs("<td>n/a</td>", stream);
    } else {
        fprintf(stream, "<td>%.3f</td>", value);
    }
}

/* A p-value with two digits, "n/a" where it is undefined. */
static void put_p(FILE *stream, double p)
{
    if (isnan(p)) {
        fputs("<td>n/a</td>", stream);
    } else {
        fprintf(stream, p < 0.001 ? "<td>&lt; 0.001</td>" : "<td>%.3f</td>", p);
    }
}

/* ---- what matters, first */

static void put_card(FILE *stream, const report_run *run, flim_metric m, const char *what)
{
    const double pooled = report_row_of(run, REPORT_POOLED)->value[m];
    const double mean = report_row_of(run, REPORT_MEAN)->value[m], sd = report_row_of(run, REPORT_SD1)->value[m];
    const flim_interval *i = &run->interval[m];
    fprintf(stream, "<div class=\"card\"><div class=\"what\">%s, pooled</div>\n<div class=\"number\">", what);
    if (isnan(pooled)) {
        fprintf(stream, "n/a</div><div class=\"more\">%s</div>", flim_metric_undefined_reason(m));
    } else {
        fprintf(stream, "%.3f</div>", pooled);
    }
    fputs("<div class=\"more\">", stream);
    if (!isnan(i->low)) {
        fprintf(stream, "95 %% interval %.3f to %.3f<br>", i->low, i->high);
    }
    if (!isnan(mean)) {
        fprintf(stream, "folds %.3f", mean);
        if (!isnan(sd)) {
            fprintf(stream, " &plusmn; %.3f", sd);
        }
        fprintf(stream, " (mean &plusmn; sd, %d of %d)", run->used[m], run->n_folds);
    }
    fputs("</div></div>\n", stream);
}

static void put_confound_card(FILE *stream, const report_run *run)
{
    for (int r = 0; r < run->n_rows; r++) {
        const report_row *row = &run->row[r];
        if (row->kind == REPORT_BASELINE && row->baseline == FLIM_BASELINE_CONFOUNDS) {
            const double auc = row->value[FLIM_ROC_AUC], balanced = row->value[FLIM_BALANCED_ACCURACY];
            fputs("<div class=\"card\"><div class=\"what\">Brightness, size and peak bin alone, pooled</div>"
                  "<div class=\"number\">",
                  stream);
            fprintf(stream, "%.3f</div><div class=\"more\">%s<br>logistic regression in the same folds</div></div>\n",
                    isnan(auc) ? balanced : auc, isnan(auc) ? "balanced accuracy" : "ROC AUC");
        }
    }
}

static void overview(FILE *stream, const report_run *run)
{
    fputs("<div class=\"cards\">\n", stream);
    put_card(stream, run, FLIM_BALANCED_ACCURACY, "Balanced accuracy");
    put_card(stream, run, FLIM_ROC_AUC, "ROC AUC");
    put_card(stream, run, FLIM_ACCURACY, "Accuracy");
    put_confound_card(stream, run);
    fputs("</div>\n", stream);
    for (int level = FLIM_LOG_WARNING; level >= FLIM_LOG_INFO; level--) {
        for (int i = 0; i < run->n_findings; i++) {
            if ((int)run->finding[i].level == level) {
                fprintf(stream, "<p class=\"%s\">", level == FLIM_LOG_WARNING ? "warning" : "note");
                html_put_text(stream, run->finding[i].text);
                fputs("</p>\n", stream);
            }
        }
    }
}

/* ---- tables */

static void metric_heads(FILE *stream)
{
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fputs("<th>", stream);
        for (const char *at = flim_metric_name((flim_metric)m); *at; at++) {
            putc(*at == '_' ? ' ' : *at, stream); /* so that a heading may wrap */
        }
        fputs("</th>", stream);
    }
}

static void metrics_table(FILE *stream, const report_run *run)
{
    const bool two = run->classes == 2; /* with more there is no threshold */
    bool baselines = false;
    fprintf(stream,
            "<h3>Metrics of the test parts</h3>\n<div class=\"wide\"><table>\n<tr><th>fold</th><th>test cells</th><th>best "
            "epoch</th>%s",
            two ? "<th>threshold</th>" : "");
    metric_heads(stream);
    fputs("</tr>\n", stream);
    for (int r = 0; r < run->n_rows; r++) {
        const report_row *row = &run->row[r];
        const bool baseline = row->kind == REPORT_BASELINE;
        if (baseline && !baselines) {
            fprintf(stream, "<tr class=\"head\"><td colspan=\"%d\">Simple models in the same folds, pooled</td></tr>\n",
                    FLIM_N_METRICS + (two ? 4 : 3));
            baselines = true;
        }
        fprintf(stream, "<tr class=\"%s\"><td>",
                row->kind == REPORT_POOLED ? "pooled part"
                : row->kind == REPORT_MEAN ? "part"
                : baseline                 ? "baseline"
                                           : "");
        html_put_text(stream, row->name);
        fputs("</td>", stream);
        if (row->fold) {
            fprintf(stream, "<td>%" PRId64 "</td><td>%" PRId64 " of %" PRId64 "</td>", row->fold->n_test,
                    row->fold->best_epoch, row->fold->epochs);
        } else {
            fputs("<td></td><td></td>", stream);
        }
        if (two && row->fold) {
            fprintf(stream, "<td>%.3f</td>", row->fold->threshold);
        } else if (two) {
            fputs("<td></td>", stream);
        }
        for (int m = 0; m < FLIM_N_METRICS; m++) {
            put_number(stream, row->value[m]);
        }
        fputs("</tr>\n", stream);
    }
    fprintf(
        stream,
        "</table></div>\n<p class=\"about\">%s Pooled: all out-of-fold predictions together. Intervals: bootstrap over %s.",
        two ? "Every fold decides at the threshold that was best on its inner validation part."
            : "The class with the highest probability is predicted.",
        run->by_group ? "groups" : "cells");
    if (!isnan(run->delong.low)) {
        fprintf(stream,
                " DeLong's 95 %% interval of the pooled AUC: %.3f to %.3f (it takes cells as independent, which cells of one "
                "donor are not).",
                run->delong.low, run->delong.high);
    }
    fputs("</p>\n", stream);
}

static void pair_cells(FILE *stream, const flim_paired_test *test)
{
    if (isnan(test->difference)) {
        fputs("<td>n/a</td>", stream);
    } else {
        fprintf(stream, "<td>%+.3f</td>", test->difference);
    }
    put_p(stream, test->p);
}

static void against_table(FILE *stream, const report_run *run)
{
    bool any = false;
    for (int b = FLIM_BASELINE_PRIOR + 1; b < FLIM_N_BASELINES; b++) {
        const report_pair *pair = &run->against[b];
        if (!pair->paired) {
            continue;
        }
        if (!any) {
            fputs(
                "<h3>The network against simple models</h3>\n<table>\n<tr><th>baseline</th><th>ROC AUC by fold</th><th>p</th>"
                "<th>balanced accuracy by fold</th><th>p</th><th>cells right only by the network</th>"
                "<th>only by the baseline</th><th>p</th></tr>\n",
                stream);
            any = true;
        }
        fprintf(stream, "<tr><td>%s</td>", flim_baseline_title(b));
        pair_cells(stream, &pair->fold_test[FLIM_ROC_AUC]);
        pair_cells(stream, &pair->fold_test[FLIM_BALANCED_ACCURACY]);
        fprintf(stream, "<td>%" PRId64 "</td><td>%" PRId64 "</td>", pair->only_b, pair->only_a);
        put_p(stream, pair->cell_test.p);
        fputs("</tr>\n", stream);
    }
    if (any) {
        fputs(
            "</table>\n<p class=\"about\">Mean difference over folds with the corrected resampled t-test (Nadeau and Bengio "
            "2003); cells: McNemar's exact test.</p>\n",
            stream);
    }
}

static void matrix_figure(FILE *stream, const report_run *run)
{
    fputs("<figure><table class=\"matrix\">\n<tr><th>label \\ predicted</th>", stream);
    for (int c = 0; c < run->classes; c++) {
        fputs("<th>", stream);
        html_put_text(stream, run->class_name[c]);
        fputs("</th>", stream);
    }
    fputs("</tr>\n", stream);
    for (int c = 0; c < run->classes; c++) {
        int64_t total = 0;
        fputs("<tr><th>", stream);
        html_put_text(stream, run->class_name[c]);
        fputs("</th>", stream);
        for (int d = 0; d < run->classes; d++) {
            total += run->matrix[c * run->classes + d];
        }
        for (int d = 0; d < run->classes; d++) {
            int64_t n = run->matrix[c * run->classes + d];
            double share = total ? (double)n / (double)total : 0;
            fprintf(stream, "<td style=\"background:rgba(%s,%.2f)\">%" PRId64 "<br><small>%.0f %%</small></td>",
                    c == d ? "0,114,178" : "213,94,0", 0.5 * share, n, 100 * share);
        }
        fputs("</tr>\n", stream);
    }
    fputs("</table><figcaption><b>Confusion matrix</b>, pooled: cells, and their share of the class.</figcaption></figure>\n",
          stream);
}

static void groups_table(FILE *stream, const report_run *run)
{
    const bool two = run->classes == 2;
    if (run->groups == 0) {
        return;
    }
    fprintf(stream,
            "<figure class=\"double\"><table>\n<tr><th>group</th><th>cells</th>%s<th>accuracy</th>%s<th>ROC AUC</th></tr>\n",
            two ? "<th>prevalence</th>" : "", two ? "<th>sensitivity</th><th>specificity</th>" : "");
    for (int64_t g = 0; g < run->groups; g++) {
        const report_group *group = &run->group[g];
        const struct {
            double value;
            bool shown;
        } columns[] = {{group->prevalence, two},
                       {group->accuracy, true},
                       {group->sensitivity, two},
                       {group->specificity, two},
                       {group->auc, true}};
        fputs("<tr><td>", stream);
        html_put_text(stream, group->name);
        fprintf(stream, "</td><td>%" PRId64 "</td>", group->n);
        for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
            if (columns[i].shown) {
                put_number(stream, columns[i].value);
            }
        }
        fputs("</tr>\n", stream);
    }
    fputs("</table><figcaption><b>Groups</b>, worst first", stream);
    if (two) {
        fputs("; prevalence: share of class ", stream);
        html_put_text(stream, run->class_name[1]);
    }
    fputs(".</figcaption></figure>\n", stream);
}

/* ---- plots */

typedef flim_status plot_function(const report_run *, report_svg *, flim_error *);

static flim_status put_plot(FILE *stream, const report_run *run, plot_function *plot, const char *title, const char *caption,
                            flim_error *err)
{
    report_svg svg;
    flim_status status = plot(run, &svg, err);
    if (status != FLIM_OK || !svg.text) {
        return status;
    }
    fprintf(stream, "<figure><img alt=\"%s\" src=\"data:image/svg+xml;base64,", title);
    html_put_base64(stream, (const unsigned char *)svg.text, svg.bytes);
    fprintf(stream, "\"><figcaption><b>%s</b>%s</figcaption></figure>\n", title, caption);
    flim_free(svg.text);
    return FLIM_OK;
}

static flim_status figures(FILE *stream, const report_run *run, flim_error *err)
{
    const bool two = run->classes == 2;
    const struct {
        plot_function *plot;
        const char *title, *caption;
    } all[] = {
        {report_plot_roc, "ROC curves",
         two ? " of the test parts: folds thin, pooled thick, in brackets the area; dashed: confounds, a logistic "
               "regression on brightness, size and peak bin."
             : ", pooled, each class against the rest."},
        {report_plot_precision_recall, "Precision and recall",
         two ? " of the test parts, in brackets the average precision; dotted: the share of positives, which guessing "
               "reaches."
             : ", pooled, each class against the rest."},
        {report_plot_calibration, "Calibration",
         ", pooled: observed share in ten bins of the predicted probability, with 95 % intervals (Wilson); below, cells a "
         "bin."},
        {report_plot_histogram, "Predicted probabilities",
         two ? " of each class's cells, pooled; grey: the range of the folds' thresholds."
             : " of each class's cells, pooled."},
        {report_plot_learning, "Learning curves",
         ": loss of training (dotted) and inner validation (solid); dot: the chosen epoch. The training loss includes label "
         "smoothing and dropout."},
        {report_plot_groups, "Accuracy by group",
         " with 95 % intervals (Wilson); right, cells; dotted: all groups together."}};
    flim_status status = FLIM_OK;
    fputs("<div class=\"plots\">\n", stream);
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == FLIM_OK; i++) {
        status = put_plot(stream, run, all[i].plot, all[i].title, all[i].caption, err);
        if (i == 1) {
            matrix_figure(stream, run);
        }
    }
    groups_table(stream, run);
    fputs("</div>\n", stream);
    return status;
}

/* ---- the page */

static void settings(FILE *stream, const report_run *run)
{
    static const char *const files[] = {"config.yaml", "environment.json"};
    fputs("<h3>Settings</h3>\n", stream);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[REPORT_PATH], *text = NULL;
        size_t count = 0;
        snprintf(path, sizeof path, "%.4000s/%s", run->folder, files[i]);
        if (flim_file_read(path, MOST_CONFIG, &text, &count, NULL) == FLIM_OK) {
            fprintf(stream, "<details open><summary>%s</summary><pre>", files[i]);
            html_put_text(stream, text);
            fputs("</pre></details>\n", stream);
            flim_free(text);
        }
    }
}

static flim_status run_section(FILE *stream, const report_run *run, const flim_report_options *options, flim_error *err)
{
    fputs("<h2>", stream);
    html_put_text(stream, run->folder);
    fprintf(stream, "</h2>\n<p class=\"about\">%d %s folds, %" PRId64 " cells tested", run->n_folds, report_mode(run),
            run->pool.n);
    if (run->groups) {
        fprintf(stream, " from %" PRId64 " groups", run->groups);
    }
    fprintf(stream, ", %d classes (", run->classes);
    for (int c = 0; c < run->classes; c++) {
        int64_t cells = 0;
        for (int d = 0; d < run->classes; d++) {
            cells += run->matrix[c * run->classes + d];
        }
        fputs(c ? ", " : "", stream);
        html_put_text(stream, run->class_name[c]);
        fprintf(stream, " %" PRId64, cells);
    }
    fputs(")</p>\n", stream);
    overview(stream, run);
    metrics_table(stream, run);
    flim_status status = figures(stream, run, err);
    against_table(stream, run);
    if (status == FLIM_OK) {
        status = html_put_gallery(stream, run, options, err);
    }
    settings(stream, run);
    return status;
}

/* A value with its interval, where there is one. */
static void put_estimate(FILE *stream, const report_run *run, flim_metric m)
{
    const double value = report_row_of(run, REPORT_POOLED)->value[m];
    const flim_interval *i = &run->interval[m];
    if (isnan(value)) {
        fputs("<td>n/a</td>", stream);
    } else if (isnan(i->low)) {
        fprintf(stream, "<td>%.3f</td>", value);
    } else {
        fprintf(stream, "<td>%.3f <small>(%.3f to %.3f)</small></td>", value, i->low, i->high);
    }
}

static void unpaired_table(FILE *stream, const report_comparison *c)
{
    char text[1024];
    report_explain_unpaired(c, text, sizeof text);
    fputs("<p class=\"warning\">", stream);
    html_put_text(stream, text);
    fputs("</p>\n", stream);
    if (!c->same_data) {
        return;
    }
    fputs("<table>\n<tr><th>metric, pooled</th><th>", stream);
    html_put_text(stream, c->a->label);
    fputs("</th><th>", stream);
    html_put_text(stream, c->b->label);
    fputs("</th></tr>\n", stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fprintf(stream, "<tr><td>%s</td>", flim_metric_name((flim_metric)m));
        put_estimate(stream, c->a, (flim_metric)m);
        put_estimate(stream, c->b, (flim_metric)m);
        fputs("</tr>\n", stream);
    }
    fputs("</table>\n", stream);
}

static void comparison_section(FILE *stream, const report_comparison *c)
{
    const report_pair *pair = &c->pair;
    fputs("<h2>", stream);
    html_put_text(stream, c->b->label);
    fputs(" against ", stream);
    html_put_text(stream, c->a->label);
    fputs("</h2>\n", stream);
    if (!pair->paired) {
        unpaired_table(stream, c);
        return;
    }
    fputs("<p class=\"about\">The same cells in the same folds. Differences are the second minus the first, their mean over "
          "folds; p: corrected resampled t-test (Nadeau and Bengio 2003), which allows for training parts that "
          "overlap.</p>\n<table>\n<tr><th>metric</th><th>",
          stream);
    html_put_text(stream, c->a->label);
    fputs("</th><th>", stream);
    html_put_text(stream, c->b->label);
    fputs("</th><th>mean difference by fold</th><th>p</th></tr>\n", stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fprintf(stream, "<tr><td>%s</td>", flim_metric_name((flim_metric)m));
        put_number(stream, report_row_of(c->a, REPORT_MEAN)->value[m]);
        put_number(stream, report_row_of(c->b, REPORT_MEAN)->value[m]);
        pair_cells(stream, &pair->fold_test[m]);
        fputs("</tr>\n", stream);
    }
    fprintf(stream, "</table>\n<p>Cells that only one of them gets right: %" PRId64 " in ", pair->only_a);
    html_put_text(stream, c->a->label);
    fprintf(stream, ", %" PRId64 " in ", pair->only_b);
    html_put_text(stream, c->b->label);
    fprintf(stream, " (McNemar's exact test, p = %.3g).</p>\n", pair->cell_test.p);
}

flim_status flim_report_write_html(const flim_report *report, const char *path, flim_error *err)
{
    flim_file_writer writer;
    flim_status status = flim_file_begin(&writer, path, err);
    if (status != FLIM_OK) {
        return status;
    }
    FILE *stream = writer.stream;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Cross-validation report: ", stream);
    html_put_text(stream, report->run[0].label);
    fprintf(stream,
            "</title>\n<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n%s</style>\n</head>\n<body>\n"
            "<h1>Cross-validation report</h1>\n",
            style);
    for (int i = 0; i + 1 < report->n_runs; i++) { /* what two runs are put side by side for comes first */
        comparison_section(stream, &report->comparison[i]);
    }
    for (int i = 0; i < report->n_runs && status == FLIM_OK; i++) {
        status = run_section(stream, &report->run[i], &report->options, err);
    }
    fprintf(stream,
            "<footer>Made by fold_metrics of flimcv %s from the predictions of the folds. Metrics as scikit-learn defines "
            "them.</footer>\n</body>\n</html>\n",
            flim_version());
    if (status != FLIM_OK) {
        flim_file_abandon(&writer);
        return status;
    }
    return flim_file_commit(&writer, err);
}

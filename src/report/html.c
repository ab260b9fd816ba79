/* The report as one self-contained HTML page: no script, no file beside it; pictures are embedded as data. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "report/parts.h"
#include "report/plots.h"

enum { GALLERY = 12, MOST_CONFIG = 1 << 20 };

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Cross-validation report</title>\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n"
    "body{font:15px/1.45 sans-serif;margin:2em auto;max-width:1320px;padding:0 1em;color:#222}\n"
    "table{border-collapse:collapse;margin:1em 0;font-size:12px}\n"
    "td,th{padding:3px 5px;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}\n"
    "td:first-child,th:first-child{text-align:left}\ntr.pooled td{font-weight:bold}\ntr.baseline td{color:#666}\n"
    ".wide{overflow-x:auto}\n.plots{display:flex;flex-wrap:wrap;gap:12px}\nfigure{margin:0;border:1px solid "
    "#eee;padding:6px}\n"
    "figcaption{font-size:13px;color:#555}\n.gallery figure{width:170px}\n.gallery img.cell{width:150px;height:150px;"
    "image-rendering:pixelated;object-fit:contain;background:#000}\n.matrix td{text-align:center;min-width:3.5em}\n"
    "pre{background:#f6f6f6;padding:1em;overflow-x:auto}\n.note{background:#fff6dd;padding:.4em .8em;margin:.3em "
    "0}\n</style>\n"
    "</head>\n<body>\n<h1>Cross-validation report</h1>\n";

static void put_text(FILE *stream, const char *text)
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

static void put_base64(FILE *stream, const unsigned char *bytes, size_t count)
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

/* ---- tables */

static void metrics_table(FILE *stream, const report_run *run)
{
    fputs("<div class=\"wide\"><table>\n<tr><th></th>", stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fprintf(stream, "<th>%s</th>", flim_metric_name((flim_metric)m));
    }
    fputs("</tr>\n", stream);
    for (int r = 0; r < run->n_rows; r++) {
        const report_row *row = &run->row[r];
        fprintf(stream, "<tr class=\"%s\"><td>%s",
                row->kind == REPORT_POOLED     ? "pooled"
                : row->kind == REPORT_BASELINE ? "baseline"
                                               : "",
                row->kind == REPORT_BASELINE ? "baseline: " : "");
        put_text(stream, row->name);
        if (row->fold) {
            fprintf(stream, " (%" PRId64 " cells, epoch %" PRId64 " of %" PRId64 ", threshold %.3f)", row->fold->n_test,
                    row->fold->best_epoch, row->fold->epochs, row->fold->threshold);
        }
        fputs("</td>", stream);
        for (int m = 0; m < FLIM_N_METRICS; m++) {
            put_number(stream, row->value[m]);
        }
        fputs("</tr>\n", stream);
    }
    fputs("</table></div>\n", stream);
    if (!isnan(run->delong.low)) {
        fprintf(stream, "<p>Pooled AUC %.3f, DeLong 95 %% interval %.3f to %.3f (cells taken as independent). ",
                run->delong_auc, run->delong.low, run->delong.high);
    }
    fprintf(stream, "Intervals in the table: bootstrap over %s.</p>\n", run->by_group ? "groups" : "cells");
}

static void matrix_table(FILE *stream, const report_run *run)
{
    fputs("<h3>Confusion, pooled</h3>\n<table class=\"matrix\">\n<tr><th>label \\ predicted</th>", stream);
    for (int c = 0; c < run->classes; c++) {
        fputs("<th>", stream);
        put_text(stream, run->class_name[c]);
        fputs("</th>", stream);
    }
    fputs("</tr>\n", stream);
    for (int c = 0; c < run->classes; c++) {
        int64_t total = 0;
        fputs("<tr><td>", stream);
        put_text(stream, run->class_name[c]);
        fputs("</td>", stream);
        for (int d = 0; d < run->classes; d++) {
            total += run->matrix[c * run->classes + d];
        }
        for (int d = 0; d < run->classes; d++) {
            int64_t n = run->matrix[c * run->classes + d];
            double share = total ? (double)n / (double)total : 0;
            fprintf(stream, "<td style=\"background:rgba(%s,%.2f)\">%" PRId64 "<br><small>%.0f %%</small></td>",
                    c == d ? "70,140,70" : "200,80,60", 0.6 * share, n, 100 * share);
        }
        fputs("</tr>\n", stream);
    }
    fputs("</table>\n", stream);
}

static void groups_table(FILE *stream, const report_run *run)
{
    if (run->pool.groups == 0) {
        return;
    }
    fputs("<h3>Groups</h3>\n<table>\n<tr><th>group</th><th>n</th><th>prevalence</th><th>accuracy</th><th>sensitivity</th>"
          "<th>specificity</th><th>AUC</th></tr>\n",
          stream);
    for (int64_t g = 0; g < run->pool.groups; g++) {
        const report_group *group = &run->group[g];
        fputs("<tr><td>", stream);
        put_text(stream, group->name);
        fprintf(stream, "</td><td>%" PRId64 "</td>", group->n);
        const double value[] = {group->prevalence, group->accuracy, group->sensitivity, group->specificity, group->auc};
        for (int i = 0; i < 5; i++) {
            put_number(stream, value[i]);
        }
        fputs("</tr>\n", stream);
    }
    fputs("</table>\n", stream);
}

/* ---- plots */

static flim_status put_plot(FILE *stream, const report_run *run,
                            flim_status (*plot)(const report_run *, report_svg *, flim_error *), const char *caption,
                            flim_error *err)
{
    report_svg svg;
    flim_status status = plot(run, &svg, err);
    if (status != FLIM_OK || !svg.text) {
        return status;
    }
    fprintf(stream, "<figure><img alt=\"%s\" src=\"data:image/svg+xml;base64,", caption);
    put_base64(stream, (const unsigned char *)svg.text, svg.bytes);
    fprintf(stream, "\"><figcaption>%s</figcaption></figure>\n", caption);
    flim_free(svg.text);
    return FLIM_OK;
}

static flim_status plots(FILE *stream, const report_run *run, flim_error *err)
{
    static const struct {
        flim_status (*plot)(const report_run *, report_svg *, flim_error *);
        const char *caption;
    } all[] = {{report_plot_learning, "Loss by epoch: training (dashed), inner validation (solid)"},
               {report_plot_roc, "ROC curves of the test parts"},
               {report_plot_precision_recall, "Precision and recall of the test parts"},
               {report_plot_calibration, "Calibration, pooled (bars: binomial standard error; numbers: cells)"},
               {report_plot_histogram, "Predicted probabilities by class, pooled"},
               {report_plot_groups, "Accuracy by group (numbers: cells)"}};
    flim_status status = FLIM_OK;
    fputs("<div class=\"plots\">\n", stream);
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == FLIM_OK; i++) {
        status = put_plot(stream, run, all[i].plot, all[i].caption, err);
    }
    fputs("</div>\n", stream);
    return status;
}

/* ---- gallery */

typedef struct mistake {
    int64_t at; /* in the pool */
    double probability; /* of the wrong class that was predicted */
} mistake;

static int surest_first(const void *a, const void *b)
{
    const mistake *x = a, *y = b;
    if (x->probability != y->probability) {
        return x->probability > y->probability ? -1 : 1;
    }
    return (x->at > y->at) - (x->at < y->at);
}

static void put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

/* Intensity (H,W) as a grey 24-bit bitmap, black = 0, white = the brightest pixel. */
static flim_status put_bitmap(FILE *stream, const report_picture *picture, flim_error *err)
{
    size_t row = ((size_t)picture->w * 3 + 3) / 4 * 4, pixels = row * (size_t)picture->h, size = 54 + pixels;
    unsigned char *bmp = flim_alloc(size, 1, err);
    if (!bmp) {
        return FLIM_ERROR_MEMORY;
    }
    double most = 0;
    for (int64_t i = 0; i < (int64_t)picture->h * picture->w; i++) {
        most = fmax(most, picture->intensity[i]);
    }
    bmp[0] = 'B';
    bmp[1] = 'M';
    put_u32(bmp + 2, (uint32_t)size);
    put_u32(bmp + 10, 54);
    put_u32(bmp + 14, 40);
    put_u32(bmp + 18, (uint32_t)picture->w);
    put_u32(bmp + 22, (uint32_t)picture->h);
    bmp[26] = 1;
    bmp[28] = 24;
    for (int y = 0; y < picture->h; y++) {
        for (int x = 0; x < picture->w; x++) {
            double value = picture->intensity[(int64_t)(picture->h - 1 - y) * picture->w + x]; /* rows from below */
            memset(bmp + 54 + (size_t)y * row + 3 * (size_t)x, most > 0 ? (int)(255 * value / most + 0.5) : 0, 3);
        }
    }
    fputs("<img class=\"cell\" alt=\"intensity\" src=\"data:image/bmp;base64,", stream);
    put_base64(stream, bmp, size);
    fputs("\">", stream);
    flim_free(bmp);
    return FLIM_OK;
}

static void put_decay(FILE *stream, const report_picture *picture)
{
    double most = 1;
    for (int t = 0; t < picture->t; t++) {
        most = fmax(most, picture->decay[t]);
    }
    fputs("<svg width=\"150\" height=\"60\" viewBox=\"0 0 150 60\"><polyline fill=\"none\" stroke=\"#246\" points=\"",
          stream);
    for (int t = 0; t < picture->t; t++) {
        fprintf(stream, "%.1f,%.1f ", 150.0 * t / (picture->t > 1 ? picture->t - 1 : 1), 58 - 56 * picture->decay[t] / most);
    }
    fputs("\"/></svg>", stream);
}

static flim_status put_mistakes(FILE *stream, const report_run *run, const mistake *list, int64_t n,
                                const report_picture *picture, bool pictures, flim_error *err)
{
    const report_pool *p = &run->pool;
    flim_status status = FLIM_OK;
    fprintf(stream, "<h3>Most confident errors</h3>\n%s<div class=\"plots gallery\">\n",
            n == 0 ? "<p>None.</p>" : "<p>Intensity image, and the decay summed over the mask.</p>\n");
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        int64_t at = list[i].at;
        fputs("<figure>", stream);
        if (pictures) {
            status = put_bitmap(stream, &picture[i], err);
            put_decay(stream, &picture[i]);
        }
        fputs("<figcaption>", stream);
        put_text(stream, p->name[at][0] ? p->name[at] : "cell");
        fprintf(stream, " (index %" PRId64 ", fold %d)<br>", p->cell[at], p->fold[at]);
        if (p->groups) {
            put_text(stream, p->group_name[p->group[at]]);
            fputs("<br>", stream);
        }
        fputs("is ", stream);
        put_text(stream, run->class_name[p->label[at]]);
        fputs(", predicted ", stream);
        put_text(stream, run->class_name[p->predicted[at]]);
        fprintf(stream, " (%.3f)</figcaption></figure>\n", list[i].probability);
    }
    fputs("</div>\n", stream);
    return status;
}

static flim_status gallery(FILE *stream, const report_run *run, const flim_report_options *options, flim_error *err)
{
    const report_pool *p = &run->pool;
    report_picture picture[GALLERY] = {{0}};
    int64_t cell[GALLERY], wrong = 0;
    bool found = false;
    mistake *list = flim_alloc((size_t)p->n, sizeof *list, err);
    double *probability = flim_alloc((size_t)p->n * (size_t)run->classes, sizeof *probability, err);
    flim_status status = list && probability ? FLIM_OK : FLIM_ERROR_MEMORY;
    if (status == FLIM_OK) {
        flim_probabilities(p->n, run->classes, p->logits, probability);
        for (int64_t i = 0; i < p->n; i++) {
            if (p->predicted[i] != p->label[i]) {
                list[wrong++] = (mistake){.at = i, .probability = probability[i * run->classes + p->predicted[i]]};
            }
        }
        qsort(list, (size_t)wrong, sizeof *list, surest_first);
        wrong = wrong < GALLERY ? wrong : GALLERY;
        for (int64_t i = 0; i < wrong; i++) {
            cell[i] = p->cell[list[i].at];
        }
        if (options->baselines && wrong > 0) {
            status = report_read_pictures(run, options, cell, wrong, picture, &found, err);
        }
    }
    if (status == FLIM_OK) {
        status = put_mistakes(stream, run, list, wrong, picture, found, err);
    }
    for (int i = 0; i < GALLERY; i++) {
        flim_free(picture[i].intensity);
        flim_free(picture[i].decay);
    }
    flim_free(list);
    flim_free(probability);
    return status;
}

/* ---- the page */

static void settings(FILE *stream, const report_run *run)
{
    static const char *const files[] = {"config.yaml", "environment.json"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[REPORT_PATH], *text = NULL;
        size_t count = 0;
        snprintf(path, sizeof path, "%.4000s/%s", run->folder, files[i]);
        if (flim_file_read(path, MOST_CONFIG, &text, &count, NULL) == FLIM_OK) {
            fprintf(stream, "<details%s><summary>%s</summary><pre>", i == 0 ? " open" : "", files[i]);
            put_text(stream, text);
            fputs("</pre></details>\n", stream);
            flim_free(text);
        }
    }
}

static flim_status run_section(FILE *stream, const report_run *run, const flim_report_options *options, flim_error *err)
{
    fputs("<h2>", stream);
    put_text(stream, run->folder);
    fprintf(stream, "</h2>\n<p>%s, %d folds, %" PRId64 " cells tested, %" PRId64 " groups, %d classes</p>\n",
            report_mode(run), run->n_folds, run->pool.n, run->pool.groups, run->classes);
    for (int i = 0; i < run->n_findings; i++) {
        fputs("<p class=\"note\">", stream);
        put_text(stream, run->finding[i]);
        fputs("</p>\n", stream);
    }
    metrics_table(stream, run);
    flim_status status = plots(stream, run, err);
    matrix_table(stream, run);
    groups_table(stream, run);
    if (status == FLIM_OK) {
        status = gallery(stream, run, options, err);
    }
    fputs("<h3>Settings</h3>\n", stream);
    settings(stream, run);
    return status;
}

static void comparison_section(FILE *stream, const report_comparison *c)
{
    fputs("<h2>", stream);
    put_text(stream, c->b->label);
    fputs(" against ", stream);
    put_text(stream, c->a->label);
    fputs("</h2>\n", stream);
    if (!c->same_splits) {
        fputs("<p class=\"note\">Not compared: the runs have other data or other test parts, so that their folds are no "
              "pairs.</p>\n",
              stream);
        return;
    }
    fputs("<table>\n<tr><th>metric</th><th>mean difference by fold</th><th>p (corrected resampled t-test)</th></tr>\n",
          stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fprintf(stream, "<tr><td>%s</td>", flim_metric_name((flim_metric)m));
        put_number(stream, c->fold_test[m].difference);
        put_number(stream, c->fold_test[m].p);
        fputs("</tr>\n", stream);
    }
    fprintf(stream,
            "</table>\n<p>Cells right in only one of them: %" PRId64 " in the first, %" PRId64
            " in the second (McNemar p = %.3g).</p>\n",
            c->only_a, c->only_b, c->cell_test.p);
}

flim_status flim_report_write_html(const flim_report *report, const char *path, flim_error *err)
{
    flim_file_writer writer;
    flim_status status = flim_file_begin(&writer, path, err);
    if (status != FLIM_OK) {
        return status;
    }
    fputs(head, writer.stream);
    for (int i = 0; i < report->n_runs && status == FLIM_OK; i++) {
        status = run_section(writer.stream, &report->run[i], &report->options, err);
    }
    for (int i = 0; i + 1 < report->n_runs; i++) {
        comparison_section(writer.stream, &report->comparison[i]);
    }
    fputs("</body>\n</html>\n", writer.stream);
    if (status != FLIM_OK) {
        flim_file_abandon(&writer);
        return status;
    }
    return flim_file_commit(&writer, err);
}

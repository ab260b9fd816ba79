/* The report as one self-contained HTML page: no script, no file beside it; pictures are embedded as data.  The page is made
 * of templates/page.html; here are the values that it is filled with. */
#include "report/html.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/text.h"
#include "core/try.h"
#include "flim/version.h"
#include "report/plots.h"
#include "report/templates.h"

enum { MOST_CONFIG = 1 << 20 };

/* ---- what matters, first */

static flim_json *card(const report_run *run, flim_metric m, const char *what)
{
    const double pooled = report_row_of(run, REPORT_POOLED)->value[m], mean = report_row_of(run, REPORT_MEAN)->value[m];
    flim_json *object = flim_json_object(), *folds = flim_json_object();
    flim_json_set_string(object, "what", what);
    flim_json_set_number(object, "pooled", pooled);
    flim_json_set_string(object, "undefined", isnan(pooled) ? flim_metric_undefined_reason(m) : NULL);
    html_set_interval(object, "interval", &run->interval[m]);
    flim_json_set_number(folds, "mean", mean);
    flim_json_set_number(folds, "sd", report_row_of(run, REPORT_SD1)->value[m]);
    flim_json_set_integer(folds, "used", run->used[m]);
    if (isnan(mean)) {
        flim_json_free(folds);
        flim_json_set_null(object, "folds");
    } else {
        flim_json_set(object, "folds", folds);
    }
    return object;
}

static void set_overview(flim_json *values, const report_run *run)
{
    flim_json *cards = flim_json_array(), *confounds = flim_json_array();
    flim_json *warnings = flim_json_array(), *notes = flim_json_array();
    flim_json_add(cards, card(run, FLIM_BALANCED_ACCURACY, "Balanced accuracy"));
    flim_json_add(cards, card(run, FLIM_ROC_AUC, "ROC AUC"));
    flim_json_add(cards, card(run, FLIM_ACCURACY, "Accuracy"));
    for (int r = 0; r < run->n_rows; r++) {
        const report_row *row = &run->row[r];
        if (row->kind == REPORT_BASELINE && row->baseline == FLIM_BASELINE_CONFOUNDS) {
            const bool no_auc = isnan(row->value[FLIM_ROC_AUC]);
            flim_json *object = flim_json_object();
            flim_json_set_number(object, "value", row->value[no_auc ? FLIM_BALANCED_ACCURACY : FLIM_ROC_AUC]);
            flim_json_set_string(object, "metric", no_auc ? "balanced accuracy" : "ROC AUC");
            flim_json_add(confounds, object);
        }
    }
    for (int level = FLIM_LOG_WARNING; level >= FLIM_LOG_INFO; level--) {
        for (int i = 0; i < run->n_findings; i++) {
            if ((int)run->finding[i].level == level) {
                flim_json_add_string(level == FLIM_LOG_WARNING ? warnings : notes, run->finding[i].text);
            }
        }
    }
    flim_json_set(values, "cards", cards);
    flim_json_set(values, "confounds", confounds);
    flim_json_set(values, "warnings", warnings);
    flim_json_set(values, "notes", notes);
}

/* ---- tables */

static flim_json *row_of(const report_row *row, bool first_baseline)
{
    flim_json *object = flim_json_object(), *numbers = flim_json_array();
    flim_json_set_bool(object, "first_baseline", first_baseline);
    flim_json_set_string(object, "style",
                         row->kind == REPORT_POOLED     ? "pooled part"
                         : row->kind == REPORT_MEAN     ? "part"
                         : row->kind == REPORT_BASELINE ? "baseline"
                                                        : "");
    flim_json_set_string(object, "name", row->name);
    if (row->fold) {
        flim_json *fold = flim_json_object();
        flim_json_set_integer(fold, "n_test", row->fold->n_test);
        flim_json_set_integer(fold, "best_epoch", row->fold->best_epoch);
        flim_json_set_integer(fold, "epochs", row->fold->epochs);
        flim_json_set_number(fold, "threshold", row->fold->threshold);
        flim_json_set(object, "fold", fold);
    } else {
        flim_json_set_null(object, "fold");
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        flim_json_add_number(numbers, row->value[m]);
    }
    flim_json_set(object, "values", numbers);
    return object;
}

static void set_metrics(flim_json *values, const report_run *run)
{
    flim_json *heads = flim_json_array(), *rows = flim_json_array();
    bool baselines = false;
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        char head[64];
        snprintf(head, sizeof head, "%s", flim_metric_name((flim_metric)m));
        for (char *at = head; (at = strchr(at, '_')) != NULL;) {
            *at = ' '; /* so that a heading may wrap */
        }
        flim_json_add_string(heads, head);
    }
    for (int r = 0; r < run->n_rows; r++) {
        const bool baseline = run->row[r].kind == REPORT_BASELINE;
        flim_json_add(rows, row_of(&run->row[r], baseline && !baselines));
        baselines = baselines || baseline;
    }
    flim_json_set(values, "heads", heads);
    flim_json_set(values, "rows", rows);
    flim_json_set_integer(values, "columns", FLIM_N_METRICS + (run->classes == 2 ? 4 : 3));
    flim_json_set_string(values, "resampled", run->by_group ? "groups" : "cells");
    html_set_interval(values, "delong", &run->delong);
}

static void set_against(flim_json *values, const report_run *run)
{
    flim_json *against = flim_json_object(), *baselines = flim_json_array();
    bool any = false;
    for (int b = FLIM_BASELINE_PRIOR + 1; b < FLIM_N_BASELINES; b++) {
        const report_pair *pair = &run->against[b];
        if (pair->paired) {
            const flim_paired_test *auc = &pair->fold_test[FLIM_ROC_AUC];
            const flim_paired_test *balanced = &pair->fold_test[FLIM_BALANCED_ACCURACY];
            flim_json *object = flim_json_object();
            flim_json_set_string(object, "name", flim_baseline_title(b));
            flim_json_set_number(object, "auc", auc->difference);
            html_set_p(object, "auc_p", auc->p);
            flim_json_set_number(object, "balanced", balanced->difference);
            html_set_p(object, "balanced_p", balanced->p);
            flim_json_set_integer(object, "only_network", pair->only_b);
            flim_json_set_integer(object, "only_baseline", pair->only_a);
            html_set_p(object, "cells_p", pair->cell_test.p);
            flim_json_add(baselines, object);
            any = true;
        }
    }
    flim_json_set(against, "baselines", baselines);
    if (any) {
        flim_json_set(values, "against", against);
    } else {
        flim_json_free(against);
        flim_json_set_null(values, "against");
    }
}

/* The classes with their cells, and the confusion matrix's row of each. */
static void set_classes(flim_json *values, const report_run *run)
{
    flim_json *classes = flim_json_array();
    for (int c = 0; c < run->classes; c++) {
        const int64_t *matrix = run->matrix + c * run->classes; /* (classes) */
        flim_json *class = flim_json_object(), *predicted = flim_json_array();
        int64_t total = 0;
        for (int d = 0; d < run->classes; d++) {
            total += matrix[d];
        }
        for (int d = 0; d < run->classes; d++) {
            const double share = total ? (double)matrix[d] / (double)total : 0;
            flim_json *field = flim_json_object();
            flim_json_set_bool(field, "right", c == d);
            flim_json_set_number(field, "shade", 0.5 * share);
            flim_json_set_integer(field, "cells", matrix[d]);
            flim_json_set_number(field, "percent", 100 * share);
            flim_json_add(predicted, field);
        }
        flim_json_set_string(class, "name", run->class_name[c]);
        flim_json_set_integer(class, "cells", total);
        flim_json_set(class, "predicted", predicted);
        flim_json_add(classes, class);
    }
    flim_json_set_integer(values, "n_classes", run->classes);
    flim_json_set_bool(values, "two", run->classes == 2);
    flim_json_set_string(values, "class_1", run->class_name[1]);
    flim_json_set(values, "classes", classes);
}

static void set_groups(flim_json *values, const report_run *run)
{
    flim_json *groups = flim_json_array();
    for (int64_t g = 0; g < run->groups; g++) {
        const report_group *group = &run->group[g];
        flim_json *object = flim_json_object();
        flim_json_set_string(object, "name", group->name);
        flim_json_set_integer(object, "cells", group->n);
        flim_json_set_number(object, "prevalence", group->prevalence);
        flim_json_set_number(object, "accuracy", group->accuracy);
        flim_json_set_number(object, "sensitivity", group->sensitivity);
        flim_json_set_number(object, "specificity", group->specificity);
        flim_json_set_number(object, "auc", group->auc);
        flim_json_add(groups, object);
    }
    if (run->groups) {
        flim_json_set_integer(values, "n_groups", run->groups);
    } else {
        flim_json_set_null(values, "n_groups");
    }
    flim_json_set(values, "groups", groups);
}

/* ---- plots and settings */

static flim_status set_plots(flim_json *values, const report_run *run, flim_error *err)
{
    const struct {
        const char *key;
        flim_status (*plot)(const report_run *, report_svg *, flim_error *);
    } plots[] = {{"roc", report_plot_roc},
                 {"precision_recall", report_plot_precision_recall},
                 {"calibration", report_plot_calibration},
                 {"histogram", report_plot_histogram},
                 {"learning", report_plot_learning},
                 {"group_accuracy", report_plot_groups}};
    for (size_t i = 0; i < sizeof plots / sizeof plots[0]; i++) {
        report_svg svg;
        FLIM_TRY(plots[i].plot(run, &svg, err));
        char *text = svg.text ? flim_base64(svg.text, svg.bytes, err) : NULL;
        const bool lost = svg.text && !text;
        flim_json_set_string(values, plots[i].key, text);
        flim_free(svg.text);
        flim_free(text);
        if (lost) {
            return FLIM_ERROR_MEMORY;
        }
    }
    return FLIM_OK;
}

static void set_settings(flim_json *values, const report_run *run)
{
    static const char *const files[] = {"config.yaml", "environment.json"};
    flim_json *settings = flim_json_array();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[REPORT_PATH], *text = NULL;
        size_t count = 0;
        snprintf(path, sizeof path, "%.4000s/%s", run->folder, files[i]);
        if (flim_file_read(path, MOST_CONFIG, &text, &count, NULL) == FLIM_OK) {
            flim_json *file = flim_json_object();
            flim_json_set_string(file, "file", files[i]);
            flim_json_set_string(file, "text", text);
            flim_json_add(settings, file);
            flim_free(text);
        }
    }
    flim_json_set(values, "settings", settings);
}

/* ---- the page */

static flim_status set_run(flim_json *values, const report_run *run, const flim_report_options *options, flim_error *err)
{
    flim_json_set_string(values, "folder", run->folder);
    flim_json_set_integer(values, "n_folds", run->n_folds);
    flim_json_set_string(values, "mode", report_mode(run));
    flim_json_set_integer(values, "n_cells", run->pool.n);
    set_classes(values, run);
    set_groups(values, run);
    set_overview(values, run);
    set_metrics(values, run);
    set_against(values, run);
    set_settings(values, run);
    FLIM_TRY(set_plots(values, run, err));
    return html_set_gallery(values, run, options, err);
}

/* Line ends and tabs are those of configs that the page shows. */
static void escape(FILE *stream, const char *text)
{
    while (*text) {
        uint32_t code = 0;
        const size_t length = flim_utf8_length(text, &code);
        switch (code) {
        case '<': fputs("&lt;", stream); break;
        case '>': fputs("&gt;", stream); break;
        case '&': fputs("&amp;", stream); break;
        case '"': fputs("&quot;", stream); break;
        case '\'': fputs("&#39;", stream); break;
        case '\n':
        case '\t': putc((int)code, stream); break;
        default:
            if (length && !flim_text_is_hidden(code)) {
                fwrite(text, 1, length, stream);
            } else {
                fprintf(stream, code > 0xff ? "\\u%04x" : "\\x%02x", length ? code : (unsigned char)*text);
            }
        }
        text += length ? length : 1;
    }
}

flim_status flim_report_write_html(const flim_report *report, const flim_output *output, flim_error *err)
{
    const flim_template_set set = {report_templates, report_templates_n, escape, "n/a"};
    flim_file_writer writer = {0};
    flim_status status = FLIM_OK;
    flim_json *page = flim_json_object(), *comparisons = flim_json_array(), *runs = flim_json_array();
    for (int i = 0; i + 1 < report->n_runs; i++) {
        flim_json_add(comparisons, html_comparison(&report->comparison[i]));
    }
    for (int i = 0; i < report->n_runs && status == FLIM_OK; i++) {
        flim_json *run = flim_json_object();
        status = set_run(run, &report->run[i], &report->options, err);
        flim_json_add(runs, run);
    }
    flim_json_set_string(page, "label", report->run[0].label);
    flim_json_set_string(page, "version", flim_version());
    flim_json_set(page, "comparisons", comparisons);
    flim_json_set(page, "runs", runs);
    FLIM_TRY_DONE(status);
    FLIM_TRY_DONE(flim_output_begin(output, &writer, err));
    FLIM_TRY_DONE(flim_template_write(&set, "page.html", page, writer.stream, err));
    status = flim_file_commit(&writer, err);
done:
    flim_file_abandon(&writer);
    flim_json_free(page);
    return status;
}

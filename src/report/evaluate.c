/* From a run's predictions to rows, groups and findings. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "cv/split_parts.h"
#include "flim/baseline.h"
#include "flim/json.h"
#include "report/parts.h"

const char *const report_baseline_names[REPORT_BASELINES] = {"class prior", "log photons, mask area, peak bin",
                                                             "summed decay"};

enum { CONFOUNDS = 1, DECAY = 2, FEW_GROUPS = 10, SHOWN = 5 };

const char *report_mode(const report_run *run)
{
    return flim_split_mode_name(run->splits.mode);
}

/* ---- pooled predictions */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Numbers the groups by their names; none where a cell has no group. */
static flim_status number_groups(report_pool *p, const char *const *group, flim_error *err)
{
    size_t n = (size_t)p->n;
    p->group_name = flim_alloc(n, sizeof *p->group_name, err);
    p->group = flim_alloc(n, sizeof *p->group, err);
    if (!p->group_name || !p->group) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        if (!group[i] || !group[i][0]) {
            return FLIM_OK;
        }
        p->group_name[i] = group[i];
    }
    qsort(p->group_name, n, sizeof *p->group_name, by_text);
    int64_t groups = 0;
    for (size_t i = 0; i < n; i++) {
        if (groups == 0 || strcmp(p->group_name[groups - 1], p->group_name[i]) != 0) {
            p->group_name[groups++] = p->group_name[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        const char **found = bsearch(&group[i], p->group_name, (size_t)groups, sizeof *p->group_name, by_text);
        p->group[i] = found - p->group_name;
    }
    p->groups = groups;
    return FLIM_OK;
}

static flim_status make_pool(report_run *run, flim_error *err)
{
    report_pool *p = &run->pool;
    p->classes = run->classes;
    for (int f = 0; f < run->n_folds; f++) {
        p->n += run->fold[f].predictions.n;
    }
    size_t n = (size_t)p->n, outputs = (size_t)run->fold[0].predictions.outputs;
    const char **group = flim_alloc(n, sizeof *group, err);
    p->cell = flim_alloc(n, sizeof *p->cell, err);
    p->fold = flim_alloc(n, sizeof *p->fold, err);
    p->label = flim_alloc(n, sizeof *p->label, err);
    p->predicted = flim_alloc(n, sizeof *p->predicted, err);
    p->logits = flim_alloc(n * outputs, sizeof *p->logits, err);
    p->name = flim_alloc(n, sizeof *p->name, err);
    flim_status status =
        group && p->cell && p->fold && p->label && p->predicted && p->logits && p->name ? FLIM_OK : FLIM_ERROR_MEMORY;
    size_t at = 0;
    for (int f = 0; f < run->n_folds && status == FLIM_OK; f++) {
        const flim_predictions *q = &run->fold[f].predictions;
        for (int64_t i = 0; i < q->n; i++, at++) {
            p->cell[at] = q->index[i];
            p->fold[at] = run->fold[f].k;
            p->label[at] = q->label[i];
            p->predicted[at] = q->predicted[i];
            p->name[at] = q->name[i];
            group[at] = q->group[i];
            memcpy(p->logits + at * outputs, q->logits + (size_t)i * outputs, outputs * sizeof *p->logits);
        }
    }
    if (status == FLIM_OK) {
        status = number_groups(p, group, err);
    }
    flim_free(group);
    return status;
}

/* ---- rows */

static report_row *add_row(report_run *run, report_kind kind, const char *name, const double value[FLIM_N_METRICS])
{
    report_row *row = &run->row[run->n_rows++];
    *row = (report_row){.kind = kind};
    snprintf(row->name, sizeof row->name, "%s", name);
    memcpy(row->value, value, sizeof row->value);
    return row;
}

static flim_status fold_rows(report_run *run, const flim_log *log, flim_error *err)
{
    int64_t differ = 0;
    for (int f = 0; f < run->n_folds; f++) {
        report_fold *fold = &run->fold[f];
        const flim_predictions *p = &fold->predictions;
        flim_status status =
            flim_metrics_of_decisions(p->n, p->classes, p->label, p->logits, p->predicted, &fold->metrics, err);
        if (status == FLIM_OK) {
            status = flim_metrics_compute(p->n, p->classes, p->label, p->logits, 0.5, &fold->at_half, err);
        }
        if (status != FLIM_OK) {
            return status;
        }
        bool has[2] = {false, false};
        for (int64_t i = 0; i < p->n; i++) {
            differ += p->predicted[i] != flim_predicted_class(p->classes, p->logits + i * p->outputs, fold->threshold);
            has[0] = has[0] || p->label[i] == 0;
            has[1] = has[1] || p->label[i] == 1;
        }
        if (run->classes == 2 && !has[1]) {
            report_find(
                run, log, FLIM_LOG_NOTE,
                "fold %d tests no cell of class '%s': its precision, recall and F1 are 0 by convention (zero_division=0) and "
                "lower the means",
                fold->k, run->class_name[1]);
        }
        char name[32];
        snprintf(name, sizeof name, "fold %d", fold->k);
        add_row(run, REPORT_FOLD, name, fold->metrics.value)->fold = fold;
    }
    if (differ) {
        report_find(run, log, FLIM_LOG_WARNING,
                    "%" PRId64 " cells in predictions.csv are not predicted as their logits and the fold's threshold say",
                    differ);
    }
    return FLIM_OK;
}

static flim_status spread_rows(report_run *run, const flim_log *log, flim_error *err)
{
    double mean[FLIM_N_METRICS], sd[FLIM_N_METRICS], sd0[FLIM_N_METRICS];
    double *value = flim_alloc((size_t)run->n_folds, sizeof *value, err);
    if (!value) {
        return FLIM_ERROR_MEMORY;
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        for (int f = 0; f < run->n_folds; f++) {
            value[f] = run->fold[f].metrics.value[m];
        }
        int used;
        flim_mean_sd(value, run->n_folds, &mean[m], &sd[m], &used);
        run->used[m] = used;
        sd0[m] = used == 1 ? 0 : sd[m] * sqrt((used - 1.0) / used);
        if (used < run->n_folds) {
            report_find(run, log, FLIM_LOG_NOTE, "%s: mean of %d of %d folds; undefined in the others (%s)",
                        flim_metric_name((flim_metric)m), used, run->n_folds, flim_metric_undefined_reason((flim_metric)m));
        }
    }
    add_row(run, REPORT_MEAN, "mean", mean);
    add_row(run, REPORT_SD1, "sd (ddof 1)", sd);
    add_row(run, REPORT_SD0, "sd (ddof 0)", sd0);
    flim_free(value);
    return FLIM_OK;
}

static flim_status delong_of_pool(report_run *run, flim_error *err)
{
    const report_pool *p = &run->pool;
    run->delong_auc = run->delong_se = NAN;
    run->delong = (flim_interval){NAN, NAN};
    if (run->classes != 2) {
        return FLIM_OK;
    }
    uint8_t *positive = flim_alloc((size_t)p->n, sizeof *positive, err);
    double *score = flim_alloc((size_t)p->n, sizeof *score, err);
    flim_status status = positive && score ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int64_t i = 0; status == FLIM_OK && i < p->n; i++) {
        positive[i] = p->label[i] == 1;
        score[i] = (double)p->logits[i];
    }
    if (status == FLIM_OK) {
        status = flim_delong(p->n, positive, score, 0.95, &run->delong_auc, &run->delong_se, &run->delong, err);
    }
    flim_free(positive);
    flim_free(score);
    return status;
}

static flim_status pooled_rows(report_run *run, const flim_report_options *options, flim_error *err)
{
    const report_pool *p = &run->pool;
    flim_metrics pooled;
    double low[FLIM_N_METRICS], high[FLIM_N_METRICS];
    flim_status status = flim_metrics_of_decisions(p->n, p->classes, p->label, p->logits, p->predicted, &pooled, err);
    if (status != FLIM_OK) {
        return status;
    }
    add_row(run, REPORT_POOLED, "pooled", pooled.value);
    run->by_group = p->groups > 1;
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        run->interval[m] = (flim_interval){NAN, NAN};
    }
    if (options->replicates > 0 && !isnan(pooled.value[FLIM_LOG_LOSS])) {
        int used[FLIM_N_METRICS];
        const flim_scored scored = {.n = p->n,
                                    .classes = p->classes,
                                    .label = p->label,
                                    .logits = p->logits,
                                    .predicted = p->predicted,
                                    .group = run->by_group ? p->group : NULL,
                                    .groups = p->groups};
        status = flim_bootstrap(&scored, options->replicates, 0.95, options->seed, run->interval, used, err);
        if (status == FLIM_OK && run->by_group && p->groups < FEW_GROUPS) {
            report_find(run, options->log, FLIM_LOG_NOTE,
                        "the bootstrap resamples %" PRId64
                        " groups: with so few, the intervals are rough and rather too narrow",
                        p->groups);
        }
        for (int m = 0; m < FLIM_N_METRICS; m++) {
            low[m] = run->interval[m].low;
            high[m] = run->interval[m].high;
        }
        add_row(run, REPORT_LOW, "95 % interval from", low);
        add_row(run, REPORT_HIGH, "95 % interval to", high);
    }
    return status == FLIM_OK ? delong_of_pool(run, err) : status;
}

/* ---- baselines */

static flim_status baseline_row(report_run *run, int b, const flim_split_data *data, const report_features *x,
                                flim_error *err)
{
    const report_pool *p = &run->pool;
    int outputs = run->classes == 2 ? 1 : run->classes;
    size_t cells = (size_t)run->splits.n * (size_t)outputs;
    flim_logistic_options options = {.ridge = 1, .balanced = b > 0};
    float *logits = flim_alloc(cells, sizeof *logits, err),
          *pooled = flim_alloc((size_t)(p->n * outputs), sizeof *pooled, err);
    int32_t *predicted = flim_alloc((size_t)run->splits.n, sizeof *predicted, err);
    int32_t *pooled_predicted = flim_alloc((size_t)p->n, sizeof *pooled_predicted, err);
    double *threshold = flim_alloc((size_t)run->splits.n_folds, sizeof *threshold, err);
    flim_status status = logits && pooled && predicted && pooled_predicted && threshold ? FLIM_OK : FLIM_ERROR_MEMORY;
    if (status == FLIM_OK) {
        status = flim_baseline_run(&run->splits, data, b == CONFOUNDS ? x->confounds : x->decay,
                                   b == 0           ? 0
                                   : b == CONFOUNDS ? 3
                                                    : x->t,
                                   &options, logits, predicted, threshold, err);
    }
    if (status == FLIM_OK) {
        flim_metrics metrics;
        for (int64_t i = 0; i < p->n; i++) {
            memcpy(pooled + i * outputs, logits + p->cell[i] * outputs, (size_t)outputs * sizeof *pooled);
            pooled_predicted[i] = predicted[p->cell[i]];
        }
        status = flim_metrics_of_decisions(p->n, run->classes, p->label, pooled, pooled_predicted, &metrics, err);
        if (status == FLIM_OK) {
            add_row(run, REPORT_BASELINE, report_baseline_names[b], metrics.value);
            run->baseline_logits[b] = logits;
            logits = NULL;
        }
    }
    flim_free(logits);
    flim_free(pooled);
    flim_free(predicted);
    flim_free(pooled_predicted);
    flim_free(threshold);
    return status;
}

/* The pooled metric that ranks models: AUC, or balanced accuracy where that is undefined. */
static flim_metric judge_by(const report_row *a, const report_row *b)
{
    return isnan(a->value[FLIM_ROC_AUC]) || isnan(b->value[FLIM_ROC_AUC]) ? FLIM_BALANCED_ACCURACY : FLIM_ROC_AUC;
}

/* Says so where brightness, size and peak bin alone come within the network's interval. */
static void judge_confounds(report_run *run, const report_row *pooled, const report_row *confounds, const flim_log *log)
{
    flim_metric m = judge_by(pooled, confounds);
    double chance = m == FLIM_ROC_AUC ? 0.5 : 1.0 / run->classes;
    double network = pooled->value[m], simple = confounds->value[m], low = run->interval[m].low;
    double reach = isnan(low) ? network - 0.02 : fmin(low, network - 0.02);
    if (simple >= reach && simple > chance + 0.1) {
        report_find(
            run, log, FLIM_LOG_WARNING,
            "brightness, cell size and peak bin alone reach a pooled %s of %.3f, the network %.3f: it shows nothing beyond "
            "them",
            flim_metric_name(m), simple, network);
    }
}

/* Says so where a logistic regression without any space does as well as the network. */
static void judge_decay(report_run *run, const report_row *pooled, const report_row *decay, const flim_log *log)
{
    flim_metric m = judge_by(pooled, decay);
    if (decay->value[m] >= pooled->value[m]) {
        report_find(run, log, FLIM_LOG_NOTE,
                    "logistic regression on the summed decay reaches a pooled %s of %.3f, no less than the network's %.3f",
                    flim_metric_name(m), decay->value[m], pooled->value[m]);
    }
}

static flim_status baseline_rows(report_run *run, const flim_report_options *options, flim_error *err)
{
    report_features x;
    bool found = false;
    if (!options->baselines) {
        return FLIM_OK;
    }
    flim_status status = report_read_features(run, options, &x, &found, err);
    if (status != FLIM_OK || !found) {
        return status;
    }
    const flim_split_data data = {.n = x.n, .classes = run->classes, .label = x.label};
    flim_split_set_complete(&run->splits, &data);
    int first = run->n_rows, pooled = 0;
    for (int b = 0; b < REPORT_BASELINES && status == FLIM_OK; b++) {
        status = baseline_row(run, b, &data, &x, err);
    }
    while (run->row[pooled].kind != REPORT_POOLED) {
        pooled++;
    }
    if (status == FLIM_OK) {
        judge_confounds(run, &run->row[pooled], &run->row[first + CONFOUNDS], options->log);
        judge_decay(run, &run->row[pooled], &run->row[first + DECAY], options->log);
    }
    report_free_features(&x);
    return status;
}

/* ---- groups */

static int worst_first(const void *a, const void *b)
{
    const report_group *x = a, *y = b;
    if (x->accuracy != y->accuracy) {
        return x->accuracy < y->accuracy ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static flim_status group_rows(report_run *run, flim_error *err)
{
    const report_pool *p = &run->pool;
    int outputs = run->classes == 2 ? 1 : run->classes;
    run->group = flim_alloc((size_t)p->groups, sizeof *run->group, err);
    int32_t *label = flim_alloc((size_t)p->n, sizeof *label, err),
            *predicted = flim_alloc((size_t)p->n, sizeof *predicted, err);
    float *logits = flim_alloc((size_t)(p->n * outputs), sizeof *logits, err);
    flim_status status = run->group && label && predicted && logits ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int64_t g = 0; g < p->groups && status == FLIM_OK; g++) {
        report_group *group = &run->group[g];
        flim_metrics m;
        int64_t n = 0, ones = 0;
        for (int64_t i = 0; i < p->n; i++) {
            if (p->group[i] == g) {
                label[n] = p->label[i];
                predicted[n] = p->predicted[i];
                memcpy(logits + n * outputs, p->logits + i * outputs, (size_t)outputs * sizeof *logits);
                ones += p->label[i] == 1;
                n++;
            }
        }
        status = flim_metrics_of_decisions(n, run->classes, label, logits, predicted, &m, err);
        *group = (report_group){.name = p->group_name[g],
                                .n = n,
                                .prevalence = NAN,
                                .accuracy = m.value[FLIM_ACCURACY],
                                .sensitivity = NAN,
                                .specificity = NAN,
                                .auc = m.value[FLIM_ROC_AUC]};
        if (run->classes == 2) {
            group->prevalence = (double)ones / (double)n;
            group->sensitivity = ones ? m.value[FLIM_RECALL] : NAN;
            group->specificity = ones < n ? m.value[FLIM_SPECIFICITY] : NAN;
        }
    }
    if (status == FLIM_OK) {
        qsort(run->group, (size_t)p->groups, sizeof *run->group, worst_first);
    }
    flim_free(label);
    flim_free(predicted);
    flim_free(logits);
    return status;
}

/* Groups tested in more than one fold stand in training and test parts at once. */
static flim_status find_shared_groups(report_run *run, const flim_log *log, flim_error *err)
{
    const report_pool *p = &run->pool;
    int *first = flim_alloc((size_t)p->groups, sizeof *first, err);
    bool *shared = flim_alloc((size_t)p->groups, sizeof *shared, err);
    if (!first || !shared) {
        flim_free(first);
        flim_free(shared);
        return FLIM_ERROR_MEMORY;
    }
    int64_t count = 0;
    for (int64_t i = 0; p->groups && i < p->n; i++) {
        int *f = &first[p->group[i]];
        if (*f && *f != p->fold[i] + 1 && !shared[p->group[i]]) {
            shared[p->group[i]] = true;
            count++;
        }
        *f = *f ? *f : p->fold[i] + 1;
    }
    if (count) {
        report_find(run, log, FLIM_LOG_WARNING,
                    "mode %s: %" PRId64 " of %" PRId64
                    " groups have cells in both the training and the test part of a fold; the scores "
                    "do not say how well a new group will do",
                    report_mode(run), count, p->groups);
    }
    flim_free(first);
    flim_free(shared);
    return FLIM_OK;
}

/* ---- summary.json */

typedef struct differences {
    int64_t count;
    char text[512];
} differences;

static void compare_value(differences *d, const char *where, flim_metric m, const flim_json *object, double value)
{
    double stored = NAN;
    const flim_json *item = flim_json_get(object, flim_metric_name(m));
    bool number = flim_json_number(item, &stored);
    bool same =
        number ? fabs(stored - value) <= 1e-9 * fmax(1, fabs(value)) : isnan(value) && item && flim_json_is_null(item);
    if (same) {
        return;
    }
    size_t used = strlen(d->text);
    if (d->count++ < SHOWN) {
        char text[32] = "none";
        if (number) {
            snprintf(text, sizeof text, "%.9g", stored);
        }
        snprintf(d->text + used, sizeof d->text - used, "%s%s %s %s, recomputed %.9g", used ? "; " : "", where,
                 flim_metric_name(m), text, value);
    }
}

static flim_status check_summary(report_run *run, const flim_log *log)
{
    char path[REPORT_PATH];
    flim_json *json = NULL;
    flim_error why = {0};
    differences d = {0};
    snprintf(path, sizeof path, "%.4000s/summary.json", run->folder);
    flim_status status = flim_json_read(path, &json, &why);
    if (status != FLIM_OK) {
        report_find(run, log, FLIM_LOG_WARNING, "summary.json cannot be compared: %s", why.text);
        return status == FLIM_ERROR_MEMORY ? status : FLIM_OK;
    }
    const flim_json *folds = flim_json_get(json, "folds");
    if (flim_json_length(folds) != (size_t)run->n_folds) {
        report_find(run, log, FLIM_LOG_WARNING, "summary.json holds %zu folds, %d are done", flim_json_length(folds),
                    run->n_folds);
    }
    for (int r = 0; r < run->n_rows; r++) {
        const report_row *row = &run->row[r];
        const flim_json *object = NULL;
        const char *where = row->kind == REPORT_MEAN      ? "mean"
                            : row->kind == REPORT_SD1     ? "sd"
                            : row->kind == REPORT_POOLED  ? "pooled"
                            : row->kind == REPORT_HOLDOUT ? "holdout"
                                                          : NULL;
        if (where) {
            object = flim_json_get(json, where);
        } else if (row->kind == REPORT_FOLD) {
            where = row->name;
            for (size_t i = 0; i < flim_json_length(folds); i++) {
                int64_t k = -1;
                if (flim_json_integer(flim_json_get(flim_json_at(folds, i), "fold"), &k) && k == row->fold->k) {
                    object = flim_json_get(flim_json_at(folds, i), "metrics");
                }
            }
        }
        for (int m = 0; where && m < FLIM_N_METRICS; m++) {
            compare_value(&d, where, (flim_metric)m, object, row->value[m]);
        }
    }
    if (d.count) {
        report_find(run, log, FLIM_LOG_WARNING, "summary.json disagrees with predictions.csv in %" PRId64 " numbers: %s%s",
                    d.count, d.text, d.count > SHOWN ? "; ..." : "");
    }
    flim_json_free(json);
    return FLIM_OK;
}

static flim_status holdout_row(report_run *run, flim_error *err)
{
    const flim_predictions *h = &run->holdout;
    flim_metrics metrics;
    if (h->n == 0) {
        return FLIM_OK;
    }
    for (int64_t i = 0; i < h->n; i++) {
        if (h->label[i] < 0 || h->classes != run->classes) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s/holdout_predictions.csv, row %" PRId64 ": no label, or another number of classes",
                             run->folder, i + 1);
        }
    }
    flim_status status = flim_metrics_of_decisions(h->n, h->classes, h->label, h->logits, h->predicted, &metrics, err);
    if (status == FLIM_OK) {
        add_row(run, REPORT_HOLDOUT, "holdout, fold ensemble", metrics.value);
    }
    return status;
}

flim_status report_evaluate(report_run *run, const flim_report_options *options, flim_error *err)
{
    const flim_log *log = options->log;
    run->row = flim_alloc((size_t)run->n_folds + 7 + REPORT_BASELINES, sizeof *run->row, err);
    run->matrix = flim_alloc((size_t)run->classes * (size_t)run->classes, sizeof *run->matrix, err);
    flim_status status = run->row && run->matrix ? make_pool(run, err) : FLIM_ERROR_MEMORY;
    for (int64_t i = 0; status == FLIM_OK && i < run->pool.n; i++) {
        run->matrix[run->pool.label[i] * run->classes + run->pool.predicted[i]]++;
    }
    if (status == FLIM_OK) {
        status = find_shared_groups(run, log, err);
    }
    if (status == FLIM_OK) {
        status = fold_rows(run, log, err);
    }
    if (status == FLIM_OK) {
        status = spread_rows(run, log, err);
    }
    if (status == FLIM_OK) {
        status = pooled_rows(run, options, err);
    }
    if (status == FLIM_OK) {
        status = holdout_row(run, err);
    }
    if (status == FLIM_OK) {
        status = check_summary(run, log);
    }
    if (status == FLIM_OK) {
        status = baseline_rows(run, options, err);
    }
    if (status == FLIM_OK) {
        status = group_rows(run, err);
    }
    return status == FLIM_OK && run->finding_failed ? flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory") : status;
}

/* The report: run folders with known predictions, whose numbers are computed again here. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/file.h"
#include "cv/baseline.h"
#include "flim/dataset.h"
#include "cv/metrics/interval.h"
#include "formats/json.h"
#include "flim/metrics.h"
#include "flim/predictions.h"
#include "flim/random.h"
#include "report/page/cells.h"
#include "report/report.h"
#include "results/baseline_results.h"
#include "flim/settings.h"
#include "flim/simulate.h"
#include "flim/split.h"

/* A path that any file may be replaced at. */
#define OUTPUT(file) ((flim_output){.path = (file), .kind = "a test's", .begins = ""})

enum { MOST = 400, TEXT = 1 << 16 };

/* ---- a log that remembers */

typedef struct lines {
    char text[TEXT];
} lines;

static void remember(void *context, flim_log_level level, const char *text)
{
    lines *l = context;
    size_t used = strlen(l->text);
    snprintf(l->text + used, sizeof l->text - used, "%s%s\n", level == FLIM_LOG_WARNING ? "warning: " : "", text);
}

/* ---- run folders as train_cv leaves them */

typedef struct fixture {
    char folder[512], data[600];
    int64_t n;
    int classes;
    int32_t label[MOST], predicted[MOST];
    float logit[MOST * 3]; /* (n,K') */
    int fold[MOST];
    int64_t group[MOST];
    flim_splits splits;
    double threshold[16];
} fixture;

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s", err->text);
    }
}

static flim_json *metrics_object(const flim_metrics *m)
{
    flim_json *object = flim_json_object();
    for (int i = 0; i < FLIM_N_METRICS; i++) {
        flim_json_set_number(object, flim_metric_name((flim_metric)i), m->value[i]);
    }
    return object;
}

/* fold_K: predictions, history, summary, DONE; *json gets the fold's entry of the run's summary. */
static void write_fold(fixture *f, int k, const flim_dataset_info *info, flim_metrics *metrics, flim_json **json)
{
    char path[700];
    flim_error err = {0};
    const flim_fold *part = &f->splits.fold[k];
    flim_predictions p;
    snprintf(path, sizeof path, "%s/fold_%d", f->folder, k);
    ok(flim_make_folder(path, &err), &err);
    ok(flim_predictions_create(part->n_test, f->classes, &p, &err), &err);
    f->threshold[k] = f->classes == 2 ? 0.4 + 0.05 * k : 0.5;
    for (int64_t i = 0; i < part->n_test; i++) {
        int64_t cell = part->test[i];
        p.index[i] = cell;
        p.name[i] = strdup(info->name ? info->name[cell] : "");
        p.group[i] = strdup(info->group_name[info->group[cell]]);
        p.label[i] = f->label[cell];
        memcpy(p.logits + i * p.outputs, f->logit + cell * p.outputs, (size_t)p.outputs * sizeof *p.logits);
        p.predicted[i] = f->predicted[cell] = flim_predicted_class(f->classes, f->logit + cell * p.outputs, f->threshold[k]);
        f->fold[cell] = k;
    }
    snprintf(path, sizeof path, "%s/fold_%d/predictions.csv", f->folder, k);
    ok(flim_predictions_write(&p, path, &err), &err);
    flim_metrics half;
    ok(flim_metrics_compute(p.n, f->classes, p.label, p.logits, f->threshold[k], metrics, &err), &err);
    ok(flim_metrics_compute(p.n, f->classes, p.label, p.logits, 0.5, &half, &err), &err);
    flim_predictions_free(&p);
    for (int copy = 0; copy < 2; copy++) {
        *json = flim_json_object();
        flim_json_set_integer(*json, "fold", k);
        flim_json_set_integer(*json, "n_train", part->n_train);
        flim_json_set_integer(*json, "n_val", part->n_val);
        flim_json_set_integer(*json, "n_test", part->n_test);
        flim_json_set_integer(*json, "epochs", 12);
        flim_json_set_integer(*json, "best_epoch", 7 + k);
        flim_json_set_number(*json, "threshold", f->threshold[k]);
        flim_json_set(*json, "metrics", metrics_object(metrics));
        flim_json_set(*json, "metrics_at_0.5", metrics_object(&half));
        if (copy == 0) {
            snprintf(path, sizeof path, "%s/fold_%d/summary.json", f->folder, k);
            ok(flim_json_write(*json, path, &err), &err);
            flim_json_free(*json);
        }
    }
    char history[2048] = "epoch,lr,train_loss,train_accuracy,val_loss,val_accuracy,val_balanced_accuracy,val_f1\n";
    for (int e = 1; e <= 12; e++) {
        size_t used = strlen(history);
        snprintf(history + used, sizeof history - used, "%d,0.001,%.4f,0.5,%.4f,0.5,%.4f,\n", e, 0.7 / e,
                 0.6 / e + 0.01 * e * k, 0.5 + 0.03 * e);
    }
    snprintf(path, sizeof path, "%s/fold_%d/history.csv", f->folder, k);
    ok(flim_file_write(path, history, strlen(history), &err), &err);
    snprintf(path, sizeof path, "%s/fold_%d/DONE", f->folder, k);
    ok(flim_file_write(path, "", 0, &err), &err);
}

/* baseline_*.csv, fitted here on the scan of the data: the prior, brightness and size, and the decay. */
static void write_baselines(const fixture *f, flim_dataset *dataset, const flim_split_data *data)
{
    static flim_cell_summary cell[MOST];
    static double decay[MOST * 16], confounds[MOST * 2], threshold[16];
    static float logits[MOST * 3];
    static int32_t predicted[MOST];
    static const char *const names[] = {"class_prior", "confounds", "decay"};
    const double *features[] = {NULL, confounds, decay};
    const int widths[] = {0, 2, 16};
    const flim_logistic_options options = {.ridge = 1, .balanced = true};
    const int outputs = f->classes == 2 ? 1 : f->classes;
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    flim_error err = {0};
    int64_t bad;
    ok(flim_dataset_scan(dataset, 2, NULL, NULL, cell, decay, &bad, &err), &err);
    for (int64_t i = 0; i < f->n; i++) {
        confounds[2 * i] = log1p(cell[i].photons);
        confounds[2 * i + 1] = (double)cell[i].mask_pixels;
    }
    for (int b = 0; b < 3; b++) {
        flim_predictions p;
        char path[700];
        int64_t at = 0;
        ok(flim_baseline_run(&f->splits, data, features[b], widths[b], &options, logits, predicted, threshold, &err), &err);
        ok(flim_predictions_create(f->n, f->classes, &p, &err), &err);
        for (int k = 0; k < f->splits.n_folds; k++) {
            for (int64_t i = 0; i < f->splits.fold[k].n_test; i++, at++) {
                int64_t c = p.index[at] = f->splits.fold[k].test[i];
                p.label[at] = info->label[c];
                p.predicted[at] = predicted[c];
                memcpy(p.logits + at * outputs, logits + c * outputs, (size_t)outputs * sizeof *logits);
            }
        }
        snprintf(path, sizeof path, "%s/baseline_%s.csv", f->folder, names[b]);
        ok(flim_predictions_write(&p, path, &err), &err);
        flim_predictions_free(&p);
    }
}

static void pooled_metrics(const fixture *f, flim_metrics *out)
{
    flim_error err = {0};
    ok(flim_metrics_of_decisions(f->n, f->classes, f->label, f->logit, f->predicted, out, &err), &err);
}

static void write_run_files(fixture *f, flim_metrics *metrics, flim_json **folds)
{
    char path[700];
    flim_error err = {0};
    double mean[FLIM_N_METRICS], sd[FLIM_N_METRICS];
    flim_metrics pooled, m = {0}, s = {0};
    flim_json *root = flim_json_object(), *list = flim_json_array();
    for (int k = 0; k < f->splits.n_folds; k++) {
        flim_json_add(list, folds[k]);
    }
    for (int i = 0; i < FLIM_N_METRICS; i++) {
        double value[16];
        int used;
        for (int k = 0; k < f->splits.n_folds; k++) {
            value[k] = metrics[k].value[i];
        }
        flim_mean_sd(value, f->splits.n_folds, &mean[i], &sd[i], &used);
        m.value[i] = mean[i];
        s.value[i] = sd[i];
    }
    pooled_metrics(f, &pooled);
    flim_json_set(root, "folds", list);
    flim_json_set(root, "mean", metrics_object(&m));
    flim_json_set(root, "sd", metrics_object(&s));
    flim_json_set(root, "pooled", metrics_object(&pooled));
    flim_json_set_null(root, "holdout");
    snprintf(path, sizeof path, "%s/summary.json", f->folder);
    ok(flim_json_write(root, path, &err), &err);
    flim_json_free(root);
    snprintf(path, sizeof path, "%s/splits.json", f->folder);
    ok(flim_splits_write(&f->splits, path, &err), &err);
    flim_settings settings;
    ok(flim_settings_init(&settings, &err), &err);
    flim_string_list_free(&settings.data);
    ok(flim_string_list_add(&settings.data, f->data, &err), &err);
    snprintf(path, sizeof path, "%s/config.yaml", f->folder);
    ok(flim_settings_write(&settings, path, &err), &err);
    flim_settings_free(&settings);
}

/* Data of `cells` simulated cells of 6 donors, split, and a finished run whose logits are unit noise from `seed` plus
 * `signal` towards the label. */
static void make_run_of(fixture *f, const char *name, int classes, int64_t cells, flim_confound confound,
                        flim_split_mode mode, double signal, uint64_t seed)
{
    flim_error err = {0};
    memset(f, 0, sizeof *f);
    f->classes = classes;
    snprintf(f->folder, sizeof f->folder, "%s/test_report_%s", FLIM_BINARY_DIR, name);
    snprintf(f->data, sizeof f->data, "%s.h5", f->folder);
    ok(flim_make_folder(f->folder, &err), &err);
    flim_simulate_options options = flim_simulate_defaults();
    options.cells = cells;
    options.classes = classes;
    options.bins = 16;
    options.height = options.width = 9;
    options.photons = 300;
    options.confound = confound;
    flim_simulation *simulation;
    ok(flim_simulation_create(&options, &simulation, &err), &err);
    unlink(f->data); /* of an earlier run */
    ok(flim_simulation_write(simulation, f->data, NULL, NULL, &err), &err);
    flim_simulation_destroy(simulation);
    flim_dataset *dataset;
    const char *paths[] = {f->data};
    ok(flim_dataset_open(paths, 1, &(flim_dataset_options){.need_labels = true}, &dataset, &err), &err);
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    f->n = info->n;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = seed}, FLIM_RANDOM_SIMULATE);
    for (int64_t i = 0; i < f->n; i++) {
        f->label[i] = info->label[i];
        f->group[i] = info->group[i];
        for (int c = 0; c < (classes == 2 ? 1 : classes); c++) {
            double towards = classes == 2 ? 2 * f->label[i] - 1 : f->label[i] == c;
            f->logit[i * (classes == 2 ? 1 : classes) + c] = (float)(signal * towards + flim_random_normal(&random));
        }
    }
    const flim_split_data data = {.n = info->n,
                                  .classes = info->classes,
                                  .label = info->label,
                                  .groups = info->groups,
                                  .group = info->group,
                                  .group_name = info->group_name,
                                  .name = info->name};
    const flim_split_request request = {.mode = mode, .folds = 3, .val_fraction = 0.15, .seed = 42};
    ok(flim_splits_make(&data, &request, &f->splits, &err), &err);
    flim_dataset_sha256(dataset, f->splits.sha256);
    flim_metrics metrics[16];
    flim_json *folds[16];
    for (int k = 0; k < f->splits.n_folds; k++) {
        write_fold(f, k, info, &metrics[k], &folds[k]);
    }
    write_baselines(f, dataset, &data);
    write_run_files(f, metrics, folds);
    flim_dataset_close(dataset);
}

static void make_run(fixture *f, const char *name, int64_t cells, flim_confound confound, flim_split_mode mode, double signal,
                     uint64_t seed)
{
    make_run_of(f, name, 2, cells, confound, mode, signal, seed);
}

static void free_run(fixture *f)
{
    flim_splits_free(&f->splits);
}

static flim_status report_of(const fixture *const *runs, int n, const flim_report_options *options, flim_report **out,
                             lines *warnings, flim_error *err)
{
    const char *folders[8];
    flim_report_options o = *options;
    flim_log log = {remember, warnings};
    warnings->text[0] = '\0';
    o.log = &log;
    for (int i = 0; i < n; i++) {
        folders[i] = runs[i]->folder;
    }
    return flim_report_create(folders, n, &o, out, err);
}

static double number_at(const flim_json *object, const char *key)
{
    double value = NAN;
    const flim_json *item = flim_json_get(object, key);
    assert_non_null(item);
    flim_json_number(item, &value);
    return value;
}

static const flim_json *run_of(const flim_json *root, size_t i)
{
    const flim_json *run = flim_json_at(flim_json_get(root, "runs"), i);
    assert_non_null(run);
    return run;
}

static flim_json *json_of(const flim_report *report)
{
    flim_error err = {0};
    flim_json *root;
    char path[600];
    snprintf(path, sizeof path, "%s/test_report.json", FLIM_BINARY_DIR);
    ok(flim_report_write_json(report, &OUTPUT(path), &err), &err);
    ok(flim_json_read(path, &root, &err), &err);
    return root;
}

static lines text, warnings;

static void numbers_come_from_the_predictions(void **state)
{
    (void)state;
    static fixture f;
    flim_error err = {0};
    flim_report *report;
    make_run(&f, "plain", 150, FLIM_CONFOUND_NONE, FLIM_SPLIT_STRATIFIED_GROUP, 0.8, 1);
    ok(report_of((const fixture *[]){&f}, 1, &(flim_report_options){.pictures = true, .replicates = 400, .seed = 1}, &report,
                 &warnings, &err),
       &err);
    assert_string_equal(warnings.text, "");
    flim_json *root = json_of(report);
    const flim_json *run = run_of(root, 0);
    flim_metrics pooled;
    pooled_metrics(&f, &pooled);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        const char *name = flim_metric_name((flim_metric)m);
        assert_true(fabs(number_at(flim_json_get(run, "pooled"), name) - pooled.value[m]) < 1e-12);
        const flim_json *interval = flim_json_get(flim_json_get(run, "interval_95"), name);
        double low = NAN, high = NAN;
        flim_json_number(flim_json_at(interval, 0), &low);
        flim_json_number(flim_json_at(interval, 1), &high);
        assert_true(low <= high);
        double of_fold[3], sum = 0, squares = 0;
        for (size_t k = 0; k < 3; k++) {
            of_fold[k] = number_at(flim_json_get(flim_json_at(flim_json_get(run, "folds"), k), "metrics"), name);
            sum += of_fold[k] / 3;
        }
        for (size_t k = 0; k < 3; k++) {
            squares += (of_fold[k] - sum) * (of_fold[k] - sum);
        }
        assert_true(fabs(number_at(flim_json_get(run, "mean"), name) - sum) < 1e-12);
        assert_true(fabs(number_at(flim_json_get(run, "sd"), name) - sqrt(squares / 2)) < 1e-12);
        assert_true(fabs(number_at(flim_json_get(run, "sd_ddof0"), name) - sqrt(squares / 3)) < 1e-12);
    }
    assert_true(fabs(number_at(flim_json_get(run, "delong"), "roc_auc") - pooled.value[FLIM_ROC_AUC]) < 1e-12);
    /* groups: every donor, its share of class 1 and accuracy */
    const flim_json *groups = flim_json_get(run, "groups");
    assert_int_equal(flim_json_length(groups), 6);
    double worst = -1;
    for (size_t i = 0; i < 6; i++) {
        const flim_json *group = flim_json_at(groups, i);
        double n = 0, ones = 0, right = 0;
        int64_t number = strtol(strpbrk(flim_json_string(flim_json_get(group, "group")), "0123456789"), NULL, 10);
        for (int64_t c = 0; c < f.n; c++) {
            if (f.group[c] == number - 1) {
                n++;
                ones += f.label[c];
                right += f.label[c] == f.predicted[c];
            }
        }
        assert_true(number_at(group, "n") == n && fabs(number_at(group, "prevalence") - ones / n) < 1e-12);
        assert_true(fabs(number_at(group, "accuracy") - right / n) < 1e-12);
        assert_true(number_at(group, "accuracy") >= worst);
        worst = number_at(group, "accuracy");
    }
    /* baselines: all three; without a confound brightness and size say little */
    const flim_json *baselines = flim_json_get(run, "baselines");
    assert_true(number_at(flim_json_get(baselines, "class_prior"), "balanced_accuracy") == 0.5);
    assert_true(number_at(flim_json_get(baselines, "confounds"), "balanced_accuracy") < 0.72);
    assert_true(number_at(flim_json_get(baselines, "decay"), "roc_auc") > 0.5);
    /* confusion: the number of cells */
    double cells = 0;
    for (size_t c = 0; c < 4; c++) {
        double value = 0;
        flim_json_number(flim_json_at(flim_json_at(flim_json_get(run, "confusion"), c / 2), c % 2), &value);
        cells += value;
    }
    assert_true(cells == (double)f.n);
    flim_json_free(root);

    text.text[0] = '\0';
    flim_log log = {remember, &text};
    ok(flim_report_print(report, 0, &log, &err), &err);
    static const char *const expected[] = {"fold 0 (50 cells, best epoch 7)",
                                           "sd (ddof 1)",
                                           "sd (ddof 0)",
                                           "95 % CI lower",
                                           "mean, threshold 0.5",
                                           "pooled, threshold 0.5",
                                           "network against baseline",
                                           "class prior",
                                           "groups, worst first",
                                           "bootstrap over groups",
                                           "DeLong 95 %",
                                           "with so few, the intervals are rough"};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        if (!strstr(text.text, expected[i])) {
            fail_msg("the table does not say '%s':\n%s", expected[i], text.text);
        }
    }
    flim_report_destroy(report);
    free_run(&f);
}

static char *file_text(const char *path)
{
    char *bytes = NULL;
    size_t count;
    flim_error err = {0};
    ok(flim_file_read(path, 1 << 26, &bytes, &count, &err), &err);
    char *copy = strdup(bytes);
    assert_non_null(copy);
    flim_free(bytes);
    return copy;
}

static void replace_in(const char *path, const char *from, const char *to)
{
    char *bytes = file_text(path), *at = strstr(bytes, from);
    assert_non_null(at);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fwrite(bytes, 1, (size_t)(at - bytes), stream);
    fprintf(stream, "%s%s", to, at + strlen(from));
    fclose(stream);
    free(bytes);
}

static void what_is_wrong_with_a_run_is_said(void **state)
{
    (void)state;
    static fixture f;
    flim_error err = {0};
    flim_report *report;
    const fixture *runs[] = {&f};
    const flim_report_options options = {.replicates = 0};
    char path[700];
    make_run(&f, "broken", 90, FLIM_CONFOUND_NONE, FLIM_SPLIT_STRATIFIED, 1, 2);
    ok(report_of(runs, 1, &options, &report, &warnings, &err), &err);
    assert_non_null(strstr(warnings.text, "mode stratified: 6 of 6 groups have cells in both training and test set"));
    flim_report_destroy(report);

    /* a number in summary.json that the predictions do not bear out */
    snprintf(path, sizeof path, "%s/summary.json", f.folder);
    char *summary = file_text(path), *pooled = strstr(summary, "\"pooled\"");
    assert_non_null(pooled);
    char *value = strstr(pooled, "\"accuracy\": ");
    assert_non_null(value);
    char *mutable = strdup(summary);
    memcpy(mutable + (value - summary), "\"accuracy\": 9", 13);
    ok(flim_file_write(path, mutable, strlen(mutable), &err), &err);
    free(mutable);
    ok(report_of(runs, 1, &options, &report, &warnings, &err), &err);
    assert_non_null(strstr(warnings.text, "summary.json disagrees with predictions.csv in 1 numbers: pooled accuracy 9"));
    flim_report_destroy(report);
    ok(flim_file_write(path, summary, strlen(summary), &err), &err);
    free(summary);

    /* a predicted class against its threshold */
    snprintf(path, sizeof path, "%s/fold_1/predictions.csv", f.folder);
    int64_t cell = f.splits.fold[1].test[0];
    char from[32], to[32];
    snprintf(from, sizeof from, ",%d,%d,", f.label[cell], f.predicted[cell]);
    snprintf(to, sizeof to, ",%d,%d,", f.label[cell], 1 - f.predicted[cell]);
    char *original = file_text(path);
    replace_in(path, from, to);
    ok(report_of(runs, 1, &options, &report, &warnings, &err), &err);
    assert_non_null(strstr(warnings.text, "1 cell in predictions.csv with a class that is not that of the logits"));
    assert_non_null(strstr(warnings.text, "summary.json disagrees"));
    flim_report_destroy(report);

    /* predictions of other cells than the fold's */
    snprintf(from, sizeof from, "\n%" PRId64 ",", cell);
    snprintf(to, sizeof to, "\n%d,", f.splits.fold[1].train[0] < cell ? (int)f.splits.fold[1].train[0] : (int)cell + 1000);
    replace_in(path, from, to);
    assert_int_equal(report_of(runs, 1, &options, &report, &warnings, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "fold_1/predictions.csv, row 1"));
    assert_null(report);
    ok(flim_file_write(path, original, strlen(original), &err), &err);
    free(original);

    /* a fold that is not done; a folder that is no run */
    snprintf(path, sizeof path, "%s/fold_2/DONE", f.folder);
    unlink(path);
    ok(report_of(runs, 1, &options, &report, &warnings, &err), &err);
    assert_non_null(strstr(warnings.text, "2 of 3 folds are done; missing: 2"));
    assert_non_null(strstr(warnings.text, "summary.json has 3 folds, 2 are done"));
    flim_report_destroy(report);
    snprintf(f.folder, sizeof f.folder, "%s/no_such_run", FLIM_BINARY_DIR);
    assert_int_equal(report_of(runs, 1, &options, &report, &warnings, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "/no_such_run: No such file or directory"));
    snprintf(f.folder, sizeof f.folder, "%s", FLIM_BINARY_DIR);
    assert_int_equal(report_of(runs, 1, &options, &report, &warnings, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "is not a run folder: it has no splits.json"));
    free_run(&f);
}

/* A fold that tests one class only: said, with the conventions, and left out of what is then undefined. */
static void absent_classes_are_named(void **state)
{
    (void)state;
    static fixture f;
    flim_error err = {0};
    char path[700];
    make_run(&f, "absent", 90, FLIM_CONFOUND_NONE, FLIM_SPLIT_STRATIFIED_GROUP, 1, 9);
    snprintf(path, sizeof path, "%s/fold_1/predictions.csv", f.folder);
    for (int only = 0; only < 2; only++) {
        static const char *const says[][2] = {
            {"fold 1 tests no cell of class '1': its balanced accuracy is of 1 of 2 classes",
             "precision and F1 are 0 by convention"},
            {"fold 1 tests no cell of class '0': its balanced accuracy is of 1 of 2 classes", "specificity is undefined"}};
        flim_report *report;
        flim_predictions p;
        ok(flim_predictions_read(path, &p, &err), &err);
        for (int64_t i = 0; i < p.n; i++) {
            p.label[i] = only;
        }
        ok(flim_predictions_write(&p, path, &err), &err);
        flim_predictions_free(&p);
        ok(report_of((const fixture *[]){&f}, 1, &(flim_report_options){0}, &report, &warnings, &err), &err);
        text.text[0] = '\0';
        flim_log log = {remember, &text};
        ok(flim_report_print(report, 0, &log, &err), &err);
        /* What is undefined is so in every form. */
        flim_status (*const write[])(const flim_report *, const flim_output *, flim_error *) = {
            flim_report_write_csv, flim_report_write_json, flim_report_write_markdown};
        for (int i = 0; i < 3; i++) {
            char out[700];
            snprintf(out, sizeof out, "%s/test_report_absent.out", FLIM_BINARY_DIR);
            ok(write[i](report, &OUTPUT(out), &err), &err);
            char *bytes = file_text(out);
            if (strcasestr(bytes, "nan") || strstr(bytes, "inf,")) {
                fail_msg("form %d holds a nan: %.300s", i, strcasestr(bytes, "nan"));
            }
            assert_true(i != 2 || strstr(bytes, " n/a |"));
            flim_free(bytes);
        }
        assert_null(strstr(text.text, " nan"));
        for (int i = 0; i < 2; i++) {
            if (!strstr(text.text, says[only][i])) {
                fail_msg("'%s' is not in: %s", says[only][i], text.text);
            }
        }
        assert_non_null(strstr(text.text, "ROC AUC: mean of 2 of 3 folds; undefined in the others"));
        assert_non_null(strstr(warnings.text, "has other cells or labels")); /* the baselines' files have the old labels */
        flim_report_destroy(report);
    }
    free_run(&f);
}

static int count_of(const char *bytes, const char *what);

static void confounds_are_named(void **state)
{
    (void)state;
    static fixture f;
    flim_error err = {0};
    flim_report *report;
    make_run(&f, "confounded", 180, FLIM_CONFOUND_BRIGHTNESS, FLIM_SPLIT_STRATIFIED, 0.7, 3);
    ok(report_of((const fixture *[]){&f}, 1, &(flim_report_options){.pictures = true, .replicates = 200}, &report, &warnings,
                 &err),
       &err);
    flim_json *root = json_of(report);
    double auc = number_at(flim_json_get(flim_json_get(run_of(root, 0), "baselines"), "confounds"), "roc_auc");
    assert_true(auc > 0.75);
    if (!strstr(warnings.text, "brightness, cell size and peak bin alone reach a pooled ROC AUC of ")) {
        fail_msg("baseline AUC %.3f, but: %s", auc, warnings.text);
    }
    flim_json_free(root);
    flim_report_destroy(report);

    /* the page: a card, a warning, a curve beside the network's; data that is gone is said in place of pictures */
    char path[700];
    bool gnuplot = system("gnuplot --version >/dev/null 2>&1") == 0;
    for (int gone = 0; gone < 2 && gnuplot; gone++) {
        snprintf(path, sizeof path, "%s/test_report_confounded.html", FLIM_BINARY_DIR);
        ok(report_of((const fixture *[]){&f}, 1, &(flim_report_options){.pictures = true}, &report, &warnings, &err), &err);
        ok(flim_report_write_html(report, &OUTPUT(path), &err), &err);
        char *bytes = file_text(path);
        assert_non_null(strstr(bytes, "Simple model: brightness, size, peak bin"));
        assert_int_equal(count_of(bytes, "<p class=\"headline"), 1);
        assert_true((strstr(bytes, "The network is better than the best simple model, ") != NULL) !=
                    (strstr(bytes, "<p class=\"headline warning\">") != NULL));
        assert_non_null(strstr(bytes, "class=\"warning\">brightness, cell size and peak bin alone reach"));
        assert_true((strstr(bytes, "No pictures: ") != NULL) == gone && (strstr(bytes, "data:image/png") != NULL) == !gone);
        free(bytes);
        flim_report_destroy(report);
        unlink(f.data);
    }

    /* no baselines, or those of other cells: said, with what to do */
    for (int absent = 0; absent < 2; absent++) {
        snprintf(path, sizeof path, "%s/baseline_confounds.csv", f.folder);
        if (absent) {
            unlink(path);
        } else {
            char *lines_of = file_text(path), *last = strrchr(lines_of, '\n');
            *last = '\0';
            *(strrchr(lines_of, '\n') + 1) = '\0'; /* without its last cell */
            ok(flim_file_write(path, lines_of, strlen(lines_of), &err), &err);
            free(lines_of);
        }
        ok(report_of((const fixture *[]){&f}, 1, &(flim_report_options){0}, &report, &warnings, &err), &err);
        assert_non_null(strstr(warnings.text, "no baseline 'brightness, size, peak bin': "));
        assert_non_null(strstr(warnings.text, absent ? "there is no " : "has other cells or labels than the finished folds"));
        assert_non_null(strstr(warnings.text, "train_cv --resume --out "));
        flim_report_destroy(report);
    }
    free_run(&f);
}

static void runs_are_compared_in_pairs(void **state)
{
    (void)state;
    static fixture a, b, c;
    flim_error err = {0};
    flim_report *report;
    make_run(&a, "a", 150, FLIM_CONFOUND_NONE, FLIM_SPLIT_STRATIFIED_GROUP, 0.3, 4);
    make_run(&b, "b", 150, FLIM_CONFOUND_NONE, FLIM_SPLIT_STRATIFIED_GROUP, 2.0, 5);
    make_run(&c, "c", 150, FLIM_CONFOUND_NONE, FLIM_SPLIT_STRATIFIED, 2.0, 5);
    ok(report_of((const fixture *[]){&a, &b, &c}, 3, &(flim_report_options){0}, &report, &warnings, &err), &err);
    flim_json *root = json_of(report);
    const flim_json *pairs = flim_json_get(root, "comparisons"), *ab = flim_json_at(pairs, 0), *ac = flim_json_at(pairs, 1);
    assert_int_equal(flim_json_length(pairs), 2);
    int64_t only_a = 0, only_b = 0;
    double value_a[3], value_b[3], test = 0, train = 0;
    for (int64_t i = 0; i < a.n; i++) {
        bool right_a = a.label[i] == a.predicted[i], right_b = b.label[i] == b.predicted[i];
        only_a += right_a && !right_b;
        only_b += right_b && !right_a;
    }
    assert_true(number_at(flim_json_get(ab, "mcnemar"), "right_only_in_a") == (double)only_a);
    assert_true(number_at(flim_json_get(ab, "mcnemar"), "right_only_in_b") == (double)only_b);
    assert_true(number_at(flim_json_get(ab, "mcnemar"), "p") == flim_mcnemar(only_a, only_b).p);
    for (size_t k = 0; k < 3; k++) {
        value_a[k] =
            number_at(flim_json_get(flim_json_at(flim_json_get(run_of(root, 0), "folds"), k), "metrics"), "accuracy");
        value_b[k] =
            number_at(flim_json_get(flim_json_at(flim_json_get(run_of(root, 1), "folds"), k), "metrics"), "accuracy");
        test += (double)a.splits.fold[k].n_test;
        train += (double)a.splits.fold[k].n_train;
    }
    flim_paired_test want = flim_corrected_t_test(value_a, value_b, 3, test / train);
    const flim_json *t = flim_json_get(flim_json_get(ab, "corrected_t_test"), "accuracy");
    assert_true(want.difference > 0.1 && fabs(number_at(t, "difference") - want.difference) < 1e-12);
    assert_true(fabs(number_at(t, "p") - want.p) < 1e-12);
    bool same = true;
    assert_true(flim_json_boolean(flim_json_get(ac, "same_splits"), &same) && !same);
    flim_json_free(root);
    text.text[0] = '\0';
    flim_log log = {remember, &text};
    ok(flim_report_print(report, 0, &log, &err), &err);
    assert_non_null(strstr(text.text, "test_report_b against test_report_a"));
    assert_non_null(
        strstr(text.text, "The same cells, but split otherwise (test_report_a: stratified-group, test_report_c: "));
    assert_non_null(strstr(text.text,
                           "test_report_c has learned from cells of the groups that it is tested on, test_report_a has not: "
                           "only test_report_a estimates performance on unseen groups (donors)."));
    flim_report_destroy(report);
    free_run(&a);
    free_run(&b);
    free_run(&c);
}

static void tables_are_written(void **state)
{
    (void)state;
    static fixture f;
    flim_error err = {0};
    flim_report *report;
    char path[600];
    make_run(&f, "tables", 90, FLIM_CONFOUND_NONE, FLIM_SPLIT_LEAVE_ONE_GROUP_OUT, 1, 6);
    ok(report_of((const fixture *[]){&f}, 1, &(flim_report_options){.pictures = true, .replicates = 100}, &report, &warnings,
                 &err),
       &err);
    snprintf(path, sizeof path, "%s/test_report.csv", FLIM_BINARY_DIR);
    ok(flim_report_write_csv(report, &OUTPUT(path), &err), &err);
    char *bytes = file_text(path);
    int commas = 0, lines_seen = 0, of_line = 0;
    for (char *at = bytes; *at; at++) {
        of_line += *at == ',';
        if (*at == '\n') {
            commas = lines_seen ? commas : of_line;
            assert_true(of_line == commas || strstr(bytes, "\"brightness, size, peak bin\""));
            of_line = 0;
            lines_seen++;
        }
    }
    assert_int_equal(lines_seen, 1 + 6 + 4 + 4 + 3); /* header, folds, mean and sds, pooled and interval, baselines */
    assert_non_null(strstr(bytes, "run,row,n_train,n_val,n_test,epochs,best_epoch,threshold,accuracy,"));
    assert_null(strstr(bytes, "nan"));
    free(bytes);
    snprintf(path, sizeof path, "%s/test_report.md", FLIM_BINARY_DIR);
    ok(flim_report_write_markdown(report, &OUTPUT(path), &err), &err);
    bytes = file_text(path);
    assert_non_null(strstr(bytes, "| baseline: class prior |"));
    assert_non_null(strstr(bytes, "Network against brightness, size, peak bin: "));
    assert_non_null(strstr(bytes, "| group | n | prevalence |"));
    free(bytes);
    assert_int_equal(flim_report_write_csv(report, &OUTPUT("/no/such/folder/x.csv"), &err), FLIM_ERROR_WRITE);
    flim_report_destroy(report);
    free_run(&f);
}

static void three_classes(void **state)
{
    (void)state;
    static fixture f;
    flim_error err = {0};
    flim_report *report;
    make_run_of(&f, "three", 3, 120, FLIM_CONFOUND_NONE, FLIM_SPLIT_STRATIFIED_GROUP, 1, 8);
    ok(report_of((const fixture *[]){&f}, 1, &(flim_report_options){.pictures = true, .replicates = 100}, &report, &warnings,
                 &err),
       &err);
    flim_json *root = json_of(report);
    const flim_json *run = run_of(root, 0);
    flim_metrics pooled;
    pooled_metrics(&f, &pooled);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        const char *name = flim_metric_name((flim_metric)m);
        assert_true(fabs(number_at(flim_json_get(run, "pooled"), name) - pooled.value[m]) < 1e-12);
        assert_true(number_at(flim_json_get(flim_json_get(run, "baselines"), "decay"), name) >= -1);
    }
    assert_true(flim_json_is_null(flim_json_get(flim_json_get(run, "delong"), "roc_auc"))); /* of two classes only */
    assert_true(flim_json_is_null(flim_json_get(flim_json_at(flim_json_get(run, "groups"), 0), "sensitivity")));
    flim_json_free(root);
    text.text[0] = '\0';
    flim_log log = {remember, &text};
    ok(flim_report_print(report, 0, &log, &err), &err);
    assert_non_null(strstr(text.text, "classes 3"));
    assert_null(strstr(text.text, "threshold"));
    if (system("gnuplot --version >/dev/null 2>&1") == 0) {
        char path[600];
        snprintf(path, sizeof path, "%s/test_report_three.html", FLIM_BINARY_DIR);
        ok(flim_report_write_html(report, &OUTPUT(path), &err), &err);
        char *bytes = file_text(path);
        assert_int_equal(count_of(bytes, "data:image/svg+xml;base64,"), 10);
        assert_null(strstr(bytes, "<th>threshold</th>"));
        free(bytes);
    }
    flim_report_destroy(report);
    free_run(&f);
}

static int count_of(const char *bytes, const char *what)
{
    int n = 0;
    for (const char *at = strstr(bytes, what); at; at = strstr(at + 1, what)) {
        n++;
    }
    return n;
}

/* Pooled AUC decides, balanced accuracy where one has none; what is undefined suffices for nothing. */
static void a_decay_that_does_as_well_is_said(void **state)
{
    (void)state;
    static const struct {
        double network_auc, decay_auc, network_balanced, decay_balanced;
        const char *said; /* NULL = nothing */
    } cases[] = {{0.8, 0.7, 0.5, 0.9, NULL},
                 {0.8, 0.8, 0.9, 0.5, "pooled ROC AUC 0.800, the network 0.800"},
                 {0.4, 0.6, 0.9, 0.5, "pooled ROC AUC 0.600, the network 0.400"},
                 {NAN, 0.9, 0.7, 0.6, NULL},
                 {NAN, 0.1, 0.6, 0.7, "pooled balanced accuracy 0.700, the network 0.600"},
                 {0.9, NAN, 0.6, 0.7, "pooled balanced accuracy 0.700, the network 0.600"},
                 {0.9, 0.94, 0, 0, "does as well as the network: pooled ROC AUC 0.940, the network 0.900"},
                 {0.6, 0.9, 0, 0, "does better than the network: pooled ROC AUC 0.900, the network 0.600"},
                 {NAN, NAN, NAN, 0.7, NULL},
                 {NAN, NAN, 0.7, NAN, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double network[FLIM_N_METRICS] = {0}, decay[FLIM_N_METRICS] = {0};
        char said[512] = "";
        network[FLIM_ROC_AUC] = cases[i].network_auc;
        decay[FLIM_ROC_AUC] = cases[i].decay_auc;
        network[FLIM_BALANCED_ACCURACY] = cases[i].network_balanced;
        decay[FLIM_BALANCED_ACCURACY] = cases[i].decay_balanced;
        const bool suffices = flim_decay_suffices(network, decay, said, sizeof said);
        if (suffices != (cases[i].said != NULL) || (suffices && !strstr(said, cases[i].said))) {
            fail_msg("case %zu: '%s'", i, said);
        }
    }
}

/* A decay that has gone on for ever: its phasor in closed form, of bins r^i, is e^(jw/2) (1 - r) / (1 - r e^(jw)), w the turn of a
 * bin. */
static void phasors_of_exponentials_are_exact(void **state)
{
    (void)state;
    const double turn = 6.283185307179586, tau[] = {0.7, 5, 40, 1e4};
    enum { BINS = 64 };
    for (size_t i = 0; i < sizeof tau / sizeof tau[0]; i++) {
        double decay[BINS], g = NAN, s = NAN;
        const double r = exp(-1 / tau[i]), w = turn / BINS, re = 1 - r * cos(w), im = -r * sin(w), size = re * re + im * im;
        for (int t = 0; t < BINS; t++) {
            decay[t] = 1000 * pow(r, t);
        }
        report_phasor(decay, BINS, &g, &s);
        const double a = (1 - r) * re / size, b = -(1 - r) * im / size; /* (1 - r) / (re + j im) */
        assert_true(fabs(g - (cos(w / 2) * a - sin(w / 2) * b)) < 1e-12);
        assert_true(fabs(s - (cos(w / 2) * b + sin(w / 2) * a)) < 1e-12);
        if (tau[i] > 4) { /* bins are fine: on the semicircle */
            assert_true(fabs((g - 0.5) * (g - 0.5) + s * s - 0.25) < 2e-3);
        }
    }
    double g = 0, s = 0, none[BINS] = {0};
    report_phasor(none, BINS, &g, &s);
    assert_true(isnan(g) && isnan(s));
}

static void page_is_whole_and_alone(void **state)
{
    (void)state;
    static fixture f;
    flim_error err = {0};
    flim_report *report;
    char path[600], run[700];
    if (system("gnuplot --version >/dev/null 2>&1") != 0) {
        print_message("skipped: gnuplot is not installed\n");
        skip();
    }
    make_run(&f, "page", 120, FLIM_CONFOUND_NONE, FLIM_SPLIT_STRATIFIED_GROUP, 0.8, 7);
    snprintf(run, sizeof run, "%s/environment.json", f.folder);
    ok(flim_file_write(run, "{\"host\": \"<script>alert(1)</script> & co\"}", 43, &err), &err);
    ok(report_of((const fixture *[]){&f, &f}, 2, &(flim_report_options){.pictures = true, .replicates = 50}, &report,
                 &warnings, &err),
       &err);
    snprintf(path, sizeof path, "%s/test_report.html", FLIM_BINARY_DIR);
    ok(flim_report_write_html(report, &OUTPUT(path), &err), &err);
    char *bytes = file_text(path);
    int wrong = 0;
    for (int64_t i = 0; i < f.n; i++) {
        wrong += f.label[i] != f.predicted[i];
    }
    wrong = wrong < 12 ? wrong : 12;
    assert_true(wrong > 0);
    assert_int_equal(count_of(bytes, "data:image/svg+xml;base64,"), 4 + 2 * 10); /* 4 of both runs */
    assert_int_equal(count_of(bytes, "data:image/png;base64,"), 2 * wrong);
    assert_int_equal(count_of(bytes, "<img "), 4 + 2 * (10 + wrong)); /* no picture from elsewhere */
    assert_int_equal(count_of(bytes, "<script"), 0);
    assert_int_equal(count_of(bytes, "http:") + count_of(bytes, "https:") + count_of(bytes, "<link"), 0);
    assert_int_equal(count_of(bytes, "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co"), 2);
    assert_int_equal(count_of(bytes, "</html>"), 1);
    free(bytes);

    /* without gnuplot: one message, and no half page */
    char *old = strdup(getenv("PATH"));
    unlink(path);
    setenv("PATH", "/no/such/folder", 1);
    flim_status status = flim_report_write_html(report, &OUTPUT(path), &err);
    setenv("PATH", old, 1);
    free(old);
    assert_int_equal(status, FLIM_ERROR);
    assert_non_null(strstr(err.text, "gnuplot is needed for the plots and was not found"));
    assert_false(flim_file_exists(path));
    ok(flim_report_write_html(report, &OUTPUT(path), &err), &err);

    /* without memory, at any point: an error, and the old page stays as it is */
    status = FLIM_ERROR_MEMORY;
    for (long at = 1, tries = 0; status != FLIM_OK; at += at, tries++) {
        flim_alloc_fail_at(at);
        status = flim_report_write_html(report, &OUTPUT(path), &err);
        flim_alloc_fail_at(0);
        assert_true(status == FLIM_OK || status == FLIM_ERROR_MEMORY);
        bytes = file_text(path);
        assert_int_equal(count_of(bytes, "</html>"), 1);
        free(bytes);
        assert_true(tries < 60);
    }
    flim_report_destroy(report);
    free_run(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_from_the_predictions), cmocka_unit_test(what_is_wrong_with_a_run_is_said),
        cmocka_unit_test(absent_classes_are_named),          cmocka_unit_test(confounds_are_named),
        cmocka_unit_test(runs_are_compared_in_pairs),        cmocka_unit_test(tables_are_written),
        cmocka_unit_test(page_is_whole_and_alone),           cmocka_unit_test(phasors_of_exponentials_are_exact),
        cmocka_unit_test(a_decay_that_does_as_well_is_said), cmocka_unit_test(three_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

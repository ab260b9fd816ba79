/* A run folder into memory. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "report/report_internal.h"
#include "results/fold_weights.h"

enum { MOST_HISTORY_BYTES = 1 << 26 };

void report_find(report_run *run, const flim_log *log, flim_log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    report_finding *list = flim_realloc(run->finding, (size_t)run->n_findings + 1, sizeof *list, NULL);
    char *copy = list ? flim_strdup(text, NULL) : NULL;
    run->finding = list ? list : run->finding;
    if (copy) {
        run->finding[run->n_findings++] = (report_finding){.level = level, .text = copy};
    } else {
        run->finding_failed = true;
    }
    if (level == FLIM_LOG_WARNING) {
        flim_log_line(log, level, "%s: %s", run->folder, text);
    }
}

static flim_status path_in(const report_run *run, const char *name, char out[REPORT_PATH], flim_error *err)
{
    int length = snprintf(out, REPORT_PATH, "%s/%s", run->folder, name);
    return length > 0 && length < REPORT_PATH
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "the path %.100s... is too long", run->folder);
}

static bool exists_in(const report_run *run, const char *name)
{
    char path[REPORT_PATH];
    return path_in(run, name, path, NULL) == FLIM_OK && flim_file_exists(path);
}

/* The names of report_column in the file; of two the later counts where both are there. */
static const struct {
    const char *name;
    report_column column;
} history_columns[] = {{"epoch", REPORT_EPOCH},
                       {"lr", REPORT_LR},
                       {"train_loss", REPORT_TRAIN_LOSS},
                       {"val_loss", REPORT_VAL_LOSS},
                       {"train_accuracy", REPORT_TRAIN_ACCURACY},
                       {"val_accuracy", REPORT_VAL_ACCURACY},
                       {"val_roc_auc", REPORT_VAL_AUC},
                       {"grad_norm", REPORT_GRAD_NORM},
                       {"grad_norm_mean", REPORT_GRAD_NORM},
                       {"seconds", REPORT_SECONDS},
                       {"it_per_s", REPORT_IT_PER_S},
                       {"peak_bytes", REPORT_PEAK_BYTES}};
enum { MOST_COLUMNS = 64, NO_COLUMN = -1 };

static int column_of(const char *name)
{
    for (size_t i = 0; i < sizeof history_columns / sizeof history_columns[0]; i++) {
        if (strcmp(history_columns[i].name, name) == 0) {
            return (int)history_columns[i].column;
        }
    }
    return NO_COLUMN;
}

/* Splits a line at its commas, in place; the number of fields, MOST_COLUMNS + 1 if there are more. */
static int split_line(char *line, char *field[MOST_COLUMNS])
{
    int n = 0;
    for (char *at = line; at; n++) {
        char *comma = strchr(at, ',');
        if (n == MOST_COLUMNS) {
            return n + 1;
        }
        if (comma) {
            *comma++ = '\0';
        }
        field[n] = at;
        at = comma;
    }
    return n;
}

static void take_row(report_history *out, char *const *field, int n, const int which[MOST_COLUMNS])
{
    for (int c = 0; c < REPORT_N_COLUMNS; c++) {
        out->column[c][out->n] = NAN;
    }
    for (int i = 0; i < n; i++) {
        char *end;
        if (which[i] != NO_COLUMN) {
            const double value = strtod(field[i], &end);
            out->column[which[i]][out->n] = *field[i] && *end == '\0' ? value : NAN;
        }
    }
    out->n++;
}

/* A CSV file of plain numbers.  A last line without its end is still being written: it is left out. */
static flim_status read_history(const char *path, report_history *out, flim_error *err)
{
    char *text = NULL, *field[MOST_COLUMNS], *next = NULL;
    int which[MOST_COLUMNS] = {0}, columns = 0;
    size_t size = 0, lines = 0;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_file_read(path, MOST_HISTORY_BYTES, &text, &size, err));
    for (size_t i = 0; i < size; i++) {
        lines += text[i] == '\n';
    }
    for (int c = 0; c < REPORT_N_COLUMNS; c++) {
        out->column[c] = flim_alloc(lines + 1, sizeof *out->column[c], err);
        FLIM_TRY_DONE(out->column[c] ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
    for (char *line = text; (next = strchr(line, '\n')) != NULL; line = next + 1) {
        *next = '\0';
        const int n = split_line(line, field);
        if (line == text && n <= MOST_COLUMNS) {
            columns = n;
            for (int i = 0; i < n; i++) {
                which[i] = column_of(field[i]);
            }
        } else if (n == columns) {
            take_row(out, field, n, which);
        } else {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s, line %" PRId64 ": %d fields, the header has %d", path, out->n + 2,
                               n, columns);
            goto done;
        }
    }
done:
    flim_free(text);
    return status;
}

/* The history of every fold that has one, also of those that still train. */
static flim_status read_histories(report_run *run, flim_error *err)
{
    run->history = flim_alloc((size_t)run->splits.n_folds, sizeof *run->history, err);
    FLIM_TRY(run->history ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < run->splits.n_folds; k++) {
        char name[64], path[REPORT_PATH];
        snprintf(name, sizeof name, "fold_%d/history.csv", k);
        if (exists_in(run, name)) {
            FLIM_TRY(path_in(run, name, path, err));
            FLIM_TRY(read_history(path, &run->history[k], err));
        }
    }
    return FLIM_OK;
}

/* What the weights of the folds say, if they are there: each must be its fold's own, and all name the same classes. */
static flim_status read_weights(report_run *run, const flim_log *log, flim_error *err)
{
    char path[REPORT_PATH], name[64], first_name[64] = "";
    flim_provenance first = {0}, about = {0};
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_fold_splits_sha256(run->folder, run->splits_sha256, err));
    for (int i = 0; i < run->n_folds; i++) {
        snprintf(name, sizeof name, "fold_%d/best.safetensors", run->fold[i].k);
        if (!exists_in(run, name)) {
            continue;
        }
        flim_error why = {0};
        FLIM_TRY_DONE(path_in(run, name, path, err));
        if (flim_provenance_read(path, &about, &why) != FLIM_OK) { /* the scores do not need them */
            report_find(run, log, FLIM_LOG_WARNING, "%s", why.text);
            continue;
        }
        FLIM_TRY_DONE(flim_fold_weights_check(&about, path, run->folder, run->fold[i].k, run->splits_sha256, err));
        if (first_name[0]) {
            FLIM_TRY_DONE(flim_provenance_check_alike(&first, first_name, &about, name, err));
            flim_provenance_free(&about);
        } else {
            first = about;
            about = (flim_provenance){0};
            snprintf(first_name, sizeof first_name, "%s", name);
        }
    }
    run->class_name = flim_alloc((size_t)run->classes, sizeof *run->class_name, err);
    FLIM_TRY_DONE(run->class_name ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int c = 0; c < run->classes; c++) { /* numbers if there are no names */
        run->class_name[c] = c < first.classes ? flim_strdup(first.class_name[c], err) : flim_strprintf(err, "%d", c);
        FLIM_TRY_DONE(run->class_name[c] ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
done:
    flim_provenance_free(&first);
    flim_provenance_free(&about);
    return status;
}

/* The folds that are done; the others are named in a warning. */
static flim_status read_folds(report_run *run, bool unfinished, const flim_log *log, flim_error *err)
{
    char missing[256] = "", failed[64];
    size_t used = 0;
    run->fold = flim_alloc((size_t)run->splits.n_folds, sizeof *run->fold, err);
    FLIM_TRY(run->fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < run->splits.n_folds; k++) {
        if (flim_fold_is_done(run->folder, k)) {
            FLIM_TRY(flim_fold_result_read(run->folder, k, &run->splits.fold[k], &run->fold[run->n_folds++], err));
            continue;
        }
        snprintf(failed, sizeof failed, "fold_%d/FAILED", k);
        run->n_failed += exists_in(run, failed);
        if (used + 16 < sizeof missing) {
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d", used ? ", " : "", k);
        }
    }
    if (run->n_folds == 0 && unfinished) {
        return FLIM_OK;
    }
    if (run->n_folds == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: none of its %d folds is done", run->folder, run->splits.n_folds);
    }
    char seen[512], encoder[64];
    snprintf(encoder, sizeof encoder, "fold_%d/pretraining/encoder.safetensors", run->fold[0].k);
    if (exists_in(run, encoder)) {
        report_find(run, log, FLIM_LOG_NOTE,
                    "each fold started from an encoder that was pretrained on its own training set (fold_K/pretraining)");
    }
    if (flim_fold_results_seen(run->fold, run->n_folds, seen, sizeof seen)) {
        report_find(run, log, FLIM_LOG_WARNING, "%s", seen);
    }
    if (run->n_folds < run->splits.n_folds) {
        report_find(run, log, FLIM_LOG_WARNING, "%d of %d folds are done; missing: %s", run->n_folds, run->splits.n_folds,
                    missing);
    }
    return FLIM_OK;
}

flim_status report_read_run(const char *folder, bool unfinished, const flim_log *log, report_run *run, flim_error *err)
{
    char path[REPORT_PATH];
    struct stat about;
    *run = (report_run){0};
    int length = snprintf(run->folder, sizeof run->folder, "%s", folder);
    if (length < 1 || length >= REPORT_PATH - 64) {
        return flim_fail(err, FLIM_ERROR_USAGE, "'%.100s' cannot be the path of a run folder", folder);
    }
    while (length > 1 && run->folder[length - 1] == '/') {
        run->folder[--length] = '\0';
    }
    const char *slash = strrchr(run->folder, '/');
    run->label = slash && slash[1] ? slash + 1 : run->folder;
    if (stat(run->folder, &about) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "cannot read %s: %s", run->folder, strerror(errno));
    }
    if (!exists_in(run, "splits.json")) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s is not a run folder: it has no splits.json", run->folder);
    }
    if (flim_run_is_pretraining(run->folder)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s is a pretraining, which has no test results", run->folder);
    }
    FLIM_TRY(path_in(run, "splits.json", path, err));
    FLIM_TRY(flim_splits_read(path, NULL, &run->splits, err));
    FLIM_TRY(read_histories(run, err));
    FLIM_TRY(read_folds(run, unfinished, log, err));
    if (run->n_folds == 0) {
        return FLIM_OK;
    }
    run->classes = run->fold[0].predictions.classes;
    FLIM_TRY(flim_pool_make(run->fold, run->n_folds, &run->pool, err));
    if (exists_in(run, "holdout_predictions.csv")) {
        FLIM_TRY(path_in(run, "holdout_predictions.csv", path, err));
        FLIM_TRY(flim_predictions_read(path, &run->holdout, err));
    }
    return read_weights(run, log, err);
}

void report_free_run(report_run *run)
{
    for (int i = 0; i < run->n_folds; i++) {
        flim_fold_result_free(&run->fold[i]);
    }
    for (int k = 0; run->history && k < run->splits.n_folds; k++) {
        for (int c = 0; c < REPORT_N_COLUMNS; c++) {
            flim_free(run->history[k].column[c]);
        }
    }
    for (int c = 0; run->class_name && c < run->classes; c++) {
        flim_free(run->class_name[c]);
    }
    for (int i = 0; i < run->n_findings; i++) {
        flim_free(run->finding[i].text);
    }
    for (int b = 0; b < FLIM_N_BASELINES; b++) {
        flim_predictions_free(&run->baseline[b]);
    }
    void *const arrays[] = {run->fold,   run->history,  run->class_name, run->finding,     run->row,
                            run->matrix, run->group_of, run->group_name, run->calibration, run->group};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        flim_free(arrays[i]);
    }
    report_errors_free(run->errors);
    flim_pool_free(&run->pool);
    flim_predictions_free(&run->holdout);
    flim_splits_free(&run->splits);
    *run = (report_run){0};
}

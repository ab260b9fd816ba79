/* A run folder into memory. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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

/* The wanted columns of a CSV file of plain numbers; an empty field is NaN. */
static flim_status read_history(const char *path, report_history *out, flim_error *err)
{
    static const char *const wanted[] = {"epoch", "train_loss", "val_loss"};
    enum { WANTED = 3, MOST_COLUMNS = 64 };
    double **column[WANTED] = {&out->epoch, &out->train_loss, &out->val_loss};
    int which[MOST_COLUMNS], columns = 0;
    char *text = NULL, *next_line = NULL;
    size_t size = 0, lines = 0;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_file_read(path, MOST_HISTORY_BYTES, &text, &size, err));
    for (size_t i = 0; i < size; i++) {
        lines += text[i] == '\n';
    }
    for (int j = 0; j < WANTED; j++) {
        *column[j] = flim_alloc(lines + 1, sizeof **column[j], err);
        FLIM_TRY_DONE(*column[j] ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
    for (char *line = text; line && *line; line = next_line) {
        next_line = strchr(line, '\n');
        if (next_line) {
            *next_line++ = '\0';
        }
        bool header = line == text;
        int at = 0;
        for (char *field = line; field && at < MOST_COLUMNS; at++) {
            char *comma = strchr(field, ',');
            if (comma) {
                *comma++ = '\0';
            }
            if (header) {
                which[at] = -1;
                for (int j = 0; j < WANTED; j++) {
                    which[at] = strcmp(field, wanted[j]) == 0 ? j : which[at];
                }
                columns = at + 1;
            } else if (at < columns && which[at] >= 0) {
                char *end;
                double value = strtod(field, &end);
                (*column[which[at]])[out->n] = *field && *end == '\0' ? value : NAN;
            }
            field = comma;
        }
        if (!header && at != columns) {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s, line %" PRId64 ": %d fields, the header has %d", path, out->n + 2,
                               at, columns);
            goto done;
        }
        out->n += !header;
    }
done:
    flim_free(text);
    return status;
}

static flim_status read_fold(report_run *run, int k, flim_fold_result *fold, report_history *history, flim_error *err)
{
    char name[64], path[REPORT_PATH];
    FLIM_TRY(flim_fold_result_read(run->folder, k, &run->splits.fold[k], fold, err));
    snprintf(name, sizeof name, "fold_%d/history.csv", k);
    if (!exists_in(run, name)) {
        return FLIM_OK;
    }
    FLIM_TRY(path_in(run, name, path, err));
    return read_history(path, history, err);
}

/* What the weights of the folds say, if they are there: each must be its fold's own, and all name the same classes. */
static flim_status read_weights(report_run *run, const flim_log *log, flim_error *err)
{
    char path[REPORT_PATH], name[64], first_name[64] = "", splits[65] = "";
    flim_provenance first = {0}, about = {0};
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_fold_splits_sha256(run->folder, splits, err));
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
        FLIM_TRY_DONE(flim_fold_weights_check(&about, path, run->folder, run->fold[i].k, splits, err));
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
static flim_status read_folds(report_run *run, const flim_log *log, flim_error *err)
{
    char missing[256] = "";
    size_t used = 0;
    run->fold = flim_alloc((size_t)run->splits.n_folds, sizeof *run->fold, err);
    run->history = flim_alloc((size_t)run->splits.n_folds, sizeof *run->history, err);
    FLIM_TRY(run->fold && run->history ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < run->splits.n_folds; k++) {
        if (flim_fold_is_done(run->folder, k)) {
            const int at = run->n_folds++;
            FLIM_TRY(read_fold(run, k, &run->fold[at], &run->history[at], err));
        } else if (used + 16 < sizeof missing) {
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d", used ? ", " : "", k);
        }
    }
    if (run->n_folds == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: none of its %d folds is done", run->folder, run->splits.n_folds);
    }
    char seen[512];
    if (flim_fold_results_seen(run->fold, run->n_folds, seen, sizeof seen)) {
        report_find(run, log, FLIM_LOG_WARNING, "%s", seen);
    }
    if (run->n_folds < run->splits.n_folds) {
        report_find(run, log, FLIM_LOG_WARNING, "%d of %d folds are done; missing: %s", run->n_folds, run->splits.n_folds,
                    missing);
    }
    return FLIM_OK;
}

flim_status report_read_run(const char *folder, const flim_log *log, report_run *run, flim_error *err)
{
    char path[REPORT_PATH];
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
    if (!exists_in(run, "splits.json")) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s is no run folder: it holds no splits.json", run->folder);
    }
    FLIM_TRY(path_in(run, "splits.json", path, err));
    FLIM_TRY(flim_splits_read(path, NULL, &run->splits, err));
    FLIM_TRY(read_folds(run, log, err));
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
        report_history *h = &run->history[i];
        flim_fold_result_free(&run->fold[i]);
        flim_free(h->epoch);
        flim_free(h->train_loss);
        flim_free(h->val_loss);
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
    void *const arrays[] = {run->fold,  run->history, run->class_name, run->finding,   run->row,
                            run->group, run->matrix,  run->group_of,   run->group_name};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        flim_free(arrays[i]);
    }
    flim_pool_free(&run->pool);
    flim_predictions_free(&run->holdout);
    flim_splits_free(&run->splits);
    *run = (report_run){0};
}

/* --final: after the folds one model for use on new cells, trained on every cell that stands in a fold, for as many epochs as the
 * folds chose (their median).  It is tested on nothing: what is to be expected of it is what the folds reached. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "core/text.h"
#include "flim/weights.h"
#include "results/pool.h"
#include "train/fold.h"

/* What the folds came to. */
typedef struct folds_result {
    flim_fold_result *fold; /* (n) */
    int n;
    int64_t epochs; /* median of those chosen; of an even number the lower of the middle two */
    double threshold; /* mean */
    double mean[FLIM_N_METRICS], sd[FLIM_N_METRICS];
    flim_metrics pooled;
} folds_result;

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static flim_status summarise(folds_result *r, flim_error *err)
{
    int used[FLIM_N_METRICS];
    flim_pool pool = {0};
    flim_metrics at_half;
    flim_status status = FLIM_OK;
    int64_t *epochs = flim_alloc((size_t)r->n, sizeof *epochs, err); /* (n) */
    FLIM_TRY_DONE(epochs ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < r->n; k++) {
        epochs[k] = r->fold[k].best_epoch;
        r->threshold += r->fold[k].threshold / r->n;
    }
    qsort(epochs, (size_t)r->n, sizeof *epochs, ascending);
    r->epochs = epochs[(r->n - 1) / 2];
    FLIM_TRY_DONE(flim_spread_over_folds(r->fold, r->n, false, r->mean, r->sd, used, err));
    FLIM_TRY_DONE(flim_pool_make(r->fold, r->n, &pool, err));
    status = flim_pool_metrics(&pool, &r->pooled, &at_half, err);
done:
    flim_pool_free(&pool);
    flim_free(epochs);
    return status;
}

static flim_status read_folds(const flim_run *run, const flim_splits *splits, folds_result *r, flim_error *err)
{
    r->fold = flim_alloc((size_t)splits->n_folds, sizeof *r->fold, err);
    FLIM_TRY(r->fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (; r->n < splits->n_folds; r->n++) {
        FLIM_TRY(flim_fold_result_read(run->folder, r->n, &splits->fold[r->n], &r->fold[r->n], err));
    }
    return summarise(r, err);
}

/* Every cell of the first fold's parts: those of each fold are the same, but for which part they stand in. */
static flim_status all_cells(const flim_splits *splits, flim_fold *out, flim_error *err)
{
    const flim_fold *f = &splits->fold[0];
    const struct {
        const int64_t *list;
        int64_t n;
    } parts[] = {{f->train, f->n_train}, {f->val, f->n_val}, {f->test, f->n_test}};
    out->train = flim_alloc((size_t)(f->n_train + f->n_val + f->n_test), sizeof *out->train, err);
    if (!out->train) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        for (int64_t i = 0; i < parts[p].n; i++) {
            out->train[out->n_train++] = parts[p].list[i];
        }
    }
    qsort(out->train, (size_t)out->n_train, sizeof *out->train, ascending);
    return FLIM_OK;
}

static flim_status write_summary(const flim_fold_work *f, const folds_result *r, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_json *json = flim_json_object(), *chosen = flim_json_array(), *expected = flim_json_object();
    for (int k = 0; k < r->n; k++) {
        flim_json_add_integer(chosen, r->fold[k].best_epoch);
    }
    flim_json_set_integer(json, "n_train", f->part->n_train);
    flim_json_set_integer(json, "epochs", f->epochs);
    flim_json_set(json, "epochs_chosen_by_the_folds", chosen);
    flim_json_set_number(json, "threshold", r->threshold);
    flim_json_set_string(expected, "from", "the folds' test sets: this model itself has not been tested");
    flim_json_set(expected, "mean", flim_metrics_json(r->mean));
    flim_json_set(expected, "sd", flim_metrics_json(r->sd));
    flim_json_set(expected, "pooled", flim_metrics_json(r->pooled.value));
    flim_json_set(json, "expected_score", expected);
    snprintf(path, sizeof path, "%.4000s/summary.json", f->folder);
    const flim_status status = flim_json_write(json, path, err);
    flim_json_free(json);
    return status;
}

static flim_status write_weights(const flim_fold_work *f, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_provenance about = {0};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_fold_provenance(f, &about, err));
    about.fold = -1; /* no fold's */
    snprintf(path, sizeof path, "%.4000s/best.safetensors", f->folder);
    status = flim_weights_write(path, &f->trainer->net, &about, f->state.best_parameter, f->state.best_statistic, err);
done:
    flim_provenance_free(&about);
    return status;
}

flim_status flim_run_final_model(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    folds_result folds = {0};
    flim_fold all = {0};
    flim_fold_work f = {
        .run = run, .study = study, .trainer = trainer, .k = FLIM_FINAL_FOLD, .name = "final model", .part = &all};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_run_fold_path(run, f.k, "", f.folder, err));
    FLIM_TRY_DONE(read_folds(run, &study->splits, &folds, err));
    FLIM_TRY_DONE(all_cells(&study->splits, &all, err));
    f.epochs = folds.epochs;
    FLIM_TRY_DONE(flim_fold_work_through(&f, err));
    FLIM_TRY_DONE(flim_fold_check_weights(&f, err));
    FLIM_TRY_DONE(write_weights(&f, err));
    FLIM_TRY_DONE(write_summary(&f, &folds, err));
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "final model done: %" PRId64 " cell%s, %" PRId64 " epoch%s; predict --model %s/best.safetensors uses it",
                  all.n_train, flim_s(all.n_train), f.epochs, flim_s(f.epochs), f.folder);
    flim_run_event_fold_end(run, f.k, NULL, NULL);
done:
    status = flim_fold_end(&f, status, err);
    flim_fold_work_free(&f);
    for (int k = 0; k < folds.n; k++) {
        flim_fold_result_free(&folds.fold[k]);
    }
    flim_free(folds.fold);
    flim_free(all.train);
    return status;
}

/* What happened in a run, as JSON objects for programs: train_cv --log-json (docs/train_cv.md lists events and fields). */
#include <math.h>
#include <time.h>

#include "results/fold_result.h"
#include "train/fold.h"

static bool wanted(const flim_run *run)
{
    return run->hooks->event != NULL;
}

/* The fields that every event has. */
static flim_json *begin(const char *name)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    flim_json *json = flim_json_object();
    flim_json_set_string(json, "event", name);
    flim_json_set_number(json, "time", (double)now.tv_sec + floor((double)now.tv_nsec / 1e6) / 1e3);
    return json;
}

/* Out of memory: the event is lost, and the run will fail for the same reason. */
static void end(const flim_run *run, const char *name, flim_json *json)
{
    char *text = flim_json_text(json);
    if (text && flim_json_is_whole(json)) {
        run->hooks->event(run->hooks->context, name, text);
    }
    flim_json_text_free(text);
    flim_json_free(json);
}

static void set_fold(flim_json *json, int k)
{
    if (k == FLIM_FINAL_FOLD) {
        flim_json_set_null(json, "fold");
    } else {
        flim_json_set_integer(json, "fold", k);
    }
}

/* Which training it is: fold (null: of all folds), stage (null: none), training. */
static void set_training(flim_json *json, const flim_fold_work *f)
{
    if (f->run->settings->pretrains) {
        set_fold(json, f->run->within ? f->run->within_fold : FLIM_FINAL_FOLD); /* null alone */
        flim_json_set_string(json, "stage", NULL);
        flim_json_set_string(json, "training", "pretraining");
        return;
    }
    set_fold(json, f->k);
    flim_json_set_string(json, "stage",
                         f->run->n_stages > 0 && f->k != FLIM_FINAL_FOLD ? f->run->stages[f->stage].name : NULL);
    flim_json_set_string(json, "training", f->k == FLIM_FINAL_FOLD ? "final" : f->part->n_test > 0 ? "fold" : "refit");
}

/* All null in a dry run, which has no device. */
static void set_trainer(flim_json *json, const flim_trainer *trainer)
{
    static const char *const keys[] = {"device", "precision", "parameters", "lr", "planned_bytes"};
    for (size_t i = 0; !trainer->device && i < sizeof keys / sizeof keys[0]; i++) {
        flim_json_set_null(json, keys[i]);
    }
    if (trainer->device) {
        flim_json_set_string(json, "device", flim_device_get_info(trainer->device)->name);
        flim_json_set_string(json, "precision", flim_precision_name(trainer->precision));
        flim_json_set_integer(json, "parameters", trainer->net.parameters);
        flim_json_set_number(json, "lr", trainer->learning_rate);
        flim_json_set_integer(json, "planned_bytes", trainer->planned_bytes);
    }
}

void flim_run_event_start(const flim_run *run, const flim_study *study, const flim_trainer *trainer)
{
    if (!wanted(run)) {
        return;
    }
    const flim_settings *s = run->settings;
    const flim_dataset_info *info = study->info;
    flim_json *json = begin("run_start");
    flim_json_set_string(json, "version", FLIM_VERSION);
    flim_json_set_string(json, "run", run->folder[0] ? run->folder : NULL); /* none in a dry run */
    flim_json_set_bool(json, "resumed", s->resume);
    flim_json_set_string(json, "preset", flim_preset_names[s->preset]);
    flim_json_set_integer(json, "cells", info->n);
    flim_json_set_integer(json, "classes", info->classes);
    flim_json_set_integer(json, "groups", info->groups);
    flim_json_set_integer(json, "folds", study->splits.n_folds);
    flim_json_set_integer(json, "epochs", flim_run_epochs(run));
    flim_json_set_integer(json, "batch", s->batch);
    flim_json_set_integer(json, "accumulate", s->accumulate);
    set_trainer(json, trainer);
    end(run, "run_start", json);
}

void flim_run_event_split(const flim_run *run, const flim_study *study)
{
    for (int k = 0; wanted(run) && k < study->splits.n_folds; k++) {
        const flim_fold *fold = &study->splits.fold[k];
        flim_json *json = begin("split");
        flim_json_set_integer(json, "fold", k);
        flim_json_set_integer(json, "train_cells", fold->n_train);
        flim_json_set_integer(json, "val_cells", fold->n_val);
        flim_json_set_integer(json, "test_cells", fold->n_test);
        end(run, "split", json);
    }
}

void flim_run_event_fold_start(const flim_fold_work *f, bool resumed)
{
    if (!wanted(f->run)) {
        return;
    }
    flim_json *json = begin("fold_start");
    set_training(json, f);
    flim_json_set_integer(json, "epoch", f->state.epoch + 1);
    flim_json_set_integer(json, "epochs", f->epochs);
    flim_json_set_integer(json, "train_cells", f->part->n_train);
    flim_json_set_integer(json, "val_cells", f->part->n_val);
    flim_json_set_integer(json, "test_cells", f->part->n_test);
    flim_json_set_bool(json, "resumed", resumed);
    end(f->run, "fold_start", json);
}

void flim_run_event_estimate(const flim_fold_work *f, double seconds, double per_batch, int64_t epochs)
{
    if (!wanted(f->run)) {
        return;
    }
    flim_json *json = begin("estimate");
    set_training(json, f);
    flim_json_set_number(json, "seconds_left", seconds);
    flim_json_set_number(json, "seconds_per_batch", per_batch);
    flim_json_set_integer(json, "epochs_left", epochs);
    end(f->run, "estimate", json);
}

void flim_run_event_epoch(const flim_fold_work *f, const flim_epoch_row *r, bool best)
{
    if (!wanted(f->run)) {
        return;
    }
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"lr", r->learning_rate},
                   {"train_loss", r->train_loss},
                   {"train_accuracy", r->train_accuracy},
                   {"val_loss", r->val_loss},
                   {"val_accuracy", r->val_accuracy},
                   {"val_balanced_accuracy", r->val_balanced_accuracy},
                   {"val_f1", r->val_f1},
                   {"val_roc_auc", r->val_roc_auc},
                   {"grad_norm", r->grad_norm_mean},
                   {"seconds", r->seconds},
                   {"iterations_per_second", r->iterations_per_second},
                   {"cells_per_second", r->cells_per_second},
                   {"data_wait", r->wait_share},
                   {"gpu_busy", r->device_busy},
                   {"gpu_watts", r->device_watts},
                   {"gpu_celsius", r->device_celsius}};
    flim_json *json = begin("epoch");
    set_training(json, f);
    flim_json_set_integer(json, "epoch", r->epoch);
    flim_json_set_integer(json, "epochs", f->epochs);
    flim_json_set_bool(json, "best", best && f->part->n_val > 0);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        flim_json_set_number(json, numbers[i].key, numbers[i].value); /* null if undefined or not measured */
    }
    flim_json_set_integer(json, "cells", r->cells);
    flim_json_set_integer(json, "updates", r->updates);
    flim_json_set_integer(json, "skipped_updates", r->skipped);
    flim_json_set_integer(json, "memory_bytes", r->peak_bytes);
    end(f->run, "epoch", json);
}

void flim_run_event_fold_end(const flim_run *run, int k, const flim_fold_result *result, const char *failed)
{
    if (!wanted(run)) {
        return;
    }
    flim_json *json = begin("fold_end");
    set_fold(json, k);
    flim_json_set_string(json, "status", failed ? "failed" : "done");
    flim_json_set_string(json, "reason", failed);
    if (!result) {
        static const char *const keys[] = {"epochs", "best_epoch", "test_cells", "threshold", "metrics"};
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            flim_json_set_null(json, keys[i]);
        }
    } else {
        flim_json_set_integer(json, "epochs", result->epochs);
        flim_json_set_integer(json, "best_epoch", result->best_epoch);
        flim_json_set_integer(json, "test_cells", result->n_test);
        flim_json_set_number(json, "threshold", result->predictions.classes == 2 ? result->threshold : (double)NAN);
        flim_json_set(json, "metrics", flim_metrics_json(result->metrics.value));
    }
    end(run, "fold_end", json);
}

void flim_run_event_summary(const flim_run *run, int done, int n_folds, const double mean[], const double sd[],
                            const double pooled[])
{
    if (!wanted(run)) {
        return;
    }
    flim_json *json = begin("summary");
    flim_json_set_integer(json, "folds_done", done);
    flim_json_set_integer(json, "folds", n_folds);
    flim_json_set(json, "mean", flim_metrics_json(mean));
    flim_json_set(json, "sd", flim_metrics_json(sd));
    flim_json_set(json, "pooled", flim_metrics_json(pooled));
    end(run, "summary", json);
}

void flim_run_event_end(const flim_run *run, double seconds, flim_status status, const flim_error *err)
{
    if (!wanted(run)) {
        return;
    }
    if (status != FLIM_OK && status != FLIM_INTERRUPTED && err) {
        flim_json *json = begin("error");
        flim_json_set_string(json, "kind", flim_status_name(status));
        flim_json_set_string(json, "message", err->text);
        end(run, "error", json);
    }
    flim_json *json = begin("run_end");
    flim_json_set_string(json, "status", status == FLIM_OK ? "done" : status == FLIM_INTERRUPTED ? "interrupted" : "failed");
    flim_json_set_string(json, "run", run->folder[0] ? run->folder : NULL);
    flim_json_set_number(json, "seconds", seconds);
    if (run->epochs_trained >= 0) {
        flim_json_set_integer(json, "epochs_trained", run->epochs_trained);
    } else {
        flim_json_set_null(json, "epochs_trained");
    }
    end(run, "run_end", json);
}

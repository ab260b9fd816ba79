/* After a fold's training: the threshold from the validation set, then the test set.
 *
 * The test set is read once, after training has ended and epoch and threshold are chosen: it chooses nothing.
 */
#include <inttypes.h>
#include <math.h>

#include "core/alloc.h"
#include "core/try.h"
#include "core/text.h"
#include "cv/sampler.h"
#include "flim/weights.h"
#include "results/fold_result.h"
#include "train/fold.h"

/* A network whose outputs are not finite has failed, whatever class its infinities would vote for. */
static flim_status check_finite(const flim_fold_work *f, const char *what, const int64_t *cell, int64_t n,
                                const float *logits, flim_error *err)
{
    const int outputs = f->trainer->net.head[0].outputs;
    for (int64_t i = 0; i < n * outputs; i++) {
        if (!isfinite(logits[i])) {
            return flim_fail(err, FLIM_ERROR_NONFINITE,
                             "fold %d: the network's output for cell %" PRId64 " of the %s set is not finite after epoch "
                             "%" PRId64 "; its last checkpoint is kept",
                             f->k, cell[i / outputs], what, f->state.finished ? f->state.best_epoch + 1 : f->state.epoch + 1);
        }
    }
    return FLIM_OK;
}

flim_status flim_fold_evaluate(flim_fold_work *f, flim_phase_kind phase, int64_t epoch, bool must_be_finite, float *logits,
                               int32_t **label, flim_error *err)
{
    const bool test = phase == FLIM_PHASE_TEST;
    const int64_t *cell = test ? f->part->test : f->part->val, n = test ? f->part->n_test : f->part->n_val;
    const flim_evaluation evaluation = {.hooks = f->run->hooks,
                                        .at = {.phase = phase,
                                               .fold = f->k < f->study->splits.n_folds ? f->k : -1,
                                               .folds = f->study->splits.n_folds,
                                               .epoch = epoch + 1,
                                               .epochs = f->run->settings->epochs},
                                        .tta = f->run->settings->tta};
    FLIM_TRY(flim_trainer_evaluate(f->trainer, &evaluation, cell, n, logits, err));
    FLIM_TRY(must_be_finite ? check_finite(f, test ? "test" : "validation", cell, n, logits, err) : FLIM_OK);
    *label = flim_alloc((size_t)n, sizeof **label, err); /* (n) */
    for (int64_t i = 0; *label && i < n; i++) {
        (*label)[i] = f->study->info->label[cell[i]];
    }
    return *label ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* The threshold and the metrics of the validation set. */
static flim_status choose_threshold(flim_fold_work *f, const int32_t *val_label, double *threshold, flim_metrics *val,
                                    flim_error *err)
{
    const flim_fold *part = f->part;
    const int classes = f->study->info->classes;
    *threshold = 0.5;
    if (classes == 2 && part->n_val > 0 && part->val_complete) {
        FLIM_TRY(flim_choose_threshold_for(f->run->settings->threshold_for, part->n_val, val_label, f->val_logits, threshold,
                                           err));
    }
    return flim_metrics_compute(part->n_val, classes, val_label, f->val_logits, *threshold, val, err);
}

/* Calibration and the prior of the test set, whose labels they do not see; then metrics with them. */
static flim_status estimate_shift(const flim_fold_work *f, const int32_t *val_label, flim_fold_result *result,
                                  flim_error *err)
{
    const flim_fold *part = f->part;
    const flim_settings *s = f->run->settings;
    const int classes = f->study->info->classes;
    const flim_predictions *p = &result->predictions;
    flim_status status = FLIM_OK;
    double *seen = flim_alloc((size_t)classes, sizeof *seen, err); /* (K) */
    FLIM_TRY_DONE(seen ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_sampler_prior(s->sampler, s->sampler_repeats, &f->study->split_data, part->train, part->n_train,
                                     s->seed, (uint32_t)f->k, f->first_epoch, f->state.best_epoch + 1, f->class_weight, seen,
                                     err));
    FLIM_TRY_DONE(flim_fold_shift_make(classes, part->n_val, val_label, f->val_logits, p->n, p->logits, seen, s->seed,
                                       &result->shift, err));
    if (result->shift.classes > 0) {
        FLIM_TRY_DONE(flim_shift_metrics(&result->shift, p, &result->calibrated, &result->corrected, err));
    }
    if (flim_shift_is_refuted(&result->shift)) {
        flim_log_line(&f->run->log, FLIM_LOG_WARNING,
                      "fold %d: its test scores are not a mixture of its validation scores of each class (distance %.3f, p "
                      "%.3f): more than the class prior has shifted, so prior correction is not valid",
                      f->k, result->shift.test.distance, result->shift.test.p);
    }
done:
    flim_free(seen);
    return status;
}

static flim_status write_summary(const flim_fold_work *f, const flim_fold_work *trained, const flim_fold_result *result,
                                 const flim_metrics *val, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/summary.json", f->folder);
    flim_json *json = flim_fold_result_json(result);
    flim_json_set_string(json, "selection", f->part->n_val > 0 ? "validation set" : "last epoch, no validation set");
    flim_json_set(json, "val_metrics", flim_metrics_json(val->value));
    if (trained != f) {
        flim_json *refit = flim_json_object();
        flim_json_set_integer(refit, "n_train", trained->part->n_train);
        flim_json_set_integer(refit, "epochs", trained->epochs);
        flim_json_set_integer(refit, "updates", trained->pace_updates * (f->state.best_epoch + 1));
        flim_json_set(json, "refit", refit);
    }
    const flim_status status = flim_json_write(json, path, err);
    flim_json_free(json);
    return status;
}

static void log_result(const flim_fold_work *f, const flim_fold_result *result)
{
    char decided[32] = "";
    if (f->study->info->classes == 2) {
        snprintf(decided, sizeof decided, ", threshold %.3f", result->threshold);
    }
    flim_log_line(&f->run->log, FLIM_LOG_INFO,
                  "fold %d done: best epoch %" PRId64 " of %" PRId64
                  "%s, test accuracy %.3f, balanced accuracy %.3f (%" PRId64 " cell%s)",
                  f->k, result->best_epoch, result->epochs, decided, result->metrics.value[FLIM_ACCURACY],
                  result->metrics.value[FLIM_BALANCED_ACCURACY], result->n_test, flim_s(result->n_test));
}

/* The test set at that threshold: result's predictions and metrics. */
static flim_status test(flim_fold_work *f, flim_fold_result *result, flim_error *err)
{
    const flim_fold *part = f->part;
    const int64_t n = part->n_test;
    const int classes = f->study->info->classes;
    int32_t *label = NULL; /* (n) */
    flim_status status = FLIM_OK;
    float *logits = flim_alloc((size_t)(n * f->trainer->net.head[0].outputs), sizeof *logits, err); /* (n,K') */
    FLIM_TRY_DONE(logits ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_fold_evaluate(f, FLIM_PHASE_TEST, f->state.n_history - 1, true, logits, &label, err));
    FLIM_TRY_DONE(flim_metrics_compute(n, classes, label, logits, result->threshold, &result->metrics, err));
    FLIM_TRY_DONE(flim_metrics_compute(n, classes, label, logits, 0.5, &result->at_half, err));
    status =
        flim_predictions_of(f->study->info, classes, part->test, n, logits, result->threshold, &result->predictions, err);
done:
    flim_free(label);
    flim_free(logits);
    return status;
}

/* What no program would read again is no result; a statistic may have overflowed although the
 * outputs in training, which do not use it, were finite. */
flim_status flim_fold_check_weights(const flim_fold_work *f, flim_error *err)
{
    flim_error why = {0};
    if (flim_weights_check_finite(&f->trainer->net, f->state.best_parameter, f->state.best_statistic, &why) == FLIM_OK) {
        return FLIM_OK;
    }
    return flim_fail(err, FLIM_ERROR_NONFINITE, "%s: after epoch %" PRId64 " %s; its last checkpoint is kept", f->name,
                     f->state.best_epoch + 1, why.text);
}

flim_status flim_fold_test(flim_fold_work *f, const flim_fold_work *trained, flim_error *err)
{
    const flim_fold_state *s = &f->state, *last = &trained->state;
    const int64_t before = flim_history_epochs_before(&f->history);
    char path[FLIM_PATH_MAX];
    flim_metrics val = {0};
    flim_provenance about = {0};
    int32_t *val_label = NULL; /* (n_val) */
    flim_fold_result result = {.k = f->k,
                               .n_train = f->part->n_train,
                               .n_val = f->part->n_val,
                               .n_test = f->part->n_test,
                               .epochs = before + s->n_history,
                               .best_epoch = before + s->best_epoch + 1,
                               .has_start = f->trainer->initial_parameter != NULL,
                               .seen = flim_run_seen_test_cells(f->run, f->study, f->k)};
    flim_status status = FLIM_OK;
    snprintf(path, sizeof path, "%.4000s/best.safetensors", f->folder);
    FLIM_TRY_DONE(flim_fold_check_weights(trained, err));
    FLIM_TRY_DONE(flim_fold_provenance(trained, &about, err));
    FLIM_TRY_DONE(flim_weights_write(path, &f->trainer->net, &about, last->best_parameter, last->best_statistic, err));
    FLIM_TRY_DONE(flim_trainer_load(f->trainer, s->best_parameter, s->best_statistic, err));
    FLIM_TRY_DONE(flim_fold_evaluate(f, FLIM_PHASE_VALIDATE, s->n_history - 1, true, f->val_logits, &val_label, err));
    FLIM_TRY_DONE(choose_threshold(f, val_label, &result.threshold, &val, err));
    if (trained != f) {
        FLIM_TRY_DONE(flim_trainer_load(f->trainer, last->best_parameter, last->best_statistic, err));
    }
    FLIM_TRY_DONE(test(f, &result, err));
    FLIM_TRY_DONE(estimate_shift(f, val_label, &result, err));
    snprintf(path, sizeof path, "%.4000s/predictions.csv", f->folder);
    FLIM_TRY_DONE(flim_predictions_write(&result.predictions, path, err));
    FLIM_TRY_DONE(write_summary(f, trained, &result, &val, err));
    FLIM_TRY_DONE(flim_fold_record_test(f, &result, err));
    log_result(f, &result);
    flim_run_event_fold_end(f->run, f->k, &result, NULL);
done:
    flim_provenance_free(&about);
    flim_free(val_label);
    flim_fold_result_free(&result);
    return status;
}

/* Hold-out groups: scored by the ensemble of all folds, once these are done. */
#include "core/try.h"
#include "results/fold_result.h"
#include "results/fold_weights.h"
#include "train/run.h"

/* A file of the whole run: another process may end at the same time. */
static flim_status write_predictions(flim_run *run, const flim_predictions *predictions, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    FLIM_TRY(flim_run_folder_path(run, "holdout_predictions.csv", path, err));
    FLIM_TRY(flim_run_folder_lock(run, err));
    const flim_status status = flim_predictions_write(predictions, path, err);
    flim_run_folder_unlock(run);
    return status;
}

flim_status flim_run_holdout(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const flim_splits *splits = &study->splits;
    const int classes = study->info->classes, n_folds = splits->n_folds;
    char path[FLIM_PATH_MAX];
    flim_ensemble ensemble = {0};
    flim_provenance about = {0}, first = {0};
    flim_predictions predictions = {0};
    double sum = 0, threshold = 0.5; /* the ensemble decides at the mean of its folds' own, as predict does */
    flim_status status = FLIM_OK;
    for (int k = 0; k < n_folds && splits->n_holdout > 0; k++) {
        if (!flim_fold_is_done(run->folder, k)) {
            flim_log_line(&run->log, FLIM_LOG_NOTE, "hold-out groups are scored when all folds are done; fold %d is not", k);
            return FLIM_OK;
        }
    }
    if (splits->n_holdout == 0) {
        return FLIM_OK;
    }
    FLIM_TRY_DONE(flim_ensemble_create(trainer, classes, splits->n_holdout, &ensemble, err));
    for (int k = 0; k < n_folds; k++) {
        const flim_evaluation evaluation = {
            .hooks = run->hooks,
            .at = {.phase = FLIM_PHASE_HOLDOUT, .fold = k, .folds = n_folds, .epoch = 1, .epochs = run->settings->epochs},
            .tta = run->settings->tta};
        FLIM_TRY_DONE(flim_run_fold_path(run, k, "best.safetensors", path, err));
        FLIM_TRY_DONE(flim_fold_weights_about(run->folder, k, run->splits_sha256, k ? &about : &first, err));
        FLIM_TRY_DONE(k ? flim_provenance_check_alike(&first, "fold 0", &about, path, err) : FLIM_OK);
        flim_provenance_free(&about);
        FLIM_TRY_DONE(flim_ensemble_load(&ensemble, trainer, path, err));
        FLIM_TRY_DONE(flim_ensemble_add(&ensemble, trainer, &evaluation, splits->holdout, err));
        FLIM_TRY_DONE(flim_fold_threshold(run->folder, k, &threshold, err));
        sum += threshold;
    }
    flim_ensemble_mean(&ensemble);
    FLIM_TRY_DONE(flim_predictions_of(study->info, classes, splits->holdout, ensemble.n, ensemble.logits, sum / n_folds,
                                      &predictions, err));
    status = write_predictions(run, &predictions, err);
done:
    flim_provenance_free(&about);
    flim_provenance_free(&first);
    flim_predictions_free(&predictions);
    flim_ensemble_free(&ensemble);
    return status;
}

/* --resume: whether the folds that are marked as done are there, before anything is trained. */
#include "core/alloc.h"
#include "core/try.h"
#include "flim/weights.h"
#include "results/fold_result.h"
#include "results/fold_weights.h"
#include "train/run.h"

/* What a finished fold is read for later: its weights for predictions, its predictions for the summary. */
static flim_status check_fold(const flim_run *run, const flim_study *study, const flim_network *net, int k,
                              const char *splits_sha256, float *parameter, float *statistic, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_fold_result result;
    flim_provenance about;
    FLIM_TRY(flim_fold_weights_about(run->folder, k, splits_sha256, &about, err));
    flim_provenance_free(&about);
    FLIM_TRY(flim_run_fold_path(run, k, "best.safetensors", path, err));
    FLIM_TRY(flim_weights_read(path, net, parameter, statistic, err));
    FLIM_TRY(flim_fold_result_read(run->folder, k, &study->splits.fold[k], &result, err));
    flim_fold_result_free(&result);
    return FLIM_OK;
}

flim_status flim_run_check_done_folds(const flim_run *run, const flim_study *study, const flim_trainer *trainer,
                                      flim_error *err)
{
    const flim_network *net = &trainer->net;
    char splits[65] = "";
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_fold_splits_sha256(run->folder, splits, err));
    float *parameter = flim_alloc((size_t)net->parameters, sizeof *parameter, err); /* (P) */
    float *statistic = flim_alloc((size_t)net->statistics, sizeof *statistic, err); /* (S) */
    FLIM_TRY_DONE(parameter && statistic ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < study->splits.n_folds; k++) {
        /* a process for each fold looks at its own */
        if (!flim_run_wants_fold(run, k) || !flim_fold_is_done(run->folder, k)) {
            continue;
        }
        status = check_fold(run, study, net, k, splits, parameter, statistic, err);
        if (status == FLIM_ERROR_DATA) {
            char reason[sizeof err->text];
            snprintf(reason, sizeof reason, "%s", err ? err->text : "");
            flim_fail(
                err, status,
                "fold %d is marked as done, but %s. Put the file back, or remove %s/fold_%d/DONE and resume: the fold is "
                "trained again",
                k, reason, run->folder, k);
        }
        FLIM_TRY_DONE(status);
        FLIM_TRY_DONE(flim_run_go_on(run, err));
    }
done:
    flim_free(parameter);
    flim_free(statistic);
    return status;
}

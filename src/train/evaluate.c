/* Inference over a part of the data, in the part's order. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "train/run.h"

flim_status flim_evaluate(flim_run *run, flim_phase_kind kind, int fold, int64_t epoch, const int64_t *part, int64_t n,
                          float *logits, flim_error *err)
{
    const int outputs = run->net.head.outputs;
    const flim_batch *batch = NULL, *held = NULL;
    int64_t done = 0;
    double begun = flim_seconds();
    flim_draw *draws = flim_alloc((size_t)n, sizeof *draws, err);
    if (!draws) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        draws[i] = (flim_draw){.cell = (uint32_t)part[i], .weight = 1.0f};
    }
    const flim_phase phase = {.draws = draws,
                              .n_draws = n,
                              .batch = run->eval_batch,
                              .seed = run->settings->seed,
                              .fold = (uint32_t)fold,
                              .epoch = (uint32_t)epoch};
    flim_status status = flim_loader_begin(run->loader, &phase, err);
    while (status == FLIM_OK) {
        status = flim_loader_next(run->loader, &batch, err);
        if (status != FLIM_OK || !batch) {
            break;
        }
        status = flim_program_predict(run->program, batch, logits + done * outputs, err);
        if (held) {
            flim_loader_release(run->loader, held);
        }
        held = batch;
        done += batch->n;
        if (run->hooks->progress && status == FLIM_OK) {
            const flim_progress at = {.phase = kind,
                                      .fold = fold + 1,
                                      .folds = run->splits.n_folds,
                                      .epoch = epoch + 1,
                                      .epochs = run->settings->epochs,
                                      .done = (done + run->eval_batch - 1) / run->eval_batch,
                                      .total = (n + run->eval_batch - 1) / run->eval_batch,
                                      .cells = done,
                                      .seconds = flim_seconds() - begun,
                                      .loss = NAN};
            run->hooks->progress(run->hooks->context, &at);
        }
        if (status == FLIM_OK && flim_run_stopped(run)) {
            status = flim_fail(err, FLIM_INTERRUPTED, "interrupted");
        }
    }
    flim_error ignored;
    flim_status waited = flim_program_wait(run->program, status == FLIM_OK ? err : &ignored);
    if (held) {
        flim_loader_release(run->loader, held);
    }
    flim_loader_cancel(run->loader);
    flim_free(draws);
    return status == FLIM_OK ? waited : status;
}

flim_status flim_predictions_of(const flim_run *run, const int64_t *part, int64_t n, const float *logits, double threshold,
                                flim_predictions *out, flim_error *err)
{
    const flim_dataset_info *info = run->info;
    flim_status status = flim_predictions_create(n, info->classes, out, err);
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        const float *z = logits + i * out->outputs; /* (K') */
        int64_t cell = part[i];
        out->index[i] = cell;
        out->label[i] = info->label ? info->label[cell] : -1;
        out->predicted[i] = flim_predicted_class(info->classes, z, threshold);
        memcpy(out->logits + i * out->outputs, z, (size_t)out->outputs * sizeof *z);
        out->name[i] = flim_strdup(info->name ? info->name[cell] : "", err);
        out->group[i] = flim_strdup(info->group ? info->group_name[info->group[cell]] : "", err);
        if (!out->name[i] || !out->group[i]) {
            status = FLIM_ERROR_MEMORY;
        }
    }
    if (status != FLIM_OK) {
        flim_predictions_free(out);
    }
    return status;
}

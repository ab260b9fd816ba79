#include "train/evaluation.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/stop.h"
#include "flim/metrics.h"

static void report(const flim_evaluation *e, int64_t done, int64_t n, double begun)
{
    if (!e->hooks->progress) {
        return;
    }
    flim_progress at = e->at;
    at.done = (done + e->batch - 1) / e->batch;
    at.total = (n + e->batch - 1) / e->batch;
    at.cells = done;
    at.seconds = flim_seconds() - begun;
    at.loss = NAN;
    e->hooks->progress(e->hooks->context, &at);
}

flim_status flim_evaluate(const flim_evaluation *e, const int64_t *part, int64_t n, float *logits, flim_error *err)
{
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
    const flim_phase phase = {.draws = draws, .n_draws = n, .batch = e->batch, .transform = e->transform};
    flim_status status = flim_loader_begin(e->loader, &phase, err);
    while (status == FLIM_OK) {
        status = flim_loader_next(e->loader, &batch, err);
        if (status != FLIM_OK || !batch) {
            break;
        }
        status = flim_program_predict(e->program, batch, logits + done * e->outputs, err);
        if (held) {
            flim_loader_release(e->loader, held);
        }
        held = batch;
        done += batch->n;
        if (status == FLIM_OK) {
            report(e, done, n, begun);
        }
        if (status == FLIM_OK && flim_stopped(e->hooks->stop)) {
            status = flim_fail(err, FLIM_INTERRUPTED, "interrupted");
        }
    }
    flim_error ignored;
    flim_status waited = flim_program_wait(e->program, status == FLIM_OK ? err : &ignored);
    if (held) {
        flim_loader_release(e->loader, held);
    }
    flim_loader_cancel(e->loader);
    flim_free(draws);
    return status == FLIM_OK ? waited : status;
}

flim_status flim_predictions_of(const flim_dataset_info *info, int classes, const int64_t *part, int64_t n,
                                const float *logits, double threshold, flim_predictions *out, flim_error *err)
{
    flim_status status = flim_predictions_create(n, classes, out, err);
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        const float *z = logits + i * out->outputs; /* (K') */
        int64_t cell = part[i];
        out->index[i] = cell;
        out->label[i] = info->label ? info->label[cell] : -1;
        out->predicted[i] = flim_predicted_class(classes, z, threshold);
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

void flim_ensemble_logits(int64_t n, int classes, const double *sum, int models, float *logits)
{
    const double least = 1e-30; /* of a probability: its logarithm must be finite */
    for (int64_t i = 0; i < n; i++) {
        const double *p = sum + i * classes; /* (K) */
        if (classes == 2) {
            logits[i] = (float)(log(fmax(p[1] / models, least)) - log(fmax(p[0] / models, least)));
        }
        for (int k = 0; classes > 2 && k < classes; k++) {
            logits[i * classes + k] = (float)log(fmax(p[k] / models, least));
        }
    }
}

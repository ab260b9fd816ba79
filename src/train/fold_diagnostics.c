/* --diagnostics: what is measured of an epoch beside its results. */
#include <math.h>

#include "core/bytes.h"
#include "core/try.h"
#include "train/activations.h"
#include "train/fold.h"

flim_status flim_fold_diagnostics_create(flim_fold_work *f, flim_error *err)
{
    return f->run->settings->diagnostics ? flim_fold_state_add_diagnostics(&f->state, err) : FLIM_OK;
}

flim_status flim_fold_diagnostics_begin(flim_fold_work *f, flim_error *err)
{
    const flim_settings *s = f->run->settings;
    if (!s->diagnostics || f->state.finished) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_activations_create(f->trainer->device, &f->trainer->net, f->trainer->precision, s->deterministic,
                                     f->study->dataset, f->part->train, f->part->n_train, &f->activations, err));
    if (f->run->epochs_trained == 0) {
        flim_log_line(&f->run->log, FLIM_LOG_NOTE,
                      "diagnostics: each batch's loss is waited for; a probe of activations takes %.0f MiB beside the memory "
                      "plan",
                      flim_mib(flim_activations_bytes(f->activations)));
    }
    return FLIM_OK;
}

void flim_fold_diagnostics_end(flim_fold_work *f)
{
    flim_activations_destroy(f->activations);
    f->activations = NULL;
}

/* Norm of now - before over that of before; (P). */
static double relative_change(const float *now, const float *before, int64_t n)
{
    double change = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)now[i] - (double)before[i];
        change += d * d;
        size += (double)before[i] * (double)before[i];
    }
    return sqrt(change / size);
}

flim_status flim_fold_diagnose(const flim_fold_work *f, flim_epoch_row *row, flim_error *err)
{
    const flim_fold_state *s = &f->state;
    const float *parameter, *statistic;
    flim_activation_figures figures;
    if (!f->activations) {
        return FLIM_OK;
    }
    flim_fold_weights_evaluated(f, &parameter, &statistic);
    FLIM_TRY(flim_activations_measure(f->activations, parameter, statistic, &figures, err));
    row->inactive = figures.inactive;
    row->dead = figures.dead;
    row->update_size = relative_change(s->parameter, s->epoch_parameter, s->parameters);
    return FLIM_OK;
}

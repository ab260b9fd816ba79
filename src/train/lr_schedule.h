/* The learning rate of an epoch: warm-up, then a schedule.
 *
 * For: the epochs of a fold.  A pure function of the settings and of what the epochs before have shown, so that a resumed run
 *      computes it again from its history.
 * Owns: nothing.  Errors: none.
 */
#ifndef FLIM_TRAIN_LR_SCHEDULE_H
#define FLIM_TRAIN_LR_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/settings.h"

#define FLIM_LR_LEAST 1e-6 /* where cosines end and what plateaus do not go below */

typedef struct flim_lr_schedule {
    flim_lr_schedule_kind kind;
    double first; /* the learning rate after the warm-up */
    int64_t epochs, warmup; /* of the run; of them those ahead of the schedule */
    double warmup_from; /* share of `first` that the warm-up begins with; 0 = as torch's LinearLR (below) */
    int64_t restart_epochs, restart_factor; /* RESTARTS: of the first cosine; of the next ones, each time */
    double plateau_factor; /* PLATEAU */
    int64_t plateau_patience;
    bool larger_is_better; /* of the monitored value */
} flim_lr_schedule;

flim_lr_schedule flim_lr_schedule_of(const flim_settings *settings, double first, bool larger_is_better);

/* Of an epoch (0-based).  Warm-up epoch e of N: first (e + 1) / (N + 1), as torch's LinearLR(1 / (N + 1), total_iters=N), or with
 * warmup_from f first (f + (1 - f) e / N), as LinearLR(f, total_iters=N); then,
 * counted from its end, torch.optim.lr_scheduler's CosineAnnealingLR(T_max=epochs - N, eta_min=min(1e-6, first)),
 * CosineAnnealingWarmRestarts(T_0, T_mult, eta_min=1e-6) or ReduceLROnPlateau(factor, patience, threshold=1e-4 relative,
 * min_lr=1e-6), stepped once per epoch.  monitored: (epoch) values of the epochs before, NaN where it was undefined; read
 * by PLATEAU only. */
double flim_lr_at(const flim_lr_schedule *schedule, int64_t epoch, const double *monitored);

#endif

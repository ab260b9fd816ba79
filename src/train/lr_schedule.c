#include "train/lr_schedule.h"

#include <math.h>

flim_lr_schedule flim_lr_schedule_of(const flim_settings *s, double first, bool larger_is_better)
{
    return (flim_lr_schedule){.kind = s->schedule,
                              .first = first,
                              .epochs = s->epochs,
                              .warmup = s->warmup_epochs,
                              .warmup_from = s->pretrains ? 0.01 : 0,
                              .restart_epochs = s->restart_epochs,
                              .restart_factor = s->restart_factor,
                              .plateau_factor = s->plateau_factor,
                              .plateau_patience = s->plateau_patience,
                              .larger_is_better = larger_is_better};
}

/* One that begins lower than the least stays: it never rises. */
static double cosine(double first, int64_t epoch, int64_t epochs)
{
    const double least = fmin(FLIM_LR_LEAST, first), pi = 3.14159265358979323846;
    return least + (first - least) * (1.0 + cos(pi * (double)epoch / (double)epochs)) / 2.0;
}

/* The cosine that an epoch lies in. */
static double restarts(const flim_lr_schedule *s, int64_t epoch)
{
    int64_t length = s->restart_epochs;
    while (epoch >= length) {
        epoch -= length;
        length *= s->restart_factor;
    }
    return cosine(s->first, epoch, length);
}

/* Replays the epochs after the warm-up. */
static double plateau(const flim_lr_schedule *s, int64_t epoch, const double *monitored)
{
    const double threshold = 1e-4, least_change = 1e-8;
    double rate = s->first, best = s->larger_is_better ? -(double)INFINITY : (double)INFINITY;
    int64_t bad = 0;
    for (int64_t e = s->warmup; e < epoch; e++) {
        const double value = monitored[e];
        const bool better = s->larger_is_better ? value > best * (1.0 + threshold) : value < best * (1.0 - threshold);
        best = better ? value : best;
        bad = better ? 0 : bad + 1;
        if (bad > s->plateau_patience) {
            const double lower = fmax(rate * s->plateau_factor, FLIM_LR_LEAST);
            rate = rate - lower > least_change ? lower : rate;
            bad = 0;
        }
    }
    return rate;
}

double flim_lr_at(const flim_lr_schedule *s, int64_t epoch, const double *monitored)
{
    if (epoch < s->warmup && s->warmup_from > 0) {
        return s->first * (s->warmup_from + (1.0 - s->warmup_from) * (double)epoch / (double)s->warmup);
    }
    if (epoch < s->warmup) {
        return s->first * (double)(epoch + 1) / (double)(s->warmup + 1);
    }
    switch (s->kind) {
    case FLIM_LR_SCHEDULE_COSINE: return cosine(s->first, epoch - s->warmup, s->epochs - s->warmup);
    case FLIM_LR_SCHEDULE_RESTARTS: return restarts(s, epoch - s->warmup);
    case FLIM_LR_SCHEDULE_PLATEAU: return plateau(s, epoch, monitored);
    case FLIM_LR_SCHEDULE_CONSTANT: break;
    }
    return s->first;
}

/* What a run takes of time and money. */
#include <inttypes.h>

#include "results/fold_result.h"
#include "train/run.h"
#include "core/text.h"

#define LONG_RUN (2 * 3600.0) /* seconds: a person would want to know of another way */

static void duration(double seconds, char out[32])
{
    const int64_t s = seconds > 0 && seconds < 1e12 ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(out, 32, "%" PRId64 " h %02d min", s / 3600, (int)(s / 60 % 60));
    } else if (s < 60) {
        snprintf(out, 32, "%.1f s", seconds > 0 ? seconds : 0);
    } else {
        snprintf(out, 32, "%d min %02d s", (int)(s / 60), (int)(s % 60));
    }
}

int64_t flim_run_epochs_left(const flim_run *run, int n_folds, int k, int64_t epoch)
{
    const flim_settings *s = run->settings;
    int folds = 0; /* still to come after this one */
    for (int i = k + 1; i < n_folds; i++) {
        folds += (s->fold < 0) && !flim_fold_is_done(run->folder, i);
    }
    const int64_t all = flim_run_epochs(run), per_fold = s->refit && s->val_fraction > 0 ? 2 * all : all;
    return per_fold - epoch - 1 + folds * per_fold + (s->final_model ? s->epochs : 0);
}

/* What the epochs of the folds do not hold. */
static const char *beside_epochs(const flim_run *run)
{
    const flim_settings *s = run->settings;
    const bool more_than_one = s->fold < 0 || s->final_model;
    return more_than_one && flim_settings_per_fold(s) ? "; the pretraining of further folds comes on top" : "";
}

void flim_log_time_left(const flim_run *run, int n_folds, int k, int64_t epoch, double seconds)
{
    const flim_settings *s = run->settings;
    char text[32], price[64] = "";
    const int processes = run->hooks->shared ? run->hooks->shared->processes : 1;
    const double most = (double)flim_run_epochs_left(run, n_folds, k, epoch);
    const double own = (double)(flim_run_epochs(run) - epoch - 1); /* of this fold, which nobody shares */
    const double left = seconds * (most / processes > own ? most / processes : own);
    duration(left, text);
    if (s->price_per_hour > 0) {
        snprintf(price, sizeof price, ", %.2f at %g per hour", left / 3600 * s->price_per_hour, s->price_per_hour);
    }
    flim_log_line(&run->log, FLIM_LOG_INFO, "Time: %.1f s per epoch, at most %s%s remaining (less with early stopping%s)",
                  seconds, text, price, beside_epochs(run));
}

/* What takes less time, of that which this run does not do already. */
static void hint(const flim_run *run, const flim_trainer *trainer)
{
    const flim_settings *s = run->settings;
    const bool gpu = flim_device_get_info(trainer->device)->own_memory;
    const bool large = s->preset != FLIM_PRESET_TINY && s->preset != FLIM_PRESET_NANO;
    flim_log_line(&run->log, FLIM_LOG_NOTE, "that is long; what takes less: %s%sfewer epochs (--epochs) or folds (--folds)",
                  large ? "a smaller network (--preset tiny), " : "",
                  !gpu                                        ? "a GPU (--device cuda), "
                  : trainer->precision == FLIM_PRECISION_FP32 ? "another precision (--amp), "
                                                              : "");
}

void flim_log_estimate(const flim_run *run, const flim_trainer *trainer, double seconds, double per_batch, int64_t epochs)
{
    char text[32];
    duration(seconds, text);
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Estimate: at most about %s for %s %" PRId64 " epoch%s, at %.3g s per batch (less with early stopping%s)",
                  text, run->settings->resume ? "the remaining" : "all", epochs, flim_s(epochs), per_batch,
                  beside_epochs(run));
    if (seconds >= LONG_RUN) {
        hint(run, trainer);
    }
}

void flim_log_cost(const flim_run *run, double seconds)
{
    const double price = run->settings->price_per_hour;
    char text[32];
    if (price > 0) {
        duration(seconds, text);
        flim_log_line(&run->log, FLIM_LOG_INFO, "Cost%s: %s at %g per hour: %.2f",
                      run->settings->resume ? " since it was resumed" : "", text, price, seconds / 3600 * price);
    }
}

/* The learning rate for the cells per update. */
#include <inttypes.h>
#include <math.h>

#include "train/pretraining_recipe.h"
#include "train/run.h"

/* part: cells (of pairs: views) of an epoch, at most. */
static void log_accumulation(const flim_run *run, int64_t asked, int64_t part)
{
    const flim_settings *s = run->settings;
    const char *what = flim_pretraining_views(s) > 1 ? "views" : "cells";
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Accumulation: %" PRId64 " x %" PRId64 " = %" PRId64
                  " %s per step (effective batch); BatchNorm uses the statistics of each batch of %" PRId64,
                  flim_run_batch_cells(run), flim_run_update_batches(run), asked, what, flim_run_batch_cells(run));
    if (asked > part) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "a training set has %" PRId64 " %s at most, so an epoch is one step of that many: %s more updates",
                      part, what,
                      s->batch < part ? "fewer batches per update (--accumulate) make" : "a smaller --batch makes");
    }
}

static void log_ranks(const flim_run *run, int64_t asked)
{
    const flim_settings *s = run->settings;
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Parallel: %d processes train together (%s): %d x %" PRId64 " x %" PRId64 " = %" PRId64 " cells per step",
                  flim_ranks_size(run->ranks), flim_ranks_library(run->ranks), flim_ranks_size(run->ranks), s->batch,
                  s->accumulate, asked);
    if (s->sync_batchnorm) {
        flim_log_line(&run->log, FLIM_LOG_INFO,
                      "          sync-batchnorm: %d x %" PRId64 " cells are one batch of %" PRId64
                      ", whose statistics BatchNorm uses",
                      flim_ranks_size(run->ranks), s->batch, flim_run_batch_cells(run));
    }
}

void flim_run_scale_learning_rate(const flim_run *run, const flim_study *study, flim_trainer *trainer)
{
    const flim_settings *s = run->settings;
    const int64_t asked = flim_run_batch_cells(run) * flim_run_update_batches(run),
                  part = flim_splits_largest_part(&study->splits) * flim_pretraining_views(s);
    const int64_t cells = asked < part ? asked : part; /* an update has no more cells than a training set */
    const double ratio = (double)cells / (double)s->lr_batch;
    const double scale[] = {[FLIM_LR_SCALE_NONE] = 1, [FLIM_LR_SCALE_SQRT] = sqrt(ratio), [FLIM_LR_SCALE_LINEAR] = ratio};
    trainer->learning_rate = s->lr * scale[s->lr_scale];
    if (trainer->learning_rate != s->lr) {
        flim_log_line(&run->log, FLIM_LOG_INFO,
                      "Learning rate: %g, from %g for %" PRId64 " cells per update (lr-scale %s; %" PRId64 " cells now)",
                      trainer->learning_rate, s->lr, s->lr_batch, flim_lr_scale_names[s->lr_scale], cells);
    } else if (cells != s->lr_batch && s->lr_scale == FLIM_LR_SCALE_NONE && run->found_batch && !s->pretrains) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "%" PRId64 " cells per step (effective batch) instead of %" PRId64
                      ": results will differ; adapt lr with --lr-scale sqrt or linear",
                      cells, s->lr_batch);
    }
    if (flim_ranks_size(run->ranks) > 1) {
        log_ranks(run, asked);
    }
    if (flim_run_update_batches(run) > 1) {
        log_accumulation(run, asked, part);
    }
}

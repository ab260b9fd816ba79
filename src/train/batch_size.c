/* The batch size: found by --batch auto, and made smaller if memory lacks. */
#include <inttypes.h>

#include "core/bytes.h"
#include "plan/plan.h"
#include "train/pretraining_recipe.h"
#include "train/run.h"

flim_status flim_run_find_batch(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const flim_device_info *device = flim_device_get_info(trainer->device);
    const int64_t cap = flim_splits_largest_part(&study->splits) * flim_pretraining_views(run->settings);
    flim_plan_budget budget = flim_run_budget(run, trainer);
    flim_plan_request request = flim_plan_request_of(run->settings, &trainer->net, device);
    flim_plan plan;
    flim_plan_trial trial;
    budget.bytes -= flim_run_device_cache_bytes(run, study);
    if (!device->own_memory) { /* decoded cells lie in the same memory */
        request.cache_bytes = study->info->cache_bytes;
    }
    if (flim_plan_auto(trainer->device, &request, &budget, cap, &run->log, &plan, &trial, err) != FLIM_OK) {
        return flim_fail_prefix(err, "batch auto: ");
    }
    if (run->adjusted.eval_batch != plan.request.eval_batch) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "batch auto: eval batch %" PRId64 " does not fit beside training; it is %" PRId64 ", as the batch",
                      run->adjusted.eval_batch, plan.request.batch);
    }
    run->adjusted.batch = plan.request.batch;
    run->adjusted.eval_batch = plan.request.eval_batch;
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Batch auto: %" PRId64 " cells, %.2f of %.2f GiB%s; a step of training, validation and tails ran",
                  plan.request.batch, flim_gib(plan.bounded_bytes), flim_gib(budget.bytes),
                  plan.request.batch == cap ? " (all of the largest training set)" : "");
    return FLIM_OK;
}

bool flim_run_lower_found_batch(flim_run *run, const flim_error *why)
{
    const int64_t batch = run->settings->batch, least = flim_pretraining_views(run->settings);
    const int64_t lower = (batch - (batch + 7) / 8) / least * least;
    if (!run->found_batch || lower < least) {
        return false;
    }
    flim_log_line(&run->log, FLIM_LOG_NOTE, "batch auto: %" PRId64 " cells do not fit after all: %s; now %" PRId64, batch,
                  why->text, lower);
    run->adjusted.batch = lower;
    return true;
}

bool flim_run_smaller_batch(const flim_run *run, const flim_study *study, int64_t *batch, int64_t *accumulate)
{
    const flim_settings *s = run->settings;
    const int64_t least = flim_pretraining_views(s), cells = s->batch * s->accumulate; /* of each rank; pairs stay whole */
    const int64_t half = s->batch / 2 / least * least;
    int64_t divisor = half;
    if (half < least) {
        return false;
    }
    if (study->splits.n_folds > 0 && cells * flim_ranks_size(run->ranks) >=
                                         flim_splits_largest_part(&study->splits) *
                                             least) { /* one update per epoch, and so it stays however the part is cut */
        *batch = s->batch - half;
        *accumulate = (cells + *batch - 1) / *batch;
        return true;
    }
    while (divisor > least && cells % divisor != 0) {
        divisor -= least;
    }
    *batch = divisor;
    *accumulate = cells / divisor;
    return true;
}

bool flim_run_shrink_batch(flim_run *run, const flim_study *study, const flim_error *why)
{
    flim_settings *s = &run->adjusted;
    int64_t batch, accumulate;
    if (s->on_oom != FLIM_ON_OOM_RETRY || !flim_run_smaller_batch(run, study, &batch, &accumulate)) {
        return false;
    }
    flim_log_line(&run->log, FLIM_LOG_WARNING, "out of memory: %s", why ? why->text : "no reason given");
    flim_log_line(&run->log, FLIM_LOG_WARNING,
                  "on-oom retry: batch %" PRId64 " x %" PRId64 " instead of %" PRId64 " x %" PRId64
                  ": the same effective batch, but BatchNorm sees fewer cells at a time",
                  batch, accumulate, s->batch, s->accumulate);
    s->accumulate = accumulate;
    s->batch = batch;
    s->eval_batch = s->eval_batch > batch ? batch : s->eval_batch;
    return true;
}

/* The batch of --batch auto, the learning rate that goes with it, and what was planned against what was used. */
#include <inttypes.h>
#include <math.h>
#include <sys/resource.h>

#include "plan/plan.h"
#include "results/fold_result.h"
#include "train/run.h"

#define GIB 1073741824.0

static void take_batch(flim_run *run, int64_t batch, int64_t eval_batch)
{
    run->adjusted.batch = batch;
    run->adjusted.eval_batch = eval_batch;
    run->eval_batch = eval_batch ? eval_batch : batch;
}

static flim_status find_batch(flim_run *run, flim_error *err)
{
    flim_plan_room room = flim_plan_room_of(run->device, run->settings->margin);
    const int64_t cap = flim_splits_largest_part(&run->splits);
    flim_plan plan;
    flim_plan_trial trial;
    room.budget -= flim_run_device_cache_bytes(run);
    flim_plan_request request = flim_plan_request_of(run->settings, &run->net, flim_device_get_info(run->device));
    if (!flim_device_get_info(run->device)->own_memory) { /* decoded cells lie in the same memory */
        request.cache_bytes = run->info->cache_bytes;
    }
    const flim_status status = flim_plan_auto(run->device, &request, &room, cap, &run->log, &plan, &trial, err);
    if (status != FLIM_OK) {
        return flim_fail_prefix(err, "batch auto: ");
    }
    if (run->adjusted.eval_batch != plan.request.eval_batch) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "batch auto: eval batch %" PRId64 " does not fit beside training; it is %" PRId64 ", as the batch",
                      run->adjusted.eval_batch, plan.request.batch);
    }
    take_batch(run, plan.request.batch, plan.request.eval_batch);
    const bool capped = plan.request.batch == cap;
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Batch auto: %" PRId64 " cells, %.2f of %.2f GiB%s; a step of training, validation and tails ran",
                  plan.request.batch, (double)plan.bounded_bytes / GIB, (double)room.budget / GIB,
                  capped ? " (all of the largest training part)" : "");
    return FLIM_OK;
}

/* The learning rate that goes with the batch, and what a user must know of both. */
static void settle_rate(flim_run *run)
{
    const flim_settings *s = run->settings;
    const int64_t asked = s->batch * s->accumulate, part = flim_splits_largest_part(&run->splits);
    const int64_t cells = asked < part ? asked : part; /* an update has no more cells than a training part */
    const double ratio = (double)cells / (double)s->lr_batch;
    const double scale[] = {[FLIM_LR_SCALE_NONE] = 1, [FLIM_LR_SCALE_SQRT] = sqrt(ratio), [FLIM_LR_SCALE_LINEAR] = ratio};
    run->lr = s->lr * scale[s->lr_scale];
    if (run->lr != s->lr) {
        flim_log_line(&run->log, FLIM_LOG_INFO,
                      "Learning rate: %g, from %g for %" PRId64 " cells an update (lr-scale %s; %" PRId64 " cells now)",
                      run->lr, s->lr, s->lr_batch, flim_lr_scale_names[s->lr_scale], cells);
    } else if (cells != s->lr_batch && s->lr_scale == FLIM_LR_SCALE_NONE && run->found_batch) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "%" PRId64 " cells an update instead of %" PRId64
                      ": results differ; --lr-scale sqrt or linear adapts lr",
                      cells, s->lr_batch);
    }
    if (s->accumulate > 1) {
        flim_log_line(&run->log, FLIM_LOG_INFO,
                      "Accumulation: %" PRId64 " x %" PRId64 " = %" PRId64
                      " cells an update; BatchNorm's statistics are those of each batch of %" PRId64,
                      s->batch, s->accumulate, asked, s->batch);
    }
    if (s->accumulate > 1 && asked > part) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "a training part has %" PRId64
                      " cells at most, so that an epoch is one update of that many: %s more updates",
                      part, s->batch < part ? "fewer batches to an update (--accumulate) make" : "a smaller --batch makes");
    }
}

flim_status flim_run_settle_batch(flim_run *run, flim_error *err)
{
    const flim_status status = run->settings->batch == 0 ? find_batch(run, err) : FLIM_OK;
    if (status == FLIM_OK) {
        settle_rate(run);
    }
    return status;
}

bool flim_run_lower_found_batch(flim_run *run, const flim_error *why)
{
    const flim_settings *s = run->settings;
    if (!run->found_batch || s->batch <= 1) {
        return false;
    }
    const int64_t batch = s->batch - (s->batch + 7) / 8;
    flim_log_line(&run->log, FLIM_LOG_NOTE,
                  "batch auto: %" PRId64 " cells do not fit beside the run after all: %s; now %" PRId64, s->batch, why->text,
                  batch);
    take_batch(run, batch, s->eval_batch);
    settle_rate(run);
    return true;
}

bool flim_run_smaller_batch(const flim_run *run, int64_t *batch, int64_t *accumulate)
{
    const flim_settings *s = run->settings;
    const int64_t cells = s->batch * s->accumulate, half = s->batch / 2;
    int64_t divisor = half;
    if (half < 1) {
        return false;
    }
    if (run->splits.n_folds > 0 &&
        cells >= flim_splits_largest_part(&run->splits)) { /* one update an epoch, and so it stays however the part is cut */
        *batch = s->batch - half;
        *accumulate = (cells + *batch - 1) / *batch;
        return true;
    }
    while (divisor > 1 && cells % divisor != 0) {
        divisor--;
    }
    *batch = divisor;
    *accumulate = cells / divisor;
    return true;
}

bool flim_run_shrink_batch(flim_run *run, const flim_error *why)
{
    flim_settings *s = &run->adjusted;
    int64_t batch, accumulate;
    if (s->on_oom != FLIM_ON_OOM_RETRY || !flim_run_smaller_batch(run, &batch, &accumulate)) {
        return false;
    }
    flim_log_line(&run->log, FLIM_LOG_WARNING, "out of memory: %s", why ? why->text : "no reason given");
    flim_log_line(&run->log, FLIM_LOG_WARNING,
                  "on-oom retry: batch %" PRId64 " x %" PRId64 " instead of %" PRId64 " x %" PRId64
                  ": as many cells an update, but BatchNorm sees fewer at a time",
                  batch, accumulate, s->batch, s->accumulate);
    s->accumulate = accumulate;
    take_batch(run, batch, s->eval_batch > batch ? batch : s->eval_batch);
    return true;
}

/* ---- planned against used, time and price ---- */

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

static void note_memory(flim_run *run)
{
    const int64_t planned = run->planned_bytes, peak = flim_program_peak_bytes(run->program);
    if (!flim_device_get_info(run->device)->own_memory) {
        struct rusage use;
        if (getrusage(RUSAGE_SELF, &use) == 0) {
            flim_log_line(&run->log, FLIM_LOG_INFO,
                          "Memory: %.2f GiB planned for the program, %.2f GiB used by it; the process held at most %.2f GiB",
                          (double)planned / GIB, (double)peak / GIB, (double)use.ru_maxrss * 1024 / GIB);
        }
        return;
    }
    int64_t now = 0;
    if (flim_device_memory_free(run->device, &now, NULL) == FLIM_OK) {
        const int64_t gone = run->free_before - now; /* others may take and give some meanwhile */
        flim_log_line(
            &run->log, FLIM_LOG_INFO,
            "Memory: %.1f MiB planned, %.1f MiB allocated (%+.2f %%); the card has %.1f MiB less free than before, code "
            "that was loaded meanwhile included",
            (double)planned / 1048576.0, (double)run->allocated_bytes / 1048576.0,
            planned > 0 ? 100 * ((double)run->allocated_bytes / (double)planned - 1) : 0.0, (double)gone / 1048576.0);
    }
}

void flim_run_note_epoch(flim_run *run, int k, int64_t epoch, bool whole, double seconds)
{
    if (run->epochs_trained++ == 0) {
        note_memory(run);
    }
    if (!whole || run->time_told) { /* half an epoch after --resume says little */
        return;
    }
    run->time_told = true;
    int folds = 0; /* still to come after this one */
    for (int i = k + 1; i < run->splits.n_folds; i++) {
        folds += (run->settings->fold < 0) && !flim_fold_is_done(run->folder, i);
    }
    const double left =
        seconds * ((double)(run->settings->epochs - epoch - 1) + (double)folds * (double)run->settings->epochs);
    char text[32], price[64] = "";
    duration(left, text);
    if (run->settings->price_per_hour > 0) {
        snprintf(price, sizeof price, ", %.2f at %g an hour", left / 3600 * run->settings->price_per_hour,
                 run->settings->price_per_hour);
    }
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Time: %.1f s an epoch, at most %s%s to the end (less where patience ends a fold)", seconds, text, price);
}

void flim_run_note_cost(const flim_run *run, double seconds)
{
    if (run->settings->price_per_hour > 0) {
        char text[32];
        duration(seconds, text);
        flim_log_line(&run->log, FLIM_LOG_INFO, "Cost%s: %s at %g an hour: %.2f",
                      run->settings->resume ? " since it was resumed" : "", text, run->settings->price_per_hour,
                      seconds / 3600 * run->settings->price_per_hour);
    }
}

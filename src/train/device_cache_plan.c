/* Where decoded cells stay during a run: --cache. */
#include <inttypes.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/try.h"
#include "data/device_cache.h"
#include "plan/plan.h"
#include "train/run.h"

/* The device may take the cells later; until then (and if it cannot) they stay in host memory. */
static bool may_use_device(const flim_run *run, const flim_trainer *trainer)
{
    return trainer->device && flim_device_get_info(trainer->device)->own_memory &&
           (run->settings->cache == FLIM_CACHE_AUTO || run->settings->cache == FLIM_CACHE_DEVICE);
}

flim_cache flim_run_cache_of_data(const flim_run *run, const flim_trainer *trainer)
{
    const flim_cache asked = run->settings->cache;
    return may_use_device(run, trainer) ? FLIM_CACHE_DEVICE : asked == FLIM_CACHE_DEVICE ? FLIM_CACHE_AUTO : asked;
}

flim_status flim_run_check_cache(const flim_run *run, const flim_trainer *trainer, flim_error *err)
{
    const flim_device_info *device = flim_device_get_info(trainer->device);
    return run->settings->cache == FLIM_CACHE_DEVICE && !device->own_memory
               ? flim_fail(err, FLIM_ERROR_USAGE, "--cache device: %s has no device memory; use --cache host or auto",
                           device->name)
               : FLIM_OK;
}

int64_t flim_run_device_cache_bytes(const flim_run *run, const flim_study *study)
{
    int64_t bytes = 0;
    uint8_t *widths = run->settings->cache == FLIM_CACHE_DEVICE ? flim_alloc((size_t)study->info->n, 1, NULL) : NULL;
    if (widths) {
        flim_device_cache_widths(study->dataset, study->summary, widths);
        bytes = flim_device_cache_bytes(study->dataset, widths);
    }
    flim_free(widths);
    return bytes;
}

static flim_status planned_bytes(const flim_trainer *trainer, int64_t *bytes, flim_error *err)
{
    flim_memory_plan plan = {0};
    const flim_status status = flim_program_memory(trainer->program, &plan, err);
    *bytes = plan.total[FLIM_MEMORY_DEVICE];
    return status;
}

static void log_cached(const flim_run *run, const flim_study *study, const flim_trainer *trainer, int64_t bytes)
{
    int64_t cells[5] = {0}; /* by bytes per voxel */
    for (int64_t i = 0; i < study->info->n; i++) {
        cells[trainer->cache_widths[i]]++;
    }
    flim_log_line(&run->log, FLIM_LOG_NOTE,
                  "caching decoded cells in device memory: %.0f MiB (%" PRId64 " as uint8, %" PRId64 " as uint16, %" PRId64
                  " as float); no counts are copied per batch, only the cells' numbers and labels",
                  flim_mib(bytes), cells[1], cells[2], cells[4]);
}

flim_status flim_run_plan_device_cache(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    if (!may_use_device(run, trainer)) {
        return FLIM_OK;
    }
    /* auto leaves the margin free, as plans do; who asks for the device gets what there is. */
    const bool asked = run->settings->cache == FLIM_CACHE_DEVICE;
    const int64_t budget = asked ? flim_device_get_info(trainer->device)->memory_free : flim_run_budget(run, trainer).bytes;
    int64_t without = 0, with = 0;
    trainer->cache_widths = flim_alloc((size_t)study->info->n, 1, err);
    if (!trainer->cache_widths) {
        return FLIM_ERROR_MEMORY;
    }
    flim_device_cache_widths(study->dataset, study->summary, trainer->cache_widths);
    if (!flim_run_augments_widths(run, trainer->cache_widths, study->info->n)) { /* only without a scan: it refuses them */
        if (asked) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "--cache device keeps counts of floats as they are for the network, which --augment cannot work "
                             "on; leave out --no-scan, or use --cache host");
        }
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "caching decoded cells in host memory: --augment needs their counts, and without a scan floats go to "
                      "the device as they are for the network");
        return flim_run_drop_device_cache(run, study, trainer, err);
    }
    FLIM_TRY(planned_bytes(trainer, &without, err));
    FLIM_TRY(flim_device_cache_plan(trainer->program, study->dataset, trainer->cache_widths, err));
    FLIM_TRY(planned_bytes(trainer, &with, err));
    if (with <= budget) {
        log_cached(run, study, trainer, with - without);
        return FLIM_OK;
    }
    if (asked) {
        return flim_fail(err, FLIM_ERROR_MEMORY,
                         "--cache device: %.2f GiB of cells and %.2f GiB for the program are more than the %.2f GiB of "
                         "device memory that are free; use a smaller --batch, or --cache host",
                         flim_gib(with - without), flim_gib(without), flim_gib(budget));
    }
    flim_log_line(&run->log, FLIM_LOG_NOTE,
                  "%.2f GiB of cells and %.2f GiB for the program do not fit into the %.2f GiB of device memory there are",
                  flim_gib(with - without), flim_gib(without), flim_gib(budget));
    return flim_run_drop_device_cache(run, study, trainer, err);
}

flim_status flim_run_drop_device_cache(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    flim_free(trainer->cache_widths);
    trainer->cache_widths = NULL;
    flim_dataset_log_cache(study->dataset, &run->log);
    return flim_program_plan_cache(trainer->program, NULL, err);
}

flim_status flim_run_fill_device_cache(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    if (!trainer->cache_widths) {
        return FLIM_OK;
    }
    const flim_status status = flim_device_cache_fill(trainer->program, study->dataset, trainer->cache_widths,
                                                      (int)run->settings->workers, run->hooks->stop, err);
    flim_dataset_drop_cache(study->dataset);
    return flim_ranks_settle(trainer->ranks, status, err);
}

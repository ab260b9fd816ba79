/* Where decoded cells stay during a run: --cache. */
#include <inttypes.h>

#include "core/alloc.h"
#include "data/device_cache.h"
#include "plan/plan.h"
#include "train/run.h"

#define GIB 1073741824.0

/* The device may take the cells later; until then (and where it cannot) RAM is the place. */
static bool may_keep(const flim_run *run)
{
    return run->device && flim_device_get_info(run->device)->own_memory &&
           (run->settings->cache == FLIM_CACHE_AUTO || run->settings->cache == FLIM_CACHE_DEVICE);
}

flim_cache flim_run_cache_of_data(const flim_run *run)
{
    const flim_cache asked = run->settings->cache;
    return may_keep(run) ? FLIM_CACHE_DEVICE : asked == FLIM_CACHE_DEVICE ? FLIM_CACHE_AUTO : asked;
}

flim_status flim_run_check_cache(const flim_run *run, flim_error *err)
{
    const flim_device_info *device = flim_device_get_info(run->device);
    return run->settings->cache == FLIM_CACHE_DEVICE && !device->own_memory
               ? flim_fail(err, FLIM_ERROR_USAGE, "--cache device: %s has no device memory; use --cache host or auto",
                           device->name)
               : FLIM_OK;
}

static flim_status planned_bytes(const flim_run *run, int64_t *bytes, flim_error *err)
{
    flim_memory_plan plan;
    flim_status status = flim_program_memory(run->program, &plan, err);
    *bytes = plan.total[FLIM_MEMORY_DEVICE];
    return status;
}

static void note_device_cache(const flim_run *run, int64_t bytes)
{
    int64_t cells[5] = {0}; /* by bytes of a voxel */
    for (int64_t i = 0; i < run->info->n; i++) {
        cells[run->cache_widths[i]]++;
    }
    flim_log_line(&run->log, FLIM_LOG_NOTE,
                  "cells stay in device memory: %.0f MiB (%" PRId64 " as uint8, %" PRId64 " as uint16, %" PRId64 " as float)",
                  (double)bytes / 1048576.0, cells[1], cells[2], cells[4]);
}

int64_t flim_run_device_cache_bytes(const flim_run *run)
{
    int64_t bytes = 0;
    uint8_t *widths = run->settings->cache == FLIM_CACHE_DEVICE ? flim_alloc((size_t)run->info->n, 1, NULL) : NULL;
    if (widths) {
        flim_device_cache_widths(run->dataset, run->summary, widths);
        bytes = flim_device_cache_bytes(run->dataset, widths);
    }
    flim_free(widths);
    return bytes;
}

flim_status flim_run_plan_cache(flim_run *run, flim_error *err)
{
    if (!may_keep(run)) {
        return FLIM_OK;
    }
    /* auto leaves the margin free, as plans do; who asks for the device gets what there is. */
    const bool asked = run->settings->cache == FLIM_CACHE_DEVICE;
    const int64_t room =
        asked ? flim_device_get_info(run->device)->memory_free : flim_plan_room_of(run->device, run->settings->margin).budget;
    int64_t without = 0, with = 0;
    if (!(run->cache_widths = flim_alloc((size_t)run->info->n, 1, err))) {
        return FLIM_ERROR_MEMORY;
    }
    flim_device_cache_widths(run->dataset, run->summary, run->cache_widths);
    flim_status status = planned_bytes(run, &without, err);
    if (status == FLIM_OK) {
        status = flim_device_cache_plan(run->program, run->dataset, run->cache_widths, err);
    }
    if (status == FLIM_OK) {
        status = planned_bytes(run, &with, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    if (with <= room) {
        note_device_cache(run, with - without);
        return FLIM_OK;
    }
    const double cells = (double)(with - without) / GIB, program = (double)without / GIB, free_room = (double)room / GIB;
    if (asked) {
        return flim_fail(
            err, FLIM_ERROR_MEMORY,
            "--cache device: %.2f GiB of cells and %.2f GiB for the program are more than the %.2f GiB of device "
            "memory that are free; take a smaller --batch, or --cache host",
            cells, program, free_room);
    }
    flim_log_line(&run->log, FLIM_LOG_NOTE,
                  "%.2f GiB of cells and %.2f GiB for the program do not fit into the %.2f GiB of device memory there are",
                  cells, program, free_room);
    return flim_run_unplan_cache(run, err);
}

flim_status flim_run_unplan_cache(flim_run *run, flim_error *err)
{
    flim_free(run->cache_widths);
    run->cache_widths = NULL;
    flim_dataset_log_cache(run->dataset, &run->log);
    return flim_program_plan_cache(run->program, NULL, err);
}

flim_status flim_run_fill_cache(flim_run *run, flim_error *err)
{
    if (!run->cache_widths) {
        return FLIM_OK;
    }
    flim_status status = flim_device_cache_fill(run->program, run->dataset, run->cache_widths, (int)run->settings->workers,
                                                run->hooks->stop, err);
    flim_dataset_drop_cache(run->dataset);
    return status;
}

/* Memory, as planned before the program is allocated and as used once it has trained. */
#include <inttypes.h>
#include <sys/resource.h>

#include "core/bytes.h"
#include "core/try.h"
#include "plan/plan.h"
#include "train/run.h"

flim_status flim_log_memory_plan(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const bool cached = trainer->cache_widths != NULL; /* on the device: in the program's plan, and without buffers */
    flim_plan plan = {.request = {.net = &trainer->net,
                                  .batch = trainer->batch,
                                  .eval_batch = trainer->eval_batch,
                                  .prefetch = cached ? 0 : (int)run->settings->prefetch,
                                  .cache_bytes = cached ? 0 : study->info->cache_bytes}};
    const flim_plan_budget budget = flim_run_budget(run, trainer);
    FLIM_TRY(flim_program_memory(trainer->program, &plan.memory, err));
    flim_plan_complete(&plan, trainer->device, &budget);
    trainer->planned_bytes = plan.program_bytes;
    flim_plan_table(&plan, flim_device_get_info(trainer->device)->own_memory ? &budget : NULL, &run->log);
    return FLIM_OK;
}

static void log_host_use(const flim_run *run, const flim_trainer *trainer)
{
    struct rusage use;
    if (getrusage(RUSAGE_SELF, &use) == 0) {
        flim_log_line(&run->log, FLIM_LOG_INFO, "Memory: planned %.2f GiB, used %.2f GiB, peak RSS %.2f GiB",
                      flim_gib(trainer->planned_bytes), flim_gib(flim_program_peak_bytes(trainer->program)),
                      flim_gib((int64_t)use.ru_maxrss * 1024));
    }
}

void flim_log_memory_use(const flim_run *run, const flim_trainer *trainer)
{
    const int64_t planned = trainer->planned_bytes, allocated = trainer->allocated_bytes;
    int64_t now = 0;
    if (!flim_device_get_info(trainer->device)->own_memory) {
        log_host_use(run, trainer);
    } else if (flim_device_memory_free(trainer->device, &now, NULL) == FLIM_OK) {
        const int64_t gone = trainer->free_before - now; /* others may take and give some meanwhile */
        flim_log_line(&run->log, FLIM_LOG_INFO,
                      "Memory: planned %.1f MiB, allocated %.1f MiB (%+.2f %%); free memory of the card fell by %.1f MiB "
                      "(loaded code included)",
                      flim_mib(planned), flim_mib(allocated),
                      planned > 0 ? 100 * ((double)allocated / (double)planned - 1) : 0.0, flim_mib(gone));
    }
}

/* The GPU's load, seen by a run. */
#include "train/run.h"

void flim_run_watch_load(flim_run *run, const flim_trainer *trainer, const flim_epoch_row *row, double seconds)
{
    char text[512];
    if (!flim_device_get_info(trainer->device)->own_memory || run->epochs_trained < 2 || run->load_told) {
        return; /* the first epoch tunes, captures graphs and fills caches */
    }
    const int *in = trainer->net.in;
    const bool cached = trainer->cache_widths != NULL;
    const int64_t pixels = (int64_t)in[1] * in[2], bytes = pixels * in[0] * (int64_t)sizeof(float) + pixels;
    flim_load_add(&run->load, row, seconds, &trainer->telemetry, cached ? 0 : bytes);
    const flim_load_verdict verdict = flim_load_judge(&run->load);
    if (verdict.bound == FLIM_LOAD_UNKNOWN) {
        return;
    }
    run->load_told = true; /* or there is nothing to tell: the epochs of a run are alike */
    flim_load_text(&verdict, run->settings->workers, trainer->batch, cached, text, sizeof text);
    if (text[0]) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "%s (docs/troubleshooting.md, \"GPU below 70 %% busy\")", text);
    }
}

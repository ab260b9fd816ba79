/* What a run says before it trains: device, data table, network, memory. */
#include <inttypes.h>

#include "core/alloc.h"
#include "backend/backend.h"
#include "backend/precision.h"
#include "core/median.h"
#include "core/text.h"
#include "train/run.h"

#define GB 1e9
#define GIB 1073741824.0

/* What is computed with, why that, and what else there is. */
static void precision_lines(const flim_run *run, const flim_trainer *trainer)
{
    const flim_log *log = &run->log;
    const flim_device_info *d = flim_device_get_info(trainer->device);
    const flim_precision asked = run->settings->precision, p = trainer->precision;
    char others[48], amp[48] = "";
    flim_precision_list(d->precisions, p, others);
    if (d->amp_precision != FLIM_PRECISION_AMP) {
        snprintf(amp, sizeof amp, "; --amp means %s", flim_precision_name(d->amp_precision));
    }
    flim_log_line(log, FLIM_LOG_INFO, "Precision: %s%s%s%s%s%s", flim_precision_name(p),
                  asked == FLIM_PRECISION_AUTO  ? " (auto: "
                  : asked == FLIM_PRECISION_AMP ? " (amp)"
                                                : " (as set)",
                  asked == FLIM_PRECISION_AUTO ? d->precision_reason : "", asked == FLIM_PRECISION_AUTO ? ")" : "",
                  others[0] ? "; the device also has " : "", others);
    flim_log_line(log, FLIM_LOG_INFO, "           %s", flim_precision_arithmetic(p));
    flim_log_line(log, FLIM_LOG_INFO, "           channels-last (NDHWC), loss scaling: %s, benchmark %s%s",
                  flim_precision_loss_scaling(p), run->settings->benchmark ? "on" : "off", amp);
}

void flim_startup_device(const flim_run *run, const flim_trainer *trainer)
{
    const flim_log *log = &run->log;
    const flim_device_info *d = flim_device_get_info(trainer->device);
    const flim_settings *s = run->settings;
    char hdf5[32];
    if (s->default_config) {
        flim_log_line(log, FLIM_LOG_NOTE, "settings are taken from ./%s (--config FILE names another)",
                      flim_settings_default_config());
    }
    flim_hdf5_version(hdf5);
    flim_log_line(log, FLIM_LOG_INFO, "flimcv %s · HDF5 %s · %s", FLIM_VERSION, hdf5, d->libraries);
    if (d->own_memory) {
        flim_log_line(log, FLIM_LOG_INFO, "GPU: %s (%s, %s)", d->name, d->architecture, d->id);
        flim_log_line(log, FLIM_LOG_INFO, "VRAM: %.1f GB (%.1f GiB), %.1f GiB free", (double)d->memory_bytes / GB,
                      (double)d->memory_bytes / GIB, (double)d->memory_free / GIB);
        flim_log_line(log, FLIM_LOG_INFO, "Optimizations: CUDNN benchmark=%s, TF32=%s", s->benchmark ? "True" : "False",
                      trainer->precision == FLIM_PRECISION_TF32 ? "True" : "False");
    } else {
        flim_log_line(log, FLIM_LOG_INFO, "CPU: %s (%s, %d thread%s)", d->name, d->architecture, d->threads,
                      flim_s(d->threads));
        flim_log_line(log, FLIM_LOG_INFO, "RAM: %.1f GB (%.1f GiB), %.1f GiB free", (double)d->memory_bytes / GB,
                      (double)d->memory_bytes / GIB, (double)d->memory_free / GIB);
    }
    precision_lines(run, trainer);
}

/* The settings that differ from one run to the next, in three lines; --print-config shows all. */
static void settings_lines(const flim_run *run, const flim_trainer *trainer)
{
    const flim_settings *s = run->settings;
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Settings: preset %s, %" PRId64 " epoch%s, batch %" PRId64 " x %" PRId64 " accumulated, eval batch %" PRId64
                  ", lr %g, weight decay %g, clip %g",
                  flim_preset_names[s->preset], s->epochs, flim_s(s->epochs), s->batch, s->accumulate, trainer->eval_batch,
                  trainer->learning_rate, s->weight_decay, s->clip);
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "          sampler %s, label smoothing %g, dropout %g (blocks %g), patience %" PRId64
                  ", monitor %s, seed %" PRIu64 ", workers %" PRId64 ", prefetch %" PRId64,
                  flim_sampler_names[s->sampler], s->label_smoothing, s->dropout, s->block_dropout, s->patience,
                  flim_monitor_names[s->monitor], s->seed, s->workers, s->prefetch);
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "          schedule %s, warm-up %" PRId64
                  " epoch%s, class weights %s, focal gamma %g, ema %g, recalibrate-bn %s",
                  flim_lr_schedule_names[s->schedule], s->warmup_epochs, flim_s(s->warmup_epochs), s->class_weights,
                  s->focal_gamma, s->ema, s->recalibrate_bn ? "on" : "off");
}

/* A cell's row of the class table. */
typedef struct class_cell {
    int32_t label;
    int64_t group, cell;
} class_cell;

static int by_class(const void *a, const void *b)
{
    const class_cell *x = a, *y = b;
    const int64_t order = x->label != y->label   ? x->label - y->label
                          : x->group != y->group ? x->group - y->group
                                                 : x->cell - y->cell;
    return (order > 0) - (order < 0);
}

/* One class: list (n), its cells by group; peaks (n): scratch. */
static void class_line(const flim_run *run, const flim_study *study, int class_number, const class_cell *list, int64_t n,
                       double *peaks)
{
    const flim_dataset_info *info = study->info;
    int64_t groups = 0, zeros = 0;
    double photons = 0, area = 0;
    char more[160] = "";
    for (int64_t i = 0; i < n; i++) {
        groups += info->group && (i == 0 || list[i].group != list[i - 1].group);
        if (study->summary) {
            const flim_cell_summary *s = &study->summary[list[i].cell];
            photons += s->photons;
            area += (double)s->mask_pixels;
            zeros += s->zero_voxels;
            peaks[i] = s->peak_bin;
        }
    }
    if (study->summary && n > 0) {
        qsort(peaks, (size_t)n, sizeof *peaks, flim_compare_doubles);
        const double voxels = (double)n * info->t * info->h * info->w;
        snprintf(more, sizeof more, "  %9.1f  %7.1f  %7.2f  %8.0f", photons / (double)n, area / (double)n,
                 100 * (double)zeros / voxels, peaks[n / 2]);
    }
    flim_log_line(&run->log, FLIM_LOG_INFO, "  %-20s %7" PRId64 " %7" PRId64 "%s", info->class_name[class_number], n, groups,
                  more);
}

/* Every class; n log n in the cells. */
static void class_table(const flim_run *run, const flim_study *study)
{
    const flim_dataset_info *info = study->info;
    class_cell *list = flim_alloc((size_t)info->n, sizeof *list, NULL);
    double *peaks = flim_alloc((size_t)info->n, sizeof *peaks, NULL);
    if (!list || !peaks) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "no memory for the table of classes");
        goto done;
    }
    for (int64_t i = 0; i < info->n; i++) {
        list[i] = (class_cell){info->label[i], info->group ? info->group[i] : 0, i};
    }
    qsort(list, (size_t)info->n, sizeof *list, by_class);
    for (int64_t k = 0, from = 0, to; k < info->classes; k++, from = to) {
        for (to = from; to < info->n && list[to].label == k; to++) {
        }
        class_line(run, study, (int)k, list + from, to - from, peaks);
    }
done:
    flim_free(list);
    flim_free(peaks);
}

void flim_startup_data(const flim_run *run, const flim_study *study)
{
    const flim_dataset_info *info = study->info;
    for (int i = 0; i < info->n_files; i++) {
        flim_log_line(&run->log, FLIM_LOG_INFO, "%s %s", i ? "     " : "Data:", info->path[i]);
    }
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "      %" PRId64 " cell%s of %d x %d x %d (%s, %s), %d classes, %" PRId64 " group%s, mask %s", info->n,
                  flim_s(info->n), info->t, info->h, info->w, info->counts_type, info->layout, info->classes, info->groups,
                  flim_s(info->groups), info->has_mask ? "from the file" : "from the counts");
    flim_log_line(&run->log, FLIM_LOG_INFO, "      HDF5 reads are serialised; decompression uses %" PRId64 " thread%s",
                  run->settings->workers, flim_s(run->settings->workers));
    if (!info->label) {
        return;
    }
    flim_log_line(&run->log, FLIM_LOG_INFO, "  %-20s %7s %7s%s", "class", "cells", "groups",
                  study->summary ? "    photons  mask px  zeros %  peak bin" : "");
    class_table(run, study);
}

void flim_startup_network(const flim_run *run, const flim_trainer *trainer)
{
    const flim_network *net = &trainer->net;
    const flim_recompute recompute = trainer->program->options.recompute; /* what auto came to */
    const flim_recompute asked = run->settings->checkpoint_activations;
    settings_lines(run, trainer);
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Network: %s, width %d, depth %d, %" PRId64 " parameters, %.2f GMACs per cell (forward pass)", net->preset,
                  net->width, net->depth, net->parameters, (double)flim_network_macs(net) / 1e9);
    if (asked != FLIM_RECOMPUTE_NONE) {
        flim_log_line(&run->log, FLIM_LOG_INFO, "Activation checkpointing: %s%s", flim_recompute_name(asked),
                      recompute == FLIM_RECOMPUTE_NONE  ? ": all fits, nothing is recomputed"
                      : recompute == FLIM_RECOMPUTE_ALL ? ": the backward pass recomputes all blocks"
                                                        : ": the backward pass recomputes some blocks");
    }
}

/* flim_bench feed: what feeding costs.  Training steps on one fixed batch against the same steps fed from a file, in each
 * cache mode.
 *
 * A run of steps is one epoch as train_cv makes it: begin of the loader's phase, steps without waiting for their results,
 * wait at the end.  Rounds alternate between the modes, and the median of each mode counts; a first round, not timed, reads
 * the file into the page cache and captures the step.  The fixed batch stands in device memory where there is such. */
#include <inttypes.h>
#include <stddef.h>

#include "bench/bench_commands.h"
#include "bench/bench_output.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/median.h"
#include "core/try.h"
#include "data/device_cache.h"
#include "flim/dataset.h"
#include "flim/flags.h"
#include "plan/synthetic_run.h"
#include "train/trainer.h"

typedef struct feed_options {
    flim_string_list data;
    char *device, *json;
    flim_precision precision;
    flim_preset preset;
    int64_t width, depth, batch, steps, rounds, workers, prefetch;
    uint64_t seed;
    bool allow_external;
} feed_options;

#define AT(member) offsetof(feed_options, member)
static const flim_flag_row rows[] = {
    {"Input", "data", FLIM_VALUE_LIST, AT(data), "data/flim.h5", "FILE", .help = "HDF5 file; repeatable"},
    FLIM_BENCH_ALLOW_EXTERNAL_ROW(AT(allow_external)),
    {"What runs", "device", FLIM_VALUE_TEXT, AT(device), "auto", "D", .help = FLIM_DEVICE_TEXTS},
    {NULL, "precision", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(feed_options, precision), "auto", "P",
     "numerical precision of the network", .choices = flim_precision_names, .also = "amp", .also_value = "amp"},
    {NULL, "preset", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(feed_options, preset), "base", "NAME", "size of the network",
     .choices = flim_preset_names},
    FLIM_BENCH_SIZE_ROWS(AT(width), AT(depth)),
    {NULL, "batch", FLIM_VALUE_INTEGER, AT(batch), "64", "N", .help = "cells per step", .allowed = ">= 1, <= 1000000"},
    {NULL, "steps", FLIM_VALUE_INTEGER, AT(steps), "200", "N", .help = "steps per epoch", .allowed = ">= 1, <= 1000000"},
    {NULL, "rounds", FLIM_VALUE_INTEGER, AT(rounds), "3", "N", .help = "timed epochs of each mode",
     .allowed = ">= 1, <= 1000"},
    {NULL, "workers", FLIM_VALUE_INTEGER, AT(workers), "8", "N", .help = "loader threads", .allowed = ">= 1, <= 1024"},
    {NULL, "prefetch", FLIM_VALUE_INTEGER, AT(prefetch), "4", "N", .help = "batches ready ahead", .allowed = ">= 1, <= 1024"},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, AT(seed), "42", "N",
     .help = "random seed of weights, dropout and the order of the cells"},
    {"Output", "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "the printed figures as JSON", .writes = true},
};
static const flim_flag_table table = {"flim_bench feed",
                                      "flim_bench feed --data FILE [flags]",
                                      "Times training fed from a file against training on one fixed batch.",
                                      rows,
                                      sizeof rows / sizeof rows[0],
                                      .operand = NULL};

typedef enum feed_mode { FEED_FIXED, FEED_NONE, FEED_HOST, FEED_DEVICE, FEED_MODES } feed_mode;
static const char *const keys[FEED_MODES] = {"fixed", "none", "host", "device"};

typedef struct feed {
    const feed_options *o;
    flim_trainer trainer; /* its loader is that of the mode at work */
    flim_dataset *dataset[FEED_MODES]; /* each its own cache; FIXED has none */
    flim_loader *loader[FEED_MODES]; /* NULL: the device cannot have that mode */
    flim_draw *draws; /* (steps x batch) */
    double *seconds[FEED_MODES], *waited[FEED_MODES]; /* (rounds) */
} feed;

static flim_status open_data(feed *f, flim_error *err)
{
    for (int mode = FEED_NONE; mode < FEED_MODES; mode++) {
        const flim_dataset_options options = {.allow_external = f->o->allow_external,
                                              .need_labels = true,
                                              .cache = mode == FEED_HOST ? FLIM_CACHE_HOST : FLIM_CACHE_NONE,
                                              .trusted = mode > FEED_NONE}; /* the first opening looked at it */
        FLIM_TRY(flim_dataset_open((const char *const *)f->o->data.item, f->o->data.n, &options, &f->dataset[mode], err));
    }
    return FLIM_OK;
}

/* The program with the cells in device memory, if the device has such, at random weights. */
static flim_status make_program(feed *f, const flim_log *log, flim_error *err)
{
    const feed_options *o = f->o;
    flim_trainer *t = &f->trainer;
    flim_dataset *cached = f->dataset[FEED_DEVICE];
    const flim_dataset_info *info = flim_dataset_get_info(cached);
    FLIM_TRY(flim_trainer_create(o->device, o->precision, log, t, err));
    FLIM_TRY(flim_network_build_sized(&t->net, flim_model_size_of(o->preset, o->width, o->depth), info->classes, info->t,
                                      info->h, info->w, err));
    const bool own_memory = flim_device_get_info(t->device)->own_memory;
    const flim_program_options options = {.precision = t->precision, .train_batch = o->batch, .benchmark = true, .log = log};
    FLIM_TRY(flim_trainer_compile(t, &options, err));
    if (own_memory) {
        t->cache_widths = flim_alloc((size_t)info->n, 1, err);
        FLIM_TRY(t->cache_widths ? FLIM_OK : FLIM_ERROR_MEMORY);
        flim_device_cache_widths(cached, NULL, t->cache_widths);
        FLIM_TRY(flim_device_cache_plan(t->program, cached, t->cache_widths, err));
    }
    FLIM_TRY(flim_program_allocate(t->program, err));
    FLIM_TRY(flim_fresh_weights(t->program, o->seed, err));
    return own_memory ? flim_device_cache_fill(t->program, cached, t->cache_widths, (int)o->workers, NULL, err) : FLIM_OK;
}

static flim_status make_loaders(feed *f, const flim_log *log, flim_error *err)
{
    const feed_options *o = f->o;
    for (int mode = FEED_NONE; mode < FEED_MODES; mode++) {
        const flim_loader_options options = {.workers = (int)o->workers,
                                             .prefetch = (int)o->prefetch,
                                             .batch = o->batch,
                                             .device = f->trainer.device,
                                             .device_cached = mode == FEED_DEVICE,
                                             .log = log};
        if (mode != FEED_DEVICE || f->trainer.cache_widths) {
            FLIM_TRY(flim_loader_create(f->dataset[mode], &options, &f->loader[mode], err));
        }
    }
    return FLIM_OK;
}

/* Shuffled passes over all cells, one behind the other, until there are enough. */
static flim_status make_draws(feed *f, flim_error *err)
{
    const int64_t n = flim_dataset_get_info(f->dataset[FEED_NONE])->n, count = f->o->steps * f->o->batch;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = f->o->seed}, FLIM_RANDOM_SAMPLER);
    int64_t *order = flim_alloc((size_t)n, sizeof *order, err);
    if (!order || !(f->draws = flim_alloc((size_t)count, sizeof *f->draws, err))) {
        flim_free(order);
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (int64_t i = 0; i < count; i++) {
        if (i % n == 0) {
            flim_random_shuffle(&random, order, (size_t)n);
        }
        f->draws[i] = (flim_draw){(uint32_t)order[i % n], (uint32_t)(i / n % 256), 1.0f};
    }
    flim_free(order);
    return FLIM_OK;
}

/* An epoch at work. */
typedef struct pass {
    flim_program *program;
    int64_t steps; /* per batch of the loader: more than one for the fixed batch */
    flim_step step;
    flim_totals totals;
    double begun;
} pass;

static flim_status train_batch(void *context, const flim_batch *batch, flim_error *err)
{
    pass *p = context;
    p->begun = p->steps > 1 ? flim_seconds() : p->begun; /* reading the fixed batch does not count */
    for (int64_t i = 0; i < p->steps; i++) {
        FLIM_TRY(flim_program_train(p->program, batch, &p->step, err));
    }
    return FLIM_OK;
}

static flim_status finish(void *context, flim_error *err)
{
    pass *p = context;
    return flim_program_totals(p->program, true, &p->totals, err);
}

/* One epoch; *waited is the time that the loader let it wait. */
static flim_status epoch(feed *f, feed_mode mode, double *seconds, double *waited, flim_error *err)
{
    static const flim_phase_work work = {train_batch, NULL, finish};
    const feed_options *o = f->o;
    const bool fixed = mode == FEED_FIXED;
    flim_trainer *t = &f->trainer;
    const flim_phase phase = {
        .draws = f->draws, .n_draws = (fixed ? 1 : o->steps) * o->batch, .batch = o->batch, .seed = o->seed};
    pass p = {
        .program = t->program, .steps = fixed ? o->steps : 1, .step = flim_typical_step(o->batch), .begun = flim_seconds()};
    flim_loader_stats stats;
    t->loader = f->loader[!fixed ? mode : f->loader[FEED_DEVICE] ? FEED_DEVICE : FEED_HOST];
    FLIM_TRY(flim_trainer_run_phase(t, &phase, &work, &p, err));
    *seconds = flim_seconds() - p.begun;
    flim_loader_get_stats(t->loader, &stats);
    *waited = fixed ? 0 : stats.wait_seconds;
    return p.totals.nonfinite && t->precision != FLIM_PRECISION_FP16
               ? flim_fail(err, FLIM_ERROR_NONFINITE, "the loss or a gradient is not finite")
               : FLIM_OK;
}

static flim_status run_rounds(feed *f, flim_error *err)
{
    const size_t rounds = (size_t)f->o->rounds;
    for (int mode = 0; mode < FEED_MODES; mode++) {
        f->seconds[mode] = flim_alloc(rounds, sizeof(double), err);
        f->waited[mode] = flim_alloc(rounds, sizeof(double), err);
        FLIM_TRY(f->seconds[mode] && f->waited[mode] ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
    for (int64_t round = -1; round < f->o->rounds; round++) {
        for (int mode = 0; mode < FEED_MODES; mode++) {
            const int64_t at = round < 0 ? 0 : round;
            if (mode != FEED_FIXED && !f->loader[mode]) {
                continue;
            }
            FLIM_TRY(epoch(f, (feed_mode)mode, &f->seconds[mode][at], &f->waited[mode][at], err));
        }
    }
    return FLIM_OK;
}

static flim_status report(feed *f, FILE *out, flim_error *err)
{
    const feed_options *o = f->o;
    const flim_device_info *device = flim_device_get_info(f->trainer.device);
    const char *precision = flim_precision_name(f->trainer.precision);
    char size[FLIM_BENCH_SIZE_TEXT];
    flim_status status = FLIM_OK;
    flim_json *json = flim_json_object();
    double fixed = flim_median(f->seconds[FEED_FIXED], o->rounds);
    flim_json_set_string(json, "device_name", device->name);
    flim_json_set_string(json, "precision", precision);
    flim_bench_set_size(json, &f->trainer.net);
    flim_json_set_integer(json, "batch", o->batch);
    flim_json_set_integer(json, "steps", o->steps);
    flim_json_set_integer(json, "workers", o->workers);
    fprintf(out, "%s, %s, preset %s, batch %" PRId64 ", %" PRId64 " epochs of %" PRId64 " steps each, %" PRId64 " threads\n",
            device->name, precision, flim_bench_size_text(&f->trainer.net, size), o->batch, o->rounds, o->steps, o->workers);
    for (int mode = 0; mode < FEED_MODES; mode++) {
        if (mode != FEED_FIXED && !f->loader[mode]) {
            continue;
        }
        double seconds = mode == FEED_FIXED ? fixed : flim_median(f->seconds[mode], o->rounds);
        double waited = flim_median(f->waited[mode], o->rounds);
        double ms = 1e3 * seconds / (double)o->steps, rate = (double)(o->steps * o->batch) / seconds;
        flim_json *item = flim_json_object();
        flim_json_set_number(item, "ms", ms);
        flim_json_set_number(item, "cells_per_s", rate);
        fprintf(out, "%-20s %9.3f ms per step %9.1f cells/s",
                mode == FEED_FIXED  ? "one fixed batch"
                : mode == FEED_NONE ? "file, cache none"
                : mode == FEED_HOST ? "file, cache host"
                                    : "file, cache device",
                ms, rate);
        if (mode != FEED_FIXED) {
            fprintf(out, "  loses %5.2f %%, waited %5.2f %%", 100 * (1 - fixed / seconds), 100 * waited / seconds);
            flim_json_set_number(item, "loses", 1 - fixed / seconds);
            flim_json_set_number(item, "waited", waited / seconds);
        }
        fprintf(out, "\n");
        flim_json_set(json, keys[mode], item);
    }
    if (o->json[0]) {
        status = flim_bench_write_json(json, o->json, "{\n  \"device_name\": ", err);
    }
    flim_json_free(json);
    return status;
}

static flim_status measure(void *options, FILE *out, const flim_log *log, flim_error *err)
{
    const feed_options *o = options;
    feed f = {.o = o};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(open_data(&f, err));
    FLIM_TRY_DONE(make_program(&f, log, err));
    FLIM_TRY_DONE(make_loaders(&f, log, err));
    FLIM_TRY_DONE(make_draws(&f, err));
    FLIM_TRY_DONE(run_rounds(&f, err));
    status = report(&f, out, err);
done:
    f.trainer.loader = NULL;
    for (int mode = 0; mode < FEED_MODES; mode++) {
        flim_loader_destroy(f.loader[mode]);
        flim_dataset_close(f.dataset[mode]);
        flim_free(f.seconds[mode]);
        flim_free(f.waited[mode]);
    }
    flim_free(f.draws);
    flim_trainer_destroy(&f.trainer);
    return status;
}

const flim_bench_command flim_bench_feed = {"feed", "cost of feeding training from a file, by cache", &table,
                                            sizeof(feed_options), measure};

/* flim_bench loader: how fast cells come from a file, with nothing consuming them.
 *
 * One pass that is not timed warms the page cache (and the RAM cache), checks that every cell comes exactly once, and makes
 * the checksum; then come the timed ones.  A cell counts when channel 0 as fp32 log1p/10 and its mask stand in the batch
 * buffer.  The raw rate counts cells that stand decoded, as the integers or floats of the file, in a buffer. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_commands.h"
#include "bench/bench_output.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/median.h"
#include "core/threads.h"
#include "core/try.h"
#include "data/dataset_internal.h"
#include "data/inflate.h"
#include "flim/flags.h"
#include "flim/loader.h"

typedef struct loader_options {
    flim_string_list data;
    char *axes, *json;
    flim_cache cache;
    int64_t workers, prefetch, batch, passes;
    uint64_t seed;
    bool scaling, allow_external;
} loader_options;

#define AT(member) offsetof(loader_options, member)
static const flim_flag_row rows[] = {
    {"Input", "data", FLIM_VALUE_LIST, AT(data), "data/flim.h5", "FILE", .help = "HDF5 file; repeatable"},
    FLIM_BENCH_ALLOW_EXTERNAL_ROW(AT(allow_external)),
    {NULL, "axes", FLIM_VALUE_TEXT, AT(axes), "NTYX", "ORDER", .help = "order of the file's axes"},
    {NULL, "cache", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(loader_options, cache), "none", "WHERE",
     "where decoded cells are cached; with device as with auto", .choices = flim_cache_names},
    {"Loader", "workers", FLIM_VALUE_INTEGER, AT(workers), "8", "N", .help = "threads", .allowed = ">= 1, <= 1024"},
    {NULL, "prefetch", FLIM_VALUE_INTEGER, AT(prefetch), "4", "N", .help = "batches ready ahead", .allowed = ">= 1, <= 1024"},
    {NULL, "batch", FLIM_VALUE_INTEGER, AT(batch), "64", "N", .help = "cells per batch", .allowed = ">= 1, <= 1000000"},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, AT(seed), "42", "N", .help = "random seed of the order of the cells"},
    {"Measurement", "passes", FLIM_VALUE_INTEGER, AT(passes), "3", "N",
     .help = "timed passes over the data; the median counts", .allowed = ">= 1, <= 1000"},
    {NULL, "scaling", FLIM_VALUE_SWITCH, AT(scaling), "true", NULL, .help = "measure 1, 2, 4, ... threads as well"},
    {"Output", "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "the printed figures as JSON", .writes = true},
};
static const flim_flag_table table = {
    "flim_bench loader",
    "flim_bench loader --data FILE [flags]",
    "Times the loader alone: shuffled passes over all cells, each cell once, without a consumer.",
    rows,
    sizeof rows / sizeof rows[0],
    .operand = NULL};

/* ---- fp32 batches through the loader */

/* A number of the cell's identity and every bit of its signal and mask; the sum over cells does not depend on their order. */
static uint64_t cell_checksum(const flim_batch *batch, int64_t at)
{
    int64_t pixels = (int64_t)batch->h * batch->w, voxels = pixels * batch->t;
    const float *signal = batch->signal + at * voxels; /* (T,H,W) */
    const uint8_t *mask = batch->mask + at * pixels; /* (H,W) */
    uint64_t sum = batch->id[at].cell + 1u;
    for (int64_t i = 0; i < voxels; i++) {
        uint32_t bits;
        memcpy(&bits, &signal[i], sizeof bits);
        sum += (uint64_t)bits * (2 * (uint64_t)i + 1);
    }
    for (int64_t i = 0; i < pixels; i++) {
        sum += (uint64_t)mask[i] << (i % 64);
    }
    return sum * 0x9e3779b97f4a7c15u;
}

/* One pass over `draws`.  With `seen` (n bytes): marks each cell that comes, fails on a second time, adds up the checksum. */
static flim_status pass(flim_loader *loader, const flim_phase *phase, uint8_t *seen, uint64_t *checksum, flim_error *err)
{
    const flim_batch *batch;
    int64_t cells = 0;
    flim_status status = flim_loader_begin(loader, phase, err);
    while (status == FLIM_OK && (status = flim_loader_next(loader, &batch, err)) == FLIM_OK && batch) {
        for (int64_t i = 0; seen && i < batch->n; i++) {
            uint32_t cell = batch->id[i].cell;
            if (seen[cell]++) {
                status = flim_fail(err, FLIM_ERROR, "the loader delivered cell %u twice", cell);
            }
            *checksum += cell_checksum(batch, i);
        }
        cells += batch->n;
        flim_loader_release(loader, batch);
    }
    if (status == FLIM_OK && cells != phase->n_draws) {
        status = flim_fail(err, FLIM_ERROR, "the loader delivered %" PRId64 " of %" PRId64 " cells", cells, phase->n_draws);
    }
    return status;
}

/* Median cells/s of the timed passes; *checksum of the pass before them. */
static flim_status measure_loader(flim_dataset *dataset, const loader_options *o, int workers, const flim_phase *phase,
                                  double *rate, uint64_t *checksum, double *times, flim_error *err)
{
    int64_t n = phase->n_draws;
    flim_loader *loader = NULL;
    uint8_t *seen = flim_alloc((size_t)n, 1, err);
    const flim_loader_options options = {.workers = workers, .prefetch = (int)o->prefetch, .batch = o->batch};
    flim_status status = FLIM_OK;
    *checksum = 0;
    FLIM_TRY_DONE(seen ? flim_loader_create(dataset, &options, &loader, err) : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(pass(loader, phase, seen, checksum, err));
    for (int64_t i = 0; i < o->passes; i++) {
        double start = flim_seconds();
        FLIM_TRY_DONE(pass(loader, phase, NULL, NULL, err));
        times[i] = (double)n / (flim_seconds() - start);
    }
    *rate = flim_median(times, o->passes);
done:
    flim_loader_destroy(loader);
    flim_free(seen);
    return status;
}

/* ---- cells as the file's numbers */

typedef struct raw_pool {
    flim_dataset *dataset;
    const flim_draw *draws;
    int64_t batch;
} raw_pool;

/* A thread's own. */
typedef struct raw_scratch {
    flim_reader *reader;
    uint8_t *buffer; /* (batch, voxels) of up to 8 bytes */
} raw_scratch;

static flim_status begin_raw(void *context, void *own, flim_error *err)
{
    const raw_pool *pool = context;
    raw_scratch *my = own;
    if (!(my->buffer = flim_alloc_aligned((size_t)(pool->batch * pool->dataset->voxels), 8, err))) {
        return FLIM_ERROR_MEMORY;
    }
    return flim_reader_create(pool->dataset, &my->reader, err);
}

static void end_raw(void *own)
{
    raw_scratch *my = own;
    flim_reader_destroy(my->reader);
    flim_free(my->buffer);
}

static flim_status read_raw(void *context, void *own, int64_t i, flim_error *err)
{
    const raw_pool *pool = context;
    raw_scratch *my = own;
    flim_number number;
    const void *values;
    FLIM_TRY(flim_reader_values(my->reader, pool->draws[i].cell, &number, &values, err));
    const size_t bytes = (size_t)pool->dataset->voxels * number.size;
    memcpy(my->buffer + (size_t)(i % pool->batch) * bytes, values, bytes);
    return FLIM_OK;
}

static flim_status measure_raw(flim_dataset *dataset, const loader_options *o, const flim_draw *draws, double *rate,
                               double *times, flim_error *err)
{
    raw_pool pool = {.dataset = dataset, .draws = draws, .batch = 8};
    const flim_shared_work work = {.items = dataset->info.n,
                                   .stride = 1,
                                   .context = &pool,
                                   .begin = begin_raw,
                                   .item = read_raw,
                                   .end = end_raw,
                                   .own_bytes = sizeof(raw_scratch)};
    for (int64_t i = 0; i < o->passes; i++) {
        const double start = flim_seconds();
        FLIM_TRY(flim_share_work(&work, (int)o->workers, err));
        times[i] = (double)dataset->info.n / (flim_seconds() - start);
    }
    *rate = flim_median(times, o->passes);
    return FLIM_OK;
}

/* ---- the command */

static flim_status measure(void *read, FILE *out, const flim_log *log, flim_error *err)
{
    const loader_options *o = read;
    flim_dataset *dataset = NULL;
    flim_draw *draws = NULL;
    int64_t *order = NULL;
    double *times = NULL, rate = 0, raw = 0;
    uint64_t checksum = 0, again = 0;
    char text[32];
    const flim_dataset_options options = {
        .axes = o->axes, .allow_external = o->allow_external, .cache = o->cache, .log = log};
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_dataset_open((const char *const *)o->data.item, o->data.n, &options, &dataset, err));
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    const char *cache = info->cache_bytes ? "host" : "none";
    draws = flim_alloc((size_t)info->n, sizeof *draws, err);
    order = flim_alloc((size_t)info->n, sizeof *order, err);
    times = flim_alloc((size_t)o->passes, sizeof *times, err);
    FLIM_TRY_DONE(draws && order && times ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = o->seed}, FLIM_RANDOM_SAMPLER);
    for (int64_t i = 0; i < info->n; i++) {
        order[i] = i;
    }
    flim_random_shuffle(&random, order, (size_t)info->n);
    for (int64_t i = 0; i < info->n; i++) {
        draws[i] = (flim_draw){(uint32_t)order[i], 0, 1.0f};
    }
    const flim_phase phase = {.draws = draws, .n_draws = info->n, .batch = o->batch, .seed = o->seed};
    fprintf(out, "%" PRId64 " cells (%d,%d,%d), %s, %s, inflated by %s, cache %s\n", info->n, info->t, info->h, info->w,
            info->counts_type, info->layout, flim_inflate_library(), cache);
    for (int workers = 1; o->scaling && workers < o->workers; workers *= 2) {
        FLIM_TRY_DONE(measure_loader(dataset, o, workers, &phase, &rate, &again, times, err));
        fprintf(out, "%3d thread%s %10.0f cells/s\n", workers, workers == 1 ? " " : "s", rate);
        fflush(out);
    }
    FLIM_TRY_DONE(measure_loader(dataset, o, (int)o->workers, &phase, &rate, &checksum, times, err));
    FLIM_TRY_DONE(measure_raw(dataset, o, draws, &raw, times, err));
    if (again && again != checksum) {
        status = flim_fail(err, FLIM_ERROR, "the checksum differs between numbers of threads: %016" PRIx64 " and %016" PRIx64,
                           again, checksum);
        goto done;
    }
    snprintf(text, sizeof text, "%016" PRIx64, checksum);
    fprintf(out, "%3d thread%s %10.0f cells/s as fp32 signal and mask, %.0f cells/s as the file's numbers\nchecksum %s\n",
            (int)o->workers, o->workers == 1 ? " " : "s", rate, raw, text);
    if (o->json[0]) {
        flim_json *json = flim_json_object();
        flim_json_set_number(json, "cells_per_s", rate);
        flim_json_set_number(json, "raw_cells_per_s", raw);
        flim_json_set_integer(json, "workers", o->workers);
        flim_json_set_integer(json, "batch", o->batch);
        flim_json_set_string(json, "cache", cache);
        flim_json_set_string(json, "checksum", text);
        status = flim_bench_write_json(json, o->json, "{\n  \"cells_per_s\": ", err);
        flim_json_free(json);
    }
done:
    flim_free(times);
    flim_free(order);
    flim_free(draws);
    flim_dataset_close(dataset);
    return status;
}

const flim_bench_command flim_bench_loader = {"loader", "loading speed from a file", &table, sizeof(loader_options), measure};

/* flim_bench predict: the forward pass as in evaluation, running statistics and no dropout, over batches that follow one another as
 * a loader's do: the next batch is copied to the device meanwhile. */
#include <inttypes.h>
#include <stddef.h>

#include "bench/bench_commands.h"
#include "bench/bench_output.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/median.h"
#include "core/try.h"
#include "flim/device.h"
#include "plan/synthetic_run.h"

typedef struct predict_options {
    char *device, *json;
    int precision, preset;
    int64_t width, depth, batch, batches, rounds, warmup, bins, pixels;
    uint64_t seed;
    bool benchmark, deterministic;
} predict_options;

#define AT(member) offsetof(predict_options, member)
static const flim_flag_row rows[] = {
    {"What runs", "device", FLIM_VALUE_TEXT, AT(device), "auto", "D", .help = FLIM_DEVICE_TEXTS},
    {NULL, "precision", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(predict_options, precision), "auto", "P",
     "numerical precision of the network", .choices = flim_precision_names, .also = "amp", .also_value = "amp"},
    {NULL, "preset", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(predict_options, preset), "base", "NAME", "size of the network",
     .choices = flim_preset_names},
    FLIM_BENCH_SIZE_ROWS(AT(width), AT(depth)),
    {NULL, "batch", FLIM_VALUE_INTEGER, AT(batch), "256", "N", .help = "cells per call", .allowed = ">= 1, <= 1000000"},
    {NULL, "batches", FLIM_VALUE_INTEGER, AT(batches), "20", "N", .help = "calls in a row that are timed together",
     .allowed = ">= 1, <= 1000000"},
    {NULL, "rounds", FLIM_VALUE_INTEGER, AT(rounds), "5", "N", .help = "how often; the median counts",
     .allowed = ">= 1, <= 10000"},
    {NULL, "warmup", FLIM_VALUE_INTEGER, AT(warmup), "3", "N", .help = "calls before them", .allowed = ">= 0, <= 1000000"},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, AT(seed), "42", "N", .help = "random seed of weights and counts"},
    {NULL, "benchmark", FLIM_VALUE_SWITCH, AT(benchmark), "true", NULL, .help = "time the plans of each convolution first"},
    {NULL, "deterministic", FLIM_VALUE_SWITCH, AT(deterministic), "false", NULL, .help = "bit-for-bit reproducible"},
    {"Input", "bins", FLIM_VALUE_INTEGER, AT(bins), "256", "T", .help = "time bins", .allowed = ">= 8, <= 65536"},
    {NULL, "pixels", FLIM_VALUE_INTEGER, AT(pixels), "21", "H", .help = "height and width", .allowed = ">= 3, <= 4096"},
    {"Output", "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "the printed figures as JSON", .writes = true},
};
static const flim_flag_table table = {"flim_bench predict",
                                      "flim_bench predict [flags]",
                                      "Times the forward pass of prediction.",
                                      rows,
                                      sizeof rows / sizeof rows[0],
                                      .operand = NULL};

typedef struct prediction {
    const predict_options *o;
    flim_precision precision;
    flim_device *device;
    flim_network net;
    flim_program *program;
    flim_batch batch;
    float *logits; /* (batch,K') */
    double *ms; /* per call, one per round */
} prediction;

static flim_status prepare(prediction *b, const flim_log *log, flim_error *err)
{
    const predict_options *o = b->o;
    const flim_model_size size = flim_model_size_of((flim_preset)o->preset, o->width, o->depth);
    const int pixels = (int)o->pixels;
    FLIM_TRY(flim_network_build_sized(&b->net, size, 2, (int)o->bins, pixels, pixels, err));
    FLIM_TRY(flim_device_open(o->device, log, &b->device, err));
    b->precision = flim_device_precision(flim_device_get_info(b->device), (flim_precision)o->precision);
    const flim_program_options options = {.precision = b->precision,
                                          .eval_batch = o->batch,
                                          .benchmark = o->benchmark,
                                          .deterministic = o->deterministic,
                                          .log = log};
    FLIM_TRY(flim_program_compile(b->device, &b->net, &options, &b->program, err));
    FLIM_TRY(flim_program_allocate(b->program, err));
    FLIM_TRY(flim_batch_create(b->device, &b->net, o->batch, &b->batch, err));
    b->logits = flim_alloc((size_t)o->batch * (size_t)flim_class_outputs(b->net.classes), sizeof *b->logits, err);
    b->ms = flim_alloc((size_t)o->rounds, sizeof *b->ms, err);
    FLIM_TRY(b->logits && b->ms ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY(flim_fresh_weights(b->program, o->seed, err));
    flim_batch_fill(&b->batch, b->net.classes, o->seed, o->batch);
    return FLIM_OK;
}

static flim_status call(prediction *b, int64_t times, double *ms, flim_error *err)
{
    const double start = flim_seconds();
    for (int64_t i = 0; i < times; i++) {
        FLIM_TRY(flim_program_predict(b->program, &b->batch, b->logits, err));
    }
    FLIM_TRY(flim_program_wait(b->program, err));
    *ms = times > 0 ? 1e3 * (flim_seconds() - start) / (double)times : 0;
    return FLIM_OK;
}

static flim_status write_json(const prediction *b, double median, flim_error *err)
{
    const flim_device_info *info = flim_device_get_info(b->device);
    flim_json *json = flim_json_object();
    flim_json_set_string(json, "device_name", info->name);
    flim_bench_set_size(json, &b->net);
    flim_json_set_string(json, "precision", flim_precision_name(b->precision));
    flim_json_set_integer(json, "batch", b->o->batch);
    flim_json_set_number(json, "ms", median);
    flim_json_set_number(json, "cells_per_s", 1e3 * (double)b->o->batch / median);
    flim_json_set_integer(json, "peak_bytes", flim_program_peak_bytes(b->program));
    const flim_status status = flim_bench_write_json(json, b->o->json, "{\n  \"device_name\": ", err);
    flim_json_free(json);
    return status;
}

static void release(prediction *b)
{
    flim_program_destroy(b->program);
    flim_free(b->logits);
    flim_free(b->ms);
    flim_batch_free(b->device, &b->batch);
    flim_device_close(b->device);
}

static flim_status measure(void *options, FILE *out, const flim_log *log, flim_error *err)
{
    prediction b = {.o = options};
    char size[FLIM_BENCH_SIZE_TEXT];
    flim_status status = FLIM_OK;
    double ms;
    FLIM_TRY_DONE(prepare(&b, log, err));
    FLIM_TRY_DONE(call(&b, b.o->warmup, &ms, err));
    for (int64_t r = 0; r < b.o->rounds; r++) {
        FLIM_TRY_DONE(call(&b, b.o->batches, &b.ms[r], err));
    }
    const double median = flim_median(b.ms, b.o->rounds); /* sorts them */
    fprintf(out, "%s, %s, batch %" PRId64 ", %s\n", flim_bench_size_text(&b.net, size), flim_precision_name(b.precision),
            b.o->batch, flim_device_get_info(b.device)->name);
    fprintf(out, "per call in a row: median %.3f ms (%.3f to %.3f), %.0f cells/s, peak %.1f MiB\n", median, b.ms[0],
            b.ms[b.o->rounds - 1], 1e3 * (double)b.o->batch / median, (double)flim_program_peak_bytes(b.program) / 1048576);
    if (b.o->json[0] != '\0') {
        status = write_json(&b, median, err);
    }
done:
    release(&b);
    return status;
}

const flim_bench_command flim_bench_predict = {"predict", "the forward pass of prediction: time, cells per second, memory",
                                               &table, sizeof(predict_options), measure};

/* flim_bench layers: each operation of a training step alone, its engine and its share of the card's ceiling. */
#include <stddef.h>

#include "bench/bench_commands.h"
#include "bench/bench_output.h"
#include "core/alloc.h"
#include "core/try.h"
#include "flim/device.h"
#include "flim/flags.h"
#include "plan/synthetic_run.h"

enum { MOST_OPERATIONS = 512 };

typedef struct layers_options {
    char *device, *json;
    flim_precision precision;
    flim_preset preset;
    int64_t width, depth, batch, classes, bins, pixels;
    bool benchmark, deterministic;
} layers_options;

#define AT(member) offsetof(layers_options, member)
static const flim_flag_row rows[] = {
    {"What runs", "device", FLIM_VALUE_TEXT, AT(device), "cuda", "D", .help = "cuda, cuda:N"},
    {NULL, "precision", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(layers_options, precision), "auto", "P",
     "numerical precision of the network", .choices = flim_precision_names, .also = "amp", .also_value = "amp"},
    {NULL, "preset", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(layers_options, preset), "base", "NAME", "size of the network",
     .choices = flim_preset_names},
    FLIM_BENCH_SIZE_ROWS(AT(width), AT(depth)),
    {NULL, "classes", FLIM_VALUE_INTEGER, AT(classes), "2", "K", .help = "classes", .allowed = ">= 2, <= 10000"},
    {NULL, "batch", FLIM_VALUE_INTEGER, AT(batch), "64", "N", .help = "cells per step", .allowed = ">= 1, <= 1000000"},
    {NULL, "bins", FLIM_VALUE_INTEGER, AT(bins), "256", "T", .help = "time bins", .allowed = ">= 8, <= 65536"},
    {NULL, "pixels", FLIM_VALUE_INTEGER, AT(pixels), "21", "H", .help = "height and width", .allowed = ">= 3, <= 4096"},
    {NULL, "benchmark", FLIM_VALUE_SWITCH, AT(benchmark), "true", NULL, .help = "time the plans of each convolution first"},
    {NULL, "deterministic", FLIM_VALUE_SWITCH, AT(deterministic), "false", NULL, .help = "bit-for-bit reproducible"},
    {"Output", "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "the table as JSON", .writes = true},
};
static const flim_flag_table table = {"flim_bench layers",
                                      "flim_bench layers [flags]",
                                      "Times each operation of a training step alone.",
                                      rows,
                                      sizeof rows / sizeof rows[0],
                                      .operand = NULL};

/* All of it is released by `release`. */
typedef struct layers {
    const layers_options *o;
    flim_precision precision;
    flim_network net;
    flim_device *device;
    flim_program *program;
    flim_device_limits limits;
    flim_batch batch;
    flim_operation_time *time; /* (n) of MOST_OPERATIONS */
    int n;
} layers;

static void release(layers *l)
{
    flim_program_destroy(l->program);
    flim_batch_free(l->device, &l->batch);
    flim_free(l->time);
    flim_device_close(l->device);
}

/* One step, so that every tensor holds what it would hold; then each operation alone. */
static flim_status time_operations(layers *l, const flim_log *log, flim_error *err)
{
    enum { SEED = 42 };
    const layers_options *o = l->o;
    const flim_step step = flim_typical_step(o->batch);
    const flim_program_options options = {.precision = l->precision,
                                          .train_batch = o->batch,
                                          .benchmark = o->benchmark,
                                          .deterministic = o->deterministic,
                                          .log = log};
    FLIM_TRY(flim_program_compile(l->device, &l->net, &options, &l->program, err));
    FLIM_TRY(flim_program_allocate(l->program, err));
    FLIM_TRY(flim_fresh_weights(l->program, SEED, err));
    FLIM_TRY(flim_batch_create(l->device, &l->net, o->batch, &l->batch, err));
    flim_batch_fill(&l->batch, l->net.classes, SEED, o->batch);
    l->time = flim_alloc(MOST_OPERATIONS, sizeof *l->time, err);
    FLIM_TRY(l->time ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY(flim_program_train(l->program, &l->batch, &step, err));
    return flim_program_profile(l->program, l->time, MOST_OPERATIONS, &l->n, err);
}

static void print_table(const layers *l, FILE *out)
{
    const flim_device_info *info = flim_device_get_info(l->device);
    const double ceiling = l->limits.matrix[l->precision];
    char size[FLIM_BENCH_SIZE_TEXT];
    double sum = 0, products = 0;
    for (int i = 0; i < l->n; i++) {
        sum += l->time[i].ms;
    }
    fprintf(out, "%s, %s\n%s, preset %s, batch %lld; ceiling %.0f TFLOP/s\n", info->name, info->libraries,
            flim_precision_name(l->precision), flim_bench_size_text(&l->net, size), (long long)l->o->batch, ceiling * 1e-12);
    fprintf(out, "%-46s %-10s %8s %6s %8s %8s\n", "operation", "by", "ms", "share", "TFLOP/s", "ceiling");
    for (int i = 0; i < l->n; i++) {
        const flim_operation_time *o = &l->time[i];
        fprintf(out, "%-46s %-10s %8.3f %5.1f%%", o->name, o->how, o->ms, 100.0 * o->ms / sum);
        if (o->operations > 0 && o->ms > 0) {
            const double rate = o->operations / (o->ms * 1e-3);
            products += o->ms;
            fprintf(out, " %8.1f %7.1f%%", rate * 1e-12, ceiling > 0 ? 100.0 * rate / ceiling : 0.0);
        }
        fprintf(out, "\n");
    }
    fprintf(out, "%-46s %-10s %8.3f 100.0%%, of which convolutions %.3f ms\n", "sum", "", sum, products);
}

static flim_status write_json(const layers *l, flim_error *err)
{
    flim_json *json = flim_json_object(), *list = flim_json_array();
    flim_json_set_string(json, "device_name", flim_device_get_info(l->device)->name);
    flim_json_set_string(json, "precision", flim_precision_name(l->precision));
    flim_bench_set_size(json, &l->net);
    flim_json_set_integer(json, "batch", l->o->batch);
    for (int i = 0; i < l->n; i++) {
        flim_json *item = flim_json_object();
        flim_json_set_string(item, "operation", l->time[i].name);
        flim_json_set_string(item, "by", l->time[i].how);
        flim_json_set_number(item, "ms", l->time[i].ms);
        flim_json_set_number(item, "operations", l->time[i].operations);
        flim_json_add(list, item);
    }
    flim_json_set(json, "operations", list);
    flim_status status = flim_bench_write_json(json, l->o->json, "{\n  \"device_name\": ", err);
    flim_json_free(json);
    return status;
}

static flim_status measure(void *options, FILE *out, const flim_log *log, flim_error *err)
{
    const layers_options *o = options;
    const flim_model_size size = flim_model_size_of(o->preset, o->width, o->depth);
    const int pixels = (int)o->pixels;
    layers l = {.o = o, .precision = o->precision};
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_network_build_sized(&l.net, size, (int)o->classes, (int)o->bins, pixels, pixels, err));
    FLIM_TRY(flim_device_open(o->device, log, &l.device, err));
    l.precision = flim_device_precision(flim_device_get_info(l.device), l.precision);
    FLIM_TRY_DONE(flim_device_measure_limits(l.device, &l.limits, err));
    FLIM_TRY_DONE(time_operations(&l, log, err));
    print_table(&l, out);
    if (o->json[0] != '\0') {
        status = write_json(&l, err);
    }
done:
    release(&l);
    return status;
}

const flim_bench_command flim_bench_layers = {"layers", "each operation of a training step alone: engine, time, rate", &table,
                                              sizeof(layers_options), measure};

/* flim_bench layers: each operation of a training step alone, its engine and its share of the card's ceiling. */
#include <stddef.h>

#include "bench/bench_internal.h"
#include "core/alloc.h"
#include "core/try.h"
#include "data/synthetic.h"
#include "flim/dataset.h"
#include "flim/device.h"
#include "flim/flags.h"
#include "formats/json.h"

enum { MOST_OPERATIONS = 512 };

typedef struct layers_options {
    char *device, *json;
    flim_precision precision;
    flim_preset preset;
    int64_t batch, classes, bins, pixels;
    bool benchmark, deterministic;
} layers_options;

#define AT(member) offsetof(layers_options, member)
static const flim_flag_row rows[] = {
    {"What runs", "device", FLIM_VALUE_TEXT, AT(device), "cuda", "D", .help = "cuda, cuda:N"},
    {NULL, "precision", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(layers_options, precision), "auto", "P",
     "arithmetic of the network", .choices = flim_precision_names},
    {NULL, "preset", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(layers_options, preset), "base", "NAME", "size of the network",
     .choices = flim_preset_names},
    {NULL, "classes", FLIM_VALUE_INTEGER, AT(classes), "2", "K", .help = "classes", .allowed = ">= 2, <= 10000"},
    {NULL, "batch", FLIM_VALUE_INTEGER, AT(batch), "64", "N", .help = "cells a step", .allowed = ">= 1, <= 1000000"},
    {NULL, "bins", FLIM_VALUE_INTEGER, AT(bins), "256", "T", .help = "time bins", .allowed = ">= 8, <= 65536"},
    {NULL, "pixels", FLIM_VALUE_INTEGER, AT(pixels), "21", "H", .help = "height and width", .allowed = ">= 3, <= 4096"},
    {NULL, "benchmark", FLIM_VALUE_SWITCH, AT(benchmark), "true", NULL, .help = "time the plans of each convolution first"},
    {NULL, "deterministic", FLIM_VALUE_SWITCH, AT(deterministic), "false", NULL, .help = "equal bits on equal runs"},
    {"Output", "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "the table as JSON"},
};
static const flim_flag_table table = {"flim_bench layers",
                                      "flim_bench layers [flags]",
                                      "Times each operation of a training step alone.",
                                      rows,
                                      sizeof rows / sizeof rows[0],
                                      NULL,
                                      NULL};

/* All of it is released by `release`. */
typedef struct layers {
    const layers_options *o;
    flim_precision precision;
    flim_network net;
    flim_device *device;
    flim_program *program;
    flim_device_limits limits;
    float *parameters, *statistics, *zeros; /* P, S, P floats */
    flim_batch batch;
    flim_operation_time *time; /* (n) of MOST_OPERATIONS */
    int n;
} layers;

static void release(layers *l)
{
    flim_program_destroy(l->program);
    flim_free(l->parameters);
    flim_free(l->statistics);
    flim_free(l->zeros);
    flim_free(l->batch.signal);
    flim_free(l->batch.mask);
    flim_free(l->batch.label);
    flim_free(l->batch.weight);
    flim_free(l->batch.id);
    flim_free(l->time);
    flim_device_close(l->device);
}

static flim_status make_program(layers *l, const flim_log *log, flim_error *err)
{
    const layers_options *o = l->o;
    const flim_program_options options = {.precision = l->precision,
                                          .train_batch = o->batch,
                                          .benchmark = o->benchmark,
                                          .deterministic = o->deterministic,
                                          .log = log};
    flim_status status = flim_program_compile(l->device, &l->net, &options, &l->program, err);
    if (status == FLIM_OK) {
        status = flim_program_allocate(l->program, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    if (!(l->parameters = flim_alloc((size_t)l->net.parameters, sizeof(float), err)) ||
        !(l->statistics = flim_alloc((size_t)l->net.statistics, sizeof(float), err)) ||
        !(l->zeros = flim_alloc((size_t)l->net.parameters, sizeof(float), err))) {
        return FLIM_ERROR_MEMORY;
    }
    flim_network_init(&l->net, 42, 0, l->parameters, l->statistics);
    if ((status = flim_program_write(l->program, FLIM_STATE_PARAMETERS, l->parameters, err)) != FLIM_OK ||
        (status = flim_program_write(l->program, FLIM_STATE_STATISTICS, l->statistics, err)) != FLIM_OK ||
        (status = flim_program_write(l->program, FLIM_STATE_MOMENT1, l->zeros, err)) != FLIM_OK) {
        return status;
    }
    return flim_program_write(l->program, FLIM_STATE_MOMENT2, l->zeros, err);
}

static flim_status make_batch(layers *l, flim_error *err)
{
    const int t = l->net.in[0], h = l->net.in[1], w = l->net.in[2];
    const size_t n = (size_t)l->o->batch, pixels = (size_t)h * (size_t)w, voxels = pixels * (size_t)t;
    flim_batch *b = &l->batch;
    *b = (flim_batch){.n = l->o->batch, .capacity = l->o->batch, .t = t, .h = h, .w = w};
    if (!(b->signal = flim_alloc(n * voxels, sizeof(float), err)) || !(b->mask = flim_alloc(n, pixels, err)) ||
        !(b->label = flim_alloc(n, sizeof(int32_t), err)) || !(b->weight = flim_alloc(n, sizeof(float), err)) ||
        !(b->id = flim_alloc(n, sizeof(flim_cell_id), err)) ||
        !(l->time = flim_alloc(MOST_OPERATIONS, sizeof *l->time, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        float *signal = b->signal + i * voxels;
        b->label[i] = flim_synthetic_cell(42, (int64_t)i, l->net.classes, t, h, w, signal, b->mask + i * pixels);
        flim_signal_from_counts(signal, signal, (int64_t)voxels);
        b->weight[i] = 1;
        b->id[i] = (flim_cell_id){.seed = 42, .cell = (uint32_t)i};
    }
    return FLIM_OK;
}

/* One step, so that every tensor holds what it would hold; then each operation alone. */
static flim_status time_operations(layers *l, flim_error *err)
{
    const flim_step step = {.first = true,
                            .last = true,
                            .divisor = (double)l->batch.n,
                            .learning_rate = 1e-4f,
                            .weight_decay = 1e-3f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .epsilon = 1e-8f,
                            .clip = 35.0f,
                            .label_smoothing = 0.05f,
                            .dropout = 0.25f};
    FLIM_TRY(flim_program_train(l->program, &l->batch, &step, err));
    return flim_program_profile(l->program, l->time, MOST_OPERATIONS, &l->n, err);
}

static void print_table(const layers *l, FILE *out)
{
    const flim_device_info *info = flim_device_get_info(l->device);
    const double ceiling = l->limits.matrix[l->precision];
    double sum = 0, products = 0;
    for (int i = 0; i < l->n; i++) {
        sum += l->time[i].ms;
    }
    fprintf(out, "%s, %s\n%s, preset %s, batch %lld; ceiling %.0f TFLOP/s\n", info->name, info->libraries,
            flim_precision_name(l->precision), l->net.preset, (long long)l->o->batch, ceiling * 1e-12);
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
    flim_status status = flim_json_write(json, l->o->json, err);
    flim_json_free(json);
    return status;
}

static flim_status measure(const layers_options *o, FILE *out, const flim_log *log, flim_error *err)
{
    layers l = {.o = o, .precision = o->precision};
    flim_status status;
    if ((status = flim_network_build(&l.net, flim_preset_width(o->preset), (int)o->classes, (int)o->bins, (int)o->pixels,
                                     (int)o->pixels, err)) != FLIM_OK ||
        (status = flim_device_open(o->device, log, &l.device, err)) != FLIM_OK) {
        goto done;
    }
    if (l.precision == FLIM_PRECISION_AUTO) {
        l.precision = flim_device_get_info(l.device)->auto_precision;
    }
    if ((status = flim_device_measure_limits(l.device, &l.limits, err)) != FLIM_OK ||
        (status = make_program(&l, log, err)) != FLIM_OK || (status = make_batch(&l, err)) != FLIM_OK ||
        (status = time_operations(&l, err)) != FLIM_OK) {
        goto done;
    }
    print_table(&l, out);
    if (o->json[0] != '\0') {
        status = write_json(&l, err);
    }
done:
    release(&l);
    return status;
}

static flim_status run(int argc, char *const *argv, FILE *out, const flim_log *log, flim_error *err)
{
    layers_options options;
    bool go;
    flim_status status = flim_flag_table_read(&table, &options, argc, argv, NULL, out, &go, err);
    if (go) {
        status = measure(&options, out, log, err);
        flim_flag_table_free(&table, &options);
    }
    return status;
}

const flim_bench_command flim_bench_layers = {"layers", "each operation of a training step alone: engine, time, rate", run};

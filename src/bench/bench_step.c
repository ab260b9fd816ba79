/* flim_bench step: whole training steps, as in the comparison with PyTorch: cell i of step s is number ((s*batch + i) * 37)
 * mod N.
 *
 * A step that is timed is flim_program_train plus the wait for its loss; reading its cells is not.  Warm-up steps run first
 * and are undone, so they change times only.  Where the backend can, the operations are timed alone after the last step. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "bench/bench_commands.h"
#include "bench/bench_output.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/median.h"
#include "core/try.h"
#include "data/synthetic.h"
#include "flim/dataset.h"
#include "flim/device.h"
#include "flim/flags.h"
#include "flim/weights.h"
#include "plan/synthetic_run.h"

typedef struct step_options {
    char *device, *data; /* texts are "" if not given */
    flim_precision precision;
    int preset; /* -1 = not given */
    char *weights_in, *weights_out, *grads_out, *losses, *json;
    int64_t width, depth, steps, warmup, batch, classes, bins, pixels;
    uint64_t seed;
    double lr, weight_decay, dropout, block_dropout;
    bool use_dropout, benchmark, deterministic, parts, allow_external, pretrain;
} step_options;

#define AT(member) offsetof(step_options, member)
static const flim_flag_row rows[] = {
    {"What runs", "device", FLIM_VALUE_TEXT, AT(device), "auto", "D", .help = FLIM_DEVICE_TEXTS},
    {NULL, "precision", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(step_options, precision), "auto", "P",
     "numerical precision of the network", .choices = flim_precision_names, .also = "amp", .also_value = "amp"},
    {NULL, "preset", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(step_options, preset), "", "NAME",
     "size of the network; default: base, or that of the weights", .choices = flim_preset_names},
    FLIM_BENCH_SIZE_ROWS(AT(width), AT(depth)),
    {NULL, "classes", FLIM_VALUE_INTEGER, AT(classes), "0", "K", .help = "0: that of the weights or the data, else 2",
     .allowed = ">= 0, <= 10000"},
    {NULL, "batch", FLIM_VALUE_INTEGER, AT(batch), "16", "N", .help = "cells per step", .allowed = ">= 1, <= 1000000"},
    {NULL, "steps", FLIM_VALUE_INTEGER, AT(steps), "5", "N", .help = "timed steps", .allowed = ">= 1, <= 1000000"},
    {NULL, "warmup", FLIM_VALUE_INTEGER, AT(warmup), "1", "N", .help = "warm-up steps before them, whose effect is undone",
     .allowed = ">= 0, <= 1000000"},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, AT(seed), "42", "N", .help = "random seed of weights, dropout and synthetic counts"},
    {NULL, "benchmark", FLIM_VALUE_SWITCH, AT(benchmark), "true", NULL, .help = "time the plans of each convolution first"},
    {NULL, "deterministic", FLIM_VALUE_SWITCH, AT(deterministic), "false", NULL, .help = "bit-for-bit reproducible"},
    {NULL, "parts", FLIM_VALUE_SWITCH, AT(parts), "true", NULL, .help = "then time the operations alone, if the backend can"},
    {NULL, "pretrain", FLIM_VALUE_SWITCH, AT(pretrain), "false", NULL,
     .help = "the network that pretrain trains: 60 % of the voxels hidden, and pairs of views"},
    {"Training", "lr", FLIM_VALUE_REAL, AT(lr), "1e-4", "X", .help = "learning rate, constant", .allowed = ">= 0"},
    {NULL, "weight-decay", FLIM_VALUE_REAL, AT(weight_decay), "1e-3", "X", .help = "of AdamW", .allowed = ">= 0"},
    {NULL, "dropout-rate", FLIM_VALUE_REAL, AT(dropout), "0.25", "P", .help = "dropout probability in the head",
     .allowed = ">= 0, < 1"},
    {NULL, "block-dropout-rate", FLIM_VALUE_REAL, AT(block_dropout), "0", "P", .help = "that a block drops a channel",
     .allowed = ">= 0, < 1"},
    {NULL, "dropout", FLIM_VALUE_SWITCH, AT(use_dropout), "true", NULL, .help = "drop at these rates"},
    {"Input", "data", FLIM_VALUE_TEXT, AT(data), "", "FILE", .help = "cells from this file; without: synthetic counts"},
    FLIM_BENCH_ALLOW_EXTERNAL_ROW(AT(allow_external)),
    {NULL, "bins", FLIM_VALUE_INTEGER, AT(bins), "256", "T", .help = "time bins of synthetic counts",
     .allowed = ">= 8, <= 65536"},
    {NULL, "pixels", FLIM_VALUE_INTEGER, AT(pixels), "21", "H", .help = "height and width of synthetic counts",
     .allowed = ">= 3, <= 4096"},
    {NULL, "weights-in", FLIM_VALUE_TEXT, AT(weights_in), "", "FILE",
     .help = "start here, with no smoothing, clipping or schedule; without: weights of --seed"},
    {"Output", "weights-out", FLIM_VALUE_TEXT, AT(weights_out), "", "FILE",
     .help = "weights after the last step (.safetensors)", .writes = true},
    {NULL, "grads-out", FLIM_VALUE_TEXT, AT(grads_out), "", "FILE", .help = "gradients of step 0 (.safetensors)",
     .writes = true},
    {NULL, "losses", FLIM_VALUE_TEXT, AT(losses), "", "FILE", .help = "JSON array, one mean loss per step", .writes = true},
    {NULL, "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "the printed figures as JSON", .writes = true},
};
static const flim_flag_table table = {"flim_bench step",
                                      "flim_bench step [flags]",
                                      "Times training steps of the whole network: forward, loss, backward, AdamW.",
                                      rows,
                                      sizeof rows / sizeof rows[0],
                                      .operand = NULL};

static bool given(const char *text)
{
    return text[0] != '\0';
}

/* What a run of steps needs; all of it is released by `release`. */
typedef struct bench {
    const step_options *o;
    flim_device *device;
    flim_dataset *dataset; /* NULL: synthetic cells */
    flim_reader *reader;
    flim_network net;
    flim_precision precision;
    flim_program *program;
    float *parameters, *statistics; /* (P), (S) the initial weights */
    flim_batch batch;
    int64_t cells; /* N of the protocol */
    double *ms, *loss; /* (steps) */
} bench;

enum { SYNTHETIC_CELLS = 512 };

static flim_status open_data(bench *b, flim_error *err)
{
    b->cells = SYNTHETIC_CELLS;
    if (!given(b->o->data)) {
        return FLIM_OK;
    }
    const char *const paths[] = {b->o->data};
    const flim_dataset_options options = {.need_labels = true, .allow_external = b->o->allow_external};
    FLIM_TRY(flim_dataset_open(paths, 1, &options, &b->dataset, err));
    b->cells = flim_dataset_get_info(b->dataset)->n;
    return flim_reader_create(b->dataset, &b->reader, err);
}

/* Width, depth, classes and input size: from the weights where there are some, else from flags and data; disagreement is an
 * error. */
static flim_status build_network(bench *b, flim_error *err)
{
    const step_options *o = b->o;
    const flim_dataset_info *data = b->dataset ? flim_dataset_get_info(b->dataset) : NULL;
    flim_weights_info weights = {0};
    const flim_preset preset = o->preset < 0 ? FLIM_PRESET_BASE : (flim_preset)o->preset;
    flim_model_size size = flim_model_size_of(preset, o->width, o->depth);
    if (given(o->weights_in)) {
        FLIM_TRY(flim_weights_probe(o->weights_in, false, &weights, err));
        const bool asked = o->preset >= 0 || o->width > 0 || o->depth > 0;
        if (asked && (weights.width != size.width || weights.depth != size.depth)) {
            return flim_fail(
                err, FLIM_ERROR_USAGE,
                "width %d and depth %d are asked for, but %s has %d and %d: leave --preset, --width and --depth out",
                size.width, size.depth, o->weights_in, weights.width, weights.depth);
        }
        size = (flim_model_size){weights.width, weights.depth};
    }
    int classes = o->classes ? (int)o->classes : weights.classes ? weights.classes : data ? data->classes : 2;
    if (weights.classes && classes != weights.classes) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--classes %d, but %s is for %d classes", classes, o->weights_in,
                         weights.classes);
    }
    if (data && data->classes > classes) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s has %d classes, the network has %d", o->data, data->classes, classes);
    }
    int t = (int)o->bins, h = (int)o->pixels, w = (int)o->pixels;
    if (data) {
        t = data->t;
        h = data->h;
        w = data->w;
    } else if (weights.t) {
        t = weights.t;
        h = weights.h;
        w = weights.w;
    }
    classes = classes < 2 ? 2 : classes;
    if (o->pretrain) {
        const flim_pretraining what = {.masked = true, .contrastive = 0.1f};
        return given(o->weights_in)
                   ? flim_fail(err, FLIM_ERROR_USAGE, "--weights-in: --pretrain starts from the weights of --seed")
                   : flim_network_build_pretraining(&b->net, size, classes, t, h, w, &what, err);
    }
    return flim_network_build_sized(&b->net, size, classes, t, h, w, err);
}

static flim_status compile(bench *b, const flim_log *log, flim_error *err)
{
    const step_options *o = b->o;
    b->precision = flim_device_precision(flim_device_get_info(b->device), b->precision);
    const flim_program_options options = {.precision = b->precision,
                                          .train_batch = o->batch,
                                          .benchmark = o->benchmark,
                                          .deterministic = o->deterministic,
                                          .log = log};
    FLIM_TRY(flim_program_compile(b->device, &b->net, &options, &b->program, err));
    return flim_program_allocate(b->program, err);
}

static flim_status allocate(bench *b, flim_error *err)
{
    const flim_network *net = &b->net;
    const size_t steps = (size_t)b->o->steps;
    FLIM_TRY(flim_batch_create(b->device, net, b->o->batch, &b->batch, err));
    b->parameters = flim_alloc((size_t)net->parameters, sizeof *b->parameters, err);
    b->statistics = flim_alloc((size_t)net->statistics, sizeof *b->statistics, err);
    b->ms = flim_alloc(steps, sizeof *b->ms, err);
    b->loss = flim_alloc(steps, sizeof *b->loss, err);
    FLIM_TRY(b->parameters && b->statistics && b->ms && b->loss ? FLIM_OK : FLIM_ERROR_MEMORY);
    if (given(b->o->weights_in)) {
        return flim_weights_read(b->o->weights_in, net, b->parameters, b->statistics, err);
    }
    flim_network_init(net, b->o->seed, 0, b->parameters, b->statistics);
    return FLIM_OK;
}

/* Puts the program at its initial weights, as if no step had been made. */
static flim_status restart(bench *b, flim_error *err)
{
    flim_totals totals;
    FLIM_TRY(flim_fresh_state(b->program, b->parameters, b->statistics, err));
    return flim_program_totals(b->program, true, &totals, err);
}

static flim_status fill_batch(bench *b, int64_t step, flim_error *err)
{
    const flim_batch *batch = &b->batch;
    const int64_t pixels = (int64_t)batch->h * batch->w, voxels = pixels * batch->t;
    for (int64_t i = 0; i < batch->n; i++) {
        const int64_t views = b->o->pretrain ? 2 : 1; /* of each cell, one after the other */
        int64_t cell = (step * batch->n + i) / views * 37 % b->cells;
        float *signal = batch->signal + i * voxels; /* (T,H,W) */
        uint8_t *mask = batch->mask + i * pixels; /* (H,W) */
        batch->id[i] = (flim_cell_id){
            .seed = b->o->seed, .epoch = (uint32_t)step, .cell = (uint32_t)cell, .repeat = (uint32_t)(i % views)};
        if (!b->dataset) {
            batch->label[i] =
                flim_synthetic_cell(b->o->seed, cell, b->net.classes, batch->t, batch->h, batch->w, signal, mask);
            flim_signal_from_counts(signal, signal, voxels);
            continue;
        }
        batch->label[i] = flim_dataset_get_info(b->dataset)->label[cell];
        FLIM_TRY(flim_reader_signal(b->reader, cell, signal, mask, err));
    }
    return FLIM_OK;
}

static flim_step step_of(const bench *b)
{
    const step_options *o = b->o;
    flim_step step = flim_typical_step(b->batch.n);
    step.learning_rate = (float)o->lr;
    step.weight_decay = (float)o->weight_decay;
    step.dropout = (float)(o->use_dropout ? o->dropout : 0);
    step.block_dropout = (float)(o->use_dropout ? o->block_dropout : 0);
    if (given(o->weights_in)) {
        step.clip = step.label_smoothing = 0;
    }
    if (o->pretrain) {
        step.clip = 1;
        step.hide_share = 39322; /* 0.6 of 65536 */
    }
    return step;
}

/* One step on cells already in the batch; *ms and *loss are its time and mean loss. */
static flim_status run_step(bench *b, double *ms, double *loss, flim_error *err)
{
    const flim_step step = step_of(b);
    flim_totals totals;
    double start = flim_seconds();
    FLIM_TRY(flim_program_train(b->program, &b->batch, &step, err));
    FLIM_TRY(flim_program_totals(b->program, true, &totals, err));
    *ms = 1e3 * (flim_seconds() - start);
    *loss = totals.loss / totals.weight;
    return totals.nonfinite ? flim_fail(err, FLIM_ERROR_NONFINITE, "the loss or a gradient is not finite (loss %g)", *loss)
                            : FLIM_OK;
}

/* The gradients of the step just made, as a weights file without statistics. */
static flim_status write_gradients(bench *b, flim_error *err)
{
    float *gradients = flim_alloc((size_t)b->net.parameters, sizeof(float), err); /* P */
    if (!gradients) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_program_read(b->program, FLIM_STATE_GRADIENTS, gradients, err));
    status = flim_weights_write(b->o->grads_out, &b->net, NULL, gradients, NULL, err);
done:
    flim_free(gradients);
    return status;
}

static flim_status one_step(bench *b, int64_t s, double *ms, double *loss, flim_error *err)
{
    FLIM_TRY(fill_batch(b, s, err));
    return run_step(b, ms, loss, err);
}

static flim_status run_steps(bench *b, flim_error *err)
{
    FLIM_TRY(restart(b, err));
    for (int64_t s = 0; s < b->o->warmup; s++) {
        double ms, loss;
        FLIM_TRY(one_step(b, s, &ms, &loss, err));
    }
    if (b->o->warmup > 0) {
        FLIM_TRY(restart(b, err));
    }
    for (int64_t s = 0; s < b->o->steps; s++) {
        const flim_status status = one_step(b, s, &b->ms[s], &b->loss[s], err);
        if (status != FLIM_OK) {
            return flim_fail_prefix(err, "step %" PRId64 ": ", s);
        }
        if (s == 0 && given(b->o->grads_out)) {
            FLIM_TRY(write_gradients(b, err));
        }
    }
    return FLIM_OK;
}

/* As training runs: nobody waits for a step's loss, and where the device has memory of its own the next batch is copied there
 * meanwhile.  Changes the weights. */
static flim_status run_in_a_row(bench *b, double *ms, flim_error *err)
{
    const flim_step step = step_of(b);
    const double start = flim_seconds();
    for (int64_t s = 0; s < b->o->steps; s++) {
        FLIM_TRY(flim_program_train(b->program, &b->batch, &step, err));
    }
    FLIM_TRY(flim_program_wait(b->program, err));
    *ms = 1e3 * (flim_seconds() - start) / (double)b->o->steps;
    return FLIM_OK;
}

static flim_status write_weights(bench *b, flim_error *err)
{
    const flim_dataset_info *data = b->dataset ? flim_dataset_get_info(b->dataset) : NULL;
    const bool named = data && data->classes == b->net.classes;
    FLIM_TRY(flim_program_read(b->program, FLIM_STATE_PARAMETERS, b->parameters, err));
    FLIM_TRY(flim_program_read(b->program, FLIM_STATE_STATISTICS, b->statistics, err));
    flim_provenance about = {.fold = -1};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(named ? flim_provenance_set_classes(&about, data->classes, data->class_name, err) : FLIM_OK);
    status = flim_weights_write(b->o->weights_out, &b->net, &about, b->parameters, b->statistics, err);
done:
    flim_provenance_free(&about);
    return status;
}

typedef struct summary {
    double median, min, max, cells_per_s;
    double in_a_row; /* ms per step; 0 if steps cannot overlap with copies */
    int64_t peak_bytes;
    bool replays; /* flim_program_replays */
    char device[24]; /* "cpu", "cuda:0" */
    double work[FLIM_WORKS]; /* ms of its operations, each timed alone */
    double parts; /* their sum; 0 where the backend does not time them */
} summary;

/* Sorts ms. */
static summary summarize(bench *b)
{
    const flim_device_info *info = flim_device_get_info(b->device);
    const int64_t n = b->o->steps;
    summary s = {.median = flim_median(b->ms, n)};
    s.min = b->ms[0];
    s.max = b->ms[n - 1];
    s.cells_per_s = 1e3 * (double)b->o->batch / s.median;
    s.peak_bytes = flim_program_peak_bytes(b->program);
    s.replays = flim_program_replays(b->program);
    snprintf(s.device, sizeof s.device, info->own_memory ? "%s:%d" : "%s", info->kind, info->index);
    return s;
}

/* Where the backend can time operations alone.  The last thing that the program does: its state is unspecified afterwards. */
static flim_status time_parts(bench *b, summary *s, flim_error *err)
{
    enum { MOST = 512 };
    flim_error why = {0};
    int n = 0;
    flim_operation_time *time = flim_alloc(MOST, sizeof *time, err);
    if (!time) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = flim_program_profile(b->program, time, MOST, &n, &why);
    for (int i = 0; i < n && status == FLIM_OK; i++) {
        s->work[time[i].work] += time[i].ms;
        s->parts += time[i].ms;
    }
    flim_free(time);
    return status == FLIM_OK || status == FLIM_ERROR_USAGE ? FLIM_OK : flim_fail(err, status, "%s", why.text);
}

static void print_table(const bench *b, const summary *s, const char *precision, FILE *out)
{
    const flim_device_info *info = flim_device_get_info(b->device);
    const step_options *o = b->o;
    char size[FLIM_BENCH_SIZE_TEXT];
    fprintf(out, "%s: %s, %s\n", s->device, info->name, info->libraries);
    fprintf(out,
            "%s, preset %s (%" PRId64 " parameters), cells (2,%d,%d,%d), batch %" PRId64 ", %" PRId64 " steps after %" PRId64
            " of warm-up\n",
            precision, flim_bench_size_text(&b->net, size), b->net.parameters, b->net.in[0], b->net.in[1], b->net.in[2],
            o->batch, o->steps, o->warmup);
    fprintf(out, "loss         %12.6f first %12.6f last\n", b->loss[0], b->loss[o->steps - 1]);
    fprintf(out, "ms per step  %12.3f median %12.3f min %12.3f max\n", s->median, s->min, s->max);
    if (s->in_a_row > 0) {
        fprintf(out, "in a row     %12.3f ms per step, as training runs: the next batch is copied meanwhile\n", s->in_a_row);
    }
    fprintf(out, "cells/s      %12.2f\n", s->cells_per_s);
    fprintf(out, "peak memory  %12.3f GiB (%" PRId64 " bytes)\n", flim_gib(s->peak_bytes), s->peak_bytes);
    if (info->own_memory) {
        fprintf(out, "step         %s\n", s->replays ? "replayed as one CUDA graph" : "launched kernel by kernel");
    }
    for (int i = 0; i < FLIM_WORKS && s->parts > 0; i++) {
        fprintf(out, "%s%-27s %8.3f ms %5.1f%%\n", i == 0 ? "operations timed alone:\n  " : "  ",
                flim_work_name((flim_work)i), s->work[i], 100.0 * s->work[i] / s->parts);
    }
}

static flim_status write_json(const bench *b, const summary *s, const char *precision, flim_error *err)
{
    flim_json *json = flim_json_object(), *ms = flim_json_object();
    flim_json_set_string(json, "device", s->device);
    flim_json_set_string(json, "device_name", flim_device_get_info(b->device)->name);
    flim_json_set_string(json, "precision", precision);
    flim_bench_set_size(json, &b->net);
    flim_json_set_integer(json, "batch", b->o->batch);
    flim_json_set_number(ms, "median", s->median);
    flim_json_set_number(ms, "min", s->min);
    flim_json_set_number(ms, "max", s->max);
    if (s->in_a_row > 0) {
        flim_json_set_number(ms, "in_a_row", s->in_a_row);
    }
    flim_json_set(json, "ms", ms);
    flim_json_set_number(json, "cells_per_s", s->cells_per_s);
    flim_json_set_integer(json, "peak_bytes", s->peak_bytes);
    flim_json_set_bool(json, "replayed", s->replays);
    if (s->parts > 0) {
        flim_json *parts = flim_json_object();
        for (int i = 0; i < FLIM_WORKS; i++) {
            flim_json_set_number(parts, flim_work_name((flim_work)i), s->work[i]);
        }
        flim_json_set(json, "part_ms", parts);
    }
    const flim_status status = flim_bench_write_json(json, b->o->json, "{\n  \"device\": ", err);
    flim_json_free(json);
    return status;
}

static flim_status write_losses(const bench *b, flim_error *err)
{
    flim_json *json = flim_json_array();
    for (int64_t i = 0; i < b->o->steps; i++) {
        flim_json_add_number(json, b->loss[i]);
    }
    const flim_status status = flim_bench_write_json(json, b->o->losses, "[", err);
    flim_json_free(json);
    return status;
}

static void release(bench *b)
{
    flim_program_destroy(b->program);
    flim_reader_destroy(b->reader);
    flim_dataset_close(b->dataset);
    flim_free(b->parameters);
    flim_free(b->statistics);
    flim_free(b->ms);
    flim_free(b->loss);
    flim_batch_free(b->device, &b->batch);
    flim_device_close(b->device);
}

static flim_status measure(void *options, FILE *out, const flim_log *log, flim_error *err)
{
    const step_options *o = options;
    bench b = {.o = o, .precision = o->precision};
    flim_status status = FLIM_OK;
    /* Mistakes in flags and files come before the want of a device. */
    FLIM_TRY_DONE(flim_bench_check_weights(o->weights_out, err));
    FLIM_TRY_DONE(flim_bench_check_weights(o->grads_out, err));
    FLIM_TRY_DONE(open_data(&b, err));
    FLIM_TRY_DONE(build_network(&b, err));
    FLIM_TRY_DONE(flim_device_open(o->device, log, &b.device, err));
    FLIM_TRY_DONE(compile(&b, log, err));
    FLIM_TRY_DONE(allocate(&b, err));
    FLIM_TRY_DONE(run_steps(&b, err));
    summary s = summarize(&b);
    FLIM_TRY_DONE(given(o->weights_out) ? write_weights(&b, err) : FLIM_OK);
    if (flim_device_get_info(b.device)->own_memory) {
        FLIM_TRY_DONE(run_in_a_row(&b, &s.in_a_row, err));
    }
    FLIM_TRY_DONE(o->parts ? time_parts(&b, &s, err) : FLIM_OK);
    const char *precision = flim_precision_name(b.precision);
    print_table(&b, &s, precision, out);
    FLIM_TRY_DONE(given(o->json) ? write_json(&b, &s, precision, err) : FLIM_OK);
    FLIM_TRY_DONE(given(o->losses) ? write_losses(&b, err) : FLIM_OK);
done:
    release(&b);
    return status;
}

const flim_bench_command flim_bench_step = {"step", "training steps of the whole network: time, memory, losses, gradients",
                                            &table, sizeof(step_options), measure};

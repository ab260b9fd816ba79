/* flim_bench step: whole training steps, as in the comparison with PyTorch: cell i of step s is number ((s*batch + i) * 37)
 * mod N.
 *
 * A step that is timed is flim_program_train plus the wait for its loss; reading its cells is not.  Warm-up steps run first
 * and are undone, so they change times only.  Where the backend can, the operations are timed alone after the last step.
 *
 * With --accumulate A and R ranks a step has M = A R batches and s*batch becomes (s*M + m)*batch; rank r has m = r, R + r, ..., as
 * in train_cv.  So R ranks make the steps of one process with --accumulate A R. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_commands.h"
#include "bench/bench_output.h"
#include "bench/bench_step.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/median.h"
#include "core/try.h"
#include "data/synthetic.h"
#include "flim/flags.h"
#include "flim/weights.h"
#include "plan/synthetic_run.h"
#include "train/trainer.h"

static bool given(const char *text)
{
    return text[0] != '\0';
}

#define AT(member) offsetof(flim_step_options, member)
static const flim_flag_row rows[] = {
    {"What runs", "device", FLIM_VALUE_TEXT, AT(device), "auto", "D", .help = FLIM_DEVICE_TEXTS},
    {NULL, "precision", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(flim_step_options, precision), "auto", "P",
     "numerical precision of the network", .choices = flim_precision_names, .also = "amp", .also_value = "amp"},
    {NULL, "preset", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(flim_step_options, preset), "", "NAME",
     "size of the network; default: base, or that of the weights", .choices = flim_preset_names},
    FLIM_BENCH_SIZE_ROWS(AT(width), AT(depth)),
    {NULL, "classes", FLIM_VALUE_INTEGER, AT(classes), "0", "K", .help = "0: that of the weights or the data, else 2",
     .allowed = ">= 0, <= 10000"},
    {NULL, "batch", FLIM_VALUE_INTEGER, AT(batch), "16", "N", .help = "cells per step", .allowed = ">= 1, <= 1000000"},
    {NULL, "accumulate", FLIM_VALUE_INTEGER, AT(accumulate), "1", "N", .help = "batches per step",
     .allowed = ">= 1, <= 1000000"},
    {NULL, "parallel", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(flim_step_options, parallel), "none", "P",
     "data: the processes that mpirun has started make each step together, each with batches and a card of its own",
     .choices = flim_parallel_names},
    {NULL, "reverse", FLIM_VALUE_SWITCH, AT(reverse), "false", NULL,
     .help = "each batch backwards: the same steps but for the order of sums"},
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
    {NULL, "epsilon", FLIM_VALUE_REAL, AT(epsilon), "1e-8", "X",
     .help = "of AdamW; 1 makes updates proportional to gradients, not to their signs", .allowed = "> 0"},
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

enum { SYNTHETIC_CELLS = 512 };

static flim_status open_data(flim_bench_steps *b, flim_error *err)
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
static flim_status build_network(flim_bench_steps *b, flim_error *err)
{
    const flim_step_options *o = b->o;
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

static flim_status compile(flim_bench_steps *b, const flim_log *log, flim_error *err)
{
    const flim_step_options *o = b->o;
    b->precision = flim_device_precision(flim_device_get_info(b->device), b->precision);
    const flim_program_options options = {.precision = b->precision,
                                          .train_batch = o->batch,
                                          .benchmark = o->benchmark,
                                          .deterministic = o->deterministic,
                                          .ranks = b->ranks,
                                          .log = log};
    return flim_program_compile(b->device, &b->net, &options, &b->program, err);
}

static flim_status allocate(flim_bench_steps *b, flim_error *err)
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

/* The rank that writes and prints. */
static bool leads(const flim_bench_steps *b)
{
    return flim_ranks_rank(b->ranks) == 0;
}

/* Puts the program at its initial weights, as if no step had been made. */
static flim_status restart(flim_bench_steps *b, flim_error *err)
{
    flim_totals totals;
    FLIM_TRY(flim_fresh_state(b->program, b->parameters, b->statistics, err));
    return flim_program_totals(b->program, true, &totals, err);
}

static flim_status fill_batch(flim_bench_steps *b, int64_t number, flim_error *err)
{
    const flim_batch *batch = &b->batch;
    const int64_t pixels = (int64_t)batch->h * batch->w, voxels = pixels * batch->t;
    for (int64_t i = 0; i < batch->n; i++) {
        const int64_t views = b->o->pretrain ? 2 : 1; /* of each cell, one after the other */
        const int64_t place = b->o->reverse ? batch->n - 1 - i : i;
        int64_t cell = (number * batch->n + place) / views * 37 % b->cells;
        float *signal = batch->signal + i * voxels; /* (T,H,W) */
        uint8_t *mask = batch->mask + i * pixels; /* (H,W) */
        batch->id[i] = (flim_cell_id){
            .seed = b->o->seed, .epoch = (uint32_t)number, .cell = (uint32_t)cell, .repeat = (uint32_t)(place % views)};
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

static flim_step step_of(const flim_bench_steps *b)
{
    const flim_step_options *o = b->o;
    flim_step step = flim_typical_step(flim_step_cells(b));
    step.learning_rate = (float)o->lr;
    step.weight_decay = (float)o->weight_decay;
    step.epsilon = (float)o->epsilon;
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

/* Batch number a of this rank in a step. */
static void place_in_step(const flim_bench_steps *b, int64_t a, flim_step *step)
{
    step->first = a == 0;
    step->last = a == b->o->accumulate - 1;
}

/* Step s; *ms and *loss are its time and the mean loss of all its cells. */
static flim_status one_step(flim_bench_steps *b, int64_t s, double *ms, double *loss, flim_error *err)
{
    const int64_t ranks = flim_ranks_size(b->ranks), rank = flim_ranks_rank(b->ranks);
    flim_step step = step_of(b);
    flim_totals totals = {0};
    *ms = 0;
    for (int64_t a = 0; a < b->o->accumulate; a++) {
        place_in_step(b, a, &step);
        FLIM_TRY(fill_batch(b, (s * b->o->accumulate + a) * ranks + rank, err));
        FLIM_TRY(flim_ranks_settle(b->ranks, FLIM_OK, err)); /* reading of one is not to be in the time of another */
        const double start = flim_seconds();
        FLIM_TRY(flim_program_train(b->program, &b->batch, &step, err));
        FLIM_TRY(step.last ? flim_program_totals(b->program, true, &totals, err) : flim_program_wait(b->program, err));
        *ms += 1e3 * (flim_seconds() - start);
    }
    *loss = totals.loss / totals.weight;
    return totals.nonfinite ? flim_fail(err, FLIM_ERROR_NONFINITE, "the loss or a gradient is not finite (loss %g)", *loss)
                            : FLIM_OK;
}

static flim_status run_steps(flim_bench_steps *b, flim_error *err)
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
        if (s == 0 && given(b->o->grads_out) && leads(b)) {
            FLIM_TRY(flim_step_write_gradients(b, err));
        }
    }
    return FLIM_OK;
}

/* As training runs: nobody waits for a step's loss, and where the device has memory of its own the next batch is copied there
 * meanwhile.  Changes the weights. */
static flim_status run_in_a_row(flim_bench_steps *b, double *ms, flim_error *err)
{
    flim_step step = step_of(b);
    FLIM_TRY(flim_ranks_settle(b->ranks, FLIM_OK, err));
    const double start = flim_seconds();
    for (int64_t s = 0; s < b->o->steps; s++) {
        for (int64_t a = 0; a < b->o->accumulate; a++) {
            place_in_step(b, a, &step);
            FLIM_TRY(flim_program_train(b->program, &b->batch, &step, err));
        }
    }
    FLIM_TRY(flim_program_wait(b->program, err));
    *ms = 1e3 * (flim_seconds() - start) / (double)b->o->steps;
    return FLIM_OK;
}

/* Sorts ms. */
static flim_step_summary summarize(flim_bench_steps *b)
{
    const flim_device_info *info = flim_device_get_info(b->device);
    const int64_t n = b->o->steps;
    flim_step_summary s = {.median = flim_median(b->ms, n)};
    s.min = b->ms[0];
    s.max = b->ms[n - 1];
    s.cells_per_s = 1e3 * (double)flim_step_cells(b) / s.median;
    s.peak_bytes = flim_program_peak_bytes(b->program);
    s.replays = flim_program_replays(b->program);
    snprintf(s.device, sizeof s.device, info->own_memory ? "%s:%d" : "%s", info->kind, info->index);
    return s;
}

/* When gradients are summed over the ranks (one of mpirun's alone sums, too), where the backend can tell. */
static flim_status time_exchange(flim_bench_steps *b, flim_step_summary *s, flim_error *err)
{
    flim_error why = {0};
    if (!b->ranks) {
        return FLIM_OK;
    }
    const flim_status status = flim_program_time_exchange(b->program, &s->exchange, &why);
    return status == FLIM_OK || status == FLIM_ERROR_USAGE ? FLIM_OK : flim_fail(err, status, "%s", why.text);
}

/* Where the backend can time operations alone.  The last thing that the program does: its state is unspecified afterwards. */
static flim_status time_parts(flim_bench_steps *b, flim_step_summary *s, flim_error *err)
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

static void release(flim_bench_steps *b)
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

/* Ranks: each takes the card of its own number. */
static flim_status open_device(flim_bench_steps *b, const flim_log *log, flim_error *err)
{
    flim_device_kind kind = FLIM_DEVICE_AUTO;
    flim_error none = {0};
    int index = 0, cards = 0;
    char device[24];
    if (flim_ranks_size(b->ranks) == 1) {
        return flim_device_open(b->o->device, log, &b->device, err);
    }
    if (!flim_parse_device(b->o->device, &kind, &index)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--device '%s' is not " FLIM_DEVICE_TEXTS, b->o->device);
    }
    if (strchr(b->o->device, ':')) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--device %s: with --parallel data each process takes the card of its own number on its host; leave "
                         "the number out",
                         b->o->device);
    }
    if (kind == FLIM_DEVICE_AUTO) {
        kind = flim_device_count(&cards, &none) == FLIM_OK && cards > 0 ? FLIM_DEVICE_CUDA : FLIM_DEVICE_CPU;
    }
    flim_device_of_rank(b->ranks, kind == FLIM_DEVICE_CUDA ? "cuda" : "cpu", device, sizeof device);
    return flim_device_open(device, log, &b->device, err);
}

/* Up to the memory of the program, which ranks allocate together.  Mistakes in flags and files come before the want of a
 * device. */
static flim_status prepare(flim_bench_steps *b, const flim_log *log, flim_error *err)
{
    FLIM_TRY(leads(b) ? flim_bench_check_weights(b->o->weights_out, err) : FLIM_OK);
    FLIM_TRY(leads(b) ? flim_bench_check_weights(b->o->grads_out, err) : FLIM_OK);
    FLIM_TRY(open_data(b, err));
    FLIM_TRY(build_network(b, err));
    FLIM_TRY(open_device(b, log, err));
    return compile(b, log, err);
}

static flim_status run(flim_bench_steps *b, FILE *out, flim_error *err)
{
    const flim_step_options *o = b->o;
    FLIM_TRY(allocate(b, err));
    FLIM_TRY(run_steps(b, err));
    flim_step_summary s = summarize(b);
    FLIM_TRY(given(o->weights_out) && leads(b) ? flim_step_write_weights(b, err) : FLIM_OK);
    if (flim_device_get_info(b->device)->own_memory) {
        FLIM_TRY(run_in_a_row(b, &s.in_a_row, err));
    }
    FLIM_TRY(time_exchange(b, &s, err));
    FLIM_TRY(o->parts ? time_parts(b, &s, err) : FLIM_OK);
    if (!leads(b)) {
        return FLIM_OK;
    }
    flim_step_print(b, &s, out);
    FLIM_TRY(given(o->json) ? flim_step_write_json(b, &s, err) : FLIM_OK);
    return given(o->losses) ? flim_step_write_losses(b, err) : FLIM_OK;
}

/* What one rank alone could not do: it tells that itself, for the others do not come to report it. */
static void tell_and_leave(flim_ranks *ranks, const flim_log *log, const flim_error *err)
{
    if (flim_ranks_size(ranks) > 1) {
        flim_log_line(log, FLIM_LOG_WARNING, "rank %d of %d (on %s): %s", flim_ranks_rank(ranks), flim_ranks_size(ranks),
                      flim_ranks_host(ranks), err->text);
        flim_ranks_break(ranks);
    }
}

static flim_status measure(void *options, FILE *out, const flim_log *log, flim_error *err)
{
    const flim_step_options *o = options;
    flim_bench_steps b = {.o = o, .precision = o->precision};
    bool alone = false; /* the others do not know of an error of this rank */
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(o->parallel == FLIM_PARALLEL_DATA ? flim_ranks_open(&b.ranks, err) : FLIM_OK);
    FLIM_TRY_DONE(flim_ranks_settle(b.ranks, prepare(&b, log, err), err));
    FLIM_TRY_DONE(flim_ranks_settle(b.ranks, flim_program_allocate(b.program, err), err));
    alone = true;
    FLIM_TRY_DONE(run(&b, out, err));
done:
    if (status != FLIM_OK && alone) {
        tell_and_leave(b.ranks, log, err);
    }
    const bool reports = leads(&b); /* what all have been told is rank 0's to report */
    release(&b);
    flim_ranks_close(b.ranks, (int)status);
    return reports ? status : FLIM_OK;
}

const flim_bench_command flim_bench_step = {"step", "training steps of the whole network: time, memory, losses, gradients",
                                            &table, sizeof(flim_step_options), measure};

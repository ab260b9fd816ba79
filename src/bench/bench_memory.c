/* flim_bench memory: what plans predict against what the card says is gone, over presets, precisions, batches,
 * checkpointing. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_commands.h"
#include "bench/bench_output.h"
#include "core/bytes.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/parse.h"
#include "core/try.h"
#include "flim/flags.h"
#include "plan/plan.h"

typedef struct memory_options {
    char *device, *json;
    flim_string_list presets, precisions, batches, checkpoint;
    int64_t width, depth; /* 0 = each preset's */
    int64_t classes, bins, pixels;
    double margin, seconds;
    bool benchmark;
} memory_options;

#define AT(member) offsetof(memory_options, member)
static const flim_flag_row rows[] = {
    {"What runs", "device", FLIM_VALUE_TEXT, AT(device), "cuda", "D", .help = "cuda, cuda:N"},
    {NULL, "preset", FLIM_VALUE_LIST, AT(presets), "", "P",
     "size of the network; repeatable; without: tiny, base, large, xlarge", .choices = flim_preset_names},
    FLIM_BENCH_SIZE_ROWS(AT(width), AT(depth)),
    {NULL, "precision", FLIM_VALUE_LIST, AT(precisions), "", "P", "arithmetic; repeatable; without: tf32, bf16",
     .choices = flim_precision_names},
    {NULL, "batch", FLIM_VALUE_LIST, AT(batches), "", "N", .help = "cells or auto; repeatable; without: 16, 64, auto"},
    {NULL, "checkpoint-activations", FLIM_VALUE_LIST, AT(checkpoint), "", "C",
     "activations recomputed in the backward pass; repeatable; without: none, all", .choices = flim_recompute_names},
    {NULL, "classes", FLIM_VALUE_INTEGER, AT(classes), "2", "K", .help = "classes", .allowed = ">= 2, <= 10000"},
    {NULL, "bins", FLIM_VALUE_INTEGER, AT(bins), "256", "T", .help = "time bins", .allowed = ">= 8, <= 65536"},
    {NULL, "pixels", FLIM_VALUE_INTEGER, AT(pixels), "21", "H", .help = "height and width", .allowed = ">= 3, <= 4096"},
    {NULL, "margin", FLIM_VALUE_REAL, AT(margin), "0.85", "F", .help = "share of the card for batch auto",
     .allowed = "> 0, <= 1"},
    {NULL, "benchmark", FLIM_VALUE_SWITCH, AT(benchmark), "false", NULL,
     .help = "tune the convolutions: slow, and workspace may then differ from the plan made without the card"},
    {NULL, "seconds", FLIM_VALUE_REAL, AT(seconds), "170", "S", .help = "start no further case after this many seconds",
     .allowed = "> 0"},
    {"Output", "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "the printed figures as a JSON array", .writes = true},
};
static const flim_flag_table table = {
    "flim_bench memory",
    "flim_bench memory [flags]",
    "Compares planned with measured device memory: each case is planned from the card's properties alone,\n"
    "then run: training with a last partial batch, prediction with one, too.",
    rows,
    sizeof rows / sizeof rows[0],
    .operand = NULL};

typedef struct session {
    const memory_options *o;
    FILE *out;
    const flim_log *log;
    flim_device *device, *twin;
    flim_plan_budget budget;
    flim_json *rows;
    double begun, worst,
        worst_on_card; /* largest share by which a measurement differs from the plan made without, and on the card */
    int done, left_out, failed;
} session;

static void show(session *s, const flim_plan_request *r, bool is_auto, int64_t planned, const flim_plan_trial *t)
{
    const double differs = (double)t->allocated_bytes / (double)planned - 1;
    const double on_card = (double)t->allocated_bytes / (double)t->planned_bytes - 1;
    char size[FLIM_BENCH_SIZE_TEXT];
    s->worst = fabs(differs) > s->worst ? fabs(differs) : s->worst;
    s->worst_on_card = fabs(on_card) > s->worst_on_card ? fabs(on_card) : s->worst_on_card;
    fprintf(s->out,
            "| %-6s | %-4s | %4s %5" PRId64 " | %-4s | %9.1f | %+6.2f %% | %9.1f | %+6.2f %% | %9.1f | %8.1f | %8.2f |\n",
            flim_bench_size_text(r->net, size), flim_precision_name(r->precision), is_auto ? "auto" : "", r->batch,
            flim_recompute_name(r->recompute), flim_mib(planned), 100 * differs, flim_mib(t->planned_bytes), 100 * on_card,
            flim_mib(t->allocated_bytes), flim_mib(t->grown_bytes), t->train_ms);
    fflush(s->out);
    flim_json *row = flim_json_object();
    flim_bench_set_size(row, r->net);
    flim_json_set_string(row, "precision", flim_precision_name(r->precision));
    flim_json_set_integer(row, "batch", r->batch);
    flim_json_set_bool(row, "auto", is_auto);
    flim_json_set_string(row, "checkpoint_activations", flim_recompute_name(r->recompute));
    flim_json_set_integer(row, "planned_bytes", planned);
    flim_json_set_integer(row, "planned_on_card_bytes", t->planned_bytes);
    flim_json_set_integer(row, "measured_bytes", t->allocated_bytes);
    flim_json_set_integer(row, "grown_bytes", t->grown_bytes);
    flim_json_set_number(row, "train_ms", t->train_ms);
    flim_json_add(s->rows, row);
}

static flim_status run_case(session *s, const flim_network *net, flim_precision precision, const char *batch,
                            flim_recompute recompute, flim_error *err)
{
    flim_plan_request request = {.net = net,
                                 .precision = flim_device_precision(flim_device_get_info(s->device), precision),
                                 .recompute = recompute,
                                 .accumulate = 1,
                                 .benchmark = s->o->benchmark};
    flim_plan plan;
    flim_plan_trial trial;
    if (flim_seconds() - s->begun > s->o->seconds) {
        s->left_out++;
        return FLIM_OK;
    }
    const bool is_auto = strcmp(batch, "auto") == 0;
    if (!is_auto) {
        FLIM_TRY(flim_parse_i64("--batch", batch, 1, 1 << 20, &request.batch, err));
    }
    flim_error why = {0};
    flim_status status = FLIM_OK;
    plan = (flim_plan){.request = request};
    if (is_auto) {
        status = flim_plan_auto(s->device, &request, &s->budget, 1 << 20, s->log, &plan, &trial, &why);
        request = plan.request;
    }
    if (status == FLIM_OK) {
        status = flim_plan_make(s->twin, &request, &s->budget, &plan, &why);
    }
    if (status == FLIM_OK && !is_auto) {
        status = flim_plan_try(s->device, &request, &s->budget, &trial, &why);
    }
    if (status == FLIM_ERROR_MEMORY || status == FLIM_ERROR_USAGE || status == FLIM_ERROR_DEVICE) {
        char size[FLIM_BENCH_SIZE_TEXT];
        fprintf(s->out, "| %-6s | %-4s | %10" PRId64 " | %-4s | %9.1f | %s\n", flim_bench_size_text(net, size),
                flim_precision_name(precision), request.batch, flim_recompute_name(recompute), flim_mib(plan.program_bytes),
                why.text);
        s->failed++;
        return FLIM_OK;
    }
    if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    s->done++;
    show(s, &request, is_auto, plan.program_bytes, &trial);
    return FLIM_OK;
}

/* Item i of a list whose flag allowed these names only. */
static int choice_of(const flim_string_list *list, int i, const char *const *names)
{
    int value = 0;
    flim_parse_choice("", list->item[i], names, &value, NULL);
    return value;
}

static flim_status run_cases(session *s, flim_error *err)
{
    const memory_options *o = s->o;
    flim_status status = FLIM_OK;
    flim_network *net = flim_alloc(1, sizeof *net, err);
    if (!net) {
        return FLIM_ERROR_MEMORY;
    }
    for (int p = 0; p < o->presets.n; p++) {
        const flim_preset preset = (flim_preset)choice_of(&o->presets, p, flim_preset_names);
        const flim_model_size size = flim_model_size_of(preset, o->width, o->depth);
        FLIM_TRY_DONE(
            flim_network_build_sized(net, size, (int)o->classes, (int)o->bins, (int)o->pixels, (int)o->pixels, err));
        for (int q = 0; q < o->precisions.n * o->batches.n * o->checkpoint.n; q++) {
            const int precision = choice_of(&o->precisions, q / o->checkpoint.n / o->batches.n, flim_precision_names);
            const int recompute = choice_of(&o->checkpoint, q % o->checkpoint.n, flim_recompute_names);
            FLIM_TRY_DONE(run_case(s, net, (flim_precision)precision, o->batches.item[q / o->checkpoint.n % o->batches.n],
                                   (flim_recompute)recompute, err));
        }
    }
done:
    flim_free(net);
    return status;
}

/* What a list that was not given stands for. */
static flim_status fill(flim_string_list *list, const char *const *names, flim_error *err)
{
    const bool given = list->n > 0;
    for (int i = 0; !given && names[i]; i++) {
        FLIM_TRY(flim_string_list_add(list, names[i], err));
    }
    return FLIM_OK;
}

static flim_status fill_lists(memory_options *o, flim_error *err)
{
    static const char *const all[] = {"tiny", "base", "large", "xlarge", NULL}, *const one[] = {"base", NULL};
    const char *const *presets = o->width ? one : all; /* they differ by their width */
    static const char *const precisions[] = {"tf32", "bf16", NULL}, *const batches[] = {"16", "64", "auto", NULL};
    static const char *const checkpoint[] = {"none", "all", NULL};
    FLIM_TRY(fill(&o->presets, presets, err));
    FLIM_TRY(fill(&o->precisions, precisions, err));
    FLIM_TRY(fill(&o->batches, batches, err));
    return fill(&o->checkpoint, checkpoint, err);
}

static flim_status measure(void *options, FILE *out, const flim_log *log, flim_error *err)
{
    memory_options *o = options;
    FLIM_TRY(fill_lists(o, err));
    session *s = flim_alloc(1, sizeof *s, err);
    flim_card card;
    if (!s) {
        return FLIM_ERROR_MEMORY;
    }
    s->o = o;
    s->out = out;
    s->log = log;
    s->rows = flim_json_array();
    s->begun = flim_seconds();
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_device_open(o->device, log, &s->device, err));
    FLIM_TRY_DONE(flim_device_get_card(s->device, &card, err));
    FLIM_TRY_DONE(flim_device_describe(&card, &s->twin, err));
    const flim_device_info *info = flim_device_get_info(s->device);
    s->budget = flim_plan_budget_of(s->device, o->margin);
    fprintf(out, "%s, %s; %.2f GiB, %.2f GiB of it in use at start (context, libraries, others), %.0f %% may be filled\n\n",
            info->name, info->libraries, flim_gib(s->budget.total), flim_gib(s->budget.held), 100 * o->margin);
    fprintf(out,
            "| preset | prec | batch      | ckpt | planned without the card, MiB | measured differs | planned on it, MiB | "
            "measured differs | measured, MiB | code loaded, MiB | ms per step "
            "|\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    FLIM_TRY_DONE(run_cases(s, err));
    fprintf(out,
            "\n%d cases in %.0f s; measured differs from the plan made on the card by %.2f %% at most, from the one made "
            "without it by %.2f %%; %d did not run, %d left out for time\n",
            s->done, flim_seconds() - s->begun, 100 * s->worst_on_card, 100 * s->worst, s->failed, s->left_out);
    status = o->json[0] ? flim_bench_write_json(s->rows, o->json, "[\n  {\n    \"preset\": ", err) : FLIM_OK;
done:
    flim_json_free(s->rows);
    flim_device_close(s->twin);
    flim_device_close(s->device);
    flim_free(s);
    return status;
}

const flim_bench_command flim_bench_memory = {"memory", "planned against measured device memory", &table,
                                              sizeof(memory_options), measure};

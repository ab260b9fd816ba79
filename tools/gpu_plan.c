/* gpu_plan: what a run will need on a card, the batch that fits, and configs made from it (plan/plan.h). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/tool.h"
#include "core/try.h"
#include "plan/plan.h"

typedef struct options {
    char *gpu, *gpu_memory, *devices, *config, *show, *apply, *json;
    flim_string_list set;
    int preset, precision, checkpoint; /* -1 = as the config has it */
    char *net_width, *net_depth, *batch, *eval_batch, *accumulate, *margin, *data; /* "" = likewise */
    bool list, profile, force;
    int64_t effective, cells, classes, bins, height, width;
} options;

#define FIELD(name) offsetof(options, name)
#define CHOICE(name) FLIM_CHOICE_AT(options, name)
static const flim_flag_row rows[] = {
    {"Card", "gpu", FLIM_VALUE_TEXT, FIELD(gpu), "", "NAME",
     .help = "plan for this card, which need not be installed: L4, T4, A100-80, H100, ... (--list names all); auto: the card "
             "found (default)",
     .also = "auto", .also_value = "auto"},
    {NULL, "gpu-memory", FLIM_VALUE_TEXT, FIELD(gpu_memory), "", "SIZE",
     .help = "plan for a card of this size: 80 or 80GB (10^9 bytes), or 22.5GiB (2^30)"},
    {NULL, "devices", FLIM_VALUE_TEXT, FIELD(devices), "", "DIR",
     .help = "folder of the cards' files (default: the program's)"},
    {NULL, "margin", FLIM_VALUE_TEXT, FIELD(margin), "", "F",
     .help = "share of the card's memory that plans may use (default: the config's, 0.85)"},
    {"Run", "config", FLIM_VALUE_TEXT, FIELD(config), "", "FILE",
     .help = "plan the settings of this config (default: ./flimcv.yaml if it exists, as for train_cv)"},
    {NULL, "set", FLIM_VALUE_LIST, FIELD(set), "", "KEY=VALUE", .help = "set a key of the config; repeatable"},
    {NULL, "preset", FLIM_VALUE_CHOICE, CHOICE(preset), "", "P", "size of the network", .choices = flim_preset_names},
    {NULL, "width", FLIM_VALUE_TEXT, FIELD(net_width), "", "N",
     .help = "width of the network, a multiple of 4, instead of the preset's"},
    {NULL, "depth", FLIM_VALUE_TEXT, FIELD(net_depth), "", "N",
     .help = "residual blocks at each resolution, instead of the preset's"},
    {NULL, "precision", FLIM_VALUE_CHOICE, CHOICE(precision), "", "P", "numerical precision of the network",
     .choices = flim_precision_names, .also = "amp", .also_value = "amp"},
    {NULL, "batch", FLIM_VALUE_TEXT, FIELD(batch), "", "N", .help = "cells per training batch, or auto"},
    {NULL, "eval-batch", FLIM_VALUE_TEXT, FIELD(eval_batch), "", "N", .help = "cells per batch in validation and test"},
    {NULL, "accumulate", FLIM_VALUE_TEXT, FIELD(accumulate), "", "N", .help = "batches per update"},
    {NULL, "checkpoint-activations", FLIM_VALUE_CHOICE, CHOICE(checkpoint), "", "C",
     "activations recomputed in the backward pass", .choices = flim_recompute_names},
    {NULL, "effective-batch", FLIM_VALUE_INTEGER, FIELD(effective), "0", "N",
     .help = "effective batch size (batch x accumulate) that suggestions keep; 0 = as set", .allowed = ">= 0, <= 1073741824",
     .also = "target-effective-batch"},
    {"Data", "data", FLIM_VALUE_TEXT, FIELD(data), "", "FILE", .help = "read number and size of the cells from this file"},
    {NULL, "cells", FLIM_VALUE_INTEGER, FIELD(cells), "0", "N",
     .help = "cells of a training set, which no batch exceeds; 0 = from the data", .allowed = ">= 0"},
    {NULL, "classes", FLIM_VALUE_INTEGER, FIELD(classes), "2", "K", .help = "if there is no data file",
     .allowed = ">= 2, <= 10000"},
    {NULL, "bins", FLIM_VALUE_INTEGER, FIELD(bins), "256", "T", .help = "likewise: time bins", .allowed = ">= 8, <= 65536"},
    {NULL, "pixel-rows", FLIM_VALUE_INTEGER, FIELD(height), "21", "H", .help = "likewise: height",
     .allowed = ">= 3, <= 4096"},
    {NULL, "pixel-columns", FLIM_VALUE_INTEGER, FIELD(width), "21", "W", .help = "likewise: width",
     .allowed = ">= 3, <= 4096"},
    {"What to do", "list", FLIM_VALUE_SWITCH, FIELD(list), "false",
     .help = "list the cards: memory, bandwidth, peak rates, precisions and what auto takes"},
    {NULL, "show", FLIM_VALUE_TEXT, FIELD(show), "", "CONFIG",
     .help = "what this config uses, stage by stage (training, validation, prediction and its stages:), with advice"},
    {NULL, "apply", FLIM_VALUE_TEXT, FIELD(apply), "", "CONFIG",
     .help = "write the recommendation into this config (alone: flimcv.yaml), and one for each of its stages into stages:; "
             "keys that "
             "it lacks are added; a copy is kept as CONFIG.backup.N",
     .alone = "flimcv.yaml"},
    {NULL, "profile", FLIM_VALUE_SWITCH, FIELD(profile), "false",
     .help = "run the suggestions on the card: predicted against measured memory, time per step"},
    {NULL, "json", FLIM_VALUE_TEXT, FIELD(json), "", "FILE",
     .help = "write all of it as JSON, to standard output (or alone) instead of the tables", .alone = "-", .writes = true},
    {NULL, "force", FLIM_VALUE_SWITCH, FIELD(force), "false",
     .help = "let --json overwrite a FILE that gpu_plan has not made"},
};
static const flim_example examples[] = {
    {"gpu_plan --gpu L4", "what the default settings need on that card, and the batches that fit"},
    {NULL, NULL},
};
static const flim_flag_table table = {
    "gpu_plan",
    "gpu_plan [--gpu NAME | --gpu-memory SIZE] [--show CONFIG | --apply CONFIG] [flag]...",
    "Computes what a run needs on a card, exactly and before anything is allocated, suggests batches\nthat fit, and writes "
    "one into a config.  No card is needed: gpu_plan --gpu L4",
    rows,
    (int)(sizeof rows / sizeof rows[0]),
    .operand = NULL,
    .purpose = "memory of a run on a card that need not be there",
    .examples = examples,
    .see_also = "train_cv(1), flim_bench(1)"};

static bool given(const char *text)
{
    return text[0] != '\0';
}

/* The config, then the flags over it. */
static flim_status settle(const options *o, const char *config, flim_settings *settings, flim_error *err)
{
    const struct {
        const char *key, *value;
    } flags[] = {{"width", o->net_width},       {"depth", o->net_depth}, {"batch", o->batch}, {"eval_batch", o->eval_batch},
                 {"accumulate", o->accumulate}, {"margin", o->margin},   {"data", o->data}};
    FLIM_TRY(given(config) ? flim_settings_read(settings, config, err) : FLIM_OK);
    for (int i = 0; i < o->set.n; i++) {
        char key[64];
        const char *equal = strchr(o->set.item[i], '=');
        if (!equal || (size_t)(equal - o->set.item[i]) >= sizeof key) {
            return flim_fail(err, FLIM_ERROR_USAGE, "--set: '%.200s' is not KEY=VALUE", o->set.item[i]);
        }
        snprintf(key, sizeof key, "%.*s", (int)(equal - o->set.item[i]), o->set.item[i]);
        FLIM_TRY(flim_settings_set(settings, key, equal + 1, err));
    }
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        FLIM_TRY(given(flags[i].value) ? flim_settings_set(settings, flags[i].key, flags[i].value, err) : FLIM_OK);
    }
    settings->preset = o->preset < 0 ? settings->preset : (flim_preset)o->preset;
    settings->precision = o->precision < 0 ? settings->precision : (flim_precision)o->precision;
    settings->checkpoint_activations = o->checkpoint < 0 ? settings->checkpoint_activations : (flim_recompute)o->checkpoint;
    return FLIM_OK;
}

static flim_status run(void *read, const flim_string_list *operands, console *screen, flim_error *err)
{
    (void)operands;
    const options *o = read;
    const char *config = given(o->show)     ? o->show
                         : given(o->apply)  ? o->apply
                         : given(o->config) ? o->config
                                            : flim_settings_default_config(); /* as train_cv takes it */
    if (given(o->show) + given(o->apply) + given(o->config) > 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--config, --show and --apply each name the config: give one of them");
    }
    if (strcmp(o->apply, "-") == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--apply changes a config in its place, which standard output has not: name a file");
    }
    const bool json_only = flim_file_is_standard_output(o->json);
    const char *const inputs[] = {config, o->data};
    const flim_output output = {.path = o->json,
                                .kind = "a plan of gpu_plan",
                                .begins = "{\n  \"card\": {",
                                .input = inputs,
                                .n_inputs = 2,
                                .force = o->force};
    screen->quiet = screen->quiet || json_only; /* warnings go to stderr */
    const flim_log log = console_log(screen);
    flim_settings settings;
    flim_json *json = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY(given(o->json) ? flim_output_check(&output, err) : FLIM_OK);
    FLIM_TRY(flim_settings_init(&settings, err));
    FLIM_TRY_DONE(o->list ? FLIM_OK : settle(o, config, &settings, err));
    const flim_gpu_plan_options plan = {.gpu = o->gpu,
                                        .gpu_memory = o->gpu_memory,
                                        .devices = o->devices,
                                        .settings = &settings,
                                        .config = config,
                                        .show = given(o->show),
                                        .apply = given(o->apply),
                                        .profile = o->profile,
                                        .effective = o->effective,
                                        .cells = o->cells,
                                        .classes = o->classes,
                                        .bins = o->bins,
                                        .height = o->height,
                                        .width = o->width,
                                        .log = &log};
    if (o->list) {
        FLIM_TRY_DONE(flim_gpu_plan_list(o->devices, console_columns(STDOUT_FILENO), &log, &json, err));
        status = given(o->json) ? flim_json_write_output(json, &output, err) : FLIM_OK;
        goto done;
    }
    if (given(config)) {
        flim_log_line(&log, FLIM_LOG_INFO, "Settings: %s", config);
    }
    FLIM_TRY_DONE(flim_gpu_plan(&plan, &json, err));
    status = given(o->json) ? flim_json_write_output(json, &output, err) : FLIM_OK;
done:
    flim_json_free(json);
    flim_settings_free(&settings);
    return status;
}

int main(int argc, char **argv)
{
    options o;
    return tool_main(&table, &o, run, argc, argv);
}

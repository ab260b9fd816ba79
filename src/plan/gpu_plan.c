/* gpu_plan: the card, the network, and what is asked about them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/parse.h"
#include "flim/dataset.h"
#include "flim/plan.h"
#include "formats/yaml.h"

#define GIB 1073741824.0

/* What a call works on; `session_close` releases it. */
typedef struct session {
    const flim_gpu_plan_options *o;
    flim_device *device; /* described */
    flim_device *real; /* the card that is there; NULL = a card by name or size */
    flim_plan_room room;
    flim_network net;
    flim_plan_request request;
    int64_t cells; /* of the training part */
    int64_t effective;
    int64_t kept_bytes; /* of decoded cells, at most */
    bool batch_is_auto;
} session;

static bool given(const char *text)
{
    return text && text[0];
}

/* ---- the card */

static flim_status open_real(session *s, flim_card *card, flim_error *err)
{
    flim_error why = {0};
    const char *spec = strncmp(s->o->settings->device, "cuda", 4) == 0 ? s->o->settings->device : "cuda";
    flim_status status = flim_device_open(spec, s->o->log, &s->real, &why);
    if (status != FLIM_OK) {
        return flim_fail(err, status, "%s\nname a card to plan for, as in --gpu L4, or a size: --gpu-memory 24GB", why.text);
    }
    s->room = flim_plan_room_of(s->real, s->o->settings->margin);
    return flim_device_get_card(s->real, card, err);
}

static flim_status open_card(session *s, flim_error *err)
{
    const flim_gpu_plan_options *o = s->o;
    char folder[4096], path[4096] = "";
    flim_card card = {0};
    int64_t bytes = 0;
    flim_status status = FLIM_OK;
    if (given(o->gpu) || given(o->gpu_memory)) {
        if (given(o->devices)) {
            snprintf(folder, sizeof folder, "%.4000s", o->devices);
        } else {
            status = flim_card_folder(folder, err);
        }
        if (status == FLIM_OK && given(o->gpu_memory)) {
            status = flim_parse_bytes("--gpu-memory", o->gpu_memory, &bytes, err);
        }
        if (status == FLIM_OK) {
            status = given(o->gpu) ? flim_card_find(folder, o->gpu, &card, path, err)
                                   : flim_card_nearest(folder, bytes, &card, err);
        }
        if (status == FLIM_OK && bytes > 0) {
            card.memory_bytes = bytes;
        }
    } else {
        status = open_real(s, &card, err);
    }
    if (status == FLIM_OK) {
        status = flim_device_describe(&card, &s->device, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    if (!s->real) {
        s->room = flim_plan_room_of(s->device, o->settings->margin);
    }
    const flim_device_info *info = flim_device_get_info(s->device);
    flim_log_line(o->log, FLIM_LOG_INFO, "Card: %s%s (%s), %.1f GB (%.1f GiB), %.2f GiB of it held%s%s",
                  !given(o->gpu) && !s->real ? "a card like " : "", info->name, info->architecture,
                  (double)s->room.total / 1e9, (double)s->room.total / GIB, (double)s->room.held / GIB,
                  s->real ? " by the context and other programs" : " by the context",
                  path[0] ? "; figures and sources in " : "");
    if (path[0]) {
        flim_log_line(o->log, FLIM_LOG_INFO, "      %s", path);
    }
    if (info->assumes_workspace) {
        flim_log_line(o->log, FLIM_LOG_WARNING,
                      "%s: each of its convolutions is taken to need all that it may ask for, 256 MiB of workspace; whether "
                      "the card can run them is not checked",
                      info->libraries);
    } else {
        flim_log_line(o->log, FLIM_LOG_INFO,
                      "      workspace and support from %s for this card, its first choice for each convolution; tuning "
                      "(--benchmark) may choose others, of at most 256 MiB at a time",
                      info->libraries);
    }
    return FLIM_OK;
}

/* ---- the network */

/* Cells of the smallest training part, as settings split N cells. */
static int64_t training_cells(const flim_settings *s, int64_t n)
{
    const int64_t folds = s->folds, rest = n - (n + folds - 1) / folds;
    const int64_t train = rest - (int64_t)((double)rest * s->val_fraction + 0.5);
    return train > 1 ? train : 1;
}

static flim_status build_network(session *s, flim_error *err)
{
    const flim_gpu_plan_options *o = s->o;
    const flim_settings *set = o->settings;
    int width, t = (int)o->bins, h = (int)o->height, w = (int)o->width, classes = (int)o->classes;
    flim_status status = flim_network_preset_width(set->preset, &width, err);
    s->cells = o->cells;
    if (status == FLIM_OK && set->data.n > 0 && flim_file_exists(set->data.item[0])) {
        flim_dataset *data = NULL;
        const flim_dataset_options options = {.axes = set->axes, .cache = FLIM_CACHE_NONE};
        status = flim_dataset_open((const char *const *)set->data.item, set->data.n, &options, &data, err);
        if (status == FLIM_OK) {
            const flim_dataset_info *info = flim_dataset_get_info(data);
            t = info->t;
            h = info->h;
            w = info->w;
            classes = info->classes >= 2 ? info->classes : classes;
            s->cells = s->cells ? s->cells : training_cells(set, info->n);
            const int64_t voxel = strncmp(info->counts_type, "uint8", 5) == 0 ? 1 : 2;
            s->kept_bytes = strcmp(set->cache, "none") == 0 ? 0 : info->n * t * h * w * voxel;
            flim_log_line(o->log, FLIM_LOG_INFO,
                          "Data: %s: %" PRId64 " cells of %d x %d x %d, about %" PRId64 " in a training part",
                          set->data.item[0], info->n, t, h, w, s->cells);
        }
        flim_dataset_close(data);
    } else if (status == FLIM_OK) {
        flim_log_line(o->log, FLIM_LOG_INFO, "Data: %s is not there; cells of %d x %d x %d and %d classes are taken",
                      set->data.n ? set->data.item[0] : "a file", t, h, w, classes);
    }
    if (status == FLIM_OK) {
        status = flim_network_build(&s->net, width, classes, t, h, w, err);
    }
    if (status == FLIM_OK) {
        status = flim_plan_request_of(set, &s->net, flim_device_get_info(s->device), &s->request, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    s->cells = s->cells ? s->cells : INT64_MAX / 2;
    s->request.cache_bytes = s->kept_bytes;
    s->request.cache_on_device = strcmp(set->cache, "device") == 0;
    s->batch_is_auto = s->request.batch == 0;
    s->request.batch = s->batch_is_auto ? set->lr_batch : s->request.batch;
    s->effective = o->effective ? o->effective : s->request.batch * s->request.accumulate;
    s->request.benchmark = true;
    flim_log_line(o->log, FLIM_LOG_INFO, "Network: %s, width %d, %" PRId64 " parameters, %s", s->net.preset, s->net.width,
                  s->net.parameters, flim_precision_name(s->request.precision));
    return FLIM_OK;
}

/* ---- --show: what a config uses, stage by stage */

typedef struct stage {
    char name[64];
    flim_network net;
    flim_plan_request request;
} stage;

static void show_row(session *s, const char *name, const flim_plan *p, flim_json *rows)
{
    const flim_plan_request *r = &p->request;
    flim_log_line(s->o->log, FLIM_LOG_INFO, "  %-20.20s %-8s %7" PRId64 " %5" PRId64 "  %-9s  %-13s %8.2f GiB  %4.0f %%",
                  name, r->net->preset, r->batch ? r->batch : flim_plan_eval_batch(r), r->accumulate,
                  flim_precision_name(r->precision), flim_recompute_name(p->recompute), (double)p->device_bytes / GIB,
                  100 * (double)p->device_bytes / (double)s->room.total);
    flim_json *row = flim_plan_json(p, &s->room);
    flim_json_set_string(row, "stage", name);
    flim_json_add(rows, row);
}

/* What to change where a stage does not fit or leaves most of the card unused. */
static flim_status advise(session *s, const char *name, const flim_plan *p, flim_error *err)
{
    const double share = (double)p->device_bytes / (double)s->room.total;
    const bool over = p->program_bytes > s->room.budget;
    flim_plan most;
    if (!over && share >= 0.5) {
        return FLIM_OK;
    }
    flim_error why = {0};
    flim_status status = flim_plan_largest(s->device, &p->request, &s->room, s->cells, &most, &why);
    if (status == FLIM_ERROR_MEMORY) {
        flim_log_line(s->o->log, FLIM_LOG_WARNING, "%s: %s", name, why.text);
        return FLIM_OK;
    }
    if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    if (over) {
        flim_log_line(s->o->log, FLIM_LOG_WARNING,
                      "%s is over-committed: %.2f GiB are planned, %.2f GiB may be filled; batch %" PRId64
                      " fits (--accumulate keeps the cells an update), or --checkpoint-activations auto",
                      name, (double)p->program_bytes / GIB, (double)s->room.budget / GIB, most.request.batch);
    } else if (most.request.batch > p->request.batch) {
        flim_log_line(s->o->log, FLIM_LOG_INFO,
                      "  %s leaves %.0f %% of the card unused: batches up to %" PRId64
                      " fit; a larger batch changes what is learnt (--lr-scale), a larger preset uses the card as well",
                      name, 100 * (1 - share), most.request.batch);
    }
    return FLIM_OK;
}

/* "name=pretrain batch=32 preset=large precision=bf16": what the words say over the run's own request. */
static flim_status read_stage(session *s, const char *text, int number, stage *out, flim_error *err)
{
    char words[512], *rest = words, *word;
    flim_settings set;
    flim_status status = flim_settings_init(&set, err);
    snprintf(words, sizeof words, "%s", text);
    snprintf(out->name, sizeof out->name, "stage %d", number);
    if (status != FLIM_OK) {
        return status;
    }
    status = flim_settings_read(&set, s->o->config, err);
    while (status == FLIM_OK && (word = strsep(&rest, " ")) != NULL) {
        char *equal = strchr(word, '=');
        if (!equal) {
            snprintf(out->name, sizeof out->name, "%.60s", word);
            continue;
        }
        *equal = '\0';
        if (strcmp(word, "name") == 0) {
            snprintf(out->name, sizeof out->name, "%.60s", equal + 1);
        } else {
            status = flim_settings_set(&set, word, equal + 1, err);
        }
    }
    int width;
    if (status == FLIM_OK) {
        status = flim_network_preset_width(set.preset, &width, err);
    }
    if (status == FLIM_OK) {
        status = flim_network_build(&out->net, width, s->net.classes, s->net.in[0], s->net.in[1], s->net.in[2], err);
    }
    if (status == FLIM_OK) {
        status = flim_plan_request_of(&set, &out->net, flim_device_get_info(s->device), &out->request, err);
    }
    out->request.benchmark = true;
    out->request.batch = out->request.batch ? out->request.batch : s->request.batch;
    flim_settings_free(&set);
    return status == FLIM_OK ? FLIM_OK : flim_fail_prefix(err, "%s: stages: %.60s: ", s->o->config, out->name);
}

static flim_status show_stage(session *s, const char *name, const flim_plan_request *request, bool advice, flim_json *rows,
                              flim_error *err)
{
    flim_plan plan;
    flim_status status = flim_plan_make(s->device, request, &s->room, &plan, err);
    if (status == FLIM_OK) {
        show_row(s, name, &plan, rows);
    }
    return status == FLIM_OK && advice ? advise(s, name, &plan, err) : status;
}

static flim_status show_listed(session *s, flim_json *rows, flim_error *err)
{
    flim_yaml yaml;
    flim_status status = flim_yaml_read(s->o->config, &yaml, err);
    if (status != FLIM_OK) {
        return status;
    }
    stage *one = flim_alloc(1, sizeof *one, err);
    status = one ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int i = 0; i < yaml.n && status == FLIM_OK; i++) {
        for (int k = 0; strcmp(yaml.entry[i].key, "stages") == 0 && k < yaml.entry[i].value.n && status == FLIM_OK; k++) {
            status = read_stage(s, yaml.entry[i].value.item[k], k + 1, one, err);
            if (status == FLIM_OK) {
                status = show_stage(s, one->name, &one->request, true, rows, err);
            }
        }
    }
    flim_free(one);
    flim_yaml_free(&yaml);
    return status;
}

static flim_status show(session *s, flim_json *json, flim_error *err)
{
    flim_json *rows = flim_json_array();
    flim_plan_request train = s->request, validate = s->request, predict = s->request;
    if (s->batch_is_auto) {
        flim_plan most;
        flim_status status = flim_plan_largest(s->device, &s->request, &s->room, s->cells, &most, err);
        if (status != FLIM_OK) {
            flim_json_free(rows);
            return status;
        }
        train.batch = most.request.batch;
    }
    validate.batch = predict.batch = 0; /* what prediction alone takes; in a run it shares training's memory */
    validate.eval_batch = flim_plan_eval_batch(&train);
    predict.eval_batch = validate.eval_batch;
    predict.recompute = validate.recompute = FLIM_RECOMPUTE_NONE;
    flim_log_line(s->o->log, FLIM_LOG_INFO, "%s on this card:", s->o->config);
    flim_log_line(s->o->log, FLIM_LOG_INFO,
                  "  stage                preset     batch accum  precision  checkpointing       device  share");
    flim_status status = show_stage(s, "train", &train, true, rows, err);
    if (status == FLIM_OK) {
        status = show_stage(s, "validate (alone)", &validate, false, rows, err);
    }
    if (status == FLIM_OK) {
        status = show_stage(s, "predict", &predict, false, rows, err);
    }
    if (status == FLIM_OK) {
        status = show_listed(s, rows, err);
    }
    flim_json_set(json, "stages", rows);
    return status;
}

/* ---- --profile: the suggestions for real */

static flim_status profile(session *s, const flim_suggestions *all, flim_json *json, flim_error *err)
{
    const flim_log *log = s->o->log;
    flim_json *rows = flim_json_array();
    flim_status status = FLIM_OK;
    flim_log_line(log, FLIM_LOG_INFO, "On the card itself%s:",
                  s->o->settings->benchmark ? "; predicted again with the convolutions that tuning chose there" : "");
    flim_log_line(log, FLIM_LOG_INFO,
                  "     batch  precision  checkpointing     %s   predicted    measured   differ   ms a step  cells/s",
                  s->o->settings->benchmark ? "untuned " : "");
    for (int i = 0; i < all->n && status == FLIM_OK; i++) {
        const flim_plan *p = &all->plan[i];
        flim_plan_request r = p->request;
        flim_plan_trial trial;
        flim_error why = {0};
        r.recompute = p->recompute;
        r.benchmark = s->o->settings->benchmark;
        status = flim_plan_try(s->real, &r, &s->room, &trial, &why);
        if (status == FLIM_ERROR_MEMORY) {
            flim_log_line(log, FLIM_LOG_WARNING, "%d: %s", i + 1, why.text);
            status = FLIM_OK;
            continue;
        }
        if (status != FLIM_OK) {
            flim_fail(err, status, "%s", why.text);
            break;
        }
        char untuned[32] = "";
        if (r.benchmark) {
            snprintf(untuned, sizeof untuned, "%8.1f MiB ", (double)p->program_bytes / 1048576.0);
        }
        const double differ = 100 * ((double)trial.allocated_bytes / (double)trial.planned_bytes - 1);
        flim_log_line(log, FLIM_LOG_INFO, "  %d %6" PRId64 "  %-9s  %-13s %s%8.1f MiB %8.1f MiB %+6.2f %% %10.2f %9.0f",
                      i + 1, r.batch, flim_precision_name(r.precision), flim_recompute_name(r.recompute), untuned,
                      (double)trial.planned_bytes / 1048576.0, (double)trial.allocated_bytes / 1048576.0, differ,
                      trial.train_ms, trial.train_ms > 0 ? 1e3 * (double)r.batch / trial.train_ms : 0.0);
        flim_json *row = flim_json_object();
        flim_json_set_integer(row, "suggestion", i);
        flim_json_set_integer(row, "untuned_bytes", p->program_bytes);
        flim_json_set_integer(row, "predicted_bytes", trial.planned_bytes);
        flim_json_set_integer(row, "measured_bytes", trial.allocated_bytes);
        flim_json_set_integer(row, "grown_bytes", trial.grown_bytes);
        flim_json_set_number(row, "train_ms", trial.train_ms);
        flim_json_set_number(row, "predict_ms", trial.predict_ms);
        flim_json_add(rows, row);
    }
    flim_json_set(json, "profile", rows);
    return status;
}

/* ---- the whole */

static flim_status suggest(session *s, flim_json *json, flim_error *err)
{
    const flim_gpu_plan_options *o = s->o;
    flim_suggestions *all = flim_alloc(1, sizeof *all, err);
    if (!all) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = flim_plan_suggest(s->device, &s->request, &s->room, s->effective, s->cells, all, err);
    if (status == FLIM_OK && all->current_error[0]) {
        flim_log_line(o->log, FLIM_LOG_WARNING, "as set: %s", all->current_error);
    } else if (status == FLIM_OK) {
        flim_log_line(o->log, FLIM_LOG_INFO, "As set: batch %" PRId64 " x %" PRId64 " accumulated, eval batch %" PRId64 "%s",
                      s->request.batch, s->request.accumulate, flim_plan_eval_batch(&s->request),
                      all->current_fits ? "" : ": DOES NOT FIT");
        flim_plan_table(&all->current, &s->room, o->log);
    }
    if (status == FLIM_OK) {
        flim_log_line(o->log, FLIM_LOG_INFO, "Suggestions, safest first:");
        flim_plan_suggestions_table(all, &s->room, o->log);
        flim_json_set(json, "plan", flim_plan_suggestions_json(all, &s->room));
    }
    if (status == FLIM_OK && o->profile) {
        status = profile(s, all, json, err);
    }
    if (status == FLIM_OK && o->apply) {
        char backup[4096];
        status = flim_plan_apply(&all->plan[all->recommended], o->config, backup, err);
        if (status == FLIM_OK) {
            flim_log_line(o->log, FLIM_LOG_INFO, "%s now has suggestion %d; as it was: %s", o->config, all->recommended + 1,
                          backup);
            flim_json_set_string(json, "backup", backup);
        }
    }
    flim_free(all);
    return status;
}

flim_status flim_gpu_plan(const flim_gpu_plan_options *options, flim_json **json, flim_error *err)
{
    *json = flim_json_object();
    session *s = flim_alloc(1, sizeof *s, err);
    if (!s) {
        return FLIM_ERROR_MEMORY;
    }
    s->o = options;
    flim_status status = open_card(s, err);
    if (status == FLIM_OK && options->profile && !s->real) {
        status =
            flim_fail(err, FLIM_ERROR_USAGE, "--profile runs on the card that is there; leave --gpu and --gpu-memory out");
    }
    if (status == FLIM_OK) {
        const flim_device_info *info = flim_device_get_info(s->device);
        flim_json *card = flim_json_object();
        flim_json_set_string(card, "name", info->name);
        flim_json_set_string(card, "architecture", info->architecture);
        flim_json_set_integer(card, "memory_bytes", s->room.total);
        flim_json_set_integer(card, "held_bytes", s->room.held);
        flim_json_set_integer(card, "budget_bytes", s->room.budget);
        flim_json_set_number(card, "margin", s->room.margin);
        flim_json_set_string(card, "cudnn", info->libraries);
        flim_json_set_bool(card, "workspace_assumed", info->assumes_workspace);
        flim_json_set(*json, "card", card);
        status = build_network(s, err);
    }
    if (status == FLIM_OK) {
        status = options->show ? show(s, *json, err) : suggest(s, *json, err);
    }
    flim_device_close(s->device);
    flim_device_close(s->real);
    flim_free(s);
    return status;
}

/* gpu_plan: the card, the data, the network, and what is asked about them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "core/bytes.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "flim/dataset.h"
#include "flim/split.h"
#include "plan/gpu_plan_internal.h"

typedef flim_plan_session session;

static bool given(const char *text)
{
    return text && text[0];
}

/* Whether a card is named; "auto" is the one that is there. */
static bool names_card(const flim_gpu_plan_options *o)
{
    return (given(o->gpu) && strcmp(o->gpu, "auto") != 0) || given(o->gpu_memory);
}

/* ---- the card */

static flim_status open_real(session *s, flim_card *card, flim_error *err)
{
    flim_error why = {0};
    flim_device_kind kind;
    int index;
    const bool named = flim_parse_device(s->o->settings->device, &kind, &index) && kind == FLIM_DEVICE_CUDA;
    const char *spec = named ? s->o->settings->device : "cuda";
    flim_status status = flim_device_open(spec, s->o->log, &s->real, &why);
    if (status != FLIM_OK) {
        return flim_fail(err, status, "%s; name a card to plan for, as in --gpu L4, or a size: --gpu-memory 24GB", why.text);
    }
    s->budget = flim_plan_budget_of(s->real, s->o->settings->margin);
    return flim_device_get_card(s->real, card, err);
}

/* The card by its name or size; path gets its file. */
static flim_status named_card(const flim_gpu_plan_options *o, flim_card *card, char path[4096], flim_error *err)
{
    char folder[4096];
    int64_t bytes = 0;
    if (given(o->devices)) {
        snprintf(folder, sizeof folder, "%.4000s", o->devices);
    } else {
        FLIM_TRY(flim_card_folder(folder, err));
    }
    if (given(o->gpu_memory)) {
        FLIM_TRY(flim_parse_bytes("--gpu-memory", o->gpu_memory, &bytes, err));
    }
    FLIM_TRY(given(o->gpu) && strcmp(o->gpu, "auto") != 0 ? flim_card_find(folder, o->gpu, card, path, err)
                                                          : flim_card_nearest(folder, bytes, card, err));
    card->memory_bytes = bytes > 0 ? bytes : card->memory_bytes;
    return FLIM_OK;
}

static flim_status open_card(session *s, flim_error *err)
{
    const flim_gpu_plan_options *o = s->o;
    char path[4096] = "";
    flim_card card = {0};
    FLIM_TRY(names_card(o) ? named_card(o, &card, path, err) : open_real(s, &card, err));
    FLIM_TRY(flim_device_describe(&card, &s->device, err));
    if (!s->real) {
        s->budget = flim_plan_budget_of(s->device, o->settings->margin);
    }
    const flim_device_info *info = flim_device_get_info(s->device);
    flim_log_line(o->log, FLIM_LOG_INFO, "Card: %s%s (%s), %.1f GB (%.1f GiB), %.2f GiB of it in use%s%s",
                  !given(o->gpu) && !s->real ? "a card like " : "", info->name, info->architecture,
                  (double)s->budget.total / 1e9, flim_gib(s->budget.total), flim_gib(s->budget.held),
                  s->real ? " by the context and other programs" : " by the context",
                  path[0] ? "; figures and sources in " : "");
    if (path[0]) {
        flim_log_line(o->log, FLIM_LOG_INFO, "      %s", path);
    }
    if (info->assumes_workspace) {
        flim_log_line(o->log, FLIM_LOG_WARNING,
                      "%s: each of its convolutions is assumed to need the maximum workspace, 256 MiB; whether the card can "
                      "run them is not checked",
                      info->libraries);
    } else {
        flim_log_line(o->log, FLIM_LOG_INFO,
                      "      workspace and support from %s for this card, its first choice for each convolution; tuning "
                      "(--benchmark) may choose others, of at most 256 MiB at a time",
                      info->libraries);
    }
    return FLIM_OK;
}

/* ---- the data and the network */

/* Folds as train_cv makes them. */
static flim_status make_splits(const flim_settings *set, const flim_dataset_info *info, flim_splits *out)
{
    const flim_split_data data = flim_split_data_of(info);
    flim_split_request request = flim_split_request_of(set, NULL);
    bool *unused = NULL; /* (n) */
    flim_status status = FLIM_OK;
    if (!info->label) {
        return FLIM_ERROR_USAGE;
    }
    FLIM_TRY_DONE(flim_split_find_unused(&data, set, NULL, &unused, NULL));
    if (set->splits[0]) {
        FLIM_TRY_DONE(flim_splits_read_by(set->splits_by, set->splits, &data, out, NULL));
        FLIM_TRY_DONE(unused ? flim_splits_leave_out(out, &data, unused, NULL) : FLIM_OK);
        status = out->needs_validation ? flim_splits_add_validation(out, &data, &request, NULL) : FLIM_OK;
    } else {
        request.unused = unused;
        status = flim_splits_make(&data, &request, out, NULL);
    }
done:
    flim_free(unused);
    return status;
}

/* Cells of the largest training set of a data set as the settings split it; 0 if it cannot be split so. */
static int64_t training_part(const flim_settings *settings, const flim_dataset_info *info)
{
    flim_splits splits = {0};
    const int64_t most = make_splits(settings, info, &splits) == FLIM_OK ? flim_splits_largest_part(&splits) : 0;
    flim_splits_free(&splits);
    return most;
}

/* If the data cannot be split as it is: the largest part by the numbers alone. */
static int64_t about_training_part(const flim_settings *s, int64_t n)
{
    const int64_t rest = n - n / s->folds, train = rest - (int64_t)((double)rest * s->val_fraction + 0.5);
    return train > 1 ? train : 1;
}

/* Sizes of the cells, and the bytes of all cells decoded, from the data file; as the options have them if there is none. */
static flim_status read_data(session *s, int size[3], int *classes, flim_json *json, flim_error *err)
{
    const flim_settings *set = s->o->settings;
    flim_dataset *data = NULL;
    const char *path = set->data.n > 0 ? set->data.item[0] : "data";
    if (!flim_file_exists(path)) {
        flim_log_line(s->o->log, FLIM_LOG_NOTE, "%s is not there; cells of %d x %d x %d and %d classes are taken", path,
                      size[0], size[1], size[2], *classes);
        return FLIM_OK;
    }
    const flim_dataset_options options = {.axes = set->axes, .allow_external = set->allow_external, .cache = FLIM_CACHE_NONE};
    FLIM_TRY(flim_dataset_open((const char *const *)set->data.item, set->data.n, &options, &data, err));
    const flim_dataset_info *info = flim_dataset_get_info(data);
    const int64_t voxel = strncmp(info->counts_type, "uint8", 5) == 0 ? 1 : 2;
    const int64_t part = training_part(set, info), cells = part ? part : about_training_part(set, info->n);
    size[0] = info->t;
    size[1] = info->h;
    size[2] = info->w;
    *classes = info->classes >= 2 ? info->classes : *classes;
    s->cells = s->cells ? s->cells : cells;
    s->request.cache_bytes = set->cache == FLIM_CACHE_NONE ? 0 : info->n * size[0] * size[1] * size[2] * voxel;
    flim_log_line(s->o->log, FLIM_LOG_INFO,
                  "Data: %s: %" PRId64 " cells of %d x %d x %d, %s%" PRId64 " in the largest training set", path, info->n,
                  size[0], size[1], size[2], part ? "" : "about ", cells);
    flim_json_set_string(json, "path", path);
    flim_dataset_close(data);
    return FLIM_OK;
}

static flim_status build_network(session *s, flim_json *json, flim_error *err)
{
    const flim_gpu_plan_options *o = s->o;
    const flim_settings *set = o->settings;
    int size[3] = {(int)o->bins, (int)o->height, (int)o->width}, classes = (int)o->classes;
    flim_status status = FLIM_OK;
    s->cells = o->cells;
    flim_json *about = flim_json_object();
    flim_json_set_null(about, "path");
    FLIM_TRY_DONE(read_data(s, size, &classes, about, err));
    FLIM_TRY_DONE(flim_network_of(set, classes, size[0], size[1], size[2], &s->net, err));
    const int64_t cache_bytes = s->request.cache_bytes;
    s->request = flim_plan_request_of(set, &s->net, flim_device_get_info(s->device));
    flim_json_set_integer(about, "bins", size[0]);
    flim_json_set_integer(about, "height", size[1]);
    flim_json_set_integer(about, "width", size[2]);
    flim_json_set_integer(about, "classes", classes);
    if (s->cells) { /* else not bounded */
        flim_json_set_integer(about, "training_cells", s->cells);
    }
    flim_json *net = flim_json_object();
    flim_json_set_string(net, "preset", s->net.preset);
    flim_json_set_integer(net, "width", s->net.width);
    flim_json_set_integer(net, "depth", s->net.depth);
    flim_json_set_integer(net, "parameters", s->net.parameters);
    flim_json_set(json, "network", net);
    s->cells = s->cells ? s->cells : INT64_MAX / 2;
    s->request.cache_bytes = cache_bytes;
    s->request.cache_on_device = set->cache == FLIM_CACHE_DEVICE;
    s->request.benchmark = true;
    flim_log_line(o->log, FLIM_LOG_INFO, "Network: %s, width %d, depth %d, %" PRId64 " parameters, %s", s->net.preset,
                  s->net.width, s->net.depth, s->net.parameters, flim_precision_name(s->request.precision));
done:
    flim_json_set(json, "data", about);
    return status;
}

/* ---- --profile: the suggestions for real */

static void profile_row(const session *s, int i, const flim_plan *p, const flim_plan_request *r, const flim_plan_trial *trial,
                        flim_json *rows)
{
    char untuned[32] = "";
    if (r->benchmark) {
        snprintf(untuned, sizeof untuned, " %9.1f", flim_mib(p->program_bytes));
    }
    const double differ = 100 * ((double)trial->allocated_bytes / (double)trial->planned_bytes - 1);
    flim_log_line(s->o->log, FLIM_LOG_INFO, "  %d %6" PRId64 "  %-5s %-6s%s %9.1f %9.1f %+6.2f %% %7.2f %7.0f", i + 1,
                  r->batch, flim_precision_name(r->precision), flim_recompute_name(r->recompute), untuned,
                  flim_mib(trial->planned_bytes), flim_mib(trial->allocated_bytes), differ, trial->train_ms,
                  trial->train_ms > 0 ? 1e3 * (double)r->batch / trial->train_ms : 0.0);
    flim_json *row = flim_json_object();
    flim_json_set_integer(row, "suggestion", i);
    flim_json_set_integer(row, "untuned_bytes", p->program_bytes);
    flim_json_set_integer(row, "predicted_bytes", trial->planned_bytes);
    flim_json_set_integer(row, "measured_bytes", trial->allocated_bytes);
    flim_json_set_integer(row, "grown_bytes", trial->grown_bytes);
    flim_json_set_number(row, "train_ms", trial->train_ms);
    flim_json_set_number(row, "predict_ms", trial->predict_ms);
    flim_json_add(rows, row);
}

static flim_status profile(session *s, const flim_suggestions *all, flim_json *json, flim_error *err)
{
    const flim_log *log = s->o->log;
    const bool tuned = s->o->settings->benchmark;
    flim_json *rows = flim_json_array();
    flim_error last = {0};
    int ran = 0;
    flim_status status = FLIM_OK;
    flim_log_line(log, FLIM_LOG_INFO, "On the card itself, memory in MiB%s:",
                  tuned ? "; predicted again with the convolutions that tuning chose there" : "");
    flim_log_line(log, FLIM_LOG_INFO, "     batch  prec. ckpt. %s predicted  measured   differ ms/step cells/s",
                  tuned ? "   untuned" : "");
    for (int i = 0; i < all->n; i++) {
        flim_plan_request r = all->plan[i].request;
        flim_plan_trial trial;
        flim_error why = {0};
        r.recompute = all->plan[i].recompute;
        r.benchmark = tuned;
        status = flim_plan_try(s->real, &r, &s->budget, &trial, &why);
        if (status == FLIM_OK) {
            profile_row(s, i, &all->plan[i], &r, &trial, rows);
            ran++;
        } else if (status == FLIM_ERROR_MEMORY || status == FLIM_ERROR_DEVICE) { /* DEVICE: perhaps no right convolution */
            flim_log_line(log, FLIM_LOG_WARNING, "%d: %s", i + 1, why.text);
            last = why;
        } else {
            FLIM_TRY_DONE(flim_fail(err, status, "%s", why.text));
        }
    }
    status = ran == 0 ? flim_fail(err, last.status, "%s", last.text) : FLIM_OK;
done:
    flim_json_set(json, "profile", rows);
    return status;
}

/* ---- the whole */

/* Two ways to go, side by side: as many cells per update as now, and the most that fit, which learn with another rate. */
static flim_status two_choices(const session *s, const flim_plan *kept, flim_json *json, flim_error *err)
{
    const flim_settings *set = s->o->settings;
    flim_plan_request request = kept->request;
    flim_plan most;
    request.accumulate = 1;
    FLIM_TRY(flim_plan_largest(s->device, &request, &s->budget, s->cells, &most, err));
    const flim_plan *const choice[] = {kept, &most};
    static const char *const names[] = {"same cells per update", "largest batch"}, *const keys[] = {"same", "largest"};
    flim_log_line(s->o->log, FLIM_LOG_INFO,
                  "Two ways to go, with lr from %g for %" PRId64 " cells per update (lr_scale):", set->lr, set->lr_batch);
    for (int i = 0; i < 2; i++) {
        const flim_plan_request *r = &choice[i]->request;
        const double cells = (double)(r->batch * r->accumulate), ratio = cells / (double)set->lr_batch;
        flim_log_line(s->o->log, FLIM_LOG_INFO,
                      "  %-22s batch %" PRId64 " x %" PRId64
                      " = %.0f cells, %.2f GiB, %.0f %%, %s; lr %.3g (sqrt), %.3g (linear)",
                      names[i], r->batch, r->accumulate, cells, flim_gib(choice[i]->device_bytes),
                      100 * (double)choice[i]->device_bytes / (double)s->budget.total,
                      flim_plan_verdict(choice[i], &s->budget), set->lr * sqrt(ratio), set->lr * ratio);
        flim_json *one = flim_plan_json(choice[i], &s->budget);
        flim_json_set_number(one, "lr_sqrt", set->lr * sqrt(ratio));
        flim_json_set_number(one, "lr_linear", set->lr * ratio);
        flim_json_set(json, keys[i], one);
    }
    return FLIM_OK;
}

static flim_status suggest(session *s, flim_json *json, flim_error *err)
{
    const flim_gpu_plan_options *o = s->o;
    flim_suggestions *all = flim_alloc(1, sizeof *all, err);
    if (!all) {
        return FLIM_ERROR_MEMORY;
    }
    /* Of a batch that is to be found, suggestions keep the cells per update that lr is meant for. */
    flim_plan_request request = s->request;
    const bool is_auto = request.batch == 0;
    const int64_t kept = o->effective ? o->effective : is_auto ? o->settings->lr_batch * request.accumulate : 0;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_plan_settle_batch(s->device, &s->budget, s->cells, &request, err));
    FLIM_TRY_DONE(flim_plan_suggest(s->device, &request, &s->budget, kept, s->cells, all, err));
    if (all->current_error[0]) {
        flim_log_line(o->log, FLIM_LOG_WARNING, "as set: %s", all->current_error);
    } else {
        flim_log_line(o->log, FLIM_LOG_INFO,
                      "As set: batch %s%" PRId64 " x %" PRId64 " accumulated, eval batch %" PRId64 "%s",
                      is_auto ? "auto: " : "", request.batch, request.accumulate, flim_plan_eval_batch(&request),
                      all->current_fits ? "" : ": DOES NOT FIT");
        flim_plan_table(&all->current, &s->budget, o->log);
    }
    flim_log_line(o->log, FLIM_LOG_INFO, "Suggestions for preset %s, safest first:", s->net.preset);
    flim_plan_suggestions_table(all, &s->budget, o->log);
    flim_json *plan = flim_plan_suggestions_json(all, &s->budget);
    flim_json_set(json, "plan", plan);
    FLIM_TRY_DONE(two_choices(s, &all->plan[all->recommended], plan, err));
    FLIM_TRY_DONE(flim_plan_tell_pretraining(s, json, err));
    if (o->profile) {
        FLIM_TRY_DONE(profile(s, all, json, err));
    }
    if (o->apply) {
        FLIM_TRY_DONE(flim_plan_apply_all(s, &all->plan[all->recommended], json, err));
    }
done:
    flim_free(all);
    return status;
}

static flim_json *card_json(const session *s)
{
    const flim_device_info *info = flim_device_get_info(s->device);
    flim_json *card = flim_json_object();
    flim_json_set_string(card, "name", info->name);
    flim_json_set_string(card, "architecture", info->architecture);
    flim_json_set_integer(card, "memory_bytes", s->budget.total);
    flim_json_set_integer(card, "held_bytes", s->budget.held);
    flim_json_set_integer(card, "budget_bytes", s->budget.bytes);
    flim_json_set_number(card, "margin", s->budget.margin);
    flim_json_set_string(card, "cudnn", info->libraries);
    flim_json_set_bool(card, "workspace_assumed", info->assumes_workspace);
    return card;
}

flim_status flim_gpu_plan(const flim_gpu_plan_options *options, flim_json **json, flim_error *err)
{
    flim_status status = FLIM_OK;
    *json = flim_json_object();
    session *s = flim_alloc(1, sizeof *s, err);
    if (!s) {
        return FLIM_ERROR_MEMORY;
    }
    s->o = options;
    if (options->show && options->profile) {
        status = flim_fail(err, FLIM_ERROR_USAGE, "--profile runs suggestions, and --show makes none: leave one out");
        goto done;
    }
    FLIM_TRY_DONE(open_card(s, err));
    if (options->profile && !s->real) {
        status =
            flim_fail(err, FLIM_ERROR_USAGE, "--profile runs on the card that is there; leave --gpu and --gpu-memory out");
        goto done;
    }
    flim_json_set(*json, "card", card_json(s));
    FLIM_TRY_DONE(build_network(s, *json, err));
    status = options->show ? flim_plan_show(s, *json, err) : suggest(s, *json, err);
done:
    flim_device_close(s->device);
    flim_device_close(s->real);
    flim_free(s);
    return status;
}

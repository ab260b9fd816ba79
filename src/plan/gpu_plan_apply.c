/* --apply: the recommendation into the config, and into each of its stages what keeps that stage's cells per update. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "plan/gpu_plan_internal.h"

flim_status flim_plan_read_stage(const flim_plan_session *s, const flim_settings *run, const char *text, int number,
                                 flim_stage *stage, flim_network *net, flim_plan_request *request, flim_error *err)
{
    flim_status status = flim_stage_read(run, text, number, stage, err);
    if (status == FLIM_OK) {
        status = flim_plan_request_stage(s, &stage->settings, net, request, err);
        if (status != FLIM_OK) {
            flim_stage_free(stage);
        }
    }
    return status == FLIM_OK ? FLIM_OK : flim_fail_prefix(err, "%s: ", s->o->config);
}

flim_status flim_plan_request_stage(const flim_plan_session *s, const flim_settings *set, flim_network *net,
                                    flim_plan_request *request, flim_error *err)
{
    *request = flim_plan_request_of(set, net, flim_device_get_info(s->device));
    request->benchmark = s->request.benchmark;
    request->cache_bytes = s->request.cache_bytes;
    request->cache_on_device = s->request.cache_on_device;
    return flim_network_of(set, s->net.classes, s->net.in[0], s->net.in[1], s->net.in[2], net, err);
}

/* Cells of the files of --pretraining-data, 0 if they cannot be opened: the run will say why. */
static int64_t cells_of(const flim_plan_session *s, const flim_string_list *files)
{
    const flim_settings *set = s->o->settings;
    const flim_dataset_options options = {
        .axes = set->axes, .allow_external = set->allow_external, .ignore_labels = true, .cache = FLIM_CACHE_NONE};
    flim_dataset *data = NULL;
    int64_t n = 0;
    if (files->n > 0 && flim_dataset_open((const char *const *)files->item, files->n, &options, &data, NULL) == FLIM_OK) {
        n = flim_dataset_get_info(data)->n;
    }
    flim_dataset_close(data);
    return n;
}

int64_t flim_plan_most_cells(const flim_plan_session *s, const flim_settings *set)
{
    if (!set->pretrains || s->cells >= INT64_MAX / 4) {
        return s->cells;
    }
    return (s->cells + cells_of(s, &set->pretraining_data)) * (set->contrastive > 0 ? 2 : 1);
}

/* A stage that says nothing of its own of what a plan writes has the run's plan already. */
static bool has_plan_of(const flim_settings *run, const flim_settings *stage)
{
    return !stage->pretrains && stage->batch == run->batch && stage->accumulate == run->accumulate &&
           stage->eval_batch == run->eval_batch && stage->precision == run->precision &&
           stage->checkpoint_activations == run->checkpoint_activations && stage->preset == run->preset &&
           stage->width == run->width && stage->depth == run->depth;
}

/* The recommendation for a stage, as for the run. */
static flim_status plan_stage(const flim_plan_session *s, flim_plan_request *request, int64_t lr_batch, flim_plan *out,
                              bool *found, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_error why = {0};
    const int64_t kept = request->batch == 0 ? lr_batch * request->accumulate : 0;
    *found = false;
    flim_suggestions *all = flim_alloc(1, sizeof *all, err);
    FLIM_TRY(all ? FLIM_OK : FLIM_ERROR_MEMORY);
    status = flim_plan_settle_batch(s->device, &s->budget, s->cells, request, &why);
    if (status == FLIM_OK) {
        status = flim_plan_suggest(s->device, request, &s->budget, kept, s->cells, all, &why);
    }
    if (status == FLIM_OK) {
        *out = all->plan[all->recommended];
        *found = true;
    } else if (status == FLIM_ERROR_MEMORY || status == FLIM_ERROR_USAGE || status == FLIM_ERROR_DEVICE) {
        flim_log_line(s->o->log, FLIM_LOG_WARNING, "%s", why.text);
        status = FLIM_OK;
    } else {
        status = flim_fail(err, status, "%s", why.text);
    }
    flim_free(all);
    return status;
}

/* The cells per update of the stage as the config has it: what it takes from the run is the run's before its plan. */
static flim_status take_own_cells(const flim_plan_session *s, const char *words, int number, flim_plan_request *request,
                                  flim_error *err)
{
    flim_stage own = {0};
    FLIM_TRY(flim_stage_read(s->o->settings, words, number, &own, err));
    request->batch = own.settings.batch;
    request->accumulate = own.settings.accumulate;
    flim_stage_free(&own);
    return FLIM_OK;
}

static bool has_cells_of(const flim_settings *run, const flim_plan_request *stage)
{
    return stage->batch * stage->accumulate == run->batch * run->accumulate;
}

/* Fills *out and *found for stage number k (0-based); one that cannot run is told of and left as it is. */
static flim_status consider(const flim_plan_session *s, const flim_settings *run, int k, flim_network *net,
                            flim_planned_stage *out, bool *found, flim_error *err)
{
    const char *words = s->o->settings->stages.item[k];
    flim_stage stage = {0};
    flim_plan_request request = {0};
    flim_error why = {0};
    *found = false;
    flim_status status = flim_plan_read_stage(s, run, words, k + 1, &stage, net, &request, &why);
    if (status == FLIM_ERROR_USAGE) {
        flim_log_line(s->o->log, FLIM_LOG_WARNING, "%s", why.text);
        return FLIM_OK;
    }
    if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    if (stage.settings.pretrains && stage.settings.contrastive > 0) {
        flim_log_line(s->o->log, FLIM_LOG_NOTE,
                      "stage %s: its batch decides among how many cells the pairs are found; it is left as it is",
                      stage.name);
    } else {
        flim_plan_session own = *s;
        own.cells = flim_plan_most_cells(s, &stage.settings);
        status = take_own_cells(s, words, k + 1, &request, err);
        if (status == FLIM_OK && !(has_plan_of(run, &stage.settings) && has_cells_of(s->o->settings, &request))) {
            status = plan_stage(&own, &request, run->lr_batch, &out->plan, found, err);
        }
    }
    if (status != FLIM_OK || !*found) {
        flim_stage_free(&stage);
        return status;
    }
    out->item = k;
    out->words = words;
    snprintf(out->name, sizeof out->name, "%s", stage.name);
    out->settings = stage.settings; /* its strings with it */
    return FLIM_OK;
}

static void show_stage(const flim_plan_session *s, const flim_planned_stage *stage, flim_json *list)
{
    const flim_plan_request *r = &stage->plan.request;
    flim_json *row = flim_plan_json(&stage->plan, &s->budget);
    flim_log_line(s->o->log, FLIM_LOG_INFO,
                  "  stage %s: batch %" PRId64 " x %" PRId64 " accumulated, eval batch %" PRId64 ", %s, checkpointing %s",
                  stage->name, r->batch, r->accumulate, flim_plan_eval_batch(r), flim_precision_name(r->precision),
                  flim_recompute_name(stage->plan.recompute));
    flim_json_set_string(row, "stage", stage->name);
    flim_json_add(list, row);
}

flim_status flim_plan_apply_all(const flim_plan_session *s, const flim_plan *plan, flim_json *json, flim_error *err)
{
    const flim_gpu_plan_options *o = s->o;
    const int most = o->settings->stages.n;
    char backup[4096];
    int n = 0, changed = 0;
    flim_settings run;
    flim_status status = FLIM_OK;
    flim_planned_stage *stage = NULL; /* (most), n of them filled */
    flim_network *net = NULL;
    flim_json *list = flim_json_array();
    FLIM_TRY(flim_settings_init(&run, err));
    stage = flim_alloc((size_t)most, sizeof *stage, err);
    net = flim_alloc((size_t)most, sizeof *net, err); /* (most): plans point to them */
    FLIM_TRY_DONE(stage && net ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_settings_copy(o->settings, &run, err));
    FLIM_TRY_DONE(flim_plan_put_into(plan, &run, err));
    for (int k = 0; k < most; k++) {
        bool found;
        FLIM_TRY_DONE(consider(s, &run, k, &net[k], &stage[n], &found, err));
        n += found;
    }
    FLIM_TRY_DONE(flim_plan_apply(plan, stage, n, o->config, backup, &changed, err));
    flim_log_line(o->log, FLIM_LOG_INFO, "%s now has the recommended suggestion%s; as it was: %s", o->config,
                  changed ? ", and its stages have plans of their own" : "", backup);
    for (int i = 0; i < n && changed > 0; i++) {
        show_stage(s, &stage[i], list);
    }
    flim_json_set_string(json, "backup", backup);
done:
    flim_json_set(json, "applied_stages", list);
    for (int i = 0; i < n; i++) {
        flim_settings_free(&stage[i].settings);
    }
    flim_free(stage);
    flim_free(net);
    flim_settings_free(&run);
    return status;
}

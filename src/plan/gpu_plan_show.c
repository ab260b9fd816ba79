/* --show: what a config uses on a card, stage by stage, and what to change if that is too much or little. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/precision.h"
#include "config/stage_words.h"
#include "core/bytes.h"
#include "core/alloc.h"
#include "core/try.h"
#include "flim/stages.h"
#include "plan/gpu_plan_internal.h"

#define UNUSED 0.5 /* a stage that takes less of the card is named */

/* A stage that the config lists: a run of its own. */
typedef struct stage {
    char name[64];
    flim_network net;
    flim_plan_request request;
    int64_t cells; /* most of a batch */
} stage;

static flim_status plan_of(const flim_plan_session *s, const flim_plan_request *request, flim_plan *plan, bool *fits,
                           flim_error *err)
{
    flim_error why = {0};
    const flim_status status = flim_plan_make(s->device, request, &s->budget, plan, &why);
    *fits = status == FLIM_OK && flim_plan_fits(plan, &s->budget);
    /* USAGE: 2^31 elements; DEVICE: no right convolution: no plan, and no error of this program */
    return status == FLIM_OK || status == FLIM_ERROR_USAGE || status == FLIM_ERROR_DEVICE
               ? FLIM_OK
               : flim_fail(err, status, "%s", why.text);
}

/* Appends to a list of things to do. */
static void append(char text[400], const char *more)
{
    const size_t used = strlen(text);
    snprintf(text + used, 400 - used, "%s%.390s", used ? ", or " : "", more);
}

/* What makes training fit, each tried. */
static flim_status advise_training(const flim_plan_session *s, const flim_plan_request *r, char text[400], flim_error *err)
{
    char one[160];
    bool fits;
    flim_plan plan;
    flim_plan_request other = *r;
    if (r->recompute == FLIM_RECOMPUTE_NONE) {
        other.recompute = FLIM_RECOMPUTE_AUTO;
        FLIM_TRY(plan_of(s, &other, &plan, &fits, err));
        if (fits) {
            append(text, "checkpoint_activations: auto");
        }
        other.recompute = r->recompute;
    }
    const flim_precision half = flim_precision_in_16_bits(flim_device_get_info(s->device), r->precision);
    if (half != r->precision) {
        other.precision = half;
        FLIM_TRY(plan_of(s, &other, &plan, &fits, err));
        if (fits) {
            snprintf(one, sizeof one, "precision: %s", flim_precision_name(half));
            append(text, one);
        }
        other.precision = r->precision;
    }
    flim_error why = {0};
    const flim_status status = flim_plan_largest(s->device, r, &s->budget, s->cells, &plan, &why);
    if (status == FLIM_ERROR_MEMORY) {
        append(text, why.text);
        return FLIM_OK;
    }
    if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    const int64_t all = r->batch * r->accumulate, cells = all < s->cells ? all : s->cells;
    const int64_t batch = flim_plan_divisor(cells, plan.request.batch);
    snprintf(one, sizeof one, "batch: %" PRId64 " with accumulate: %" PRId64 " (%" PRId64 " is the largest that fits)", batch,
             cells / batch, plan.request.batch);
    append(text, one);
    return FLIM_OK;
}

/* The eval batch that fits, near the largest. */
static flim_status advise_prediction(const flim_plan_session *s, const flim_plan_request *r, char text[400], flim_error *err)
{
    flim_plan_request other = *r;
    flim_plan plan;
    bool fits = false;
    char one[160] = "a smaller preset";
    for (other.eval_batch = flim_plan_eval_batch(r); !fits && other.eval_batch > 1;) {
        other.eval_batch = other.eval_batch - (other.eval_batch + 7) / 8;
        FLIM_TRY(plan_of(s, &other, &plan, &fits, err));
    }
    if (fits) {
        snprintf(one, sizeof one, "eval_batch: %" PRId64, other.eval_batch);
    }
    append(text, one);
    return FLIM_OK;
}

/* Too much: what is to blame, training or prediction with its own batch, and what fits. */
static flim_status advise_over(const flim_plan_session *s, const flim_plan_request *r, char text[400], flim_error *err)
{
    flim_plan_request training = *r, prediction = *r;
    flim_plan plan;
    bool trains = true, predicts = true;
    training.eval_batch = -1;
    prediction.batch = 0;
    prediction.eval_batch = flim_plan_eval_batch(r);
    if (prediction.eval_batch > 0) {
        FLIM_TRY(plan_of(s, &prediction, &plan, &predicts, err));
    }
    if (r->batch > 0) {
        FLIM_TRY(plan_of(s, &training, &plan, &trains, err));
    }
    const bool separate = r->eval_batch > 0; /* else it follows the batch */
    if (r->batch > 0 && (!trains || !separate)) {
        FLIM_TRY(advise_training(s, separate ? &training : r, text, err));
    }
    if (separate && (!predicts || trains)) {
        char also[400] = "";
        FLIM_TRY(advise_prediction(s, &prediction, also, err));
        const size_t used = strlen(text);
        snprintf(text + used, 400 - used, "%s%s", used ? "; and for validation " : "", also);
    }
    return FLIM_OK;
}

static flim_status advise_under(const flim_plan_session *s, const flim_plan *p, char text[400], flim_error *err)
{
    flim_plan most;
    FLIM_TRY(flim_plan_largest(s->device, &p->request, &s->budget, s->cells, &most, err));
    if (most.request.batch > p->request.batch) {
        snprintf(text, 400,
                 "batches up to %" PRId64
                 " fit; a larger batch changes training (adapt lr: lr_scale); a larger preset also fills the card",
                 most.request.batch);
    }
    return FLIM_OK;
}

static void head(const flim_plan_session *s)
{
    flim_log_line(s->o->log, FLIM_LOG_INFO,
                  "  stage            preset  batch  eval accum  prec. ckpt.      GiB  share  verdict");
}

static void show_row(const flim_plan_session *s, const char *name, const flim_plan_request *r, const flim_plan *p)
{
    char figures[64] = "no plan", batch[24] = "-"; /* of prediction alone */
    if (r->batch > 0) {
        snprintf(batch, sizeof batch, "%" PRId64, r->batch);
    }
    if (p) {
        snprintf(figures, sizeof figures, "%7.2f  %3.0f %%  %s", flim_gib(p->device_bytes),
                 100 * (double)p->device_bytes / (double)s->budget.total, flim_plan_verdict(p, &s->budget));
    }
    flim_log_line(s->o->log, FLIM_LOG_INFO, "  %-16.16s %-6s %6s %5" PRId64 " %5" PRId64 "  %-5s %-6s %s", name,
                  r->net->preset, batch, flim_plan_eval_batch(r), r->accumulate, flim_precision_name(r->precision),
                  flim_recompute_name(p ? p->recompute : r->recompute), figures);
}

static void add_row(flim_json *rows, const char *name, flim_json *row, const char *advice)
{
    flim_json_set_string(row, "stage", name);
    flim_json_set_string(row, "advice", advice[0] ? advice : NULL);
    flim_json_add(rows, row);
}

/* A stage that the config describes wrongly: no other one is hidden by it. */
static void add_mistaken(const flim_plan_session *s, const char *name, const char *why, flim_json *rows)
{
    flim_json *row = flim_json_object();
    flim_log_line(s->o->log, FLIM_LOG_INFO, "  %-16.16s cannot run", name);
    flim_log_line(s->o->log, FLIM_LOG_WARNING, "%s", why);
    flim_json_set_bool(row, "fits", false);
    flim_json_set_string(row, "error", why);
    add_row(rows, name, row, "");
}

/* A stage without a plan: 2^31 elements, or not even one cell fits. */
static void add_unplanned(const flim_plan_session *s, const char *name, const flim_plan_request *r, const char *why,
                          const char *advice, flim_json *rows)
{
    flim_json *row = flim_json_object();
    show_row(s, name, r, NULL);
    flim_log_line(s->o->log, FLIM_LOG_WARNING, "%s is over-committed: %s%s%s", name, why, advice[0] ? "; what fits: " : "",
                  advice);
    flim_json_set_bool(row, "fits", false);
    flim_json_set_string(row, "error", why);
    add_row(rows, name, row, advice);
}

/* One stage: its row, and advice.  is_auto: its batch is to be found. */
static flim_status show_stage(const flim_plan_session *s, const char *name, const flim_plan_request *request, bool is_auto,
                              flim_json *rows, flim_error *err)
{
    flim_plan_request r = *request;
    flim_plan plan;
    flim_error why = {0};
    char advice[400] = "";
    flim_status status = is_auto ? flim_plan_settle_batch(s->device, &s->budget, s->cells, &r, &why) : FLIM_OK;
    if (status == FLIM_ERROR_MEMORY) {
        add_unplanned(s, name, &r, why.text, "", rows);
        return FLIM_OK;
    }
    if (status == FLIM_OK) {
        r.batch -= is_auto ? r.batch % flim_network_views(r.net) : 0; /* pairs stay whole */
        status = flim_plan_make(s->device, &r, &s->budget, &plan, &why);
    }
    const bool planned = status == FLIM_OK;
    if (status != FLIM_OK && status != FLIM_ERROR_USAGE && status != FLIM_ERROR_DEVICE) {
        return flim_fail(err, status, "%s", why.text);
    }
    if (!planned || !flim_plan_fits(&plan, &s->budget)) {
        FLIM_TRY(advise_over(s, &r, advice, err));
    } else if (r.batch > 0 && (double)plan.device_bytes < UNUSED * (double)s->budget.total) {
        FLIM_TRY(advise_under(s, &plan, advice, err));
    }
    if (!planned) {
        add_unplanned(s, name, &r, why.text, advice, rows);
        return FLIM_OK;
    }
    show_row(s, name, &r, &plan);
    if (!flim_plan_fits(&plan, &s->budget)) {
        flim_log_line(s->o->log, FLIM_LOG_WARNING,
                      "%s is over-committed: %.2f GiB are planned, %.2f GiB may be filled; what fits: %s", name,
                      flim_gib(plan.program_bytes), flim_gib(s->budget.bytes), advice);
    } else if (advice[0]) {
        flim_log_line(s->o->log, FLIM_LOG_INFO, "  %s leaves %.0f %% of the card unused: %s", name,
                      100 - 100 * (double)plan.device_bytes / (double)s->budget.total, advice);
    }
    add_row(rows, name, flim_plan_json(&plan, &s->budget), advice);
    return FLIM_OK;
}

/* ---- stages that the config lists ---- */

static flim_status read_stage(const flim_plan_session *s, const char *text, int number, stage *out, flim_error *err)
{
    flim_stage listed;
    const flim_status status = flim_plan_read_stage(s, s->o->settings, text, number, &listed, &out->net, &out->request, err);
    snprintf(out->name, sizeof out->name, "%s", listed.name);
    if (status == FLIM_OK) {
        out->cells = flim_plan_most_cells(s, &listed.settings);
        flim_stage_free(&listed);
    }
    return status;
}

/* only_pretraining: of them the one of that kind. */
static flim_status show_listed(const flim_plan_session *s, bool only_pretraining, flim_json *rows, flim_error *err)
{
    const flim_string_list *stages = &s->o->settings->stages;
    flim_error first = {0}; /* the first mistake, which is the call's error once every stage has been shown */
    flim_status status = FLIM_OK;
    stage *one = flim_alloc(1, sizeof *one, err);
    FLIM_TRY_DONE(one ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < stages->n; k++) {
        flim_error why = {0};
        if (only_pretraining && k != flim_stages_pretraining(stages)) {
            continue;
        }
        status = read_stage(s, stages->item[k], k + 1, one, &why);
        if (status == FLIM_ERROR_USAGE) {
            add_mistaken(s, one->name, why.text, rows);
            first = first.status == FLIM_OK ? why : first;
            continue;
        }
        FLIM_TRY_DONE(status == FLIM_OK ? FLIM_OK : flim_fail(err, status, "%s", why.text));
        flim_plan_session own = *s;
        own.cells = one->cells;
        FLIM_TRY_DONE(show_stage(&own, one->name, &one->request, one->request.batch == 0, rows, err));
    }
    status = first.status == FLIM_OK ? FLIM_OK : flim_fail(err, first.status, "%s", first.text);
done:
    flim_free(one);
    return status;
}

/* The pretraining of each fold, where it is none of the stages that are listed. */
static flim_status show_pretraining(const flim_plan_session *s, flim_json *rows, flim_error *err)
{
    flim_settings set;
    flim_plan_request request;
    flim_plan_session own = *s;
    flim_status status = FLIM_OK;
    if (!s->o->settings->pretrain_per_fold) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_settings_of_pretraining(s->o->settings, &set, err));
    flim_network *net = flim_alloc(1, sizeof *net, err);
    FLIM_TRY_DONE(net ? FLIM_OK : FLIM_ERROR_MEMORY);
    own.cells = flim_plan_most_cells(s, &set);
    FLIM_TRY_DONE(flim_plan_request_stage(s, &set, net, &request, err));
    status = show_stage(&own, "pretraining", &request, request.batch == 0, rows, err);
done:
    flim_free(net);
    flim_settings_free(&set);
    return status;
}

flim_status flim_plan_tell_pretraining(const flim_plan_session *s, flim_json *json, flim_error *err)
{
    flim_status status = FLIM_OK;
    if (!flim_settings_per_fold(s->o->settings)) {
        return FLIM_OK;
    }
    flim_json *rows = flim_json_array();
    flim_log_line(s->o->log, FLIM_LOG_INFO, "Beside the training, whose memory it has before each fold:");
    head(s);
    status = s->o->settings->pretrain_per_fold ? show_pretraining(s, rows, err) : show_listed(s, true, rows, err);
    flim_json_set(json, "pretraining", rows);
    return status;
}

flim_status flim_plan_show(const flim_plan_session *s, flim_json *json, flim_error *err)
{
    flim_json *rows = flim_json_array();
    flim_plan_request train = s->request;
    flim_log_line(s->o->log, FLIM_LOG_INFO, "%s on this card:", s->o->config);
    head(s);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(show_pretraining(s, rows, err));
    FLIM_TRY_DONE(show_stage(s, "train", &train, train.batch == 0, rows, err));
    const bool settled = flim_plan_settle_batch(s->device, &s->budget, s->cells, &train, NULL) == FLIM_OK;
    flim_plan_request alone = train; /* what prediction alone takes; in a run it shares training's memory */
    alone.batch = 0;
    alone.eval_batch = settled ? flim_plan_eval_batch(&train) : 1;
    alone.recompute = FLIM_RECOMPUTE_NONE;
    FLIM_TRY_DONE(show_stage(s, "validate (alone)", &alone, false, rows, err));
    FLIM_TRY_DONE(show_stage(s, "predict", &alone, false, rows, err));
    status = show_listed(s, false, rows, err);
done:
    flim_json_set(json, "stages", rows);
    return status;
}

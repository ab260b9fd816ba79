/* Suggestions: complete choices of batch, accumulation, precision and recomputation that a card can run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "flim/plan.h"

typedef struct chooser {
    flim_device *device;
    const flim_plan_request *request;
    const flim_plan_room *room;
    int64_t effective, cap;
    flim_suggestions *out;
} chooser;

static int64_t effective_of(const flim_plan *plan)
{
    return plan->request.batch * plan->request.accumulate;
}

static bool is_listed(const flim_suggestions *s, const flim_plan *plan)
{
    for (int i = 0; i < s->n; i++) {
        const flim_plan_request *a = &s->plan[i].request, *b = &plan->request;
        if (a->batch == b->batch && a->accumulate == b->accumulate && a->precision == b->precision &&
            s->plan[i].recompute == plan->recompute) {
            return true;
        }
    }
    return false;
}

/* Keeps the list sorted by what is taken of the card. */
static void list(flim_suggestions *s, const flim_plan *plan)
{
    if (s->n == FLIM_MAX_SUGGESTIONS || is_listed(s, plan)) {
        return;
    }
    int at = s->n++;
    for (; at > 0 && s->plan[at - 1].device_bytes > plan->device_bytes; at--) {
        s->plan[at] = s->plan[at - 1];
    }
    s->plan[at] = *plan;
}

/* The largest divisor of `whole` that is at most `most`: batch x accumulate then is `whole` exactly. */
static int64_t divisor(int64_t whole, int64_t most)
{
    int64_t best = 1;
    for (int64_t d = 1; d <= most && d <= whole; d++) {
        best = whole % d == 0 ? d : best;
    }
    return best;
}

/* One choice of precision and recomputation: with the effective batch kept and, where `larger`, with all that fits. */
static flim_status choose(const chooser *c, flim_precision precision, flim_recompute recompute, bool larger, flim_error *err)
{
    flim_plan_request r = *c->request;
    flim_plan most, kept;
    r.precision = precision;
    r.recompute = recompute;
    flim_error why = {0};
    flim_status status = flim_plan_largest(c->device, &r, c->room, c->cap, &most, &why);
    if (status == FLIM_ERROR_MEMORY) {
        return FLIM_OK; /* not even one cell: no suggestion */
    }
    if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    r.batch = divisor(c->effective, most.request.batch);
    r.accumulate = c->effective / r.batch;
    r.eval_batch = r.eval_batch > r.batch ? 0 : r.eval_batch;
    status = flim_plan_make(c->device, &r, c->room, &kept, err);
    if (status != FLIM_OK) {
        return status;
    }
    if (kept.program_bytes <= c->room->budget) {
        list(c->out, &kept);
    }
    if (larger && most.request.batch > r.batch) {
        most.request.accumulate = 1;
        list(c->out, &most);
    }
    return FLIM_OK;
}

/* First the effective batch as it is, then without recomputation, then the fewest micro-batches; the precision as set. */
static void recommend(const chooser *c)
{
    flim_suggestions *s = c->out;
    int best = -1;
    for (int i = 0; i < s->n; i++) {
        const flim_plan *a = &s->plan[i], *b = best >= 0 ? &s->plan[best] : NULL;
        if (a->request.precision != c->request->precision || effective_of(a) != c->effective) {
            continue;
        }
        const bool plain = a->recompute == FLIM_RECOMPUTE_NONE, plain_best = b && b->recompute == FLIM_RECOMPUTE_NONE;
        /* Recomputing costs less time than micro-batches too small to fill the card. */
        const bool small = b && b->request.batch < 16 && a->request.batch >= 2 * b->request.batch;
        if (!b || small || (plain && !plain_best && a->request.batch * 2 > b->request.batch) ||
            (plain == plain_best && a->request.accumulate < b->request.accumulate)) {
            best = i;
        }
    }
    s->recommended = best >= 0 ? best : 0;
    const flim_plan *p = &s->plan[s->recommended];
    snprintf(s->why, sizeof s->why, "%" PRId64 " cells an update%s, in %s%s%s", effective_of(p),
             best >= 0 ? " as set, so that results stay comparable" : "", flim_precision_name(p->request.precision),
             p->recompute == FLIM_RECOMPUTE_NONE ? ", nothing is computed twice"
                                                 : ", the backward pass recomputes to make room",
             p->request.accumulate > 1 ? ", in micro-batches (BatchNorm sees these)" : "");
}

flim_status flim_plan_suggest(flim_device *device, const flim_plan_request *request, const flim_plan_room *room,
                              int64_t effective, int64_t cap, flim_suggestions *out, flim_error *err)
{
    *out = (flim_suggestions){0};
    const flim_device_info *info = flim_device_get_info(device);
    chooser c = {.device = device,
                 .request = request,
                 .room = room,
                 .effective = effective > 0 ? effective : request->batch * request->accumulate,
                 .cap = cap,
                 .out = out};
    flim_error why = {0};
    flim_status status = flim_plan_make(device, request, room, &out->current, &why);
    if (status == FLIM_ERROR_USAGE) { /* 2^31 elements: the settings have no plan, smaller ones do */
        snprintf(out->current_error, sizeof out->current_error, "%.500s", why.text);
    } else if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    out->current_fits = status == FLIM_OK && out->current.program_bytes <= room->budget;
    status = choose(&c, request->precision, FLIM_RECOMPUTE_NONE, true, err);
    if (status == FLIM_OK) {
        status = choose(&c, request->precision, FLIM_RECOMPUTE_ALL, true, err);
    }
    const flim_precision half = info->precisions & 1u << FLIM_PRECISION_BF16 ? FLIM_PRECISION_BF16 : FLIM_PRECISION_FP16;
    if (status == FLIM_OK && half != request->precision && info->precisions & 1u << half) {
        status = choose(&c, half, FLIM_RECOMPUTE_NONE, true, err);
    }
    if (status == FLIM_OK && out->n == 0) {
        return flim_fail(
            err, FLIM_ERROR_MEMORY,
            "%s: not even one cell fits into %.2f GiB (%.0f %% of the card less %.2f GiB held); take a smaller preset",
            info->name, (double)room->budget / 0x1p30, 100 * room->margin, (double)room->held / 0x1p30);
    }
    if (status == FLIM_OK) {
        recommend(&c);
    }
    return status;
}

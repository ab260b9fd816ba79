/* Suggestions: complete choices of batch, accumulation, precision and recomputation that a card can run.
 *
 * First comes what keeps the cells per update, and with them the results: as set, in smaller micro-batches, recomputed or in
 * 16 bits if that gains something.  Then the largest batches, which learn differently.  What takes about as much memory as
 * another choice and allows no larger batch is no choice, and is left out.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/precision.h"
#include "core/try.h"
#include "core/text.h"
#include "plan/gpu_plan_internal.h"

#define GAIN 0.9 /* of the bytes: what saves less than a tenth is not worth its price */
enum { SMALL = 16 }; /* cells below which micro-batches do not fill a card, and BatchNorm's statistics are rough */

typedef struct chooser {
    flim_device *device;
    const flim_plan_request *request;
    const flim_plan_budget *budget;
    int64_t effective, cap; /* cells per update to keep; of the training set */
    bool asked; /* exactly so many cells per update were asked for */
    flim_suggestions *out;
} chooser;

/* What one choice of precision and recomputation can do. */
typedef struct choice {
    bool most_fits, kept_fits;
    flim_plan most; /* the largest batch */
    flim_plan kept; /* the cells per update kept, in as few micro-batches as fit */
} choice;

static int64_t effective_of(const flim_plan *plan)
{
    return plan->request.batch * plan->request.accumulate;
}

int64_t flim_plan_divisor(int64_t whole, int64_t most)
{
    for (int64_t d = most < whole ? most : whole; d > 1; d--) {
        if (whole % d == 0) {
            return d;
        }
    }
    return 1;
}

/* The plan of `effective` cells per update in as few micro-batches as fit, of at most `most` cells each. */
static flim_status keep(const chooser *c, const flim_plan_request *like, int64_t effective, int64_t most, flim_plan *out,
                        bool *fits, flim_error *err)
{
    flim_plan_request r = *like;
    *fits = false;
    for (r.batch = flim_plan_divisor(effective, most);; r.batch = flim_plan_divisor(effective, r.batch - 1)) {
        flim_error why = {0};
        r.accumulate = effective / r.batch;
        const flim_status status = flim_plan_make(c->device, &r, c->budget, out, &why);
        *fits = status == FLIM_OK && flim_plan_fits(out, c->budget);
        if (status != FLIM_OK && status != FLIM_ERROR_DEVICE) { /* DEVICE: no right convolution for so many cells */
            return flim_fail(err, status, "%s", why.text);
        }
        if (*fits || r.batch == 1) {
            return FLIM_OK;
        }
    }
}

static flim_status choose(const chooser *c, flim_precision precision, flim_recompute recompute, choice *out, flim_error *err)
{
    flim_plan_request r = *c->request;
    flim_error why = {0};
    *out = (choice){0};
    r.precision = precision;
    r.recompute = recompute;
    flim_status status = flim_plan_largest(c->device, &r, c->budget, c->cap, &out->most, &why);
    if (status == FLIM_ERROR_MEMORY) {
        return FLIM_OK; /* not even one cell: no choice */
    }
    if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    out->most_fits = true;
    r.eval_batch = out->most.request.eval_batch;
    out->most.request.accumulate = 1;
    return keep(c, &r, c->effective, out->most.request.batch, &out->kept, &out->kept_fits, err);
}

/* Whether a choice is worth naming beside another: a larger batch, or clearly less memory. */
static bool gains(const flim_plan *plan, const flim_plan *other)
{
    return plan->request.batch > other->request.batch || (double)plan->device_bytes < GAIN * (double)other->device_bytes;
}

/* Keeps the list sorted by what is taken of the card. */
static void list(flim_suggestions *s, const flim_plan *plan, const char *note)
{
    if (s->n == FLIM_MAX_SUGGESTIONS) {
        return;
    }
    int at = s->n++;
    for (; at > 0 && s->plan[at - 1].device_bytes > plan->device_bytes; at--) {
        s->plan[at] = s->plan[at - 1];
        s->note[at] = s->note[at - 1];
    }
    s->plan[at] = *plan;
    s->note[at] = note;
}

/* So many cells per update that only tiny batches divide them: one that is near has larger ones. */
static bool is_poor(const choice *a, int64_t effective)
{
    return a->kept_fits && a->kept.request.batch < SMALL && a->kept.request.batch < effective &&
           4 * a->kept.request.batch < a->most.request.batch;
}

static flim_status choose_near(const chooser *c, const choice *like, flim_plan *out, bool *fits, flim_error *err)
{
    const int64_t most = like->most.request.batch, batches = (c->effective + most - 1) / most;
    const int64_t batch = (c->effective + batches / 2) / batches;
    return keep(c, &like->kept.request, (batch < most ? batch : most) * batches, most, out, fits, err);
}

/* Recomputing costs less time than micro-batches too small to fill the card, and more than any others. */
static bool recomputing_pays(const choice *plain, const choice *recomputed)
{
    return !plain->kept_fits || (recomputed->kept_fits && plain->kept.request.batch < SMALL &&
                                 recomputed->kept.request.batch >= 2 * plain->kept.request.batch);
}

static bool is_same(const flim_plan *a, const flim_plan *b)
{
    return a->request.batch == b->request.batch && a->request.accumulate == b->request.accumulate &&
           a->request.precision == b->request.precision && a->recompute == b->recompute;
}

static void explain(const chooser *c, const flim_plan *best, const flim_plan *near)
{
    flim_suggestions *s = c->out;
    const int64_t cells = effective_of(best);
    char kept[160], hint[128] = "";
    for (int i = 0; i < s->n; i++) {
        s->recommended = is_same(&s->plan[i], best) ? i : s->recommended;
    }
    if (cells == c->effective) {
        snprintf(kept, sizeof kept, "keeps %" PRId64 " cell%s per update%s, so that results stay comparable", cells,
                 flim_s(cells), cells == c->cap ? " (all of a training set)" : "");
    } else {
        snprintf(kept, sizeof kept,
                 "%" PRId64 " cells per step (effective batch) instead of %" PRId64 ", which only tiny batches divide", cells,
                 c->effective);
    }
    if (near && near != best) {
        snprintf(hint, sizeof hint,
                 "; only tiny batches divide %" PRId64 ": %" PRId64 " x %" PRId64 " = %" PRId64 " would be much faster",
                 c->effective, near->request.batch, near->request.accumulate, effective_of(near));
    }
    snprintf(s->why, sizeof s->why, "%s; %s%s; %s%s%s", kept, flim_precision_name(best->request.precision),
             best->request.precision == c->request->precision ? "" : ", as nothing else fits",
             best->recompute == FLIM_RECOMPUTE_NONE ? "nothing is recomputed" : "the backward pass recomputes to make room",
             best->request.accumulate > 1 ? "; in micro-batches (BatchNorm sees these)" : "", hint);
}

/* The choices of precision and recomputation. */
typedef struct choices {
    choice plain, recomputed, narrow; /* as set; recomputed; in 16 bits */
} choices;

static flim_status choose_all(const chooser *c, choices *out, flim_error *err)
{
    const flim_precision set = c->request->precision;
    const flim_precision half = flim_precision_in_16_bits(flim_device_get_info(c->device), set);
    bool narrower = half != set;
    *out = (choices){0};
    FLIM_TRY(choose(c, set, FLIM_RECOMPUTE_NONE, &out->plain, err));
    FLIM_TRY(choose(c, set, FLIM_RECOMPUTE_ALL, &out->recomputed, err));
    if (narrower && out->plain.most_fits) { /* tf32 keeps activations in 16 bits already */
        flim_plan_request r = out->plain.most.request;
        flim_plan same;
        flim_error why = {0};
        r.precision = half;
        narrower = flim_plan_make(c->device, &r, c->budget, &same, &why) != FLIM_OK || gains(&same, &out->plain.most);
    }
    if (!narrower) {
        return FLIM_OK;
    }
    FLIM_TRY(choose(c, half, FLIM_RECOMPUTE_NONE, &out->narrow, err));
    if (out->plain.kept_fits || out->recomputed.kept_fits || out->narrow.kept_fits) {
        return FLIM_OK;
    }
    return choose(c, half, FLIM_RECOMPUTE_ALL, &out->narrow, err);
}

static flim_status fill(chooser *c, flim_error *err)
{
    flim_suggestions *s = c->out;
    choices all;
    flim_plan near, less, *best;
    bool near_fits = false, less_fits = false;
    FLIM_TRY(choose_all(c, &all, err));
    const choice *plain = &all.plain, *recomputed = &all.recomputed, *narrow = &all.narrow;
    const bool recomputes = recomputed->kept_fits && recomputing_pays(plain, recomputed);
    const choice *lead = recomputes ? recomputed : plain->kept_fits ? plain : narrow;
    if (!lead->kept_fits) {
        return FLIM_OK;
    }
    flim_plan first = lead->kept;
    if (lead->kept.request.recompute != FLIM_RECOMPUTE_NONE) { /* no more than it takes */
        flim_plan_request r = lead->kept.request;
        r.recompute = FLIM_RECOMPUTE_AUTO;
        FLIM_TRY(flim_plan_make(c->device, &r, c->budget, &first, err));
    }
    const bool poor = is_poor(lead, c->effective); /* then variants of it are no help */
    if (poor) {
        FLIM_TRY(choose_near(c, lead, &near, &near_fits, err));
    }
    if (flim_plan_divisor(c->effective, first.request.batch / 2) >= SMALL / 2) {
        FLIM_TRY(keep(c, &lead->kept.request, c->effective, first.request.batch / 2, &less, &less_fits, err));
    }
    best = near_fits && !c->asked ? &near : &first;
    list(s, &first, lead == narrow ? "keeps the effective batch in 16 bits" : "keeps the effective batch");
    if (near_fits) {
        list(s, &near, "about the same effective batch");
    }
    if (lead != plain && plain->kept_fits && !is_poor(plain, c->effective)) {
        list(s, &plain->kept, "the same, nothing recomputed");
    }
    if (lead != recomputed && recomputed->kept_fits && !poor && gains(&recomputed->kept, &first)) {
        list(s, &recomputed->kept, "the same, recomputed");
    }
    if (lead != narrow && narrow->kept_fits && !poor && gains(&narrow->kept, &first)) {
        list(s, &narrow->kept, "the same in 16 bits");
    }
    const flim_plan *largest = &first;
    if (plain->most_fits && plain->most.request.batch > largest->request.batch) {
        list(s, &plain->most, "largest batch (changes training; adapt lr)");
        largest = &plain->most;
    }
    if (recomputed->most_fits && recomputed->most.request.batch > largest->request.batch) {
        list(s, &recomputed->most, "largest batch, recomputed");
        largest = &recomputed->most;
    }
    if (narrow->most_fits && narrow->most.request.batch > largest->request.batch) {
        list(s, &narrow->most, "largest batch in 16 bits");
    }
    if (less_fits && gains(&less, &first)) {
        list(s, &less, "the same in smaller batches");
    }
    explain(c, best, near_fits ? &near : NULL);
    return FLIM_OK;
}

flim_status flim_plan_suggest(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                              int64_t effective, int64_t cap, flim_suggestions *out, flim_error *err)
{
    *out = (flim_suggestions){0};
    /* An update never has more cells than the training set. */
    const int64_t whole = effective > 0 ? effective : request->batch * request->accumulate;
    chooser c = {.device = device,
                 .request = request,
                 .budget = budget,
                 .effective = whole < cap ? whole : cap,
                 .asked = effective > 0,
                 .cap = cap,
                 .out = out};
    flim_error why = {0};
    flim_status status = flim_plan_make(device, request, budget, &out->current, &why);
    if (status == FLIM_ERROR_USAGE ||
        status == FLIM_ERROR_DEVICE) { /* too many cells for any memory; smaller plans there are */
        snprintf(out->current_error, sizeof out->current_error, "%.500s", why.text);
    } else if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    out->current_fits = status == FLIM_OK && flim_plan_fits(&out->current, budget);
    FLIM_TRY(fill(&c, err));
    if (out->n > 0) {
        return FLIM_OK;
    }
    flim_plan_request r = *request; /* why not: what one cell needs at the least */
    flim_plan most;
    r.precision = flim_precision_in_16_bits(flim_device_get_info(device), r.precision);
    r.recompute = FLIM_RECOMPUTE_ALL;
    FLIM_TRY(flim_plan_largest(device, &r, budget, cap, &most, err));
    return flim_fail(err, FLIM_ERROR, "internal: a batch fits and is not suggested");
}

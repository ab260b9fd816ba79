/* The search for the batch that fits. */
#include <inttypes.h>

#include "backend/precision.h"
#include "core/bytes.h"
#include "core/try.h"
#include "plan/plan.h"

enum { FINE = 32, STEP = 8 }; /* batches above FINE are multiples of STEP */

/* Bytes of the program that grow with the batch alone: all but the workspace, which jumps from plan to plan. */
static int64_t steady_bytes(const flim_plan *plan)
{
    int64_t bytes = plan->bounded_bytes;
    for (int i = 0; i < plan->memory.n; i++) {
        if (plan->memory.item[i].kind == FLIM_MEMORY_WORKSPACE) {
            bytes -= plan->memory.item[i].bytes;
        }
    }
    return bytes;
}

static flim_status plan_batch(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                              int64_t batch, flim_plan *out, flim_error *err)
{
    flim_plan_request r = *request;
    r.batch = batch;
    return flim_plan_make(device, &r, budget, out, err);
}

static int64_t round_down(int64_t batch)
{
    return batch > FINE ? batch / STEP * STEP : batch;
}

static int64_t next_lower(int64_t batch)
{
    return round_down(batch) < batch ? round_down(batch) : batch > FINE ? batch - STEP : batch - 1;
}

static int64_t next_higher(int64_t batch)
{
    return batch < FINE ? batch + 1 : (batch / STEP + 1) * STEP;
}

/* The plan of one cell per step.  An eval batch that does not fit beside that, or that the device cannot compute, is dropped:
 * then prediction takes the training batch. */
static flim_status plan_one(flim_device *device, flim_plan_request *request, const flim_plan_budget *budget, flim_plan *out,
                            flim_error *err)
{
    flim_error why = {0};
    flim_status status = plan_batch(device, request, budget, 1, out, &why);
    const bool refused = status == FLIM_ERROR_DEVICE || status == FLIM_ERROR_USAGE; /* USAGE: 2^31 elements */
    if (request->eval_batch > 1 && (refused || (status == FLIM_OK && !flim_plan_fits(out, budget)))) {
        request->eval_batch = 0;
        why = (flim_error){0};
        status = plan_batch(device, request, budget, 1, out, &why);
    }
    return status == FLIM_OK ? FLIM_OK : flim_fail(err, status, "%s", why.text);
}

static flim_status too_little(const flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                              const flim_plan *one, flim_error *err)
{
    const flim_device_info *info = flim_device_get_info(device);
    if (budget->bytes <= 0) {
        return flim_fail(err, FLIM_ERROR_MEMORY,
                         "%s: %.2f GiB of %.2f GiB are already used, and plans may use %.0f %% including that: nothing is "
                         "left; end other programs or raise --margin",
                         info->name, flim_gib(budget->held), flim_gib(budget->total), 100 * budget->margin);
    }
    const flim_precision half = flim_precision_in_16_bits(info, request->precision);
    const bool narrower = half != request->precision;
    return flim_fail(
        err, FLIM_ERROR_MEMORY,
        "%s: one cell needs %.2f GiB; %.0f %% of the card less what is in use leave %.2f GiB; less is needed by a "
        "smaller preset%s%s%s",
        info->name, flim_gib(one->bounded_bytes), 100 * budget->margin, flim_gib(budget->bytes),
        narrower ? ", --precision " : "", narrower ? flim_precision_name(half) : "",
        request->recompute == FLIM_RECOMPUTE_NONE ? ", --checkpoint-activations all" : "");
}

/* plan_batch of *batch cells, or of the most below it (to STEP) that the device has a right way to compute: cuDNN refuses
 * some convolutions near 2^31 elements, and of some its results there are wrong. */
static flim_status plan_at_most(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                                int64_t *batch, flim_plan *out, flim_error *err)
{
    flim_plan more;
    flim_error why = {0};
    int64_t bad = *batch;
    flim_status status = plan_batch(device, request, budget, *batch, out, &why);
    if (status == FLIM_OK) {
        return status;
    }
    while (status == FLIM_ERROR_DEVICE && *batch > 1) {
        bad = *batch;
        *batch = round_down(*batch * 3 / 4);
        status = plan_batch(device, request, budget, *batch, out, &why);
    }
    while (status == FLIM_OK && bad - *batch > STEP) {
        const int64_t middle = round_down((*batch + bad) / 2);
        status = middle > *batch ? plan_batch(device, request, budget, middle, &more, &why) : FLIM_ERROR_DEVICE;
        if (status == FLIM_OK) {
            *batch = middle;
            *out = more;
        } else if (status == FLIM_ERROR_DEVICE) {
            bad = middle > *batch ? middle : *batch;
            status = FLIM_OK;
        }
    }
    return status == FLIM_OK ? FLIM_OK : flim_fail(err, status, "%s", why.text);
}

/* A batch with what its plan takes without the workspace. */
typedef struct steady {
    int64_t batch, bytes;
} steady;

/* What does not jump grows with the batch: *low (it fits) becomes the most below `high` (it does not) that fits.  By where a
 * straight line between the two meets the budget, every other time by their middle. */
static flim_status close_in(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                            steady *low, steady high, flim_error *err)
{
    for (int i = 0;; i++) {
        const double line = (double)(budget->bytes - low->bytes) / (double)(high.bytes - low->bytes);
        const double share = i % 2 == 0 && high.bytes > budget->bytes ? line : 0.5;
        const int64_t guess = round_down(low->batch + (int64_t)(share * (double)(high.batch - low->batch)));
        const int64_t next = guess > low->batch ? guess : next_higher(low->batch);
        flim_plan plan;
        flim_error why = {0};
        if (next >= high.batch) {
            return FLIM_OK;
        }
        const flim_status status = plan_batch(device, request, budget, next, &plan, &why);
        if (status != FLIM_OK && status != FLIM_ERROR_DEVICE) {
            return flim_fail(err, status, "%s", why.text);
        }
        const steady at = {next, status == FLIM_OK ? steady_bytes(&plan) : 0};
        if (status == FLIM_OK && at.bytes <= budget->bytes) {
            *low = at;
        } else {
            high = at;
        }
    }
}

/* Doubles and redoubles the batch from *low, which fits, up to one that does not, and closes in on the most that fits without
 * its workspace, at most *cap.  *cap becomes the most that the device can compute if that is less; *whole the largest plan
 * seen on the way that fits with its workspace. */
static flim_status most_steady(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                               int64_t *cap, steady *low, flim_plan *whole, flim_error *err)
{
    int64_t batch = 2 * FINE;
    while (low->batch < *cap) {
        flim_plan plan;
        const int64_t wanted = batch < *cap ? batch : *cap;
        batch = wanted;
        FLIM_TRY(plan_at_most(device, request, budget, &batch, &plan, err));
        *cap = batch < wanted ? batch : *cap;
        const steady at = {batch, steady_bytes(&plan)};
        if (at.bytes > budget->bytes) {
            return close_in(device, request, budget, low, at, err);
        }
        *low = at;
        if (flim_plan_fits(&plan, budget)) {
            *whole = plan;
        }
        batch *= 4;
    }
    return FLIM_OK;
}

/* A plan whose refusal by the device (DEVICE) is no error but one that does not fit. */
static flim_status try_batch(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                             int64_t batch, flim_plan *plan, bool *fits, flim_error *err)
{
    flim_error why = {0};
    const flim_status status = plan_batch(device, request, budget, batch, plan, &why);
    *fits = status == FLIM_OK && flim_plan_fits(plan, budget);
    return status == FLIM_OK || status == FLIM_ERROR_DEVICE ? FLIM_OK : flim_fail(err, status, "%s", why.text);
}

/* The first batch from `from` down to above *out's whose whole plan fits, workspace included; *out stays if there is none.
 * Each is tried at first, as workspace jumps; if it does not after that many, it grows with the batch: larger and larger
 * steps down to one that fits, and halving back up. */
static flim_status first_below(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                               int64_t from, flim_plan *out, flim_error *err)
{
    enum { ONE_BY_ONE = 8 };
    const int64_t least = out->request.batch;
    int64_t batch = from, above = from; /* above: the lowest that did not fit */
    bool fits = false;
    flim_plan plan;
    for (int tried = 0; batch > least && !fits; tried++) {
        FLIM_TRY(try_batch(device, request, budget, batch, &plan, &fits, err));
        if (fits) {
            *out = plan;
        } else {
            const int64_t steps = tried < ONE_BY_ONE ? 1 : (int64_t)1 << (tried - ONE_BY_ONE < 40 ? tried - ONE_BY_ONE : 40);
            above = batch;
            batch = steps == 1 ? next_lower(batch) : batch > steps * STEP ? round_down(batch - steps * STEP) : 1;
        }
    }
    for (int64_t low = out->request.batch;;) {
        const int64_t half = round_down((low + above) / 2), middle = half > low ? half : next_higher(low);
        if (middle >= above) {
            return FLIM_OK;
        }
        FLIM_TRY(try_batch(device, request, budget, middle, &plan, &fits, err));
        if (fits) {
            *out = plan;
            low = middle;
        } else {
            above = middle;
        }
    }
}

/* No tensor of a batch has 2^31 elements. */
static flim_status cap_elements(const flim_device *device, const flim_plan_request *request, int64_t *cap, flim_error *err)
{
    int64_t largest;
    FLIM_TRY(flim_device_largest_tensor(device, request->net, request->precision, &largest, err));
    const int64_t most = (((int64_t)1 << 31) - 1) / largest;
    *cap = *cap < most ? *cap : round_down(most);
    return FLIM_OK;
}

flim_status flim_plan_largest(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                              int64_t cap, flim_plan *out, flim_error *err)
{
    flim_plan_request r = *request;
    r.recompute = r.recompute == FLIM_RECOMPUTE_NONE ? FLIM_RECOMPUTE_NONE : FLIM_RECOMPUTE_ALL;
    FLIM_TRY(plan_one(device, &r, budget, out, err));
    FLIM_TRY(cap_elements(device, request, &cap, err)); /* after it: a card shows with one cell which of its kernels fail */
    if (!flim_plan_fits(out, budget)) {
        return too_little(device, &r, budget, out, err);
    }
    steady most = {1, steady_bytes(out)};
    FLIM_TRY(most_steady(device, &r, budget, &cap, &most, out, err));
    /* A little above it: what does not jump is not quite a straight line. */
    const int64_t above = next_higher(next_higher(most.batch));
    FLIM_TRY(first_below(device, &r, budget, above < cap ? above : cap, out, err));
    if (request->recompute == r.recompute) {
        return FLIM_OK;
    }
    r.recompute = request->recompute;
    return plan_batch(device, &r, budget, out->request.batch, out, err);
}

flim_status flim_plan_settle_batch(flim_device *device, const flim_plan_budget *budget, int64_t cap,
                                   flim_plan_request *request, flim_error *err)
{
    flim_plan most;
    if (request->batch > 0) {
        return FLIM_OK;
    }
    request->batch = 1;
    FLIM_TRY(flim_plan_largest(device, request, budget, cap, &most, err));
    request->batch = most.request.batch;
    request->eval_batch = most.request.eval_batch;
    return FLIM_OK;
}

/* On a card the search runs on a description of it: that takes no memory and tunes nothing. */
static flim_status search_described(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                                    int64_t cap, flim_plan *out, flim_error *err)
{
    flim_card card;
    flim_device *twin = NULL;
    if (flim_device_get_card(device, &card, NULL) == FLIM_OK) {
        FLIM_TRY(flim_device_describe(&card, &twin, err));
    }
    const flim_status status = flim_plan_largest(twin ? twin : device, request, budget, cap, out, err);
    flim_device_close(twin);
    return status;
}

flim_status flim_plan_auto(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget, int64_t cap,
                           const flim_log *log, flim_plan *out, flim_plan_trial *trial, flim_error *err)
{
    enum { ATTEMPTS = 12 };
    flim_error why = {0};
    flim_status status = FLIM_OK;
    FLIM_TRY(search_described(device, request, budget, cap, out, err));
    int64_t batch = out->request.batch;
    flim_plan_request r = *request;
    r.eval_batch = out->request.eval_batch;
    for (int i = 0; i < ATTEMPTS && batch > 0; i++) {
        why = (flim_error){0};
        status = plan_batch(device, &r, budget, batch, out, &why);
        const bool fits = status == FLIM_OK && flim_plan_fits(out, budget);
        if (fits) {
            status = flim_plan_try(device, &out->request, budget, trial, &why);
        }
        if (status == FLIM_OK && fits) {
            return FLIM_OK;
        }
        if (status != FLIM_OK && status != FLIM_ERROR_MEMORY && status != FLIM_ERROR_DEVICE) {
            return flim_fail(err, status, "%s", why.text);
        }
        flim_log_line(log, FLIM_LOG_NOTE, "batch auto: %" PRId64 " cells do not fit%s%s", batch, why.text[0] ? ": " : "",
                      why.text);
        /* FLIM_ERROR_DEVICE: near 2^31 elements cuDNN has convolutions whose results are wrong; smaller batches have
         * others. */
        const int64_t less = round_down(batch - batch / (status == FLIM_ERROR_DEVICE ? 4 : 16));
        batch = less < batch ? less : next_lower(batch);
    }
    if (status == FLIM_ERROR_DEVICE) {
        return flim_fail(err, status, "%s", why.text);
    }
    return flim_fail(err, FLIM_ERROR_MEMORY,
                     "no batch was found that runs in %.2f GiB; give --batch, or let other programs end",
                     flim_gib(budget->bytes));
}

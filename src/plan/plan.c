/* A plan: the backend's memory need and what stands beside it, and the search for the batch that fits. */
#include <inttypes.h>
#include <string.h>

#include "flim/backend.h"
#include "flim/loader.h"
#include "flim/plan.h"

enum { FINE = 32, STEP = 8 }; /* batches above FINE are multiples of STEP */

flim_plan_room flim_plan_room_of(const flim_device *device, double margin)
{
    const flim_device_info *info = flim_device_get_info(device);
    flim_plan_room room = {.total = info->memory_bytes, .margin = margin > 0 ? margin : 0.85};
    flim_card card;
    if (info->described) {
        room.held = flim_device_get_card(device, &card, NULL) == FLIM_OK ? card.context_bytes : 0;
    } else {
        room.held = info->memory_bytes - info->memory_free;
    }
    room.budget = (int64_t)(room.margin * (double)room.total) - room.held;
    return room;
}

int64_t flim_plan_eval_batch(const flim_plan_request *r)
{
    return r->eval_batch < 0 ? 0 : r->eval_batch ? r->eval_batch : r->batch;
}

flim_status flim_plan_request_of(const flim_settings *settings, const flim_network *net, const flim_device_info *device,
                                 flim_plan_request *out, flim_error *err)
{
    *out = (flim_plan_request){.net = net,
                               .batch = settings->batch,
                               .eval_batch = settings->eval_batch,
                               .accumulate = settings->accumulate,
                               .benchmark = settings->benchmark,
                               .deterministic = settings->deterministic,
                               .prefetch = (int)settings->prefetch};
    flim_status status = flim_precision_parse(settings->precision, &out->precision, err);
    if (status == FLIM_OK) {
        status = flim_recompute_parse(settings->checkpoint_activations, &out->recompute, err);
    }
    if (out->precision == FLIM_PRECISION_AUTO) {
        out->precision = device->auto_precision;
    }
    return status;
}

flim_status flim_plan_compile(flim_device *device, const flim_plan_request *r, const flim_plan_room *room, flim_program **out,
                              flim_error *err)
{
    const flim_program_options options = {.precision = r->precision,
                                          .train_batch = r->batch,
                                          .eval_batch = flim_plan_eval_batch(r),
                                          .benchmark = r->benchmark,
                                          .deterministic = r->deterministic,
                                          .recompute = r->recompute,
                                          .memory_limit = room->budget};
    return flim_program_compile(device, r->net, &options, out, err);
}

flim_status flim_plan_make(flim_device *device, const flim_plan_request *request, const flim_plan_room *room, flim_plan *out,
                           flim_error *err)
{
    const flim_network *net = request->net;
    const int64_t eval = flim_plan_eval_batch(request), most = request->batch > eval ? request->batch : eval;
    *out = (flim_plan){.request = *request, .recompute = request->recompute};
    flim_program *program = NULL;
    flim_status status = flim_plan_compile(device, request, room, &program, err);
    if (status == FLIM_OK) {
        status = flim_program_memory(program, &out->memory, err);
    }
    flim_program_destroy(program);
    if (status != FLIM_OK) {
        return status;
    }
    if (request->cache_on_device) {
        flim_memory_add(&out->memory, "cells of the data, at most", FLIM_MEMORY_DEVICE, request->cache_bytes);
    }
    out->program_bytes = out->memory.total[FLIM_MEMORY_DEVICE];
    const bool cuda = strcmp(flim_device_get_info(device)->kind, "cuda") == 0;
    if (cuda) {
        flim_memory_add(&out->memory,
                        flim_device_get_info(device)->described ? "CUDA context and libraries"
                                                                : "context, libraries, other programs",
                        FLIM_MEMORY_DEVICE, room->held);
    }
    out->device_bytes = out->memory.total[FLIM_MEMORY_DEVICE];
    if (request->prefetch > 0) {
        const int64_t bytes = flim_loader_buffer_bytes(request->prefetch, most, net->in[0], net->in[1], net->in[2]);
        flim_memory_add(&out->memory, "loader's batches", cuda ? FLIM_MEMORY_PINNED : FLIM_MEMORY_HOST, bytes);
    }
    if (!request->cache_on_device) {
        flim_memory_add(&out->memory, "decoded cells, at most", FLIM_MEMORY_HOST, request->cache_bytes);
    }
    return FLIM_OK;
}

/* Bytes of the program that grow with the batch alone: all but the workspace, which jumps from plan to plan. */
static int64_t steady_bytes(const flim_plan *plan)
{
    int64_t bytes = plan->program_bytes;
    for (int i = 0; i < plan->memory.n; i++) {
        if (plan->memory.item[i].place == FLIM_MEMORY_DEVICE && strstr(plan->memory.item[i].name, "workspace")) {
            bytes -= plan->memory.item[i].bytes;
        }
    }
    return bytes;
}

static flim_status plan_batch(flim_device *device, const flim_plan_request *request, const flim_plan_room *room,
                              int64_t batch, flim_plan *out, flim_error *err)
{
    flim_plan_request r = *request;
    r.batch = batch;
    if (r.eval_batch > batch) { /* of one's own choice only where it fits beside this batch */
        r.eval_batch = 0;
    }
    return flim_plan_make(device, &r, room, out, err);
}

static int64_t round_down(int64_t batch)
{
    return batch > FINE ? batch / STEP * STEP : batch;
}

static int64_t next_lower(int64_t batch)
{
    return round_down(batch) < batch ? round_down(batch) : batch > FINE ? batch - STEP : batch - 1;
}

/* plan_batch of *batch cells, or of the most below it (to STEP) that the device has a right way to compute: cuDNN refuses some
 * convolutions near 2^31 elements, and of some its results there are wrong. */
static flim_status plan_at_most(flim_device *device, const flim_plan_request *request, const flim_plan_room *room,
                                int64_t *batch, flim_plan *out, flim_error *err)
{
    flim_plan more;
    flim_error why = {0};
    int64_t bad = *batch;
    flim_status status = plan_batch(device, request, room, *batch, out, &why);
    if (status == FLIM_OK) {
        return status;
    }
    while (status == FLIM_ERROR_DEVICE && *batch > 1) {
        bad = *batch;
        *batch = round_down(*batch * 3 / 4);
        status = plan_batch(device, request, room, *batch, out, &why);
    }
    while (status == FLIM_OK && bad - *batch > STEP) {
        const int64_t middle = round_down((*batch + bad) / 2);
        status = middle > *batch ? plan_batch(device, request, room, middle, &more, &why) : FLIM_ERROR_DEVICE;
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

flim_status flim_plan_largest(flim_device *device, const flim_plan_request *request, const flim_plan_room *room, int64_t cap,
                              flim_plan *out, flim_error *err)
{
    /* Indices of a tensor are 32 bits wide in cuDNN and in many kernels. */
    const int64_t elements = (((int64_t)1 << 31) - 1) / flim_network_largest_tensor(request->net);
    flim_plan small = {0}, more;
    cap = cap < elements ? cap : round_down(elements);
    flim_plan_request r = *request;
    r.recompute = r.recompute == FLIM_RECOMPUTE_NONE ? FLIM_RECOMPUTE_NONE : FLIM_RECOMPUTE_ALL;
    flim_status status = cap < 1 ? flim_fail(err, FLIM_ERROR_USAGE, "one cell alone makes a tensor of 2^31 elements or more")
                                 : plan_batch(device, &r, room, 1, &small, err);
    if (status != FLIM_OK) {
        return status;
    }
    if (small.program_bytes > room->budget) {
        return flim_fail(
            err, FLIM_ERROR_MEMORY,
            "%s: one cell needs %.2f GiB; %.0f %% of the card less what is held leave %.2f GiB; a smaller preset, "
            "bf16 or --checkpoint-activations all needs less",
            flim_device_get_info(device)->name, (double)small.program_bytes / 0x1p30, 100 * room->margin,
            (double)room->budget / 0x1p30);
    }
    /* Where the straight line of what does not jump meets the budget; then down to the first batch whose whole plan fits. */
    *out = small;
    int64_t top = cap < 2 * FINE ? cap : 2 * FINE, batch = 1;
    for (int i = 0; i < 4 && top > 1; i++) {
        const int64_t wanted = top;
        status = plan_at_most(device, &r, room, &top, &more, err);
        if (status != FLIM_OK) {
            return status;
        }
        cap = top < wanted ? top : cap;
        if (top == 1) {
            break;
        }
        const double slope = (double)(steady_bytes(&more) - steady_bytes(&small)) / (double)(top - 1);
        const double meets = (double)top + (double)(room->budget - steady_bytes(&more)) / (slope > 1 ? slope : 1);
        const int64_t next = meets >= (double)cap ? cap : meets < 1 ? 1 : round_down((int64_t)meets);
        if (next == top) {
            break;
        }
        top = next;
    }
    for (int64_t b = top; b > 1 && batch == 1; b = next_lower(b)) {
        status = plan_at_most(device, &r, room, &b, &more, err);
        if (status != FLIM_OK) {
            return status;
        }
        if (more.program_bytes <= room->budget) {
            *out = more;
            batch = b;
        }
    }
    return request->recompute == r.recompute ? FLIM_OK : plan_batch(device, request, room, batch, out, err);
}

/* On a card the search runs on a description of it: that takes no memory and tunes nothing. */
static flim_status search_described(flim_device *device, const flim_plan_request *request, const flim_plan_room *room,
                                    int64_t cap, flim_plan *out, flim_error *err)
{
    flim_card card;
    flim_device *twin = NULL;
    flim_status status = FLIM_OK;
    if (flim_device_get_card(device, &card, NULL) == FLIM_OK) {
        status = flim_device_describe(&card, &twin, err);
    }
    if (status == FLIM_OK) {
        status = flim_plan_largest(twin ? twin : device, request, room, cap, out, err);
    }
    flim_device_close(twin);
    return status;
}

flim_status flim_plan_auto(flim_device *device, const flim_plan_request *request, const flim_plan_room *room, int64_t cap,
                           const flim_log *log, flim_plan *out, flim_plan_trial *trial, flim_error *err)
{
    enum { ATTEMPTS = 12 };
    flim_error why = {0};
    flim_status status = search_described(device, request, room, cap, out, err);
    if (status != FLIM_OK) {
        return status;
    }
    int64_t batch = out->request.batch;
    for (int i = 0; i < ATTEMPTS && batch > 0; i++) {
        why = (flim_error){0};
        status = plan_batch(device, request, room, batch, out, &why);
        const bool fits = status == FLIM_OK && out->program_bytes <= room->budget;
        if (fits) {
            status = flim_plan_try(device, &out->request, room, trial, &why);
        }
        if (status == FLIM_OK && fits) {
            return FLIM_OK;
        }
        if (status != FLIM_OK && status != FLIM_ERROR_MEMORY && status != FLIM_ERROR_DEVICE) {
            return flim_fail(err, status, "%s", why.text);
        }
        flim_log_line(log, FLIM_LOG_NOTE, "batch auto: %" PRId64 " cells do not fit after all%s%s", batch,
                      why.text[0] ? ": " : "", why.text);
        /* FLIM_ERROR_DEVICE: near 2^31 elements cuDNN has convolutions whose results are wrong; smaller batches have others. */
        const int64_t less = round_down(batch - batch / (status == FLIM_ERROR_DEVICE ? 4 : 16));
        batch = less < batch ? less : next_lower(batch);
    }
    if (status == FLIM_ERROR_DEVICE) {
        return flim_fail(err, status, "%s", why.text);
    }
    return flim_fail(err, FLIM_ERROR_MEMORY,
                     "no batch was found that runs in %.2f GiB; give --batch, or let other programs end",
                     (double)room->budget / 0x1p30);
}

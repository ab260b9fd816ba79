/* A plan: the backend's memory need and what stands beside it. */
#include "backend/backend.h"
#include "core/try.h"
#include "flim/loader.h"
#include "plan/plan.h"

flim_plan_budget flim_plan_budget_of(const flim_device *device, double margin)
{
    const flim_device_info *info = flim_device_get_info(device);
    flim_plan_budget budget = {.total = info->memory_bytes, .margin = margin > 0 ? margin : 0.85};
    flim_card card;
    if (info->described) {
        budget.held = flim_device_get_card(device, &card, NULL) == FLIM_OK ? card.context_bytes : 0;
    } else {
        budget.held = info->memory_bytes - info->memory_free;
    }
    budget.bytes = (int64_t)(budget.margin * (double)budget.total) - budget.held;
    return budget;
}

int64_t flim_plan_eval_batch(const flim_plan_request *r)
{
    return r->eval_batch < 0 ? 0 : r->eval_batch ? r->eval_batch : r->batch;
}

flim_plan_request flim_plan_request_of(const flim_settings *settings, const flim_network *net, const flim_device_info *device)
{
    return (flim_plan_request){.net = net,
                               .precision = flim_device_precision(device, settings->precision),
                               .batch = settings->batch,
                               .eval_batch = settings->eval_batch,
                               .recompute = settings->checkpoint_activations,
                               .accumulate = settings->accumulate,
                               .benchmark = settings->benchmark,
                               .deterministic = settings->deterministic,
                               .average = settings->ema > 0,
                               .prefetch = (int)settings->prefetch};
}

static int64_t prefetch_bytes(const flim_plan_request *r)
{
    const int64_t eval = flim_plan_eval_batch(r), most = r->batch > eval ? r->batch : eval;
    return r->prefetch > 0 ? flim_loader_buffer_bytes(r->prefetch, most, r->net->in[0], r->net->in[1], r->net->in[2]) : 0;
}

int64_t flim_plan_limit(const flim_device *device, const flim_plan_request *r, const flim_plan_budget *budget)
{
    const int64_t host = prefetch_bytes(r) + (r->cache_on_device ? 0 : r->cache_bytes);
    return flim_device_get_info(device)->own_memory ? budget->bytes : budget->bytes - host;
}

bool flim_plan_fits(const flim_plan *plan, const flim_plan_budget *budget)
{
    return plan->bounded_bytes <= budget->bytes;
}

flim_status flim_plan_compile(flim_device *device, const flim_plan_request *r, const flim_plan_budget *budget,
                              flim_program **out, flim_error *err)
{
    const flim_program_options options = {.precision = r->precision,
                                          .train_batch = r->batch,
                                          .eval_batch = flim_plan_eval_batch(r),
                                          .benchmark = r->benchmark,
                                          .deterministic = r->deterministic,
                                          .recompute = r->recompute,
                                          .average = r->average,
                                          .memory_limit = flim_plan_limit(device, r, budget)};
    return flim_program_compile(device, r->net, &options, out, err);
}

void flim_plan_complete(flim_plan *plan, const flim_device *device, const flim_plan_budget *budget)
{
    const flim_device_info *info = flim_device_get_info(device);
    const flim_plan_request *r = &plan->request;
    if (r->cache_on_device) {
        flim_memory_add(&plan->memory, "cached cells, at most", FLIM_MEMORY_DEVICE, r->cache_bytes);
    }
    plan->program_bytes = plan->memory.total[FLIM_MEMORY_DEVICE];
    if (info->own_memory) {
        flim_memory_add(&plan->memory, info->described ? "CUDA context and libraries" : "context, libraries, other programs",
                        FLIM_MEMORY_DEVICE, budget->held);
    }
    plan->device_bytes = plan->memory.total[FLIM_MEMORY_DEVICE];
    flim_memory_add(&plan->memory, "prefetch buffers", info->own_memory ? FLIM_MEMORY_PINNED : FLIM_MEMORY_HOST,
                    prefetch_bytes(r));
    if (!r->cache_on_device) {
        flim_memory_add(&plan->memory, "decoded cells, at most", FLIM_MEMORY_HOST, r->cache_bytes);
    }
    plan->bounded_bytes = plan->program_bytes + (info->own_memory ? 0 : plan->memory.total[FLIM_MEMORY_HOST]);
}

flim_status flim_plan_make(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                           flim_plan *out, flim_error *err)
{
    const flim_device_info *info = flim_device_get_info(device);
    *out = (flim_plan){.request = *request,
                       .auto_precision = info->auto_precision,
                       .amp_precision = info->amp_precision,
                       .recompute = request->recompute};
    flim_program *program = NULL;
    FLIM_TRY(flim_plan_compile(device, request, budget, &program, err));
    out->recompute = program->options.recompute;
    const flim_status status = flim_program_memory(program, &out->memory, err);
    flim_program_destroy(program);
    FLIM_TRY(status);
    flim_plan_complete(out, device, budget);
    return FLIM_OK;
}

/* Plans as tables and as JSON. */
#include <inttypes.h>
#include <string.h>

#include "core/bytes.h"
#include "plan/plan.h"

static const char *const places[] = {"device", "pinned", "host"};

void flim_plan_table(const flim_plan *plan, const flim_plan_budget *budget, const flim_log *log)
{
    const flim_memory_plan *m = &plan->memory;
    for (int place = 0; place < 3; place++) {
        for (int i = 0; i < m->n; i++) {
            if ((int)m->item[i].place == place) {
                const double mib = flim_mib(m->item[i].bytes);
                flim_log_line(log, FLIM_LOG_INFO, "  %-42s %-7s %10.1f %s", m->item[i].name, places[place],
                              mib < 1 ? 1024 * mib : mib, mib < 1 ? "KiB" : "MiB");
            }
        }
    }
    char share[96] = "";
    if (budget && budget->total > 0) {
        snprintf(share, sizeof share, " (%.0f %% of %.2f GiB; plans may fill %.0f %%)",
                 100 * (double)plan->device_bytes / (double)budget->total, flim_gib(budget->total), 100 * budget->margin);
    }
    flim_log_line(log, FLIM_LOG_INFO, "Memory plan: device %.2f GiB%s, pinned %.2f GiB, host %.2f GiB",
                  flim_gib(m->total[FLIM_MEMORY_DEVICE]), share, flim_gib(m->total[FLIM_MEMORY_PINNED]),
                  flim_gib(m->total[FLIM_MEMORY_HOST]));
}

static double share_of(const flim_plan *plan, const flim_plan_budget *budget)
{
    return budget->total > 0 ? 100 * (double)plan->device_bytes / (double)budget->total : 0;
}

const char *flim_plan_verdict(const flim_plan *plan, const flim_plan_budget *budget)
{
    static const struct {
        double above; /* per cent of the card */
        const char *word;
    } verdicts[] = {{95, "too much"}, {85, "tight"}, {60, "good"}};
    const double share = share_of(plan, budget);
    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++) {
        if (share > verdicts[i].above) {
            return verdicts[i].word;
        }
    }
    return "has room";
}

void flim_plan_suggestions_table(const flim_suggestions *s, const flim_plan_budget *budget, const flim_log *log)
{
    /* 80 columns up to the effect */
    flim_log_line(log, FLIM_LOG_INFO, "   %6s x accum = effective  eval  prec. checkpoint     GiB  share  verdict   effect",
                  "batch");
    for (int i = 0; i < s->n; i++) {
        const flim_plan *p = &s->plan[i];
        const flim_plan_request *r = &p->request;
        flim_log_line(log, FLIM_LOG_INFO,
                      "%s%d %6" PRId64 " x %-5" PRId64 " = %-9" PRId64 " %5" PRId64 "  %-5s %-10s %7.2f  %3.0f %%  %-8s  %s",
                      i == s->recommended ? "->" : "  ", i + 1, r->batch, r->accumulate, r->batch * r->accumulate,
                      flim_plan_eval_batch(r), flim_precision_name(r->precision), flim_recompute_name(p->recompute),
                      flim_gib(p->device_bytes), share_of(p, budget), flim_plan_verdict(p, budget), s->note[i]);
    }
    flim_log_line(log, FLIM_LOG_INFO, "Recommended: %d: %s", s->recommended + 1, s->why);
}

flim_json *flim_plan_json(const flim_plan *plan, const flim_plan_budget *budget)
{
    const flim_plan_request *r = &plan->request;
    flim_json *json = flim_json_object(), *items = flim_json_array();
    flim_json_set_string(json, "preset", r->net->preset);
    flim_json_set_string(json, "precision", flim_precision_name(r->precision));
    flim_json_set_integer(json, "batch", r->batch);
    flim_json_set_integer(json, "accumulate", r->accumulate);
    flim_json_set_integer(json, "effective_batch", r->batch * r->accumulate);
    flim_json_set_integer(json, "eval_batch", flim_plan_eval_batch(r));
    flim_json_set_string(json, "checkpoint_activations", flim_recompute_name(plan->recompute));
    flim_json_set_integer(json, "program_bytes", plan->program_bytes);
    flim_json_set_integer(json, "device_bytes", plan->device_bytes);
    flim_json_set_integer(json, "pinned_bytes", plan->memory.total[FLIM_MEMORY_PINNED]);
    flim_json_set_integer(json, "host_bytes", plan->memory.total[FLIM_MEMORY_HOST]);
    flim_json_set_number(json, "share", share_of(plan, budget) / 100);
    flim_json_set_string(json, "verdict", flim_plan_verdict(plan, budget));
    flim_json_set_bool(json, "fits", flim_plan_fits(plan, budget));
    for (int i = 0; i < plan->memory.n; i++) {
        flim_json *item = flim_json_object();
        flim_json_set_string(item, "name", plan->memory.item[i].name);
        flim_json_set_string(item, "place", places[plan->memory.item[i].place]);
        flim_json_set_integer(item, "bytes", plan->memory.item[i].bytes);
        flim_json_add(items, item);
    }
    flim_json_set(json, "components", items);
    return json;
}

flim_json *flim_plan_suggestions_json(const flim_suggestions *s, const flim_plan_budget *budget)
{
    flim_json *json = flim_json_object(), *list = flim_json_array();
    if (s->current_error[0]) {
        flim_json_set_null(json, "current");
        flim_json_set_string(json, "current_error", s->current_error);
    } else {
        flim_json_set(json, "current", flim_plan_json(&s->current, budget));
    }
    for (int i = 0; i < s->n; i++) {
        flim_json *one = flim_plan_json(&s->plan[i], budget);
        flim_json_set_string(one, "note", s->note[i]);
        flim_json_add(list, one);
    }
    flim_json_set(json, "suggestions", list);
    flim_json_set_integer(json, "recommended", s->recommended);
    flim_json_set_string(json, "why", s->why);
    return json;
}

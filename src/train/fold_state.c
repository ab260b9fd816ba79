#include "train/fold_state.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

flim_status flim_fold_state_create(const flim_network *net, int64_t epochs, flim_fold_state *out, flim_error *err)
{
    size_t p = (size_t)net->parameters, s = (size_t)net->statistics, e = (size_t)epochs;
    *out = (flim_fold_state){.parameters = net->parameters,
                             .statistics = net->statistics,
                             .best_epoch = -1,
                             .history_capacity = epochs,
                             .pretrains = net->n_heads > 0 && (flim_loss_is_hidden(net->head[0].loss) ||
                                                               flim_loss_is_over_batch(net->head[0].loss)),
                             .counters = {.loss_scale = 1.0}};
    out->parameter = flim_alloc(p, sizeof(float), err);
    out->moment1 = flim_alloc(p, sizeof(float), err);
    out->moment2 = flim_alloc(p, sizeof(float), err);
    out->statistic = flim_alloc(s, sizeof(float), err);
    out->best_parameter = flim_alloc(p, sizeof(float), err);
    out->best_statistic = flim_alloc(s, sizeof(float), err);
    out->history = flim_alloc(e, sizeof *out->history, err);
    if (!out->parameter || !out->moment1 || !out->moment2 || !out->statistic || !out->best_parameter ||
        !out->best_statistic || !out->history) {
        flim_fold_state_free(out);
        return FLIM_ERROR_MEMORY;
    }
    return FLIM_OK;
}

flim_status flim_fold_state_add_average(flim_fold_state *state, flim_error *err)
{
    state->average_parameter = flim_alloc((size_t)state->parameters, sizeof(float), err);
    state->average_statistic = flim_alloc((size_t)state->statistics, sizeof(float), err);
    return state->average_parameter && state->average_statistic ? FLIM_OK : FLIM_ERROR_MEMORY;
}

flim_status flim_fold_state_add_diagnostics(flim_fold_state *state, flim_error *err)
{
    state->epoch_parameter = flim_alloc((size_t)state->parameters, sizeof(float), err);
    return state->epoch_parameter ? FLIM_OK : FLIM_ERROR_MEMORY;
}

void flim_fold_state_begin_epoch(flim_fold_state *state)
{
    if (state->epoch_parameter) {
        memcpy(state->epoch_parameter, state->parameter, (size_t)state->parameters * sizeof(float));
        state->losses = (flim_batch_losses){0};
    }
}

void flim_fold_state_begin_average(flim_fold_state *state)
{
    if (state->average_parameter && !state->averaged) {
        memcpy(state->average_parameter, state->parameter, (size_t)state->parameters * sizeof(float));
        memcpy(state->average_statistic, state->statistic, (size_t)state->statistics * sizeof(float));
        state->averaged = true;
    }
}

/* ---- what was read ---- */

enum { MOST_EPOCHS = 1000000, MOST_BATCH = 1048576 }; /* as the settings have them */
static const int64_t most_cells = UINT32_MAX, most_updates = (int64_t)1 << 52;
static const double most_scale = 0x1p127;

typedef struct range {
    const char *name;
    int64_t value, least, most;
} range;

static flim_status check_range(const range *r, flim_error *err)
{
    return r->value >= r->least && r->value <= r->most
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "%s is %" PRId64 ", expected %" PRId64 " to %" PRId64, r->name, r->value,
                           r->least, r->most);
}

/* In an order in which the bounds of a number have been checked before it. */
static flim_status check_wholes(const flim_fold_state *s, flim_error *err)
{
    const flim_counters *n = &s->counters;
    const flim_totals *t = &s->totals;
    const range epoch = {"epoch", s->epoch, 0, MOST_EPOCHS};
    FLIM_TRY(check_range(&epoch, err)); /* before others are computed from it */
    const range ranges[] = {
        {"the length of the history", s->n_history, s->epoch, s->epoch},
        {"best_epoch", s->best_epoch, s->epoch > 0 ? 0 : -1, s->epoch - 1},
        {"batch", s->batch, 1, MOST_BATCH},
        {"accumulate", s->accumulate, 1, MOST_BATCH},
        {"the number of batches done", s->calls, 0, most_cells},
        {"totals.calls", t->calls, 0, s->calls},
        {"totals.nonfinite_call", t->nonfinite_call, -1, t->calls > 0 ? t->calls - 1 : -1},
        {"totals.updates", t->updates, 0, most_cells},
        {"totals.cells", t->cells, 0, most_cells},
        {"totals.correct", t->correct, 0, t->cells},
        {"adam_step", n->adam_step, 0, most_updates},
        {"skipped", n->skipped, 0, most_updates},
        {"skipped_in_row", n->skipped_in_row, 0, n->skipped},
        {"scale_growth", n->scale_growth, 0, most_updates},
        {"skipped_before", s->skipped_before, 0, n->skipped},
        {"the number of batch losses", s->losses.moments.n, 0, most_cells},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        FLIM_TRY(check_range(&ranges[i], err));
    }
    return FLIM_OK;
}

static flim_status check_history(const flim_fold_state *s, flim_error *err)
{
    for (int64_t i = 0; i < s->n_history; i++) {
        const flim_epoch_row *row = &s->history[i];
        const range ranges[] = {{"epoch", row->epoch, i + 1, i + 1},
                                {"cells", row->cells, 0, most_cells},
                                {"updates", row->updates, 0, most_cells},
                                {"skipped", row->skipped, 0, most_cells},
                                {"peak_bytes", row->peak_bytes, 0, INT64_MAX}};
        for (size_t k = 0; k < sizeof ranges / sizeof ranges[0]; k++) {
            const flim_status status = check_range(&ranges[k], err);
            if (status != FLIM_OK) {
                flim_fail_prefix(err, "row %" PRId64 " of the history: ", i + 1);
                return status;
            }
        }
    }
    return FLIM_OK;
}

flim_status flim_fold_state_check(const flim_fold_state *s, flim_error *err)
{
    FLIM_TRY(check_wholes(s, err));
    FLIM_TRY(check_history(s, err));
    if (!(s->counters.loss_scale > 0 && s->counters.loss_scale <= most_scale)) {
        return flim_fail(err, FLIM_ERROR_DATA, "loss_scale is %g, expected a finite number above 0", s->counters.loss_scale);
    }
    if (!(s->totals.weight >= 0 && isfinite(s->totals.weight))) {
        return flim_fail(err, FLIM_ERROR_DATA, "totals.weight is %g, expected a finite number, not negative",
                         s->totals.weight);
    }
    if (isnan(s->best_value)) {
        return flim_fail(err, FLIM_ERROR_DATA, "best_value is not a number");
    }
    return FLIM_OK;
}

void flim_fold_state_free(flim_fold_state *state)
{
    flim_free(state->parameter);
    flim_free(state->moment1);
    flim_free(state->moment2);
    flim_free(state->statistic);
    flim_free(state->best_parameter);
    flim_free(state->best_statistic);
    flim_free(state->average_parameter);
    flim_free(state->average_statistic);
    flim_free(state->epoch_parameter);
    flim_free(state->history);
    *state = (flim_fold_state){0};
}

#include "train/fold_state.h"

#include "core/alloc.h"

flim_status flim_fold_state_create(const flim_network *net, int64_t epochs, flim_fold_state *out, flim_error *err)
{
    size_t p = (size_t)net->parameters, s = (size_t)net->statistics, e = (size_t)epochs;
    *out = (flim_fold_state){.parameters = net->parameters,
                             .statistics = net->statistics,
                             .best_epoch = -1,
                             .history_capacity = epochs,
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

void flim_fold_state_free(flim_fold_state *state)
{
    flim_free(state->parameter);
    flim_free(state->moment1);
    flim_free(state->moment2);
    flim_free(state->statistic);
    flim_free(state->best_parameter);
    flim_free(state->best_statistic);
    flim_free(state->history);
    *state = (flim_fold_state){0};
}

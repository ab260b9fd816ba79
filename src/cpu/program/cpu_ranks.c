#include "cpu/program/cpu_ranks.h"

#include <math.h>

#include "core/try.h"
#include "cpu/program/cpu_sync.h"
#include "cpu/program/forward.h"
#include "cpu/program/heads.h"

static void begin_moves(flim_cpu_program *p)
{
    for (int64_t i = 0; i < p->base.net.statistics; i++) {
        p->moves[i] = (flim_cpu_move){1.0, 0.0};
    }
}

/* The running statistics, moved by each rank's batch in turn. */
static flim_status make_moves(flim_cpu_program *p, flim_error *err)
{
    flim_ranks *ranks = p->base.options.ranks;
    const int64_t n = p->base.net.statistics;
    FLIM_TRY(flim_ranks_gather(ranks, p->moves, (size_t)n * sizeof *p->moves, p->all_moves, err));
    for (int r = 0; r < flim_ranks_size(ranks); r++) {
        for (int64_t i = 0; i < n; i++) {
            p->statistics[i] = flim_cpu_moved(p->statistics[i], p->all_moves[r * n + i]);
        }
    }
    return FLIM_OK;
}

static flim_status forward_together(flim_cpu_program *p, const flim_batch *batch, flim_cpu_loss *out, flim_error *err)
{
    begin_moves(p);
    FLIM_TRY(batch->n > 0 ? flim_cpu_forward_pass(p, batch, err) : FLIM_OK);
    if (batch->n <= 1) { /* over one cell the head takes its running statistics, as the batches before have left them */
        FLIM_TRY(make_moves(p, err));
    }
    FLIM_TRY(batch->n > 0 ? flim_cpu_heads_forward(p, batch, out, err) : FLIM_OK);
    return batch->n > 1 ? make_moves(p, err) : FLIM_OK;
}

flim_status flim_cpu_ranks_forward(flim_cpu_program *p, const flim_batch *batch, flim_cpu_loss *out, flim_error *err)
{
    *out = (flim_cpu_loss){0};
    p->noting = flim_ranks_size(p->base.options.ranks) > 1 && !flim_cpu_is_synced(p); /* else all ranks make the same move */
    if (!p->noting) {
        FLIM_TRY(flim_cpu_forward_pass(p, batch, err));
        return flim_cpu_heads_forward(p, batch, out, err);
    }
    const flim_status status = forward_together(p, batch, out, err);
    p->noting = false;
    return status;
}

flim_status flim_cpu_ranks_account(flim_cpu_program *p, int64_t n, const flim_cpu_loss *loss, int64_t *calls, flim_error *err)
{
    flim_ranks *ranks = p->base.options.ranks;
    const flim_cpu_share mine = {*loss, n};
    *calls = 0;
    FLIM_TRY(flim_ranks_gather(ranks, &mine, sizeof mine, p->shares, err));
    for (int r = 0; r < flim_ranks_size(ranks); r++) {
        const flim_cpu_share *share = &p->shares[r];
        if (share->cells == 0) {
            continue;
        }
        p->totals.loss += share->loss.loss;
        p->totals.weight += share->loss.weight;
        p->totals.cells += share->cells;
        p->totals.correct += share->loss.correct;
        if (!isfinite(share->loss.loss)) {
            flim_cpu_note_nonfinite(p, p->totals.calls + (flim_cpu_is_synced(p) ? 0 : *calls));
        }
        (*calls)++;
    }
    *calls = flim_cpu_is_synced(p) ? 1 : *calls;
    return FLIM_OK;
}

flim_status flim_cpu_ranks_gradients(flim_cpu_program *p, flim_error *err)
{
    return flim_ranks_sum_floats(p->base.options.ranks, p->gradients, (size_t)p->base.net.parameters, err);
}

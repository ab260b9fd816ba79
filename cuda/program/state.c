#include "cuda/program/state.h"

#include "core/alloc.h"
#include "cuda/device/check.h"
#include "cuda/program/execute.h"
#include "cuda/program/launch.h"

flim_device_state flim_state_initial(bool dynamic)
{
    return (flim_device_state){.nonfinite_call = -1, .loss_scale = dynamic ? FLIM_LOSS_SCALE_START : 1.0f};
}

flim_state_arrays flim_state_arrays_of(const flim_program *base)
{
    const flim_cuda_program *p = (const flim_cuda_program *)base;
    return (flim_state_arrays){.parameters = p->parameters,
                               .gradients = p->gradients,
                               .moment1 = p->moment1,
                               .moment2 = p->moment2,
                               .statistics = p->statistics,
                               .average = p->average,
                               .average_statistics = p->average_statistics};
}

flim_status flim_state_read(flim_program *base, const float *from, size_t count, float *out, flim_error *err)
{
    FLIM_TRY(flim_cuda_finish(flim_cuda_program_of(base), err));
    return flim_cuda_check(cudaMemcpy(out, from, count * sizeof *out, cudaMemcpyDeviceToHost), "reading state", err);
}

/* From pageable memory; what is enqueued afterwards sees it.  (cudaMemcpy may return with its last copy under way, and our
 * streams do not wait for it.) */
static flim_status upload(flim_cuda_program *p, void *to, const void *from, size_t bytes, flim_error *err)
{
    FLIM_TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, p->device->stream));
    FLIM_TRY_CUDA(cudaStreamSynchronize(p->device->stream));
    return FLIM_OK;
}

flim_status flim_state_write(flim_program *base, flim_state state, float *to, size_t count, const float *in, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    FLIM_TRY(flim_cuda_finish(p, err));
    FLIM_TRY(upload(p, to, in, count * sizeof *in, err));
    if (state == FLIM_STATE_PARAMETERS) {
        FLIM_TRY(flim_cuda_store_weights(p, NULL, err));
        FLIM_TRY_CUDA(cudaStreamSynchronize(p->device->stream));
    } else if (state == FLIM_STATE_STATISTICS && p->pending) {
        FLIM_TRY(upload(p, p->pending, in, count * sizeof *in, err));
    }
    return FLIM_OK;
}

static flim_status fetch(flim_cuda_program *p, flim_device_state *out, flim_error *err)
{
    if (!p->base.allocated) {
        *out = p->host_state;
        return FLIM_OK;
    }
    FLIM_TRY(flim_cuda_finish(p, err));
    return flim_cuda_check(cudaMemcpy(out, p->state, sizeof *out, cudaMemcpyDeviceToHost), "reading counters", err);
}

static flim_status store(flim_cuda_program *p, const flim_device_state *in, flim_error *err)
{
    if (!p->base.allocated) {
        p->host_state = *in;
        return FLIM_OK;
    }
    return upload(p, p->state, in, sizeof *in, err);
}

flim_status flim_state_get_counters(flim_program *base, flim_counters *out, flim_error *err)
{
    flim_device_state s;
    FLIM_TRY(fetch(flim_cuda_program_of(base), &s, err));
    *out = (flim_counters){s.adam_step, s.skipped, s.skipped_in_row, (double)s.loss_scale, s.scale_growth};
    return FLIM_OK;
}

flim_status flim_state_set_counters(flim_program *base, const flim_counters *in, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_device_state s;
    FLIM_TRY(fetch(p, &s, err));
    s.adam_step = in->adam_step;
    s.skipped = in->skipped;
    s.skipped_in_row = in->skipped_in_row;
    s.scale_growth = in->scale_growth;
    /* A scale of 1 or less comes from another precision: fp16 then starts from its own. */
    s.loss_scale = !p->dynamic ? 1.0f : in->loss_scale > 1.0 ? (float)in->loss_scale : FLIM_LOSS_SCALE_START;
    return store(p, &s, err);
}

/* Of several ranks: what their batches have added, together.  The rest is the same on all. */
static flim_status add_ranks(const flim_cuda_program *p, flim_totals *t, flim_error *err)
{
    const int n = p->ranks.size;
    flim_totals *all = flim_alloc((size_t)n, sizeof *all, err); /* (n) */
    flim_status status = all ? flim_ranks_gather(p->base.options.ranks, t, sizeof *t, all, err) : FLIM_ERROR_MEMORY;
    int64_t bad = -1; /* the first call of a rank that was not finite */
    for (int r = 0; r < n && status == FLIM_OK; r++) {
        t->loss = (r ? t->loss : 0) + all[r].loss;
        t->weight = (r ? t->weight : 0) + all[r].weight;
        t->cells = (r ? t->cells : 0) + all[r].cells;
        t->correct = (r ? t->correct : 0) + all[r].correct;
        t->calls = (r ? t->calls : 0) + all[r].calls;
        bad = all[r].nonfinite && (bad < 0 || all[r].nonfinite_call < bad) ? all[r].nonfinite_call : bad;
    }
    t->nonfinite = bad >= 0;
    if (p->ranks.sync) { /* all have counted each call, and it was one */
        t->calls = status == FLIM_OK ? all[0].calls : 0;
        t->nonfinite_call = bad;
        flim_free(all);
        return status;
    }
    const int64_t call = bad * n + n - 1; /* it was one of the calls up to that of the last rank */
    t->nonfinite_call = bad < 0 ? -1 : call < t->calls ? call : t->calls - 1;
    flim_free(all);
    return status;
}

flim_status flim_state_totals(flim_program *base, bool reset, flim_totals *out, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_device_state s;
    FLIM_TRY(fetch(p, &s, err));
    *out = (flim_totals){.loss = s.loss,
                         .weight = s.weight,
                         .cells = s.cells,
                         .correct = s.correct,
                         .updates = s.updates,
                         .grad_norm = s.grad_norm,
                         .grad_norm_sum = s.grad_norm_sum,
                         .grad_norm_least = s.grad_norm_least,
                         .grad_norm_most = s.grad_norm_most,
                         .nonfinite = s.nonfinite_call >= 0,
                         .calls = s.calls,
                         .nonfinite_call = s.nonfinite_call,
                         .hidden = s.hidden};
    FLIM_TRY(p->ranks.on ? add_ranks(p, out, err) : FLIM_OK);
    if (reset) {
        s.loss = s.weight = s.grad_norm_sum = s.grad_norm_least = s.grad_norm_most = 0;
        s.cells = s.correct = s.updates = s.calls = 0;
        s.nonfinite_call = -1;
        s.hidden = (flim_hidden_totals){0};
        FLIM_TRY(store(p, &s, err));
    }
    return FLIM_OK;
}

flim_status flim_state_set_totals(flim_program *base, const flim_totals *in, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_device_state s;
    FLIM_TRY(fetch(p, &s, err));
    const bool mine = !p->ranks.on || p->ranks.rank == 0; /* the others add what comes from now on */
    const bool apart = p->ranks.on && !p->ranks.sync; /* each rank counts its own calls */
    const int ranks = apart ? p->ranks.size : 1, rank = apart ? p->ranks.rank : 0;
    s.loss = mine ? in->loss : 0;
    s.weight = mine ? in->weight : 0;
    s.cells = mine ? in->cells : 0;
    s.correct = mine ? in->correct : 0;
    s.updates = in->updates;
    s.grad_norm = in->grad_norm;
    s.grad_norm_sum = in->grad_norm_sum;
    s.grad_norm_least = in->grad_norm_least;
    s.grad_norm_most = in->grad_norm_most;
    s.calls = (in->calls - rank + ranks - 1) / ranks; /* this rank's of them */
    s.hidden = mine ? in->hidden : (flim_hidden_totals){0};
    s.nonfinite_call = in->nonfinite ? in->nonfinite_call / ranks : -1;
    return store(p, &s, err);
}

/* A plan for real: a program of its own, run as an epoch would run it. */
#include "core/alloc.h"
#include "core/clock.h"
#include "core/try.h"
#include "data/hide_math.h"
#include "plan/plan.h"
#include "plan/synthetic_run.h"

typedef struct trial {
    flim_device *device;
    const flim_plan_request *request;
    flim_program *program;
    flim_batch batch;
    float *logits; /* (n,K'); of one head */
} trial;

enum { HIDDEN = FLIM_HIDE_WHOLE / 2 }; /* share of the voxels, of a network that is to predict them */

/* What a run does with batches that are none of training's: a network of hidden voxels is evaluated on them, and its prediction,
 * which no run asks for, would be a number per voxel. */
static bool predicts_hidden(const flim_network *net)
{
    bool hidden = false;
    for (int k = 0; k < net->n_heads; k++) {
        hidden = hidden || flim_loss_is_hidden(net->head[k].loss);
    }
    return hidden;
}

static flim_status evaluate_batch(trial *t, const flim_step *step, flim_error *err)
{
    return predicts_hidden(t->request->net) ? flim_program_evaluate(t->program, &t->batch, step, err)
                                            : flim_program_predict(t->program, &t->batch, t->logits, err);
}

/* Runs a batch of n cells, training or prediction; *ms becomes the faster of this and what it was, unless that is 0. */
static flim_status run_batch(trial *t, bool training, int64_t n, double *ms, flim_error *err)
{
    flim_step step = flim_typical_step(n);
    step.hide_share = predicts_hidden(t->request->net) ? HIDDEN : 0;
    t->batch.n = n;
    const double begun = flim_seconds();
    FLIM_TRY(training ? flim_program_train(t->program, &t->batch, &step, err) : evaluate_batch(t, &step, err));
    FLIM_TRY(flim_program_wait(t->program, err));
    const double took = 1e3 * (flim_seconds() - begun);
    *ms = *ms == 0 || took < *ms ? took : *ms;
    return FLIM_OK;
}

/* Full batches twice, and a smaller one between them, as the last one of an epoch is. */
static flim_status run(trial *t, flim_plan_trial *out, flim_error *err)
{
    const int64_t batch = t->request->batch, eval = flim_plan_eval_batch(t->request),
                  least = flim_network_views(t->request->net);
    double last = 0;
    FLIM_TRY(flim_fresh_weights(t->program, 1, err));
    if (batch > 0) {
        FLIM_TRY(run_batch(t, true, batch, &out->train_ms, err));
        FLIM_TRY(run_batch(t, true, least < batch ? least : batch, &last, err));
        FLIM_TRY(run_batch(t, true, batch, &out->train_ms, err));
    }
    if (eval > 0) {
        FLIM_TRY(run_batch(t, false, eval, &out->predict_ms, err));
        FLIM_TRY(run_batch(t, false, eval > 1 ? eval / 2 : 1, &last, err));
        FLIM_TRY(run_batch(t, false, eval, &out->predict_ms, err));
    }
    return FLIM_OK;
}

flim_status flim_plan_try(flim_device *device, const flim_plan_request *request, const flim_plan_budget *budget,
                          flim_plan_trial *out, flim_error *err)
{
    enum { DIFFERENT = 32 }; /* cells */
    const flim_network *net = request->net;
    const int64_t eval = flim_plan_eval_batch(request), n = request->batch > eval ? request->batch : eval;
    const bool measured = flim_device_get_info(device)->own_memory;
    trial t = {.device = device, .request = request};
    int64_t before = 0, allocated = 0, after = 0;
    flim_status status = FLIM_OK;
    *out = (flim_plan_trial){0};
    FLIM_TRY_DONE(flim_plan_compile(device, request, budget, &t.program, err));
    FLIM_TRY_DONE(measured ? flim_device_memory_free(device, &before, err) : FLIM_OK);
    FLIM_TRY_DONE(flim_program_allocate(t.program, err));
    out->planned_bytes = flim_program_peak_bytes(t.program);
    FLIM_TRY_DONE(measured ? flim_device_memory_free(device, &allocated, err) : FLIM_OK);
    FLIM_TRY_DONE(flim_batch_create(device, net, n, &t.batch, err));
    flim_batch_fill(&t.batch, net->classes, 1, DIFFERENT);
    t.logits = flim_alloc((size_t)n * (size_t)net->head[0].outputs, sizeof *t.logits, err);
    FLIM_TRY_DONE(t.logits ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(run(&t, out, err));
    FLIM_TRY_DONE(measured ? flim_device_memory_free(device, &after, err) : FLIM_OK);
    out->allocated_bytes = before - allocated;
    out->grown_bytes = allocated - after;
done:
    flim_program_destroy(t.program);
    flim_batch_free(device, &t.batch);
    flim_free(t.logits);
    return status;
}

/* A plan for real: a program of its own, run as an epoch would run it. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/try.h"
#include "data/synthetic.h"
#include "flim/dataset.h"
#include "plan/plan.h"

typedef struct trial {
    flim_device *device;
    const flim_plan_request *request;
    flim_program *program;
    flim_batch batch;
    float *state, *logits; /* max(P,S); (n,K') */
} trial;

static void release(trial *t)
{
    flim_program_destroy(t->program);
    flim_device_host_free(t->device, t->batch.signal);
    flim_free(t->batch.mask);
    flim_free(t->batch.label);
    flim_free(t->batch.weight);
    flim_free(t->batch.id);
    flim_free(t->state);
    flim_free(t->logits);
}

/* A batch of synthetic cells: what is in it changes no size. */
static flim_status make_batch(trial *t, int64_t n, flim_error *err)
{
    const flim_network *net = t->request->net;
    const int64_t pixels = (int64_t)net->in[1] * net->in[2], voxels = pixels * net->in[0];
    flim_batch *b = &t->batch;
    void *signal = NULL;
    bool pinned;
    FLIM_TRY(flim_device_host_alloc(t->device, (size_t)n * (size_t)voxels * sizeof(float), &signal, &pinned, err));
    *b = (flim_batch){.n = n, .capacity = n, .t = net->in[0], .h = net->in[1], .w = net->in[2], .signal = signal};
    const size_t floats = (size_t)(net->parameters > net->statistics ? net->parameters : net->statistics);
    b->mask = flim_alloc((size_t)n, (size_t)pixels, err);
    b->label = flim_alloc((size_t)n, sizeof *b->label, err);
    b->weight = flim_alloc((size_t)n, sizeof *b->weight, err);
    b->id = flim_alloc((size_t)n, sizeof *b->id, err);
    t->state = flim_alloc(floats, sizeof *t->state, err);
    t->logits = flim_alloc((size_t)n * (size_t)net->head[0].outputs, sizeof *t->logits, err);
    FLIM_TRY(b->mask && b->label && b->weight && b->id && t->state && t->logits ? FLIM_OK : FLIM_ERROR_MEMORY);
    enum { DIFFERENT = 32 };
    for (int64_t i = 0; i < n; i++) {
        b->weight[i] = 1;
        b->id[i] = (flim_cell_id){.cell = (uint32_t)i};
        if (i < DIFFERENT) {
            b->label[i] =
                flim_synthetic_cell(1, i, net->classes, b->t, b->h, b->w, b->signal + i * voxels, b->mask + i * pixels);
            flim_signal_from_counts(b->signal + i * voxels, b->signal + i * voxels, voxels);
        } else {
            b->label[i] = b->label[i % DIFFERENT];
            memcpy(b->signal + i * voxels, b->signal + i % DIFFERENT * voxels, (size_t)voxels * sizeof(float));
            memcpy(b->mask + i * pixels, b->mask + i % DIFFERENT * pixels, (size_t)pixels);
        }
    }
    return FLIM_OK;
}

static flim_status start(trial *t, flim_error *err)
{
    const flim_network *net = t->request->net;
    const flim_counters counters = {.loss_scale = t->request->precision == FLIM_PRECISION_FP16 ? 1024 : 1};
    float *statistics = flim_alloc((size_t)net->statistics, sizeof(float), err);
    if (!statistics) {
        return FLIM_ERROR_MEMORY;
    }
    flim_network_init(net, 1, 0, t->state, statistics);
    const flim_status status = flim_program_write(t->program, FLIM_STATE_STATISTICS, statistics, err);
    flim_free(statistics);
    FLIM_TRY(status);
    FLIM_TRY(flim_program_write(t->program, FLIM_STATE_PARAMETERS, t->state, err));
    if (t->request->batch == 0) {
        return FLIM_OK;
    }
    memset(t->state, 0, (size_t)net->parameters * sizeof(float));
    FLIM_TRY(flim_program_write(t->program, FLIM_STATE_MOMENT1, t->state, err));
    FLIM_TRY(flim_program_write(t->program, FLIM_STATE_MOMENT2, t->state, err));
    return flim_program_set_counters(t->program, &counters, err);
}

/* Runs a batch of n cells, training or prediction; *ms becomes the faster of this and what it was, unless that is 0. */
static flim_status run_batch(trial *t, bool training, int64_t n, double *ms, flim_error *err)
{
    const flim_step step = {.first = true,
                            .last = true,
                            .divisor = (double)n,
                            .learning_rate = 1e-4f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .epsilon = 1e-8f,
                            .clip = 35,
                            .dropout = 0.25f};
    t->batch.n = n;
    const double begun = flim_seconds();
    FLIM_TRY(training ? flim_program_train(t->program, &t->batch, &step, err)
                      : flim_program_predict(t->program, &t->batch, t->logits, err));
    FLIM_TRY(flim_program_wait(t->program, err));
    const double took = 1e3 * (flim_seconds() - begun);
    *ms = *ms == 0 || took < *ms ? took : *ms;
    return FLIM_OK;
}

/* Full batches twice, and a smaller one between them, as the last one of an epoch is. */
static flim_status run(trial *t, flim_plan_trial *out, flim_error *err)
{
    const int64_t batch = t->request->batch, eval = flim_plan_eval_batch(t->request);
    double last = 0;
    FLIM_TRY(start(t, err));
    if (batch > 0) {
        FLIM_TRY(run_batch(t, true, batch, &out->train_ms, err));
        FLIM_TRY(run_batch(t, true, 1, &last, err));
        FLIM_TRY(run_batch(t, true, batch, &out->train_ms, err));
    }
    if (eval > 0) {
        FLIM_TRY(run_batch(t, false, eval, &out->predict_ms, err));
        FLIM_TRY(run_batch(t, false, eval > 1 ? eval / 2 : 1, &last, err));
        FLIM_TRY(run_batch(t, false, eval, &out->predict_ms, err));
    }
    return FLIM_OK;
}

flim_status flim_plan_try(flim_device *device, const flim_plan_request *request, const flim_plan_room *room,
                          flim_plan_trial *out, flim_error *err)
{
    const int64_t eval = flim_plan_eval_batch(request);
    const bool measured = flim_device_get_info(device)->own_memory;
    trial t = {.device = device, .request = request};
    int64_t before = 0, allocated = 0, after = 0;
    *out = (flim_plan_trial){0};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_plan_compile(device, request, room, &t.program, err));
    FLIM_TRY_DONE(measured ? flim_device_memory_free(device, &before, err) : FLIM_OK);
    FLIM_TRY_DONE(flim_program_allocate(t.program, err));
    out->planned_bytes = flim_program_peak_bytes(t.program);
    FLIM_TRY_DONE(measured ? flim_device_memory_free(device, &allocated, err) : FLIM_OK);
    FLIM_TRY_DONE(make_batch(&t, request->batch > eval ? request->batch : eval, err));
    FLIM_TRY_DONE(run(&t, out, err));
    FLIM_TRY_DONE(measured ? flim_device_memory_free(device, &after, err) : FLIM_OK);
    out->allocated_bytes = before - allocated;
    out->grown_bytes = allocated - after;
done:
    release(&t);
    return status;
}

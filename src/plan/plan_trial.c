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
    flim_status status = flim_device_host_alloc(t->device, (size_t)n * (size_t)voxels * sizeof(float), &signal, &pinned, err);
    *b = (flim_batch){.n = n, .capacity = n, .t = net->in[0], .h = net->in[1], .w = net->in[2], .signal = signal};
    if (status != FLIM_OK) {
        return status;
    }
    const size_t floats = (size_t)(net->parameters > net->statistics ? net->parameters : net->statistics);
    if (!(b->mask = flim_alloc((size_t)n, (size_t)pixels, err)) ||
        !(b->label = flim_alloc((size_t)n, sizeof *b->label, err)) ||
        !(b->weight = flim_alloc((size_t)n, sizeof *b->weight, err)) ||
        !(b->id = flim_alloc((size_t)n, sizeof *b->id, err)) || !(t->state = flim_alloc(floats, sizeof(float), err)) ||
        !(t->logits = flim_alloc((size_t)n * (size_t)net->head[0].outputs, sizeof(float), err))) {
        return FLIM_ERROR_MEMORY;
    }
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
    flim_status status = flim_program_write(t->program, FLIM_STATE_PARAMETERS, t->state, err);
    if (status == FLIM_OK) {
        status = flim_program_write(t->program, FLIM_STATE_STATISTICS, statistics, err);
    }
    flim_free(statistics);
    if (status != FLIM_OK || t->request->batch == 0) {
        return status;
    }
    memset(t->state, 0, (size_t)net->parameters * sizeof(float));
    FLIM_TRY(flim_program_write(t->program, FLIM_STATE_MOMENT1, t->state, err));
    FLIM_TRY(flim_program_write(t->program, FLIM_STATE_MOMENT2, t->state, err));
    return flim_program_set_counters(t->program, &counters, err);
}

static flim_status train(trial *t, int64_t n, double *ms, flim_error *err)
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
    flim_status status = flim_program_train(t->program, &t->batch, &step, err);
    if (status == FLIM_OK) {
        status = flim_program_wait(t->program, err);
    }
    const double took = 1e3 * (flim_seconds() - begun);
    *ms = *ms == 0 || took < *ms ? took : *ms;
    return status;
}

static flim_status predict(trial *t, int64_t n, double *ms, flim_error *err)
{
    t->batch.n = n;
    const double begun = flim_seconds();
    flim_status status = flim_program_predict(t->program, &t->batch, t->logits, err);
    if (status == FLIM_OK) {
        status = flim_program_wait(t->program, err);
    }
    const double took = 1e3 * (flim_seconds() - begun);
    *ms = *ms == 0 || took < *ms ? took : *ms;
    return status;
}

static flim_status run(trial *t, flim_plan_trial *out, flim_error *err)
{
    const int64_t batch = t->request->batch, eval = flim_plan_eval_batch(t->request);
    double tail = 0;
    flim_status status = start(t, err);
    for (int i = 0; i < 3 && batch > 0 && status == FLIM_OK;
         i++) { /* full twice, and a last batch of one cell between them */
        status = i == 1 ? train(t, 1, &tail, err) : train(t, batch, &out->train_ms, err);
    }
    for (int i = 0; i < 3 && eval > 0 && status == FLIM_OK; i++) {
        status = i == 1 ? predict(t, eval > 1 ? eval / 2 : 1, &tail, err) : predict(t, eval, &out->predict_ms, err);
    }
    return status;
}

flim_status flim_plan_try(flim_device *device, const flim_plan_request *request, const flim_plan_room *room,
                          flim_plan_trial *out, flim_error *err)
{
    const int64_t eval = flim_plan_eval_batch(request);
    const bool measured = flim_device_get_info(device)->own_memory;
    trial t = {.device = device, .request = request};
    int64_t before = 0, allocated = 0, after = 0;
    *out = (flim_plan_trial){0};
    flim_status status = flim_plan_compile(device, request, room, &t.program, err);
    if (status == FLIM_OK && measured) {
        status = flim_device_memory_free(device, &before, err);
    }
    if (status == FLIM_OK) {
        status = flim_program_allocate(t.program, err);
        out->planned_bytes = status == FLIM_OK ? flim_program_peak_bytes(t.program) : 0;
    }
    if (status == FLIM_OK && measured) {
        status = flim_device_memory_free(device, &allocated, err);
    }
    if (status == FLIM_OK) {
        status = make_batch(&t, request->batch > eval ? request->batch : eval, err);
    }
    if (status == FLIM_OK) {
        status = run(&t, out, err);
    }
    if (status == FLIM_OK && measured) {
        status = flim_device_memory_free(device, &after, err);
        out->allocated_bytes = before - allocated;
        out->grown_bytes = allocated - after;
    }
    release(&t);
    return status;
}

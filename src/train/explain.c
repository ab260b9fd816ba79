#include "train/explain.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/stop.h"
#include "core/try.h"

/* One cell at work: view 0 is the cell as it is, then one view per time block, then one per pixel block. */
typedef struct pass {
    flim_trainer *trainer;
    const flim_explanation *blocks;
    int t, views;
    int64_t pixels; /* H x W */
    float *signal; /* (T,H,W) of the cell */
    uint8_t *mask; /* (H,W) */
    float *logits; /* (views,K') */
    flim_batch batch;
} pass;

static flim_status make_batch(pass *p, flim_error *err)
{
    const flim_trainer *t = p->trainer;
    const int64_t capacity = t->eval_batch < p->views ? t->eval_batch : p->views;
    flim_batch *b = &p->batch;
    bool pinned;
    void *signal = NULL, *mask = NULL;
    *b = (flim_batch){.capacity = capacity, .t = p->t, .h = t->net.in[1], .w = t->net.in[2]};
    FLIM_TRY(
        flim_device_host_alloc(t->device, (size_t)(capacity * p->t * p->pixels) * sizeof *b->signal, &signal, &pinned, err));
    b->signal = signal;
    FLIM_TRY(flim_device_host_alloc(t->device, (size_t)(capacity * p->pixels), &mask, &pinned, err));
    b->mask = mask;
    b->label = flim_alloc((size_t)capacity, sizeof *b->label, err);
    b->weight = flim_alloc((size_t)capacity, sizeof *b->weight, err);
    b->id = flim_alloc((size_t)capacity, sizeof *b->id, err);
    FLIM_TRY(b->label && b->weight && b->id ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < capacity; i++) {
        b->weight[i] = 1;
    }
    return FLIM_OK;
}

static void free_pass(pass *p)
{
    flim_device_host_free(p->trainer->device, p->batch.signal);
    flim_device_host_free(p->trainer->device, p->batch.mask);
    flim_free(p->batch.label);
    flim_free(p->batch.weight);
    flim_free(p->batch.id);
    flim_free(p->signal);
    flim_free(p->mask);
    flim_free(p->logits);
}

/* The cell without the photons of the view's block: signal (T,H,W), mask (H,W).  No photon is a signal of 0. */
static void occlude(const pass *p, int view, float *signal, uint8_t *mask)
{
    const flim_explanation *e = p->blocks;
    const int w = p->batch.w, block = view - 1 - e->t_blocks; /* of pixels */
    memcpy(signal, p->signal, (size_t)(p->t * p->pixels) * sizeof *signal);
    memcpy(mask, p->mask, (size_t)p->pixels);
    if (view > 0 && block < 0) {
        const int first = e->t_edge[view - 1], end = e->t_edge[view];
        memset(signal + first * p->pixels, 0, (size_t)((end - first) * p->pixels) * sizeof *signal);
    }
    if (block < 0) {
        return;
    }
    const int y_block = block / e->x_blocks, x_block = block % e->x_blocks;
    for (int y = e->y_edge[y_block]; y < e->y_edge[y_block + 1]; y++) {
        for (int x = e->x_edge[x_block]; x < e->x_edge[x_block + 1]; x++) {
            const int64_t pixel = (int64_t)y * w + x;
            mask[pixel] = 0;
            for (int t = 0; t < p->t; t++) {
                signal[t * p->pixels + pixel] = 0;
            }
        }
    }
}

/* All views of the cell that p holds. */
static flim_status run_views(pass *p, flim_error *err)
{
    flim_batch *b = &p->batch;
    for (int view = 0; view < p->views; view += (int)b->n) {
        const int64_t left = p->views - view;
        b->n = left < b->capacity ? left : b->capacity;
        for (int64_t i = 0; i < b->n; i++) {
            occlude(p, view + (int)i, b->signal + i * p->t * p->pixels, b->mask + i * p->pixels);
        }
        FLIM_TRY(flim_program_predict(p->trainer->program, b, p->logits + (int64_t)view * p->blocks->outputs, err));
        FLIM_TRY(flim_program_wait(p->trainer->program, err)); /* the batch is written again at once */
    }
    return FLIM_OK;
}

/* logits (views,K') into the place of cell i of the model. */
static void take_effects(const pass *p, int model, int64_t i, flim_explanation *out)
{
    const int64_t at = model * out->n + i, t_blocks = out->t_blocks, others = p->views - 1 - t_blocks;
    const int outputs = out->outputs;
    for (int k = 0; k < outputs; k++) {
        const float whole = p->logits[k];
        out->logits[at * outputs + k] = whole;
        for (int64_t b = 0; b < t_blocks; b++) {
            out->time[(at * t_blocks + b) * outputs + k] = whole - p->logits[(1 + b) * outputs + k];
        }
        for (int64_t b = 0; b < others; b++) {
            out->space[(at * others + b) * outputs + k] = whole - p->logits[(1 + t_blocks + b) * outputs + k];
        }
    }
}

static flim_status after_cell(const flim_train_hooks *hooks, int model, const flim_explanation *e, int64_t done, double begun,
                              flim_error *err)
{
    if (hooks->progress) {
        const flim_progress at = {.phase = FLIM_PHASE_PREDICT,
                                  .fold = model,
                                  .folds = e->models,
                                  .epoch = 1,
                                  .epochs = 1,
                                  .done = done,
                                  .total = e->n,
                                  .cells = done,
                                  .seconds = flim_seconds() - begun,
                                  .loss = NAN};
        hooks->progress(hooks->context, &at);
    }
    return flim_stopped(hooks->stop) ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : FLIM_OK;
}

flim_status flim_explain_model(flim_trainer *trainer, flim_dataset *dataset, const flim_train_hooks *hooks, int model,
                               flim_explanation *out, flim_error *err)
{
    const int *in = trainer->net.in;
    const double begun = flim_seconds();
    flim_reader *reader = NULL;
    flim_status status = FLIM_OK;
    pass p = {.trainer = trainer,
              .blocks = out,
              .t = in[0],
              .pixels = (int64_t)in[1] * in[2],
              .views = 1 + out->t_blocks + out->y_blocks * out->x_blocks};
    p.signal = flim_alloc((size_t)(p.t * p.pixels), sizeof *p.signal, err);
    p.mask = flim_alloc((size_t)p.pixels, sizeof *p.mask, err);
    p.logits = flim_alloc((size_t)p.views * (size_t)out->outputs, sizeof *p.logits, err);
    FLIM_TRY_DONE(p.signal && p.mask && p.logits ? make_batch(&p, err) : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_reader_create(dataset, &reader, err));
    for (int64_t i = 0; i < out->n; i++) {
        FLIM_TRY_DONE(flim_reader_signal(reader, out->cell[i], p.signal, p.mask, err));
        FLIM_TRY_DONE(run_views(&p, err));
        take_effects(&p, model, i, out);
        FLIM_TRY_DONE(after_cell(hooks, model, out, i + 1, begun, err));
    }
done:
    flim_reader_destroy(reader);
    free_pass(&p);
    return status;
}

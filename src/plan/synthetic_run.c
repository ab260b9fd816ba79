#include "plan/synthetic_run.h"

#include <string.h>

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/try.h"
#include "data/synthetic.h"
#include "flim/dataset.h"

flim_status flim_fresh_state(flim_program *program, const float *parameters, const float *statistics, flim_error *err)
{
    const flim_counters counters = {.loss_scale = program->options.precision == FLIM_PRECISION_FP16 ? 1024 : 1};
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_program_write(program, FLIM_STATE_PARAMETERS, parameters, err));
    FLIM_TRY(flim_program_write(program, FLIM_STATE_STATISTICS, statistics, err));
    if (program->options.train_batch == 0) {
        return FLIM_OK;
    }
    float *zeros = flim_alloc((size_t)program->net.parameters, sizeof *zeros, err); /* (P) */
    FLIM_TRY_DONE(zeros ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_program_write(program, FLIM_STATE_MOMENT1, zeros, err));
    FLIM_TRY_DONE(flim_program_write(program, FLIM_STATE_MOMENT2, zeros, err));
    status = flim_program_set_counters(program, &counters, err);
done:
    flim_free(zeros);
    return status;
}

flim_status flim_fresh_weights(flim_program *program, uint64_t seed, flim_error *err)
{
    const flim_network *net = &program->net;
    flim_status status = FLIM_OK;
    float *parameters = flim_alloc((size_t)net->parameters, sizeof *parameters, err);
    float *statistics = flim_alloc((size_t)net->statistics, sizeof *statistics, err);
    FLIM_TRY_DONE(parameters && statistics ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_network_init(net, seed, 0, parameters, statistics);
    status = flim_fresh_state(program, parameters, statistics, err);
done:
    flim_free(parameters);
    flim_free(statistics);
    return status;
}

flim_status flim_batch_create(flim_device *device, const flim_network *net, int64_t n, flim_batch *out, flim_error *err)
{
    const size_t cells = (size_t)n, pixels = (size_t)net->in[1] * (size_t)net->in[2], voxels = pixels * (size_t)net->in[0];
    void *signal = NULL;
    bool pinned;
    *out = (flim_batch){.n = n, .capacity = n, .t = net->in[0], .h = net->in[1], .w = net->in[2]};
    FLIM_TRY(flim_device_host_alloc(device, cells * voxels * sizeof(float), &signal, &pinned, err));
    out->signal = signal;
    out->mask = flim_alloc(cells, pixels, err);
    out->label = flim_alloc(cells, sizeof *out->label, err);
    out->weight = flim_alloc(cells, sizeof *out->weight, err);
    out->id = flim_alloc(cells, sizeof *out->id, err);
    out->target = flim_alloc(cells, (size_t)net->classes * sizeof *out->target, err);
    FLIM_TRY(out->mask && out->label && out->weight && out->id && out->target ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        out->weight[i] = 1;
    }
    for (int64_t i = 0; i < n * net->classes; i++) {
        out->target[i] = 1.0f / (float)net->classes;
    }
    return FLIM_OK;
}

void flim_batch_free(flim_device *device, flim_batch *batch)
{
    if (device) {
        flim_device_host_free(device, batch->signal);
    }
    flim_free(batch->mask);
    flim_free(batch->label);
    flim_free(batch->weight);
    flim_free(batch->target);
    flim_free(batch->id);
    *batch = (flim_batch){0};
}

void flim_batch_fill(flim_batch *b, int classes, uint64_t seed, int64_t different)
{
    const int64_t pixels = (int64_t)b->h * b->w, voxels = pixels * b->t;
    for (int64_t i = 0; i < b->n; i++) {
        float *signal = b->signal + i * voxels; /* (T,H,W) */
        uint8_t *mask = b->mask + i * pixels; /* (H,W) */
        b->id[i] = (flim_cell_id){.seed = seed, .cell = (uint32_t)i};
        if (i < different) {
            b->label[i] = flim_synthetic_cell(seed, i, classes, b->t, b->h, b->w, signal, mask);
            flim_signal_from_counts(signal, signal, voxels);
        } else {
            const int64_t like = i % different;
            b->label[i] = b->label[like];
            memcpy(signal, b->signal + like * voxels, (size_t)voxels * sizeof *signal);
            memcpy(mask, b->mask + like * pixels, (size_t)pixels);
        }
    }
}

flim_step flim_typical_step(int64_t n)
{
    flim_step step = flim_step_defaults();
    step.divisor = (double)n;
    step.learning_rate = 1e-4f;
    step.weight_decay = 1e-3f;
    step.clip = 35.0f;
    step.label_smoothing = 0.05f;
    step.dropout = 0.25f;
    return step;
}

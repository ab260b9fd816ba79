/* One unit, or the head, alone: the seam for layer tests.  The same layer and convolution code as a program's, on arrays in
 * PyTorch's layouts. */
#include <string.h>

#include "core/alloc.h"
#include "cpu/program/cpu_program.h"

/* (C,V) <-> (V,C). */
static void to_channels_last(const float *from, float *to, size_t channels, size_t voxels)
{
    for (size_t c = 0; c < channels; c++) {
        for (size_t v = 0; v < voxels; v++) {
            to[v * channels + c] = from[c * voxels + v];
        }
    }
}

static void to_channels_first(const float *from, float *to, size_t channels, size_t voxels)
{
    for (size_t c = 0; c < channels; c++) {
        for (size_t v = 0; v < voxels; v++) {
            to[c * voxels + v] = from[v * channels + c];
        }
    }
}

/* Everything of one call; arrays hold all n cells, channels last. */
typedef struct scene {
    const flim_unit_run *run;
    flim_cpu_layer layer;
    flim_cpu_conv conv;
    flim_cpu_conv_memory memory;
    flim_cpu_team team;
    flim_cpu_norm norm;
    size_t cells;
    bool backward, dropping;
    float *x, *z, *y, *skip, *dy, *dv, *dz, *dx, *rows, *dropout, *staging;
    void *weight[2], *dweight, *dweight_sum, *scratch;
    double *partial;
    float *sums; /* dgamma, dbeta, dbias: (3,C) */
} scene;

static flim_status allocate_scene(scene *s, flim_error *err)
{
    const size_t n = s->cells, back = s->backward ? n : 0;
    const flim_cpu_layer *l = &s->layer;
    const struct {
        void *at; /* address of the pointer to set */
        size_t count, size;
    } block[] = {{&s->x, n * l->x_floats, sizeof(float)},
                 {&s->z, n * l->z_floats, sizeof(float)},
                 {&s->y, n * l->y_floats, sizeof(float)},
                 {&s->skip, n * l->z_floats, sizeof(float)},
                 {&s->dy, back * l->y_floats, sizeof(float)},
                 {&s->dv, back * l->z_floats, sizeof(float)},
                 {&s->dz, back * l->z_floats, sizeof(float)},
                 {&s->dx, back * l->x_floats, sizeof(float)},
                 {&s->rows, flim_cpu_layer_row_floats(l), sizeof(float)},
                 {&s->dropout, n * l->period, sizeof(float)},
                 {&s->weight[0], s->conv.weight_bytes[0], 1},
                 {&s->weight[1], s->conv.weight_bytes[1], 1},
                 {&s->dweight, s->conv.weight_bytes[2], 1},
                 {&s->dweight_sum, s->conv.weight_bytes[2], 1},
                 {&s->scratch, s->conv.scratch_bytes, 1},
                 {&s->staging, s->conv.weight_floats, sizeof(float)},
                 {&s->partial, n * flim_cpu_layer_partials(l), sizeof(double)},
                 {&s->sums, 3 * (size_t)l->unit.out_channels, sizeof(float)}};
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++) {
        void *memory = flim_alloc_aligned(block[i].count, block[i].size, err);
        if (!memory) {
            return FLIM_ERROR_MEMORY;
        }
        memcpy(block[i].at, &memory, sizeof memory);
    }
    return FLIM_OK;
}

static void free_scene(scene *s)
{
    void *const block[] = {s->staging,   s->x,       s->z,           s->y,       s->skip,    s->dy,
                           s->dv,        s->dz,      s->dx,          s->rows,    s->dropout, s->weight[0],
                           s->weight[1], s->dweight, s->dweight_sum, s->scratch, s->partial, s->sums};
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++) {
        flim_free(block[i]);
    }
    flim_cpu_conv_memory_destroy(&s->memory);
    flim_cpu_conv_destroy(&s->conv);
}

static flim_cpu_term skip_term(const scene *s, size_t i)
{
    return s->run->skip ? flim_cpu_layer_term(&s->layer, NULL, s->skip + i * s->layer.z_floats) : (flim_cpu_term){0};
}

static flim_status forward_scene(scene *s, flim_error *err)
{
    const flim_unit_run *run = s->run;
    const flim_cpu_layer *l = &s->layer;
    const size_t in = (size_t)l->unit.in_channels, out = (size_t)l->unit.out_channels;
    flim_status status =
        flim_cpu_conv_load(&s->conv, &s->memory, FLIM_CPU_FORWARD, run->weight, s->weight[0], s->staging, s->scratch, err);
    for (size_t i = 0; i < s->cells && status == FLIM_OK; i++) {
        to_channels_last(run->x + i * l->x_floats, s->x + i * l->x_floats, in, l->x_floats / in);
        if (run->skip) {
            to_channels_last(run->skip + i * l->z_floats, s->skip + i * l->z_floats, out, l->z_floats / out);
        }
        if (s->dropping) {
            flim_cpu_layer_dropout(l, &run->id[i], run->unit, run->dropout, s->dropout + i * l->period);
        }
        status = flim_cpu_conv_forward(&s->conv, &s->memory, &s->team, s->x + i * l->x_floats, s->weight[0], run->bias,
                                       s->z + i * l->z_floats, s->scratch, err);
        flim_cpu_layer_moments(l, &s->team, s->z + i * l->z_floats, s->partial + i * flim_cpu_layer_partials(l));
    }
    if (status != FLIM_OK) {
        return status;
    }
    if (run->training) {
        flim_cpu_layer_finish_moments(&s->layer, s->z, s->partial, run->n, &s->norm);
    } else {
        flim_cpu_layer_use_running(&s->layer, &s->norm);
    }
    for (size_t i = 0; i < s->cells; i++) {
        float *y = s->y + i * l->y_floats;
        flim_cpu_layer_forward(l, &s->team, s->z + i * l->z_floats, skip_term(s, i),
                               s->dropping ? s->dropout + i * l->period : NULL, y);
        if (run->y) {
            to_channels_first(y, run->y + i * l->y_floats, out, l->y_floats / out);
        }
    }
    return FLIM_OK;
}

static flim_status backward_cell(scene *s, size_t i, bool from_dy, flim_error *err)
{
    const flim_cpu_layer *l = &s->layer;
    const size_t in = (size_t)l->unit.in_channels, out = (size_t)l->unit.out_channels;
    float *dz = s->dz + i * l->z_floats, *dx = s->dx + i * l->x_floats;
    const float *dv = (from_dy ? s->dy : s->dv) + i * l->z_floats;
    flim_cpu_layer_apply(l, &s->team, dv, from_dy && l->unit.act, s->z + i * l->z_floats, dz);
    flim_status status = flim_cpu_conv_backward_w(&s->conv, &s->memory, &s->team, s->x + i * l->x_floats, dz, i == 0,
                                                  s->dweight_sum, s->dweight, s->scratch, err);
    if (status == FLIM_OK) {
        status = flim_cpu_conv_backward_x(&s->conv, &s->memory, &s->team, dz, s->weight[1], dx, s->scratch, err);
    }
    if (s->run->dx) {
        to_channels_first(dx, s->run->dx + i * l->x_floats, in, l->x_floats / in);
    }
    if (s->run->dskip && !from_dy) {
        to_channels_first(dv, s->run->dskip + i * l->z_floats, out, l->z_floats / out);
    }
    return status;
}

static flim_status backward_scene(scene *s, flim_error *err)
{
    const flim_unit_run *run = s->run;
    const flim_cpu_layer *l = &s->layer;
    const size_t out = (size_t)l->unit.out_channels;
    const bool from_dy = l->plain_y; /* as a program does: dv of a plain unit is not stored */
    flim_status status =
        flim_cpu_conv_load(&s->conv, &s->memory, FLIM_CPU_BACKWARD_X, run->weight, s->weight[1], s->staging, s->scratch, err);
    for (size_t i = 0; i < s->cells && status == FLIM_OK; i++) {
        to_channels_last(run->dy + i * l->y_floats, s->dy + i * l->y_floats, out, l->y_floats / out);
        const bool sign = !l->plain_y && l->unit.pool_t == 1;
        const flim_cpu_layer_dv_run gate = {.dy = s->dy + i * l->y_floats,
                                            .z = s->z + i * l->z_floats,
                                            .y = sign ? s->y + i * l->y_floats : NULL,
                                            .dropout = s->dropping ? s->dropout + i * l->period : NULL,
                                            .skip = skip_term(s, i),
                                            .dv = from_dy ? NULL : s->dv + i * l->z_floats};
        flim_cpu_layer_dv(l, &s->team, &gate, s->partial + i * flim_cpu_layer_partials(l));
    }
    float *dgamma = s->sums, *dbeta = s->sums + out, *dbias = s->sums + 2 * out;
    memset(s->sums, 0, 3 * out * sizeof *s->sums);
    flim_cpu_layer_finish_dv(&s->layer, s->partial, run->n, &s->norm, dgamma, dbeta, dbias);
    for (size_t i = 0; i < s->cells && status == FLIM_OK; i++) {
        status = backward_cell(s, i, from_dy, err);
    }
    if (status == FLIM_OK && run->dweight) {
        status = flim_cpu_conv_unload(&s->conv, &s->memory, s->dweight_sum, run->dweight, s->scratch, err);
    }
    const struct {
        float *to;
        const float *from;
    } copy[] = {{run->dgamma, dgamma}, {run->dbeta, dbeta}, {run->dbias, dbias}};
    for (int k = 0; k < 3; k++) {
        if (copy[k].to) {
            memcpy(copy[k].to, copy[k].from, out * sizeof(float));
        }
    }
    return status;
}

flim_status flim_cpu_run_unit(flim_device *device, const flim_unit *unit, flim_precision precision, const flim_unit_run *run,
                              flim_error *err)
{
    (void)precision; /* fp32 is the only one */
    flim_cpu_device *cpu = (flim_cpu_device *)(void *)device;
    scene s = {.run = run, .cells = (size_t)run->n, .team = {cpu->kernels, device->info.threads}};
    if (unit->pool_t != 1 && unit->pool_t != 2) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: a pool over %d time bins; the CPU backend knows 1 and 2", unit->conv,
                         unit->pool_t);
    }
    flim_cpu_layer_init(&s.layer, unit);
    s.backward = run->training && run->dy;
    s.dropping = run->training && unit->dropout && run->dropout > 0.0f;
    s.norm = (flim_cpu_norm){run->gamma, run->beta, run->running_mean, run->running_var};
    flim_status status = flim_cpu_conv_create(&s.conv, cpu->engine, unit, s.backward, s.backward, device->info.threads, err);
    if (status == FLIM_OK) {
        status = flim_cpu_conv_memory_create(&s.memory, &s.conv, err);
    }
    if (status == FLIM_OK) {
        status = allocate_scene(&s, err);
    }
    if (status == FLIM_OK) {
        flim_cpu_layer_set_rows(&s.layer, s.rows);
        status = forward_scene(&s, err);
    }
    if (status == FLIM_OK && s.backward) {
        status = backward_scene(&s, err);
    }
    free_scene(&s);
    return status;
}

/* Mean over T,H,W of PyTorch-layout x (n,C,V), in double. */
static void head_mean(const flim_head_run *run, size_t channels, float *mean)
{
    const size_t voxels = (size_t)run->t * (size_t)run->h * (size_t)run->w;
    for (size_t i = 0; i < (size_t)run->n * channels; i++) {
        double sum = 0.0;
        for (size_t v = 0; v < voxels; v++) {
            sum += (double)run->x[i * voxels + v];
        }
        mean[i] = (float)(sum / (double)voxels);
    }
}

flim_status flim_cpu_run_head(flim_device *device, const flim_head *shape, flim_precision precision, const flim_head_run *run,
                              flim_error *err)
{
    (void)device, (void)precision;
    const size_t n = (size_t)run->n, in = (size_t)shape->in_channels, hidden = (size_t)shape->hidden;
    const size_t outputs = (size_t)shape->outputs, gradients = hidden * in + 3 * hidden + outputs * hidden + outputs;
    const bool backward =
        run->dx || run->dfc1_weight || run->dfc1_bias || run->dgamma || run->dbeta || run->dfc2_weight || run->dfc2_bias;
    flim_status status = FLIM_ERROR_MEMORY;
    double *work = flim_alloc(flim_cpu_head_work(shape, run->n), sizeof *work, err);
    float *mean = flim_alloc(2 * n * in + n * outputs + gradients, sizeof *mean, err);
    if (!work || !mean) {
        goto done;
    }
    float *dmean = mean + n * in, *logits = dmean + n * in;
    float *dfc1_weight = logits + n * outputs, *dfc1_bias = dfc1_weight + hidden * in, *dgamma = dfc1_bias + hidden;
    float *dbeta = dgamma + hidden, *dfc2_weight = dbeta + hidden, *dfc2_bias = dfc2_weight + outputs * hidden;
    const flim_cpu_head head = {*shape,          run->unit,     run->fc1_weight,   run->fc1_bias,    run->gamma,  run->beta,
                                run->fc2_weight, run->fc2_bias, run->running_mean, run->running_var, dfc1_weight, dfc1_bias,
                                dgamma,          dbeta,         dfc2_weight,       dfc2_bias,        work,        false};
    head_mean(run, in, mean);
    flim_cpu_head_forward(&head, run->n, mean, run->id, run->training, run->dropout, logits);
    if (run->logits) {
        memcpy(run->logits, logits, n * outputs * sizeof *logits);
    }
    if (run->label && run->cell_weight) {
        flim_cpu_loss loss =
            flim_cpu_head_loss(&head, run->n, logits, &(flim_cpu_targets){run->label, run->cell_weight, NULL, 0},
                               run->label_smoothing, run->divisor);
        if (run->loss) {
            *run->loss = loss.loss / run->divisor;
        }
    }
    if (backward) {
        flim_cpu_head_backward(&head, run->n, mean, dmean);
        const struct {
            float *to;
            const float *from;
            size_t count;
        } copy[] = {{run->dfc1_weight, dfc1_weight, hidden * in},
                    {run->dfc1_bias, dfc1_bias, hidden},
                    {run->dgamma, dgamma, hidden},
                    {run->dbeta, dbeta, hidden},
                    {run->dfc2_weight, dfc2_weight, outputs * hidden},
                    {run->dfc2_bias, dfc2_bias, outputs}};
        for (size_t k = 0; k < sizeof copy / sizeof copy[0]; k++) {
            if (copy[k].to) {
                memcpy(copy[k].to, copy[k].from, copy[k].count * sizeof(float));
            }
        }
        const size_t voxels = (size_t)run->t * (size_t)run->h * (size_t)run->w;
        for (size_t i = 0; run->dx && i < n * in * voxels; i++) {
            run->dx[i] = dmean[i / voxels] / (float)voxels;
        }
    }
    status = FLIM_OK;
done:
    flim_free(work);
    flim_free(mean);
    return status;
}

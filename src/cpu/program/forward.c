/* The forward pass of a training step. */
#include "cpu/program/cpu_program.h"
#include "core/try.h"

typedef struct unit_loop {
    const flim_batch *batch;
    int unit;
} unit_loop;

flim_cpu_term flim_cpu_unit_skip(const flim_cpu_program *p, int u, int64_t cell)
{
    const int skip = p->base.net.unit[u].skip;
    if (skip < 0) {
        return (flim_cpu_term){0};
    }
    const flim_cpu_node *from = &p->node[skip];
    return flim_cpu_layer_term(&from->layer, flim_cpu_z(p, from, cell),
                               from->save_y ? flim_cpu_cell(p, from->y, from->layer.y_floats, cell) : NULL);
}

static void make_y(const flim_cpu_program *p, flim_cpu_mode mode, int u, int64_t cell, float *y)
{
    const flim_cpu_node *node = &p->node[u];
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    const float *dropout = node->dropout && p->dropping ? node->dropout + (size_t)cell * node->layer.period : NULL;
    flim_cpu_layer_forward(&node->layer, &team, flim_cpu_z(p, node, cell), flim_cpu_unit_skip(p, u, cell), dropout, y);
}

static void make_input(const flim_cpu_program *p, flim_cpu_mode mode, const flim_batch *batch, int64_t cell, float *x)
{
    const int *in = p->base.net.in;
    const size_t plane = (size_t)in[1] * (size_t)in[2];
    const int bins = in[0], parts = mode == FLIM_CPU_MODE_SHARED ? p->threads : 1;
    const float *signal = batch->signal + (size_t)cell * (size_t)bins * plane;
#pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        size_t begin = (size_t)((int64_t)bins * k / parts), end = (size_t)((int64_t)bins * (k + 1) / parts);
        p->device->kernels->input(signal + begin * plane, batch->mask + (size_t)cell * plane, x + 2 * begin * plane,
                                  end - begin, plane);
    }
}

const float *flim_cpu_unit_input(const flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker,
                                 const flim_batch *batch, int u, int64_t cell)
{
    const int input = p->base.net.unit[u].input;
    if (input < 0) {
        make_input(p, mode, batch, cell, worker->x);
        return worker->x;
    }
    const flim_cpu_node *from = &p->node[input];
    if (from->save_y) {
        return flim_cpu_cell(p, from->y, from->layer.y_floats, cell);
    }
    make_y(p, mode, input, cell, worker->x);
    return worker->x;
}

/* One cell: the saved y of the unit before, where this unit is the first to read it; z; the sums of z. */
static flim_status forward_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                                flim_error *err)
{
    const unit_loop *loop = context;
    const int u = loop->unit;
    flim_cpu_node *node = &p->node[u];
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    if (u > 0 && p->node[u - 1].save_y && p->node[u - 1].y_in_next) {
        make_y(p, mode, u - 1, cell, flim_cpu_cell(p, p->node[u - 1].y, p->node[u - 1].layer.y_floats, cell));
    }
    const float *x = flim_cpu_unit_input(p, mode, worker, loop->batch, u, cell);
    float *z = flim_cpu_cell(p, node->z, node->layer.z_floats, cell);
    flim_status status =
        flim_cpu_conv_forward(&node->conv[mode], &worker->memory[u], &team, x, node->weight[mode][FLIM_CPU_FORWARD],
                              p->parameters + node->bias_offset, z, worker->scratch, err);
    flim_cpu_layer_moments(&node->layer, &team, z, p->partial + (size_t)cell * flim_cpu_layer_partials(&node->layer));
    return status;
}

static flim_status remake_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                               flim_error *err)
{
    const unit_loop *loop = context;
    const flim_cpu_node *node = &p->node[loop->unit];
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    const float *x = flim_cpu_unit_input(p, mode, worker, loop->batch, loop->unit, cell);
    return flim_cpu_conv_forward(&node->conv[mode], &worker->memory[loop->unit], &team, x,
                                 node->weight[mode][FLIM_CPU_FORWARD], p->parameters + node->bias_offset,
                                 flim_cpu_z(p, node, cell), worker->scratch, err);
}

flim_status flim_cpu_remake_block(flim_cpu_program *p, const flim_batch *batch, int block, flim_error *err)
{
    flim_status status = FLIM_OK;
    for (int u = 0; u < p->base.net.n_units && status == FLIM_OK; u++) {
        if (p->node[u].layer.unit.block == block && p->node[u].remade) {
            unit_loop loop = {batch, u};
            status = flim_cpu_for_cells(p, batch->n, remake_cell, &loop, err);
        }
    }
    return status;
}

/* A saved y that the next unit does not read. */
static flim_status keep_y_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                               flim_error *err)
{
    (void)worker, (void)err;
    const flim_cpu_node *node = &p->node[((const unit_loop *)context)->unit];
    make_y(p, mode, ((const unit_loop *)context)->unit, cell, flim_cpu_cell(p, node->y, node->layer.y_floats, cell));
    return FLIM_OK;
}

/* The mean over T,H,W of the last unit's y. */
static flim_status mean_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                             flim_error *err)
{
    (void)context, (void)err;
    const int last = p->base.net.n_units - 1;
    const flim_cpu_node *node = &p->node[last];
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    float *y = node->save_y ? flim_cpu_cell(p, node->y, node->layer.y_floats, cell) : worker->x;
    double *partial = p->partial + (size_t)cell * flim_cpu_layer_partials(&node->layer);
    make_y(p, mode, last, cell, y);
    flim_cpu_layer_pool(&node->layer, &team, y, partial);
    flim_cpu_layer_finish_pool(&node->layer, partial, p->mean + cell * p->base.net.head[0].in_channels);
    return FLIM_OK;
}

static void draw_dropout(flim_cpu_program *p, const flim_batch *batch, float dropout)
{
    p->dropping = dropout > 0.0f;
    for (int u = 0; u < p->base.net.n_units && p->dropping; u++) {
        const flim_cpu_node *node = &p->node[u];
        for (int64_t i = 0; node->dropout && i < batch->n; i++) {
            flim_cpu_layer_dropout(&node->layer, &batch->id[i], (uint32_t)u, dropout,
                                   node->dropout + (size_t)i * node->layer.period);
        }
    }
}

flim_status flim_cpu_forward_pass(flim_cpu_program *p, const flim_batch *batch, float dropout, flim_error *err)
{
    const int units = p->base.net.n_units;
    flim_status status = flim_cpu_refresh_weights(p, batch->n, true, err);
    draw_dropout(p, batch, dropout);
    for (int u = 0; u < units && status == FLIM_OK; u++) {
        flim_cpu_node *node = &p->node[u];
        unit_loop loop = {batch, u};
        FLIM_TRY(flim_cpu_for_cells(p, batch->n, forward_cell, &loop, err));
        const flim_cpu_norm norm = flim_cpu_node_norm(p, node);
        if (p->frozen) {
            flim_cpu_layer_use_running(&node->layer, &norm);
        } else {
            flim_cpu_layer_finish_moments(&node->layer, flim_cpu_cell(p, node->z, 0, 0), p->partial, batch->n, &norm);
        }
        if (node->save_y && !node->y_in_next && u < units - 1) {
            status = flim_cpu_for_cells(p, batch->n, keep_y_cell, &loop, err);
        }
    }
    if (status == FLIM_OK) {
        status = flim_cpu_for_cells(p, batch->n, mean_cell, NULL, err);
    }
    if (status == FLIM_OK) {
        const flim_cpu_head head = flim_cpu_program_head(p, true);
        flim_cpu_head_forward(&head, batch->n, p->mean, batch->id, true, dropout, p->logits);
    }
    return status;
}

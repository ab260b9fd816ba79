/* The backward pass of a training step. */
#include <string.h>

#include "cpu/program/cpu_program.h"

typedef struct unit_loop {
    const flim_batch *batch;
    int unit;
} unit_loop;

static const float *source_cell(const flim_cpu_program *p, const flim_cpu_node *node, int s, int64_t cell)
{
    const flim_cpu_node *from = &p->node[node->source[s].from];
    return node->source[s].skip ? flim_cpu_cell(p, from->dv, from->layer.z_floats, cell)
                                : flim_cpu_cell(p, from->dx, from->layer.x_floats, cell);
}

/* dy of the last unit: every voxel of a channel has the same share of the mean's gradient. */
static const float *spread_mean(const flim_cpu_program *p, flim_cpu_worker *worker, const flim_cpu_layer *layer, int64_t cell)
{
    const size_t channels = (size_t)layer->unit.out_channels, voxels = layer->y_floats / channels;
    const float *dmean = p->dmean + (size_t)cell * channels;
    for (size_t c = 0; c < channels; c++) {
        worker->x[c] = dmean[c] / (float)voxels;
    }
    for (size_t v = 1; v < voxels; v++) {
        memcpy(worker->x + v * channels, worker->x, channels * sizeof(float));
    }
    return worker->x;
}

/* dy of a unit's y for a cell; what does not fit *second is added into the first. */
static const float *unit_dy(const flim_cpu_program *p, flim_cpu_worker *worker, int u, int64_t cell, const float **second)
{
    const flim_cpu_node *node = &p->node[u];
    *second = NULL;
    if (node->n_sources == 0) {
        return spread_mean(p, worker, &node->layer, cell);
    }
    if (node->n_sources > 1) {
        *second = source_cell(p, node, 1, cell);
    }
    for (int s = 2; s < node->n_sources; s++) {
        const flim_cpu_node *from = &p->node[node->source[0].from];
        float *first = node->source[0].skip ? flim_cpu_cell(p, from->dv, from->layer.z_floats, cell)
                                            : flim_cpu_cell(p, from->dx, from->layer.x_floats, cell);
        p->device->kernels->add(first, source_cell(p, node, s, cell), node->layer.y_floats);
    }
    return source_cell(p, node, 0, cell);
}

static void gate_unit(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int u, int64_t cell)
{
    flim_cpu_node *node = &p->node[u];
    const flim_cpu_layer *layer = &node->layer;
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    flim_cpu_layer_gate_run run = {.z = flim_cpu_z(p, node, cell), .skip = flim_cpu_unit_skip(p, u, cell)};
    run.dy = unit_dy(p, worker, u, cell, &run.dy2);
    run.y = node->save_y && layer->unit.pool_t == 1 ? flim_cpu_cell(p, node->y, layer->y_floats, cell) : NULL;
    run.dropout = node->dropout && p->dropping ? node->dropout + (size_t)cell * layer->period : NULL;
    run.dv = node->store_dv ? flim_cpu_cell(p, node->dv, layer->z_floats, cell) : NULL;
    flim_cpu_layer_gate(layer, &team, &run, p->partial + (size_t)cell * flim_cpu_layer_partials(layer));
}

static flim_status gate_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                             flim_error *err)
{
    (void)err;
    gate_unit(p, mode, worker, ((const unit_loop *)context)->unit, cell);
    return FLIM_OK;
}

/* One cell: dz, the weight gradient, dx, and the gate of the unit before where its dy is then complete. */
static flim_status backward_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell,
                                 void *context, flim_error *err)
{
    const unit_loop *loop = context;
    const int u = loop->unit;
    flim_cpu_node *node = &p->node[u];
    const flim_cpu_layer *layer = &node->layer;
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    const float *second;
    const float *dv =
        node->store_dv ? flim_cpu_cell(p, node->dv, layer->z_floats, cell) : unit_dy(p, worker, u, cell, &second);
    flim_cpu_layer_apply(layer, &team, dv, !node->store_dv && layer->unit.act, flim_cpu_z(p, node, cell), worker->dz);
    const float *x = flim_cpu_unit_input(p, mode, worker, loop->batch, u, cell);
    flim_status status = flim_cpu_conv_backward_w(&node->conv[mode], &worker->memory[u], &team, x, worker->dz,
                                                  !worker->summed, worker->sum, worker->dweight, worker->scratch, err);
    worker->summed = true;
    if (status == FLIM_OK && layer->unit.input >= 0) {
        status = flim_cpu_conv_backward_x(&node->conv[mode], &worker->memory[u], &team, worker->dz,
                                          node->weight[mode][FLIM_CPU_BACKWARD_X],
                                          flim_cpu_cell(p, node->dx, layer->x_floats, cell), worker->scratch, err);
    }
    if (status == FLIM_OK && u > 0 && p->node[u - 1].from_next) {
        gate_unit(p, mode, worker, u - 1, cell);
    }
    return status;
}

/* Adds the workers' sums in order and the result to the gradient of the unit's weights. */
static flim_status gather_weight_gradient(flim_cpu_program *p, int u, flim_error *err)
{
    const flim_cpu_node *node = &p->node[u];
    for (int w = 1; w < p->cell_workers; w++) {
        if (p->workers[w].summed) {
            p->device->kernels->add(p->workers[0].sum, p->workers[w].sum,
                                    node->conv[FLIM_CPU_MODE_CELLS].weight_bytes[FLIM_CPU_BACKWARD_W] / sizeof(float));
        }
    }
    for (int mode = 0; mode < FLIM_CPU_MODES; mode++) {
        if (!p->uses[mode]) {
            continue;
        }
        flim_cpu_worker *worker = &p->workers[mode == FLIM_CPU_MODE_CELLS ? 0 : p->cell_workers];
        if (!worker->summed) {
            continue;
        }
        flim_status status =
            flim_cpu_conv_unload(&node->conv[mode], &worker->memory[u], worker->sum, p->plain, worker->scratch, err);
        if (status != FLIM_OK) {
            return status;
        }
        p->device->kernels->add(p->gradients + node->weight_offset, p->plain, node->conv[mode].weight_floats);
    }
    return FLIM_OK;
}

flim_status flim_cpu_backward_pass(flim_cpu_program *p, const flim_batch *batch, flim_error *err)
{
    const flim_cpu_head head = flim_cpu_program_head(p, true);
    flim_cpu_head_backward(&head, batch->n, p->mean, p->dmean);
    const int workers = p->cell_workers + (p->uses[FLIM_CPU_MODE_SHARED] ? 1 : 0);
    for (int u = p->base.net.n_units - 1; u >= 0; u--) {
        flim_cpu_node *node = &p->node[u];
        unit_loop loop = {batch, u};
        flim_status status = FLIM_OK;
        if (u > 0 && p->node[u - 1].layer.unit.block !=
                         node->layer.unit.block) { /* the loop below may run the gate of the block before */
            status = flim_cpu_remake_block(p, batch, p->node[u - 1].layer.unit.block, err);
        }
        if (status == FLIM_OK && !node->from_next) {
            status = flim_cpu_for_cells(p, batch->n, gate_cell, &loop, err);
        }
        const flim_cpu_norm norm = flim_cpu_node_norm(p, node);
        flim_cpu_layer_finish_gate(
            &node->layer, p->partial, batch->n, &norm, node->layer.bn ? p->gradients + node->gamma_offset : NULL,
            node->layer.bn ? p->gradients + node->beta_offset : NULL, p->gradients + node->bias_offset);
        for (int w = 0; w < workers; w++) {
            p->workers[w].summed = false;
        }
        if (status == FLIM_OK) {
            status = flim_cpu_for_cells(p, batch->n, backward_cell, &loop, err);
        }
        if (status == FLIM_OK) {
            status = gather_weight_gradient(p, u, err);
        }
        if (status != FLIM_OK) {
            return status;
        }
    }
    return FLIM_OK;
}

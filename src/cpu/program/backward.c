#include "cpu/program/backward.h"

#include "core/try.h"
#include "cpu/program/cell_loop.h"
#include "cpu/program/cpu_sync.h"
#include "cpu/program/forward.h"
#include "cpu/program/heads.h"

static float *source_cell(const flim_cpu_program *p, const flim_cpu_node *node, int s, int64_t cell)
{
    const flim_cpu_node *from = &p->node[node->source[s].from];
    return node->source[s].skip ? flim_cpu_cell(p, from->dv, from->layer.z_floats, cell)
                                : flim_cpu_cell(p, from->dx, from->layer.x_floats, cell);
}

/* dy of a unit's y for a cell: the sum of the result and *second, which may be NULL.  What a third and later reader gives is
 * added into the first's. */
static const float *unit_dy(const flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, const flim_batch *batch,
                            int u, int64_t cell, const float **second)
{
    const flim_cpu_node *node = &p->node[u];
    const float *given[2 * FLIM_MAX_UNITS + 1] = {NULL}, *heads = flim_cpu_heads_dy(p, mode, worker, batch, u, cell);
    int n = 0;
    for (; n < node->n_sources; n++) {
        given[n] = source_cell(p, node, n, cell);
    }
    if (heads) {
        given[n++] = heads;
    }
    for (int s = 2; s < n; s++) {
        p->device->kernels->add(source_cell(p, node, 0, cell), given[s], node->layer.y_floats);
    }
    *second = n > 1 ? given[1] : NULL;
    return given[0];
}

/* dv of a cell and its sums. */
static void unit_dv(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, const flim_batch *batch, int u,
                    int64_t cell)
{
    flim_cpu_node *node = &p->node[u];
    const flim_cpu_layer *layer = &node->layer;
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    flim_cpu_layer_dv_run run = {.z = flim_cpu_z(p, node, cell), .skip = flim_cpu_unit_skip(p, u, cell)};
    run.dy = unit_dy(p, mode, worker, batch, u, cell, &run.dy2);
    run.y = node->save_y && layer->unit.pool_t == 1 ? flim_cpu_cell(p, node->y, layer->y_floats, cell) : NULL;
    run.dropout = flim_cpu_unit_dropout(p, u, cell);
    run.dv = node->store_dv ? flim_cpu_cell(p, node->dv, layer->z_floats, cell) : NULL;
    flim_cpu_layer_dv(layer, &team, &run, p->partial + (size_t)cell * flim_cpu_layer_partials(layer));
}

static flim_status dv_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                           flim_error *err)
{
    (void)err;
    const flim_cpu_unit_loop *loop = context;
    unit_dv(p, mode, worker, loop->batch, loop->unit, cell);
    return FLIM_OK;
}

/* One cell: dz, the weight gradient, dx, and dv of the unit before if its dy is then complete. */
static flim_status backward_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell,
                                 void *context, flim_error *err)
{
    const flim_cpu_unit_loop *loop = context;
    const int u = loop->unit;
    flim_cpu_node *node = &p->node[u];
    const flim_cpu_layer *layer = &node->layer;
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    const float *second;
    const float *dv = node->store_dv ? flim_cpu_cell(p, node->dv, layer->z_floats, cell)
                                     : unit_dy(p, mode, worker, loop->batch, u, cell, &second);
    float *dz = node->dz == FLIM_NO_BUFFER ? worker->dz : flim_cpu_cell(p, node->dz, layer->z_floats, cell);
    flim_cpu_layer_apply(layer, &team, dv, !node->store_dv && layer->unit.act, flim_cpu_z(p, node, cell), dz);
    const float *x = flim_cpu_unit_input(p, mode, worker, loop->batch, u, cell);
    FLIM_TRY(flim_cpu_conv_backward_w(&node->conv[mode], &worker->memory[u], &team, x, dz, !worker->summed, worker->sum,
                                      worker->dweight, worker->scratch, err));
    worker->summed = true;
    if (layer->unit.input >= 0) {
        FLIM_TRY(flim_cpu_conv_backward_x(&node->conv[mode], &worker->memory[u], &team, dz,
                                          node->weight[mode][FLIM_CPU_BACKWARD_X],
                                          flim_cpu_cell(p, node->dx, layer->x_floats, cell), worker->scratch, err));
    }
    if (u > 0 && p->node[u - 1].dv_in_next) {
        unit_dv(p, mode, worker, loop->batch, u - 1, cell);
    }
    return FLIM_OK;
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
        FLIM_TRY(flim_cpu_conv_unload(&node->conv[mode], &worker->memory[u], worker->sum, p->plain, worker->scratch, err));
        p->device->kernels->add(p->gradients + node->weight_offset, p->plain, node->conv[mode].weight_floats);
    }
    return FLIM_OK;
}

static flim_status finish_dv(flim_cpu_program *p, flim_cpu_node *node, int64_t n, flim_error *err)
{
    const flim_cpu_norm norm = flim_cpu_node_norm(p, node);
    const bool bn = node->layer.bn;
    const double *all = p->own;
    flim_cpu_layer_sum_dv(&node->layer, p->partial, n, p->own);
    FLIM_TRY(bn ? flim_cpu_sync_sums(p, 2 * (size_t)node->layer.unit.out_channels, &all, err) : FLIM_OK);
    flim_cpu_layer_finish_dv(&node->layer, p->own, all, &norm, bn ? p->gradients + node->gamma_offset : NULL,
                             bn ? p->gradients + node->beta_offset : NULL, p->gradients + node->bias_offset);
    return FLIM_OK;
}

static flim_status unit_backward(flim_cpu_program *p, const flim_batch *batch, int u, flim_error *err)
{
    flim_cpu_node *node = &p->node[u];
    flim_cpu_unit_loop loop = {batch, u};
    const int workers = p->cell_workers + (p->uses[FLIM_CPU_MODE_SHARED] ? 1 : 0);
    if (!node->dv_in_next) {
        FLIM_TRY(flim_cpu_for_cells(p, batch->n, dv_cell, &loop, err));
    }
    FLIM_TRY(finish_dv(p, node, batch->n, err));
    for (int w = 0; w < workers; w++) {
        p->workers[w].summed = false;
    }
    FLIM_TRY(flim_cpu_for_cells(p, batch->n, backward_cell, &loop, err));
    return gather_weight_gradient(p, u, err);
}

flim_status flim_cpu_backward_pass(flim_cpu_program *p, const flim_batch *batch, flim_error *err)
{
    FLIM_TRY(flim_cpu_heads_backward(p, batch->n, err));
    for (int u = p->base.net.n_units - 1; u >= 0; u--) {
        const int before = u > 0 ? p->node[u - 1].layer.unit.block : p->node[u].layer.unit.block;
        if (before != p->node[u].layer.unit.block) { /* the loop below may compute dv of the block before */
            FLIM_TRY(flim_cpu_recompute_block(p, batch, before, err));
        }
        FLIM_TRY(unit_backward(p, batch, u, err));
    }
    return FLIM_OK;
}

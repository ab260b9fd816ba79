#include "cpu/program/forward.h"

#include "core/try.h"
#include "cpu/program/cell_loop.h"
#include "cpu/program/cpu_sync.h"
#include "data/hide.h"

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

const float *flim_cpu_unit_dropout(const flim_cpu_program *p, int u, int64_t cell)
{
    const flim_cpu_node *node = &p->node[u];
    return node->dropout && p->step->block_dropout > 0.0f ? node->dropout + (size_t)cell * node->layer.period : NULL;
}

void flim_cpu_make_y(const flim_cpu_program *p, flim_cpu_mode mode, int u, int64_t cell, float *y)
{
    const flim_cpu_node *node = &p->node[u];
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    flim_cpu_layer_forward(&node->layer, &team, flim_cpu_z(p, node, cell), flim_cpu_unit_skip(p, u, cell),
                           flim_cpu_unit_dropout(p, u, cell), y);
}

/* Voxels of a cell. */
static size_t cell_voxels(const flim_network *net)
{
    return (size_t)net->in[0] * (size_t)net->in[1] * (size_t)net->in[2];
}

static flim_status hide_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                             flim_error *err)
{
    (void)mode, (void)worker, (void)err;
    const flim_batch *batch = ((const flim_cpu_unit_loop *)context)->batch;
    const int *in = p->base.net.in;
    (void)flim_hide_cell(&batch->id[cell], p->step->hide_share, in[0], in[1], in[2],
                         batch->mask + (size_t)cell * (size_t)in[1] * (size_t)in[2],
                         p->hidden + (size_t)cell * cell_voxels(&p->base.net));
    return FLIM_OK;
}

flim_status flim_cpu_hide(flim_cpu_program *p, const flim_batch *batch, flim_error *err)
{
    flim_cpu_unit_loop loop = {batch, 0};
    return p->base.net.channels == 3 ? flim_cpu_for_cells(p, batch->n, hide_cell, &loop, err) : FLIM_OK;
}

/* Signal where it is seen, mask, and what is hidden. */
static void make_hidden_input(const flim_cpu_program *p, const flim_batch *batch, int64_t cell, float *x)
{
    const size_t voxels = cell_voxels(&p->base.net), plane = voxels / (size_t)p->base.net.in[0];
    const float *signal = batch->signal + (size_t)cell * voxels;
    const unsigned char *mask = batch->mask + (size_t)cell * plane, *hidden = p->hidden + (size_t)cell * voxels;
    for (size_t i = 0; i < voxels; i++) {
        x[3 * i] = hidden[i] ? 0.0f : signal[i];
        x[3 * i + 1] = mask[i % plane] ? 1.0f : 0.0f;
        x[3 * i + 2] = hidden[i] ? 1.0f : 0.0f;
    }
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
        if (p->base.net.channels == 3) {
            make_hidden_input(p, batch, cell, worker->x);
        } else {
            make_input(p, mode, batch, cell, worker->x);
        }
        return worker->x;
    }
    const flim_cpu_node *from = &p->node[input];
    if (from->save_y) {
        return flim_cpu_cell(p, from->y, from->layer.y_floats, cell);
    }
    flim_cpu_make_y(p, mode, input, cell, worker->x);
    return worker->x;
}

/* One cell: the saved y of the unit before, if this unit is the first to read it; z; the sums of z. */
static flim_status forward_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                                flim_error *err)
{
    const flim_cpu_unit_loop *loop = context;
    const int u = loop->unit;
    flim_cpu_node *node = &p->node[u];
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    if (u > 0 && p->node[u - 1].save_y && p->node[u - 1].y_in_next) {
        flim_cpu_make_y(p, mode, u - 1, cell, flim_cpu_cell(p, p->node[u - 1].y, p->node[u - 1].layer.y_floats, cell));
    }
    const float *x = flim_cpu_unit_input(p, mode, worker, loop->batch, u, cell);
    float *z = flim_cpu_cell(p, node->z, node->layer.z_floats, cell);
    FLIM_TRY(flim_cpu_conv_forward(&node->conv[mode], &worker->memory[u], &team, x, node->weight[mode][FLIM_CPU_FORWARD],
                                   p->parameters + node->bias_offset, z, worker->scratch, err));
    flim_cpu_layer_moments(&node->layer, &team, z, p->partial + (size_t)cell * flim_cpu_layer_partials(&node->layer));
    return FLIM_OK;
}

static flim_status recompute_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell,
                                  void *context, flim_error *err)
{
    const flim_cpu_unit_loop *loop = context;
    const flim_cpu_node *node = &p->node[loop->unit];
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    const float *x = flim_cpu_unit_input(p, mode, worker, loop->batch, loop->unit, cell);
    return flim_cpu_conv_forward(&node->conv[mode], &worker->memory[loop->unit], &team, x,
                                 node->weight[mode][FLIM_CPU_FORWARD], p->parameters + node->bias_offset,
                                 flim_cpu_z(p, node, cell), worker->scratch, err);
}

flim_status flim_cpu_recompute_block(flim_cpu_program *p, const flim_batch *batch, int block, flim_error *err)
{
    for (int u = 0; u < p->base.net.n_units; u++) {
        if (p->node[u].layer.unit.block == block && p->node[u].recomputed) {
            flim_cpu_unit_loop loop = {batch, u};
            FLIM_TRY(flim_cpu_for_cells(p, batch->n, recompute_cell, &loop, err));
        }
    }
    return FLIM_OK;
}

/* A saved y that the next unit does not read. */
static flim_status save_y_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                               flim_error *err)
{
    (void)worker, (void)err;
    const int u = ((const flim_cpu_unit_loop *)context)->unit;
    flim_cpu_make_y(p, mode, u, cell, flim_cpu_cell(p, p->node[u].y, p->node[u].layer.y_floats, cell));
    return FLIM_OK;
}

static void draw_dropout(flim_cpu_program *p, const flim_batch *batch)
{
    for (int u = 0; u < p->base.net.n_units && p->step->block_dropout > 0.0f; u++) {
        const flim_cpu_node *node = &p->node[u];
        for (int64_t i = 0; node->dropout && i < batch->n; i++) {
            flim_cpu_layer_dropout(&node->layer, &batch->id[i], (uint32_t)u, p->step->block_dropout,
                                   node->dropout + (size_t)i * node->layer.period);
        }
    }
}

static flim_status finish_moments(flim_cpu_program *p, flim_cpu_node *node, int64_t n, flim_error *err)
{
    const flim_cpu_norm norm = flim_cpu_node_norm(p, node);
    const double *moments = p->own;
    if (p->frozen) {
        flim_cpu_layer_use_running(&node->layer, &norm);
        return FLIM_OK;
    }
    flim_cpu_layer_merge_moments(&node->layer, flim_cpu_cell(p, node->z, 0, 0), p->partial, n, p->own);
    FLIM_TRY(node->layer.bn ? flim_cpu_sync_moments(p, node->layer.unit.out_channels, &moments, err) : FLIM_OK);
    flim_cpu_layer_finish_moments(&node->layer, moments, &norm);
    return FLIM_OK;
}

flim_status flim_cpu_forward_pass(flim_cpu_program *p, const flim_batch *batch, flim_error *err)
{
    FLIM_TRY(flim_cpu_refresh_weights(p, batch->n, true, err));
    draw_dropout(p, batch);
    FLIM_TRY(flim_cpu_hide(p, batch, err));
    for (int u = 0; u < p->base.net.n_units; u++) {
        flim_cpu_node *node = &p->node[u];
        flim_cpu_unit_loop loop = {batch, u};
        FLIM_TRY(flim_cpu_for_cells(p, batch->n, forward_cell, &loop, err));
        FLIM_TRY(finish_moments(p, node, batch->n, err));
        if (node->save_y && !node->y_in_next) {
            FLIM_TRY(flim_cpu_for_cells(p, batch->n, save_y_cell, &loop, err));
        }
    }
    return FLIM_OK;
}

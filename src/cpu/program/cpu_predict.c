/* Running statistics, no dropout, nothing stored: each cell goes through the whole network in its worker's buffers. */
#include "cpu/program/cpu_predict.h"

#include "core/try.h"
#include "cpu/program/cell_loop.h"
#include "cpu/program/forward.h"
#include "cpu/program/heads.h"

typedef struct predict_loop {
    const flim_batch *batch;
    float *logits; /* NULL: hidden voxels are evaluated instead */
} predict_loop;

float *flim_cpu_eval_cell(const flim_cpu_program *p, const flim_cpu_worker *worker, int buffer, int64_t cell)
{
    size_t slot = p->base.options.inspect                  ? (size_t)cell
                  : worker == &p->workers[p->cell_workers] ? 0
                                                           : (size_t)(worker - p->workers);
    return (float *)(void *)(p->activations + slot * (size_t)p->eval_arena.bytes + p->eval_arena.buffer[buffer].offset);
}

static flim_status predict_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                                flim_error *err)
{
    const predict_loop *loop = context;
    const flim_network *net = &p->base.net;
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    for (int u = 0; u < net->n_units; u++) {
        const flim_cpu_node *node = &p->node[u];
        const flim_unit *unit = &net->unit[u];
        const float *x = unit->input < 0 ? flim_cpu_unit_input(p, mode, worker, loop->batch, u, cell)
                                         : flim_cpu_eval_cell(p, worker, p->node[unit->input].eval_y, cell);
        float *z = flim_cpu_eval_cell(p, worker, node->eval_z, cell);
        FLIM_TRY(flim_cpu_conv_forward(&node->conv[mode], &worker->memory[u], &team, x, node->weight[mode][FLIM_CPU_FORWARD],
                                       p->parameters + node->bias_offset, z, worker->scratch, err));
        flim_cpu_term skip = {0};
        if (unit->skip >= 0) {
            const flim_cpu_node *from = &p->node[unit->skip];
            skip = flim_cpu_layer_term(&from->layer, NULL, flim_cpu_eval_cell(p, worker, from->eval_y, cell));
        }
        flim_cpu_layer_forward(&node->layer, &team, z, skip, NULL, flim_cpu_eval_cell(p, worker, node->eval_y, cell));
    }
    for (int k = 0; k < net->n_heads; k++) {
        const float *y = flim_cpu_eval_cell(p, worker, p->node[net->head[k].unit].eval_y, cell);
        if (loop->logits) {
            flim_cpu_heads_read(p, mode, k, loop->batch->n, cell, y, loop->logits);
        } else {
            flim_cpu_heads_evaluate(p, worker, k, loop->batch, cell, y);
        }
    }
    return FLIM_OK;
}

static flim_status run_cells(flim_cpu_program *p, const flim_step *step, predict_loop *loop, flim_error *err)
{
    const flim_batch *batch = loop->batch;
    p->step = step;
    FLIM_TRY(flim_cpu_hide(p, batch, err));
    FLIM_TRY(flim_cpu_refresh_weights(p, batch->n, false, err));
    for (int u = 0; u < p->base.net.n_units; u++) {
        const flim_cpu_norm norm = flim_cpu_node_norm(p, &p->node[u]);
        flim_cpu_layer_use_running(&p->node[u].layer, &norm);
    }
    return flim_cpu_for_cells(p, batch->n, predict_cell, loop, err);
}

flim_status flim_cpu_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err)
{
    static const flim_step nothing_hidden = {.divisor = 1};
    flim_cpu_program *p = (flim_cpu_program *)(void *)program;
    predict_loop loop = {batch, logits};
    FLIM_TRY(run_cells(p, &nothing_hidden, &loop, err));
    flim_cpu_heads_predict(p, batch->n, logits);
    return FLIM_OK;
}

flim_status flim_cpu_evaluate(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err)
{
    flim_cpu_program *p = (flim_cpu_program *)(void *)program;
    predict_loop loop = {batch, NULL};
    FLIM_TRY(run_cells(p, step, &loop, err));
    flim_cpu_heads_add_hidden(p, batch->n);
    return FLIM_OK;
}

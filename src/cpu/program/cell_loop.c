#include "cpu/program/cell_loop.h"

#include <omp.h>

#include "core/try.h"

/* Cells that MODE_CELLS takes of n. */
static int64_t shared_out(const flim_cpu_program *p, int64_t n)
{
    return p->cell_workers > 0 ? n / p->cell_workers * p->cell_workers : 0;
}

flim_status flim_cpu_for_cells(flim_cpu_program *p, int64_t n, flim_cpu_body *body, void *context, flim_error *err)
{
    const int64_t alone = shared_out(p, n);
    flim_status status = FLIM_OK;
    if (alone > 0) {
        const int64_t each = alone / p->cell_workers;
#pragma omp parallel for schedule(static, 1) num_threads(p->cell_workers)
        for (int w = 0; w < p->cell_workers; w++) {
            flim_error own = {0};
            flim_status result = FLIM_OK;
            for (int64_t i = w * each; i < (w + 1) * each && result == FLIM_OK; i++) {
                result = body(p, FLIM_CPU_MODE_CELLS, &p->workers[w], i, context, &own);
            }
            if (result != FLIM_OK) {
#pragma omp critical(flim_cpu_for_cells_error)
                status = flim_fail(err, result, "%s", own.text);
            }
        }
    }
    FLIM_TRY(status);
    for (int64_t i = alone; i < n; i++) {
        FLIM_TRY(body(p, FLIM_CPU_MODE_SHARED, &p->workers[p->cell_workers], i, context, err));
    }
    return FLIM_OK;
}

flim_status flim_cpu_refresh_weights(flim_cpu_program *p, int64_t n, bool backward, flim_error *err)
{
    const int64_t alone = shared_out(p, n);
    const bool needed[FLIM_CPU_MODES] = {alone > 0, alone < n};
    for (int mode = 0; mode < FLIM_CPU_MODES; mode++) {
        flim_cpu_worker *worker = &p->workers[mode == FLIM_CPU_MODE_CELLS ? 0 : p->cell_workers];
        for (int d = FLIM_CPU_FORWARD; d <= (backward ? FLIM_CPU_BACKWARD_X : FLIM_CPU_FORWARD); d++) {
            if (!needed[mode] || !p->stale[mode][d]) {
                continue;
            }
            for (int u = 0; u < p->base.net.n_units; u++) {
                flim_cpu_node *node = &p->node[u];
                if (node->conv[mode].weight_bytes[d] == 0) {
                    continue;
                }
                FLIM_TRY(flim_cpu_conv_load(&node->conv[mode], &worker->memory[u], (flim_cpu_direction)d,
                                            p->parameters + node->weight_offset, node->weight[mode][d], p->plain,
                                            worker->scratch, err));
            }
            p->stale[mode][d] = false;
        }
    }
    return FLIM_OK;
}

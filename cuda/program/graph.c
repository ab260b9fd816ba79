#include "cuda/program/graph.h"

#include <string.h>

#include "cuda/device/check.h"
#include "cuda/program/launch.h"

static flim_status capture(flim_cuda_program *p, flim_schedule *schedule, flim_graph *graph, flim_error *err)
{
    cudaGraph_t captured = NULL;
    flim_status status;
    FLIM_TRY_CUDA_DONE(cudaStreamBeginCapture(p->launch.stream, cudaStreamCaptureModeThreadLocal));
    status = flim_cuda_run_schedule(p, schedule, graph->n, graph->first, graph->last, err);
    cudaError_t code = cudaStreamEndCapture(p->launch.stream, &captured);
    if (status == FLIM_OK) {
        FLIM_TRY_DONE(flim_cuda_check(code, "capturing a step", err));
        FLIM_TRY_CUDA_DONE(cudaGraphInstantiate(&graph->exec, captured, 0));
    }
done:
    if (captured) {
        (void)cudaGraphDestroy(captured);
    }
    (void)cudaGetLastError();
    return status;
}

flim_status flim_graph_run(flim_cuda_program *p, flim_schedule *schedule, int64_t n, bool first, bool last, flim_error *err)
{
    if (p->graphs_off || !schedule->warm[first][last]) {
        schedule->warm[first][last] = true;
        return flim_cuda_run_schedule(p, schedule, n, first, last, err);
    }
    for (int i = 0; i < p->n_graphs; i++) {
        const flim_graph *g = &p->graph[i];
        if (g->train == schedule->train && g->n == n && g->first == first && g->last == last) {
            return flim_cuda_check(cudaGraphLaunch(g->exec, p->launch.stream), "launching a step", err);
        }
    }
    if (p->n_graphs == FLIM_MAX_GRAPHS) { /* rarely more than a handful: the oldest goes */
        FLIM_TRY(flim_cuda_check(cudaStreamSynchronize(p->launch.stream), "a step", err));
        (void)cudaGraphExecDestroy(p->graph[0].exec);
        memmove(&p->graph[0], &p->graph[1], (FLIM_MAX_GRAPHS - 1) * sizeof p->graph[0]);
        p->n_graphs--;
    }
    flim_graph *graph = &p->graph[p->n_graphs];
    *graph = (flim_graph){.train = schedule->train, .first = first, .last = last, .n = n};
    flim_error why = {0};
    if (capture(p, schedule, graph, &why) != FLIM_OK) {
        p->graphs_off = true;
        flim_log_line(
            p->base.options.log, FLIM_LOG_WARNING,
            "a step could not be captured as a CUDA graph, so its kernels are launched one by one, which is slower: %s",
            why.text);
        return flim_cuda_run_schedule(p, schedule, n, first, last, err);
    }
    p->n_graphs++;
    return flim_cuda_check(cudaGraphLaunch(graph->exec, p->launch.stream), "launching a step", err);
}

void flim_graph_free(flim_cuda_program *p)
{
    for (int i = 0; i < p->n_graphs; i++) {
        (void)cudaGraphExecDestroy(p->graph[i].exec);
    }
    p->n_graphs = 0;
}

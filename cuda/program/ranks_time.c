#include "cuda/program/ranks_time.h"

#include <stdlib.h>

#include "cuda/device/check.h"
#include "cuda/program/execute.h"
#include "cuda/program/launch.h"

enum { STEPS = 7, EVENTS = sizeof(flim_cuda_marks) / sizeof(cudaEvent_t) };

typedef union step_marks {
    flim_cuda_marks by_name;
    cudaEvent_t event[EVENTS];
} step_marks;

static flim_status make_events(step_marks steps[STEPS], flim_error *err)
{
    for (int i = 0; i < STEPS * EVENTS; i++) {
        FLIM_TRY_CUDA(cudaEventCreate(&steps[i / EVENTS].event[i % EVENTS]));
    }
    return FLIM_OK;
}

static void destroy_events(step_marks steps[STEPS])
{
    for (int i = 0; i < STEPS * EVENTS; i++) {
        if (steps[i / EVENTS].event[i % EVENTS]) {
            (void)cudaEventDestroy(steps[i / EVENTS].event[i % EVENTS]);
        }
    }
}

/* In a row, as in training; kernel by kernel, for a graph's events cannot be read.  The first step warms up. */
static flim_status run_steps(flim_cuda_program *p, const step_marks steps[STEPS], flim_error *err)
{
    cudaStream_t stream = p->launch.stream;
    p->ranks.single = 0;
    FLIM_TRY(flim_cuda_run_schedule(p, &p->train, p->train.batch, true, true, err));
    for (int i = 0; i < STEPS; i++) {
        p->ranks.marks = &steps[i].by_name;
        FLIM_TRY_CUDA(cudaEventRecord(steps[i].by_name.begin, stream));
        FLIM_TRY(flim_cuda_run_schedule(p, &p->train, p->train.batch, true, true, err));
        FLIM_TRY_CUDA(cudaEventRecord(steps[i].by_name.end, stream));
    }
    FLIM_TRY_CUDA(cudaStreamSynchronize(stream));
    return FLIM_OK;
}

static flim_status since(cudaEvent_t begin, cudaEvent_t event, double *ms, flim_error *err)
{
    float passed = 0;
    FLIM_TRY_CUDA(cudaEventElapsedTime(&passed, begin, event));
    *ms = (double)passed;
    return FLIM_OK;
}

static flim_status read_step(const flim_cuda_ranks *r, const flim_cuda_marks *m, flim_exchange *out, flim_error *err)
{
    *out = (flim_exchange){.n = r->n_buckets};
    FLIM_TRY(since(m->begin, m->forward_end, &out->forward_end, err));
    FLIM_TRY(since(m->begin, m->backward_end, &out->backward_end, err));
    FLIM_TRY(since(m->begin, m->end, &out->step_end, err));
    for (int k = 0; k < r->n_buckets; k++) {
        flim_exchange_part *part = &out->part[k];
        part->bytes = (r->bucket[k].range.end - r->bucket[k].range.begin) * (int64_t)sizeof(float);
        FLIM_TRY(since(m->begin, m->ready[k], &part->ready, err));
        FLIM_TRY(since(m->begin, m->from[k], &part->begin, err));
        FLIM_TRY(since(m->begin, m->to[k], &part->end, err));
    }
    return FLIM_OK;
}

static int by_step_end(const void *a, const void *b)
{
    const double x = ((const flim_exchange *)a)->step_end, y = ((const flim_exchange *)b)->step_end;
    return (x > y) - (x < y);
}

flim_status flim_cuda_time_exchange(flim_program *base, flim_exchange *out, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    step_marks steps[STEPS] = {0};
    flim_exchange times[STEPS];
    flim_status status;
    if (!p->ranks.on || p->train.batch == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "this program has no sums over ranks to time");
    }
    FLIM_TRY(flim_cuda_finish(p, err));
    FLIM_TRY_DONE(make_events(steps, err));
    FLIM_TRY_DONE(run_steps(p, steps, err));
    for (int i = 0; i < STEPS; i++) {
        FLIM_TRY_DONE(read_step(&p->ranks, &steps[i].by_name, &times[i], err));
    }
    qsort(times, STEPS, sizeof times[0], by_step_end);
    *out = times[STEPS / 2];
done:
    p->ranks.marks = NULL;
    destroy_events(steps);
    return status;
}

/* cuDNN's graph API, shut in one file: candidates for a convolution problem, built plans, running and serialising them.
 *
 * Owns: the caller owns candidates and plans and frees them.
 * Errors: FLIM_ERROR_DEVICE with the operation, shapes, type, card and cuDNN's own reason.
 */
#ifndef FLIM_CUDA_CUDNN_PLAN_H
#define FLIM_CUDA_CUDNN_PLAN_H

#include "cuda/conv/conv_problem.h"
#include "cuda/device/cudnn_library.h"

enum { FLIM_MAX_CANDIDATES = 64 };

typedef struct flim_cudnn_candidates {
    cudnnBackendDescriptor_t x, w, y, convolution, operation, graph;
    cudnnBackendDescriptor_t config[FLIM_MAX_CANDIDATES]; /* best first by cuDNN's heuristic */
    int64_t engine[FLIM_MAX_CANDIDATES]; /* cuDNN's number of each config's engine */
    int n;
    int filtered; /* left out: wrong arithmetic (fp32 on tensor cores) or not deterministic */
} flim_cudnn_candidates;

/* A plan that can run. */
typedef struct flim_cudnn_plan {
    cudnnBackendDescriptor_t plan;
    int64_t workspace; /* bytes */
} flim_cudnn_plan;

/* The engine configurations that cuDNN offers and whose arithmetic fits: with fp32 storage neither tensor cores nor
 * down-converted inputs, with problem->deterministic only deterministic engines.  None left is an error. */
flim_status flim_cudnn_candidates_find(const flim_cudnn *cudnn, cudnnHandle_t handle, const char *card,
                                       const flim_conv_problem *problem, flim_cudnn_candidates *out, flim_error *err);
/* For a described card, for which the above stops at cuDNN's first choices: appends what it holds in reserve. */
void flim_cudnn_candidates_fallback(const flim_cudnn *cudnn, const flim_conv_problem *problem,
                                    flim_cudnn_candidates *candidates);
void flim_cudnn_candidates_free(const flim_cudnn *cudnn, flim_cudnn_candidates *candidates);

/* Builds candidate i; may take a second if cuDNN compiles.  Refusals are common and not fatal to a search. */
flim_status flim_cudnn_plan_build(const flim_cudnn *cudnn, cudnnHandle_t handle, const char *card,
                                  const flim_conv_problem *problem, const flim_cudnn_candidates *candidates, int i,
                                  flim_cudnn_plan *out, flim_error *err);
void flim_cudnn_plan_free(const flim_cudnn *cudnn, flim_cudnn_plan *plan);

/* The plan as text, for a file; *text is the caller's (flim_free). */
flim_status flim_cudnn_plan_save(const flim_cudnn *cudnn, const flim_cudnn_plan *plan, char **text, size_t *size,
                                 flim_error *err);
flim_status flim_cudnn_plan_load(const flim_cudnn *cudnn, cudnnHandle_t handle, const char *text, size_t size,
                                 flim_cudnn_plan *out, flim_error *err);

/* Enqueues on the handle's stream.  x, w, y as in conv_problem.h (device); workspace of plan->workspace bytes. */
flim_status flim_cudnn_plan_run(const flim_cudnn *cudnn, cudnnHandle_t handle, const flim_conv_problem *problem,
                                const flim_cudnn_plan *plan, const void *x, const void *w, const void *y, void *workspace,
                                flim_error *err);

#endif

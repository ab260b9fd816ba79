#include "cuda/conv/conv_search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/stop.h"
#include "core/try.h"
#include "cuda/device/cuda_device.h"
#include "cuda/conv/conv_trial.h"

enum { MOST = 2 * FLIM_MAX_CANDIDATES + FLIM_FP32_TILES };

/* Most that a right plan's rounding makes of fp32 sums stored in the type: measured errors are a third of these or less. */
static double tolerance(flim_storage type)
{
    return type == FLIM_STORAGE_FP32 ? 1e-4 : type == FLIM_STORAGE_FP16 ? 1e-3 : 8e-3;
}

static int faster(const void *a, const void *b)
{
    const flim_conv_choice *x = a, *y = b;
    return (x->microseconds > y->microseconds) - (x->microseconds < y->microseconds);
}

static int smaller(const void *a, const void *b)
{
    const flim_conv_choice *x = a, *y = b;
    return x->workspace != y->workspace ? (x->workspace > y->workspace) - (x->workspace < y->workspace) : faster(a, b);
}

/* The fastest first; of those that are as fast as it within what timing can tell, the one with the least workspace. */
static void sort(flim_conv_choice *list, int n)
{
    const double as_fast = 1.01;
    int equals = 1;
    qsort(list, (size_t)n, sizeof *list, faster);
    while (equals < n && list[equals].microseconds <= as_fast * list[0].microseconds) {
        equals++;
    }
    qsort(list, (size_t)equals, sizeof *list, smaller);
}

/* Checks candidates from the fastest on; the first right one becomes the plan. */
static flim_status choose(flim_conv_trial *t, flim_conv_choice *list, int n, const flim_conv_search_options *options,
                          flim_conv_choice *out, flim_error *err)
{
    char text[320];
    flim_conv_text(t->problem, text, sizeof text);
    for (int i = 0; i < n; i++) {
        double error = HUGE_VAL;
        flim_error why = {0};
        flim_conv_choice *plan = &list[i];
        flim_status status = flim_conv_trial_workspace(t, plan->workspace, &why);
        if (status == FLIM_OK) {
            status = flim_conv_trial_check(t, &list[i], &error, &why);
            if (status == FLIM_ERROR_MEMORY) { /* of the host: not the plan's fault */
                return flim_fail(err, status, "%s", why.text);
            }
        }
        if (status == FLIM_OK && error <= tolerance(t->problem->type)) {
            plan->microseconds = isfinite(plan->microseconds) ? plan->microseconds : 0.0;
            *out = *plan;
            plan->cudnn = (flim_cudnn_plan){0};
            return FLIM_OK;
        }
        flim_log_line(options->log, FLIM_LOG_NOTE, "%s dropped, %s %.1e: %s", plan->engine,
                      status == FLIM_OK ? "relative error" : why.text, error, text);
    }
    return flim_fail(err, FLIM_ERROR_DEVICE, "no cuDNN engine of %zu computes this convolution rightly on %s: %s",
                     t->device->cudnn.version, t->device->base.info.name, text);
}

/* Times a candidate that fits the workspace limit and takes it into the list; else frees it. */
static void try_candidate(flim_conv_trial *t, flim_conv_choice *c, const flim_conv_search_options *options, int64_t limit,
                          flim_conv_choice *list, int *n, int *over, flim_error *last)
{
    double best = HUGE_VAL;
    for (int i = 0; i < *n; i++) {
        best = list[i].microseconds < best ? list[i].microseconds : best;
    }
    const bool fits = c->workspace <= limit;
    *over += !fits;
    if (fits && flim_conv_trial_workspace(t, c->workspace, last) == FLIM_OK &&
        (!options->benchmark || flim_conv_trial_time(t, c, best, &c->microseconds, last) == FLIM_OK)) {
        list[(*n)++] = *c;
    } else {
        flim_cudnn_plan_free(&t->device->cudnn, &c->cudnn);
    }
}

/* Tries cuDNN's engines for a problem, which is out's or, flipped, its forward form, until `wanted` candidates are in the list. */
static void try_engines(flim_conv_trial *t, const flim_conv_problem *problem, const flim_cudnn_candidates *found,
                        const flim_conv_choice *out, bool flipped, const flim_conv_search_options *options, int wanted,
                        flim_conv_choice *list, int *n, int *over, flim_error *last)
{
    flim_cuda_device *device = t->device;
    for (int i = 0; i < found->n && *n < wanted && !flim_stopped(options->stop); i++) {
        flim_conv_choice c = *out;
        c.flipped = flipped;
        snprintf(c.engine, sizeof c.engine, "cuDNN %lld%s", (long long)found->engine[i], flipped ? FLIM_FLIPPED : "");
        if (flim_cudnn_plan_build(&device->cudnn, device->handle, device->base.info.name, problem, found, i, &c.cudnn,
                                  last) == FLIM_OK) {
            c.workspace = c.cudnn.workspace;
            try_candidate(t, &c, options, flim_conv_workspace_limit(options), list, n, over, last);
        }
    }
}

/* A data gradient's forward form is tried only where plans are timed: which is faster depends on the channels. */
static void try_flipped(flim_conv_trial *t, const flim_conv_choice *out, const flim_conv_search_options *options,
                        flim_conv_choice *list, int *n, int *over, flim_error *last)
{
    flim_cuda_device *device = t->device;
    flim_cudnn_candidates found;
    flim_conv_problem flipped;
    if (options->benchmark && out->problem.type != FLIM_STORAGE_FP32 && flim_conv_flip(&out->problem, &flipped) &&
        flim_cudnn_candidates_find(&device->cudnn, device->handle, device->base.info.name, &flipped, &found, last) ==
            FLIM_OK) {
        try_engines(t, &flipped, &found, out, true, options, MOST, list, n, over, last);
        flim_cudnn_candidates_free(&device->cudnn, &found);
    }
}

/* For a card that is not there: what the search takes without timing, unchecked.  Where cuDNN is not installed a convolution
 * without a kernel of our own is taken to need all that it may ask for. */
static flim_status search_described(flim_cuda_device *device, const flim_conv_problem *problem, int64_t limit,
                                    flim_conv_choice *out, flim_error *err)
{
    flim_cudnn_candidates found;
    flim_conv_choice custom[FLIM_FP32_TILES];
    if (flim_custom_choices(device, out, custom) > 0 && custom[0].workspace <= limit) {
        *out = custom[0];
        return FLIM_OK;
    }
    out->workspace = limit;
    snprintf(out->engine, sizeof out->engine, "assumed");
    if (device->base.info.assumes_workspace) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_cudnn_candidates_find(&device->cudnn, NULL, device->base.info.name, problem, &found, err));
    const int first = found.n;
    bool taken = false;
    for (int i = 0; i < found.n && !taken; i++) {
        flim_cudnn_plan plan;
        if (flim_cudnn_plan_build(&device->cudnn, NULL, device->base.info.name, problem, &found, i, &plan, err) == FLIM_OK) {
            taken = plan.workspace <= limit;
            out->workspace = plan.workspace;
            snprintf(out->engine, sizeof out->engine, "cuDNN %lld", (long long)found.engine[i]);
            flim_cudnn_plan_free(&device->cudnn, &plan);
        }
        if (!taken && i + 1 == first) {
            flim_cudnn_candidates_fallback(&device->cudnn, problem, &found);
        }
    }
    flim_cudnn_candidates_free(&device->cudnn, &found);
    char text[320];
    flim_conv_text(problem, text, sizeof text);
    return taken ? FLIM_OK
                 : flim_fail(err, FLIM_ERROR_DEVICE, "no cuDNN plan for %s takes %lld MiB of workspace or less: %s",
                             device->base.info.name, (long long)(limit >> 20), text);
}

/* Without timing it is our own kernel where there is one, else cuDNN's first, with two in reserve. */
flim_status flim_conv_search(flim_cuda_device *device, const flim_conv_search_options *options, flim_conv_choice *out,
                             flim_error *err)
{
    const flim_conv_problem *problem = &out->problem;
    const int64_t limit = flim_conv_workspace_limit(options);
    flim_cudnn_candidates found;
    flim_error last = {0};
    flim_conv_choice custom[FLIM_FP32_TILES];
    flim_conv_choice list[MOST];
    int n = 0, over = 0;
    bool chosen = false;
    flim_conv_trial trial;
    if (device->base.info.described) {
        return search_described(device, problem, limit, out, err);
    }
    out->microseconds = HUGE_VAL; /* until it is timed */
    const int n_custom = flim_custom_choices(device, out, custom);
    flim_status status = flim_cudnn_candidates_find(&device->cudnn, device->handle, device->base.info.name, problem, &found,
                                                    n_custom > 0 ? &last : err);
    if (status != FLIM_OK && n_custom == 0) {
        return status;
    }
    status = flim_conv_trial_make(&trial, device, problem, err);
    if (status != FLIM_OK) {
        flim_cudnn_candidates_free(&device->cudnn, &found);
        return status;
    }
    for (int i = 0; i < n_custom && (options->benchmark || n == 0) && !flim_stopped(options->stop); i++) {
        try_candidate(&trial, &custom[i], options, limit, list, &n, &over, &last);
    }
    if (!options->benchmark && n > 0) {
        status = choose(&trial, list, n, options, out, &last);
        chosen = status == FLIM_OK;
        n = 0;
    }
    const bool no_memory = status == FLIM_ERROR_MEMORY; /* of the host: not our kernel's fault */
    if (!chosen && !no_memory) {
        try_engines(&trial, problem, &found, out, false, options, options->benchmark ? MOST : 3, list, &n, &over, &last);
        try_flipped(&trial, out, options, list, &n, &over, &last);
    }
    if (flim_stopped(options->stop)) { /* a card may take half a minute for all of them */
        status = flim_fail(err, FLIM_INTERRUPTED, "interrupted");
    } else if (no_memory) {
        status = flim_fail(err, status, "%s", last.text);
    } else if (chosen) {
        status = FLIM_OK;
    } else if (n == 0) {
        char text[320];
        flim_conv_text(problem, text, sizeof text);
        status =
            flim_fail(err, FLIM_ERROR_DEVICE, "no cuDNN plan runs on %s for %s: %d want more than %lld MiB of workspace%s%s",
                      device->base.info.name, text, over, (long long)(limit >> 20), last.text[0] ? "; " : "", last.text);
    } else {
        if (options->benchmark) {
            sort(list, n);
        }
        status = choose(&trial, list, n, options, out, err);
    }
    for (int i = 0; i < n; i++) {
        flim_cudnn_plan_free(&device->cudnn, &list[i].cudnn);
    }
    flim_conv_trial_free(&trial);
    flim_cudnn_candidates_free(&device->cudnn, &found);
    return status;
}

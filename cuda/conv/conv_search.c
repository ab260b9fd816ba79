#include "cuda/conv/conv_search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/stop.h"
#include "core/try.h"
#include "cuda/conv/conv_fp32.h"
#include "cuda/conv/conv_trial.h"
#include "cuda/device/cuda_device.h"

enum { MOST = 2 * FLIM_MAX_CANDIDATES + FLIM_FP32_TILES + 1, RESERVE = 3 /* of cuDNN's engines, if nothing is timed */ };

typedef struct search {
    flim_conv_trial trial;
    const flim_conv_search_options *options;
    int wanted; /* candidates in the list */
    int before; /* in the list when the algorithm's turn came, */
    double begun; /* and the seconds then */
    int over; /* candidates above the workspace limit */
    flim_error last; /* reason of the last refusal */
    int n;
    flim_conv_choice list[MOST];
} search;

/* Seconds after which an algorithm's further candidates are not looked at, once there is one.  cuDNN's best guesses come first; its
 * last, on wide networks, take seconds per run, and xlarge's search had not ended after 170 s on an H200. */
static const double enough = 2;

/* Most that a correct algorithm's rounding makes of fp32 sums stored in the type: measured errors are a third of these or
 * less. */
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

/* Checks candidates in order; the first correct one becomes the choice. */
static flim_status choose(search *s, flim_conv_choice *out, flim_error *err)
{
    flim_conv_trial *t = &s->trial;
    char text[320];
    flim_conv_text(t->problem, text, sizeof text);
    for (int i = 0; i < s->n; i++) {
        double error = HUGE_VAL;
        flim_error why = {0};
        flim_conv_choice *c = &s->list[i];
        flim_status status = flim_conv_trial_workspace(t, c->workspace, &why);
        if (status == FLIM_OK) {
            status = flim_conv_trial_check(t, c, &error, &why);
            if (status == FLIM_ERROR_MEMORY) { /* of the host: not the algorithm's fault */
                return flim_fail(err, status, "%s", why.text);
            }
        }
        if (status == FLIM_OK && error <= tolerance(t->problem->type)) {
            *out = *c;
            out->microseconds = isfinite(c->microseconds) ? c->microseconds : 0.0;
            c->cudnn = (flim_cudnn_plan){0};
            return FLIM_OK;
        }
        flim_log_line(s->options->log, FLIM_LOG_NOTE, "%s dropped, %s %.1e: %s", c->engine,
                      status == FLIM_OK ? "relative error" : why.text, error, text);
    }
    return flim_fail(err, FLIM_ERROR_DEVICE, "no algorithm computes this convolution correctly on %s (cuDNN %zu): %s",
                     t->device->base.info.name, t->device->cudnn.version, text);
}

bool flim_conv_is_right(flim_cuda_device *device, const flim_conv_search_options *options, const flim_conv_choice *choice)
{
    flim_conv_trial trial;
    flim_error why = {0};
    double error = HUGE_VAL;
    if (flim_conv_trial_make(&trial, device, &choice->problem, &why) != FLIM_OK) {
        return true;
    }
    flim_status status = flim_conv_trial_workspace(&trial, choice->workspace, &why);
    const bool room = status != FLIM_ERROR_MEMORY;
    if (status == FLIM_OK) {
        status = flim_conv_trial_check(&trial, choice, &error, &why);
    }
    flim_conv_trial_free(&trial);
    const bool right =
        !room || status == FLIM_ERROR_MEMORY || (status == FLIM_OK && error <= tolerance(choice->problem.type));
    if (!right) {
        char text[320];
        flim_conv_text(&choice->problem, text, sizeof text);
        flim_log_line(options->log, FLIM_LOG_NOTE, "%s from the plan cache dropped, %s %.1e: %s", choice->engine,
                      status == FLIM_OK ? "relative error" : why.text, error, text);
    }
    return right;
}

/* Frees the candidates that are left. */
static void clear(search *s)
{
    for (int i = 0; i < s->n; i++) {
        flim_cudnn_plan_free(&s->trial.device->cudnn, &s->list[i].cudnn);
    }
    s->n = 0;
}

/* flim_conv_offer: times a candidate that fits the workspace limit and takes it into the list; else frees it. */
static bool consider(void *to, const flim_conv_choice *candidate)
{
    search *s = to;
    flim_conv_choice c = *candidate;
    double best = HUGE_VAL;
    for (int i = 0; i < s->n; i++) {
        best = s->list[i].microseconds < best ? s->list[i].microseconds : best;
    }
    const bool fits = flim_conv_fits(&c, s->options);
    s->over += !fits;
    if (fits && flim_conv_trial_workspace(&s->trial, c.workspace, &s->last) == FLIM_OK &&
        (!s->options->benchmark || flim_conv_trial_time(&s->trial, &c, best, &c.microseconds, &s->last) == FLIM_OK)) {
        s->list[s->n++] = c;
    } else {
        flim_cudnn_plan_free(&s->trial.device->cudnn, &c.cudnn);
    }
    const bool in_time = s->n == s->before || flim_seconds() - s->begun < enough;
    return s->n < s->wanted && in_time && !flim_stopped(s->options->stop);
}

static flim_status nothing_runs(const search *s, flim_error *err)
{
    char text[320];
    flim_conv_text(s->trial.problem, text, sizeof text);
    return flim_fail(err, FLIM_ERROR_DEVICE,
                     "no convolution algorithm runs on %s for %s: %d want more than %lld MiB of workspace%s%s",
                     s->trial.device->base.info.name, text, s->over, (long long)(flim_conv_workspace_limit(s->options) >> 20),
                     s->last.text[0] ? "; " : "", s->last.text);
}

/* With timing all algorithms' candidates compete; without, an algorithm's candidates are checked before the next is tried. */
static flim_status try_algorithms(search *s, flim_conv_choice *out, flim_error *err)
{
    flim_status status = FLIM_ERROR_DEVICE;
    const flim_conv_algorithm *algorithm[FLIM_CONV_ALGORITHMS];
    const int n = flim_conv_candidates(&out->problem, &s->trial.device->card, s->options, algorithm);
    for (int i = 0; i < n && !flim_stopped(s->options->stop); i++) {
        flim_conv_choice base = *out;
        base.algorithm = algorithm[i];
        s->wanted = s->options->benchmark ? MOST : base.algorithm->library ? RESERVE : 1;
        s->before = s->n;
        s->begun = flim_seconds();
        (void)base.algorithm->variants(s->trial.device, &base, consider, s, &s->last);
        if (!s->options->benchmark && s->n > 0) {
            status = choose(s, out, &s->last);
            clear(s);
            if (status != FLIM_ERROR_DEVICE) {
                return status == FLIM_OK ? FLIM_OK : flim_fail(err, status, "%s", s->last.text);
            }
        }
    }
    if (flim_stopped(s->options->stop)) { /* a card may take half a minute for all of them */
        return flim_fail(err, FLIM_INTERRUPTED, "interrupted");
    }
    if (s->n == 0) {
        return nothing_runs(s, err);
    }
    sort(s->list, s->n);
    return choose(s, out, err);
}

/* ---- a card that is not there -------------------------------------------------------------------------------------------
 * */

typedef struct paper_search {
    flim_cuda_device *device;
    const flim_conv_search_options *options;
    flim_conv_choice *out;
    bool found;
} paper_search;

/* flim_conv_offer: takes the first candidate that fits, unchecked. */
static bool take(void *to, const flim_conv_choice *candidate)
{
    paper_search *s = to;
    flim_cudnn_plan plan = candidate->cudnn;
    if (flim_conv_fits(candidate, s->options)) {
        *s->out = *candidate;
        s->out->cudnn = (flim_cudnn_plan){0};
        s->found = true;
    }
    flim_cudnn_plan_free(&s->device->cudnn, &plan);
    return !s->found;
}

/* What the search takes without timing.  If cuDNN is not installed, its algorithms are assumed to need all that they may ask
 * for. */
static flim_status search_described(flim_cuda_device *device, const flim_conv_search_options *options, flim_conv_choice *out,
                                    flim_error *err)
{
    const int64_t limit = flim_conv_workspace_limit(options);
    paper_search s = {.device = device, .options = options, .out = out};
    flim_error last = {0};
    const flim_conv_algorithm *algorithm[FLIM_CONV_ALGORITHMS];
    const int n = flim_conv_candidates(&out->problem, &device->card, options, algorithm);
    for (int i = 0; i < n && !s.found; i++) {
        flim_conv_choice base = *out;
        base.algorithm = algorithm[i];
        if (base.algorithm->library && device->base.info.assumes_workspace) {
            *out = base;
            out->workspace = limit;
            snprintf(out->engine, sizeof out->engine, "assumed");
            return FLIM_OK;
        }
        (void)base.algorithm->variants(device, &base, take, &s, &last);
    }
    char text[320];
    flim_conv_text(&out->problem, text, sizeof text);
    return s.found ? FLIM_OK
                   : flim_fail(err, FLIM_ERROR_DEVICE,
                               "no convolution algorithm for %s works with %lld MiB of workspace or less: %s%s%s",
                               device->base.info.name, (long long)(limit >> 20), text, last.text[0] ? "; " : "", last.text);
}

flim_status flim_conv_search(flim_cuda_device *device, const flim_conv_search_options *options, flim_conv_choice *out,
                             flim_error *err)
{
    if (device->base.info.described) {
        return search_described(device, options, out, err);
    }
    search *s = flim_alloc(1, sizeof *s, err);
    if (!s) {
        return FLIM_ERROR_MEMORY;
    }
    s->options = options;
    flim_status status = flim_conv_trial_make(&s->trial, device, &out->problem, err);
    if (status == FLIM_OK) {
        out->microseconds = HUGE_VAL; /* until it is timed */
        status = try_algorithms(s, out, err);
        clear(s);
        flim_conv_trial_free(&s->trial);
    }
    flim_free(s);
    return status;
}

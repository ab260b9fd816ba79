/* Every kind of layer alone, on a device, against the double-precision reference: forward, all gradients, running statistics.
 *
 * A case is a small struct of sizes; the same table runs on the CPU and on CUDA and in every precision of the device
 * (reference/target.h).  Outputs start as NaN, so an element that is not written shows.  Exact cases use small integers without
 * BatchNorm: every sum is exact in every precision, and results must be equal.  A failure prints the line that reruns its case
 * alone: FLIM_CASE names it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "flim/random.h"
#include "reference/formula.h"
#include "reference/reference.h"
#include "reference/target.h"

static const ref_target *target;

/* ---- The table of units -------------------------------------------------------------------------------------------- */

enum { BN = 1, SKIP = 2, ACT = 4, POOL = 8, DROP = 16, EVAL = 32, EXACT = 64 };

typedef struct unit_case {
    const char *name;
    int n, in_channels, out_channels;
    int size[3]; /* T,H,W of x */
    int kernel[3], stride[3], pad[3]; /* t, y, x */
    unsigned what; /* BN | SKIP | ... */
} unit_case;

#define STEM                                                                                                                 \
    {7, 1, 1}, {1, 1, 1},                                                                                                    \
    {                                                                                                                        \
        3, 0, 0                                                                                                              \
    }
#define DOWN                                                                                                                 \
    {3, 1, 1}, {2, 1, 1},                                                                                                    \
    {                                                                                                                        \
        1, 0, 0                                                                                                              \
    }
#define RES1                                                                                                                 \
    {3, 3, 3}, {1, 1, 1},                                                                                                    \
    {                                                                                                                        \
        1, 1, 1                                                                                                              \
    }
#define RES2                                                                                                                 \
    {3, 3, 3}, {1, 2, 2},                                                                                                    \
    {                                                                                                                        \
        1, 1, 1                                                                                                              \
    }
#define SKIP1                                                                                                                \
    {1, 1, 1}, {1, 2, 2},                                                                                                    \
    {                                                                                                                        \
        0, 0, 0                                                                                                              \
    }

static const unit_case units[] = {
    {"stem-4", 3, 2, 4, {9, 5, 5}, STEM, BN | ACT},
    {"stem-8", 3, 2, 8, {9, 5, 5}, STEM, BN | ACT},
    {"stem-16", 3, 2, 16, {9, 5, 5}, STEM, BN | ACT},
    {"stem-32", 3, 2, 32, {9, 5, 5}, STEM, BN | ACT},
    {"stem-shorter-than-kernel", 3, 2, 8, {5, 3, 4}, STEM, BN | ACT},
    {"stem-batch1", 1, 2, 8, {9, 5, 5}, STEM, BN | ACT},
    {"stem-field", 2, 2, 8, {16, 21, 21}, STEM, BN | ACT},
    {"down-4", 3, 4, 4, {9, 5, 5}, DOWN, BN | ACT},
    {"down-8-even", 3, 8, 8, {8, 5, 5}, DOWN, BN | ACT},
    {"down-16", 3, 16, 16, {9, 5, 7}, DOWN, BN | ACT},
    {"down-32", 3, 32, 32, {9, 5, 5}, DOWN, BN | ACT},
    {"res-4", 3, 4, 4, {9, 5, 5}, RES1, BN | ACT},
    {"res-8", 3, 8, 8, {9, 5, 5}, RES1, BN | ACT},
    {"res-16", 3, 16, 16, {9, 5, 5}, RES1, BN | ACT},
    {"res-32", 3, 32, 32, {9, 5, 5}, RES1, BN | ACT},
    {"res-28", 3, 28, 28, {9, 5, 5}, RES1, BN | ACT}, /* stored as 32 */
    {"res-32-minimum", 3, 32, 32, {4, 3, 3}, RES1, BN | ACT},
    {"res-8-field", 2, 8, 8, {9, 21, 21}, RES1, BN | ACT},
    {"res-no-act", 3, 8, 8, {9, 5, 5}, RES1, BN},
    {"skip-4", 3, 4, 4, {9, 5, 5}, RES1, BN | SKIP | ACT},
    {"skip-drop-8", 3, 8, 8, {9, 5, 5}, RES1, BN | SKIP | ACT | DROP},
    {"skip-drop-16-batch1", 1, 16, 16, {9, 5, 5}, RES1, BN | SKIP | ACT | DROP},
    {"skip-drop-32", 3, 32, 32, {9, 5, 5}, RES1, BN | SKIP | ACT | DROP},
    {"stride2-4-8", 3, 4, 8, {9, 5, 5}, RES2, BN | ACT},
    {"stride2-8-16", 3, 8, 16, {9, 5, 5}, RES2, BN | ACT},
    {"stride2-16-32", 3, 16, 32, {9, 5, 5}, RES2, BN | ACT},
    {"stride2-28-60", 3, 28, 60, {9, 5, 5}, RES2, BN | ACT},
    {"stride2-8-16-even", 3, 8, 16, {9, 6, 4}, RES2, BN | ACT},
    {"skipconv-4-8", 3, 4, 8, {9, 5, 5}, SKIP1, BN},
    {"skipconv-8-16", 3, 8, 16, {9, 5, 5}, SKIP1, BN},
    {"skipconv-16-32-even", 3, 16, 32, {9, 6, 4}, SKIP1, BN},
    {"pool-8", 3, 8, 8, {9, 3, 3}, RES1, BN | SKIP | ACT | POOL},
    {"pool-even", 3, 8, 8, {8, 3, 3}, RES1, BN | SKIP | ACT | POOL},
    {"pool-drop-4", 3, 4, 4, {9, 3, 3}, RES1, BN | SKIP | ACT | POOL | DROP},
    {"pool-drop-16", 3, 16, 16, {9, 3, 3}, RES1, BN | SKIP | ACT | POOL | DROP},
    {"pool-drop-32", 3, 32, 32, {9, 3, 3}, RES1, BN | SKIP | ACT | POOL | DROP},
    {"pool-drop-batch1", 1, 16, 16, {9, 3, 3}, RES1, BN | SKIP | ACT | POOL | DROP},
    {"pool-to-one", 3, 8, 8, {3, 3, 3}, RES1, BN | SKIP | ACT | POOL},
    {"kernel-of-no-network", 3, 4, 8, {9, 7, 5}, {5, 3, 2}, {2, 1, 2}, {2, 0, 1}, BN | ACT},
    {"one-value-a-channel", 1, 8, 8, {3, 3, 3}, {3, 3, 3}, {1, 1, 1}, {0, 0, 0}, BN | ACT},
    {"eval-stem", 3, 2, 8, {9, 5, 5}, STEM, BN | ACT | EVAL},
    {"eval-stride2", 3, 8, 16, {9, 5, 5}, RES2, BN | ACT | EVAL},
    {"eval-skipconv", 3, 8, 16, {9, 5, 5}, SKIP1, BN | EVAL},
    {"eval-pool-drop", 3, 8, 8, {9, 3, 3}, RES1, BN | SKIP | ACT | POOL | DROP | EVAL},
    {"eval-batch1", 1, 8, 8, {9, 5, 5}, RES1, BN | SKIP | ACT | DROP | EVAL},
    {"exact-stem-4", 3, 2, 4, {9, 5, 5}, STEM, EXACT},
    {"exact-stem-32", 3, 2, 32, {9, 5, 5}, STEM, EXACT},
    {"exact-down-8", 3, 8, 8, {9, 5, 5}, DOWN, EXACT},
    {"exact-res-8", 3, 8, 8, {9, 5, 5}, RES1, EXACT},
    {"exact-res-16", 3, 16, 16, {9, 5, 5}, RES1, EXACT},
    {"exact-stride2-4-8", 3, 4, 8, {9, 5, 5}, RES2, EXACT},
    {"exact-stride2-8-16", 3, 8, 16, {9, 5, 5}, RES2, EXACT},
    {"exact-skipconv-8-16", 3, 8, 16, {9, 5, 5}, SKIP1, EXACT},
    {"exact-skip-8", 3, 8, 8, {9, 5, 5}, RES1, EXACT | SKIP},
    {"exact-pool-8", 3, 8, 8, {9, 5, 5}, RES1, EXACT | SKIP | POOL}, /* has ties: the earlier bin gets the gradient */
    {"exact-pool-even", 3, 8, 8, {8, 5, 5}, RES1, EXACT | SKIP | POOL},
    {"exact-drop-8", 3, 8, 8, {9, 5, 5}, RES1, EXACT | SKIP | DROP},
    {"exact-pool-drop-16", 3, 16, 16, {9, 3, 3}, RES1, EXACT | SKIP | POOL | DROP},
    {"exact-batch1", 1, 8, 8, {9, 5, 5}, RES1, EXACT},
};
enum { N_UNITS = sizeof units / sizeof units[0] };

static flim_unit make_unit(const unit_case *c)
{
    flim_unit u = {.conv = "case.conv",
                   .input = -1,
                   .skip = c->what & SKIP ? 0 : -1,
                   .act = (c->what & ACT) != 0,
                   .pool_t = c->what & POOL ? 2 : 1,
                   .dropout = (c->what & DROP) != 0,
                   .in_channels = c->in_channels,
                   .out_channels = c->out_channels};
    if (c->what & BN) {
        snprintf(u.bn, sizeof u.bn, "case.bn");
    }
    for (int d = 0; d < 3; d++) {
        u.kernel[d] = c->kernel[d];
        u.stride[d] = c->stride[d];
        u.pad[d] = c->pad[d];
        u.in[d] = c->size[d];
        u.conv_out[d] = (c->size[d] + 2 * c->pad[d] - c->kernel[d]) / c->stride[d] + 1;
        u.out[d] = d == 0 ? u.conv_out[d] / u.pool_t : u.conv_out[d];
    }
    return u;
}

/* ---- Arrays that exist twice: floats for the device, doubles for the reference -------------------------------------- */

typedef struct pair {
    int64_t count;
    float *f;
    double *d;
} pair;

static pair pair_make(int64_t count)
{
    pair p = {count, calloc((size_t)count, sizeof(float)), ref_array(count)};
    assert_non_null(p.f);
    return p;
}

static void pair_free(pair *p)
{
    free(p->f);
    free(p->d);
    *p = (pair){0};
}

static void pair_set(pair *p, int64_t i, double value)
{
    p->f[i] = (float)value;
    p->d[i] = (double)p->f[i];
}

/* scale * uniform[-1,1) + shift. */
static pair pair_uniform(int64_t count, uint32_t tag, double scale, double shift)
{
    pair p = pair_make(count);
    for (int64_t i = 0; i < count; i++) {
        pair_set(&p, i, scale * (2 * ref_uniform(tag, i) - 1) + shift);
    }
    return p;
}

/* -1 or 1, or with probability `zeros` 0. */
static pair pair_integers(int64_t count, uint32_t tag, double zeros)
{
    pair p = pair_make(count);
    for (int64_t i = 0; i < count; i++) {
        double u = ref_uniform(tag, i);
        pair_set(&p, i, u < zeros ? 0 : u < (1 + zeros) / 2 ? 1 : -1);
    }
    return p;
}

/* An output: NaN for the device to overwrite. */
static pair pair_output(int64_t count)
{
    pair p = pair_make(count);
    for (int64_t i = 0; i < count; i++) {
        p.f[i] = NAN;
    }
    return p;
}

/* ---- Comparison ------------------------------------------------------------------------------------------------------ */

static const char *case_name;
static int case_failures;

static void complain(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void complain(const char *what, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_error("%s %s: %s\n", case_name, what, text);
    case_failures++;
}

static void begin_case(const char *name)
{
    case_name = name;
    case_failures = 0;
}

static void end_case(void)
{
    if (case_failures > 0) {
        fail_msg("reproduce: FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s FLIM_CASE=%s tests/test_layers", target->spec,
                 flim_precision_name(target->precision), case_name);
    }
}

/* A case whose right answer is mostly zeros would pass on a device that does nothing. */
static void require_substance(const char *what, const pair *p, double least)
{
    int64_t nonzero = 0;
    for (int64_t i = 0; i < p->count; i++) {
        nonzero += p->d[i] != 0;
    }
    if ((double)nonzero < least * (double)p->count) {
        complain(what, "the case proves nothing: %lld of %lld expected elements are not zero", (long long)nonzero,
                 (long long)p->count);
    }
}

static void check_close(const char *what, const pair *p, double tolerance)
{
    double distance = ref_distance(p->f, p->d, p->count);
    if (!(distance <= tolerance)) {
        complain(what, "relative distance %.3g, allowed %.3g", distance, tolerance);
    }
}

static void check_equal(const char *what, const pair *p)
{
    for (int64_t i = 0; i < p->count; i++) {
        if (fabs(p->d[i]) > 256) { /* 2^8: where bf16 stops holding every integer */
            complain(what, "the case is not exact: element %lld is %g", (long long)i, p->d[i]);
            return;
        }
        if (!((double)p->f[i] == p->d[i])) {
            complain(what, "element %lld is %.9g, expected %.9g", (long long)i, (double)p->f[i], p->d[i]);
            return;
        }
    }
}

/* Sums that cancel to zero in exact arithmetic: rounding may leave a fraction of the sum of absolute values. */
static void check_cancelled(const char *what, const pair *p, const double *scale, double tolerance)
{
    for (int64_t i = 0; i < p->count; i++) {
        if (!(fabs((double)p->f[i]) <= tolerance * scale[i])) {
            complain(what, "element %lld is %.3g, expected 0 within %.3g of %.3g", (long long)i, (double)p->f[i], tolerance,
                     scale[i]);
            return;
        }
    }
}

/* ---- One unit ---------------------------------------------------------------------------------------------------------- */

typedef struct unit_arrays {
    pair x, skip, weight, bias, gamma, beta, running_mean, running_var, dy;
    pair y, dx, dskip, dweight, dbias, dgamma, dbeta;
    double *v, *dbias_scale;
    flim_cell_id id[8];
} unit_arrays;

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

static void make_ids(flim_cell_id *id, int n)
{
    for (int i = 0; i < n; i++) {
        id[i] = (flim_cell_id){
            .seed = 0xfeedfacecafebeefu, .fold = 2, .epoch = 7, .cell = 100 + 37 * (uint32_t)i, .repeat = (uint32_t)i % 2};
    }
}

static unit_arrays make_arrays(const unit_case *c, const flim_unit *u)
{
    const bool exact = c->what & EXACT;
    const int64_t out = u->out_channels, z = c->n * out * volume(u->conv_out), y = c->n * out * volume(u->out);
    const int64_t x = c->n * u->in_channels * volume(u->in), fan_in = u->in_channels * volume(u->kernel);
    unit_arrays a = {
        .x = exact ? pair_integers(x, 1, 0.3) : pair_uniform(x, 1, 1.5, 0.2),
        .skip = exact ? pair_integers(z, 2, 0.3) : pair_uniform(z, 2, 1.5, 0.1),
        .weight = exact ? pair_integers(out * fan_in, 3, 0.3) : pair_uniform(out * fan_in, 3, sqrt(3.0 / (double)fan_in), 0),
        .bias = exact ? pair_integers(out, 4, 0.2) : pair_uniform(out, 4, 0.5, 0.3),
        .gamma = pair_uniform(out, 5, 0.5, 1),
        .beta = pair_uniform(out, 6, 0.5, 0),
        .running_mean = pair_uniform(out, 7, 0.5, 0.5),
        .running_var = pair_uniform(out, 8, 0.5, 1),
        .dy = exact ? pair_integers(y, 9, 0.2) : pair_uniform(y, 9, 1, 0.2),
        .y = pair_output(y),
        .dx = pair_output(x),
        .dskip = pair_output(z),
        .dweight = pair_output(out * fan_in),
        .dbias = pair_output(out),
        .dgamma = pair_output(out),
        .dbeta = pair_output(out),
        .v = ref_array(z),
        .dbias_scale = ref_array(out),
    };
    pair_set(&a.gamma, 1, -a.gamma.d[1]); /* a learnt gamma may be negative */
    make_ids(a.id, c->n);
    return a;
}

static void free_arrays(unit_arrays *a)
{
    pair *const all[] = {&a->x,  &a->skip, &a->weight, &a->bias,  &a->gamma,   &a->beta,  &a->running_mean, &a->running_var,
                         &a->dy, &a->y,    &a->dx,     &a->dskip, &a->dweight, &a->dbias, &a->dgamma,       &a->dbeta};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        pair_free(all[i]);
    }
    free(a->v);
    free(a->dbias_scale);
}

static double activated(const flim_unit *u, double v)
{
    return u->act && v <= 0 ? 0.01 * v : v;
}

/* Zeroes dy where rounding could turn the sign that the activation looks at or the choice of the pool: there the gradient jumps,
 * and a device is not wrong to land on the other side. */
static void avoid_kinks(const flim_unit *u, int64_t n, double margin, const double *v, pair *dy)
{
    const int64_t plane = (int64_t)u->out[1] * u->out[2], per_channel = volume(u->out);
    for (int64_t o = 0; o < n * u->out_channels * per_channel; o++) {
        const int64_t channel = o / per_channel, t = o % per_channel / plane, pixel = o % plane;
        const double *first = v + channel * volume(u->conv_out) + t * u->pool_t * plane + pixel;
        bool near = false;
        for (int k = 0; k < u->pool_t; k++) {
            near = near || (u->act && fabs(first[k * plane]) < margin);
            near = near || (k > 0 && fabs(activated(u, first[k * plane]) - activated(u, first[0])) < margin);
        }
        if (near) {
            pair_set(dy, o, 0);
        }
    }
}

static void run_reference_unit(const unit_case *c, const flim_unit *u, uint32_t number, float dropout, unit_arrays *a)
{
    const bool training = !(c->what & EVAL);
    ref_unit_run run = {.n = c->n,
                        .id = a->id,
                        .unit = number,
                        .dropout = training ? (double)dropout : 0,
                        .training = training,
                        .x = a->x.d,
                        .skip = c->what & SKIP ? a->skip.d : NULL,
                        .weight = a->weight.d,
                        .bias = a->bias.d,
                        .gamma = a->gamma.d,
                        .beta = a->beta.d,
                        .running_mean = a->running_mean.d,
                        .running_var = a->running_var.d,
                        .y = a->y.d,
                        .v = a->v};
    ref_unit(u, &run); /* for v alone */
    if (!training) {
        return;
    }
    if (!(c->what & EXACT)) {
        avoid_kinks(u, c->n, 2 * ref_layer_tolerance(target->precision), a->v, &a->dy);
    }
    run.move_statistics = true;
    run.dy = a->dy.d;
    run.dx = a->dx.d;
    run.dskip = a->dskip.d;
    run.dweight = a->dweight.d;
    run.dbias = a->dbias.d;
    run.dgamma = a->dgamma.d;
    run.dbeta = a->dbeta.d;
    run.dbias_scale = a->dbias_scale;
    ref_unit(u, &run);
}

static flim_status run_device_unit(const unit_case *c, const flim_unit *u, uint32_t number, float dropout, unit_arrays *a)
{
    const bool training = !(c->what & EVAL), bn = c->what & BN, skip = c->what & SKIP;
    flim_unit_run run = {.n = c->n,
                         .id = a->id,
                         .unit = number,
                         .dropout = dropout,
                         .training = training,
                         .x = a->x.f,
                         .skip = skip ? a->skip.f : NULL,
                         .weight = a->weight.f,
                         .bias = a->bias.f,
                         .gamma = bn ? a->gamma.f : NULL,
                         .beta = bn ? a->beta.f : NULL,
                         .running_mean = bn ? a->running_mean.f : NULL,
                         .running_var = bn ? a->running_var.f : NULL,
                         .dy = training ? a->dy.f : NULL,
                         .y = a->y.f};
    if (training) {
        run.dx = a->dx.f;
        run.dskip = skip ? a->dskip.f : NULL;
        run.dweight = a->dweight.f;
        run.dbias = a->dbias.f;
        run.dgamma = bn ? a->dgamma.f : NULL;
        run.dbeta = bn ? a->dbeta.f : NULL;
    }
    flim_error err = {0};
    flim_status status = flim_device_run_unit(target->device, u, target->precision, &run, &err);
    if (status != FLIM_OK) {
        complain("run", "%s: %s", flim_status_name(status), err.text);
    }
    return status;
}

static void check_exact_unit(const unit_case *c, const unit_arrays *a)
{
    check_equal("y", &a->y);
    check_equal("dx", &a->dx);
    check_equal("dweight", &a->dweight);
    check_equal("dbias", &a->dbias);
    if (c->what & SKIP) {
        check_equal("dskip", &a->dskip);
    }
}

static void check_rounded_unit(const unit_case *c, const flim_unit *u, const unit_arrays *a)
{
    const double tolerance = ref_layer_tolerance(target->precision);
    const bool one_value = c->n * volume(u->conv_out) == 1;
    check_close("y", &a->y, tolerance);
    check_close("running_mean", &a->running_mean, tolerance);
    check_close("running_var", &a->running_var, tolerance);
    if (c->what & EVAL) {
        return;
    }
    check_close("dx", &a->dx, tolerance);
    check_close("dweight", &a->dweight, tolerance);
    check_close("dgamma", &a->dgamma, tolerance);
    check_close("dbeta", &a->dbeta, tolerance);
    if (c->what & SKIP) {
        check_close("dskip", &a->dskip, tolerance);
    }
    if (one_value) { /* the statistics are constants, so the bias has a gradient after all */
        check_close("dbias", &a->dbias, tolerance);
    } else {
        check_cancelled("dbias", &a->dbias, a->dbias_scale, tolerance);
    }
}

static void one_unit(void **state)
{
    const unit_case *c = *state;
    const flim_unit u = make_unit(c);
    const uint32_t number = 5;
    const float dropout = !(c->what & DROP) ? 0.0f : c->what & EXACT ? 0.5f : 0.25f;
    unit_arrays a = make_arrays(c, &u);
    begin_case(c->name);
    run_reference_unit(c, &u, number, dropout, &a);
    require_substance("y", &a.y, 0.7 * (1 - (double)dropout));
    if (!(c->what & EVAL)) {
        require_substance("dx", &a.dx, 0.25); /* a strided 1x1x1 convolution skips most of its input */
        require_substance("dweight", &a.dweight, 0.7);
    }
    if (run_device_unit(c, &u, number, dropout, &a) == FLIM_OK) {
        if (c->what & EXACT) {
            check_exact_unit(c, &a);
        } else {
            check_rounded_unit(c, &u, &a);
        }
    }
    free_arrays(&a);
    end_case();
}

/* ---- Head and loss ------------------------------------------------------------------------------------------------------ */

typedef struct head_case {
    const char *name;
    int n, in_channels, hidden, outputs;
    int size[3]; /* T,H,W of x */
    float dropout, smoothing;
    bool weighted; /* cells have weights, and the divisor is not their sum: a window of several micro-batches */
    bool eval;
} head_case;

static const head_case heads[] = {
    {"head-2-classes", 3, 16, 8, 1, {2, 3, 3}, 0, 0, false, false},
    {"head-3-classes", 3, 16, 8, 3, {2, 3, 3}, 0, 0, false, false},
    {"head-5-classes", 7, 32, 16, 5, {1, 2, 3}, 0, 0, false, false},
    {"head-smooth-2", 5, 16, 8, 1, {2, 3, 3}, 0, 0.05f, false, false},
    {"head-smooth-3", 5, 16, 8, 3, {2, 3, 3}, 0, 0.05f, false, false},
    {"head-weighted-2", 5, 16, 8, 1, {2, 3, 3}, 0, 0.05f, true, false},
    {"head-weighted-3", 5, 16, 8, 3, {2, 3, 3}, 0, 0.05f, true, false},
    {"head-drop-2", 5, 32, 16, 1, {2, 3, 3}, 0.25f, 0.05f, true, false},
    {"head-drop-3", 5, 32, 16, 3, {2, 3, 3}, 0.25f, 0.05f, true, false},
    {"head-base", 6, 128, 64, 1, {3, 6, 6}, 0.25f, 0.05f, false, false},
    {"head-one-voxel", 5, 16, 8, 3, {1, 1, 1}, 0, 0, false, false},
    {"head-batch1-2", 1, 16, 8, 1, {2, 3, 3}, 0, 0, false, false}, /* one value a channel: CASES.md 18 */
    {"head-batch1-3", 1, 16, 8, 3, {2, 3, 3}, 0.25f, 0.05f, true, false},
    {"head-eval-2", 3, 16, 8, 1, {2, 3, 3}, 0.25f, 0, false, true},
    {"head-eval-3", 1, 16, 8, 3, {2, 3, 3}, 0.25f, 0, false, true},
};
enum { N_HEADS = sizeof heads / sizeof heads[0] };

typedef struct head_arrays {
    pair x, fc1_weight, fc1_bias, gamma, beta, fc2_weight, fc2_bias, running_mean, running_var;
    pair logits, dx, dfc1_weight, dfc1_bias, dgamma, dbeta, dfc2_weight, dfc2_bias;
    double *v, *dfc1_bias_scale;
    double divisor, loss[2]; /* device, reference */
    int32_t label[8];
    float cell_weight[8];
    flim_cell_id id[8];
} head_arrays;

/* x has a level of its own for each (cell, channel), so that cells differ after the mean. */
static head_arrays make_head_arrays(const head_case *c, uint32_t seed)
{
    const int64_t n = c->n, in = c->in_channels, hidden = c->hidden, out = c->outputs, voxels = volume(c->size);
    const uint32_t tag = 100 * seed;
    head_arrays a = {
        .x = pair_uniform(n * in * voxels, tag + 1, 0.5, 0),
        .fc1_weight = pair_uniform(hidden * in, tag + 2, sqrt(3.0 / (double)in), 0),
        .fc1_bias = pair_uniform(hidden, tag + 3, 0.5, 0.3),
        .gamma = pair_uniform(hidden, tag + 4, 0.5, 1),
        .beta = pair_uniform(hidden, tag + 5, 0.5, 0),
        .fc2_weight = pair_uniform(out * hidden, tag + 6, sqrt(3.0 / (double)hidden), 0),
        .fc2_bias = pair_uniform(out, tag + 7, 0.5, 0.1),
        .running_mean = pair_uniform(hidden, tag + 8, 0.5, 0.5),
        .running_var = pair_uniform(hidden, tag + 9, 0.5, 1),
        .logits = pair_output(n * out),
        .dx = pair_output(n * in * voxels),
        .dfc1_weight = pair_output(hidden * in),
        .dfc1_bias = pair_output(hidden),
        .dgamma = pair_output(hidden),
        .dbeta = pair_output(hidden),
        .dfc2_weight = pair_output(out * hidden),
        .dfc2_bias = pair_output(out),
        .v = ref_array(n * hidden),
        .dfc1_bias_scale = ref_array(hidden),
        .divisor = c->weighted ? 11.5 : (double)n,
        .loss = {NAN, 0},
    };
    for (int64_t i = 0; i < a.x.count; i++) {
        pair_set(&a.x, i, a.x.d[i] + 2 * ref_uniform(tag + 10, i / voxels) - 0.5);
    }
    for (int i = 0; i < c->n; i++) {
        a.label[i] = i % (c->outputs == 1 ? 2 : c->outputs);
        a.cell_weight[i] = c->weighted ? 0.5f + 0.25f * (float)i : 1.0f;
    }
    make_ids(a.id, c->n);
    return a;
}

static void free_head_arrays(head_arrays *a)
{
    pair *const all[] = {&a->x,         &a->fc1_weight,   &a->fc1_bias,    &a->gamma,       &a->beta,     &a->fc2_weight,
                         &a->fc2_bias,  &a->running_mean, &a->running_var, &a->logits,      &a->dx,       &a->dfc1_weight,
                         &a->dfc1_bias, &a->dgamma,       &a->dbeta,       &a->dfc2_weight, &a->dfc2_bias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        pair_free(all[i]);
    }
    free(a->v);
    free(a->dfc1_bias_scale);
}

static void run_reference_head(const head_case *c, const flim_head *head, uint32_t unit, head_arrays *a)
{
    ref_head_run run = {.n = c->n,
                        .t = c->size[0],
                        .h = c->size[1],
                        .w = c->size[2],
                        .id = a->id,
                        .unit = unit,
                        .dropout = (double)c->dropout,
                        .label_smoothing = (double)c->smoothing,
                        .training = !c->eval,
                        .move_statistics = !c->eval,
                        .divisor = a->divisor,
                        .label = a->label,
                        .cell_weight = a->cell_weight,
                        .x = a->x.d,
                        .fc1_weight = a->fc1_weight.d,
                        .fc1_bias = a->fc1_bias.d,
                        .gamma = a->gamma.d,
                        .beta = a->beta.d,
                        .fc2_weight = a->fc2_weight.d,
                        .fc2_bias = a->fc2_bias.d,
                        .running_mean = a->running_mean.d,
                        .running_var = a->running_var.d,
                        .logits = a->logits.d,
                        .v = a->v,
                        .dx = a->dx.d,
                        .dfc1_weight = a->dfc1_weight.d,
                        .dfc1_bias = a->dfc1_bias.d,
                        .dgamma = a->dgamma.d,
                        .dbeta = a->dbeta.d,
                        .dfc2_weight = a->dfc2_weight.d,
                        .dfc2_bias = a->dfc2_bias.d,
                        .dfc1_bias_scale = a->dfc1_bias_scale};
    ref_head(head, &run);
    a->loss[1] = run.loss;
}

static flim_status run_device_head(const head_case *c, const flim_head *head, uint32_t unit, head_arrays *a)
{
    flim_head_run run = {.n = c->n,
                         .t = c->size[0],
                         .h = c->size[1],
                         .w = c->size[2],
                         .id = a->id,
                         .unit = unit,
                         .dropout = c->dropout,
                         .label_smoothing = c->smoothing,
                         .training = !c->eval,
                         .divisor = a->divisor,
                         .label = a->label,
                         .cell_weight = a->cell_weight,
                         .x = a->x.f,
                         .fc1_weight = a->fc1_weight.f,
                         .fc1_bias = a->fc1_bias.f,
                         .gamma = a->gamma.f,
                         .beta = a->beta.f,
                         .fc2_weight = a->fc2_weight.f,
                         .fc2_bias = a->fc2_bias.f,
                         .running_mean = a->running_mean.f,
                         .running_var = a->running_var.f,
                         .logits = a->logits.f,
                         .loss = &a->loss[0]};
    if (!c->eval) {
        run.dx = a->dx.f;
        run.dfc1_weight = a->dfc1_weight.f;
        run.dfc1_bias = a->dfc1_bias.f;
        run.dgamma = a->dgamma.f;
        run.dbeta = a->dbeta.f;
        run.dfc2_weight = a->dfc2_weight.f;
        run.dfc2_bias = a->dfc2_bias.f;
    }
    flim_error err = {0};
    flim_status status = flim_device_run_head(target->device, head, target->precision, &run, &err);
    if (status != FLIM_OK) {
        complain("run", "%s: %s", flim_status_name(status), err.text);
    }
    return status;
}

/* Whether an activation stands so near zero that rounding could turn its sign. */
static bool near_kink(const head_case *c, const head_arrays *a)
{
    for (int64_t i = 0; i < (int64_t)c->n * c->hidden; i++) {
        if (fabs(a->v[i]) < ref_layer_tolerance(target->precision) / 10) {
            return true;
        }
    }
    return false;
}

static void check_head(const head_case *c, const head_arrays *a)
{
    const double tolerance = ref_layer_tolerance(target->precision);
    check_close("logits", &a->logits, tolerance);
    if (!(fabs(a->loss[0] - a->loss[1]) <= tolerance * a->loss[1])) {
        complain("loss", "%.9g, expected %.9g", a->loss[0], a->loss[1]);
    }
    check_close("running_mean", &a->running_mean, tolerance);
    check_close("running_var", &a->running_var, tolerance);
    if (c->eval) {
        return;
    }
    check_close("dx", &a->dx, tolerance);
    check_close("dfc1_weight", &a->dfc1_weight, tolerance);
    check_close("dgamma", &a->dgamma, tolerance);
    check_close("dbeta", &a->dbeta, tolerance);
    check_close("dfc2_weight", &a->dfc2_weight, tolerance);
    check_close("dfc2_bias", &a->dfc2_bias, tolerance);
    if (c->n == 1) {
        check_close("dfc1_bias", &a->dfc1_bias, tolerance);
    } else {
        check_cancelled("dfc1_bias", &a->dfc1_bias, a->dfc1_bias_scale, tolerance);
    }
}

static void one_head(void **state)
{
    const head_case *c = *state;
    const flim_head head = {.in_channels = c->in_channels,
                            .hidden = c->hidden,
                            .outputs = c->outputs,
                            .loss = c->outputs == 1 ? FLIM_LOSS_BINARY : FLIM_LOSS_SOFTMAX,
                            .weight = 1};
    const uint32_t unit = 10;
    head_arrays a;
    begin_case(c->name);
    for (uint32_t seed = 1;; seed++) {
        a = make_head_arrays(c, seed);
        run_reference_head(c, &head, unit, &a);
        if (!near_kink(c, &a)) {
            break;
        }
        free_head_arrays(&a);
        assert_true(seed < 200);
    }
    if (!c->eval) {
        require_substance("dx", &a.dx, 0.9);
        require_substance("dfc1_weight", &a.dfc1_weight, 0.6);
    }
    if (run_device_head(c, &head, unit, &a) == FLIM_OK) {
        check_head(c, &a);
    }
    free_head_arrays(&a);
    end_case();
}

/* ---- BatchNorm's running statistics: CASES.md 19 ------------------------------------------------------------------------ */

/* Four channels see 0, 1, 2, 3 through an identity convolution: mean 1.5, unbiased variance 5/3. */
static void running_statistics_of_0_1_2_3(void **state)
{
    (void)state;
    const unit_case c = {"bn-0-1-2-3", 1, 4, 4, {4, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, BN};
    const flim_unit u = make_unit(&c);
    const float want_var[] = {1.0666667f, 1.1266667f}, want_mean[] = {0.15f, 0.285f};
    float x[16], y[16], weight[16] = {0}, zero[4] = {0}, one[4] = {1, 1, 1, 1}, mean[4] = {0}, var[4] = {1, 1, 1, 1};
    flim_cell_id id;
    make_ids(&id, 1);
    for (int i = 0; i < 16; i++) {
        x[i] = (float)(i % 4);
        weight[i] = i % 5 == 0; /* the diagonal */
    }
    const flim_unit_run run = {.n = 1,
                               .id = &id,
                               .training = true,
                               .x = x,
                               .weight = weight,
                               .bias = zero,
                               .gamma = one,
                               .beta = zero,
                               .running_mean = mean,
                               .running_var = var,
                               .y = y};
    begin_case(c.name);
    for (int step = 0; step < 2; step++) {
        flim_error err = {0};
        flim_status status = flim_device_run_unit(target->device, &u, target->precision, &run, &err);
        if (status != FLIM_OK) {
            complain("run", "%s", err.text);
            break;
        }
        for (int i = 0; i < 4; i++) {
            if (!(fabsf(var[i] - want_var[step]) <= 2e-7f) || !(fabsf(mean[i] - want_mean[step]) <= 1e-7f)) {
                complain("statistics", "after step %d channel %d has mean %.9g, variance %.9g; expected %.9g, %.9g", step + 1,
                         i, (double)mean[i], (double)var[i], (double)want_mean[step], (double)want_var[step]);
            }
        }
    }
    end_case();
}

/* A constant 1 fed 200 times brings the mean to 1 in fp32; statistics kept in bf16 stall at 0.984. */
static void running_mean_does_not_stall(void **state)
{
    (void)state;
    const unit_case c = {"bn-constant", 2, 4, 4, {3, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, BN};
    const flim_unit u = make_unit(&c);
    float x[24], y[24], weight[16] = {0}, zero[4] = {0}, one[4] = {1, 1, 1, 1}, mean[4] = {0}, var[4] = {1, 1, 1, 1};
    flim_cell_id id[2];
    make_ids(id, 2);
    for (int i = 0; i < 24; i++) {
        x[i] = 1;
    }
    for (int i = 0; i < 4; i++) {
        weight[5 * i] = 1;
    }
    const flim_unit_run run = {.n = 2,
                               .id = id,
                               .training = true,
                               .x = x,
                               .weight = weight,
                               .bias = zero,
                               .gamma = one,
                               .beta = zero,
                               .running_mean = mean,
                               .running_var = var,
                               .y = y};
    begin_case(c.name);
    for (int step = 0; step < 200 && case_failures == 0; step++) {
        flim_error err = {0};
        if (flim_device_run_unit(target->device, &u, target->precision, &run, &err) != FLIM_OK) {
            complain("run", "%s", err.text);
        }
    }
    for (int i = 0; i < 4; i++) {
        if (!(fabsf(mean[i] - 1) <= 1e-6f) || !(var[i] >= 0 && var[i] <= 1e-6f)) {
            complain("statistics", "channel %d has mean %.9g, variance %.9g; expected 1, 0", i, (double)mean[i],
                     (double)var[i]);
        }
    }
    end_case();
}

/* ---- Dropout, and the list of tests ------------------------------------------------------------------------------------ */

/* The reference's own Philox and the library's must drop the same channels, at the right rate. */
static void dropout_follows_the_counter_layout(void **state)
{
    (void)state;
    const float p[] = {0.25f, 0.5f, 0.1f};
    for (int k = 0; k < 3; k++) {
        int kept = 0;
        for (uint32_t i = 0; i < 4000; i++) {
            const flim_cell_id id = {
                .seed = 0x123456789abcdefu * (i % 7 + 1), .fold = i % 5, .epoch = i % 11, .cell = i, .repeat = i % 3};
            double factor = ref_dropout_factor(&id, i % 13, i % 130, (double)p[k]);
            assert_int_equal(factor != 0, flim_random_keep(&id, i % 13, i % 130, p[k]));
            kept += factor != 0;
        }
        assert_true(fabs(kept / 4000.0 - (1 - (double)p[k])) < 0.03);
    }
}

static int group(const ref_target *on)
{
    target = on;
    static struct CMUnitTest tests[N_UNITS + N_HEADS + 2];
    const char *only = getenv("FLIM_CASE");
    size_t n = 0;
    for (int i = 0; i < N_UNITS; i++) {
        tests[n++] = (struct CMUnitTest){.name = units[i].name, .test_func = one_unit, .initial_state = (void *)&units[i]};
    }
    for (int i = 0; i < N_HEADS; i++) {
        tests[n++] = (struct CMUnitTest){.name = heads[i].name, .test_func = one_head, .initial_state = (void *)&heads[i]};
    }
    tests[n++] = (struct CMUnitTest){.name = "bn-0-1-2-3", .test_func = running_statistics_of_0_1_2_3};
    tests[n++] = (struct CMUnitTest){.name = "bn-constant", .test_func = running_mean_does_not_stall};
    if (only) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            if (strcmp(tests[i].name, only) == 0) {
                tests[kept++] = tests[i];
            }
        }
        n = kept;
        if (n == 0) {
            fprintf(stderr, "FLIM_CASE=%s: no such case\n", only);
            return 1;
        }
    }
    return _cmocka_run_group_tests("layers", tests, n, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dropout_follows_the_counter_layout)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed ? failed : ref_target_run(group);
}

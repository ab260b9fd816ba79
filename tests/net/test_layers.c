/* Every kind of layer in a program of a few units, against the double-precision reference, tensor by tensor: z, y, dv, dz,
 * dx, all gradients, running statistics, loss (reference/inspection.h).
 *
 * A case is a small struct of sizes; the same table runs on the CPU and on CUDA and in every precision of the device
 * (reference/target.h).  A unit under test stands between a unit that feeds it and one that reads it, so that its x and dy
 * differ from voxel to voxel; `fused` cases are whole blocks, which the CUDA backend computes with kernels that do several
 * units' work. Tensors start as NaN, so an element that is not written shows, and so does a row of a partial batch that is
 * read.  Exact cases use small integers without BatchNorm (with it, z alone): every sum is exact in every precision, and
 * results must be equal. Each case proves its own tolerance: with one tap of one channel's weight changed in the reference
 * the same comparison must fail. A failure prints the line that reruns its case alone: FLIM_CASE names it. */
#include "flim/random.h"
#include "reference/device_test.h"
#include "reference/formula.h"
#include "reference/inspection.h"
#include "reference/small_network.h"

/* ---- The table of units -------------------------------------------------------------------------------------------- */

enum {
    BN = 1,
    SKIP = 2, /* adds the y of another unit */
    ACT = 4,
    POOL = 8,
    DROP = 16,
    EVAL = 32, /* prediction */
    EXACT = 64,
    FOLD = 128, /* the skip is a convolution and BatchNorm alone */
    FED = 256 /* 2 channels, and a unit before it nevertheless */
};

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
    {"stem-8-with-dx", 3, 2, 8, {9, 5, 5}, STEM, BN | ACT | FED},
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
    {"fold-8", 3, 8, 8, {9, 5, 5}, RES1, BN | SKIP | FOLD | ACT},
    {"fold-drop-32", 3, 32, 32, {9, 5, 5}, RES1, BN | SKIP | FOLD | ACT | DROP},
    {"fold-pool-drop-16", 3, 16, 16, {9, 3, 3}, RES1, BN | SKIP | FOLD | ACT | POOL | DROP},
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
    {"eval-fold", 3, 8, 8, {9, 5, 5}, RES1, BN | SKIP | FOLD | ACT | EVAL},
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
    {"exact-fold-8", 3, 8, 8, {9, 5, 5}, RES1, EXACT | SKIP | FOLD},
    {"exact-res-32", 3, 32, 32, {9, 5, 5}, RES1, EXACT},
    {"exact-bn-res-8", 3, 8, 8, {9, 5, 5}, RES1, EXACT | BN | ACT}, /* z, forward */
    {"exact-bn-res-32", 3, 32, 32, {9, 5, 5}, RES1, EXACT | BN | ACT},
    {"exact-bn-res-32-eval", 3, 32, 32, {9, 5, 5}, RES1, EXACT | BN | ACT | EVAL},
    {"exact-batch1", 1, 8, 8, {9, 5, 5}, RES1, EXACT},
};
enum { N_UNITS = sizeof units / sizeof units[0] };

/* Blocks: rows of units (reference/small_network.h). */
typedef struct block_case {
    const char *name;
    int n;
    int size[3]; /* T,H,W of the input */
    bool eval;
    int first; /* unit under test */
    ref_row row[8];
} block_case;

/* The stem and down units of every network at width w, and what follows them there. */
#define FIRST(w)                                                                                                             \
    {-1, -1, w, STEM, REF_BN | REF_ACT},                                                                                     \
    {                                                                                                                        \
        0, -1, w, DOWN, REF_BN | REF_ACT                                                                                     \
    }
#define BLOCK1(w)                                                                                                            \
    FIRST(w), {1, -1, w, RES1, REF_BN | REF_ACT},                                                                            \
    {                                                                                                                        \
        2, 1, w, RES1, REF_BN | REF_ACT | REF_DROP                                                                           \
    }

static const block_case blocks[] = {
    {"fused-stem", 3, {17, 5, 5}, false, 0, {FIRST(32)}},
    {"fused-stem-even", 3, {16, 6, 3}, false, 0, {FIRST(32)}},
    {"fused-stem-field", 2, {10, 21, 21}, false, 1, {FIRST(32)}},
    {"fused-stem-batch1", 1, {17, 5, 5}, false, 0, {FIRST(32)}},
    {"fused-stem-eval", 3, {17, 5, 5}, true, 0, {FIRST(32)}},
    {"stem-alone", 3, {17, 5, 5}, false, 0, {FIRST(72)}},
    {"stem-alone-even", 2, {16, 6, 3}, false, 0, {FIRST(128)}},
    {"stem-alone-batch1", 1, {17, 5, 5}, false, 0, {FIRST(72)}},
    {"stem-alone-eval", 3, {17, 5, 5}, true, 0, {FIRST(72)}},
    {"fused-block1", 3, {17, 5, 5}, false, 2, {BLOCK1(32)}},
    {"fused-block1-even", 4, {12, 4, 9}, false, 2, {BLOCK1(32)}},
    {"fused-block1-field", 2, {8, 21, 21}, false, 3, {BLOCK1(32)}},
    {"fused-block1-batch1", 1, {17, 5, 5}, false, 2, {BLOCK1(32)}},
    {"fused-block1-eval", 3, {17, 5, 5}, true, 2, {BLOCK1(32)}},
    {"block1-8", 3, {17, 5, 5}, false, 2, {BLOCK1(8)}},
    /* 3x3x3 without and with what a virtual input needs, one after the other */
    {"fused-chain",
     3,
     {9, 5, 5},
     false,
     1,
     {{-1, -1, 32, RES1, 0},
      {0, -1, 32, RES1, REF_BN | REF_ACT},
      {1, -1, 32, RES1, REF_BN | REF_ACT},
      {2, -1, 32, RES1, REF_BN}}},
    {"fused-chain-pool",
     3,
     {9, 7, 4},
     false,
     1,
     {{-1, -1, 32, RES1, REF_BN | REF_ACT},
      {0, -1, 32, RES1, REF_BN | REF_ACT | REF_POOL},
      {1, -1, 32, RES1, REF_BN | REF_ACT | REF_DROP}}},
    /* a strided block: a folded skip, a 3x3x3 of stride 2, a pool */
    {"fused-block2",
     3,
     {9, 7, 7},
     false,
     1,
     {{-1, -1, 32, RES1, REF_BN | REF_ACT},
      {0, -1, 64, SKIP1, REF_BN},
      {0, -1, 64, RES2, REF_BN | REF_ACT},
      {2, 1, 64, RES1, REF_BN | REF_ACT | REF_POOL | REF_DROP}}},
    {"block2-8",
     3,
     {9, 7, 7},
     false,
     1,
     {{-1, -1, 8, RES1, REF_BN | REF_ACT},
      {0, -1, 16, SKIP1, REF_BN},
      {0, -1, 16, RES2, REF_BN | REF_ACT},
      {2, 1, 16, RES1, REF_BN | REF_ACT | REF_POOL | REF_DROP}}},
};
enum { N_BLOCKS = sizeof blocks / sizeof blocks[0] };

/* ---- A network with its data, on the device and in the reference ------------------------------------------------------- */

typedef struct scene {
    const char *name;
    flim_network net;
    int64_t n; /* cells of a full batch */
    int first, last; /* units under test */
    float dropout, smoothing;
    double divisor; /* 0: n */
    bool exact, eval, weighted;
    bool exact_backward; /* of one cell, too */
    float *parameters, *statistics; /* P, S: of the seed */
    flim_program *program;
    ref_inspection in;
} scene;

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

static float *floats(int64_t count)
{
    float *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    return values;
}

/* -1 or 1, or with probability `zeros` 0. */
static float ternary(uint32_t tag, int64_t i, double zeros)
{
    const double u = ref_uniform(tag, i);
    return u < zeros ? 0 : u < (1 + zeros) / 2 ? 1 : -1;
}

/* Signals in sixty-fourths, which every storage type holds. */
static flim_batch make_batch(const scene *s, uint32_t seed, int64_t n)
{
    flim_batch batch = ref_formula_batch(&s->net, 100 * (int64_t)seed, n);
    for (int64_t i = 0; i < n * volume(s->net.in); i++) {
        batch.signal[i] =
            s->exact ? ternary(seed, i, 0.3) : (float)(rint((3.5 * ref_uniform(7000 + seed, i) - 1.5) * 64) / 64);
    }
    for (int64_t i = 0; i < n; i++) {
        batch.weight[i] = s->weighted ? 0.5f + 0.25f * (float)i : 1;
        if (s->exact && n == 1) { /* see exact_weights */
            batch.weight[i] = (float)volume(s->net.unit[s->net.n_units - 1].out);
            batch.label[i] = 0;
        }
    }
    return batch;
}

/* Of an exact case: the first unit copies its input, shifted; the others add and subtract some; the head, with one cell in
 * the batch, saturates: the gradient of its logit is the cell's weight, and that of each voxel before the mean -1, 0 or 1. */
static void exact_weights(const scene *s, uint32_t seed)
{
    const flim_network *net = &s->net;
    for (int k = 0; k < net->n_tensors; k++) {
        const flim_tensor *t = &net->tensor[k];
        const bool head = t->unit == net->n_units, feeds = !head && s->first > 0 && net->unit[t->unit].input < 0;
        const bool second = t == flim_network_tensor(net, net->n_units, t->role, 1);
        float *at = (flim_tensor_is_statistic(t) ? s->statistics : s->parameters) + t->offset;
        const int64_t row = t->count / t->shape[0];
        const uint32_t tag = 300 * seed + (uint32_t)k;
        for (int64_t i = 0; i < t->count; i++) {
            switch (t->role) {
            case FLIM_TENSOR_CONV_WEIGHT:
                at[i] = feeds ? i % row == (int64_t)(ref_uniform(tag, i / row) * 0.5 * (double)row) ? ternary(tag, i, 0) : 0
                              : ternary(tag, i, t->unit > s->last ? 0.97 : 0.3);
                break;
            case FLIM_TENSOR_LINEAR_WEIGHT: /* one hidden value for each channel */
                at[i] = second ? ternary(tag, i, 0) : i / row == i % row % t->shape[0] ? ternary(tag, i, 0) : 0;
                break;
            case FLIM_TENSOR_BIAS: at[i] = !head ? ternary(tag, i, 0.2) : second ? 4096 : 0; break;
            case FLIM_TENSOR_BN_WEIGHT: at[i] = 1; break;
            case FLIM_TENSOR_BN_BIAS: at[i] = head ? 256 : 0; break;
            case FLIM_TENSOR_RUNNING_MEAN: at[i] = 0; break;
            case FLIM_TENSOR_RUNNING_VAR: at[i] = 1 - FLIM_BN_EPS; break;
            }
        }
    }
}

static void ok(const scene *s, flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s: %s", s->name, err->text);
    }
}

static void set_weights(scene *s, uint32_t seed)
{
    flim_error err = {0};
    ref_small_weights(&s->net, seed, s->parameters, s->statistics);
    if (s->exact) {
        exact_weights(s, seed);
    }
    ok(s, flim_program_write(s->program, FLIM_STATE_PARAMETERS, s->parameters, &err), &err);
    ok(s, flim_program_write(s->program, FLIM_STATE_STATISTICS, s->statistics, &err), &err);
}

static void begin_scene(scene *s)
{
    s->parameters = floats(s->net.parameters);
    s->statistics = floats(s->net.statistics);
    s->program =
        ref_program_create_inspected(target, &s->net, s->eval ? 0 : s->n, s->eval ? s->n : 0, s->parameters, s->statistics);
    assert_non_null(s->program);
    s->in = (ref_inspection){
        .target = target, .program = s->program, .net = &s->net, .name = s->name, .exact_unit = s->exact ? s->last : -1};
}

static void end_scene(scene *s)
{
    ref_inspection_end(&s->in);
    flim_program_destroy(s->program);
    free(s->parameters);
    free(s->statistics);
}

static ref_network *observed(scene *s)
{
    ref_network *ref = ref_network_create(&s->net, s->parameters, s->statistics);
    ref->observe = ref_inspection_observe;
    ref->observer = &s->in;
    return ref;
}

/* Learning rate 0: the weights stay. */
static flim_step step_of(const scene *s, int64_t n)
{
    return (flim_step){.first = true,
                       .last = true,
                       .divisor = s->divisor > 0       ? s->divisor
                                  : s->exact && n == 1 ? 1
                                                       : (double)n,
                       .beta1 = 0.9f,
                       .beta2 = 0.999f,
                       .epsilon = 1e-8f,
                       .dropout = s->dropout,
                       .block_dropout = s->dropout,
                       .label_smoothing = s->smoothing};
}

/* ---- One call, compared ------------------------------------------------------------------------------------------------ */

static void compare_training(scene *s, uint32_t seed, int64_t n)
{
    flim_error err = {0};
    flim_totals totals = {0};
    flim_batch batch = make_batch(s, seed, n);
    const flim_step step = step_of(s, n);
    flim_counters counters = {.loss_scale = target->precision != FLIM_PRECISION_FP16 ? 1 : s->exact ? 16 : 4096};
    do { /* statistics and counters are those of each call; in fp16 the scale falls until nothing overflows, as in training */
        ok(s, flim_program_write(s->program, FLIM_STATE_STATISTICS, s->statistics, &err), &err);
        ok(s, flim_program_set_counters(s->program, &counters, &err), &err);
        ok(s, flim_program_train(s->program, &batch, &step, &err), &err);
        ok(s, flim_program_totals(s->program, true, &totals, &err), &err);
        counters.loss_scale /= 4;
    } while (totals.updates == 0 && !totals.nonfinite && !s->exact && counters.loss_scale >= 16);
    s->in.exact_forward = s->exact;
    s->in.exact_backward = s->exact_backward && n == 1;
    ref_inspection_begin(&s->in, n, true);
    ref_network *ref = observed(s);
    ref_network_train(ref, &batch, &step);
    ref_inspection_gradients(&s->in, ref);
    ref_inspection_statistics(&s->in, ref);
    ref_inspection_loss(&s->in, totals.loss, ref->loss);
    if (totals.updates != 1 || totals.nonfinite) {
        fail_msg("%s: %s; reproduce as below", s->name, totals.nonfinite ? "a loss or gradient is not finite" : "no update");
    }
    ref_network_free(ref);
    ref_batch_free(&batch);
}

static void compare_prediction(scene *s, uint32_t seed, int64_t n)
{
    flim_error err = {0};
    flim_batch batch = make_batch(s, seed, n);
    const int64_t count = n * s->net.head[0].outputs;
    float *found = floats(count);
    double *expected = ref_array(count);
    for (int64_t i = 0; i < count; i++) {
        found[i] = NAN;
    }
    ok(s, flim_program_predict(s->program, &batch, found, &err), &err);
    ok(s, flim_program_wait(s->program, &err), &err);
    s->in.exact_forward = s->exact;
    ref_inspection_begin(&s->in, n, false);
    ref_network *ref = observed(s);
    ref_network_predict(ref, &batch, expected);
    ref_inspection_logits(&s->in, found, expected);
    ref_network_free(ref);
    ref_batch_free(&batch);
    free(found);
    free(expected);
}

/* ---- The tolerance is tight -------------------------------------------------------------------------------------------- */

/* A walk in which element `at` of the reference's parameters differs by `by`, and then that of its gradient; returns whether
 * the gradient's comparison fails. */
static bool walk_mutated(scene *s, uint32_t seed, int64_t n, const flim_tensor *t, int64_t at, double by)
{
    flim_batch batch = make_batch(s, seed, n);
    const flim_step step = step_of(s, n);
    bool fails = true;
    ref_inspection_again(&s->in);
    ref_network *ref = observed(s);
    ref->parameters[at] += by;
    if (s->eval) {
        double *logits = ref_array(n * s->net.head[0].outputs);
        ref_network_predict(ref, &batch, logits);
        free(logits);
    } else {
        double sum = 0;
        ref_network_train(ref, &batch, &step);
        for (int64_t i = t->offset; i < t->offset + t->count; i++) {
            sum += ref->gradients[i] * ref->gradients[i] / (double)t->count;
        }
        ref->gradients[at] += sqrt(sum);
        fails = !ref_inspection_gradient(&s->in, ref, t);
    }
    ref_network_free(ref);
    ref_batch_free(&batch);
    return fails;
}

static bool stored(const scene *s, int unit, ref_tensor what)
{
    return s->in.tensor[unit][what].device != NULL;
}

/* One tap of one channel of unit u: the comparison of its z fails, or, where that is not stored, of its y or of a z that follows; and
 * that of dx, or of the dv into which a kernel made it. */
static void demand_failure(scene *s, uint32_t seed, int64_t n, int u)
{
    const flim_unit *unit = &s->net.unit[u];
    const flim_tensor *t = flim_network_tensor(&s->net, u, FLIM_TENSOR_CONV_WEIGHT, 0);
    const int64_t taps = volume(unit->kernel), row = t->count / t->shape[0];
    int64_t channel = t->shape[0] / 2; /* with a gradient: dropout takes some away */
    for (int64_t c = 0; c < t->shape[0] && s->in.dv_norm[u]; c++) {
        channel = s->in.dv_norm[u][c] > s->in.dv_norm[u][channel] ? c : channel;
    }
    int64_t input = unit->in_channels / 2; /* with an x: leaky ReLU may leave a hundredth of a channel, dropout none */
    for (int64_t c = 0; c < unit->in_channels && unit->input >= 0; c++) {
        input = s->in.y_norm[unit->input][c] > s->in.y_norm[unit->input][input] ? c : input;
    }
    const int64_t element = t->offset + channel * row + input * taps + taps / 2;
    double bound = 1;
    while (bound * bound * (double)row > 3) {
        bound /= 2;
    }
    const bool gradient_fails = walk_mutated(s, seed, n, t, element, bound);
    bool forward = s->in.tensor[u][REF_Z].failed;
    for (int r = u; r < s->net.n_units && !stored(s, u, REF_Z); r++) {
        forward = forward || s->in.tensor[r][REF_Z].failed || s->in.tensor[r][REF_Y].failed;
    }
    if (!forward) {
        fail_msg("%s: one tap of %s changed in the reference, and z still passes", s->name, unit->conv);
    }
    if (!gradient_fails) {
        fail_msg("%s: one tap of the gradient of %s's weight changed in the reference, and it still passes", s->name,
                 unit->conv);
    }
    if (!s->eval && unit->input >= 0 && (stored(s, u, REF_DX) || stored(s, unit->input, REF_DV)) &&
        !s->in.tensor[u][REF_DX].failed && !s->in.tensor[unit->input][REF_DV].failed) {
        fail_msg("%s: one tap of %s changed in the reference, and dx still passes", s->name, unit->conv);
    }
}

/* ---- Cases --------------------------------------------------------------------------------------------------------- */

/* Values near a kink: the next seed has others. */
static void run_scene(scene *s)
{
    int failed = 0;
    uint32_t seed = 1;
    begin_scene(s);
    for (bool again = true; again; seed += again) {
        assert_true(seed < 100);
        set_weights(s, seed);
        failed = 0;
        again = false;
        const int64_t sizes[] = {s->exact ? 1 : s->n - 1, s->n};
        for (int i = sizes[0] > 0 && sizes[0] < s->n ? 0 : 1; i < 2 && !again; i++) {
            if (s->eval) {
                compare_prediction(s, seed, sizes[i]);
            } else {
                compare_training(s, seed, sizes[i]);
            }
            again = s->in.near_kink && !s->exact_backward;
            failed += again ? 0 : ref_inspection_report(&s->in);
            assert_true(s->in.compared > 0);
        }
    }
    for (int u = s->first; u <= s->last && failed == 0 && !s->exact; u++) {
        demand_failure(s, seed, s->n, u);
    }
    end_scene(s);
    if (failed > 0) {
        fail_msg("reproduce: FLIM_TEST_DEVICE=%s FLIM_TEST_PRECISION=%s FLIM_CASE=%s FLIM_TEST_VERBOSE=1 tests/test_layers",
                 target->spec, flim_precision_name(target->precision), s->name);
    }
}

static ref_row row_of(int input, int out_channels, const int kernel[3], const int stride[3], const int pad[3], unsigned what)
{
    return (ref_row){.input = input,
                     .skip = -1,
                     .out_channels = out_channels,
                     .kernel = {kernel[0], kernel[1], kernel[2]},
                     .stride = {stride[0], stride[1], stride[2]},
                     .pad = {pad[0], pad[1], pad[2]},
                     .what = what};
}

/* What feeds the unit, what it adds, the unit, and what reads it. */
static void one_unit(void **state)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1}, none[3] = {0, 0, 0};
    const unit_case *c = *state;
    const bool exact = c->what & EXACT, fed = c->in_channels != 2 || c->what & FED;
    ref_row row[4];
    int n = 0, skip = -1;
    if (fed) {
        row[n++] = row_of(-1, c->in_channels, three, one, one, 0);
    }
    if (c->what & SKIP) {
        skip = exact && !(c->what & FOLD) ? 0 : n;
    }
    if (skip == n) {
        const unsigned full = c->what & FOLD ? REF_BN : REF_BN | REF_ACT;
        row[n++] = row_of(-1, c->out_channels, three, one, one, exact ? 0 : full);
    }
    const int under_test = n;
    row[n] = row_of(fed ? 0 : -1, c->out_channels, c->kernel, c->stride, c->pad,
                    (c->what & BN ? REF_BN : 0u) | (c->what & ACT ? REF_ACT : 0u) | (c->what & POOL ? REF_POOL : 0u) |
                        (c->what & DROP ? REF_DROP : 0u));
    row[n++].skip = skip;
    row[n] =
        exact ? row_of(under_test, 8, three, one, one, REF_POOL) : row_of(under_test, 8, one, one, none, REF_BN | REF_ACT);
    n++;
    scene s = {.name = c->name,
               .net = ref_small_network(c->size, row, n, 8, 1),
               .n = c->n,
               .first = under_test,
               .last = under_test,
               .dropout = !(c->what & DROP) ? 0.0f
                          : exact           ? 0.5f
                                            : 0.25f,
               .exact = exact,
               .exact_backward = exact && !(c->what & BN),
               .eval = (c->what & EVAL) != 0};
    run_scene(&s);
}

static void one_block(void **state)
{
    const block_case *c = *state;
    scene s = {.name = c->name,
               .net = ref_small_network(c->size, c->row, (int)(sizeof c->row / sizeof c->row[0]), 8, 1),
               .n = c->n,
               .first = c->first,
               .dropout = 0.25f,
               .eval = c->eval};
    s.last = s.net.n_units - 1;
    run_scene(&s);
}

/* ---- Head and loss ---------------------------------------------------------------------------------------------------- */

typedef struct head_case {
    const char *name;
    int n, in_channels, hidden, outputs;
    int size[3]; /* T,H,W of x */
    float dropout, smoothing;
    bool weighted; /* cells have weights, and the divisor is not their sum: an update over several micro-batches */
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
    {"head-batch1-2", 1, 16, 8, 1, {2, 3, 3}, 0, 0, false, false}, /* one value a channel: no variance */
    {"head-batch1-3", 1, 16, 8, 3, {2, 3, 3}, 0.25f, 0.05f, true, false},
    {"head-eval-2", 3, 16, 8, 1, {2, 3, 3}, 0.25f, 0, false, true},
    {"head-eval-3", 1, 16, 8, 3, {2, 3, 3}, 0.25f, 0, false, true},
};
enum { N_HEADS = sizeof heads / sizeof heads[0] };

static void one_head(void **state)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    const head_case *c = *state;
    const ref_row row[1] = {row_of(-1, c->in_channels, three, one, one, REF_BN | REF_ACT)};
    scene s = {.name = c->name,
               .net = ref_small_network(c->size, row, 1, c->hidden, c->outputs),
               .n = c->n,
               .dropout = c->dropout,
               .smoothing = c->smoothing,
               .divisor = c->weighted ? 11.5 : 0,
               .weighted = c->weighted,
               .eval = c->eval};
    run_scene(&s);
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
    static struct CMUnitTest tests[N_UNITS + N_BLOCKS + N_HEADS];
    const char *only = getenv("FLIM_CASE");
    size_t n = 0;
    for (int i = 0; i < N_UNITS; i++) {
        tests[n++] = (struct CMUnitTest){.name = units[i].name, .test_func = one_unit, .initial_state = (void *)&units[i]};
    }
    for (int i = 0; i < N_BLOCKS; i++) {
        tests[n++] = (struct CMUnitTest){.name = blocks[i].name, .test_func = one_block, .initial_state = (void *)&blocks[i]};
    }
    for (int i = 0; i < N_HEADS; i++) {
        tests[n++] = (struct CMUnitTest){.name = heads[i].name, .test_func = one_head, .initial_state = (void *)&heads[i]};
    }
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

REF_DEVICE_MAIN(cmocka_unit_test(dropout_follows_the_counter_layout))

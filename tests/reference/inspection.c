#include "reference/inspection.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/inspect.h"

static const double fp32 = 2e-5; /* cuDNN's algorithms on an H200: 1.2e-5 */
/* The head is in fp32.  Its BatchNorm is over a few cells and takes nearly all of the gradient away: what is left is
 * compared within head_tolerance of its size and head_rounding of the terms that cancelled (ref_head_run's scales). */
static const double head_tolerance = 3e-4, head_rounding = 0x1p-22;

double ref_rounding(flim_precision precision)
{
    switch (precision) {
    case FLIM_PRECISION_TF32:
    case FLIM_PRECISION_FP16: return 0x1p-10;
    case FLIM_PRECISION_BF16: return 0x1p-7;
    case FLIM_PRECISION_AUTO:
    case FLIM_PRECISION_AMP:
    case FLIM_PRECISION_FP32: break;
    }
    return fp32;
}

static const char *const tensor_names[] = {"z", "v", "y", "dv", "dz", "scale", "dx"};

static const char *unit_name(const ref_inspection *in, int unit)
{
    return unit == in->net->n_units ? "head" : in->net->unit[unit].conv;
}

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

static bool verbose(void)
{
    const char *text = getenv("FLIM_TEST_VERBOSE");
    return text && text[0] && strcmp(text, "0") != 0;
}

/* Notes one comparison; error may be NaN. */
static bool judge(ref_inspection *in, const char *of, const char *what, double error, double tolerance)
{
    const bool good = error <= tolerance;
    in->compared++;
    in->failures += !good;
    if (!good || verbose()) {
        fprintf(in->lines, "%-5s %-26s %-5s %-22s %-9s error %9.3g tolerance %9.3g\n", good ? "ok" : "WRONG", in->name,
                flim_precision_name(in->target->precision), of, what, error, tolerance);
    }
    return good;
}

/* ---- Tensors --------------------------------------------------------------------------------------------------------- */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Relative error of found against expected, both (n,channels,voxels), as `scale`, of which a fraction is rounding's; NULL:
 * none.  own: what an element's rounding may be as a share of itself; heavy tails would else count as errors of small elements. */
static double tensor_error(const float *found, const double *expected, const double *scale, double own, int64_t n,
                           int64_t channels, int64_t voxels)
{
    double total = 0, widest = 0, most = 0, worst = 0;
    double *size = ref_array(channels), *difference = ref_array(channels);
    for (int64_t i = 0; i < n * channels * voxels; i++) {
        const int64_t c = i / voxels % channels;
        const double gap = fabs((double)found[i] - expected[i]), rounding = scale ? head_rounding * scale[i] : 0;
        const double d = gap < rounding ? 0 : gap - rounding, beyond = d - own * fabs(expected[i]); /* NaN stays */
        size[c] += expected[i] * expected[i];
        difference[c] += d * d;
        most = beyond > most || isnan(beyond) ? beyond : most;
        total += expected[i] * expected[i] / (double)channels;
    }
    for (int64_t c = 0; c < channels; c++) {
        const double base = sqrt(size[c] > total / 16 ? size[c] : total / 16);
        const double error = difference[c] == 0 ? 0 : sqrt(difference[c]) / base;
        worst = error > worst || isnan(error) ? error : worst;
        widest = size[c] > widest ? size[c] : widest;
    }
    most = most == 0 ? 0 : most / (6 * sqrt(widest / (double)(n * voxels)));
    free(size);
    free(difference);
    return most > worst || isnan(most) ? most : worst;
}

/* 1 if an element differs; NaN if the case is not exact: no integers up to `limit`. */
static double exact_error(const float *found, const double *expected, int64_t count, double limit)
{
    for (int64_t i = 0; i < count; i++) {
        if (!(fabs(expected[i]) <= limit) || fabs(expected[i] - rint(expected[i])) > 1e-6) {
            return NAN;
        }
        if (!((double)found[i] == rint(expected[i]))) {
            return 1;
        }
    }
    return 0;
}

static bool device_name_of(ref_tensor what, flim_inspected *out)
{
    switch (what) {
    case REF_Z: *out = FLIM_INSPECT_Z; return true;
    case REF_Y: *out = FLIM_INSPECT_Y; return true;
    case REF_DV: *out = FLIM_INSPECT_DV; return true;
    case REF_DZ: *out = FLIM_INSPECT_DZ; return true;
    case REF_DX: *out = FLIM_INSPECT_DX; return true;
    case REF_V:
    case REF_DX_SCALE:
    case REF_TENSORS: break;
    }
    return false;
}

/* The device's tensor, once per call; NULL if it is not stored. */
static const float *fetch(ref_inspection *in, int unit, ref_tensor what, int64_t count)
{
    ref_tensor_state *t = &in->tensor[unit][what];
    flim_inspected which;
    if (t->asked || !device_name_of(what, &which)) {
        return t->device;
    }
    flim_error err = {0};
    t->asked = true;
    t->device = malloc((size_t)count * sizeof *t->device);
    if (!t->device) {
        abort();
    }
    for (int64_t i = 0; i < count; i++) {
        t->device[i] = NAN;
    }
    const flim_status status = flim_program_read_tensor(in->program, unit, which, t->device, count, &err);
    if (status != FLIM_OK) {
        free(t->device);
        t->device = NULL;
    }
    if (status != FLIM_OK && (status != FLIM_ERROR_USAGE || verbose())) {
        fprintf(in->lines, "%-5s %-26s %-5s %s\n", status == FLIM_ERROR_USAGE ? "note" : "WRONG", in->name,
                flim_precision_name(in->target->precision), err.text);
        in->failures += status != FLIM_ERROR_USAGE;
    }
    return t->device;
}

/* Roundings in what tensor `what` is computed from, where the device has not stored it. */
static double roundings_before(const ref_inspection *in, int unit, ref_tensor what)
{
    const flim_network *net = in->net;
    const flim_unit *u = unit < net->n_units ? &net->unit[unit] : NULL;
    double most = 0;
    switch (what) {
    case REF_Z: return in->weight_roundings + (u->input < 0 ? 0 : in->roundings[u->input][REF_Y]);
    case REF_Y: return u ? larger(in->roundings[unit][REF_Z], u->skip < 0 ? 0 : in->roundings[u->skip][REF_Z]) : 0;
    case REF_DV:
        for (int r = 0; r < net->n_units; r++) {
            most = net->unit[r].input == unit ? larger(most, in->roundings[r][REF_DX]) : most;
            most = net->unit[r].skip == unit ? larger(most, in->roundings[r][REF_DV]) : most;
        }
        return most;
    case REF_DZ: /* where dv is stored, its sums may be those before it was rounded: one rounding more beside dz's own */
        return larger(in->roundings[unit][REF_DV] + (in->tensor[unit][REF_DV].device != NULL), in->roundings[unit][REF_Z]);
    case REF_DX: return u ? in->weight_roundings + in->roundings[unit][REF_DZ] : 0;
    case REF_V:
    case REF_DX_SCALE:
    case REF_TENSORS: break;
    }
    return 0;
}

/* A value that rounding may carry over the activation's kink, or a pool whose two values rounding may exchange; `share` of the values' root
 * mean square is near. */
static bool is_near_kink(const flim_unit *u, int64_t n, const double *v, double share)
{
    const int64_t plane = (int64_t)u->out[1] * u->out[2], bins = u->conv_out[0], rows = n * u->out_channels;
    double size = 0;
    for (int64_t i = 0; i < rows * bins * plane; i++) {
        size += v[i] * v[i] / (double)(rows * bins * plane);
    }
    const double margin = share * sqrt(size);
    for (int64_t i = 0; i < rows * bins * plane; i++) {
        const int64_t t = i / plane % bins;
        const double gap = u->pool_t == 2 && t % 2 == 1 ? fabs(v[i] - v[i - plane]) : 0;
        if ((u->act && fabs(v[i]) < margin) || (gap > 0 && gap < margin)) {
            return true;
        }
    }
    return false;
}

/* norm (C), allocated: of each channel of values (n,C,...). */
static void note_norm(const ref_inspection *in, int unit, const double *values, int64_t count, double **norm)
{
    const int64_t channels = in->net->unit[unit].out_channels, voxels = count / in->n / channels;
    free(*norm);
    *norm = ref_array(channels);
    for (int64_t i = 0; i < count; i++) {
        (*norm)[i / voxels % channels] += values[i] * values[i];
    }
    for (int64_t c = 0; c < channels; c++) {
        (*norm)[c] = sqrt((*norm)[c]);
    }
}

void ref_inspection_observe(void *context, int unit, ref_tensor what, double *values, int64_t count)
{
    ref_inspection *in = context;
    const bool head = unit == in->net->n_units;
    const flim_unit *u = &in->net->unit[head ? unit - 1 : unit];
    if (what == REF_V) {
        const flim_unit hidden = {
            .act = true, .pool_t = 1, .out_channels = in->net->head[0].hidden, .conv_out = {1, 1, 1}, .out = {1, 1, 1}};
        in->near_kink =
            in->near_kink || (in->trained && is_near_kink(head ? &hidden : u, in->n, values, in->near > 0 ? in->near : 5e-6));
        return;
    }
    if (what == REF_DX_SCALE) {
        free(in->dx_scale);
        in->dx_scale = ref_array(count);
        memcpy(in->dx_scale, values, (size_t)count * sizeof *values);
        return;
    }
    ref_tensor_state *state = &in->tensor[unit][what];
    const float *device = fetch(in, unit, what, count);
    const double before = roundings_before(in, unit, what);
    in->roundings[unit][what] = device ? 0 : before + (what != REF_DV);
    if (device && !state->compared) {
        const double one = head ? head_tolerance : ref_rounding(in->target->precision);
        const bool exact = what > REF_Y                ? in->exact_backward
                           : what == REF_Y && u->bn[0] ? false
                                                       : in->exact_forward && unit <= in->exact_unit;
        const int64_t channels = what == REF_DX && !head ? u->in_channels
                                 : what == REF_Y && head ? in->net->head[0].outputs
                                                         : u->out_channels;
        const double error = exact ? exact_error(device, values, count, 256) /* bf16 holds every integer up to 2^8 */
                                   : tensor_error(device, values, head && what == REF_DX ? in->dx_scale : NULL, one / 2,
                                                  in->n, channels, count / in->n / channels);
        state->compared = true;
        state->failed = !judge(in, unit_name(in, unit), tensor_names[what], error, exact ? 0 : one * sqrt(1 + before));
    }
    for (int64_t i = 0; device && i < count; i++) {
        values[i] = (double)device[i];
    }
    if (what == REF_DV) {
        note_norm(in, unit, values, count, &in->dv_norm[unit]);
    }
    if (what == REF_Y && !head) {
        note_norm(in, unit, values, count, &in->y_norm[unit]);
    }
}

static void open_lines(ref_inspection *in)
{
    in->failures = in->compared = 0;
    in->lines = open_memstream(&in->text, &in->text_size);
    if (!in->lines) {
        abort();
    }
}

static void close_lines(ref_inspection *in)
{
    if (in->lines) {
        fclose(in->lines);
        free(in->text);
        in->lines = NULL;
        in->text = NULL;
    }
}

void ref_inspection_begin(ref_inspection *in, int64_t n, bool train)
{
    ref_inspection_end(in);
    in->n = n;
    in->trained = train;
    in->near_kink = false;
    memset(in->roundings, 0, sizeof in->roundings);
    open_lines(in);
}

void ref_inspection_again(ref_inspection *in)
{
    close_lines(in);
    open_lines(in);
    for (int u = 0; u <= FLIM_MAX_UNITS; u++) {
        for (int k = 0; k < REF_TENSORS; k++) {
            in->tensor[u][k].compared = in->tensor[u][k].failed = false;
        }
    }
}

int ref_inspection_report(ref_inspection *in)
{
    fflush(in->lines);
    fputs(in->text, stdout);
    fflush(stdout);
    return in->failures;
}

void ref_inspection_end(ref_inspection *in)
{
    for (int u = 0; u <= FLIM_MAX_UNITS; u++) {
        for (int k = 0; k < REF_TENSORS; k++) {
            free(in->tensor[u][k].device);
            in->tensor[u][k] = (ref_tensor_state){0};
        }
        if (u < FLIM_MAX_UNITS) {
            free(in->dv_norm[u]);
            free(in->y_norm[u]);
            in->dv_norm[u] = in->y_norm[u] = NULL;
        }
    }
    free(in->dx_scale);
    in->dx_scale = NULL;
    close_lines(in);
}

/* ---- Vectors: parameters and statistics -------------------------------------------------------------------------------- */

static float *read_state(ref_inspection *in, flim_state state, int64_t count)
{
    float *values = malloc((size_t)count * sizeof *values);
    flim_error err = {0};
    if (!values) {
        abort();
    }
    for (int64_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    if (flim_program_read(in->program, state, values, &err) != FLIM_OK) {
        fprintf(in->lines, "WRONG %s: %s\n", in->name, err.text);
        in->failures++;
    }
    return values;
}

/* The largest difference as a share of the element, of the vector's rms and of noise[i] (may be NULL), whichever is most. */
static double vector_error(const float *found, const double *expected, const double *noise, int64_t count)
{
    double size = 0, worst = 0;
    for (int64_t i = 0; i < count; i++) {
        size += expected[i] * expected[i] / (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        const double d = fabs((double)found[i] - expected[i]);
        const double base = larger(larger(fabs(expected[i]), sqrt(size)), noise ? noise[i] : 0);
        const double error = d == 0 ? 0 : d / base;
        worst = error > worst || isnan(error) ? error : worst;
    }
    return worst;
}

/* Sums that cancel to zero but for rounding: a share of the sum of absolute values. */
static double cancelled_error(const float *found, const double *scale, int64_t count)
{
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = fabs((double)found[i]), error = d == 0 ? 0 : d / scale[i];
        worst = error > worst || isnan(error) ? error : worst;
    }
    return worst;
}

static double norm(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += values[i] * values[i];
    }
    return sqrt(sum);
}

/* Roundings in x and dz, of which a convolution's weight gradient is made. */
static double weight_roundings(const ref_inspection *in, int unit)
{
    return roundings_before(in, unit, REF_Z) - in->weight_roundings + in->roundings[unit][REF_DZ];
}

/* What stands in for the size of gradient t where that is smaller, element by element.  free() it.
 *
 * A head: the terms that cancelled.  BatchNorm of a unit: the norm of dv, as independent roundings add up.  Where the head
 * alone reads the unit, dy is one value per cell and channel, all voxels of a sign round alike, and the errors add up to the
 * sum of |dv|, of which each is half of ref_rounding: that matters where a kernel sums what it has not rounded yet, while
 * the reference sums what it stored. |dv| and |dv| times the normalised z both sum up to at most the norm times the root of
 * the number of voxels. */
static double *gradient_noise(const ref_inspection *in, const flim_tensor *t, const double *scale)
{
    double *noise = ref_array(t->count);
    if (t->unit == in->net->n_units) {
        for (int64_t i = 0; i < t->count && t->role == FLIM_TENSOR_LINEAR_WEIGHT; i++) {
            noise[i] = scale[i] * head_rounding / head_tolerance;
        }
        return noise;
    }
    const bool rounds_alike = in->net->head[0].unit == t->unit && in->tensor[t->unit][REF_DV].device &&
                              in->target->precision != FLIM_PRECISION_FP32;
    const double count = (double)(in->n * volume(in->net->unit[t->unit].conv_out));
    for (int64_t i = 0; i < t->count; i++) {
        noise[i] = in->dv_norm[t->unit][i] * (rounds_alike ? larger(1, sqrt(count) / 2) : 1);
    }
    return noise;
}

static bool check_gradient(ref_inspection *in, const ref_network *ref, const flim_tensor *t, const float *found)
{
    const double *expected = ref->gradients + t->offset, *scale = ref->scale + t->offset;
    const bool head = t->unit == in->net->n_units;
    const double one = head ? head_tolerance : ref_rounding(in->target->precision);
    const bool bf16 = in->target->precision == FLIM_PRECISION_BF16 && t->role == FLIM_TENSOR_CONV_WEIGHT;
    if (in->exact_backward &&
        t->unit == in->exact_unit) { /* sums over all voxels, in fp32; cuDNN may store them in 16 bits */
        const double error = exact_error(found, expected, t->count, bf16 ? 256 : 2048);
        if (!bf16 || !isnan(error)) {
            return judge(in, t->name, "gradient", error, 0);
        }
    }
    if (t->role == FLIM_TENSOR_BIAS && norm(expected, t->count) < 1e-10 * norm(scale, t->count)) {
        return judge(in, t->name, "gradient", cancelled_error(found, scale, t->count), one);
    }
    if (t->role == FLIM_TENSOR_CONV_WEIGHT) {
        const double products = (double)(in->n * volume(in->net->unit[t->unit].conv_out));
        return judge(in, t->name, "gradient", tensor_error(found, expected, NULL, 0, 1, t->shape[0], t->count / t->shape[0]),
                     sqrt(one * one * (1 + weight_roundings(in, t->unit)) + fp32 * fp32 * products / 200));
    }
    double *noise = gradient_noise(in, t, scale);
    const double before = head ? 0 : in->roundings[t->unit][REF_DV], error = vector_error(found, expected, noise, t->count);
    free(noise);
    return judge(in, t->name, "gradient", error, one * sqrt(1 + before));
}

bool ref_inspection_gradient(ref_inspection *in, const ref_network *ref, const flim_tensor *t)
{
    float *found = read_state(in, FLIM_STATE_GRADIENTS, in->net->parameters);
    const bool good = check_gradient(in, ref, t, found + t->offset);
    free(found);
    return good;
}

/* With weights and z in 16 or 19 bits, and z not stored, the reference cannot know on which side of its kink the device's
 * activation stands: every value nearer than a rounding may take the other side, and each that does moves the unit's
 * gradients by all of its dy.  Where weights are exact in the storage type (weight_roundings 0), z is the same but for fp32,
 * and near_kink sees it. */
static bool sides_are_unknown(const ref_inspection *in, int unit)
{
    return unit < in->net->n_units && in->weight_roundings > 0 && in->target->precision != FLIM_PRECISION_FP32 &&
           in->net->unit[unit].act && !in->tensor[unit][REF_Z].device;
}

void ref_inspection_gradients(ref_inspection *in, const ref_network *ref)
{
    for (int k = 0; k < in->net->n_tensors; k++) {
        const flim_tensor *t = &in->net->tensor[k];
        if (!flim_tensor_is_statistic(t) && t->role != FLIM_TENSOR_BIAS && sides_are_unknown(in, t->unit)) {
            fprintf(in->lines,
                    "note  %-26s %-5s gradient of %s is not compared: z of its unit is not stored, and sides of the "
                    "activation differ\n",
                    in->name, flim_precision_name(in->target->precision), t->name);
        } else if (!flim_tensor_is_statistic(t)) {
            (void)ref_inspection_gradient(in, ref, &in->net->tensor[k]);
        }
    }
}

void ref_inspection_statistics(ref_inspection *in, const ref_network *ref)
{
    float *found = read_state(in, FLIM_STATE_STATISTICS, in->net->statistics);
    for (int k = 0; k < in->net->n_tensors; k++) {
        const flim_tensor *t = &in->net->tensor[k];
        if (flim_tensor_is_statistic(t)) {
            const bool head = t->unit == in->net->n_units;
            const double one = head ? head_tolerance : ref_rounding(in->target->precision);
            const double before = head ? 0 : in->roundings[t->unit][REF_Z];
            judge(in, t->name, "statistic", vector_error(found + t->offset, ref->statistics + t->offset, NULL, t->count),
                  one * sqrt(1 + before));
        }
    }
    free(found);
}

void ref_inspection_logits(ref_inspection *in, const float *found, const double *expected)
{
    judge(in, "head", "logits", vector_error(found, expected, NULL, in->n * in->net->head[0].outputs), head_tolerance);
}

void ref_inspection_loss(ref_inspection *in, double found, double expected)
{
    judge(in, "head", "loss", fabs(found - expected) / fabs(expected), head_tolerance);
}

#include "export/onnx_graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 192 }; /* a weight's name, a prefix and a suffix */
typedef char name[NAME_BYTES];

static flim_onnx_attribute integer(const char *key, int64_t value)
{
    return (flim_onnx_attribute){.name = key, .kind = FLIM_ONNX_INTEGER, .n = 1, .integer = {value}};
}

static flim_onnx_attribute real(const char *key, float value)
{
    return (flim_onnx_attribute){.name = key, .kind = FLIM_ONNX_REAL, .real = value};
}

/* Along T, H and W. */
static flim_onnx_attribute triple(const char *key, const int value[3])
{
    return (flim_onnx_attribute){.name = key, .kind = FLIM_ONNX_INTEGERS, .n = 3, .integer = {value[0], value[1], value[2]}};
}

/* An operator of one value; of two. */
static void one(flim_onnx *o, const char *operator, const char * output, const char *x, const flim_onnx_attribute *attribute)
{
    flim_onnx_add_node(o, operator, output, 1, &x, attribute != NULL, attribute);
}

static void two(flim_onnx *o, const char *operator, const char * output, const char *x, const char *y,
                const flim_onnx_attribute *attribute)
{
    flim_onnx_add_node(o, operator, output, 2, (const char *const[]){x, y}, attribute != NULL, attribute);
}

/* A value of one model. */
static void model_value(flim_onnx_place at, const char *layer, const char *suffix, name out)
{
    if (at.n > 1) {
        snprintf(out, sizeof(name), "model_%d/%.100s%.40s", at.m, layer, suffix);
    } else {
        snprintf(out, sizeof(name), "%.100s%.40s", layer, suffix);
    }
}

/* ---- one model ---- */

/* A model at work: `y` is what each unit gives, by name. */
typedef struct walk {
    flim_onnx *onnx;
    const flim_network *net;
    flim_onnx_place at;
    const float *parameters, *statistics; /* (P), (S) */
    name y[FLIM_MAX_UNITS];
} walk;

static void name_of(const walk *w, const char *layer, const char *suffix, name out)
{
    model_value(w->at, layer, suffix, out);
}

/* The tensor of a role (network.h: flim_network_tensor), as a constant; its name. */
static void weight(const walk *w, int unit, flim_tensor_role role, int index, name out)
{
    const flim_tensor *t = flim_network_tensor(w->net, unit, role, index);
    const float *base = flim_tensor_is_statistic(t) ? w->statistics : w->parameters;
    name_of(w, t->name, "", out);
    flim_onnx_add_floats(w->onnx, out, t->ndim, t->shape, base + t->offset);
}

/* x becomes operator(x, weight, bias). */
static void add_affine(const walk *w, const char *operator, const char * layer, int unit, flim_tensor_role role, int index,
                       name x, int n_attributes, const flim_onnx_attribute *attribute)
{
    name output, kernel, bias;
    weight(w, unit, role, index, kernel);
    weight(w, unit, FLIM_TENSOR_BIAS, index, bias);
    name_of(w, layer, "", output);
    flim_onnx_add_node(w->onnx, operator, output, 3, (const char *const[]){x, kernel, bias}, n_attributes, attribute);
    memcpy(x, output, sizeof output);
}

static void add_bn(const walk *w, const char *layer, int unit, name x)
{
    static const flim_tensor_role roles[4] = {FLIM_TENSOR_BN_WEIGHT, FLIM_TENSOR_BN_BIAS, FLIM_TENSOR_RUNNING_MEAN,
                                              FLIM_TENSOR_RUNNING_VAR};
    name output, of[4];
    const char *input[5] = {x};
    const flim_onnx_attribute epsilon = real("epsilon", FLIM_BN_EPS);
    for (int i = 0; i < 4; i++) {
        weight(w, unit, roles[i], 0, of[i]);
        input[i + 1] = of[i];
    }
    name_of(w, layer, "", output);
    flim_onnx_add_node(w->onnx, "BatchNormalization", output, 5, input, 1, &epsilon);
    memcpy(x, output, sizeof output);
}

static void add_leaky_relu(const walk *w, const char *layer, name x)
{
    name output;
    const flim_onnx_attribute slope = real("alpha", FLIM_LEAKY_SLOPE);
    name_of(w, layer, ".act", output);
    one(w->onnx, "LeakyRelu", output, x, &slope);
    memcpy(x, output, sizeof output);
}

static void add_pool(const walk *w, const flim_unit *u, name x)
{
    const int bins[3] = {u->pool_t, 1, 1};
    const flim_onnx_attribute attributes[] = {triple("kernel_shape", bins), triple("strides", bins)};
    name output;
    name_of(w, u->conv, ".pool", output);
    flim_onnx_add_node(w->onnx, "MaxPool", output, 1, (const char *const[]){x}, 2, attributes);
    memcpy(x, output, sizeof output);
}

/* conv -> BatchNorm -> + skip -> leaky ReLU -> max pool, each if the unit has it. */
static void add_unit(walk *w, int i)
{
    const flim_unit *u = &w->net->unit[i];
    const int *p = u->pad;
    const flim_onnx_attribute attributes[] = {
        triple("kernel_shape", u->kernel),
        triple("strides", u->stride),
        {.name = "pads", .kind = FLIM_ONNX_INTEGERS, .n = 6, .integer = {p[0], p[1], p[2], p[0], p[1], p[2]}}};
    name x;
    snprintf(x, sizeof x, "%s", u->input < 0 ? "input" : w->y[u->input]);
    add_affine(w, "Conv", u->conv, i, FLIM_TENSOR_CONV_WEIGHT, 0, x, 3, attributes);
    if (u->bn[0]) {
        add_bn(w, u->bn, i, x);
    }
    if (u->skip >= 0) {
        name sum;
        name_of(w, u->conv, ".add", sum);
        two(w->onnx, "Add", sum, x, w->y[u->skip], NULL);
        memcpy(x, sum, sizeof sum);
    }
    if (u->act) {
        add_leaky_relu(w, u->conv, x);
    }
    if (u->pool_t > 1) {
        add_pool(w, u, x);
    }
    memcpy(w->y[i], x, sizeof x);
}

/* mean -> linear -> BatchNorm -> leaky ReLU -> linear, which gives the logits. */
static void add_pooled_head(const walk *w, int k)
{
    const flim_head *head = &w->net->head[k];
    const int unit = w->net->n_units + k;
    const flim_onnx_attribute transposed = integer("transB", 1);
    name x, pooled, layer, kernel, bias, logits;
    name_of(w, head->name, ".mean", pooled);
    name_of(w, head->name, ".features", x);
    one(w->onnx, "GlobalAveragePool", pooled, w->y[head->unit], NULL);
    one(w->onnx, "Flatten", x, pooled, NULL);
    snprintf(layer, sizeof layer, "%s.fc1", head->name);
    add_affine(w, "Gemm", layer, unit, FLIM_TENSOR_LINEAR_WEIGHT, 0, x, 1, &transposed);
    snprintf(layer, sizeof layer, "%s.bn", head->name);
    add_bn(w, layer, unit, x);
    add_leaky_relu(w, layer, x);
    weight(w, unit, FLIM_TENSOR_LINEAR_WEIGHT, 1, kernel);
    weight(w, unit, FLIM_TENSOR_BIAS, 1, bias);
    name_of(w, "logits", "", logits);
    flim_onnx_add_node(w->onnx, "Gemm", logits, 3, (const char *const[]){x, kernel, bias}, 1, &transposed);
}

void flim_onnx_add_model(flim_onnx *onnx, const flim_network *net, flim_onnx_place at, const float *parameters,
                         const float *statistics)
{
    walk w = {.onnx = onnx, .net = net, .at = at, .parameters = parameters, .statistics = statistics};
    for (int i = 0; i < net->n_units; i++) {
        add_unit(&w, i);
    }
    add_pooled_head(&w, 0);
}

/* ---- input ---- */

static void add_constant(flim_onnx *o, const char *key, float value)
{
    flim_onnx_add_floats(o, key, 0, NULL, &value);
}

void flim_onnx_add_plain_input(flim_onnx *o, const flim_network *net)
{
    flim_onnx_add_input(o, "input", 5, (const int[]){FLIM_ONNX_ANY, net->channels, net->in[0], net->in[1], net->in[2]});
}

/* "inside" (N,H,W): 1 or 0. */
static void add_inside(flim_onnx *o, const flim_network *net, bool takes_mask)
{
    const flim_onnx_attribute as_float = integer("to", FLIM_ONNX_FLOAT);
    const flim_onnx_attribute over[2] = {{.name = "axes", .kind = FLIM_ONNX_INTEGERS, .n = 1, .integer = {1}},
                                         integer("keepdims", 0)};
    add_constant(o, "none", 0.0f);
    if (takes_mask) {
        flim_onnx_add_input(o, "mask", 3, (const int[]){FLIM_ONNX_ANY, net->in[1], net->in[2]});
    } else {
        flim_onnx_add_node(o, "ReduceMax", "mask", 1, (const char *const[]){"counts"}, 2, over);
    }
    two(o, "Equal", "is_outside", "mask", "none", NULL);
    one(o, "Not", "is_inside", "is_outside", NULL);
    one(o, "Cast", "inside", "is_inside", &as_float);
}

void flim_onnx_add_counts_input(flim_onnx *o, const flim_network *net, bool takes_mask, bool mask_counts)
{
    const flim_onnx_attribute channel = integer("axis", 1);
    flim_onnx_add_input(o, "counts", 4, (const int[]){FLIM_ONNX_ANY, net->in[0], net->in[1], net->in[2]});
    add_inside(o, net, takes_mask);
    flim_onnx_add_integers(o, "axis_of_channels", 1, (const int64_t[]){1});
    flim_onnx_add_integers(o, "axes_before_mask", 2, (const int64_t[]){1, 2});
    flim_onnx_add_integers(o, "every_time_bin", 5, (const int64_t[]){1, 1, net->in[0], 1, 1});
    add_constant(o, "unit", 1.0f);
    add_constant(o, "ten", 10.0f);
    if (mask_counts) {
        two(o, "Unsqueeze", "inside_at_bins", "inside", "axis_of_channels", NULL);
        two(o, "Mul", "counts_inside", "counts", "inside_at_bins", NULL);
    }
    two(o, "Add", "counts_and_one", mask_counts ? "counts_inside" : "counts", "unit", NULL);
    one(o, "Log", "logarithm", "counts_and_one", NULL);
    two(o, "Div", "tenth", "logarithm", "ten", NULL);
    two(o, "Unsqueeze", "signal", "tenth", "axis_of_channels", NULL);
    two(o, "Unsqueeze", "mask_of_a_bin", "inside", "axes_before_mask", NULL);
    two(o, "Expand", "mask_of_bins", "mask_of_a_bin", "every_time_bin", NULL);
    two(o, "Concat", "input", "signal", "mask_of_bins", &channel);
}

/* ---- output ---- */

void flim_onnx_add_calibration(flim_onnx *o, const flim_network *net, flim_onnx_place at, double temperature,
                               const float *bias)
{
    name logits, scale, scaled, shift, calibrated;
    const float factor = (float)(1 / temperature);
    const int outputs = flim_class_outputs(net->classes);
    model_value(at, "logits", "", logits);
    model_value(at, "calibration.scale", "", scale);
    model_value(at, "calibration.bias", "", shift);
    model_value(at, "calibration.scaled", "", scaled);
    model_value(at, "calibrated_logits", "", calibrated);
    add_constant(o, scale, factor);
    flim_onnx_add_floats(o, shift, 1, &outputs, bias);
    two(o, "Mul", scaled, logits, scale, NULL);
    two(o, "Add", calibrated, scaled, shift, NULL);
}

/* A score per class (N,K) of a model's `logits`: of the one logit of two classes 0 and the logit itself; its name. */
static void add_scores(flim_onnx *o, int classes, flim_onnx_place at, const char *logits, name scores)
{
    name of;
    model_value(at, logits, "", of);
    if (classes == 2) {
        model_value(at, logits, ".of_classes", scores);
        two(o, "MatMul", scores, of, "zero_and_logit", NULL);
    } else {
        memcpy(scores, of, sizeof of);
    }
}

/* log of the mean over n models of the probabilities of their `logits` (N,K), at least log 1e-30 as in flim_ensemble_mean: by
 * logarithms, so that nothing is lost where a class is all but certain.  Its name. */
static void add_log_mean(flim_onnx *o, int classes, int n, const char *logits, name out)
{
    const flim_onnx_attribute axis = integer("axis", 1);
    const flim_onnx_attribute over[2] = {{.name = "axes", .kind = FLIM_ONNX_INTEGERS, .n = 1, .integer = {1}},
                                         integer("keepdims", 0)};
    name all, sum, mean;
    for (int m = 0; m < n; m++) {
        const flim_onnx_place at = {m, n};
        name scores, logs, row, joined;
        add_scores(o, classes, at, logits, scores);
        model_value(at, logits, ".log_probabilities", logs);
        model_value(at, logits, ".of_a_model", row);
        model_value(at, logits, ".of_models_to_this", joined);
        one(o, "LogSoftmax", logs, scores, &axis);
        two(o, "Unsqueeze", row, logs, "axis_of_models", NULL);
        if (m > 0) {
            two(o, "Concat", joined, all, row, &axis);
        }
        memcpy(all, m > 0 ? joined : row, sizeof all);
    }
    snprintf(sum, sizeof sum, "%s.log_sum", logits);
    snprintf(mean, sizeof mean, "%s.log_mean", logits);
    snprintf(out, sizeof(name), "%s.log_mean_bounded", logits);
    flim_onnx_add_node(o, "ReduceLogSumExp", sum, 1, (const char *const[]){all}, 2, over);
    two(o, "Sub", mean, sum, "log_of_models", NULL);
    two(o, "Max", out, mean, "least_log", NULL);
}

/* The output `probabilities` (N,K) of the models' `logits`; of several models also mean_logits (N,K'), unless NULL. */
static void add_probabilities(flim_onnx *o, int classes, int n, const char *logits, const char *mean_logits,
                              const char *probabilities)
{
    const flim_onnx_attribute axis = integer("axis", 1);
    name value;
    flim_onnx_add_output(o, probabilities, 2, (const int[]){FLIM_ONNX_ANY, classes});
    if (n == 1) {
        add_scores(o, classes, (flim_onnx_place){0, 1}, logits, value);
        one(o, "Softmax", probabilities, value, &axis);
        return;
    }
    add_log_mean(o, classes, n, logits, value);
    one(o, "Exp", probabilities, value, NULL);
    if (mean_logits && classes == 2) {
        two(o, "MatMul", mean_logits, value, "log_odds", NULL);
    } else if (mean_logits) {
        one(o, "Identity", mean_logits, value, NULL);
    }
}

void flim_onnx_add_outputs(flim_onnx *o, const flim_network *net, int n, bool calibrated)
{
    const int classes = net->classes;
    if (classes == 2) {
        flim_onnx_add_floats(o, "zero_and_logit", 2, (const int[]){1, 2}, (const float[]){0, 1});
    }
    if (classes == 2 && n > 1) {
        flim_onnx_add_floats(o, "log_odds", 2, (const int[]){2, 1}, (const float[]){-1, 1});
    }
    if (n > 1) {
        add_constant(o, "log_of_models", (float)log((double)n));
        add_constant(o, "least_log", (float)log(1e-30));
        flim_onnx_add_integers(o, "axis_of_models", 1, (const int64_t[]){1});
    }
    flim_onnx_add_output(o, "logits", 2, (const int[]){FLIM_ONNX_ANY, flim_class_outputs(classes)});
    add_probabilities(o, classes, n, "logits", "logits", "probabilities");
    if (calibrated) {
        add_probabilities(o, classes, n, "calibrated_logits", NULL, "calibrated_probabilities");
    }
}

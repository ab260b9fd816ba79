#include "cuda/conv/conv_cudnn.h"

#include <string.h>

#include "core/alloc.h"

enum { UID_X = 'x', UID_W = 'w', UID_Y = 'y' };

static flim_status refused(const flim_cudnn *cudnn, const char *card, const flim_conv_problem *problem, const char *step,
                           cudnnStatus_t code, flim_error *err)
{
    char what[320], why[512] = "";
    flim_conv_text(problem, what, sizeof what);
    cudnn->last_error(why, sizeof why - 1);
    why[strcspn(why, "\n")] = 0;
    return flim_fail(err, FLIM_ERROR_DEVICE, "cuDNN %zu refused a convolution on %s: %s; %s: %s%s%s", cudnn->version, card,
                     what, step, cudnn->status_text(code), why[0] ? ": " : "", why);
}

/* The calls below run one after the other until one fails; `code` and `step` then say which. */
typedef struct builder {
    const flim_cudnn *cudnn;
    cudnnStatus_t code;
    const char *step;
} builder;

static void create(builder *b, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out, const char *step)
{
    if (b->code == CUDNN_STATUS_SUCCESS) {
        b->step = step;
        b->code = b->cudnn->descriptor_create(type, out);
    }
}

static void set(builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *values)
{
    if (b->code == CUDNN_STATUS_SUCCESS) {
        b->code = b->cudnn->set(d, name, type, count, values);
    }
}

static void finalize(builder *b, cudnnBackendDescriptor_t d)
{
    if (b->code == CUDNN_STATUS_SUCCESS) {
        b->code = b->cudnn->finalize(d);
    }
}

static void destroy(const flim_cudnn *cudnn, cudnnBackendDescriptor_t *d)
{
    if (*d) {
        (void)cudnn->descriptor_destroy(*d);
        *d = NULL;
    }
}

/* A channels-last tensor of dims (a, channels, t, y, x). */
static void make_tensor(builder *b, cudnnBackendDescriptor_t *out, int64_t uid, flim_storage type, int64_t a,
                        int64_t channels, const int size[3], const char *step)
{
    static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
    const int64_t t = size[0], y = size[1], x = size[2], alignment = 16;
    const int64_t dims[5] = {a, channels, t, y, x};
    const int64_t strides[5] = {t * y * x * channels, 1, y * x * channels, x * channels, channels};
    create(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out, step);
    set(b, *out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &types[type]);
    set(b, *out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 5, dims);
    set(b, *out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 5, strides);
    set(b, *out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(b, *out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    finalize(b, *out);
}

static void make_convolution(builder *b, cudnnBackendDescriptor_t *out, const flim_conv_problem *p)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t spatial = 3, dilation[3] = {1, 1, 1};
    const int64_t stride[3] = {p->stride[0], p->stride[1], p->stride[2]}, pad[3] = {p->pad[0], p->pad[1], p->pad[2]};
    create(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out, "convolution descriptor");
    set(b, *out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(b, *out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(b, *out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    set(b, *out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 3, dilation);
    set(b, *out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 3, stride);
    set(b, *out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 3, pad);
    set(b, *out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 3, pad);
    finalize(b, *out);
}

/* Attribute names differ by direction: descriptor type, x, w, y, convolution, alpha, beta. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
} attributes[] = {
    [FLIM_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [FLIM_CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [FLIM_CONV_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static void make_graph(builder *b, cudnnHandle_t handle, const flim_conv_problem *p, flim_cudnn_candidates *c)
{
    const float one = 1.0f, zero = 0.0f;
    make_tensor(b, &c->x, UID_X, p->type, p->n, p->c, p->in, "tensor x");
    make_tensor(b, &c->w, UID_W, p->type, p->k, p->c, p->kernel, "tensor w");
    make_tensor(b, &c->y, UID_Y, p->type, p->n, p->k, p->out, "tensor y");
    make_convolution(b, &c->convolution, p);
    create(b, attributes[p->op].type, &c->operation, "operation");
    set(b, c->operation, attributes[p->op].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->x);
    set(b, c->operation, attributes[p->op].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->w);
    set(b, c->operation, attributes[p->op].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->y);
    set(b, c->operation, attributes[p->op].convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->convolution);
    set(b, c->operation, attributes[p->op].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, c->operation, attributes[p->op].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finalize(b, c->operation);
    create(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &c->graph, "operation graph");
    if (handle) { /* none for a described card */
        set(b, c->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    }
    set(b, c->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->operation);
    finalize(b, c->graph);
}

/* Whether an engine's arithmetic fits the problem; *number gets cuDNN's number of it. */
static bool engine_fits(const flim_cudnn *cudnn, cudnnBackendDescriptor_t config, const flim_conv_problem *p, int64_t *number)
{
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0, n_notes = 0;
    bool fits = cudnn->descriptor_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) == CUDNN_STATUS_SUCCESS &&
                cudnn->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) ==
                    CUDNN_STATUS_SUCCESS &&
                cudnn->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                           CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n_notes, notes) == CUDNN_STATUS_SUCCESS;
    *number = -1;
    if (fits) {
        (void)cudnn->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, number);
    }
    for (int64_t i = 0; fits && i < n_notes; i++) {
        bool low = notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
                   (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && p->type == FLIM_STORAGE_FP32) ||
                   notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
        fits = !low && !(p->deterministic && notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    }
    destroy(cudnn, &engine);
    return fits;
}

/* Appends what one heuristic mode proposes. */
static void ask_heuristic(const flim_cudnn *cudnn, const flim_conv_problem *p, cudnnBackendHeurMode_t mode,
                          flim_cudnn_candidates *c)
{
    builder b = {cudnn, CUDNN_STATUS_SUCCESS, ""};
    cudnnBackendDescriptor_t heuristic = NULL, found[FLIM_MAX_CANDIDATES] = {NULL};
    const int room = FLIM_MAX_CANDIDATES - c->n;
    int64_t count = 0;
    create(&b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic, "heuristic");
    set(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->graph);
    set(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (cudnn->card) {
        set(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &cudnn->card);
    }
    finalize(&b, heuristic);
    for (int i = 0; i < room; i++) {
        create(&b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &found[i], "engine configuration");
    }
    if (b.code == CUDNN_STATUS_SUCCESS && room > 0 &&
        cudnn->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &count, found) !=
            CUDNN_STATUS_SUCCESS) {
        count = 0;
    }
    for (int i = 0; i < room; i++) {
        int64_t number;
        if (i < count && engine_fits(cudnn, found[i], p, &number)) {
            c->engine[c->n] = number;
            c->config[c->n++] = found[i];
        } else {
            c->filtered += i < count;
            destroy(cudnn, &found[i]);
        }
    }
    destroy(cudnn, &heuristic);
}

flim_status flim_cudnn_candidates_find(const flim_cudnn *cudnn, cudnnHandle_t handle, const char *card,
                                       const flim_conv_problem *problem, flim_cudnn_candidates *out, flim_error *err)
{
    *out = (flim_cudnn_candidates){0};
    builder b = {cudnn, CUDNN_STATUS_SUCCESS, ""};
    make_graph(&b, handle, problem, out);
    if (b.code != CUDNN_STATUS_SUCCESS) {
        flim_cudnn_candidates_free(cudnn, out);
        return refused(cudnn, card, problem, b.step, b.code, err);
    }
    ask_heuristic(cudnn, problem, CUDNN_HEUR_MODE_A, out);
    if (!cudnn->card || out->n == 0) { /* takes ten times as long, and only its first is of interest to a memory plan */
        ask_heuristic(cudnn, problem, CUDNN_HEUR_MODE_FALLBACK, out);
    }
    if (out->n == 0) {
        int filtered = out->filtered;
        flim_status status = refused(cudnn, card, problem, "no engine offered", CUDNN_STATUS_NOT_SUPPORTED, err);
        flim_cudnn_candidates_free(cudnn, out);
        return filtered ? flim_fail(err, status, "%s; %d engines were left out for their arithmetic or order of sums",
                                    err ? err->text : "", filtered)
                        : status;
    }
    return FLIM_OK;
}

void flim_cudnn_candidates_fallback(const flim_cudnn *cudnn, const flim_conv_problem *problem, flim_cudnn_candidates *c)
{
    ask_heuristic(cudnn, problem, CUDNN_HEUR_MODE_FALLBACK, c);
}

void flim_cudnn_candidates_free(const flim_cudnn *cudnn, flim_cudnn_candidates *c)
{
    for (int i = 0; i < c->n; i++) {
        destroy(cudnn, &c->config[i]);
    }
    destroy(cudnn, &c->graph);
    destroy(cudnn, &c->operation);
    destroy(cudnn, &c->convolution);
    destroy(cudnn, &c->y);
    destroy(cudnn, &c->w);
    destroy(cudnn, &c->x);
    *c = (flim_cudnn_candidates){0};
}

static void read_workspace(builder *b, flim_cudnn_plan *plan)
{
    int64_t count = 0;
    if (b->code == CUDNN_STATUS_SUCCESS) {
        b->step = "workspace size";
        b->code = b->cudnn->get(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                &plan->workspace);
    }
}

flim_status flim_cudnn_plan_build(const flim_cudnn *cudnn, cudnnHandle_t handle, const char *card,
                                  const flim_conv_problem *problem, const flim_cudnn_candidates *candidates, int i,
                                  flim_cudnn_plan *out, flim_error *err)
{
    *out = (flim_cudnn_plan){0};
    cudnnBackendDescriptor_t config = candidates->config[i];
    builder b = {cudnn, CUDNN_STATUS_SUCCESS, ""};
    create(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &out->plan, "execution plan");
    if (cudnn->card) {
        set(&b, out->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &cudnn->card);
    } else {
        set(&b, out->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    }
    set(&b, out->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    finalize(&b, out->plan);
    read_workspace(&b, out);
    if (b.code != CUDNN_STATUS_SUCCESS) {
        flim_cudnn_plan_free(cudnn, out);
        return refused(cudnn, card, problem, b.step, b.code, err);
    }
    return FLIM_OK;
}

void flim_cudnn_plan_free(const flim_cudnn *cudnn, flim_cudnn_plan *plan)
{
    destroy(cudnn, &plan->plan);
    plan->workspace = 0;
}

flim_status flim_cudnn_plan_save(const flim_cudnn *cudnn, const flim_cudnn_plan *plan, char **text, size_t *size,
                                 flim_error *err)
{
    int64_t room = 0, count = 0;
    *text = NULL;
    if (cudnn->get(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &room, NULL) !=
            CUDNN_STATUS_SUCCESS ||
        room <= 0) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "cuDNN cannot write this plan as text");
    }
    *text = flim_alloc((size_t)room + 1, 1, err);
    if (!*text) {
        return FLIM_ERROR_MEMORY;
    }
    if (cudnn->get(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, room, &count, *text) !=
        CUDNN_STATUS_SUCCESS) {
        flim_free(*text);
        *text = NULL;
        return flim_fail(err, FLIM_ERROR_DEVICE, "cuDNN cannot write this plan as text");
    }
    *size = strlen(*text);
    return FLIM_OK;
}

flim_status flim_cudnn_plan_load(const flim_cudnn *cudnn, cudnnHandle_t handle, const char *text, size_t size,
                                 flim_cudnn_plan *out, flim_error *err)
{
    *out = (flim_cudnn_plan){0};
    builder b = {cudnn, CUDNN_STATUS_SUCCESS, ""};
    create(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &out->plan, "execution plan");
    set(&b, out->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(&b, out->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)size, text);
    finalize(&b, out->plan);
    read_workspace(&b, out);
    if (b.code != CUDNN_STATUS_SUCCESS) {
        flim_cudnn_plan_free(cudnn, out);
        return flim_fail(err, FLIM_ERROR_DEVICE, "a cached cuDNN plan does not load: %s", cudnn->status_text(b.code));
    }
    return FLIM_OK;
}

flim_status flim_cudnn_plan_run(const flim_cudnn *cudnn, cudnnHandle_t handle, const flim_conv_problem *problem,
                                const flim_cudnn_plan *plan, const void *x, const void *w, const void *y, void *workspace,
                                flim_error *err)
{
    const void *pointers[3] = {x, w, y};
    const int64_t uids[3] = {UID_X, UID_W, UID_Y};
    cudnnBackendDescriptor_t pack = NULL;
    builder b = {cudnn, CUDNN_STATUS_SUCCESS, ""};
    create(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack, "variant pack");
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uids);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(&b, pack);
    if (b.code == CUDNN_STATUS_SUCCESS) {
        b.step = "execution";
        b.code = cudnn->execute(handle, plan->plan, pack);
    }
    destroy(cudnn, &pack);
    return b.code == CUDNN_STATUS_SUCCESS ? FLIM_OK : refused(cudnn, "this card", problem, b.step, b.code, err);
}

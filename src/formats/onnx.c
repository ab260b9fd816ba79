#include "formats/onnx.h"

#include <limits.h>
#include <stdalign.h>
#include <stddef.h>
#include <string.h>

#include "core/alloc.h"
#include "flim/version.h"
#include "formats/onnx.pb-c.h"

enum { FORMAT = 8, OPERATOR_SET = 17, ELEMENT_INT64 = 7 };

/* Memory that lives as long as its graph. */
typedef struct block {
    struct block *next;
    alignas(max_align_t) unsigned char bytes[];
} block;

struct flim_onnx {
    FlimOnnx__Model model;
    FlimOnnx__Graph graph;
    FlimOnnx__OperatorSet operators, *operators_at;
    block *blocks;
    flim_status status; /* of the first allocation that failed */
};

/* ---- memory ---- */

/* count x size zeroed bytes; NULL is remembered. */
static void *keep(flim_onnx *o, size_t count, size_t size)
{
    if (size != 0 && count > (SIZE_MAX - sizeof(block)) / size) {
        o->status = FLIM_ERROR_MEMORY;
        return NULL;
    }
    block *b = flim_alloc(1, sizeof *b + count * size, NULL);
    if (!b) {
        o->status = FLIM_ERROR_MEMORY;
        return NULL;
    }
    b->next = o->blocks;
    o->blocks = b;
    return b->bytes;
}

static char *keep_text(flim_onnx *o, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = keep(o, bytes, 1);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* A list of n pointers with one more place at its end.  Lists double, so that n additions copy about n pointers. */
static void *grown(flim_onnx *o, void *list, size_t n)
{
    if (n != 0 && (n & (n - 1)) != 0) {
        return list;
    }
    void **larger = keep(o, n ? 2 * n : 1, sizeof *larger);
    if (larger && n) {
        memcpy(larger, list, n * sizeof *larger);
    }
    return larger;
}

/* A new message of one type, initialised, at the end of a list of pointers; `message` is NULL without memory. */
#define ADD(o, list, n, message, init)                                                                                       \
    do {                                                                                                                     \
        void *larger_ = grown((o), (list), (n));                                                                             \
        (message) = larger_ ? keep((o), 1, sizeof *(message)) : NULL;                                                        \
        if (message) {                                                                                                       \
            init(message);                                                                                                   \
            (list) = larger_;                                                                                                \
            (list)[(n)++] = (message);                                                                                       \
        }                                                                                                                    \
    } while (0)

flim_status flim_onnx_create(const char *graph_name, flim_onnx **out, flim_error *err)
{
    flim_onnx *o = *out = flim_alloc(1, sizeof *o, err);
    if (!o) {
        return FLIM_ERROR_MEMORY;
    }
    flim_onnx__model__init(&o->model);
    flim_onnx__graph__init(&o->graph);
    flim_onnx__operator_set__init(&o->operators);
    o->operators.version = OPERATOR_SET;
    o->operators_at = &o->operators;
    o->graph.name = keep_text(o, graph_name);
    o->model.format = FORMAT;
    o->model.program = keep_text(o, "flimcv");
    o->model.program_version = keep_text(o, flim_version());
    o->model.graph = &o->graph;
    o->model.operators = &o->operators_at;
    o->model.n_operators = 1;
    return FLIM_OK;
}

void flim_onnx_free(flim_onnx *o)
{
    for (block *b = o ? o->blocks : NULL; b;) {
        block *next = b->next;
        flim_free(b);
        b = next;
    }
    flim_free(o);
}

/* ---- building ---- */

/* The type of floats of this shape (ndim); NULL without memory. */
static FlimOnnx__ValueType *float_type(flim_onnx *o, int ndim, const int *shape)
{
    FlimOnnx__ValueType *type = keep(o, 1, sizeof *type);
    FlimOnnx__TensorType *tensor = keep(o, 1, sizeof *tensor);
    FlimOnnx__Shape *of = keep(o, 1, sizeof *of);
    if (!type || !tensor || !of) {
        return NULL;
    }
    flim_onnx__value_type__init(type);
    flim_onnx__tensor_type__init(tensor);
    flim_onnx__shape__init(of);
    type->tensor = tensor;
    tensor->element = FLIM_ONNX_FLOAT;
    tensor->shape = of;
    for (int i = 0; i < ndim; i++) {
        FlimOnnx__Dimension *d;
        ADD(o, of->dimension, of->n_dimension, d, flim_onnx__dimension__init);
        if (!d) {
            return NULL;
        }
        if (shape[i] == FLIM_ONNX_ANY) {
            d->size_case = FLIM_ONNX__DIMENSION__SIZE_SYMBOL;
            d->symbol = keep_text(o, "N");
        } else {
            d->size_case = FLIM_ONNX__DIMENSION__SIZE_VALUE;
            d->value = shape[i];
        }
    }
    return type;
}

void flim_onnx_add_input(flim_onnx *o, const char *name, int ndim, const int *shape)
{
    FlimOnnx__Value *value;
    ADD(o, o->graph.input, o->graph.n_input, value, flim_onnx__value__init);
    if (value) {
        value->name = keep_text(o, name);
        value->type = float_type(o, ndim, shape);
    }
}

void flim_onnx_add_output(flim_onnx *o, const char *name, int ndim, const int *shape)
{
    FlimOnnx__Value *value;
    ADD(o, o->graph.output, o->graph.n_output, value, flim_onnx__value__init);
    if (value) {
        value->name = keep_text(o, name);
        value->type = float_type(o, ndim, shape);
    }
}

static void add_constant(flim_onnx *o, const char *name, int element, int ndim, const int *shape, size_t bytes,
                         const void *value)
{
    FlimOnnx__Tensor *t;
    ADD(o, o->graph.constant, o->graph.n_constant, t, flim_onnx__tensor__init);
    if (!t) {
        return;
    }
    t->name = keep_text(o, name);
    t->element = element;
    t->shape = keep(o, (size_t)ndim, sizeof *t->shape);
    for (int i = 0; t->shape && i < ndim; i++) {
        t->shape[t->n_shape++] = shape[i];
    }
    t->raw.data = keep(o, bytes, 1);
    if (t->raw.data) {
        memcpy(t->raw.data, value, bytes);
        t->raw.len = bytes;
    }
}

void flim_onnx_add_floats(flim_onnx *o, const char *name, int ndim, const int *shape, const float *value)
{
    size_t count = 1;
    for (int i = 0; i < ndim; i++) {
        count *= (size_t)shape[i];
    }
    add_constant(o, name, FLIM_ONNX_FLOAT, ndim, shape, count * sizeof *value, value);
}

void flim_onnx_add_integers(flim_onnx *o, const char *name, int n, const int64_t *value)
{
    add_constant(o, name, ELEMENT_INT64, 1, &n, (size_t)n * sizeof *value, value);
}

static void add_attribute(flim_onnx *o, FlimOnnx__Node *node, const flim_onnx_attribute *from)
{
    FlimOnnx__Attribute *a;
    ADD(o, node->attribute, node->n_attribute, a, flim_onnx__attribute__init);
    if (!a) {
        return;
    }
    a->name = keep_text(o, from->name);
    a->kind = from->kind;
    a->real = from->real;
    if (from->kind == FLIM_ONNX_INTEGER) {
        a->integer = from->integer[0];
    } else if (from->kind == FLIM_ONNX_INTEGERS) {
        a->integers = keep(o, (size_t)from->n, sizeof *a->integers);
        for (int i = 0; a->integers && i < from->n; i++) {
            a->integers[a->n_integers++] = from->integer[i];
        }
    }
}

void flim_onnx_add_node(flim_onnx *o, const char *operator, const char * output, int n_inputs, const char *const *input,
                        int n_attributes, const flim_onnx_attribute *attribute)
{
    FlimOnnx__Node *node;
    ADD(o, o->graph.node, o->graph.n_node, node, flim_onnx__node__init);
    if (!node) {
        return;
    }
    node->operator_ = keep_text(o, operator);
    node->name = keep_text(o, output);
    node->input = keep(o, (size_t)n_inputs, sizeof *node->input);
    node->output = keep(o, 1, sizeof *node->output);
    for (int i = 0; node->input && i < n_inputs; i++) {
        node->input[node->n_input++] = keep_text(o, input[i]);
    }
    if (node->output) {
        node->output[node->n_output++] = node->name;
    }
    for (int i = 0; i < n_attributes; i++) {
        add_attribute(o, node, &attribute[i]);
    }
}

void flim_onnx_set_property(flim_onnx *o, const char *key, const char *value)
{
    FlimOnnx__Property *p;
    ADD(o, o->model.property, o->model.n_property, p, flim_onnx__property__init);
    if (p) {
        p->key = keep_text(o, key);
        p->value = keep_text(o, value);
    }
}

/* ---- writing ---- */

typedef struct sink {
    ProtobufCBuffer base;
    FILE *stream;
} sink;

static void append(ProtobufCBuffer *to, size_t count, const uint8_t *bytes)
{
    fwrite(bytes, 1, count, ((sink *)(void *)to)->stream); /* errors are seen at commit */
}

flim_status flim_onnx_write(const flim_onnx *o, FILE *stream, flim_error *err)
{
    if (o->status != FLIM_OK) {
        return flim_fail(err, o->status, "no memory for the graph of an ONNX file");
    }
    const size_t bytes = flim_onnx__model__get_packed_size(&o->model);
    if (bytes > INT_MAX) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "the ONNX file would have %zu bytes, more than the 2 GiB that protobuf allows: export fewer models",
                         bytes);
    }
    sink to = {.base = {.append = append}, .stream = stream};
    flim_onnx__model__pack_to_buffer(&o->model, &to.base);
    return FLIM_OK;
}

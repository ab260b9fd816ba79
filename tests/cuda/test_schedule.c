/* Schedules of the CUDA backend, run on paper: each operation finds in the arena what it reads, for every card, precision and
 * width, and whatever is recomputed.  Nothing computes, no card is needed.
 *
 * The checker knows an operation only by its operands, and the network.  It holds the arena as bytes: a tensor that is
 * written takes away what lay where it lies now.  That it would notice a forgotten operand is proved by forgetting each one
 * in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef FLIM_HAVE_CUDA

#include "core/alloc.h"
#include "cuda/conv/conv_store.h"
#include "cuda/device/cuda_device.h"
#include "cuda/program/cuda_program.h"
#include "cuda/program/fusion.h"
#include "cuda/program/schedule_build.h"
#include "plan/plan.h"
#include "reference/networks.h"

enum { NONE = FLIM_NO_BUFFER, OPERANDS = FLIM_OPERATION_INPUTS + FLIM_OPERATION_OUTPUTS + 1 };
static const char *const tensors[] = {"z", "y", "sign_mask", "dz", "dx", "dv", "a head's dy", "the input", "scratch"};

typedef struct model {
    const flim_schedule *s;
    int op;
    bool holds[FLIM_ARENA_BUFFERS]; /* written, and not overwritten since */
    int written_at[FLIM_ARENA_BUFFERS], writes[FLIM_ARENA_BUFFERS];
    bool unread[FLIM_ARENA_BUFFERS]; /* since it was written */
    uint64_t
        edges[FLIM_ARENA_BUFFERS]; /* of a gradient: the uses of a tensor whose contributions are in it; bits of edge() */
    bool through[FLIM_ARENA_BUFFERS]; /* of a gradient: has come through the activation */
    bool affine[FLIM_MAX_UNITS], coefficients[FLIM_MAX_UNITS]; /* of BatchNorm, forward and backward */
    char text[160]; /* of the schedule */
    char wrong[512]; /* what went wrong first */
} model;

static void complain(model *m, const char *what, int buffer)
{
    const flim_operation *o = &m->s->operation[m->op < m->s->n_operations ? m->op : m->s->n_operations - 1];
    const flim_buffer_label *l = buffer == NONE ? NULL : &m->s->label[buffer];
    if (!m->wrong[0]) {
        snprintf(m->wrong, sizeof m->wrong, "%s: operation %d (kind %d of %s%s): %s%s%s%s%s", m->text, m->op, (int)o->kind,
                 m->s->net->unit[o->unit].conv, o->recomputed ? ", recomputed" : "", what, l ? ": " : "",
                 l ? tensors[l->kind] : "", l && l->unit >= 0 ? " of " : "",
                 l && l->unit >= 0 ? m->s->net->unit[l->unit].conv : "");
    }
}

static void expect(model *m, bool holds, const char *what, int buffer)
{
    if (!holds) {
        complain(m, what, buffer);
    }
}

static int root_of(const flim_arena *arena, int buffer)
{
    while (arena->buffer[buffer].alias != NONE) {
        buffer = arena->buffer[buffer].alias;
    }
    return buffer;
}

/* ---- bytes and lifetimes ------------------------------------------------------------------------------------------------- */

static const flim_arena_life *life_at(const flim_arena *arena, int buffer, int step)
{
    const flim_arena_buffer *b = &arena->buffer[root_of(arena, buffer)];
    for (int i = 0; i < b->lives; i++) {
        if (b->life[i].first <= step && step <= b->life[i].last) {
            return &b->life[i];
        }
    }
    return NULL;
}

/* Written before the first operation. */
static bool is_prepared(const model *m, int buffer)
{
    return m->s->label[buffer].kind == FLIM_BUFFER_INPUT || m->s->label[buffer].kind == FLIM_BUFFER_VOXEL;
}

static void reads(model *m, int buffer)
{
    const flim_arena_life *life = life_at(&m->s->arena, buffer, m->op);
    expect(m, m->holds[buffer], "reads what is not there", buffer);
    expect(m, life && life == life_at(&m->s->arena, buffer, m->written_at[buffer]),
           "reads outside the life it was written in", buffer);
    m->unread[buffer] = false;
}

static bool is_read_by(const flim_operation *o, int buffer)
{
    for (int i = 0; i < FLIM_OPERATION_INPUTS; i++) {
        if (o->in[i] == buffer) {
            return true;
        }
    }
    return false;
}

/* BatchNorm's gradient is computed element by element: it may lie exactly where the operation reads a contribution of its shape. */
static bool in_place(const model *m, int buffer, int over)
{
    const flim_arena_buffer *b = &m->s->arena.buffer[buffer], *o = &m->s->arena.buffer[over];
    const flim_buffer_kind kind = m->s->label[over].kind;
    return m->s->operation[m->op].kind == FLIM_OP_GRAD_APPLY && b->alias == over && b->offset == o->offset &&
           b->bytes == o->bytes && (kind == FLIM_BUFFER_DX || kind == FLIM_BUFFER_DV || kind == FLIM_BUFFER_HEAD_DY);
}

static void writes(model *m, int buffer)
{
    const flim_arena *arena = &m->s->arena;
    const flim_operation *o = &m->s->operation[m->op];
    const int64_t begin = arena->buffer[buffer].offset, end = begin + arena->buffer[buffer].bytes;
    expect(m, begin >= 0 && end <= arena->bytes, "writes past the arena's end", buffer);
    expect(m, life_at(arena, buffer, m->op) != NULL, "writes outside any life", buffer);
    expect(m, !m->unread[buffer] || m->s->label[buffer].kind == FLIM_BUFFER_SIGN_MASK, "overwrites what nobody read", buffer);
    expect(m, !is_read_by(o, buffer), "writes what it reads", buffer);
    for (int i = 0; i < arena->n; i++) {
        const int64_t at = arena->buffer[i].offset, past = at + arena->buffer[i].bytes;
        if (i != buffer && at < end && past > begin && m->holds[i]) {
            const bool written_now = m->written_at[i] == m->op && !is_prepared(m, i);
            expect(m, !written_now && (!is_read_by(o, i) || in_place(m, buffer, i)), "overwrites an operand", i);
            expect(m, !m->unread[i], "overwrites what nobody has read", i);
            m->holds[i] = false;
        }
    }
    m->holds[buffer] = true;
    m->unread[buffer] = m->s->label[buffer].kind != FLIM_BUFFER_SCRATCH;
    m->written_at[buffer] = m->op;
    m->writes[buffer]++;
}

/* ---- what each operation needs ------------------------------------------------------------------------------------------- */

static bool is(const model *m, int buffer, flim_buffer_kind kind, int unit)
{
    return buffer != NONE && m->s->label[buffer].kind == kind && m->s->label[buffer].unit == unit;
}

/* The operand is unit u's output in this form, or what it is computed from as it is loaded. */
static bool is_output(model *m, int buffer, int u, flim_input_form form)
{
    const flim_unit *unit = u < 0 ? NULL : &m->s->net->unit[u];
    if (u < 0) {
        return is(m, buffer, FLIM_BUFFER_INPUT, -1) && form == FLIM_INPUT_PLAIN;
    }
    if (form == FLIM_INPUT_PLAIN) {
        return is(m, buffer, FLIM_BUFFER_Y, u);
    }
    return is(m, buffer, FLIM_BUFFER_Z, u) && m->affine[u] && unit->act == (form == FLIM_INPUT_NORM_ACT_ON_LOAD) &&
           unit->pool_t == 1 && unit->skip < 0 && !unit->dropout;
}

/* One use of a tensor: by unit r as x, or as what it adds. */
static uint64_t edge(int r, bool as_skip)
{
    return 1ull << (2 * r + as_skip);
}

/* One use of a tensor by a dense head; what pooled heads give is no tensor of the arena. */
static uint64_t head_edge(int k)
{
    return 1ull << (2 * FLIM_MAX_UNITS + k);
}

static bool is_dense(const model *m, int k)
{
    return m->s->net->head[k].kind == FLIM_HEAD_DENSE;
}

/* All contributions to the gradient of unit u's y are there, and none is counted twice. */
static void check_gradients(model *m, const flim_operation *o)
{
    uint64_t all = 0, found = 0;
    bool through = false;
    for (int r = 0; r < m->s->net->n_units; r++) {
        all |= m->s->net->unit[r].input == o->unit ? edge(r, false) : 0;
        all |= m->s->net->unit[r].skip == o->unit ? edge(r, true) : 0;
    }
    for (int k = 0; k < m->s->net->n_heads; k++) {
        all |= m->s->net->head[k].unit == o->unit && is_dense(m, k) ? head_edge(k) : 0;
    }
    for (int i = FLIM_IN_GRADIENT; i < FLIM_OPERATION_INPUTS; i++) {
        if (o->in[i] != NONE) {
            expect(m, m->edges[o->in[i]] != 0 && (found & m->edges[o->in[i]]) == 0, "no new contribution", o->in[i]);
            found |= m->edges[o->in[i]];
            through = through || m->through[o->in[i]];
        }
    }
    expect(m, found == all, "contributions to the gradient are missing", NONE);
    expect(m, !through || (o->kind != FLIM_OP_GRAD_SUMS && m->coefficients[o->unit]), "a gradient of the wrong side", NONE);
}

/* The operation's gradient has come through the activation. */
static bool is_through(const model *m, const flim_operation *o)
{
    const int gradient = o->in[FLIM_IN_GRADIENT];
    return o->kind == FLIM_OP_GRAD_APPLY && gradient != NONE && m->through[gradient];
}

static void check_epilogue(model *m, const flim_operation *o, bool backward)
{
    const int added = m->s->net->unit[o->unit].skip, operand = o->in[FLIM_IN_SKIP];
    expect(m, is(m, o->in[FLIM_IN_Z], FLIM_BUFFER_Z, o->unit) && m->affine[o->unit], "no z, or no BatchNorm yet", NONE);
    expect(m,
           added < 0 || is_through(m, o) ? operand == NONE
           : backward && operand != NONE && m->s->label[operand].kind == FLIM_BUFFER_SIGN_MASK
               ? is(m, operand, FLIM_BUFFER_SIGN_MASK, o->unit)
               : is_output(m, operand, added, o->input_form),
           "not what the unit adds", operand);
}

/* The DATA operation's input unit gets its gradient through its activation, with what its other reader contributes. */
static void check_data(model *m, const flim_operation *o)
{
    const int input = m->s->net->unit[o->unit].input, add = o->in[FLIM_IN_GRADIENT + 1], dx = o->out[FLIM_OUT];
    const bool through = o->in[FLIM_IN_Z] != NONE, adds = through && m->s->net->unit[input].skip >= 0;
    expect(m, adds ? is(m, o->in[FLIM_IN_SKIP], FLIM_BUFFER_SIGN_MASK, input) : o->in[FLIM_IN_SKIP] == NONE,
           "not the side of the activation", o->in[FLIM_IN_SKIP]);
    expect(m, input >= 0 && is(m, dx, FLIM_BUFFER_DX, o->unit), "no dx", NONE);
    expect(m, is(m, o->in[FLIM_IN_GRADIENT], FLIM_BUFFER_DZ, o->unit), "no dz", NONE);
    expect(m, !through || (is(m, o->in[FLIM_IN_Z], FLIM_BUFFER_Z, input) && m->affine[input]), "no z of the input unit",
           NONE);
    expect(m, add == NONE || (through && (m->edges[add] & edge(o->unit, false)) == 0), "adds to no gradient", add);
    if (!m->wrong[0]) {
        m->edges[dx] = edge(o->unit, false) | (add == NONE ? 0 : m->edges[add]);
        m->through[dx] = through;
        m->coefficients[input] = m->coefficients[input] || through;
    }
}

static void check_gradient_apply(model *m, const flim_operation *o)
{
    const int added = m->s->net->unit[o->unit].skip, dv = o->out[FLIM_OUT_DV], skip_dz = o->out[FLIM_OUT_SKIP_DZ];
    check_epilogue(m, o, true);
    check_gradients(m, o);
    expect(m, m->coefficients[o->unit], "no sums yet", NONE);
    expect(m, is(m, o->out[FLIM_OUT], FLIM_BUFFER_DZ, o->unit), "no dz", NONE);
    const bool through = is_through(m, o);
    expect(m, added < 0 || through ? dv == NONE && skip_dz == NONE : (dv == NONE) != (skip_dz == NONE),
           "gradient of what is added", NONE);
    expect(m, dv == NONE || is(m, dv, FLIM_BUFFER_DV, o->unit), "no dv", dv);
    expect(m, skip_dz == NONE || (is(m, skip_dz, FLIM_BUFFER_DZ, added) && m->coefficients[added]), "no dz of the skip",
           skip_dz);
    if (dv != NONE) {
        m->edges[dv] = edge(o->unit, true);
    } else if (added >= 0 && through) { /* what came through the activation is the dv */
        m->edges[o->in[FLIM_IN_GRADIENT]] = edge(o->unit, true);
        m->through[o->in[FLIM_IN_GRADIENT]] = false;
    }
}

static void check_stem_backward(model *m, const flim_operation *o)
{
    const bool alone = m->s->net->unit[o->unit].input < 0, on_load = o->input_form == FLIM_INPUT_NORM_ON_LOAD;
    const int stem = alone ? o->unit : m->s->net->unit[o->unit].input;
    expect(m, is_output(m, o->in[FLIM_IN_X], m->s->net->unit[stem].input, FLIM_INPUT_PLAIN), "no input", NONE);
    expect(m, alone || m->coefficients[o->unit], "no sums yet", NONE);
    if (alone) { /* no dz: its kernel applies activation and BatchNorm to the gradient of y */
        check_gradients(m, o);
        expect(m, !on_load && o->in[FLIM_IN_GRADIENT] != NONE, "no gradient of y as it is", NONE);
    } else if (on_load) {
        check_gradients(m, o);
        expect(m, is(m, o->in[FLIM_IN_Z], FLIM_BUFFER_Z, o->unit), "no z", NONE);
        expect(m, o->in[FLIM_IN_GRADIENT] != NONE && m->through[o->in[FLIM_IN_GRADIENT]], "no du", NONE);
    } else {
        expect(m, is(m, o->in[FLIM_IN_GRADIENT], FLIM_BUFFER_DZ, o->unit), "no dz", NONE);
    }
}

/* The kernel's kind of convolution can load x in this form and has the scratch memory that it asks for. */
static void check_convolution(model *m, const flim_operation *o)
{
    const int64_t needs = o->conv->workspace;
    const flim_conv_problem *p = &o->conv->problem;
    expect(m, o->input_form == (p->stem ? p->dz_form : p->x_form), "a convolution that cannot apply what its input lacks",
           NONE);
    expect(m, !flim_conv_is_fused(p) || !o->conv->algorithm->library, "nothing is fused with a library's convolution", NONE);
    expect(m, p->epilogue == (o->kind == FLIM_OP_DATA && o->in[FLIM_IN_Z] != NONE), "the wrong epilogue", NONE);
    expect(m, p->sign_mask == (p->epilogue && o->in[FLIM_IN_SKIP] != NONE), "the wrong side of the activation", NONE);
    const int add = o->kind == FLIM_OP_DATA ? o->in[FLIM_IN_GRADIENT + 1] : NONE;
    expect(m, (p->add != FLIM_ADD_NONE) == (add != NONE), "the wrong sum of gradients", NONE);
    expect(m, add == NONE || m->s->arena.buffer[add].bytes >= flim_conv_add_elements(p) * flim_storage_size(p->type),
           "a gradient of another shape is added", add);
    expect(m,
           needs == 0 || (o->scratch != NONE && m->s->label[o->scratch].kind == FLIM_BUFFER_SCRATCH &&
                          m->s->arena.buffer[o->scratch].bytes >= needs),
           "no scratch memory, or too little", o->scratch);
}

static void check_head(model *m, const flim_operation *o)
{
    const bool hidden = flim_loss_is_hidden(m->s->net->head[o->head].loss); /* its totals are wanted without training, too */
    const bool learns = m->s->train && is_dense(m, o->head), compares = hidden || learns;
    expect(m, o->unit == m->s->net->head[o->head].unit && is(m, o->in[FLIM_IN_X], FLIM_BUFFER_Y, o->unit), "no y", NONE);
    expect(m,
           compares ? is(m, o->in[FLIM_IN_TARGET], hidden ? FLIM_BUFFER_VOXEL : FLIM_BUFFER_INPUT, -1)
                    : o->in[FLIM_IN_TARGET] == NONE,
           "no input", NONE);
    expect(m, learns ? is(m, o->out[FLIM_OUT], FLIM_BUFFER_HEAD_DY, o->unit) : o->out[FLIM_OUT] == NONE, "no dy", NONE);
    if (learns && !m->wrong[0]) {
        m->edges[o->out[FLIM_OUT]] = head_edge(o->head);
    }
}

/* Operands are the right tensors; what the operation leaves in BatchNorm's constants. */
static void check_operands(model *m, const flim_operation *o)
{
    const flim_network *net = m->s->net;
    const int u = o->unit, input = net->unit[u].input;
    switch (o->kind) {
    case FLIM_OP_STEM_FORWARD:
        expect(m, is_output(m, o->in[FLIM_IN_X], input < 0 ? input : net->unit[input].input, FLIM_INPUT_PLAIN),
               "not the network's input", NONE);
        expect(m, is(m, o->out[FLIM_OUT], input < 0 ? FLIM_BUFFER_Y : FLIM_BUFFER_Z, u), "no z, or no y of the stem alone",
               NONE);
        check_convolution(m, o);
        break;
    case FLIM_OP_CONV:
        expect(m, is_output(m, o->in[FLIM_IN_X], input, o->input_form), "not the convolution's input", o->in[FLIM_IN_X]);
        expect(m, is(m, o->out[FLIM_OUT], FLIM_BUFFER_Z, u), "no z", NONE);
        check_convolution(m, o);
        break;
    case FLIM_OP_NORM:
        expect(m, is(m, o->in[FLIM_IN_Z], FLIM_BUFFER_Z, u), "no z", NONE);
        m->affine[u] = true;
        break;
    case FLIM_OP_EPILOGUE:
        check_epilogue(m, o, false);
        expect(m, is(m, o->out[FLIM_OUT], FLIM_BUFFER_Y, u), "no y", NONE);
        break;
    case FLIM_OP_HEAD: check_head(m, o); break;
    case FLIM_OP_GRAD_SUMS:
        check_epilogue(m, o, true);
        check_gradients(m, o);
        expect(m, o->out[FLIM_OUT] == NONE || is(m, o->out[FLIM_OUT], FLIM_BUFFER_Y, u), "no y", NONE);
        m->coefficients[u] = true;
        if (net->unit[u].skip >= 0 && o->input_form == FLIM_INPUT_NORM_ON_LOAD) {
            m->coefficients[net->unit[u].skip] = true;
        }
        break;
    case FLIM_OP_GRAD_APPLY: check_gradient_apply(m, o); break;
    case FLIM_OP_WEIGHT:
        expect(m, is_output(m, o->in[FLIM_IN_X], input, o->input_form), "not the convolution's input", o->in[FLIM_IN_X]);
        expect(m, is(m, o->in[FLIM_IN_GRADIENT], FLIM_BUFFER_DZ, u), "no dz", NONE);
        check_convolution(m, o);
        break;
    case FLIM_OP_DATA:
        check_data(m, o);
        check_convolution(m, o);
        break;
    case FLIM_OP_STEM_BACKWARD:
        check_stem_backward(m, o);
        check_convolution(m, o);
        break;
    }
}

static void run_operation(model *m, const flim_operation *o)
{
    check_operands(m, o);
    for (int i = 0; i < FLIM_OPERATION_INPUTS && !m->wrong[0]; i++) {
        if (o->in[i] != NONE) {
            reads(m, o->in[i]);
        }
    }
    for (int i = 0; i < FLIM_OPERATION_OUTPUTS && !m->wrong[0]; i++) {
        if (o->out[i] != NONE) {
            writes(m, o->out[i]);
        }
    }
    if (o->scratch != NONE && !m->wrong[0]) {
        writes(m, o->scratch);
    }
    if (o->kind == FLIM_OP_STEM_FORWARD && m->s->net->unit[o->unit].input >= 0) {
        m->affine[m->s->net->unit[o->unit].input] = true;
    }
}

/* ---- the whole schedule -------------------------------------------------------------------------------------------------- */

/* Each unit has its convolution and its gradients once, and once more what is recomputed. */
static void count_operations(model *m)
{
    const flim_schedule *s = m->s;
    int conv[FLIM_MAX_UNITS] = {0}, again[FLIM_MAX_UNITS] = {0}, weight[FLIM_MAX_UNITS] = {0}, data[FLIM_MAX_UNITS] = {0};
    bool with_stem[FLIM_MAX_UNITS] = {0};
    for (int i = 0; i < s->n_operations; i++) {
        const flim_operation *o = &s->operation[i];
        const bool is_stem = o->kind == FLIM_OP_STEM_FORWARD || o->kind == FLIM_OP_STEM_BACKWARD;
        const bool is_conv = o->kind == FLIM_OP_CONV || o->kind == FLIM_OP_STEM_FORWARD;
        const bool is_weight = o->kind == FLIM_OP_WEIGHT || o->kind == FLIM_OP_STEM_BACKWARD;
        const int units[2] = {o->unit, is_stem ? s->net->unit[o->unit].input : -1};
        with_stem[o->unit] = with_stem[o->unit] || is_stem;
        data[o->unit] += o->kind == FLIM_OP_DATA;
        for (int k = 0; k < 2 && units[k] >= 0; k++) {
            conv[units[k]] += is_conv && !o->recomputed;
            again[units[k]] += is_conv && o->recomputed;
            weight[units[k]] += is_weight;
        }
    }
    for (int u = 0; u < s->net->n_units; u++) {
        const bool has_data = s->train && s->net->unit[u].input >= 0 && !with_stem[u];
        if (conv[u] != 1 || again[u] != (s->unit[u].recompute == FLIM_Z_RECOMPUTED) || weight[u] != (int)s->train ||
            data[u] != (int)has_data) {
            complain(m, "the wrong number of convolutions of a unit", s->unit[u].buffer[FLIM_BUFFER_Z]);
        }
    }
}

/* Every tensor is written, once or, if recomputed, twice; each result is read; no gradient is written twice. */
static void count_writes(model *m)
{
    for (int i = 0; i < m->s->arena.n; i++) {
        const flim_buffer_kind kind = m->s->label[i].kind;
        const int most = kind == FLIM_BUFFER_Z || kind == FLIM_BUFFER_Y || kind == FLIM_BUFFER_SIGN_MASK ? 2 : 1;
        expect(m, is_prepared(m, i) || m->writes[i] >= 1, "never written", i);
        expect(m, kind == FLIM_BUFFER_SCRATCH || m->writes[i] <= most, "written too often", i);
        const bool result = kind == FLIM_BUFFER_Y && m->s->net->n_heads == 0; /* the features */
        expect(m, !m->unread[i] || result, "written for nobody", i);
        expect(m,
               kind != FLIM_BUFFER_Y || m->writes[i] == 2 || m->s->unit[m->s->label[i].unit].recompute != FLIM_Y_RECOMPUTED,
               "not recomputed", i);
    }
}

static int operand_of(const flim_operation *o, int k)
{
    return k < FLIM_OPERATION_INPUTS                            ? o->in[k]
           : k < FLIM_OPERATION_INPUTS + FLIM_OPERATION_OUTPUTS ? o->out[k - FLIM_OPERATION_INPUTS]
                                                                : o->scratch;
}

/* Lives that follow from the operands alone, all but one (skip_op, skip_operand); then places. */
static void lives_from_operands(flim_schedule *s, int skip_op, int skip_operand)
{
    bool written[FLIM_ARENA_BUFFERS] = {0};
    for (int i = 0; i < s->arena.n; i++) {
        s->arena.buffer[i].lives = 0;
        s->arena.buffer[i].reborn = false;
    }
    flim_arena_touch(&s->arena, s->input, 0);
    flim_arena_touch(&s->arena, s->voxel, 0);
    for (int op = 0; op < s->n_operations; op++) {
        for (int k = 0; k < OPERANDS; k++) {
            const int b = operand_of(&s->operation[op], k);
            if (b == NONE || (op == skip_op && k == skip_operand)) {
                continue;
            }
            const bool output = k >= FLIM_OPERATION_INPUTS && k < OPERANDS - 1;
            if (output && written[b] && s->label[b].kind != FLIM_BUFFER_SIGN_MASK) {
                flim_arena_begin_again(&s->arena, b);
            }
            written[b] = written[b] || output;
            flim_arena_touch(&s->arena, b, op);
        }
    }
    flim_arena_place(&s->arena);
}

static bool same_lives(const flim_arena *a, const flim_arena *b)
{
    for (int i = 0; i < a->n; i++) {
        const flim_arena_buffer *x = &a->buffer[i], *y = &b->buffer[i];
        if (x->lives != y->lives || memcmp(x->life, y->life, (size_t)x->lives * sizeof x->life[0]) != 0) {
            return false;
        }
    }
    return true;
}

/* A buffer lives from its first operand to its last and no longer; no two that live at once share a byte; the peak is the peak. */
static void check_arena(model *m)
{
    static flim_schedule fresh;
    const flim_arena *arena = &m->s->arena;
    fresh = *m->s;
    lives_from_operands(&fresh, -1, -1);
    expect(m, same_lives(&fresh.arena, arena) && fresh.arena.bytes == arena->bytes, "lives that the operands do not explain",
           NONE);
    int64_t peak = 0, stated = 0, top = 0;
    for (int op = 0; op < m->s->n_operations; op++) {
        int64_t bytes = 0;
        for (int i = 0; i < arena->n; i++) {
            const flim_arena_buffer *b = &arena->buffer[i];
            const bool lives = b->alias == NONE && life_at(arena, i, op);
            bytes += lives ? b->bytes : 0;
            top = lives && b->offset + b->bytes > top ? b->offset + b->bytes : top;
            for (int k = 0; lives && k < i; k++) {
                const flim_arena_buffer *c = &arena->buffer[k];
                const bool meet = c->alias == NONE && life_at(arena, k, op) && b->offset < c->offset + c->bytes &&
                                  c->offset < b->offset + b->bytes;
                expect(m, !meet, "two at once in one place", i);
            }
        }
        peak = bytes > peak ? bytes : peak;
    }
    for (int use = 0; use < FLIM_USES; use++) {
        stated += m->s->at_peak[use];
    }
    expect(m, stated == peak && top == arena->bytes, "the peak is another", NONE);
}

/* What is wrong with a schedule; "" if nothing. */
static const char *check(const flim_schedule *s, const char *text)
{
    static model m;
    m = (model){.s = s};
    snprintf(m.text, sizeof m.text, "%s", text);
    m.holds[s->input] = true;
    if (s->voxel != NONE) {
        m.holds[s->voxel] = true;
    }
    for (m.op = 0; m.op < s->n_operations && !m.wrong[0]; m.op++) {
        run_operation(&m, &s->operation[m.op]);
    }
    if (!m.wrong[0]) {
        count_operations(&m);
        count_writes(&m);
    }
    if (!m.wrong[0]) {
        check_arena(&m);
    }
    return m.wrong;
}

static void check_schedule(const flim_schedule *s, const char *text)
{
    const char *wrong = check(s, text);
    if (wrong[0]) {
        fail_msg("%s", wrong);
    }
}

/* ---- mutations ----------------------------------------------------------------------------------------------------------- */

static void forget(flim_operation *o, int k)
{
    int *at = k < FLIM_OPERATION_INPUTS                            ? &o->in[k]
              : k < FLIM_OPERATION_INPUTS + FLIM_OPERATION_OUTPUTS ? &o->out[k - FLIM_OPERATION_INPUTS]
                                                                   : &o->scratch;
    *at = NONE;
}

/* Forgets each operand in turn: in the operation and in the arena, as a missing op_reads would; then in the arena alone. 
 * Returns how many mutants the checker refused; it must refuse all. */
static int check_mutants(const flim_schedule *s, const char *text)
{
    static flim_schedule mutant;
    int refused = 0;
    for (int op = 0; op < s->n_operations; op++) {
        for (int k = 0; k < OPERANDS; k++) {
            if (operand_of(&s->operation[op], k) == NONE) {
                continue;
            }
            mutant = *s;
            forget(&mutant.operation[op], k);
            lives_from_operands(&mutant, -1, -1);
            if (check(&mutant, text)[0] == 0) {
                fail_msg("%s: operation %d (kind %d of %s): operand %d may be forgotten", text, op,
                         (int)s->operation[op].kind, s->net->unit[s->operation[op].unit].conv, k);
            }
            refused++;
            mutant = *s;
            lives_from_operands(&mutant, op, k);
            if (!same_lives(&mutant.arena, &s->arena)) {
                if (check(&mutant, text)[0] == 0) {
                    fail_msg("%s: operation %d (kind %d of %s): operand %d may die early", text, op,
                             (int)s->operation[op].kind, s->net->unit[s->operation[op].unit].conv, k);
                }
                refused++;
            }
        }
    }
    return refused;
}

/* ---- cases --------------------------------------------------------------------------------------------------------------- */

typedef struct tally {
    int schedules, mutants;
} tally;

static void build(flim_schedule *s, flim_device *device, const flim_network *net, flim_precision precision, bool train,
                  int64_t batch, flim_recompute_set set, int64_t limit, const char *without)
{
    flim_error err = {0};
    const flim_conv_search_options options = {.workspace_limit = limit, .without = without};
    if (flim_schedule_build(s, flim_cuda_device_of(device), net, precision, train, batch, false, &set, &options, &err) !=
        FLIM_OK) {
        fail_msg("%s", err.text);
    }
    for (int u = 0; u < net->n_units; u++) {
        for (int op = 0; op < 3; op++) {
            const flim_conv_choice *conv = s->unit[u].conv[op];
            if (conv && without && strcmp(conv->algorithm->name, without) == 0) {
                fail_msg("%s, direction %d: %s, which failed its check", net->unit[u].conv, op, without);
            }
            if (conv && limit > 0 && !conv->algorithm->fused && conv->workspace > limit) {
                fail_msg("%s, direction %d: a convolution (%s) with %lld bytes of workspace, allowed are %lld",
                         net->unit[u].conv, op, conv->engine, (long long)conv->workspace, (long long)limit);
            }
        }
    }
}

/* Every set of blocks recomputed with 0, 1, ... outputs recomputed. */
static void check_training(flim_device *device, const flim_network *net, flim_precision precision, int64_t batch,
                           int64_t limit, const char *without, const char *text, tally *t)
{
    static flim_schedule s;
    build(&s, device, net, precision, true, batch, (flim_recompute_set){0}, limit, without);
    const uint32_t sets = 1u << s.n_blocks;
    for (uint32_t blocks = 0; blocks < sets; blocks++) {
        for (int outputs = 0, most = 0; outputs <= most; outputs++) {
            char full[200];
            build(&s, device, net, precision, true, batch, (flim_recompute_set){.outputs = outputs, .blocks = blocks}, limit,
                  without);
            most = flim_schedule_recomputable(&s);
            snprintf(full, sizeof full, "%s, %d outputs and blocks %x recomputed", text, outputs, (unsigned)blocks);
            check_schedule(&s, full);
            t->schedules++;
            if (batch == 1 || outputs == most) {
                t->mutants += without ? 0 : check_mutants(&s, full);
            }
        }
    }
}

static flim_device *describe(const char *card_name)
{
    flim_error err = {0};
    flim_card card;
    flim_device *device = NULL;
    assert_int_equal(flim_card_find(FLIM_SOURCE_DIR "/configs/devices", card_name, &card, NULL, &err), FLIM_OK);
    assert_int_equal(flim_device_describe(&card, &device, &err), FLIM_OK);
    device->info.assumes_workspace = true; /* cuDNN is not asked */
    return device;
}

static void check_case(const char *card_name, flim_precision precision, const char *without, const flim_network *net,
                       const char *name, int64_t batch, tally *t)
{
    static flim_schedule s;
    flim_device *device = describe(card_name);
    /* With 1 MiB our own weight gradient is refused, as if cuDNN's were quicker. */
    for (int64_t limit = 0; limit <= 1 << 20; limit += 1 << 20) {
        char text[120];
        snprintf(text, sizeof text, "%s %s %s width %d (%d,%d,%d) batch %lld workspace %lld without %s", card_name,
                 flim_precision_name(precision), name, net->width, net->in[0], net->in[1], net->in[2], (long long)batch,
                 (long long)limit, without ? without : "nothing");
        build(&s, device, net, precision, false, batch, (flim_recompute_set){0}, limit, without);
        check_schedule(&s, text);
        t->mutants += without ? 0 : check_mutants(&s, text);
        t->schedules++;
        if (net->n_heads > 0) {
            check_training(device, net, precision, batch, limit, without, text, t);
        }
    }
    flim_device_close(device);
}

static void every_operation_finds_what_it_reads(void **state)
{
    (void)state;
    static const struct {
        const char *card;
        flim_precision precision;
        const char *without; /* an algorithm that failed its check */
    } kinds[] = {{"t4", FLIM_PRECISION_FP32, NULL}, /* no kernels of our own that apply BatchNorm as they load */
                 {"t4", FLIM_PRECISION_FP16, NULL},
                 {"h100", FLIM_PRECISION_FP16, NULL}, /* none of fewer than 32 channels */
                 {"h100", FLIM_PRECISION_TF32, NULL},
                 {"h100", FLIM_PRECISION_TF32, "fused_stem"},
                 {"h100", FLIM_PRECISION_TF32, "fused_3x3x3"},
                 {"h100", FLIM_PRECISION_TF32, "wgrad_3x3x3"},
                 {"h100", FLIM_PRECISION_BF16, "conv_strided"},
                 {"h100", FLIM_PRECISION_BF16, "conv_wgmma"},
                 {"l4", FLIM_PRECISION_BF16, NULL}};
    static const struct {
        int width, size[3];
        int64_t batch;
    } cases[] = {{4, {8, 3, 3}, 1}, {28, {33, 5, 4}, 3}, {32, {133, 3, 21}, 1}, {32, {16, 9, 9}, 6}, {72, {17, 9, 5}, 2}};
    static const struct {
        const char *name;
        ref_build_network *build;
    } others[] = {{"autoencoder", ref_autoencoder}, {"masked autoencoder", ref_masked_autoencoder},
                  {"three heads", ref_three_heads}, {"two tasks", ref_two_tasks},
                  {"pretraining", ref_pretraining}, {"pretraining by class", ref_pretraining_by_class},
                  {"no head", ref_features}};
    tally t = {0};
    flim_network net;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            const int *size = cases[k].size;
            flim_error err = {0};
            assert_int_equal(flim_network_build(&net, cases[k].width, 2, size[0], size[1], size[2], &err), FLIM_OK);
            check_case(kinds[i].card, kinds[i].precision, kinds[i].without, &net, "published", cases[k].batch, &t);
        }
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
            others[k].build(&net);
            check_case(kinds[i].card, kinds[i].precision, kinds[i].without, &net, others[k].name, 3, &t);
        }
    }
    print_message("%d schedules; %d mutants, all refused\n", t.schedules, t.mutants);
    assert_true(t.schedules >= 2500);
}

/* ---- the largest tensor -------------------------------------------------------------------------------------------------- */

/* Elements of the largest tensor that has bytes in the arena, of all cells: from their own shapes. */
static int64_t largest_stored(const flim_schedule *s)
{
    int64_t largest = 0;
    for (int i = 0; i < s->arena.n; i++) {
        const flim_buffer_label l = s->label[i];
        const flim_unit *u = l.unit < 0 ? NULL : &s->net->unit[l.unit];
        const int *size = !u                                                         ? s->net->in
                          : l.kind == FLIM_BUFFER_DX                                 ? u->in
                          : l.kind == FLIM_BUFFER_Y || l.kind == FLIM_BUFFER_HEAD_DY ? u->out
                                                                                     : u->conv_out;
        const int channels = !u ? s->net->channels : l.kind == FLIM_BUFFER_DX ? u->in_channels : u->out_channels;
        if (l.kind == FLIM_BUFFER_SCRATCH || l.kind == FLIM_BUFFER_SIGN_MASK || l.kind == FLIM_BUFFER_VOXEL) {
            continue;
        }
        const bool compact = l.kind == FLIM_BUFFER_DX && flim_fusion_compact_dx(u);
        const bool raw = !u && s->mask_offset > 0; /* the stem's kernel takes the signal, and masks of one time */
        const int64_t voxels = (int64_t)(compact ? u->conv_out : size)[0] * (compact ? u->conv_out : size)[1] *
                               (compact ? u->conv_out : size)[2];
        const int64_t elements = s->batch * voxels * (raw ? 1 : (channels + 7) / 8 * 8);
        largest = elements > largest ? elements : largest;
    }
    return largest;
}

static const flim_schedule_unit *stem_reader(const flim_schedule *s)
{
    for (int u = 0; u < s->net->n_units; u++) {
        if (flim_schedule_stem_of(s, u) >= 0) {
            return &s->unit[u];
        }
    }
    return NULL;
}

/* As if the stem's kernel had failed its check on this card, with one cell. */
static void fail_stem(flim_device *device, const flim_schedule *s)
{
    flim_error err = {0};
    flim_conv_store *store;
    const int u = (int)(stem_reader(s) - s->unit);
    flim_conv_problem problem = flim_fusion_unit_problem(s, u, FLIM_CONV_FORWARD);
    problem.n = 1;
    assert_int_equal(flim_conv_store_of(flim_cuda_device_of(device), &store, &err), FLIM_OK);
    flim_conv_choice **list = flim_realloc(store->choice, (size_t)store->n + 1, sizeof *list, &err);
    flim_conv_choice *choice = flim_alloc(1, sizeof *choice, &err);
    assert_true(list && choice);
    store->choice = list;
    choice->problem = problem;
    list[store->n++] = choice;
}

/* What the device foretells is the largest tensor of the schedules that allocate; the largest batch makes none of 2^31 elements in
 * a program, one cell more is refused. */
static void check_largest(flim_device *device, const flim_network *net, flim_precision precision, bool stem_fails,
                          const char *text, int *stems)
{
    static flim_schedule s[2];
    enum { CELLS = 256 }; /* the arena rounds up */
    int64_t foretold, stored = 0;
    flim_error err = {0};
    const bool trains = net->n_heads > 0;
    for (int train = 0; train <= (int)trains; train++) {
        build(&s[train], device, net, precision, train == 1, CELLS, (flim_recompute_set){0}, 0,
              stem_fails ? "fused_stem" : NULL);
        const int64_t here = largest_stored(&s[train]);
        assert_int_equal(flim_schedule_largest_tensor(&s[train]), here / CELLS);
        stored = here > stored ? here : stored;
    }
    assert_int_equal(flim_device_largest_tensor(device, net, precision, &foretold, &err), FLIM_OK);
    if (foretold * CELLS != stored) {
        fail_msg("%s: %lld elements per cell foretold, %lld stored%s", text, (long long)foretold, (long long)(stored / CELLS),
                 stem_fails ? ", the stem's kernel failing" : "");
    }
    *stems += stem_reader(&s[0]) != NULL;
    const int64_t most = (((int64_t)1 << 31) - 1) / foretold;
    for (int more = 0; more < 2; more++) {
        flim_program *program = NULL;
        const flim_program_options options = {
            .precision = precision, .train_batch = trains ? most + more : 0, .eval_batch = most + more};
        const flim_status status = flim_program_compile(device, net, &options, &program, &err);
        assert_int_equal(status, more ? FLIM_ERROR_USAGE : FLIM_OK);
        if (!more) {
            const flim_cuda_program *p = flim_cuda_program_of(program);
            assert_true(largest_stored(&p->predict) < (int64_t)1 << 31);
            assert_true(!trains || largest_stored(&p->train) < (int64_t)1 << 31);
            if (!stem_fails) {
                assert_true((stem_reader(&p->predict) != NULL) == (stem_reader(&s[0]) != NULL));
                assert_true(!trains || (stem_reader(&p->train) != NULL) == (stem_reader(&s[1]) != NULL));
            }
            flim_program_destroy(program);
        }
    }
    if (!stem_fails && stem_reader(&s[0])) {
        for (int train = 0; train <= (int)trains; train++) {
            fail_stem(device, &s[train]);
        }
        check_largest(device, net, precision, true, text, stems);
    }
}

static void the_largest_tensor_is_foretold(void **state)
{
    (void)state;
    static const struct {
        const char *card;
        flim_precision precision;
    } kinds[] = {{"t4", FLIM_PRECISION_FP32},   {"t4", FLIM_PRECISION_FP16},   {"l4", FLIM_PRECISION_TF32},
                 {"h100", FLIM_PRECISION_FP32}, {"h100", FLIM_PRECISION_TF32}, {"h100", FLIM_PRECISION_BF16},
                 {"h100", FLIM_PRECISION_FP16}};
    static ref_build_network *const others[] = {ref_autoencoder, ref_masked_autoencoder,   ref_three_heads, ref_two_tasks,
                                                ref_pretraining, ref_pretraining_by_class, ref_features};
    static const int widths[] = {4, 8, 16, 24, 32, 64, 128};
    int stems = 0, cases = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (size_t k = 0; k < sizeof widths / sizeof *widths + sizeof others / sizeof *others; k++, cases++) {
            flim_network net;
            flim_error err = {0};
            char text[120];
            if (k < sizeof widths / sizeof *widths) {
                assert_int_equal(flim_network_build(&net, widths[k], 2, 256, 21, 21, &err), FLIM_OK);
            } else {
                others[k - sizeof widths / sizeof *widths](&net);
            }
            snprintf(text, sizeof text, "%s %s, network %d of width %d", kinds[i].card,
                     flim_precision_name(kinds[i].precision), (int)k, net.width);
            flim_device *device = describe(kinds[i].card);
            check_largest(device, &net, kinds[i].precision, false, text, &stems);
            flim_device_close(device);
        }
    }
    print_message("%d networks, %d with the stem's kernel\n", cases, stems);
    assert_true(stems >= 10);
}

/* ---- the stem alone ------------------------------------------------------------------------------------------------------ */

/* How often unit u has an operation of a kind, recomputed or not. */
static int count_kind(const flim_schedule *s, int u, flim_operation_kind kind, bool recomputed)
{
    int n = 0;
    for (int i = 0; i < s->n_operations; i++) {
        n += s->operation[i].unit == u && s->operation[i].kind == kind && s->operation[i].recomputed == recomputed;
    }
    return n;
}

/* Of wide networks the stem's y is all that is stored of it; nothing else passes over it than its kernels and its reader's. */
static void the_stem_of_wide_networks_stands_alone(void **state)
{
    (void)state;
    static flim_schedule s, again, without;
    static const struct {
        int width;
        const char *card;
        flim_precision precision;
        bool alone;
    } cases[] = {{72, "h100", FLIM_PRECISION_TF32, true},   {128, "l4", FLIM_PRECISION_BF16, true},
                 {256, "h100", FLIM_PRECISION_FP16, true},  {512, "h100", FLIM_PRECISION_TF32, true},
                 {64, "h100", FLIM_PRECISION_TF32, false},  {76, "h100", FLIM_PRECISION_TF32, false},
                 {520, "h100", FLIM_PRECISION_TF32, false}, {128, "h100", FLIM_PRECISION_FP32, false},
                 {128, "t4", FLIM_PRECISION_FP16, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        flim_error err = {0};
        flim_network net;
        flim_device *device = describe(cases[i].card);
        assert_int_equal(flim_network_build(&net, cases[i].width, 2, 33, 5, 5, &err), FLIM_OK);
        for (int train = 0; train < 2; train++) {
            build(&s, device, &net, cases[i].precision, train == 1, 3, (flim_recompute_set){0}, 0, NULL);
            build(&without, device, &net, cases[i].precision, train == 1, 3, (flim_recompute_set){0}, 0, "fused_stem");
            const flim_schedule_unit *stem = &s.unit[0];
            assert_true((stem->fusion == FLIM_FUSION_STEM_ALONE) == cases[i].alone);
            assert_true(without.unit[0].fusion == FLIM_FUSION_NONE);
            if (!cases[i].alone) {
                continue;
            }
            for (int k = 0; k < FLIM_UNIT_BUFFERS; k++) {
                assert_true((stem->buffer[k] != NONE) == (k == FLIM_BUFFER_Y));
            }
            assert_int_equal(count_kind(&s, 0, FLIM_OP_STEM_FORWARD, false), 1);
            assert_int_equal(count_kind(&s, 0, FLIM_OP_STEM_BACKWARD, false), train);
            for (int kind = 0; kind <= FLIM_OP_STEM_BACKWARD; kind++) {
                assert_true(kind == FLIM_OP_STEM_FORWARD || kind == FLIM_OP_STEM_BACKWARD ||
                            count_kind(&s, 0, (flim_operation_kind)kind, false) == 0);
            }
            assert_true(!train || s.arena.bytes < without.arena.bytes);
        }
        if (cases[i].alone) { /* y is written again for the weight gradient of its reader */
            build(&again, device, &net, cases[i].precision, true, 3, (flim_recompute_set){.blocks = 1}, 0, NULL);
            assert_int_equal(count_kind(&again, 0, FLIM_OP_STEM_FORWARD, true), 1);
            assert_true(again.arena.buffer[again.unit[0].buffer[FLIM_BUFFER_Y]].use == FLIM_USE_TRANSIENT);
        }
        flim_device_close(device);
    }
}

/* Sums over a tensor are cut into blocks by the card's multiprocessors: none would be another order of sums, and no room for them. */
static void a_program_knows_the_multiprocessors(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_network net;
    flim_card card;
    flim_device *device = NULL;
    flim_program *program = NULL;
    const flim_program_options options = {.precision = FLIM_PRECISION_FP16, .train_batch = 2, .eval_batch = 2};
    assert_int_equal(flim_network_build(&net, 8, 2, 8, 3, 3, &err), FLIM_OK);
    assert_int_equal(flim_card_find(FLIM_SOURCE_DIR "/configs/devices", "h100", &card, NULL, &err), FLIM_OK);
    assert_int_equal(flim_device_describe(&card, &device, &err), FLIM_OK);
    device->info.assumes_workspace = true;
    assert_int_equal(flim_program_compile(device, &net, &options, &program, &err), FLIM_OK);
    assert_int_equal(flim_cuda_program_of(program)->launch.processors, card.processors);
    assert_int_equal(card.processors, 132);
    flim_program_destroy(program);
    flim_device_close(device);
}

/* Time of a tensor's sums where `at_once` blocks run together, in blocks that had all of a cell. */
static double waves(int64_t blocks, int64_t chunks, int64_t at_once)
{
    return (double)((blocks + at_once - 1) / at_once) / (double)chunks;
}

/* Blocks cover each pixel of a cell once, fit the partial sums' room, and fill their last wave better than one more or fewer would. */
static void blocks_come_in_whole_waves(void **state)
{
    (void)state;
    static const int64_t cells[] = {1, 2, 3, 16, 63, 64, 65, 200, 592, 1188, 4752},
                         pixels[] = {1, 9, 441, 7744, 15488, 56448, 112896};
    static const int processors[] = {40, 58, 108, 132}, channels[] = {8, 16, 24, 32, 128, 512, 2048, 4096};
    int cases = 0;
    for (size_t p = 0; p < sizeof processors / sizeof *processors; p++) {
        for (size_t c = 0; c < sizeof channels / sizeof *channels; c++) {
            for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
                for (size_t k = 0; k < sizeof pixels / sizeof *pixels; k++, cases++) {
                    const flim_blocks b = flim_blocks_for(cells[i], pixels[k], channels[c], processors[p]);
                    assert_true(b.chunks >= 1 && b.chunk >= 1 && b.blocks == cells[i] * b.chunks);
                    assert_true(b.chunks * b.chunk >= pixels[k] && (b.chunks - 1) * b.chunk < pixels[k]);
                    assert_true(b.blocks <= 4 * (int64_t)processors[p] + cells[i]);
                }
            }
        }
    }
    /* The published network at batch 64 on an H100: 8 blocks a cell; 9, which is the next whole number above 4 a multiprocessor,
     * would begin a wave of 48 blocks. */
    const flim_blocks b = flim_blocks_for(64, 56448, 32, 132);
    assert_int_equal(b.chunks, 8);
    for (int64_t at_once = 132; at_once <= 4 * 132; at_once *= 2) {
        assert_true(waves(64 * 8, 8, at_once) < waves(64 * 9, 9, at_once));
    }
    print_message("%d cuts\n", cases);
}

/* Networks of every width that kernels take, and deeper ones than presets: nothing and all of them recomputed. */
static void other_depths_hold(void **state)
{
    (void)state;
    static flim_schedule s;
    static const int widths[] = {8, 16, 32, 64, 128};
    static const flim_precision precisions[] = {FLIM_PRECISION_TF32, FLIM_PRECISION_BF16};
    for (size_t i = 0; i < 2 * sizeof widths / sizeof *widths; i++) {
        for (int depth = 1; depth <= 3; depth++) {
            const flim_model_size size = {.width = widths[i / 2], .depth = depth};
            flim_error err = {0};
            flim_network net;
            flim_device *device = describe("h100");
            assert_int_equal(flim_network_build_sized(&net, size, 2, 256, 21, 21, &err), FLIM_OK);
            for (int all = 0; all < 2; all++) {
                const flim_recompute_set set = {.outputs = all ? FLIM_MAX_UNITS : 0, .blocks = all ? UINT32_MAX : 0};
                char text[80];
                build(&s, device, &net, precisions[i % 2], true, 64, set, 0, NULL);
                snprintf(text, sizeof text, "width %d, depth %d, %s, %s recomputed", size.width, depth,
                         flim_precision_name(precisions[i % 2]), all ? "all" : "nothing");
                check_schedule(&s, text);
                if (all == 0) { /* else a block's epilogue, if it runs again, writes the sign mask again */
                    (void)check_mutants(&s, text);
                }
            }
            flim_device_close(device);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_operation_finds_what_it_reads),
                                       cmocka_unit_test(the_largest_tensor_is_foretold),
                                       cmocka_unit_test(the_stem_of_wide_networks_stands_alone),
                                       cmocka_unit_test(other_depths_hold),
                                       cmocka_unit_test(blocks_come_in_whole_waves),
                                       cmocka_unit_test(a_program_knows_the_multiprocessors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("skipped: this build has no CUDA backend\n");
    return 77;
}

#endif

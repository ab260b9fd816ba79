#include "cuda/program/schedule_operations.h"

#include "cuda/program/fusion.h"

/* ---- an operation and its operands --------------------------------------------------------------------------------------- */

static flim_operation *last_operation(flim_schedule *s)
{
    return &s->operation[s->n_operations - 1];
}

static void add_operation(flim_schedule *s, flim_operation_kind kind, int unit)
{
    flim_operation *o = &s->operation[s->n_operations++];
    *o = (flim_operation){.kind = kind, .unit = unit, .scratch = FLIM_NO_BUFFER};
    for (int i = 0; i < FLIM_OPERATION_INPUTS; i++) {
        o->in[i] = FLIM_NO_BUFFER;
    }
    for (int i = 0; i < FLIM_OPERATION_OUTPUTS; i++) {
        o->out[i] = FLIM_NO_BUFFER;
    }
}

static void touch(flim_schedule *s, int buffer)
{
    flim_arena_touch(&s->arena, buffer, s->n_operations - 1);
}

/* The last operation added reads or writes a buffer (FLIM_NO_BUFFER: it has no such operand). */
static void op_reads(flim_schedule *s, int slot, int buffer)
{
    last_operation(s)->in[slot] = buffer;
    touch(s, buffer);
}

static void op_writes(flim_schedule *s, int slot, int buffer)
{
    last_operation(s)->out[slot] = buffer;
    touch(s, buffer);
}

/* The same anew: what the buffer held was given away since. */
static void op_recomputes(flim_schedule *s, int slot, int buffer)
{
    if (buffer != FLIM_NO_BUFFER) {
        flim_arena_begin_again(&s->arena, buffer);
    }
    op_writes(s, slot, buffer);
}

/* It convolves unit u in one direction: by the convolution found, and with the scratch memory that this wants. */
static void op_convolves(flim_schedule *s, int u, flim_conv_op op)
{
    last_operation(s)->conv = s->unit[u].conv[op];
    last_operation(s)->scratch = s->unit[u].scratch[op];
    touch(s, s->unit[u].scratch[op]);
}

/* ---- forward ------------------------------------------------------------------------------------------------------------- */

/* What holds a unit's output in the form in which it is taken. */
static int output_of(const flim_schedule *s, int u, flim_input_form form)
{
    return u < 0 ? s->input : s->unit[u].buffer[form == FLIM_INPUT_PLAIN ? FLIM_BUFFER_Y : FLIM_BUFFER_Z];
}

static void add_conv(flim_schedule *s, int u, bool recomputed)
{
    const bool alone = s->unit[u].fusion == FLIM_FUSION_STEM_ALONE; /* with its BatchNorm and activation */
    const int out = s->unit[u].buffer[alone ? FLIM_BUFFER_Y : FLIM_BUFFER_Z];
    if (flim_schedule_stem_of(s, u) >= 0) {
        add_operation(s, FLIM_OP_STEM_FORWARD, u);
        op_reads(s, FLIM_IN_X, s->input);
    } else {
        const flim_input_form form = flim_fusion_forward_form(s, u);
        add_operation(s, FLIM_OP_CONV, u);
        last_operation(s)->input_form = form;
        op_reads(s, FLIM_IN_X, output_of(s, s->net->unit[u].input, form));
    }
    last_operation(s)->recomputed = recomputed;
    if (recomputed) {
        op_recomputes(s, FLIM_OUT, out);
    } else {
        op_writes(s, FLIM_OUT, out);
    }
    op_convolves(s, u, FLIM_CONV_FORWARD);
}

/* The last operation added reads z of unit u and what the unit adds. */
static void op_reads_epilogue(flim_schedule *s, int u)
{
    const int added = s->net->unit[u].skip;
    op_reads(s, FLIM_IN_Z, s->unit[u].buffer[FLIM_BUFFER_Z]);
    if (added >= 0) {
        last_operation(s)->input_form = flim_fusion_skip_form(s, u);
        op_reads(s, FLIM_IN_SKIP, output_of(s, added, flim_fusion_skip_form(s, u)));
    }
}

static void add_epilogue(flim_schedule *s, int u, bool recomputed)
{
    const int *buffer = s->unit[u].buffer;
    add_operation(s, FLIM_OP_EPILOGUE, u);
    last_operation(s)->recomputed = recomputed;
    op_reads_epilogue(s, u);
    if (recomputed) {
        op_recomputes(s, FLIM_OUT, buffer[FLIM_BUFFER_Y]);
    } else {
        op_writes(s, FLIM_OUT, buffer[FLIM_BUFFER_Y]);
    }
    if (!recomputed || s->unit[u].recompute == FLIM_Z_RECOMPUTED) {
        op_writes(s, FLIM_OUT_SIGN_MASK, buffer[FLIM_BUFFER_SIGN_MASK]);
    }
}

static void add_forward(flim_schedule *s)
{
    flim_arena_touch(&s->arena, s->input, 0); /* it is written before the first operation */
    flim_arena_touch(&s->arena, s->voxel, 0);
    for (int u = 0; u < s->net->n_units; u++) {
        if (s->unit[u].fusion == FLIM_FUSION_STEM) {
            continue;
        }
        add_conv(s, u, false);
        if (s->unit[u].fusion == FLIM_FUSION_STEM_ALONE) {
            continue;
        }
        add_operation(s, FLIM_OP_NORM, u);
        op_reads(s, FLIM_IN_Z, s->unit[u].buffer[FLIM_BUFFER_Z]);
        if (s->unit[u].fusion == FLIM_FUSION_NONE) {
            add_epilogue(s, u, false);
        }
    }
    for (int k = 0; k < s->net->n_heads; k++) {
        const flim_schedule_unit *su = &s->unit[s->net->head[k].unit];
        add_operation(s, FLIM_OP_HEAD, s->net->head[k].unit);
        last_operation(s)->head = k;
        op_reads(s, FLIM_IN_X, su->buffer[FLIM_BUFFER_Y]);
        if (flim_loss_is_hidden(s->net->head[k].loss)) {
            op_reads(s, FLIM_IN_TARGET, s->voxel);
        } else if (s->train && s->net->head[k].kind == FLIM_HEAD_DENSE) {
            op_reads(s, FLIM_IN_TARGET, s->input);
        }
        if (s->train && s->net->head[k].kind == FLIM_HEAD_DENSE) {
            op_writes(s, FLIM_OUT, su->buffer[FLIM_BUFFER_HEAD_DY]);
        }
    }
}

/* ---- backward ------------------------------------------------------------------------------------------------------------ */

/* The last operation added reads every contribution to the gradient of unit u's y. */
static void op_reads_gradients(flim_schedule *s, int u)
{
    int slot = FLIM_IN_GRADIENT;
    if (s->unit[u].buffer[FLIM_BUFFER_HEAD_DY] != FLIM_NO_BUFFER) {
        op_reads(s, slot++, s->unit[u].buffer[FLIM_BUFFER_HEAD_DY]);
    }
    const int from = s->unit[u].gradient_from; /* if there is one, what the others contribute is in its dx */
    for (int r = 0; r < s->net->n_units; r++) {
        const flim_schedule_unit *reader = &s->unit[r];
        if (reader->unit->input == u && (from < 0 || from == r)) {
            op_reads(s, slot++, reader->buffer[FLIM_BUFFER_DX]);
        }
        if (reader->unit->skip == u && from < 0 && flim_schedule_dv_of(s, r) != FLIM_NO_BUFFER) {
            op_reads(s, slot++, flim_schedule_dv_of(s, r));
        }
    }
}

/* The last operation added reads what the activation of unit u saw, unless the gradient is through it, and the gradients of its y. */
static void op_reads_backward(flim_schedule *s, int u)
{
    const int mask = s->unit[u].buffer[FLIM_BUFFER_SIGN_MASK];
    if (mask == FLIM_NO_BUFFER) {
        op_reads_epilogue(s, u);
    } else {
        op_reads(s, FLIM_IN_Z, s->unit[u].buffer[FLIM_BUFFER_Z]);
        if (s->unit[u].gradient_from < 0) {
            op_reads(s, FLIM_IN_SKIP, mask);
        }
    }
    op_reads_gradients(s, u);
}

static void add_weight(flim_schedule *s, int u)
{
    const flim_input_form form = flim_fusion_weight_form(s, u);
    add_operation(s, FLIM_OP_WEIGHT, u);
    last_operation(s)->input_form = form;
    op_reads(s, FLIM_IN_X, output_of(s, s->net->unit[u].input, form));
    op_reads(s, FLIM_IN_GRADIENT, s->unit[u].buffer[FLIM_BUFFER_DZ]);
    op_convolves(s, u, FLIM_CONV_WEIGHT);
}

/* The weight gradient of unit u waits until its input unit's y is written again. */
static bool weight_waits(const flim_schedule *s, int u)
{
    const int input = s->net->unit[u].input;
    return input >= 0 && s->unit[input].recompute == FLIM_Y_RECOMPUTED && s->unit[input].gradient_from < 0 &&
           flim_fusion_weight_form(s, u) == FLIM_INPUT_PLAIN;
}

static void add_gradient_sums(flim_schedule *s, int u)
{
    add_operation(s, FLIM_OP_GRAD_SUMS, u);
    op_reads_backward(s, u);
    if (s->unit[u].recompute == FLIM_Y_RECOMPUTED) {
        op_recomputes(s, FLIM_OUT, s->unit[u].buffer[FLIM_BUFFER_Y]);
        for (int r = 0; r < s->net->n_units; r++) {
            if (s->net->unit[r].input == u && weight_waits(s, r)) {
                add_weight(s, r);
            }
        }
    }
}

/* dz and dv may lie where the operation reads a contribution of the same shape: it writes each element after reading it. */
static void write_in_place(flim_schedule *s, int u)
{
    static const flim_buffer_kind out[2] = {FLIM_BUFFER_DZ, FLIM_BUFFER_DV};
    const flim_operation *o = last_operation(s);
    if (flim_fusion_by_mask(s, u)) {
        return; /* the gradient is the dv as well */
    }
    for (int i = FLIM_IN_GRADIENT, n = 0; i < FLIM_OPERATION_INPUTS && n < 2 && s->net->unit[u].pool_t == 1; i++) {
        const int from = o->in[i];
        if (from == FLIM_NO_BUFFER ||
            (s->label[from].kind == FLIM_BUFFER_DX && flim_fusion_compact_dx(&s->net->unit[s->label[from].unit]))) {
            continue;
        }
        const int buffer = s->unit[u].buffer[out[n++]];
        if (buffer != FLIM_NO_BUFFER) {
            flim_arena_alias(&s->arena, buffer, from);
        }
    }
}

/* dz of unit u (and of the skip that is fused into it, or dv) from the gradient of its y. */
static void add_gradient_apply(flim_schedule *s, int u)
{
    const int added = s->net->unit[u].skip, *buffer = s->unit[u].buffer;
    add_operation(s, FLIM_OP_GRAD_APPLY, u);
    op_reads_backward(s, u);
    write_in_place(s, u);
    op_writes(s, FLIM_OUT, buffer[FLIM_BUFFER_DZ]);
    op_writes(s, FLIM_OUT_DV, buffer[FLIM_BUFFER_DV]);
    if (added >= 0 && s->unit[added].fusion == FLIM_FUSION_SKIP) {
        op_writes(s, FLIM_OUT_SKIP_DZ, s->unit[added].buffer[FLIM_BUFFER_DZ]);
    }
}

static void add_stem_backward(flim_schedule *s, int u)
{
    add_operation(s, FLIM_OP_STEM_BACKWARD, u);
    op_reads(s, FLIM_IN_X, s->input);
    if (s->unit[u].fusion == FLIM_FUSION_STEM_ALONE) {
        op_reads_gradients(s, u);
    } else if (flim_fusion_gradient_on_load(s, u)) {
        last_operation(s)->input_form = FLIM_INPUT_NORM_ON_LOAD;
        op_reads(s, FLIM_IN_Z, s->unit[u].buffer[FLIM_BUFFER_Z]);
        op_reads(s, FLIM_IN_GRADIENT, s->unit[s->unit[u].gradient_from].buffer[FLIM_BUFFER_DX]);
    } else {
        op_reads(s, FLIM_IN_GRADIENT, s->unit[u].buffer[FLIM_BUFFER_DZ]);
    }
    op_convolves(s, u, FLIM_CONV_WEIGHT);
}

/* dx; if the input unit's gradient comes from here, through its activation and with the other contribution to it. */
static void add_data(flim_schedule *s, int u)
{
    const int input = s->net->unit[u].input;
    add_operation(s, FLIM_OP_DATA, u);
    op_reads(s, FLIM_IN_GRADIENT, s->unit[u].buffer[FLIM_BUFFER_DZ]);
    if (s->unit[input].gradient_from == u) {
        op_reads(s, FLIM_IN_Z, s->unit[input].buffer[FLIM_BUFFER_Z]);
        op_reads(s, FLIM_IN_SKIP, s->unit[input].buffer[FLIM_BUFFER_SIGN_MASK]);
        for (int r = 0; r < s->net->n_units; r++) {
            if (s->net->unit[r].skip == input) {
                op_reads(s, FLIM_IN_GRADIENT + 1, flim_schedule_dv_of(s, r));
            } else if (s->net->unit[r].input == input && r != u) {
                op_reads(s, FLIM_IN_GRADIENT + 1, s->unit[r].buffer[FLIM_BUFFER_DX]);
            }
        }
    }
    op_writes(s, FLIM_OUT, s->unit[u].buffer[FLIM_BUFFER_DX]);
    op_convolves(s, u, FLIM_CONV_DATA);
}

/* Outputs that a block's backward pass reads, if there is no pass over their gradient that would write them. */
static void add_rewritten(flim_schedule *s, int block)
{
    for (int u = 0; u < s->net->n_units; u++) {
        const int from = s->unit[u].gradient_from;
        if (from >= 0 && s->net->unit[from].block == block && s->unit[u].recompute == FLIM_Y_RECOMPUTED) {
            add_epilogue(s, u, true);
        }
    }
}

/* The convolutions of a block that are recomputed, and what stands between them.  early: only if a data gradient of a later block reads a z of
 * this one, in front of that; else any other block, at its start. */
static void add_recomputed(flim_schedule *s, int block, bool early)
{
    bool is_early = false;
    for (int u = 0; u < s->net->n_units; u++) {
        is_early = is_early ||
                   (s->net->unit[u].block == block && flim_fusion_by_mask(s, u) && s->unit[u].recompute == FLIM_Z_RECOMPUTED);
    }
    for (int u = 0; u < s->net->n_units; u++) {
        if (early == is_early && s->net->unit[u].block == block && s->unit[u].recompute == FLIM_Z_RECOMPUTED) {
            add_conv(s, u, true);
            if (flim_fusion_recomputes_y(s, u)) {
                add_epilogue(s, u, true);
            }
        }
    }
}

static void add_backward_of(flim_schedule *s, int u)
{
    const flim_schedule_unit *su = &s->unit[u];
    if (su->fusion == FLIM_FUSION_STEM_ALONE) {
        add_stem_backward(s, u);
        return;
    }
    if (su->fusion != FLIM_FUSION_SKIP && su->gradient_from < 0) {
        add_gradient_sums(s, u);
    }
    if (su->fusion != FLIM_FUSION_SKIP && !flim_fusion_gradient_on_load(s, u)) {
        add_gradient_apply(s, u);
    }
    if (flim_schedule_stem_of(s, u) >= 0) {
        add_stem_backward(s, u);
        return;
    }
    if (!weight_waits(s, u)) {
        add_weight(s, u);
    }
    if (su->unit->input >= 0) {
        const int input = su->unit->input;
        if (s->unit[input].gradient_from == u && flim_fusion_by_mask(s, input)) {
            add_recomputed(s, s->net->unit[input].block, true);
        }
        add_data(s, u);
    }
}

static void add_backward(flim_schedule *s)
{
    const int last = s->net->n_units - 1;
    for (int u = last; u >= 0; u--) {
        if (u == last || s->net->unit[u + 1].block != s->net->unit[u].block) {
            add_rewritten(s, s->net->unit[u].block);
            add_recomputed(s, s->net->unit[u].block, false);
        }
        if (s->unit[u].fusion == FLIM_FUSION_STEM || s->unit[u].fusion == FLIM_FUSION_SKIP) {
            continue;
        }
        add_backward_of(s, u);
        /* The skip's convolution next: the data gradient of the block's first convolution may add its dx. */
        const int added = s->net->unit[u].skip;
        if (added >= 0 && s->unit[added].fusion == FLIM_FUSION_SKIP) {
            add_backward_of(s, added);
        }
    }
}

void flim_schedule_list_operations(flim_schedule *s)
{
    add_forward(s);
    if (s->train) {
        add_backward(s);
    }
}

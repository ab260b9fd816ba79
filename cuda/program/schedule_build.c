#include "cuda/program/schedule_build.h"

#include "core/try.h"
#include "cuda/program/fusion.h"

/* ---- operations and their operands --------------------------------------------------------------------------------------- */

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

/* ---- peak ---------------------------------------------------------------------------------------------------------------- */

static void find_peak(flim_schedule *s)
{
    int64_t most = -1;
    for (int op = 0; op < s->n_operations; op++) {
        int64_t by_use[FLIM_USES] = {0}, sum = 0;
        for (int i = 0; i < s->arena.n; i++) {
            if (flim_arena_lives_at(&s->arena, i, op)) {
                by_use[s->arena.buffer[i].use] += s->arena.buffer[i].bytes;
                sum += s->arena.buffer[i].bytes;
            }
        }
        if (sum > most) {
            most = sum;
            s->peak = op;
            for (int u = 0; u < FLIM_USES; u++) {
                s->at_peak[u] = by_use[u];
            }
        }
    }
}

int64_t flim_schedule_saved_at_peak(const flim_schedule *s, int u)
{
    static const flim_buffer_kind kinds[] = {FLIM_BUFFER_Z, FLIM_BUFFER_Y, FLIM_BUFFER_SIGN_MASK};
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const int b = s->unit[u].buffer[kinds[i]];
        if (b != FLIM_NO_BUFFER && s->arena.buffer[b].use == FLIM_USE_SAVED && flim_arena_lives_at(&s->arena, b, s->peak)) {
            bytes += s->arena.buffer[b].bytes;
        }
    }
    return bytes;
}

int flim_schedule_recomputable(const flim_schedule *s)
{
    int n = 0;
    for (int u = 0; u < s->net->n_units; u++) {
        n += s->unit[u].recompute == FLIM_Y_RECOMPUTABLE || s->unit[u].recompute == FLIM_Y_RECOMPUTED;
    }
    return n;
}

/* ---- convolutions -------------------------------------------------------------------------------------------------------- */

static int add_buffer(flim_schedule *s, flim_buffer_use use, flim_buffer_kind kind, int unit, int64_t bytes)
{
    const int buffer = flim_arena_add(&s->arena, use, bytes);
    s->label[buffer] = (flim_buffer_label){kind, unit};
    return buffer;
}

static void add_scratch(flim_schedule *s, int u, flim_conv_op op, int64_t bytes)
{
    if (bytes > 0) {
        s->unit[u].scratch[op] = add_buffer(s, FLIM_USE_WORKSPACE, FLIM_BUFFER_SCRATCH, u, bytes);
    }
}

/* Chooses unit u's convolution in one direction.  If what is fused with it fails its check, *again: the schedule does without. */
static flim_status find_conv(flim_schedule *s, flim_conv_store *store, int u, flim_conv_op op,
                             const flim_conv_search_options *options, bool *again, flim_error *err)
{
    flim_schedule_unit *su = &s->unit[u];
    const flim_conv_problem problem = flim_fusion_unit_problem(s, u, op);
    const flim_status status = flim_conv_choose(store, &problem, options, &su->conv[op], err);
    if (status == FLIM_ERROR_DEVICE && flim_conv_is_fused(&problem)) {
        s->unfused[u] |= (uint8_t)(1u << op);
        *again = true;
        return FLIM_OK;
    }
    return status == FLIM_OK ? FLIM_OK : flim_fail_prefix(err, "%s: ", su->unit->conv);
}

/* Weight gradients first: which kernel is fastest for them says whether it can apply what stands between z and x. */
static flim_status find_convs(flim_schedule *s, flim_conv_store *store, const flim_conv_search_options *options, bool *again,
                              flim_error *err)
{
    for (int u = 0; s->train && u < s->net->n_units; u++) {
        if (s->unit[u].fusion != FLIM_FUSION_STEM && flim_schedule_stem_of(s, u) < 0) {
            FLIM_TRY(find_conv(s, store, u, FLIM_CONV_WEIGHT, options, again, err));
        }
    }
    flim_fusion_find_outputs(s);
    for (int u = 0; u < s->net->n_units && !*again; u++) {
        if (s->unit[u].fusion == FLIM_FUSION_STEM) {
            continue;
        }
        FLIM_TRY(find_conv(s, store, u, FLIM_CONV_FORWARD, options, again, err));
        if (s->train && (flim_schedule_stem_of(s, u) >= 0 || flim_fusion_weight_form(s, u) != FLIM_INPUT_PLAIN)) {
            FLIM_TRY(find_conv(s, store, u, FLIM_CONV_WEIGHT, options, again, err));
        }
        if (s->train && s->net->unit[u].input >= 0 && flim_schedule_stem_of(s, u) < 0) {
            FLIM_TRY(find_conv(s, store, u, FLIM_CONV_DATA, options, again, err));
        }
    }
    return FLIM_OK;
}

static void add_scratch_of(flim_schedule *s, int u)
{
    for (int i = 0; i < 3; i++) {
        static const flim_conv_op order[] = {FLIM_CONV_FORWARD, FLIM_CONV_WEIGHT, FLIM_CONV_DATA};
        const flim_conv_choice *conv = s->unit[u].conv[order[i]];
        if (conv) {
            add_scratch(s, u, order[i], conv->workspace);
        }
    }
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------- */

static void add_input(flim_schedule *s)
{
    const flim_network *net = s->net;
    const int64_t size = flim_storage_size(s->type), voxels = s->batch * flim_volume(net->in);
    int64_t bytes = voxels * flim_storage_channels(net->channels) * size;
    for (int u = 0; u < net->n_units; u++) {
        if (s->unit[u].fusion == FLIM_FUSION_STEM) { /* its kernel takes signal and masks as they are */
            s->mask_offset = (voxels * size + 255) / 256 * 256;
            bytes = s->mask_offset + s->batch * net->in[1] * net->in[2];
        }
    }
    s->input = add_buffer(s, FLIM_USE_TRANSIENT, FLIM_BUFFER_INPUT, -1, bytes);
    s->voxel = net->channels == 3 ? add_buffer(s, FLIM_USE_TRANSIENT, FLIM_BUFFER_VOXEL, -1, voxels * (int64_t)sizeof(float))
                                  : FLIM_NO_BUFFER;
}

static void add_tensor(flim_schedule *s, flim_buffer_use use, flim_buffer_kind kind, int u, int64_t bytes)
{
    s->unit[u].buffer[kind] = add_buffer(s, use, kind, u, bytes);
}

static void add_tensors_of(flim_schedule *s, int u)
{
    const flim_schedule_unit *su = &s->unit[u];
    const flim_unit *unit = su->unit;
    const int64_t cell = s->batch * flim_storage_size(s->type), z = cell * flim_volume(unit->conv_out) * su->k;
    const bool on_load = flim_fusion_gradient_on_load(s, u);
    const flim_buffer_use saved = s->train ? FLIM_USE_SAVED : FLIM_USE_TRANSIENT;
    add_tensor(s, su->recompute == FLIM_Z_RECOMPUTED ? FLIM_USE_TRANSIENT : saved, FLIM_BUFFER_Z, u, z);
    if (su->fusion == FLIM_FUSION_NONE) {
        const bool recomputed = su->recompute == FLIM_Y_RECOMPUTED || flim_fusion_recomputes_y(s, u);
        add_tensor(s, recomputed ? FLIM_USE_TRANSIENT : saved, FLIM_BUFFER_Y, u, cell * flim_volume(unit->out) * su->k);
    }
    if (!s->train) {
        return;
    }
    if (flim_fusion_has_sign_mask(s, u)) {
        add_tensor(s, FLIM_USE_SAVED, FLIM_BUFFER_SIGN_MASK, u, z / flim_storage_size(s->type) / 8);
    }
    if (!on_load) {
        add_tensor(s, FLIM_USE_GRADIENT, FLIM_BUFFER_DZ, u, z);
    }
    if (unit->input >= 0 && flim_schedule_stem_of(s, u) < 0) {
        const int *size = flim_fusion_compact_dx(unit) ? unit->conv_out : unit->in;
        add_tensor(s, FLIM_USE_GRADIENT, FLIM_BUFFER_DX, u, cell * flim_volume(size) * su->c);
    }
    if (unit->skip >= 0 && s->unit[unit->skip].fusion != FLIM_FUSION_SKIP) {
        add_tensor(s, FLIM_USE_GRADIENT, FLIM_BUFFER_DV, u, z);
    }
    for (int k = 0; k < s->net->n_heads; k++) {
        if (s->net->head[k].unit == u && s->net->head[k].kind == FLIM_HEAD_DENSE) {
            add_tensor(s, FLIM_USE_GRADIENT, FLIM_BUFFER_HEAD_DY, u, cell * flim_volume(unit->out) * su->k);
        }
    }
}

static void add_tensors(flim_schedule *s)
{
    for (int u = 0; u < s->net->n_units; u++) {
        if (flim_schedule_stem_of(s, u) < 0) {
            add_scratch_of(s, u);
        }
    }
    add_input(s);
    for (int u = 0; u < s->net->n_units; u++) {
        if (s->unit[u].fusion != FLIM_FUSION_STEM) {
            add_tensors_of(s, u);
        }
    }
    for (int u = 0; u < s->net->n_units; u++) {
        if (flim_schedule_stem_of(s, u) >= 0) {
            add_scratch_of(s, u);
        }
    }
}

/* ---- forward ------------------------------------------------------------------------------------------------------------- */

/* What holds a unit's output in the form in which it is taken. */
static int output_of(const flim_schedule *s, int u, flim_input_form form)
{
    return u < 0 ? s->input : s->unit[u].buffer[form == FLIM_INPUT_PLAIN ? FLIM_BUFFER_Y : FLIM_BUFFER_Z];
}

static void add_conv(flim_schedule *s, int u, bool recomputed)
{
    const int z = s->unit[u].buffer[FLIM_BUFFER_Z];
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
        op_recomputes(s, FLIM_OUT, z);
    } else {
        op_writes(s, FLIM_OUT, z);
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
    op_writes(s, FLIM_OUT_SIGN_MASK, buffer[FLIM_BUFFER_SIGN_MASK]);
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
    for (int r = 0; r < s->net->n_units; r++) {
        const flim_schedule_unit *reader = &s->unit[r];
        if (reader->unit->input == u) {
            op_reads(s, slot++, reader->buffer[FLIM_BUFFER_DX]);
        }
        if (reader->unit->skip == u && reader->buffer[FLIM_BUFFER_DV] != FLIM_NO_BUFFER && s->unit[u].gradient_from < 0) {
            op_reads(s, slot++, reader->buffer[FLIM_BUFFER_DV]); /* else it is in dx already */
        }
    }
}

/* The last operation added reads what the activation of unit u saw, and the gradients of its y. */
static void op_reads_backward(flim_schedule *s, int u)
{
    const int mask = s->unit[u].buffer[FLIM_BUFFER_SIGN_MASK];
    if (mask == FLIM_NO_BUFFER) {
        op_reads_epilogue(s, u);
    } else {
        op_reads(s, FLIM_IN_Z, s->unit[u].buffer[FLIM_BUFFER_Z]);
        op_reads(s, FLIM_IN_SKIP, mask);
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
    return input >= 0 && s->unit[input].recompute == FLIM_Y_RECOMPUTED && flim_fusion_weight_form(s, u) == FLIM_INPUT_PLAIN;
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
    if (flim_fusion_gradient_on_load(s, u)) {
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
        for (int r = 0; r < s->net->n_units; r++) {
            if (s->net->unit[r].skip == input) {
                op_reads(s, FLIM_IN_GRADIENT + 1, s->unit[r].buffer[FLIM_BUFFER_DV]);
            }
        }
    }
    op_writes(s, FLIM_OUT, s->unit[u].buffer[FLIM_BUFFER_DX]);
    op_convolves(s, u, FLIM_CONV_DATA);
}

/* The convolutions of a block that are recomputed, and what stands between them. */
static void add_recomputed(flim_schedule *s, int block)
{
    for (int u = 0; u < s->net->n_units; u++) {
        if (s->net->unit[u].block == block && s->unit[u].recompute == FLIM_Z_RECOMPUTED) {
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
        add_data(s, u);
    }
}

static void add_backward(flim_schedule *s)
{
    const int last = s->net->n_units - 1;
    for (int u = last; u >= 0; u--) {
        if (u == last || s->net->unit[u + 1].block != s->net->unit[u].block) {
            add_recomputed(s, s->net->unit[u].block);
        }
        if (s->unit[u].fusion != FLIM_FUSION_STEM) {
            add_backward_of(s, u);
        }
    }
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static flim_status check_limits(const flim_schedule *s, flim_error *err)
{
    const flim_network *net = s->net;
    for (int u = 0; u < net->n_units; u++) {
        int gradients = flim_fusion_heads_of(net, u);
        int dense = 0;
        for (int k = 0; k < net->n_heads; k++) {
            dense += net->head[k].unit == u && net->head[k].kind == FLIM_HEAD_DENSE;
        }
        for (int r = 0; r < net->n_units; r++) {
            gradients += (net->unit[r].input == u) + (net->unit[r].skip == u);
        }
        if (dense > 1) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s has %d dense heads; the CUDA backend supports one per unit",
                             net->unit[u].conv, dense);
        }
        if (net->unit[u].out_channels > 8192) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s has %d output channels; the CUDA backend supports at most 8192",
                             net->unit[u].conv, net->unit[u].out_channels);
        }
        if (s->train && gradients > FLIM_MAX_GRAD_INPUTS) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s is read by %d units and heads; the CUDA backend trains with at most %d", net->unit[u].conv,
                             gradients, FLIM_MAX_GRAD_INPUTS);
        }
    }
    return FLIM_OK;
}

flim_status flim_schedule_build(flim_schedule *s, flim_cuda_device *device, const flim_network *net, flim_storage type,
                                bool train, int64_t batch, bool deterministic, const flim_recompute_set *recompute,
                                const flim_conv_search_options *options, flim_error *err)
{
    flim_conv_store *store;
    *s = (flim_schedule){.net = net,
                         .train = train,
                         .deterministic = deterministic,
                         .wide_only = options->wide_only,
                         .no_stem = options->no_stem,
                         .batch = batch,
                         .type = type,
                         .arena = {.alignment = 256}};
    FLIM_TRY(check_limits(s, err));
    FLIM_TRY(flim_conv_store_of(device, &store, err));
    for (bool again = true; again;) { /* at most once per unit and direction */
        again = false;
        flim_fusion_find(s, device->sm);
        FLIM_TRY(find_convs(s, store, options, &again, err));
    }
    flim_fusion_find_recomputed(s, recompute);
    add_tensors(s);
    add_forward(s);
    if (train) {
        add_backward(s);
    }
    flim_arena_place(&s->arena);
    find_peak(s);
    return FLIM_OK;
}

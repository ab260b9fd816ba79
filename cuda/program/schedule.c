#include "cuda/program/fusion.h"
#include "core/try.h"

/* ---- buffers --------------------------------------------------------------------------------------------------------- */

/* The last operation added touches a buffer. */
static void touch(flim_pass *pass, int buffer)
{
    flim_arena_touch(&pass->arena, buffer, pass->n_operations - 1);
}

static void add_operation(flim_pass *pass, flim_operation_kind kind, int unit)
{
    pass->operation[pass->n_operations++] = (flim_operation){.kind = kind, .unit = unit};
}

static void find_peak(flim_pass *pass)
{
    int64_t most = -1;
    for (int op = 0; op < pass->n_operations; op++) {
        int64_t by_use[FLIM_USES] = {0}, sum = 0;
        for (int i = 0; i < pass->arena.n; i++) {
            if (flim_arena_lives_at(&pass->arena, i, op)) {
                by_use[pass->arena.buffer[i].use] += pass->arena.buffer[i].bytes;
                sum += pass->arena.buffer[i].bytes;
            }
        }
        if (sum > most) {
            most = sum;
            pass->peak = op;
            for (int u = 0; u < FLIM_USES; u++) {
                pass->at_peak[u] = by_use[u];
            }
        }
    }
}

int64_t flim_pass_saved_at_peak(const flim_pass *pass, int u)
{
    const int own[] = {pass->unit[u].z, pass->unit[u].y, pass->unit[u].gate};
    int64_t bytes = 0;
    for (int i = 0; i < 3; i++) {
        if (own[i] != FLIM_NO_BUFFER && pass->arena.buffer[own[i]].use == FLIM_USE_SAVED &&
            flim_arena_lives_at(&pass->arena, own[i], pass->peak)) {
            bytes += pass->arena.buffer[own[i]].bytes;
        }
    }
    return bytes;
}

/* ---- plans ------------------------------------------------------------------------------------------------------------ */

flim_conv_problem flim_pass_problem(const flim_unit *unit, flim_conv_op op, flim_storage type, int64_t batch,
                                    bool deterministic)
{
    flim_conv_problem p = {.op = op,
                           .type = type,
                           .deterministic = deterministic,
                           .n = batch,
                           .c = flim_storage_channels(unit->in_channels),
                           .k = flim_storage_channels(unit->out_channels)};
    const bool compact = op == FLIM_CONV_DATA && flim_is_strided_point(unit);
    for (int d = 0; d < 3; d++) {
        p.in[d] = compact ? unit->conv_out[d] : unit->in[d];
        p.out[d] = unit->conv_out[d];
        p.kernel[d] = unit->kernel[d];
        p.stride[d] = compact ? 1 : unit->stride[d];
        p.pad[d] = unit->pad[d];
    }
    return p;
}

static int add_workspace(flim_pass *pass, int64_t bytes)
{
    return bytes > 0 ? flim_arena_add(&pass->arena, FLIM_USE_WORKSPACE, bytes) : FLIM_NO_BUFFER;
}

static flim_status find_plan(flim_pass *pass, flim_cuda_device *device, int u, flim_conv_op op, bool deterministic,
                             const flim_plan_options *options, flim_error *err)
{
    flim_pass_unit *pu = &pass->unit[u];
    flim_conv_problem problem = flim_pass_problem(pu->unit, op, pass->type, pass->batch, deterministic);
    flim_status status = flim_plan_store_get(device, &problem, options, &pu->plan[op], err);
    if (status != FLIM_OK) {
        return flim_fail_prefix(err, "%s: ", pu->unit->conv);
    }
    pu->workspace[op] = add_workspace(pass, pu->plan[op]->workspace);
    return FLIM_OK;
}

/* Plans of the convolutions that have no kernel of their own. */
static flim_status find_plans(flim_pass *pass, flim_cuda_device *device, bool deterministic, const flim_plan_options *options,
                              flim_error *err)
{
    for (int u = 0; u < pass->net->n_units; u++) {
        flim_pass_unit *pu = &pass->unit[u];
        flim_status status = FLIM_OK;
        if (u == pass->stem || u == pass->down) {
            continue;
        }
        if (!pu->k3) {
            status = find_plan(pass, device, u, FLIM_CONV_FORWARD, deterministic, options, err);
        } else {
            pu->workspace[FLIM_CONV_FORWARD] = add_workspace(pass, (int64_t)flim_k3_scratch_bytes());
        }
        if (status == FLIM_OK && pass->train) {
            status = find_plan(pass, device, u, FLIM_CONV_WEIGHT, deterministic, options, err);
        }
        if (status == FLIM_OK && pass->train && pu->unit->input >= 0) {
            if (!pu->k3) {
                status = find_plan(pass, device, u, FLIM_CONV_DATA, deterministic, options, err);
            } else {
                pu->workspace[FLIM_CONV_DATA] = add_workspace(pass, (int64_t)flim_k3_scratch_bytes());
            }
        }
        if (status != FLIM_OK) {
            return status;
        }
    }
    return FLIM_OK;
}

/* ---- tensors and operations ------------------------------------------------------------------------------------------- */

static void add_tensors(flim_pass *pass)
{
    const flim_network *net = pass->net;
    const int64_t size = flim_storage_size(pass->type), voxels = pass->batch * flim_volume(net->in);
    if (pass->stem >= 0) {
        pass->mask_offset = (voxels * size + 255) / 256 * 256;
        pass->input =
            flim_arena_add(&pass->arena, FLIM_USE_PASSING, pass->mask_offset + pass->batch * net->in[1] * net->in[2]);
    } else {
        pass->input = flim_arena_add(&pass->arena, FLIM_USE_PASSING, voxels * flim_storage_channels(net->channels) * size);
    }
    for (int u = 0; u < net->n_units; u++) {
        flim_pass_unit *pu = &pass->unit[u];
        const int64_t z = pass->batch * flim_volume(pu->unit->conv_out) * pu->k * size,
                      y = pass->batch * flim_volume(pu->unit->out) * pu->k * size;
        const int64_t x = pass->batch * flim_volume(pu->unit->in) * pu->c * size;
        if (u == pass->stem) {
            continue;
        }
        pu->z = flim_arena_add(&pass->arena, pass->train && !pu->remade ? FLIM_USE_SAVED : FLIM_USE_PASSING, z);
        if (pu->folder < 0 && !pu->is_virtual) {
            pu->y = flim_arena_add(&pass->arena, FLIM_USE_PASSING, y);
            if (pass->train && !pu->rewrites_y && !flim_pass_remakes_y(pass, u)) {
                pass->arena.buffer[pu->y].use = FLIM_USE_SAVED;
            }
        }
        if (!pass->train) {
            continue;
        }
        if (pu->gated) {
            pu->gate = flim_arena_add(&pass->arena, FLIM_USE_SAVED, z / size / 8);
        }
        if (!pu->norm_on_load) {
            pu->dz = flim_arena_add(&pass->arena, FLIM_USE_GRADIENT, z);
        }
        if (pu->unit->input >= 0 && u != pass->down) {
            pu->dx = flim_arena_add(&pass->arena, FLIM_USE_GRADIENT,
                                    pu->compact_dx ? pass->batch * flim_volume(pu->unit->conv_out) * pu->c * size : x);
        }
        if (pu->unit->skip >= 0 && pass->unit[pu->unit->skip].folder != u) {
            pu->dv = flim_arena_add(&pass->arena, FLIM_USE_GRADIENT, z);
        }
    }
    if (pass->stem >= 0) {
        const flim_stem_shape shape = flim_pass_stem_shape(pass, pass->batch);
        pass->unit[pass->down].workspace[FLIM_CONV_FORWARD] = add_workspace(pass, (int64_t)flim_stem_scratch_bytes(&shape));
        pass->unit[pass->down].workspace[FLIM_CONV_WEIGHT] = add_workspace(pass, (int64_t)flim_stem_scratch_bytes(&shape));
    }
}

static int input_of(const flim_pass *pass, int u)
{
    int input = pass->unit[u].unit->input;
    return input < 0 ? pass->input : pass->unit[input].is_virtual ? pass->unit[input].z : pass->unit[input].y;
}

/* x of a weight gradient: the input unit's z, or its y. */
static int weight_input_of(const flim_pass *pass, int u)
{
    const int input = pass->unit[u].unit->input;
    if (input < 0) {
        return pass->input;
    }
    return pass->unit[u].weight_from_z ? pass->unit[input].z : pass->unit[input].y;
}

/* What unit u adds before its activation. */
static int skip_of(const flim_pass *pass, int u)
{
    const int s = pass->unit[u].unit->skip;
    if (s < 0) {
        return FLIM_NO_BUFFER;
    }
    const flim_pass_unit *skip = &pass->unit[s];
    return skip->folder == u || skip->is_virtual ? skip->z : skip->y;
}

static void add_conv(flim_pass *pass, int u)
{
    const flim_pass_unit *pu = &pass->unit[u];
    add_operation(pass, u == pass->down ? FLIM_OP_STEM_FORWARD : FLIM_OP_CONV, u);
    touch(pass, u == pass->down ? pass->input : input_of(pass, u));
    touch(pass, pu->z);
    touch(pass, pu->workspace[FLIM_CONV_FORWARD]);
}

static void add_tail(flim_pass *pass, int u)
{
    add_operation(pass, FLIM_OP_TAIL, u);
    touch(pass, pass->unit[u].z);
    touch(pass, pass->unit[u].y);
    touch(pass, pass->unit[u].gate);
    touch(pass, skip_of(pass, u));
}

static void add_forward(flim_pass *pass)
{
    const flim_network *net = pass->net;
    flim_arena_touch(&pass->arena, pass->input, 0); /* it is written before the first operation */
    for (int u = 0; u < net->n_units; u++) {
        const flim_pass_unit *pu = &pass->unit[u];
        if (u == pass->stem) {
            continue;
        }
        add_conv(pass, u);
        add_operation(pass, FLIM_OP_NORM, u);
        touch(pass, pu->z);
        if (pu->y != FLIM_NO_BUFFER) {
            add_tail(pass, u);
        }
    }
    add_operation(pass, FLIM_OP_HEAD, net->n_units - 1);
    touch(pass, pass->unit[net->n_units - 1].y);
}

/* Calls touch for every buffer that holds a contribution to dy of u; *dense gets up to two that dz and dv may overwrite. */
static int touch_sources(flim_pass *pass, int u, int dense[2])
{
    int n = 0;
    for (int r = 0; r < pass->net->n_units; r++) {
        flim_pass_unit *reader = &pass->unit[r];
        int source[2] = {reader->unit->input == u ? reader->dx : FLIM_NO_BUFFER,
                         reader->unit->skip == u ? reader->dv : FLIM_NO_BUFFER};
        for (int k = 0; k < 2; k++) {
            if (k == 1 && pass->unit[u].gradient_from >= 0) {
                continue; /* is in dx already */
            }
            touch(pass, source[k]);
            if (source[k] != FLIM_NO_BUFFER && n < 2 && pass->unit[u].unit->pool_t == 1 && !(k == 0 && reader->compact_dx)) {
                dense[n++] = source[k];
            }
        }
    }
    return n;
}

static void add_weight(flim_pass *pass, int u)
{
    const flim_pass_unit *pu = &pass->unit[u];
    add_operation(pass, FLIM_OP_WEIGHT, u);
    touch(pass, weight_input_of(pass, u));
    touch(pass, pu->dz);
    touch(pass, pu->workspace[FLIM_CONV_WEIGHT]);
}

/* dz of unit u (and of the skip it folds, and dv) from the gradient of its y. */
static void add_gradient(flim_pass *pass, int u)
{
    flim_pass_unit *pu = &pass->unit[u];
    int dense[2], n_dense;
    if (pu->gradient_from < 0) {
        add_operation(pass, FLIM_OP_GRAD_SUMS, u);
        touch(pass, pu->z);
        touch(pass, pu->gated ? pu->gate : skip_of(pass, u));
        (void)touch_sources(pass, u, dense);
        if (pu->rewrites_y) {
            flim_arena_begin_again(&pass->arena, pu->y);
            touch(pass, pu->y);
        }
    }
    for (int r = 0; r < pass->net->n_units; r++) { /* weight gradients that waited for y to be written again */
        if (pu->rewrites_y && pass->unit[r].unit->input == u && !pass->unit[r].weight_from_z) {
            add_weight(pass, r);
        }
    }
    if (pu->norm_on_load) {
        return;
    }
    add_operation(pass, FLIM_OP_GRAD_APPLY, u);
    touch(pass, pu->z);
    touch(pass, pu->gated ? pu->gate : skip_of(pass, u));
    n_dense = touch_sources(pass, u, dense);
    if (n_dense > 0) {
        flim_arena_alias(&pass->arena, pu->dz, dense[0]);
    }
    if (n_dense > 1 && pu->dv != FLIM_NO_BUFFER) {
        flim_arena_alias(&pass->arena, pu->dv, dense[1]);
    }
    touch(pass, pu->dz);
    touch(pass, pu->dv);
    if (pu->unit->skip >= 0 && pass->unit[pu->unit->skip].folder == u) {
        touch(pass, pass->unit[pu->unit->skip].dz);
    }
}

/* The convolutions of a block that are made again, and what stands between them. */
static void add_again(flim_pass *pass, int block)
{
    for (int u = 0; u < pass->net->n_units; u++) {
        const int begin = pass->n_operations;
        if (pass->block[u] != block || !pass->unit[u].remade) {
            continue;
        }
        flim_arena_begin_again(&pass->arena, pass->unit[u].z);
        add_conv(pass, u);
        if (flim_pass_remakes_y(pass, u)) {
            flim_arena_begin_again(&pass->arena, pass->unit[u].y);
            add_tail(pass, u);
        }
        for (int i = begin; i < pass->n_operations; i++) {
            pass->operation[i].again = true;
        }
    }
}

static void add_backward(flim_pass *pass)
{
    const flim_network *net = pass->net;
    for (int u = net->n_units - 1; u >= 0; u--) {
        flim_pass_unit *pu = &pass->unit[u];
        const int input = pu->unit->input;
        if (u == net->n_units - 1 || pass->block[u + 1] != pass->block[u]) {
            add_again(pass, pass->block[u]);
        }
        if (u == pass->stem) {
            continue;
        }
        if (pu->folder < 0) {
            add_gradient(pass, u);
        }
        if (u == pass->down) {
            add_operation(pass, FLIM_OP_STEM_BACKWARD, u);
            touch(pass, pass->input);
            touch(pass, pu->norm_on_load ? pu->z : pu->dz);
            touch(pass, pu->norm_on_load ? pass->unit[pu->gradient_from].dx : FLIM_NO_BUFFER);
            touch(pass, pu->workspace[FLIM_CONV_WEIGHT]);
            continue;
        }
        if (input < 0 || pu->weight_from_z || !pass->unit[input].rewrites_y) {
            add_weight(pass, u);
        }
        if (input >= 0) {
            add_operation(pass, FLIM_OP_DATA, u);
            touch(pass, pu->dz);
            touch(pass, pu->dx);
            touch(pass, pu->workspace[FLIM_CONV_DATA]);
            if (pass->unit[input].gradient_from == u) {
                touch(pass, pass->unit[input].z);
                touch(pass,
                      pass->unit[input].gradient_add < 0 ? FLIM_NO_BUFFER : pass->unit[pass->unit[input].gradient_add].dv);
            }
        }
    }
}

flim_status flim_pass_build(flim_pass *pass, flim_cuda_device *device, const flim_network *net, flim_storage type, bool train,
                            int64_t batch, bool deterministic, const flim_pass_drop *drop, const flim_plan_options *options,
                            flim_error *err)
{
    *pass = (flim_pass){.net = net, .train = train, .batch = batch, .type = type, .arena = {.alignment = 256}};
    for (int u = 0; u < net->n_units; u++) {
        if (net->unit[u].out_channels > 8192) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s has %d output channels; the CUDA backend takes at most 8192",
                             net->unit[u].conv, net->unit[u].out_channels);
        }
    }
    flim_pass_find_structure(pass, device->sm);
    FLIM_TRY(find_plans(pass, device, deterministic, options, err));
    flim_pass_find_shortcuts(pass);
    flim_pass_find_dropped(pass, drop);
    add_tensors(pass);
    add_forward(pass);
    if (train) {
        add_backward(pass);
    }
    flim_arena_place(&pass->arena);
    find_peak(pass);
    return FLIM_OK;
}

/* ---- views ------------------------------------------------------------------------------------------------------------ */

flim_status flim_pass_sources(const flim_pass *pass, void *arena, int u, const float *dmean, flim_sources *out,
                              flim_error *err)
{
    const flim_unit *unit = pass->unit[u].unit;
    *out = (flim_sources){.h = unit->out[1], .w = unit->out[2]};
    if (pass->unit[u].gradient_from >= 0) { /* comes through the activation already, with what is added */
        const flim_pass_unit *from = &pass->unit[pass->unit[u].gradient_from];
        out->item[out->n++] = (flim_source){
            .kind = FLIM_SOURCE_DENSE, .data = flim_pass_at(pass, arena, from->dx), .scale_a = from->grad.scale};
        return FLIM_OK;
    }
    if (u == pass->net->n_units - 1) {
        out->item[out->n++] = (flim_source){.kind = FLIM_SOURCE_BROADCAST, .data = dmean};
    }
    for (int r = 0; r < pass->net->n_units; r++) {
        const flim_pass_unit *reader = &pass->unit[r];
        int uses = (reader->unit->input == u) + (reader->unit->skip == u && reader->dv != FLIM_NO_BUFFER);
        if (out->n + uses > FLIM_MAX_SOURCES) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s is read by more than %d units; the CUDA backend takes no more",
                             unit->conv, FLIM_MAX_SOURCES);
        }
        if (reader->unit->input == u) {
            flim_source *s = &out->item[out->n++];
            *s = (flim_source){.kind = FLIM_SOURCE_DENSE,
                               .data = flim_pass_at(pass, arena, reader->dx),
                               .scale_a = reader->grad.scale,
                               .scale_b = reader->norm.weight_scale};
            if (reader->compact_dx) {
                s->kind = FLIM_SOURCE_STRIDED;
                for (int d = 0; d < 3; d++) {
                    s->stride[d] = reader->unit->stride[d];
                    s->size[d] = reader->unit->conv_out[d];
                }
            }
        }
        if (reader->unit->skip == u && reader->dv != FLIM_NO_BUFFER) {
            out->item[out->n++] = (flim_source){
                .kind = FLIM_SOURCE_DENSE, .data = flim_pass_at(pass, arena, reader->dv), .scale_a = reader->dv_scale};
        }
    }
    return FLIM_OK;
}

flim_tail flim_pass_tail(const flim_pass *pass, void *arena, int u, int64_t cells, bool backward)
{
    const flim_pass_unit *pu = &pass->unit[u];
    const flim_unit *unit = pu->unit;
    flim_tail tail = {.cells = cells,
                      .t = unit->conv_out[0],
                      .hw = unit->conv_out[1] * unit->conv_out[2],
                      .c = pu->k,
                      .pool = unit->pool_t,
                      .act = unit->act,
                      .z = flim_pass_at(pass, arena, pu->z),
                      .affine = pu->norm.affine,
                      .dropout = pass->train ? pu->dropout : NULL,
                      .gate = flim_pass_at(pass, arena, pu->gate)};
    tail.skip_in = tail.z;
    if (unit->skip >= 0) {
        const flim_pass_unit *skip = &pass->unit[unit->skip];
        tail.skip = skip->folder == u ? FLIM_SKIP_NORMALISED : skip->is_virtual ? FLIM_SKIP_ACTIVATED : FLIM_SKIP_PLAIN;
        tail.skip_in = flim_pass_at(pass, arena, skip_of(pass, u));
        tail.skip_affine = skip->norm.affine;
    }
    if (backward && pu->gated) {
        tail.skip = FLIM_SKIP_GATED;
    }
    return tail;
}

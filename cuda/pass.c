#include "pass.h"

#include "core/alloc.h"

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

/* ---- buffers --------------------------------------------------------------------------------------------------------- */

static int add_buffer(flim_pass *pass, flim_buffer_use use, int64_t bytes)
{
    pass->buffer[pass->n_buffers] =
        (flim_buffer){.use = use, .bytes = (bytes + 255) / 256 * 256, .first = 1, .last = 0, .alias = FLIM_NO_BUFFER};
    return pass->n_buffers++;
}

/* The operation about to be added, or the last one added, touches a buffer. */
static void touch_at(flim_pass *pass, int buffer, int operation)
{
    if (buffer == FLIM_NO_BUFFER) {
        return;
    }
    while (pass->buffer[buffer].alias != FLIM_NO_BUFFER) {
        buffer = pass->buffer[buffer].alias;
    }
    flim_buffer *b = &pass->buffer[buffer];
    if (b->first > b->last) {
        b->first = operation;
        b->last = operation;
    }
    b->last = operation > b->last ? operation : b->last;
}

static void touch(flim_pass *pass, int buffer)
{
    touch_at(pass, buffer, pass->n_operations - 1);
}

static void add_operation(flim_pass *pass, flim_operation_kind kind, int unit)
{
    pass->operation[pass->n_operations++] = (flim_operation){kind, unit};
}

static bool lives_meet(const flim_buffer *a, const flim_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Largest first, each at the lowest place where no buffer alive at the same time lies. */
static void place_buffers(flim_pass *pass)
{
    int order[FLIM_MAX_BUFFERS], n = 0;
    for (int i = 0; i < pass->n_buffers; i++) {
        if (pass->buffer[i].alias == FLIM_NO_BUFFER && pass->buffer[i].first <= pass->buffer[i].last) {
            int at = n++;
            for (; at > 0 && pass->buffer[order[at - 1]].bytes < pass->buffer[i].bytes; at--) {
                order[at] = order[at - 1];
            }
            order[at] = i;
        }
    }
    for (int i = 0; i < n; i++) {
        flim_buffer *b = &pass->buffer[order[i]];
        bool moved = true;
        b->offset = 0;
        while (moved) {
            moved = false;
            for (int k = 0; k < i; k++) {
                const flim_buffer *o = &pass->buffer[order[k]];
                if (lives_meet(b, o) && b->offset < o->offset + o->bytes && o->offset < b->offset + b->bytes) {
                    b->offset = o->offset + o->bytes;
                    moved = true;
                }
            }
        }
        pass->arena = b->offset + b->bytes > pass->arena ? b->offset + b->bytes : pass->arena;
    }
    for (int i = 0; i < pass->n_buffers; i++) {
        int root = i;
        while (pass->buffer[root].alias != FLIM_NO_BUFFER) {
            root = pass->buffer[root].alias;
        }
        pass->buffer[i].offset = pass->buffer[root].offset;
    }
}

static void find_peak(flim_pass *pass)
{
    int64_t most = -1;
    for (int op = 0; op < pass->n_operations; op++) {
        int64_t by_use[FLIM_USES] = {0}, sum = 0;
        for (int i = 0; i < pass->n_buffers; i++) {
            const flim_buffer *b = &pass->buffer[i];
            if (b->alias == FLIM_NO_BUFFER && b->first <= op && op <= b->last) {
                by_use[b->use] += b->bytes;
                sum += b->bytes;
            }
        }
        if (sum > most) {
            most = sum;
            for (int u = 0; u < FLIM_USES; u++) {
                pass->at_peak[u] = by_use[u];
            }
        }
    }
}

/* ---- plans ------------------------------------------------------------------------------------------------------------ */

static bool is_strided_point(const flim_unit *u)
{
    return volume(u->kernel) == 1 && u->pad[0] + u->pad[1] + u->pad[2] == 0 && u->stride[0] * u->stride[1] * u->stride[2] > 1;
}

flim_conv_problem flim_pass_problem(const flim_unit *unit, flim_conv_op op, flim_storage type, int64_t batch,
                                    bool deterministic)
{
    flim_conv_problem p = {.op = op,
                           .type = type,
                           .deterministic = deterministic,
                           .n = batch,
                           .c = flim_storage_channels(unit->in_channels),
                           .k = flim_storage_channels(unit->out_channels)};
    const bool compact = op == FLIM_CONV_DATA && is_strided_point(unit);
    for (int d = 0; d < 3; d++) {
        p.in[d] = compact ? unit->conv_out[d] : unit->in[d];
        p.out[d] = unit->conv_out[d];
        p.kernel[d] = unit->kernel[d];
        p.stride[d] = compact ? 1 : unit->stride[d];
        p.pad[d] = unit->pad[d];
    }
    return p;
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
    if (pu->plan[op]->cudnn.workspace > 0) {
        pu->workspace[op] = add_buffer(pass, FLIM_USE_WORKSPACE, pu->plan[op]->cudnn.workspace);
    }
    return FLIM_OK;
}

/* ---- structure --------------------------------------------------------------------------------------------------------- */

static void find_structure(flim_pass *pass)
{
    const flim_network *net = pass->net;
    int plain_skip[FLIM_MAX_UNITS] = {0};
    for (int u = 0; u < net->n_units; u++) {
        pass->unit[u] = (flim_pass_unit){.unit = &net->unit[u],
                                         .c = flim_storage_channels(net->unit[u].in_channels),
                                         .k = flim_storage_channels(net->unit[u].out_channels),
                                         .folder = -1,
                                         .compact_dx = is_strided_point(&net->unit[u]),
                                         .z = FLIM_NO_BUFFER,
                                         .y = FLIM_NO_BUFFER,
                                         .y_again = FLIM_NO_BUFFER,
                                         .dz = FLIM_NO_BUFFER,
                                         .dx = FLIM_NO_BUFFER,
                                         .dv = FLIM_NO_BUFFER,
                                         .workspace = {FLIM_NO_BUFFER, FLIM_NO_BUFFER, FLIM_NO_BUFFER}};
    }
    for (int u = 0; u < net->n_units; u++) {
        const flim_unit *unit = &net->unit[u];
        if (unit->input >= 0) {
            pass->unit[unit->input].readers++;
        }
        if (unit->skip >= 0) {
            pass->unit[unit->skip].readers++;
        }
    }
    for (int u = 0; u < net->n_units; u++) {
        const int s = net->unit[u].skip;
        if (s < 0) {
            continue;
        }
        const flim_unit *skip = &net->unit[s];
        if (!skip->act && skip->pool_t == 1 && !skip->dropout && skip->skip < 0 && pass->unit[s].readers == 1) {
            pass->unit[s].folder = u;
        } else {
            plain_skip[s] = 1;
        }
    }
    for (int u = 0; u < net->n_units; u++) {
        pass->unit[u].keep_y = plain_skip[u] || pass->unit[u].readers == 0;
    }
}

static void add_tensors(flim_pass *pass)
{
    const flim_network *net = pass->net;
    const int64_t size = flim_storage_size(pass->type);
    pass->input =
        add_buffer(pass, FLIM_USE_PASSING, pass->batch * volume(net->in) * flim_storage_channels(net->channels) * size);
    for (int u = 0; u < net->n_units; u++) {
        flim_pass_unit *pu = &pass->unit[u];
        const int64_t z = pass->batch * volume(pu->unit->conv_out) * pu->k * size,
                      y = pass->batch * volume(pu->unit->out) * pu->k * size;
        const int64_t x = pass->batch * volume(pu->unit->in) * pu->c * size;
        pu->z = add_buffer(pass, pass->train ? FLIM_USE_SAVED : FLIM_USE_PASSING, z);
        if (pu->folder < 0) {
            pu->y = add_buffer(pass, pass->train && pu->keep_y ? FLIM_USE_SAVED : FLIM_USE_PASSING, y);
        }
        if (!pass->train) {
            continue;
        }
        if (!pu->keep_y && pu->folder < 0) {
            pu->y_again = add_buffer(pass, FLIM_USE_PASSING, y);
        }
        pu->dz = add_buffer(pass, FLIM_USE_GRADIENT, z);
        if (pu->unit->input >= 0) {
            pu->dx = add_buffer(pass, FLIM_USE_GRADIENT,
                                pu->compact_dx ? pass->batch * volume(pu->unit->conv_out) * pu->c * size : x);
        }
        if (pu->unit->skip >= 0 && pass->unit[pu->unit->skip].folder != u) {
            pu->dv = add_buffer(pass, FLIM_USE_GRADIENT, z);
        }
    }
}

static int input_of(const flim_pass *pass, int u)
{
    int input = pass->unit[u].unit->input;
    return input < 0 ? pass->input : pass->unit[input].y;
}

/* x of a weight gradient: y as kept, or as written again. */
static int weight_input_of(const flim_pass *pass, int u)
{
    int input = pass->unit[u].unit->input;
    return input < 0 ? pass->input : pass->unit[input].keep_y ? pass->unit[input].y : pass->unit[input].y_again;
}

static void add_forward(flim_pass *pass)
{
    const flim_network *net = pass->net;
    for (int u = 0; u < net->n_units; u++) {
        const flim_pass_unit *pu = &pass->unit[u];
        add_operation(pass, FLIM_OP_CONV, u);
        touch(pass, input_of(pass, u));
        touch(pass, pu->z);
        touch(pass, pu->workspace[FLIM_CONV_FORWARD]);
        add_operation(pass, FLIM_OP_NORM, u);
        touch(pass, pu->z);
        if (pu->folder >= 0) {
            continue;
        }
        add_operation(pass, FLIM_OP_TAIL, u);
        touch(pass, pu->z);
        touch(pass, pu->y);
        if (pu->unit->skip >= 0) {
            const flim_pass_unit *skip = &pass->unit[pu->unit->skip];
            touch(pass, skip->folder == u ? skip->z : skip->y);
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
            touch(pass, source[k]);
            if (source[k] != FLIM_NO_BUFFER && n < 2 && pass->unit[u].unit->pool_t == 1 && !(k == 0 && reader->compact_dx)) {
                dense[n++] = source[k];
            }
        }
    }
    return n;
}

static void touch_tail(flim_pass *pass, int u)
{
    const flim_pass_unit *pu = &pass->unit[u];
    touch(pass, pu->z);
    if (pu->unit->skip >= 0) {
        const flim_pass_unit *skip = &pass->unit[pu->unit->skip];
        touch(pass, skip->folder == u ? skip->z : skip->y);
    }
}

static void add_weight(flim_pass *pass, int u)
{
    const flim_pass_unit *pu = &pass->unit[u];
    add_operation(pass, FLIM_OP_WEIGHT, u);
    touch(pass, weight_input_of(pass, u));
    touch(pass, pu->dz);
    touch(pass, pu->workspace[FLIM_CONV_WEIGHT]);
}

static void add_backward(flim_pass *pass)
{
    const flim_network *net = pass->net;
    for (int u = net->n_units - 1; u >= 0; u--) {
        flim_pass_unit *pu = &pass->unit[u];
        if (pu->folder < 0) {
            int dense[2], n_dense;
            add_operation(pass, FLIM_OP_GRAD_SUMS, u);
            touch_tail(pass, u);
            (void)touch_sources(pass, u, dense);
            touch(pass, pu->y_again);
            for (int r = 0; r < net->n_units; r++) { /* weight gradients that waited for y to be written again */
                if (!pu->keep_y && pass->unit[r].unit->input == u) {
                    add_weight(pass, r);
                }
            }
            add_operation(pass, FLIM_OP_GRAD_APPLY, u);
            touch_tail(pass, u);
            n_dense = touch_sources(pass, u, dense);
            if (n_dense > 0) {
                pass->buffer[pu->dz].alias = dense[0];
            }
            if (n_dense > 1 && pu->dv != FLIM_NO_BUFFER) {
                pass->buffer[pu->dv].alias = dense[1];
            }
            touch(pass, pu->dz);
            touch(pass, pu->dv);
            if (pu->unit->skip >= 0 && pass->unit[pu->unit->skip].folder == u) {
                touch(pass, pass->unit[pu->unit->skip].dz);
            }
        }
        if (pu->unit->input < 0 || pass->unit[pu->unit->input].keep_y) {
            add_weight(pass, u);
        }
        if (pu->unit->input >= 0) {
            add_operation(pass, FLIM_OP_DATA, u);
            touch(pass, pu->dz);
            touch(pass, pu->dx);
            touch(pass, pu->workspace[FLIM_CONV_DATA]);
        }
    }
}

flim_status flim_pass_build(flim_pass *pass, flim_cuda_device *device, const flim_network *net, flim_storage type, bool train,
                            int64_t batch, bool deterministic, bool recompute, const flim_plan_options *options,
                            flim_error *err)
{
    *pass = (flim_pass){.net = net, .train = train, .batch = batch, .type = type};
    find_structure(pass);
    for (int u = 0; u < net->n_units; u++) {
        pass->unit[u].keep_y = pass->unit[u].keep_y || !recompute;
        if (pass->unit[u].k > 4096 || pass->unit[u].c > 4096) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s has %d input and %d output channels; the CUDA backend takes at most 4096", net->unit[u].conv,
                             net->unit[u].in_channels, net->unit[u].out_channels);
        }
    }
    add_tensors(pass);
    for (int u = 0; u < net->n_units; u++) {
        flim_status status = find_plan(pass, device, u, FLIM_CONV_FORWARD, deterministic, options, err);
        if (status == FLIM_OK && train) {
            status = find_plan(pass, device, u, FLIM_CONV_WEIGHT, deterministic, options, err);
        }
        if (status == FLIM_OK && train && net->unit[u].input >= 0) {
            status = find_plan(pass, device, u, FLIM_CONV_DATA, deterministic, options, err);
        }
        if (status != FLIM_OK) {
            return status;
        }
    }
    add_forward(pass);
    if (train) {
        add_backward(pass);
    }
    /* The input is written before the first operation. */
    touch_at(pass, pass->input, 0);
    place_buffers(pass);
    find_peak(pass);
    return FLIM_OK;
}

/* ---- views ------------------------------------------------------------------------------------------------------------ */

flim_status flim_pass_sources(const flim_pass *pass, void *arena, int u, const float *dmean, flim_sources *out,
                              flim_error *err)
{
    const flim_unit *unit = pass->unit[u].unit;
    *out = (flim_sources){.h = unit->out[1], .w = unit->out[2]};
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

flim_tail flim_pass_tail(const flim_pass *pass, void *arena, int u, int64_t cells)
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
                      .dropout = pass->train ? pu->dropout : NULL};
    tail.skip_in = tail.z;
    if (unit->skip >= 0) {
        const flim_pass_unit *skip = &pass->unit[unit->skip];
        bool folded = skip->folder == u;
        tail.skip = folded ? FLIM_SKIP_NORMALISED : FLIM_SKIP_PLAIN;
        tail.skip_in = flim_pass_at(pass, arena, folded ? skip->z : skip->y);
        tail.skip_affine = skip->norm.affine;
    }
    return tail;
}

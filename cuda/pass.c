#include "pass.h"

#include "core/alloc.h"

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

/* ---- buffers --------------------------------------------------------------------------------------------------------- */

static int add_buffer(flim_pass *pass, flim_buffer_use use, int64_t bytes)
{
    pass->buffer[pass->n_buffers] = (flim_buffer){.use = use, .bytes = (bytes + 255) / 256 * 256, .alias = FLIM_NO_BUFFER};
    return pass->n_buffers++;
}

static void touch_at(flim_pass *pass, int buffer, int operation)
{
    if (buffer == FLIM_NO_BUFFER) {
        return;
    }
    while (pass->buffer[buffer].alias != FLIM_NO_BUFFER) {
        buffer = pass->buffer[buffer].alias;
    }
    flim_buffer *b = &pass->buffer[buffer];
    if (b->lives == 0 || b->reborn) {
        b->life[b->lives++].first = operation;
        b->reborn = false;
    }
    b->life[b->lives - 1].last = operation;
}

/* The last operation added touches a buffer. */
static void touch(flim_pass *pass, int buffer)
{
    touch_at(pass, buffer, pass->n_operations - 1);
}

static void add_operation(flim_pass *pass, flim_operation_kind kind, int unit)
{
    pass->operation[pass->n_operations++] = (flim_operation){.kind = kind, .unit = unit};
}

/* The next operation to touch a buffer writes it anew: what it held may be overwritten until then. */
static void begin_again(flim_pass *pass, int buffer)
{
    pass->buffer[buffer].reborn = true;
}

static bool lives_at(const flim_buffer *b, int operation)
{
    for (int i = 0; i < b->lives; i++) {
        if (b->life[i].first <= operation && operation <= b->life[i].last) {
            return true;
        }
    }
    return false;
}

static bool lives_meet(const flim_buffer *a, const flim_buffer *b)
{
    for (int i = 0; i < a->lives; i++) {
        for (int k = 0; k < b->lives; k++) {
            if (a->life[i].first <= b->life[k].last && b->life[k].first <= a->life[i].last) {
                return true;
            }
        }
    }
    return false;
}

/* Largest first, each at the lowest place where no buffer alive at the same time lies. */
static void place_buffers(flim_pass *pass)
{
    int order[FLIM_MAX_BUFFERS], n = 0;
    for (int i = 0; i < pass->n_buffers; i++) {
        if (pass->buffer[i].alias == FLIM_NO_BUFFER && pass->buffer[i].lives > 0) {
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
            if (b->alias == FLIM_NO_BUFFER && lives_at(b, op)) {
                by_use[b->use] += b->bytes;
                sum += b->bytes;
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
    const int own[] = {pass->unit[u].z, pass->unit[u].y};
    int64_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        const flim_buffer *b = own[i] == FLIM_NO_BUFFER ? NULL : &pass->buffer[own[i]];
        if (b && b->use == FLIM_USE_SAVED && b->alias == FLIM_NO_BUFFER && lives_at(b, pass->peak)) {
            bytes += b->bytes;
        }
    }
    return bytes;
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

static int add_workspace(flim_pass *pass, int64_t bytes)
{
    return bytes > 0 ? add_buffer(pass, FLIM_USE_WORKSPACE, bytes) : FLIM_NO_BUFFER;
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

/* ---- structure --------------------------------------------------------------------------------------------------------- */

static flim_conv_type conv_type(flim_storage type)
{
    return type == FLIM_STORAGE_BF16 ? FLIM_CONV_BF16 : FLIM_CONV_FP16;
}

flim_stem_shape flim_pass_stem_shape(const flim_pass *pass, int64_t n)
{
    const int *in = pass->net->in;
    return (flim_stem_shape){.type = conv_type(pass->type), .n = n, .t = in[0], .h = in[1], .w = in[2]};
}

flim_k3_shape flim_pass_k3_shape(const flim_pass *pass, int u, int64_t n)
{
    const int *in = pass->unit[u].unit->in;
    return (flim_k3_shape){.type = conv_type(pass->type), .n = n, .t = in[0], .h = in[1], .w = in[2]};
}

static bool is_conv(const flim_unit *u, const int kernel[3], const int stride[3], const int pad[3])
{
    for (int d = 0; d < 3; d++) {
        if (u->kernel[d] != kernel[d] || u->stride[d] != stride[d] || u->pad[d] != pad[d]) {
            return false;
        }
    }
    return true;
}

/* BatchNorm and activation only: a reader can apply it as it loads z. */
static bool is_simple(const flim_unit *u)
{
    return u->bn[0] && u->act && u->pool_t == 1 && u->skip < 0 && !u->dropout;
}

static void find_stem(flim_pass *pass, int sm)
{
    static const int stem_kernel[3] = {7, 1, 1}, one[3] = {1, 1, 1}, stem_pad[3] = {3, 0, 0};
    static const int down_kernel[3] = {3, 1, 1}, down_stride[3] = {2, 1, 1}, down_pad[3] = {1, 0, 0};
    const flim_network *net = pass->net;
    const flim_stem_shape shape = flim_pass_stem_shape(pass, pass->batch);
    pass->stem = pass->down = -1;
    for (int d = 1; d < net->n_units && pass->type != FLIM_STORAGE_FP32; d++) {
        const flim_unit *down = &net->unit[d], *stem = down->input >= 0 ? &net->unit[down->input] : NULL;
        if (stem && stem->input < 0 && net->channels == 2 && is_simple(stem) && pass->unit[down->input].readers == 1 &&
            down->skip < 0 && down->bn[0] && is_conv(stem, stem_kernel, one, stem_pad) &&
            is_conv(down, down_kernel, down_stride, down_pad) && stem->out_channels == 32 && down->out_channels == 32 &&
            shape.t >= 6 && flim_stem_supported(32, sm)) {
            pass->stem = down->input;
            pass->down = d;
        }
    }
    for (int u = 0; u < net->n_units; u++) { /* the kernel takes the input as it is: nobody else may want it */
        if (net->unit[u].input < 0 && u != pass->stem) {
            pass->stem = pass->down = -1;
        }
    }
}

static void find_structure(flim_pass *pass, int sm)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    const flim_network *net = pass->net;
    for (int u = 0; u < net->n_units; u++) {
        flim_pass_unit *pu = &pass->unit[u];
        *pu = (flim_pass_unit){.unit = &net->unit[u],
                               .c = flim_storage_channels(net->unit[u].in_channels),
                               .k = flim_storage_channels(net->unit[u].out_channels),
                               .folder = -1,
                               .gradient_from = -1,
                               .gradient_add = -1,
                               .weight_item = -1,
                               .compact_dx = is_strided_point(&net->unit[u]),
                               .z = FLIM_NO_BUFFER,
                               .y = FLIM_NO_BUFFER,
                               .dz = FLIM_NO_BUFFER,
                               .dx = FLIM_NO_BUFFER,
                               .dv = FLIM_NO_BUFFER,
                               .workspace = {FLIM_NO_BUFFER, FLIM_NO_BUFFER, FLIM_NO_BUFFER}};
        const flim_k3_shape shape = flim_pass_k3_shape(pass, u, pass->batch);
        pu->k3 = pass->type != FLIM_STORAGE_FP32 && is_conv(pu->unit, three, one, one) && pu->unit->in_channels == 32 &&
                 pu->unit->out_channels == 32 && pu->unit->input >= 0 && pu->unit->bn[0] && flim_k3_supported(&shape, sm);
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
        if (s >= 0) {
            const flim_unit *skip = &net->unit[s];
            if (!skip->act && skip->pool_t == 1 && !skip->dropout && skip->skip < 0 && pass->unit[s].readers == 1) {
                pass->unit[s].folder = u;
            }
        }
    }
    find_stem(pass, sm);
}

/* The first `outputs` of the y that can go, the largest first. */
static void drop_outputs(flim_pass *pass, int outputs)
{
    for (; outputs > 0; outputs--) {
        int largest = -1;
        int64_t most = 0;
        for (int u = 0; u < pass->net->n_units; u++) {
            const flim_pass_unit *pu = &pass->unit[u];
            const int64_t elements = volume(pu->unit->out) * pu->k;
            if (pu->can_drop && !pu->rewrites_y && elements > most) {
                most = elements;
                largest = u;
            }
        }
        if (largest < 0) {
            return;
        }
        pass->unit[largest].rewrites_y = true;
    }
}

int flim_pass_droppable(const flim_pass *pass)
{
    int n = 0;
    for (int u = 0; u < pass->net->n_units; u++) {
        n += pass->unit[u].can_drop;
    }
    return n;
}

/* Which units need no y, and whose gradient sums come with a data gradient.  Needs the plans of the weight gradients. */
static void find_shortcuts(flim_pass *pass)
{
    const flim_network *net = pass->net;
    for (int u = 0; u < net->n_units; u++) {
        flim_pass_unit *pu = &pass->unit[u];
        const int input = pu->unit->input;
        pu->weight_from_z = pass->train && pu->plan[FLIM_CONV_WEIGHT] && pu->plan[FLIM_CONV_WEIGHT]->own && input >= 0 &&
                            is_simple(&net->unit[input]);
    }
    for (int p = 0; p < net->n_units; p++) {
        flim_pass_unit *pp = &pass->unit[p];
        int conv_readers = 0, k3_reader = -1, skip_readers = 0, skip_reader = -1;
        bool all_apply = is_simple(pp->unit) && pp->readers > 0;
        for (int r = 0; r < net->n_units; r++) {
            const flim_pass_unit *reader = &pass->unit[r];
            if (reader->unit->input == p) {
                conv_readers++;
                k3_reader = reader->k3 ? r : k3_reader;
                all_apply = all_apply && reader->k3 && (!pass->train || reader->weight_from_z);
            }
            if (reader->unit->skip == p && pp->folder != r) {
                skip_readers++;
                skip_reader = r;
            }
        }
        pp->is_virtual = (all_apply && conv_readers > 0) || p == pass->stem;
        if (pass->train && is_simple(pp->unit) && conv_readers == 1 && k3_reader >= 0 && skip_readers <= 1) {
            pp->gradient_from = k3_reader;
            pp->gradient_add = skip_reader;
            pp->norm_on_load = p == pass->down;
        }
    }
}

static bool reads_y(const flim_pass *pass, int reader, int u)
{
    return pass->net->unit[reader].input == u || pass->net->unit[reader].skip == u;
}

/* Another block reads this unit: its z, or else its y. */
static bool read_outside(const flim_pass *pass, int u, bool z)
{
    const flim_pass_unit *pu = &pass->unit[u];
    for (int r = 0; r < pass->net->n_units; r++) {
        if (pass->block[r] != pass->block[u] && reads_y(pass, r, u)) {
            const bool by_z = pu->is_virtual || pu->folder == r || pu->gradient_from == r ||
                              (pass->net->unit[r].input == u && pass->unit[r].weight_from_z);
            if (by_z || !z) {
                return true;
            }
        }
    }
    return false;
}

/* Which z are made again: in the blocks asked for those that no other block reads.  Not in the last block, whose backward pass
 * follows at once, and not the stem's kernel, which keeps one z that others read. */
static void find_remade(flim_pass *pass, uint32_t blocks)
{
    for (int u = 0; u < pass->net->n_units; u++) {
        pass->unit[u].remade = pass->train && blocks >> pass->block[u] & 1u && pass->block[u] < pass->n_blocks - 1 &&
                               u != pass->stem && u != pass->down && !read_outside(pass, u, true);
    }
}

/* Of a unit made again: its y goes with its z, and something in the block still reads it. */
static bool remakes_y(const flim_pass *pass, int u)
{
    const flim_pass_unit *pu = &pass->unit[u];
    bool read = false;
    for (int r = 0; r < pass->net->n_units; r++) {
        const flim_pass_unit *reader = &pass->unit[r];
        read = read || reader->unit->skip == u || (reader->unit->input == u && (reader->remade || !reader->weight_from_z));
    }
    return pu->remade && pu->y != FLIM_NO_BUFFER && read && !read_outside(pass, u, false);
}

/* Which y could be written again by the pass that sums their gradient (not where there is none): those that nothing reads between
 * the forward pass and that but weight gradients. */
static void find_droppable(flim_pass *pass)
{
    for (int u = 0; u < pass->net->n_units; u++) {
        flim_pass_unit *pu = &pass->unit[u];
        bool wanted = false, early = false;
        for (int r = 0; r < pass->net->n_units; r++) {
            const flim_pass_unit *reader = &pass->unit[r];
            wanted = wanted || (reader->unit->input == u && !reader->weight_from_z);
            early = early || (reader->unit->skip == u && pu->folder != r) || (reader->unit->input == u && reader->remade);
        }
        pu->can_drop =
            pass->train && wanted && !early && !pu->remade && pu->gradient_from < 0 && pu->folder < 0 && !pu->is_virtual;
    }
}

static void add_tensors(flim_pass *pass)
{
    const flim_network *net = pass->net;
    const int64_t size = flim_storage_size(pass->type), voxels = pass->batch * volume(net->in);
    if (pass->stem >= 0) {
        pass->mask_offset = (voxels * size + 255) / 256 * 256;
        pass->input = add_buffer(pass, FLIM_USE_PASSING, pass->mask_offset + pass->batch * net->in[1] * net->in[2]);
    } else {
        pass->input = add_buffer(pass, FLIM_USE_PASSING, voxels * flim_storage_channels(net->channels) * size);
    }
    for (int u = 0; u < net->n_units; u++) {
        flim_pass_unit *pu = &pass->unit[u];
        const int64_t z = pass->batch * volume(pu->unit->conv_out) * pu->k * size,
                      y = pass->batch * volume(pu->unit->out) * pu->k * size;
        const int64_t x = pass->batch * volume(pu->unit->in) * pu->c * size;
        if (u == pass->stem) {
            continue;
        }
        pu->z = add_buffer(pass, pass->train && !pu->remade ? FLIM_USE_SAVED : FLIM_USE_PASSING, z);
        if (pu->folder < 0 && !pu->is_virtual) {
            pu->y = add_buffer(pass, FLIM_USE_PASSING, y);
            if (pass->train && !pu->rewrites_y && !remakes_y(pass, u)) {
                pass->buffer[pu->y].use = FLIM_USE_SAVED;
            }
        }
        if (!pass->train) {
            continue;
        }
        if (!pu->norm_on_load) {
            pu->dz = add_buffer(pass, FLIM_USE_GRADIENT, z);
        }
        if (pu->unit->input >= 0 && u != pass->down) {
            pu->dx = add_buffer(pass, FLIM_USE_GRADIENT,
                                pu->compact_dx ? pass->batch * volume(pu->unit->conv_out) * pu->c * size : x);
        }
        if (pu->unit->skip >= 0 && pass->unit[pu->unit->skip].folder != u) {
            pu->dv = add_buffer(pass, FLIM_USE_GRADIENT, z);
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
    touch(pass, skip_of(pass, u));
}

static void add_forward(flim_pass *pass)
{
    const flim_network *net = pass->net;
    touch_at(pass, pass->input, 0); /* it is written before the first operation */
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
        touch(pass, skip_of(pass, u));
        (void)touch_sources(pass, u, dense);
        if (pu->rewrites_y) {
            begin_again(pass, pu->y);
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
    touch(pass, skip_of(pass, u));
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

/* The convolutions of a block that are made again, and what stands between them. */
static void add_again(flim_pass *pass, int block)
{
    for (int u = 0; u < pass->net->n_units; u++) {
        const int begin = pass->n_operations;
        if (pass->block[u] != block || !pass->unit[u].remade) {
            continue;
        }
        begin_again(pass, pass->unit[u].z);
        add_conv(pass, u);
        if (remakes_y(pass, u)) {
            begin_again(pass, pass->unit[u].y);
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
    *pass = (flim_pass){.net = net, .train = train, .batch = batch, .type = type};
    for (int u = 0; u < net->n_units; u++) {
        if (net->unit[u].out_channels > 8192) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s has %d output channels; the CUDA backend takes at most 8192",
                             net->unit[u].conv, net->unit[u].out_channels);
        }
    }
    pass->n_blocks = flim_network_blocks(net, pass->block);
    find_structure(pass, device->sm);
    flim_status status = find_plans(pass, device, deterministic, options, err);
    if (status != FLIM_OK) {
        return status;
    }
    find_shortcuts(pass);
    find_remade(pass, drop->blocks);
    find_droppable(pass);
    drop_outputs(pass, drop->outputs);
    add_tensors(pass);
    add_forward(pass);
    if (train) {
        add_backward(pass);
    }
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
        tail.skip = skip->folder == u ? FLIM_SKIP_NORMALISED : skip->is_virtual ? FLIM_SKIP_ACTIVATED : FLIM_SKIP_PLAIN;
        tail.skip_in = flim_pass_at(pass, arena, skip_of(pass, u));
        tail.skip_affine = skip->norm.affine;
    }
    return tail;
}

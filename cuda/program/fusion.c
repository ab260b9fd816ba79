#include "cuda/program/fusion.h"

bool flim_is_strided_point(const flim_unit *u)
{
    return flim_volume(u->kernel) == 1 && u->pad[0] + u->pad[1] + u->pad[2] == 0 &&
           u->stride[0] * u->stride[1] * u->stride[2] > 1;
}

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

void flim_pass_find_structure(flim_pass *pass, int sm)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    const flim_network *net = pass->net;
    pass->n_blocks = flim_network_blocks(net);
    for (int u = 0; u < net->n_units; u++) {
        pass->block[u] = net->unit[u].block;
    }
    for (int u = 0; u < net->n_units; u++) {
        flim_pass_unit *pu = &pass->unit[u];
        *pu = (flim_pass_unit){.unit = &net->unit[u],
                               .c = flim_storage_channels(net->unit[u].in_channels),
                               .k = flim_storage_channels(net->unit[u].out_channels),
                               .folder = -1,
                               .gradient_from = -1,
                               .gradient_add = -1,
                               .weight_item = -1,
                               .compact_dx = flim_is_strided_point(&net->unit[u]),
                               .z = FLIM_NO_BUFFER,
                               .y = FLIM_NO_BUFFER,
                               .gate = FLIM_NO_BUFFER,
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

int flim_pass_droppable(const flim_pass *pass)
{
    int n = 0;
    for (int u = 0; u < pass->net->n_units; u++) {
        n += pass->unit[u].can_drop;
    }
    return n;
}

/* Which units need no y, and whose gradient sums come with a data gradient.  Needs the plans of the weight gradients. */
void flim_pass_find_shortcuts(flim_pass *pass)
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
bool flim_pass_remakes_y(const flim_pass *pass, int u)
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

/* The first `outputs` of the y that can go, the largest first. */
static void drop_outputs(flim_pass *pass, int outputs)
{
    for (; outputs > 0; outputs--) {
        int largest = -1;
        int64_t most = 0;
        for (int u = 0; u < pass->net->n_units; u++) {
            const flim_pass_unit *pu = &pass->unit[u];
            const int64_t elements = flim_volume(pu->unit->out) * pu->k;
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

void flim_pass_find_dropped(flim_pass *pass, const flim_pass_drop *drop)
{
    find_remade(pass, drop->blocks);
    find_droppable(pass);
    drop_outputs(pass, drop->outputs);
    for (int u = 0; u < pass->net->n_units; u++) {
        const flim_unit *unit = pass->unit[u].unit;
        pass->unit[u].gated = pass->train && unit->act && unit->skip >= 0 && pass->unit[unit->skip].folder != u &&
                              unit->pool_t == 1 && !pass->unit[u].rewrites_y; /* that needs the value, not the sign */
    }
}

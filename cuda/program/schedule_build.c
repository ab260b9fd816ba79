#include "cuda/program/schedule_build.h"

#include "core/alloc.h"
#include "core/try.h"
#include "cuda/program/fusion.h"
#include "cuda/program/schedule_operations.h"

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
static flim_status find_convs(flim_schedule *s, flim_conv_store *store, const flim_card *card,
                              const flim_conv_search_options *options, bool *again, flim_error *err)
{
    for (int u = 0; s->train && u < s->net->n_units; u++) {
        if (s->unit[u].fusion != FLIM_FUSION_STEM && flim_schedule_stem_of(s, u) < 0) {
            FLIM_TRY(find_conv(s, store, u, FLIM_CONV_WEIGHT, options, again, err));
        }
    }
    flim_fusion_find_outputs(s, card);
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
        if (flim_schedule_stem_of(s, u) >= 0) { /* its kernel takes signal and masks as they are */
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
    const flim_buffer_use of_conv = su->recompute == FLIM_Z_RECOMPUTED ? FLIM_USE_TRANSIENT : saved;
    if (su->fusion == FLIM_FUSION_STEM_ALONE) {
        add_tensor(s, of_conv, FLIM_BUFFER_Y, u, z);
        return;
    }
    add_tensor(s, of_conv, FLIM_BUFFER_Z, u, z);
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
    if (unit->skip >= 0 && s->unit[unit->skip].fusion != FLIM_FUSION_SKIP && su->gradient_from < 0) {
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

static void begin(flim_schedule *s, const flim_network *net, flim_precision precision, bool train, int64_t batch,
                  bool deterministic)
{
    *s = (flim_schedule){.net = net,
                         .train = train,
                         .deterministic = deterministic,
                         .batch = batch,
                         .type = flim_cuda_storage(precision),
                         .arena = {.alignment = 256}};
}

int64_t flim_schedule_largest_tensor(const flim_schedule *s)
{
    int64_t bytes = 0;
    for (int i = 0; i < s->arena.n; i++) {
        const bool larger = s->label[i].kind != FLIM_BUFFER_SCRATCH && s->arena.buffer[i].bytes > bytes;
        bytes = larger ? s->arena.buffer[i].bytes : bytes;
    }
    return bytes / (s->batch * flim_storage_size(s->type));
}

/* Does without the stem's kernel if it is known to fail. */
static void find_fusions_known(flim_schedule *s, const flim_cuda_device *device)
{
    static const flim_conv_op ops[] = {FLIM_CONV_FORWARD, FLIM_CONV_WEIGHT};
    flim_fusion_find(s, &device->card);
    for (int u = 0; u < s->net->n_units; u++) {
        for (int i = 0; i < (s->train ? 2 : 1) && flim_schedule_stem_of(s, u) >= 0; i++) {
            const flim_conv_problem problem = flim_fusion_unit_problem(s, u, ops[i]);
            if (device->conv_store && flim_conv_store_has_failed(device->conv_store, &problem)) {
                s->unfused[u] |= (uint8_t)(1u << ops[i]);
                flim_fusion_find(s, &device->card);
            }
        }
    }
}

flim_status flim_schedule_predict_largest(const flim_cuda_device *device, const flim_network *net, flim_precision precision,
                                          int64_t *elements, flim_error *err)
{
    enum { CELLS = 256 }; /* the arena rounds up to its alignment */
    flim_schedule *s = flim_alloc(1, sizeof *s, err);
    *elements = 0;
    if (!s) {
        return FLIM_ERROR_MEMORY;
    }
    for (int train = 0; train < 2; train++) {
        begin(s, net, precision, train == 1, CELLS, false);
        find_fusions_known(s, device);
        add_tensors(s);
        const int64_t here = flim_schedule_largest_tensor(s);
        *elements = here > *elements ? here : *elements;
    }
    flim_free(s);
    return FLIM_OK;
}

flim_status flim_schedule_build(flim_schedule *s, flim_cuda_device *device, const flim_network *net, flim_precision precision,
                                bool train, int64_t batch, bool deterministic, const flim_recompute_set *recompute,
                                const flim_conv_search_options *options, flim_error *err)
{
    flim_conv_store *store;
    begin(s, net, precision, train, batch, deterministic);
    s->no_stem = options->no_stem;
    FLIM_TRY(check_limits(s, err));
    FLIM_TRY(flim_conv_store_of(device, &store, err));
    for (bool again = true; again;) { /* at most once per unit and direction */
        again = false;
        flim_fusion_find(s, &device->card);
        FLIM_TRY(find_convs(s, store, &device->card, options, &again, err));
    }
    flim_fusion_find_recomputed(s, recompute);
    add_tensors(s);
    flim_schedule_list_operations(s);
    flim_arena_place(&s->arena);
    find_peak(s);
    return FLIM_OK;
}

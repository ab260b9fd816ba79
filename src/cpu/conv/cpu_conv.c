#include "cpu/conv/cpu_conv.h"

#include <omp.h>
#include <string.h>

#include "core/try.h"
#include "cpu/conv/conv3x3x3_c8.h"
#include "cpu/conv/conv_wgrad.h"

static flim_status check(dnnl_status_t status, const char *what, flim_error *err)
{
    if (status == dnnl_success) {
        return FLIM_OK;
    }
    return flim_fail(err, status == dnnl_out_of_memory ? FLIM_ERROR_MEMORY : FLIM_ERROR_DEVICE,
                     "oneDNN: %s failed with status %d", what, (int)status);
}

/* A [k,1,1] convolution of stride 1 over pixels is a 2-D one over (T, H*W), of the same bytes.  oneDNN does that faster, but
 * for the gradient of the weights. */
static bool use_2d(const flim_unit *u, flim_cpu_direction direction)
{
    return direction != FLIM_CPU_BACKWARD_W && u->kernel[1] == 1 && u->kernel[2] == 1 && u->stride[1] == 1 &&
           u->stride[2] == 1 && u->pad[1] == 0 && u->pad[2] == 0;
}

/* The input gradient of a convolution of stride 1 is a convolution of dz with the weights flipped and their channels swapped.
 * oneDNN's forward kernels are the faster ones from 16 channels on. */
static bool use_flipped(const flim_unit *u)
{
    const bool unit_stride = u->stride[0] == 1 && u->stride[1] == 1 && u->stride[2] == 1;
    const bool inside = u->pad[0] < u->kernel[0] && u->pad[1] < u->kernel[1] && u->pad[2] < u->kernel[2];
    return unit_stride && inside && u->in_channels % 16 == 0 && u->out_channels % 16 == 0;
}

static flim_unit flipped_unit(const flim_unit *u)
{
    flim_unit m = *u;
    m.in_channels = u->out_channels;
    m.out_channels = u->in_channels;
    for (int d = 0; d < 3; d++) {
        m.in[d] = u->conv_out[d];
        m.conv_out[d] = u->in[d];
        m.pad[d] = u->kernel[d] - 1 - u->pad[d];
    }
    return m;
}

typedef struct geometry {
    dnnl_dims_t x, z, weight, bias, stride, pad_left, pad_right, dilation;
    int ndims;
    dnnl_format_tag_t plain_x, plain_weight;
} geometry;

static geometry make_geometry(const flim_unit *u, bool flat)
{
    geometry g = {
        .ndims = flat ? 4 : 5, .plain_x = flat ? dnnl_nhwc : dnnl_ndhwc, .plain_weight = flat ? dnnl_oihw : dnnl_oidhw};
    g.x[0] = g.z[0] = 1;
    g.x[1] = g.weight[1] = u->in_channels;
    g.z[1] = g.weight[0] = g.bias[0] = u->out_channels;
    const int n = flat ? 1 : 3;
    for (int d = 0; d < n; d++) {
        g.x[2 + d] = u->in[d];
        g.z[2 + d] = u->conv_out[d];
        g.weight[2 + d] = u->kernel[d];
        g.stride[d] = u->stride[d];
        g.pad_left[d] = u->pad[d];
        g.pad_right[d] = (u->conv_out[d] - 1) * u->stride[d] + u->kernel[d] - u->in[d] - u->pad[d];
    }
    if (flat) {
        g.x[3] = g.z[3] = (dnnl_dim_t)u->in[1] * u->in[2];
        g.weight[3] = g.stride[1] = 1;
    }
    return g;
}

/* The convolution whose transpose a transposed unit is: from z to x. */
static flim_unit convolution_of(const flim_unit *u)
{
    flim_unit c = *u;
    if (u->transposed) {
        c.transposed = false;
        c.in_channels = u->out_channels;
        c.out_channels = u->in_channels;
        memcpy(c.in, u->conv_out, sizeof c.in);
        memcpy(c.conv_out, u->in, sizeof c.conv_out);
    }
    return c;
}

static size_t round_up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void note_scratch(flim_cpu_conv *conv, const_dnnl_primitive_desc_t desc)
{
    const size_t bytes = round_up(flim_onednn_scratch_bytes(desc));
    conv->scratch_bytes = bytes > conv->scratch_bytes ? bytes : conv->scratch_bytes;
}

/* Fills primitive, layouts and sizes of one direction, done by `operation`: the same, or FORWARD for a flipped BACKWARD_X. */
static dnnl_status_t make_primitive(flim_cpu_conv *conv, flim_cpu_direction direction, flim_cpu_direction operation,
                                    const geometry *g, const_dnnl_primitive_attr_t attr)
{
    static const dnnl_prop_kind_t kinds[3] = {dnnl_forward_training, dnnl_backward_data, dnnl_backward_weights};
    dnnl_memory_desc_t x = {0}, z = {0}, weight = {0};
    const bool biased = direction == FLIM_CPU_FORWARD && !conv->transposed;
    const flim_onednn_convolution convolution = {
        kinds[operation], &x, &weight, biased ? &conv->bias : NULL, &z, g->stride, g->dilation, g->pad_left, g->pad_right};
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status;
    if ((status = flim_onednn_describe(&x, g->ndims, g->x, g->plain_x)) != dnnl_success ||
        (status = flim_onednn_describe(&z, g->ndims, g->z, g->plain_x)) != dnnl_success ||
        (status = flim_onednn_describe(&weight, g->ndims, g->weight, dnnl_format_tag_any)) != dnnl_success ||
        (direction == FLIM_CPU_FORWARD && (status = flim_onednn_describe(&conv->bias, 1, g->bias, dnnl_x)) != dnnl_success) ||
        (status = flim_onednn_describe(&conv->plain[direction], g->ndims, g->weight, g->plain_weight)) != dnnl_success ||
        (status = flim_onednn_describe_convolution(&desc, &convolution, conv->engine, attr)) != dnnl_success) {
        goto done;
    }
    const dnnl_query_t query_x = operation == FLIM_CPU_BACKWARD_X ? dnnl_query_diff_src_md : dnnl_query_src_md;
    const dnnl_query_t query_z = operation == FLIM_CPU_FORWARD ? dnnl_query_dst_md : dnnl_query_diff_dst_md;
    const dnnl_query_t query_weight = operation == FLIM_CPU_BACKWARD_W ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    const bool swapped = direction != operation; /* what goes in is dz */
    if ((status = flim_onednn_ask(&conv->x[direction], desc, swapped ? query_z : query_x)) != dnnl_success ||
        (status = flim_onednn_ask(&conv->z[direction], desc, swapped ? query_x : query_z)) != dnnl_success ||
        (status = flim_onednn_ask(&conv->weight[direction], desc, query_weight)) != dnnl_success) {
        goto done;
    }
    conv->weight_bytes[direction] = round_up(flim_onednn_bytes(&conv->weight[direction]));
    note_scratch(conv, desc);
    status = dnnl_primitive_create(&conv->primitive[direction], desc);
done:
    dnnl_primitive_desc_destroy(desc);
    flim_onednn_forget(&x);
    flim_onednn_forget(&z);
    flim_onednn_forget(&weight);
    return status;
}

static dnnl_status_t make_reorder(flim_cpu_conv *conv, flim_cpu_direction direction, const_dnnl_primitive_attr_t attr)
{
    const dnnl_memory_desc_t *from = &conv->plain[direction], *to = &conv->weight[direction];
    if (direction == FLIM_CPU_BACKWARD_W) {
        from = &conv->weight[direction];
        to = &conv->plain[direction];
    }
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = flim_onednn_describe_reorder(&desc, from, to, conv->engine, attr);
    if (status == dnnl_success) {
        note_scratch(conv, desc);
        status = dnnl_primitive_create(&conv->reorder[direction], desc);
    }
    dnnl_primitive_desc_destroy(desc);
    return status;
}

flim_status flim_cpu_conv_create(flim_cpu_conv *conv, dnnl_engine_t engine, const flim_unit *of, bool want_x, bool want_w,
                                 int threads, flim_error *err)
{
    const flim_unit convolution = convolution_of(of), *unit = &convolution;
    *conv =
        (flim_cpu_conv){.engine = engine,
                        .transposed = of->transposed,
                        .flipped = use_flipped(unit),
                        .custom_w = want_w && flim_cpu_wgrad_can(unit),
                        .unit = *unit,
                        .shape = {unit->out_channels, unit->in_channels, unit->kernel[0], unit->kernel[1], unit->kernel[2]},
                        .weight_floats = 1};
    for (int d = 0; d < 5; d++) {
        conv->weight_floats *= (size_t)conv->shape[d];
    }
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads); /* oneDNN divides the work when a primitive is made */
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success) {
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    }
    conv->c8 = flim_cpu_c8_can(unit);
    conv->flipped = conv->flipped || conv->c8;
    const bool want_forward = want_x || !of->transposed, want_backward_x = want_x || of->transposed;
    const bool wanted[3] = {want_forward && !conv->c8, want_backward_x && !conv->c8, want_w && !conv->custom_w && !conv->c8};
    const flim_unit reverse = flipped_unit(unit);
    for (int d = 0; d < 3 && status == dnnl_success; d++) {
        const flim_cpu_direction direction = (flim_cpu_direction)d;
        const bool flipped = direction == FLIM_CPU_BACKWARD_X && conv->flipped;
        const geometry g = make_geometry(flipped ? &reverse : unit, use_2d(unit, direction));
        if (wanted[d] &&
            (status = make_primitive(conv, direction, flipped ? FLIM_CPU_FORWARD : direction, &g, attr)) == dnnl_success) {
            status = make_reorder(conv, direction, attr);
        }
    }
    if (conv->c8) {
        const size_t packed = round_up(FLIM_CPU_C8_PACKED * sizeof(float));
        conv->weight_bytes[FLIM_CPU_FORWARD] = want_forward ? packed : 0;
        conv->weight_bytes[FLIM_CPU_BACKWARD_X] = want_backward_x ? packed : 0;
    }
    if (conv->transposed) { /* as the unit's directions */
        const size_t forward = conv->weight_bytes[FLIM_CPU_FORWARD];
        conv->weight_bytes[FLIM_CPU_FORWARD] = conv->weight_bytes[FLIM_CPU_BACKWARD_X];
        conv->weight_bytes[FLIM_CPU_BACKWARD_X] = forward;
    }
    if (conv->custom_w || (conv->c8 && want_w)) {
        conv->weight_bytes[FLIM_CPU_BACKWARD_W] = round_up(conv->weight_floats * sizeof(float));
    }
    dnnl_primitive_attr_destroy(attr);
    omp_set_num_threads(before);
    if (status != dnnl_success) {
        flim_cpu_conv_destroy(conv);
        return flim_fail(
            err, FLIM_ERROR_DEVICE,
            "oneDNN %d.%d.%d cannot do the convolution %s (%d -> %d channels, kernel %d,%d,%d, input %d x %d x %d): "
            "status %d",
            dnnl_version()->major, dnnl_version()->minor, dnnl_version()->patch, unit->conv, unit->in_channels,
            unit->out_channels, unit->kernel[0], unit->kernel[1], unit->kernel[2], unit->in[0], unit->in[1], unit->in[2],
            (int)status);
    }
    return FLIM_OK;
}

void flim_cpu_conv_destroy(flim_cpu_conv *conv)
{
    for (int d = 0; d < 3; d++) {
        dnnl_primitive_destroy(conv->primitive[d]);
        dnnl_primitive_destroy(conv->reorder[d]);
        flim_onednn_forget(&conv->x[d]);
        flim_onednn_forget(&conv->z[d]);
        flim_onednn_forget(&conv->weight[d]);
        flim_onednn_forget(&conv->plain[d]);
    }
    flim_onednn_forget(&conv->bias);
    *conv = (flim_cpu_conv){0};
}

flim_status flim_cpu_conv_memory_create(flim_cpu_conv_memory *memory, const flim_cpu_conv *conv, flim_error *err)
{
    *memory = (flim_cpu_conv_memory){0};
    dnnl_status_t status = dnnl_stream_create(&memory->stream, conv->engine, dnnl_stream_default_flags);
    for (int d = 0; d < 3 && status == dnnl_success; d++) {
        if (conv->primitive[d] &&
            ((status = flim_onednn_memory(&memory->x[d], &conv->x[d], conv->engine)) != dnnl_success ||
             (status = flim_onednn_memory(&memory->z[d], &conv->z[d], conv->engine)) != dnnl_success ||
             (status = flim_onednn_memory(&memory->weight[d], &conv->weight[d], conv->engine)) != dnnl_success ||
             (status = flim_onednn_memory(&memory->plain[d], &conv->plain[d], conv->engine)) != dnnl_success ||
             (status = flim_onednn_scratch(&memory->scratch[d], conv->primitive[d], conv->engine)) != dnnl_success ||
             (status = flim_onednn_scratch(&memory->scratch[3 + d], conv->reorder[d], conv->engine)) != dnnl_success)) {
            break;
        }
    }
    if (status == dnnl_success && conv->primitive[FLIM_CPU_FORWARD]) {
        status = flim_onednn_memory(&memory->bias, &conv->bias, conv->engine);
    }
    if (status != dnnl_success) {
        flim_cpu_conv_memory_destroy(memory);
    }
    return check(status, "making memory objects", err);
}

void flim_cpu_conv_memory_destroy(flim_cpu_conv_memory *memory)
{
    for (int d = 0; d < 3; d++) {
        dnnl_memory_destroy(memory->x[d]);
        dnnl_memory_destroy(memory->z[d]);
        dnnl_memory_destroy(memory->weight[d]);
        dnnl_memory_destroy(memory->scratch[d]);
        dnnl_memory_destroy(memory->scratch[3 + d]);
        dnnl_memory_destroy(memory->plain[d]);
    }
    dnnl_memory_destroy(memory->bias);
    dnnl_stream_destroy(memory->stream);
    *memory = (flim_cpu_conv_memory){0};
}

/* One operand of a call; oneDNN's handles carry no const, but it writes only to outputs and scratch. */
typedef struct operand {
    int arg;
    dnnl_memory_t memory;
    const void *data;
} operand;

static flim_status execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, const operand *operands, int n,
                           const char *what, flim_error *err)
{
    dnnl_exec_arg_t args[6];
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < n && status == dnnl_success; i++) {
        union {
            const void *in;
            void *out;
        } data = {operands[i].data};
        status = flim_onednn_point(operands[i].memory, data.out, stream);
        args[i] = (dnnl_exec_arg_t){operands[i].arg, operands[i].memory};
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_execute(primitive, stream, n, args);
    }
    if (status == dnnl_success) {
        status = dnnl_stream_wait(stream);
    }
    return check(status, what, err);
}

/* (O,I,kt,ky,kx) -> (I,O,kt,ky,kx) with each kernel back to front. */
static void flip_weights(const int shape[5], const float *from, float *to)
{
    const size_t out = (size_t)shape[0], in = (size_t)shape[1], taps = (size_t)shape[2] * (size_t)shape[3] * (size_t)shape[4];
    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            for (size_t k = 0; k < taps; k++) {
                to[(i * out + o) * taps + taps - 1 - k] = from[(o * in + i) * taps + k];
            }
        }
    }
}

flim_status flim_cpu_conv_load(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, flim_cpu_direction of,
                               const float *plain, void *to, float *staging, void *scratch, flim_error *err)
{
    const flim_cpu_direction other = of == FLIM_CPU_FORWARD ? FLIM_CPU_BACKWARD_X : FLIM_CPU_FORWARD;
    const flim_cpu_direction direction = conv->transposed ? other : of;
    if (direction == FLIM_CPU_BACKWARD_X && conv->flipped) {
        flip_weights(conv->shape, plain, staging);
        plain = staging;
    }
    if (conv->c8) {
        flim_cpu_c8_pack(plain, to);
        return FLIM_OK;
    }
    const operand operands[] = {{DNNL_ARG_FROM, memory->plain[direction], plain},
                                {DNNL_ARG_TO, memory->weight[direction], to},
                                {DNNL_ARG_SCRATCHPAD, memory->scratch[3 + direction], scratch}};
    return execute(conv->reorder[direction], memory->stream, operands, 3, "laying out weights", err);
}

/* (taps,I,O) -> (O,I,taps). */
static void unload_custom(const int shape[5], const float *from, float *to)
{
    const size_t out = (size_t)shape[0], in = (size_t)shape[1], taps = (size_t)shape[2] * (size_t)shape[3] * (size_t)shape[4];
    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            for (size_t k = 0; k < taps; k++) {
                to[(o * in + i) * taps + k] = from[(k * in + i) * out + o];
            }
        }
    }
}

flim_status flim_cpu_conv_unload(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const void *from, float *plain,
                                 void *scratch, flim_error *err)
{
    if (conv->c8) {
        flim_cpu_c8_unload(from, plain);
        return FLIM_OK;
    }
    if (conv->custom_w) {
        unload_custom(conv->shape, from, plain);
        return FLIM_OK;
    }
    const operand operands[] = {{DNNL_ARG_FROM, memory->weight[FLIM_CPU_BACKWARD_W], from},
                                {DNNL_ARG_TO, memory->plain[FLIM_CPU_BACKWARD_W], plain},
                                {DNNL_ARG_SCRATCHPAD, memory->scratch[3 + FLIM_CPU_BACKWARD_W], scratch}};
    return execute(conv->reorder[FLIM_CPU_BACKWARD_W], memory->stream, operands, 3, "laying out a weight gradient", err);
}

/* bias NULL: that of a transposed unit, whose primitive has none. */
static flim_status convolve(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const flim_cpu_team *team,
                            const float *x, const void *weight, const float *bias, float *z, void *scratch, flim_error *err)
{
    enum { D = FLIM_CPU_FORWARD };
    if (conv->c8) {
        flim_cpu_c8_forward(conv->unit.in, x, weight, bias, z, team->threads);
        return FLIM_OK;
    }
    const operand operands[] = {{DNNL_ARG_SRC, memory->x[D], x},
                                {DNNL_ARG_WEIGHTS, memory->weight[D], weight},
                                {DNNL_ARG_DST, memory->z[D], z},
                                {DNNL_ARG_SCRATCHPAD, memory->scratch[D], scratch},
                                {DNNL_ARG_BIAS, memory->bias, bias}};
    return execute(conv->primitive[D], memory->stream, operands, bias ? 5 : 4, "a convolution", err);
}

static flim_status convolve_back(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const flim_cpu_team *team,
                                 const float *dz, const void *weight, float *dx, void *scratch, flim_error *err)
{
    enum { D = FLIM_CPU_BACKWARD_X };
    if (conv->c8) {
        flim_cpu_c8_forward(conv->unit.in, dz, weight, NULL, dx, team->threads);
        return FLIM_OK;
    }
    const operand operands[] = {{conv->flipped ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, memory->z[D], dz},
                                {DNNL_ARG_WEIGHTS, memory->weight[D], weight},
                                {conv->flipped ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, memory->x[D], dx},
                                {DNNL_ARG_SCRATCHPAD, memory->scratch[D], scratch}};
    return execute(conv->primitive[D], memory->stream, operands, 4, "the input gradient of a convolution", err);
}

/* z (voxels,channels) += bias. */
static void add_bias(const flim_cpu_conv *conv, const flim_cpu_team *team, const float *bias, float *z)
{
    const int64_t channels = conv->unit.in_channels;
    const int64_t voxels = (int64_t)conv->unit.in[0] * conv->unit.in[1] * conv->unit.in[2];
#pragma omp parallel for schedule(static) num_threads(team->threads) if (team->threads > 1)
    for (int64_t v = 0; v < voxels; v++) {
        for (int64_t c = 0; c < channels; c++) {
            z[v * channels + c] += bias[c];
        }
    }
}

flim_status flim_cpu_conv_forward(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const flim_cpu_team *team,
                                  const float *x, const void *weight, const float *bias, float *z, void *scratch,
                                  flim_error *err)
{
    if (!conv->transposed) {
        return convolve(conv, memory, team, x, weight, bias, z, scratch, err);
    }
    FLIM_TRY(convolve_back(conv, memory, team, x, weight, z, scratch, err));
    add_bias(conv, team, bias, z);
    return FLIM_OK;
}

flim_status flim_cpu_conv_backward_x(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const flim_cpu_team *team,
                                     const float *dz, const void *weight, float *dx, void *scratch, flim_error *err)
{
    return conv->transposed ? convolve(conv, memory, team, dz, weight, NULL, dx, scratch, err)
                            : convolve_back(conv, memory, team, dz, weight, dx, scratch, err);
}

flim_status flim_cpu_conv_backward_w(const flim_cpu_conv *conv, flim_cpu_conv_memory *memory, const flim_cpu_team *team,
                                     const float *unit_x, const float *unit_dz, bool first, void *sum, void *cell,
                                     void *scratch, flim_error *err)
{
    enum { D = FLIM_CPU_BACKWARD_W };
    const float *x = conv->transposed ? unit_dz : unit_x, *dz = conv->transposed ? unit_x : unit_dz;
    if (conv->custom_w || conv->c8) {
        if (first) {
            memset(sum, 0, conv->weight_bytes[D]);
        }
        if (conv->c8) {
            flim_cpu_c8_wgrad(conv->unit.in, x, dz, sum, team->threads);
            return FLIM_OK;
        }
        flim_cpu_wgrad(&conv->unit, x, dz, sum, team->threads);
        return FLIM_OK;
    }
    void *to = first ? sum : cell;
    const operand operands[] = {{DNNL_ARG_SRC, memory->x[D], x},
                                {DNNL_ARG_DIFF_DST, memory->z[D], dz},
                                {DNNL_ARG_DIFF_WEIGHTS, memory->weight[D], to},
                                {DNNL_ARG_SCRATCHPAD, memory->scratch[D], scratch}};
    FLIM_TRY(execute(conv->primitive[D], memory->stream, operands, 4, "the weight gradient of a convolution", err));
    if (!first) {
        team->kernels->add(sum, cell, conv->weight_bytes[D] / sizeof(float));
    }
    return FLIM_OK;
}

#include "cuda/program/inspect.h"

#include "core/alloc.h"
#include "cuda/device/check.h"
#include "cuda/program/fusion.h"

/* Where a tensor lies and how the value follows from what is stored. */
typedef struct view {
    const void *data; /* (n,pixels,c) of `type`; NULL = not stored, for the reason `why` */
    const char *why;
    flim_storage type;
    int channels, c;
    int size[3]; /* T,H,W as stored */
    const float *times[2], *by; /* one float each on the device: the value is the stored one times and by these; NULL = 1 */
    float weight_scale; /* of the call that made the tensor; the value is the stored one by it, too */
    const float *bias; /* (channels), then added; or NULL */
} view;

static view look_at_head(const flim_cuda_program *p, const flim_schedule *schedule, int k, flim_inspected what)
{
    const int u = p->base.net.head[k].unit;
    const flim_head_kernels *head = &p->head[k];
    const flim_grad_affine *grad = &schedule->unit[u].grad;
    if (what == FLIM_INSPECT_Z) {
        return (view){.data = head->mean,
                      .type = FLIM_STORAGE_FP32,
                      .channels = p->base.net.unit[u].out_channels,
                      .c = head->c,
                      .size = {1, 1, 1}};
    }
    if (what == FLIM_INSPECT_Y) {
        return (view){.data = head->logits,
                      .type = FLIM_STORAGE_FP32,
                      .channels = head->outputs,
                      .c = head->outputs,
                      .size = {1, 1, 1}};
    }
    return (view){.data = head->dmean, /* once per cell; *scale * *unscale is 1 / loss scale */
                  .type = FLIM_STORAGE_FP32,
                  .channels = p->base.net.unit[u].out_channels,
                  .c = head->c,
                  .size = {1, 1, 1},
                  .times = {grad->scale, grad->unscale}};
}

static void look_at_dv(const flim_cuda_program *p, const flim_schedule *schedule, const flim_schedule_unit *su, view *v)
{
    if (su->gradient_from >= 0) { /* the data gradient of that unit came through the activation */
        const flim_schedule_unit *from = &schedule->unit[su->gradient_from];
        v->data = flim_schedule_at(schedule, p->arena, from->buffer[FLIM_BUFFER_DX]);
        v->times[0] = from->grad.unscale;
        v->weight_scale = p->weight_scale[su->gradient_from];
        return;
    }
    v->data = flim_schedule_at(schedule, p->arena, su->buffer[FLIM_BUFFER_DV]);
    v->why = "it is applied as dy is read";
    v->times[0] = su->grad.scale;
    v->times[1] = su->grad.unscale;
    v->by = su->dv_scale;
}

static void look_at_dx(const flim_cuda_program *p, const flim_schedule *schedule, int unit, view *v)
{
    const flim_schedule_unit *su = &schedule->unit[unit];
    const flim_schedule_unit *input = &schedule->unit[su->unit->input];
    v->why = "a kernel computes it together with what follows";
    v->channels = su->unit->in_channels;
    v->c = su->c;
    if (input->gradient_from >= 0 && &schedule->unit[input->gradient_from] == su) {
        return; /* stored is the dv of the input unit */
    }
    v->data = flim_schedule_at(schedule, p->arena, su->buffer[FLIM_BUFFER_DX]);
    v->times[0] = su->grad.unscale;
    v->weight_scale = p->weight_scale[unit];
    for (int d = 0; d < 3; d++) {
        v->size[d] = flim_fusion_compact_dx(su->unit) ? su->unit->conv_out[d] : su->unit->in[d];
    }
}

static view look_at(const flim_cuda_program *p, const flim_schedule *schedule, int unit, flim_inspected what)
{
    if (unit >= p->base.net.n_units) {
        return look_at_head(p, schedule, unit - p->base.net.n_units, what);
    }
    const flim_schedule_unit *su = &schedule->unit[unit];
    const int *size = what == FLIM_INSPECT_Y ? su->unit->out : su->unit->conv_out;
    view v = {.type = schedule->type, .channels = su->unit->out_channels, .c = su->k, .size = {size[0], size[1], size[2]}};
    switch (what) {
    case FLIM_INSPECT_Z:
        v.data = flim_schedule_at(schedule, p->arena, su->buffer[FLIM_BUFFER_Z]);
        v.why = "a kernel computes it together with what follows";
        v.weight_scale = p->weight_scale[unit];
        v.bias = su->norm.bias;
        break;
    case FLIM_INSPECT_Y:
        v.data = flim_schedule_at(schedule, p->arena, su->buffer[FLIM_BUFFER_Y]);
        v.why = "its readers apply BatchNorm and activation to z";
        break;
    case FLIM_INSPECT_DV: look_at_dv(p, schedule, su, &v); break;
    case FLIM_INSPECT_DZ:
        v.data = flim_schedule_at(schedule, p->arena, su->buffer[FLIM_BUFFER_DZ]);
        v.why = "its readers apply BatchNorm's backward schedule as they load";
        v.times[0] = su->grad.unscale;
        break;
    case FLIM_INSPECT_DX: look_at_dx(p, schedule, unit, &v); break;
    }
    return v;
}

static flim_status fetch_float(const float *from, double *out, flim_error *err)
{
    float value = 1.0f;
    if (from) {
        FLIM_TRY_CUDA(cudaMemcpy(&value, from, sizeof value, cudaMemcpyDeviceToHost));
    }
    *out = (double)value;
    return FLIM_OK;
}

static flim_status factor_of(const view *v, double *out, flim_error *err)
{
    double times[2], by;
    for (int i = 0; i < 2; i++) {
        FLIM_TRY(fetch_float(v->times[i], &times[i], err));
    }
    FLIM_TRY(fetch_float(v->by, &by, err));
    *out = times[0] * times[1] / (by * (v->weight_scale > 0 ? (double)v->weight_scale : 1.0));
    return FLIM_OK;
}

/* Index of a voxel of the tensor as stored, or -1 where a strided point convolution sends nothing. */
static int64_t stored_voxel(const view *v, const int size[3], const int stride[3], int64_t voxel)
{
    const int at[3] = {(int)(voxel / ((int64_t)size[1] * size[2])), (int)(voxel / size[2] % size[1]), (int)(voxel % size[2])};
    int64_t index = 0;
    for (int d = 0; d < 3; d++) {
        if (at[d] % stride[d] != 0) {
            return -1;
        }
        index = index * v->size[d] + at[d] / stride[d];
    }
    return index;
}

/* Copies the stored tensor to host (n,channels,pixels), staged on the device. */
static flim_status fetch_planar(flim_cuda_program *p, const view *v, float *host, flim_error *err)
{
    const flim_launch launch = {p->launch.stream, v->type, p->launch.processors};
    const int64_t n = p->base.last_cells, pixels = flim_volume(v->size), count = n * v->channels * pixels;
    void *planar = NULL;
    flim_status status;
    FLIM_TRY_DONE(flim_cuda_malloc(p->device, count * (int64_t)sizeof(float), "a tensor to read", &planar, err));
    FLIM_TRY_CUDA_DONE(flim_k_to_planar(&launch, v->data, n, v->channels, v->c, pixels, planar));
    FLIM_TRY_CUDA_DONE(cudaStreamSynchronize(launch.stream));
    FLIM_TRY_CUDA_DONE(cudaMemcpy(host, planar, (size_t)count * sizeof(float), cudaMemcpyDeviceToHost));
done:
    (void)cudaFree(planar);
    return status;
}

flim_status flim_cuda_read_tensor(flim_program *base, int unit, flim_inspected what, float *out, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    const flim_network *net = &base->net;
    const flim_schedule *schedule = base->last_trains ? &p->train : &p->predict;
    const view v = look_at(p, schedule, unit, what);
    if (!v.data) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s of %s is not stored: %s", flim_inspected_name(what), net->unit[unit].conv,
                         v.why);
    }
    static const int one[3] = {1, 1, 1};
    const bool dx = what == FLIM_INSPECT_DX, head = unit >= net->n_units, spread = head && dx;
    const flim_unit *u = &net->unit[head ? net->head[unit - net->n_units].unit : unit];
    const int *size = spread ? u->out
                      : dx   ? u->in
                             : v.size,
              *stride = dx && !head && flim_fusion_compact_dx(u) ? u->stride : one;
    const int64_t stored = flim_volume(v.size), voxels = flim_volume(size), rows = base->last_cells * v.channels;
    flim_status status;
    float *host = flim_alloc((size_t)(rows * stored), sizeof *host, err), *bias = NULL;
    double factor;
    if (!host) {
        return FLIM_ERROR_MEMORY;
    }
    FLIM_TRY_DONE(factor_of(&v, &factor, err));
    FLIM_TRY_DONE(fetch_planar(p, &v, host, err));
    if (v.bias) {
        bias = flim_alloc((size_t)v.channels, sizeof *bias, err);
        FLIM_TRY_DONE(bias ? FLIM_OK : FLIM_ERROR_MEMORY);
        FLIM_TRY_CUDA_DONE(cudaMemcpy(bias, v.bias, (size_t)v.channels * sizeof *bias, cudaMemcpyDeviceToHost));
    }
    for (int64_t i = 0; i < rows * voxels; i++) {
        const int64_t row = i / voxels, from = spread ? 0 : stored_voxel(&v, size, stride, i % voxels);
        const double value = from < 0 ? 0.0 : (double)host[row * stored + from] * factor;
        out[i] = (float)(value + (bias ? (double)bias[row % v.channels] : 0.0));
    }
done:
    flim_free(host);
    flim_free(bias);
    return status;
}

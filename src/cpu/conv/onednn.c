#include "cpu/conv/onednn.h"

#include <string.h>

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t flim_onednn_describe(dnnl_memory_desc_t *desc, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(desc, ndims, dims, dnnl_f32, tag);
}

void flim_onednn_forget(dnnl_memory_desc_t *desc)
{
    if (*desc) {
        dnnl_memory_desc_destroy(*desc);
    }
    *desc = NULL;
}

size_t flim_onednn_bytes(const dnnl_memory_desc_t *desc)
{
    return dnnl_memory_desc_get_size(*desc);
}

dnnl_status_t flim_onednn_ask(dnnl_memory_desc_t *desc, const_dnnl_primitive_desc_t of, dnnl_query_t what)
{
    return dnnl_memory_desc_clone(desc, dnnl_primitive_desc_query_md(of, what, 0));
}

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *out, const flim_onednn_convolution *c, dnnl_engine_t engine,
                                      const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_forward_primitive_desc_create(out, engine, dnnl_forward_training, dnnl_convolution_direct, *c->x,
                                                          *c->weight, c->bias ? *c->bias : NULL, *c->z, c->stride,
                                                          c->dilation, c->pad_left, c->pad_right, attr);
}

static dnnl_status_t describe_gradient(dnnl_primitive_desc_t *out, const flim_onednn_convolution *c, dnnl_engine_t engine,
                                       const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t forward)
{
    if (c->kind == dnnl_backward_data) {
        return dnnl_convolution_backward_data_primitive_desc_create(out, engine, dnnl_convolution_direct, *c->x, *c->weight,
                                                                    *c->z, c->stride, c->dilation, c->pad_left, c->pad_right,
                                                                    forward, attr);
    }
    return dnnl_convolution_backward_weights_primitive_desc_create(out, engine, dnnl_convolution_direct, *c->x, *c->weight,
                                                                   c->bias ? *c->bias : NULL, *c->z, c->stride, c->dilation,
                                                                   c->pad_left, c->pad_right, forward, attr);
}

dnnl_status_t flim_onednn_describe_reorder(dnnl_primitive_desc_t *out, const dnnl_memory_desc_t *from,
                                           const dnnl_memory_desc_t *to, dnnl_engine_t engine,
                                           const_dnnl_primitive_attr_t attr)
{
    return dnnl_reorder_primitive_desc_create(out, *from, engine, *to, engine, attr);
}

dnnl_status_t flim_onednn_memory(dnnl_memory_t *memory, const dnnl_memory_desc_t *desc, dnnl_engine_t engine)
{
    return dnnl_memory_create(memory, *desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t flim_onednn_point(dnnl_memory_t memory, void *data, dnnl_stream_t stream)
{
    (void)stream;
    return dnnl_memory_set_data_handle(memory, data);
}

#else /* oneDNN 2 */

dnnl_status_t flim_onednn_describe(dnnl_memory_desc_t *desc, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(desc, ndims, dims, dnnl_f32, tag);
}

void flim_onednn_forget(dnnl_memory_desc_t *desc)
{
    memset(desc, 0, sizeof *desc);
}

size_t flim_onednn_bytes(const dnnl_memory_desc_t *desc)
{
    return dnnl_memory_desc_get_size(desc);
}

dnnl_status_t flim_onednn_ask(dnnl_memory_desc_t *desc, const_dnnl_primitive_desc_t of, dnnl_query_t what)
{
    *desc = *dnnl_primitive_desc_query_md(of, what, 0);
    return dnnl_success;
}

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *out, const flim_onednn_convolution *c, dnnl_engine_t engine,
                                      const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status =
        dnnl_dilated_convolution_forward_desc_init(&op, dnnl_forward_training, dnnl_convolution_direct, c->x, c->weight,
                                                   c->bias, c->z, c->stride, c->dilation, c->pad_left, c->pad_right);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, attr, engine, NULL) : status;
}

static dnnl_status_t describe_gradient(dnnl_primitive_desc_t *out, const flim_onednn_convolution *c, dnnl_engine_t engine,
                                       const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t forward)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status;
    if (c->kind == dnnl_backward_data) {
        status = dnnl_dilated_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, c->x, c->weight, c->z,
                                                                  c->stride, c->dilation, c->pad_left, c->pad_right);
    } else {
        status = dnnl_dilated_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, c->x, c->weight, c->bias,
                                                                     c->z, c->stride, c->dilation, c->pad_left, c->pad_right);
    }
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, attr, engine, forward) : status;
}

dnnl_status_t flim_onednn_describe_reorder(dnnl_primitive_desc_t *out, const dnnl_memory_desc_t *from,
                                           const dnnl_memory_desc_t *to, dnnl_engine_t engine,
                                           const_dnnl_primitive_attr_t attr)
{
    return dnnl_reorder_primitive_desc_create(out, from, engine, to, engine, attr);
}

dnnl_status_t flim_onednn_memory(dnnl_memory_t *memory, const dnnl_memory_desc_t *desc, dnnl_engine_t engine)
{
    return dnnl_memory_create(memory, desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t flim_onednn_point(dnnl_memory_t memory, void *data, dnnl_stream_t stream)
{
    return dnnl_memory_set_data_handle_v2(memory, data, stream);
}

#endif

/* ---- the same with both ---- */

size_t flim_onednn_scratch_bytes(const_dnnl_primitive_desc_t of)
{
    return dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(of, dnnl_query_scratchpad_md, 0));
}

dnnl_status_t flim_onednn_scratch(dnnl_memory_t *memory, const_dnnl_primitive_t primitive, dnnl_engine_t engine)
{
    const_dnnl_primitive_desc_t of = NULL;
    dnnl_status_t status = dnnl_primitive_get_primitive_desc(primitive, &of);
    return status == dnnl_success ? dnnl_memory_create(memory, dnnl_primitive_desc_query_md(of, dnnl_query_scratchpad_md, 0),
                                                       engine, DNNL_MEMORY_NONE)
                                  : status;
}

dnnl_status_t flim_onednn_describe_convolution(dnnl_primitive_desc_t *out, const flim_onednn_convolution *convolution,
                                               dnnl_engine_t engine, const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t forward = NULL;
    dnnl_status_t status = describe_forward(&forward, convolution, engine, attr);
    if (status != dnnl_success || convolution->kind == dnnl_forward_training) {
        *out = forward;
        return status;
    }
    status = describe_gradient(out, convolution, engine, attr, forward); /* a gradient asks how the forward pass is done */
    dnnl_primitive_desc_destroy(forward);
    return status;
}

const char *flim_onednn_isa(void)
{
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    switch (isa) {
    case dnnl_cpu_isa_sse41: return "sse41";
    case dnnl_cpu_isa_avx: return "avx";
    case dnnl_cpu_isa_avx2: return "avx2";
    case dnnl_cpu_isa_avx2_vnni: return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core: return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni: return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16: return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx: return "avx512_core_amx";
#if DNNL_VERSION_MAJOR >= 3
    case dnnl_cpu_isa_avx2_vnni_2: return "avx2_vnni_2";
    case dnnl_cpu_isa_avx512_core_fp16: return "avx512_core_fp16";
    case dnnl_cpu_isa_avx512_core_amx_fp16: return "avx512_core_amx_fp16";
#endif
    default: /* later than this list: each is a set of bits */
        return (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core ? "avx512_core" : "x86-64";
    }
}

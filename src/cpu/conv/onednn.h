/* The calls that differ between oneDNN 2 and oneDNN 3, under one name each; everything else is oneDNN's own, which both have.
 *
 * oneDNN 2 makes an operation descriptor and from it a primitive descriptor, and a dnnl_memory_desc_t is a struct.  oneDNN 3
 *   makes the primitive descriptor at once, and a dnnl_memory_desc_t is a pointer to something that must be destroyed.
 * So a memory descriptor is handled here by the address of its dnnl_memory_desc_t, and whoever made one lets
 *   flim_onednn_forget() destroy it; a zeroed one is allowed there.
 * Source: dnnl.h of 2.6, 3.1 and 3.7.
 */
#ifndef FLIM_ONEDNN_H
#define FLIM_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>

/* One convolution on x (N,Cin,...), z (N,Cout,...), weight (Cout,Cin,...).  bias (Cout) may be NULL.  Arrays: one per
 * dimension in space. */
typedef struct flim_onednn_convolution {
    dnnl_prop_kind_t kind; /* dnnl_forward_training, dnnl_backward_data or dnnl_backward_weights */
    const dnnl_memory_desc_t *x, *weight, *bias, *z;
    const dnnl_dim_t *stride, *dilation, *pad_left, *pad_right;
} flim_onednn_convolution;

/* A memory descriptor of float32 in the order of `tag`. */
dnnl_status_t flim_onednn_describe(dnnl_memory_desc_t *desc, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag);
void flim_onednn_forget(dnnl_memory_desc_t *desc); /* and zeroes it */
size_t flim_onednn_bytes(const dnnl_memory_desc_t *desc);

/* A copy of the memory descriptor that `of` answers to `what`. */
dnnl_status_t flim_onednn_ask(dnnl_memory_desc_t *desc, const_dnnl_primitive_desc_t of, dnnl_query_t what);
size_t flim_onednn_scratch_bytes(const_dnnl_primitive_desc_t of);

/* Primitive descriptors; the caller destroys them. */
dnnl_status_t flim_onednn_describe_convolution(dnnl_primitive_desc_t *out, const flim_onednn_convolution *convolution,
                                               dnnl_engine_t engine, const_dnnl_primitive_attr_t attr);
dnnl_status_t flim_onednn_describe_reorder(dnnl_primitive_desc_t *out, const dnnl_memory_desc_t *from,
                                           const dnnl_memory_desc_t *to, dnnl_engine_t engine,
                                           const_dnnl_primitive_attr_t attr);

/* Memory objects without data, as `desc` says and as `primitive`'s scratchpad must be; the caller destroys them. */
dnnl_status_t flim_onednn_memory(dnnl_memory_t *memory, const dnnl_memory_desc_t *desc, dnnl_engine_t engine);
dnnl_status_t flim_onednn_scratch(dnnl_memory_t *memory, const_dnnl_primitive_t primitive, dnnl_engine_t engine);
dnnl_status_t flim_onednn_point(dnnl_memory_t memory, void *data, dnnl_stream_t stream);

const char *flim_onednn_isa(void); /* the instruction set that it uses here */

#endif

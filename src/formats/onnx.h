/* ONNX files: a graph of operators over named values, as protobuf (onnx.proto).  The only place that knows the file's format.
 *
 * For: flim_export.  Format 8 (IR) with operator set 17, which every onnxruntime since 1.13 reads.
 * Owns: a graph its texts and values, which are copied; flim_onnx_free.
 * Errors: builders never fail at once; a failed allocation is remembered and is flim_onnx_write's FLIM_ERROR_MEMORY.
 * Compiled if protobuf-c was found (FLIM_HAVE_PROTOBUF).
 */
#ifndef FLIM_FORMATS_ONNX_H
#define FLIM_FORMATS_ONNX_H

#include <stdint.h>
#include <stdio.h>

#include "flim/status.h"

enum {
    FLIM_ONNX_ANY = -1, /* a dimension of any size: the batch, shown as N */
    FLIM_ONNX_FLOAT = 1 /* the number of the type of floats, for Cast */
};

typedef struct flim_onnx flim_onnx;

typedef struct flim_onnx_attribute {
    const char *name;
    enum { FLIM_ONNX_REAL = 1, FLIM_ONNX_INTEGER = 2, FLIM_ONNX_INTEGERS = 7 } kind;
    float real;
    int n; /* of integer; 1 if kind is FLIM_ONNX_INTEGER */
    int64_t integer[6];
} flim_onnx_attribute;

flim_status flim_onnx_create(const char *graph_name, flim_onnx **out, flim_error *err);
void flim_onnx_free(flim_onnx *onnx); /* NULL is allowed */

/* Floats that the graph takes or gives; shape (ndim). */
void flim_onnx_add_input(flim_onnx *onnx, const char *name, int ndim, const int *shape);
void flim_onnx_add_output(flim_onnx *onnx, const char *name, int ndim, const int *shape);
/* Constants: value has the product of shape (ndim) floats, 1 if ndim is 0; n integers. */
void flim_onnx_add_floats(flim_onnx *onnx, const char *name, int ndim, const int *shape, const float *value);
void flim_onnx_add_integers(flim_onnx *onnx, const char *name, int n, const int64_t *value);
/* One operator of ONNX over the values input (n_inputs), whose one output is `output`. */
void flim_onnx_add_node(flim_onnx *onnx, const char *operator, const char * output, int n_inputs, const char *const *input,
                        int n_attributes, const flim_onnx_attribute *attribute);
/* metadata_props. */
void flim_onnx_set_property(flim_onnx *onnx, const char *key, const char *value);

/* FLIM_ERROR_USAGE if it is larger than protobuf allows (2 GiB). */
flim_status flim_onnx_write(const flim_onnx *onnx, FILE *stream, flim_error *err);

#endif

/* Reads single tensors of a program's last call: how layer tests see what the kernels in use computed.
 *
 * For: tests, and the probe of --diagnostics (train/activations.h).  A program compiled with `inspect` keeps every tensor of a call in bytes of its own, filled with NaN when it is
 *      allocated; the kernels and their order are those of any other program.
 * Owns: nothing; `out` is the caller's.
 * Errors: FLIM_ERROR_USAGE with the reason if the program never stores the tensor, as where a reader applies BatchNorm while
 * it
 *      loads z.
 */
#ifndef FLIM_BACKEND_INSPECT_H
#define FLIM_BACKEND_INSPECT_H

#include "flim/device.h"

/* Of a unit, for the n cells of the last train or predict call.  As unit n_units + k a pooled head has z, what it pooled (n,C), y, its
 * logits (n,K'), and dx. */
typedef enum flim_inspected {
    FLIM_INSPECT_Z, /* (n,Cout,conv_out): conv(x) + bias */
    FLIM_INSPECT_Y, /* (n,Cout,out) */
    FLIM_INSPECT_DV, /* (n,Cout,conv_out): gradient of what the activation is applied to; what a skip receives */
    FLIM_INSPECT_DZ, /* (n,Cout,conv_out) */
    FLIM_INSPECT_DX /* (n,Cin,in): this unit's contribution to the gradient of its input */
} flim_inspected;

const char *flim_inspected_name(flim_inspected what);

/* Finishes all work, then copies the tensor: `count` floats in the host's layout, without the scales of 16-bit storage. */
flim_status flim_program_read_tensor(flim_program *program, int unit, flim_inspected what, float *out, int64_t count,
                                     flim_error *err);

#endif

/* 3x3x3 convolutions of 8 to 8 channels (preset tiny) with AVX-512: half a vector is 8 channels, and oneDNN leaves the other
 * half empty.
 *
 * For: kernel 3,3,3, stride 1, padding 1, 8 channels in and out; the input gradient is the same with flipped weights.
 * Method: forward, a vector holds two taps of 8 output channels, so that one broadcast input feeds both; the halves are
 * shifted
 *   against each other and added when a row is done.  Weights' gradient: a vector holds 8 input channels of two neighbouring
 *   voxels, the taps kx = 0 and 1, times a broadcast dz.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_CPU_C8_H
#define FLIM_CPU_C8_H

#include <stdbool.h>

#include "flim/network.h"

/* Floats of packed weights, and of a weights' gradient. */
enum { FLIM_CPU_C8_PACKED = 2688, FLIM_CPU_C8_GRADIENT = 27 * 64 };

bool flim_cpu_c8_can(const flim_unit *unit);
/* plain (8,8,3,3,3) -> packed (FLIM_CPU_C8_PACKED). */
void flim_cpu_c8_pack(const float *plain, float *packed);
/* z (T,H,W,8) = conv(x (T,H,W,8)) + bias (8), or + 0 where bias is NULL; size is T,H,W. */
void flim_cpu_c8_forward(const int size[3], const float *x, const float *packed, const float *bias, float *z, int threads);
/* dweight (kt,ky,co,kx,ci) += the gradient of one cell. */
void flim_cpu_c8_wgrad(const int size[3], const float *x, const float *dz, float *dweight, int threads);
/* (kt,ky,co,kx,ci) -> plain (co,ci,kt,ky,kx). */
void flim_cpu_c8_unload(const float *from, float *plain);

#endif

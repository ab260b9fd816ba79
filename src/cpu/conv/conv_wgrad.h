/* The gradient of a convolution's weights with AVX-512: faster than oneDNN 2.6's for channels last, and more exact.
 *
 * For: channels in whole vectors (Cout % 16 == 0, Cin % 8 == 0 or 2) on a processor with AVX-512; any kernel, stride and
 * padding. Method: dW[tap][ci][co] = sum over voxels of x[voxel at tap][ci] dz[voxel][co], as outer products of 8 ci x 32 co
 * (or 16 x 16)
 *   held in registers over a tile of about 128 voxels, then added to memory: sums of sums, so that rounding grows slowly.
 *   Threads share out the outer products, not the voxels: the result does not depend on their number.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_CPU_WGRAD_H
#define FLIM_CPU_WGRAD_H

#include <stdbool.h>

#include "flim/network.h"

bool flim_cpu_wgrad_can(const flim_unit *unit);
/* dweight (kt,ky,kx,Cin,Cout) += the gradient of one cell; x (T,H,W,Cin), dz (To,Ho,Wo,Cout). */
void flim_cpu_wgrad(const flim_unit *unit, const float *x, const float *dz, float *dweight, int threads);

#endif

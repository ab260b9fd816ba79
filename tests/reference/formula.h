/* Weights and cells from a formula that C and numpy compute with equal bits: tests/net/make_parity_reference.py has the same. */
#ifndef REFERENCE_FORMULA_H
#define REFERENCE_FORMULA_H

#include "flim/batch.h"
#include "flim/network.h"

/* Multiple of 2^-16 in [0, 1): 16 bits of a hash of (tag, index). */
double ref_uniform(uint32_t tag, int64_t index);

/* Tensor k of the table, element i, with u = ref_uniform(1000 + k, i): weights (2u - 1) b with b the largest power of two
 * with b^2 fan_in <= 3, biases and means (2u - 1) / 4, gammas and variances 1/2 + u.  Exact in fp32.  P and S floats. */
void ref_formula_weights(const flim_network *net, float *parameters, float *statistics);
/* The same in arrays of their own, which are the caller's to free; aborts if there is no memory. */
void ref_new_weights(const flim_network *net, float **parameters, float **statistics);

/* A batch of n cells numbered from `first`; a third of the voxels is not zero, every value is a multiple of 1/64, the label
 * is cell mod K, all weights are 1.  Free with ref_batch_free. */
flim_batch ref_formula_batch(const flim_network *net, int64_t first, int64_t n);
void ref_batch_free(flim_batch *batch);

#endif

/* Gradient norm and AdamW over the flat parameter array. */
#ifndef FLIM_CPU_OPTIMIZER_H
#define FLIM_CPU_OPTIMIZER_H

#include <stdint.h>

#include "flim/device.h"

/* L2 norm of (count) gradients: in double, over fixed runs, so that the number of threads does not change it. */
double flim_cpu_gradient_norm(const float *gradient, int64_t count, int threads);

/* One AdamW update (Loshchilov & Hutter; torch.optim.AdamW's order of operations), the gradients scaled as
 * torch.nn.utils.clip_grad_norm_ does for step->clip > 0 but left as they are.  adam_step: number of this update, from 1. */
void flim_cpu_adamw(float *parameter, const float *gradient, float *moment1, float *moment2, int64_t count,
                    const flim_step *step, double norm, int64_t adam_step, int threads);

/* average += share * (value - average), (count) each. */
void flim_cpu_average(float *average, const float *value, int64_t count, float share, int threads);
/* Exchanges (count) floats. */
void flim_cpu_exchange(float *a, float *b, int64_t count);

#endif

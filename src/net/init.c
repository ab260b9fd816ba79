/* Initial weights. */
#include "flim/network.h"

#include <math.h>

#include "flim/random.h"

/* torch.nn.init: kaiming_normal_(a=0.01, mode="fan_out") for weights that feed an activation, sd 0.01 for a head's last linear. */
static double initial_sd(const flim_network *net, const flim_tensor *t)
{
    if (t->role == FLIM_TENSOR_LINEAR_WEIGHT && t == flim_network_tensor(net, t->unit, FLIM_TENSOR_LINEAR_WEIGHT, 1)) {
        return 0.01;
    }
    double fan_out = t->shape[0];
    for (int i = 2; i < t->ndim; i++) {
        fan_out *= t->shape[i];
    }
    return sqrt(2.0 / (1.0 + (double)FLIM_LEAKY_SLOPE * (double)FLIM_LEAKY_SLOPE) / fan_out);
}

void flim_network_init(const flim_network *net, uint64_t seed, uint32_t fold, float *parameters, float *statistics)
{
    for (int i = 0; i < net->n_tensors; i++) {
        const flim_tensor *t = &net->tensor[i];
        float *at = (flim_tensor_is_statistic(t) ? statistics : parameters) + t->offset;
        if (t->role == FLIM_TENSOR_CONV_WEIGHT || t->role == FLIM_TENSOR_LINEAR_WEIGHT) {
            const flim_cell_id id = {.seed = seed, .fold = fold, .cell = (uint32_t)i};
            flim_random random = flim_random_begin(&id, FLIM_RANDOM_INIT);
            double sd = initial_sd(net, t);
            for (int64_t k = 0; k < t->count; k++) {
                at[k] = (float)(sd * flim_random_normal(&random));
            }
        } else {
            float value = t->role == FLIM_TENSOR_BN_WEIGHT || t->role == FLIM_TENSOR_RUNNING_VAR ? 1.0f : 0.0f;
            for (int64_t k = 0; k < t->count; k++) {
                at[k] = value;
            }
        }
    }
}

/* The stem and the first down unit, which the fused kernels compute together. */
#include "cuda/program/operation.h"

/* What both directions need. */
static flim_conv_arguments begin_stem(const flim_task *t)
{
    const int stem = t->su->partner, down = t->op->unit;
    char *input = flim_task_in(t, FLIM_IN_X);
    flim_conv_arguments a = flim_task_conv(t);
    a.x = input;
    a.weight_scale = t->su->norm.weight_scale;
    a.stem = (flim_conv_stem){.mask = (const uint8_t *)input + t->s->mask_offset,
                              .weight = flim_task_parameter(t, stem, FLIM_TENSOR_CONV_WEIGHT),
                              .weight_scale = t->s->unit[stem].norm.weight_scale,
                              .bias = flim_task_parameter(t, stem, FLIM_TENSOR_BIAS),
                              .gamma = flim_task_parameter(t, stem, FLIM_TENSOR_BN_WEIGHT),
                              .beta = flim_task_parameter(t, stem, FLIM_TENSOR_BN_BIAS),
                              .eps = FLIM_BN_EPS,
                              .momentum = &t->p->call.step->momentum,
                              .running_mean = flim_task_statistic(t, stem, FLIM_TENSOR_RUNNING_MEAN),
                              .running_var = flim_task_statistic(t, stem, FLIM_TENSOR_RUNNING_VAR),
                              .state = t->su->stem_state,
                              .down_weight = flim_task_parameter(t, down, FLIM_TENSOR_CONV_WEIGHT)};
    return a;
}

flim_status flim_run_stem_forward(const flim_task *t, flim_error *err)
{
    flim_conv_arguments a = begin_stem(t);
    a.y = flim_task_out(t, FLIM_OUT);
    a.master = flim_task_parameter(t, t->op->unit, FLIM_TENSOR_CONV_WEIGHT);
    a.bias = flim_task_parameter(t, t->op->unit, FLIM_TENSOR_BIAS);
    a.sums = t->su->conv_sums;
    a.sums_about = t->su->norm.running_mean;
    return flim_task_run_conv(t, &a, err);
}

flim_status flim_run_stem_backward(const flim_task *t, flim_error *err)
{
    const int stem = t->su->partner;
    const flim_grad_affine *grad = &t->su->grad;
    flim_conv_arguments a = begin_stem(t);
    a.y = flim_task_in(t, FLIM_IN_GRADIENT);
    a.master = flim_task_gradient(t, t->op->unit, FLIM_TENSOR_CONV_WEIGHT);
    a.stem.dweight = flim_task_gradient(t, stem, FLIM_TENSOR_CONV_WEIGHT);
    a.stem.dbias = flim_task_gradient(t, stem, FLIM_TENSOR_BIAS);
    a.stem.dgamma = flim_task_gradient(t, stem, FLIM_TENSOR_BN_WEIGHT);
    a.stem.dbeta = flim_task_gradient(t, stem, FLIM_TENSOR_BN_BIAS);
    a.dz_norm = (flim_conv_dz_norm){.z = flim_task_in(t, FLIM_IN_Z),
                                    .a = grad->a,
                                    .b = grad->b,
                                    .d = grad->d,
                                    .du_scale = flim_task_owner(t, t->op->in[FLIM_IN_GRADIENT])->grad.scale,
                                    .du_scale_b = flim_task_owner(t, t->op->in[FLIM_IN_GRADIENT])->norm.weight_scale};
    a.unscale = grad->unscale;
    a.accumulate = !t->first;
    return flim_task_run_conv(t, &a, err);
}

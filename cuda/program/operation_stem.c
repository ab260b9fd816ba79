/* The stem and the first down unit, which the fused kernels compute together, or the stem alone. */
#include "cuda/program/operation.h"

static bool is_alone(const flim_task *t)
{
    return t->su->fusion == FLIM_FUSION_STEM_ALONE;
}

/* What both directions need. */
static flim_conv_arguments begin_stem(const flim_task *t)
{
    const int stem = flim_schedule_stem_of(t->s, t->op->unit), down = t->op->unit;
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
                              .keeps_state = t->op->recomputed,
                              .down_weight = is_alone(t) ? NULL : flim_task_parameter(t, down, FLIM_TENSOR_CONV_WEIGHT)};
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

/* The gradient comes as dz of down, as what makes that on load, or as the reader's data gradient, which has the scales of the reader's dz
 * and weights. */
flim_status flim_run_stem_backward(const flim_task *t, flim_error *err)
{
    const int stem = flim_schedule_stem_of(t->s, t->op->unit);
    const flim_schedule_unit *from = flim_task_owner(t, t->op->in[FLIM_IN_GRADIENT]);
    const flim_grad_affine *grad = is_alone(t) ? &from->grad : &t->su->grad;
    flim_conv_arguments a = begin_stem(t);
    a.y = flim_task_in(t, FLIM_IN_GRADIENT);
    a.master = flim_task_gradient(t, t->op->unit, FLIM_TENSOR_CONV_WEIGHT);
    a.stem.dweight = is_alone(t) ? NULL : flim_task_gradient(t, stem, FLIM_TENSOR_CONV_WEIGHT);
    a.stem.dbias = flim_task_gradient(t, stem, FLIM_TENSOR_BIAS);
    a.stem.dgamma = flim_task_gradient(t, stem, FLIM_TENSOR_BN_WEIGHT);
    a.stem.dbeta = flim_task_gradient(t, stem, FLIM_TENSOR_BN_BIAS);
    if (is_alone(t)) {
        a.weight_scale = from->norm.weight_scale;
    } else {
        a.dz_norm = (flim_conv_dz_norm){.z = flim_task_in(t, FLIM_IN_Z),
                                        .a = grad->a,
                                        .b = grad->b,
                                        .d = grad->d,
                                        .du_scale = from->grad.scale,
                                        .du_scale_b = from->norm.weight_scale};
    }
    a.unscale = grad->unscale;
    a.accumulate = !t->first;
    return flim_task_run_conv(t, &a, err);
}

#include "cuda/conv/conv_problem.h"

#include <stdio.h>
#include <string.h>

int64_t flim_conv_x_elements(const flim_conv_problem *p)
{
    return p->n * p->c * flim_volume(p->in);
}

int64_t flim_conv_w_elements(const flim_conv_problem *p)
{
    return (int64_t)p->k * p->c * flim_volume(p->kernel);
}

int64_t flim_conv_y_elements(const flim_conv_problem *p)
{
    return p->n * p->k * flim_volume(p->out);
}

int64_t flim_conv_add_elements(const flim_conv_problem *p)
{
    return p->add == FLIM_ADD_NONE ? 0 : p->n * p->c * flim_volume(p->add == FLIM_ADD_STRIDED ? p->out : p->in);
}

int64_t flim_conv_master_elements(const flim_conv_problem *p)
{
    return (int64_t)p->out_channels * p->in_channels * flim_volume(p->kernel);
}

static bool same_size(const int a[3], const int b[3])
{
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

bool flim_conv_same_problem(const flim_conv_problem *a, const flim_conv_problem *b)
{
    return a->op == b->op && a->type == b->type && a->deterministic == b->deterministic && a->n == b->n && a->c == b->c &&
           a->k == b->k && a->in_channels == b->in_channels && a->out_channels == b->out_channels &&
           same_size(a->in, b->in) && same_size(a->out, b->out) && same_size(a->kernel, b->kernel) &&
           same_size(a->stride, b->stride) && same_size(a->pad, b->pad) && a->x_form == b->x_form &&
           a->dz_form == b->dz_form && a->master == b->master && a->sums == b->sums && a->epilogue == b->epilogue &&
           a->sign_mask == b->sign_mask && a->add == b->add && a->stem == b->stem;
}

bool flim_conv_has_shape(const flim_conv_problem *p, const int kernel[3], const int stride[3], const int pad[3])
{
    return same_size(p->kernel, kernel) && same_size(p->stride, stride) && same_size(p->pad, pad);
}

bool flim_conv_is_fused(const flim_conv_problem *p)
{
    return p->x_form != FLIM_INPUT_PLAIN || p->dz_form != FLIM_INPUT_PLAIN || p->master || p->sums || p->epilogue || p->stem;
}

bool flim_conv_flip(const flim_conv_problem *p, flim_conv_problem *out)
{
    *out = *p;
    out->op = FLIM_CONV_FORWARD;
    out->c = p->k;
    out->k = p->c;
    out->in_channels = p->out_channels;
    out->out_channels = p->in_channels;
    for (int d = 0; d < 3; d++) {
        if (p->stride[d] != 1 || p->pad[d] >= p->kernel[d]) {
            return false;
        }
        out->in[d] = p->out[d];
        out->out[d] = p->in[d];
        out->pad[d] = p->kernel[d] - 1 - p->pad[d];
    }
    return p->op == FLIM_CONV_DATA;
}

int64_t flim_conv_macs(const flim_conv_problem *p)
{
    return flim_conv_y_elements(p) * p->c * flim_volume(p->kernel);
}

void flim_conv_text(const flim_conv_problem *p, char *text, size_t size)
{
    static const char *const op[] = {"forward", "data gradient", "weight gradient"};
    static const char *const type[] = {"fp32", "fp16", "bf16"};
    static const char *const x_form[] = {"", " x normalised", " x activated"}, *const dz_form[] = {"", " dz normalised", ""};
    static const char *const add[] = {"", " add", " add strided"};
    snprintf(text, size,
             "%s x(%lld,%d,%d,%d,%d) w(%d,%d,%d,%d,%d) y(%lld,%d,%d,%d,%d) stride %d,%d,%d pad %d,%d,%d %s%s%s%s%s%s%s%s%s%s",
             op[p->op], (long long)p->n, p->in[0], p->in[1], p->in[2], p->c, p->k, p->kernel[0], p->kernel[1], p->kernel[2],
             p->c, (long long)p->n, p->out[0], p->out[1], p->out[2], p->k, p->stride[0], p->stride[1], p->stride[2],
             p->pad[0], p->pad[1], p->pad[2], type[p->type], p->deterministic ? " deterministic" : "", p->stem ? " stem" : "",
             x_form[p->x_form], dz_form[p->dz_form], p->master ? " parameters" : "", p->epilogue ? " epilogue" : "",
             p->sign_mask ? " by sign mask" : "", add[p->add], p->sums ? " sums" : "");
}

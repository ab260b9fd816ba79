#include "cuda/conv/conv_problem.h"

#include <stdio.h>

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

bool flim_conv_turn(const flim_conv_problem *p, flim_conv_problem *out)
{
    *out = *p;
    out->op = FLIM_CONV_FORWARD;
    out->c = p->k;
    out->k = p->c;
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
    snprintf(text, size, "%s x(%lld,%d,%d,%d,%d) w(%d,%d,%d,%d,%d) y(%lld,%d,%d,%d,%d) stride %d,%d,%d pad %d,%d,%d %s%s",
             op[p->op], (long long)p->n, p->in[0], p->in[1], p->in[2], p->c, p->k, p->kernel[0], p->kernel[1], p->kernel[2],
             p->c, (long long)p->n, p->out[0], p->out[1], p->out[2], p->k, p->stride[0], p->stride[1], p->stride[2],
             p->pad[0], p->pad[1], p->pad[2], type[p->type], p->deterministic ? " deterministic" : "");
}

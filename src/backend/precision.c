#include "backend/precision.h"

#include <stdio.h>
#include <string.h>

#define HAS(name) (1u << FLIM_PRECISION_##name)

/* Capabilities from NVIDIA's CUDA C++ Programming Guide, "Tensor Core Data Types by Architecture": fp16 from 7.0, TF32 and
 * bf16 from 8.0.  Of a backend the highest capability comes first. */
static const flim_precision_rule rules[] = {
    {"cuda", 80, HAS(FP32) | HAS(TF32) | HAS(BF16) | HAS(FP16), FLIM_PRECISION_TF32, FLIM_PRECISION_BF16,
     "compute capability 8.0 and up has it on tensor cores"},
    {"cuda", 75, HAS(FP32) | HAS(FP16), FLIM_PRECISION_FP16, FLIM_PRECISION_FP16,
     "compute capability 7.5 has tensor cores for fp16 alone"},
    {"cuda", 0, HAS(FP32) | HAS(FP16), FLIM_PRECISION_FP32, FLIM_PRECISION_FP16,
     "compute capability below 7.5 has no tensor cores that are used here"},
    {"cpu", 0, HAS(FP32), FLIM_PRECISION_FP32, FLIM_PRECISION_AMP, "the CPU computes in nothing else"},
};

const flim_precision_rule *flim_precision_rule_of(const char *backend, int capability)
{
    enum { N = sizeof rules / sizeof rules[0] };
    for (int i = 0; i < N; i++) {
        if (strcmp(rules[i].backend, backend) == 0 && capability >= rules[i].capability) {
            return &rules[i];
        }
    }
    return &rules[N - 1];
}

void flim_set_precisions(flim_device_info *info, const char *backend, int capability)
{
    const flim_precision_rule *rule = flim_precision_rule_of(backend, capability);
    info->precisions = rule->precisions;
    info->auto_precision = rule->automatic;
    info->amp_precision = rule->amp;
    info->precision_reason = rule->why;
}

flim_precision flim_device_precision(const flim_device_info *info, flim_precision asked)
{
    return asked == FLIM_PRECISION_AUTO ? info->auto_precision : asked == FLIM_PRECISION_AMP ? info->amp_precision : asked;
}

flim_precision flim_precision_in_16_bits(const flim_device_info *info, flim_precision precision)
{
    const bool narrow = precision == FLIM_PRECISION_BF16 || precision == FLIM_PRECISION_FP16;
    return narrow || info->amp_precision == FLIM_PRECISION_AMP ? precision : info->amp_precision;
}

void flim_precision_list(unsigned precisions, flim_precision but, char text[48])
{
    size_t used = 0;
    text[0] = '\0';
    for (int p = FLIM_PRECISION_FP32; p <= FLIM_PRECISION_FP16; p++) {
        if (precisions & 1u << p && p != (int)but) {
            used += (size_t)snprintf(text + used, 48 - used, "%s%s", used ? ", " : "", flim_precision_names[p]);
        }
    }
}

const char *flim_precision_arithmetic(flim_precision precision)
{
    switch (precision) {
    case FLIM_PRECISION_TF32:
        return "products of fp16 numbers on tensor cores: 10 mantissa bits, as TF32 has; sums in fp32; weights and gradients "
               "have a power-of-two scale per tensor, activations reach to 65504";
    case FLIM_PRECISION_BF16:
        return "products of bf16 numbers on tensor cores: 7 mantissa bits, the range of fp32 (to 3.4e38); sums in fp32";
    case FLIM_PRECISION_FP16:
        return "products of fp16 numbers on tensor cores: 10 mantissa bits, from 6e-8 to 65504; sums in fp32";
    case FLIM_PRECISION_AUTO:
    case FLIM_PRECISION_AMP:
    case FLIM_PRECISION_FP32: break;
    }
    return "products and sums of fp32 numbers: 23 mantissa bits, no tensor cores";
}

const char *flim_precision_loss_scaling(flim_precision precision)
{
    return precision == FLIM_PRECISION_FP16 ? "dynamic, from 65536" : "none";
}

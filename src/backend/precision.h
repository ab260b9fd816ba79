/* Which arithmetic a device computes in, and what "auto" and "amp" choose there: one table, a row per kind of device.
 *
 * For: backends, which fill a device's info from it; start-up lines; gpu_plan.
 * Owns: nothing; texts are constants.
 * Errors: none.
 */
#ifndef FLIM_BACKEND_PRECISION_H
#define FLIM_BACKEND_PRECISION_H

#include "flim/device.h"

typedef struct flim_precision_rule {
    const char *backend; /* "cpu", "cuda" */
    int capability; /* 10 * major + minor; the rule holds from it up to that of the row before.  0: from the lowest */
    unsigned precisions; /* bit (1u << flim_precision) for each */
    flim_precision automatic, amp; /* amp: FLIM_PRECISION_AMP itself if the device has no 16-bit arithmetic */
    const char *why; /* of `automatic`, as in "auto: ..." */
} flim_precision_rule;

/* The rule of a backend's device; of an unknown backend that of the CPU. */
const flim_precision_rule *flim_precision_rule_of(const char *backend, int capability);
/* Sets precisions, auto_precision, amp_precision and precision_reason. */
void flim_set_precisions(flim_device_info *info, const char *backend, int capability);

/* A precision as it is if its numbers have 16 bits (bf16, fp16); else what amp chooses, if the device has that. */
flim_precision flim_precision_in_16_bits(const flim_device_info *info, flim_precision precision);

/* The names of a set with commas between, without `but` (AUTO: all of them); "" = none. */
void flim_precision_list(unsigned precisions, flim_precision but, char text[48]);
/* What is multiplied and summed in it and the range of that, in plain words; whether the loss is scaled.  On the CPU and on
 * CUDA cards the same. */
const char *flim_precision_arithmetic(flim_precision precision);
const char *flim_precision_loss_scaling(flim_precision precision);

#endif

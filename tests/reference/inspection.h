/* A program's tensors against the reference, one operation at a time.
 *
 * For: layer tests.  The reference walks the network; after each operation its result is compared with the device's
 *      tensor and then replaced by it, so that the next operation starts from what the device's kernels started from: errors
 *      do not add up, no rounding carries an activation over its kink, and a tolerance is a few roundings of the storage
 *      type. A tensor that the device never stores (a reader computes it on load) stays the reference's; what depends on it
 *      may differ by one rounding more, as the square root of their number.
 *
 * Errors of a tensor (n,C,...): the largest over its channels of rms(difference) / rms(channel), at least a quarter of the
 *      tensor's rms; and the largest difference, over six times that.
 * FLIM_TEST_VERBOSE prints a line for each comparison: case, precision, tensor, error, tolerance.
 */
#ifndef REFERENCE_INSPECTION_H
#define REFERENCE_INSPECTION_H

#include <stdio.h>

#include "reference/reference.h"
#include "reference/target.h"

typedef struct ref_tensor_state {
    float *device; /* as the device has it; NULL = not stored, or not asked yet */
    bool asked;
    bool compared, failed; /* in this walk */
} ref_tensor_state;

typedef struct ref_inspection {
    const ref_target *target;
    flim_program *program; /* compiled with `inspect` */
    const flim_network *net;
    const char *name; /* of the case */
    bool exact_forward, exact_backward; /* values up to unit exact_unit are small integers: no difference is allowed */
    int exact_unit; /* whose gradients are such, too */
    double weight_roundings; /* 1 if the weights have more bits than the storage type */
    double near; /* to a kink: a share of the values' root mean square; 0 = 5e-6 */
    FILE *lines; /* what ref_inspection_report will print */
    char *text;
    size_t text_size;
    int failures, compared;
    bool near_kink; /* a value stood so near an activation's or a pool's kink that rounding decides: take other data */
    int64_t n; /* cells of the call */
    bool trained;
    ref_tensor_state tensor[FLIM_MAX_UNITS + 1][REF_TENSORS];
    double roundings[FLIM_MAX_UNITS + 1][REF_TENSORS]; /* by which the reference's tensor may differ from the device's */
    double *dv_norm[FLIM_MAX_UNITS]; /* (C): root of the sum of squares of dv */
    double *y_norm[FLIM_MAX_UNITS]; /* (C), of y */
    double *dx_scale; /* (n,C,out): of the head, see ref_head_run */
} ref_inspection;

/* Before a train or predict call over n cells that the caller makes.  `in` is zero but for the first fields, or has been
 * used. */
void ref_inspection_begin(ref_inspection *in, int64_t n, bool train);
/* Another walk against the same tensors of the device, which are not read again. */
void ref_inspection_again(ref_inspection *in);
/* A ref_observe for the pass of the reference that follows the call. */
void ref_inspection_observe(void *in, int unit, ref_tensor what, double *values, int64_t count);
/* After a training pass that was observed: one gradient (true: it passes), all of them but those of which a note says why
 * not, and the running statistics. */
bool ref_inspection_gradient(ref_inspection *in, const ref_network *ref, const flim_tensor *t);
void ref_inspection_gradients(ref_inspection *in, const ref_network *ref);
void ref_inspection_statistics(ref_inspection *in, const ref_network *ref);
/* The loss of the call's totals. */
void ref_inspection_loss(ref_inspection *in, double found, double expected);
/* Logits of a prediction against the reference's. */
void ref_inspection_logits(ref_inspection *in, const float *found, const double *expected);
/* Prints the failures, and all comparisons if FLIM_TEST_VERBOSE is set; returns how many failed. */
int ref_inspection_report(ref_inspection *in);
void ref_inspection_end(ref_inspection *in);

/* Relative error that one rounding in storage may leave, rms over a channel: 2 u; fp32: of long sums. */
double ref_rounding(flim_precision precision);

#endif

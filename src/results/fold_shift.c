#include "results/fold_shift.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "flim/network.h"
#include "results/metrics_json.h"

enum { INTERVAL_REPLICATES = 500, TEST_REPLICATES = 199 };
/* Resampling repeats the estimate for each replicate, at a cost of cells x classes x steps: hours for hundreds of classes, of
 * which one test set says little anyway. */
enum { MOST_RESAMPLED_CLASSES = 20 };

static flim_status create(int classes, flim_fold_shift *out, flim_error *err)
{
    double *all = flim_alloc((size_t)classes * FLIM_N_FOLD_PRIORS, sizeof *all, err);
    if (!all) {
        return FLIM_ERROR_MEMORY;
    }
    out->classes = classes;
    for (int i = 0; i < FLIM_N_FOLD_PRIORS; i++) {
        out->prior[i] = all + (size_t)i * (size_t)classes;
    }
    return FLIM_OK;
}

void flim_fold_shift_free(flim_fold_shift *shift)
{
    flim_calibration_free(&shift->calibration);
    flim_free(shift->prior[0]);
    *shift = (flim_fold_shift){0};
}

/* Calibrated posteriors (n,K), the caller's; NULL without memory. */
static double *posteriors(const flim_calibration *calibration, int64_t n, const float *logits, flim_error *err)
{
    const size_t cells = (size_t)n, outputs = (size_t)flim_class_outputs(calibration->classes);
    double *p = flim_alloc(cells * (size_t)calibration->classes, sizeof *p, err);
    float *calibrated = flim_alloc(cells * outputs, sizeof *calibrated, err);
    if (p && calibrated) {
        flim_calibrate(calibration, n, logits, calibrated);
        flim_probabilities(n, calibration->classes, calibrated, p);
    } else {
        flim_free(p);
        p = NULL;
    }
    flim_free(calibrated);
    return p;
}

/* The mean (K) of posteriors (n,K), n >= 1. */
static void mean_of(int64_t n, int classes, const double *posterior, double *mean)
{
    for (int k = 0; k < classes; k++) {
        mean[k] = 0;
        for (int64_t i = 0; i < n; i++) {
            mean[k] += posterior[i * classes + k];
        }
        mean[k] /= (double)n;
    }
}

flim_status flim_fold_shift_make(int classes, int64_t n_val, const int32_t *label, const float *val_logits, int64_t n_test,
                                 const float *test_logits, const double *seen, uint64_t seed, flim_fold_shift *out,
                                 flim_error *err)
{
    double *val = NULL, *test = NULL, **prior = out->prior;
    flim_status status = FLIM_OK;
    *out = (flim_fold_shift){0};
    FLIM_TRY_DONE(flim_calibration_fit(n_val, classes, label, val_logits, &out->calibration, err));
    if (out->calibration.classes == 0) {
        return FLIM_OK;
    }
    FLIM_TRY_DONE(create(classes, out, err));
    out->cells = n_test;
    val = posteriors(&out->calibration, n_val, val_logits, err);
    test = posteriors(&out->calibration, n_test, test_logits, err);
    FLIM_TRY_DONE(val && test ? FLIM_OK : FLIM_ERROR_MEMORY);
    memcpy(prior[FLIM_PRIOR_SEEN], seen, (size_t)classes * sizeof *seen);
    mean_of(n_val, classes, val, prior[FLIM_PRIOR_SOURCE]);
    flim_prior_estimate(n_test, classes, test, prior[FLIM_PRIOR_SOURCE], NULL, prior[FLIM_PRIOR_TARGET],
                        prior[FLIM_PRIOR_LOW]);
    if (classes > MOST_RESAMPLED_CLASSES) {
        for (int k = 0; k < classes; k++) {
            prior[FLIM_PRIOR_LOW][k] = prior[FLIM_PRIOR_HIGH][k] = NAN;
        }
        out->test = (flim_shift_test){NAN, NAN};
        goto done;
    }
    FLIM_TRY_DONE(flim_prior_interval(n_test, classes, test, prior[FLIM_PRIOR_SOURCE], INTERVAL_REPLICATES, 0.95, seed,
                                      prior[FLIM_PRIOR_LOW], prior[FLIM_PRIOR_HIGH], err));
    status = flim_test_prior_shift(classes, prior[FLIM_PRIOR_SOURCE], n_val, val, label, n_test, test, TEST_REPLICATES, seed,
                                   &out->test, err);
done:
    flim_free(val);
    flim_free(test);
    if (status != FLIM_OK) {
        flim_fold_shift_free(out);
    }
    return status;
}

void flim_shift_calibrate(const flim_fold_shift *shift, int64_t n, const float *logits, float *calibrated)
{
    flim_calibrate(&shift->calibration, n, logits, calibrated);
}

void flim_shift_correct(const flim_fold_shift *shift, int64_t n, const float *logits, float *corrected)
{
    const double least = 1e-12; /* of a share: its logarithm must be finite */
    const double *source = shift->prior[FLIM_PRIOR_SOURCE], *target = shift->prior[FLIM_PRIOR_TARGET]; /* (K) */
    const int outputs = flim_class_outputs(shift->classes);
    flim_calibrate(&shift->calibration, n, logits, corrected);
    for (int k = 0; k < outputs; k++) {
        const int class = outputs == 1 ? 1 : k;
        double move = log(fmax(target[class], least)) - log(fmax(source[class], least));
        move -= outputs == 1 ? log(fmax(target[0], least)) - log(fmax(source[0], least)) : 0;
        for (int64_t i = 0; i < n; i++) {
            corrected[i * outputs + k] = (float)((double)corrected[i * outputs + k] + move);
        }
    }
}

flim_status flim_shift_metrics(const flim_fold_shift *shift, const flim_predictions *p, flim_metrics *calibrated,
                               flim_metrics *corrected, flim_error *err)
{
    float *logits = flim_alloc((size_t)(p->n * p->outputs), sizeof *logits, err); /* (n,K') */
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(logits ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_shift_calibrate(shift, p->n, p->logits, logits);
    FLIM_TRY_DONE(p->classes == 2
                      ? flim_metrics_of_decisions(p->n, p->classes, p->label, logits, p->predicted, calibrated, err)
                      : flim_metrics_compute(p->n, p->classes, p->label, logits, 0.5, calibrated, err));
    flim_shift_correct(shift, p->n, p->logits, logits);
    status = flim_metrics_compute(p->n, p->classes, p->label, logits, 0.5, corrected, err);
done:
    flim_free(logits);
    return status;
}

/* ---- JSON ---- */

static const char *const prior_keys[FLIM_N_FOLD_PRIORS] = {"prior_of_the_loss", "prior_of_the_validation_part",
                                                           "estimated_prior", "interval_95_low", "interval_95_high"};

static flim_json *list_of(int n, const double *value)
{
    flim_json *array = flim_json_array();
    for (int i = 0; i < n; i++) {
        flim_json_add_number(array, value[i]);
    }
    return array;
}

static flim_json *quality(const flim_metrics *metrics)
{
    static const flim_metric shown[] = {FLIM_ECE, FLIM_BRIER, FLIM_LOG_LOSS};
    flim_json *object = flim_json_object();
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        flim_json_set_number(object, flim_metric_name(shown[i]), metrics->value[shown[i]]);
    }
    return object;
}

void flim_fold_shift_set_json(flim_json *object, const flim_fold_shift *shift, const flim_metrics *plain,
                              const flim_metrics *calibrated, const flim_metrics *corrected)
{
    if (shift->classes == 0) {
        flim_json_set_null(object, "calibration");
        flim_json_set_null(object, "prior_shift");
        return;
    }
    const double *seen = shift->prior[FLIM_PRIOR_SEEN], *target = shift->prior[FLIM_PRIOR_TARGET];
    flim_json *calibration = flim_json_object(), *prior = flim_json_object();
    flim_json_set_string(calibration, "fitted_on", "validation set");
    flim_json_set_number(calibration, "temperature", shift->calibration.temperature);
    flim_json_set(calibration, "bias", list_of(shift->classes, shift->calibration.bias));
    flim_json_set(calibration, "before", quality(plain));
    flim_json_set(calibration, "after", quality(calibrated));
    flim_json_set(object, "calibration", calibration);
    flim_json_set_bool(prior, "uses_unlabelled_test_cells", true);
    flim_json_set_integer(prior, "cells", shift->cells);
    for (int i = 0; i < FLIM_N_FOLD_PRIORS; i++) {
        flim_json_set(prior, prior_keys[i], list_of(shift->classes, shift->prior[i]));
    }
    if (shift->classes == 2) {
        flim_json_set_number(prior, "threshold_on_uncorrected_scores", flim_prior_threshold(seen[1], target[1], 0.5));
    }
    flim_json_set(prior, "metrics", flim_metrics_json(corrected->value));
    flim_json_set_number(prior, "ks_distance", shift->test.distance);
    flim_json_set_number(prior, "ks_p", shift->test.p);
    flim_json_set_bool(prior, "refuted", flim_shift_is_refuted(shift));
    flim_json_set_string(
        prior, "note", shift->cells < FLIM_FEW_CELLS_FOR_PRIOR ? "fewer than 100 cells: the estimated prior is rough" : NULL);
    flim_json_set(object, "prior_shift", prior);
}

/* value (n); null reads as NaN. */
static bool read_list(const flim_json *array, int n, double *value)
{
    for (int i = 0; i < n; i++) {
        const flim_json *item = flim_json_at(array, (size_t)i);
        value[i] = NAN;
        if (!item || (!flim_json_number(item, &value[i]) && !flim_json_is_null(item))) {
            return false;
        }
    }
    return flim_json_length(array) == (size_t)n;
}

flim_status flim_fold_shift_read(const flim_json *object, int classes, const char *path, flim_fold_shift *out,
                                 flim_error *err)
{
    const flim_json *calibration = flim_json_get(object, "calibration"), *prior = flim_json_get(object, "prior_shift");
    *out = (flim_fold_shift){0};
    if (!flim_json_is_object(calibration) || !flim_json_is_object(prior)) {
        return FLIM_OK; /* none, or a run from before there were any */
    }
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(create(classes, out, err));
    out->calibration.classes = classes;
    out->calibration.bias = flim_alloc((size_t)classes, sizeof *out->calibration.bias, err);
    FLIM_TRY_DONE(out->calibration.bias ? FLIM_OK : FLIM_ERROR_MEMORY);
    bool whole = flim_json_number(flim_json_get(calibration, "temperature"), &out->calibration.temperature) &&
                 out->calibration.temperature > 0 &&
                 read_list(flim_json_get(calibration, "bias"), classes, out->calibration.bias) &&
                 flim_json_integer(flim_json_get(prior, "cells"), &out->cells);
    for (int i = 0; i < FLIM_N_FOLD_PRIORS; i++) {
        whole = whole && read_list(flim_json_get(prior, prior_keys[i]), classes, out->prior[i]);
    }
    out->test = (flim_shift_test){NAN, NAN};
    flim_json_number(flim_json_get(prior, "ks_distance"), &out->test.distance);
    flim_json_number(flim_json_get(prior, "ks_p"), &out->test.p);
    status = whole ? FLIM_OK
                   : flim_fail(err, FLIM_ERROR_DATA,
                               "%s: \"calibration\" and \"prior_shift\" need a temperature above 0, and a bias and priors of "
                               "%d classes",
                               path, classes);
done:
    if (status != FLIM_OK) {
        flim_fold_shift_free(out);
    }
    return status;
}

#include "flim/metrics.h"
#include "flim/network.h"

#include <math.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/metrics/scores.h"

/* The one place where metrics have names. */
static const struct {
    const char *name, *title, *head, *undefined;
} about[FLIM_N_METRICS] = {
    [FLIM_ACCURACY] = {"accuracy", "accuracy", "acc", "no cells, or a logit that is not finite"},
    [FLIM_BALANCED_ACCURACY] = {"balanced_accuracy", "balanced accuracy", "bal.acc",
                                "no cells, or a logit that is not finite"},
    [FLIM_PRECISION_SCORE] = {"precision", "precision", "prec", "no cells, or a logit that is not finite"},
    [FLIM_RECALL] = {"recall", "recall", "recall", "a class is absent from the labels"},
    [FLIM_SPECIFICITY] = {"specificity", "specificity", "spec", "a class is absent from the labels"},
    [FLIM_F1] = {"f1", "F1", "F1", "no cells, or a logit that is not finite"},
    [FLIM_MACRO_F1] = {"macro_f1", "macro F1", "macroF1", "no cells, or a logit that is not finite"},
    [FLIM_MCC] = {"mcc", "MCC", "MCC", "no cells, or a logit that is not finite"},
    [FLIM_ROC_AUC] = {"roc_auc", "ROC AUC", "AUC", "a class is absent from the labels"},
    [FLIM_AVERAGE_PRECISION] = {"average_precision", "average precision", "AP", "a class is absent from the labels"},
    [FLIM_LOG_LOSS] = {"log_loss", "log loss", "logloss", "no cells, or a logit that is not finite"},
    [FLIM_BRIER] = {"brier", "Brier score", "Brier", "no cells, or a logit that is not finite"},
    [FLIM_ECE] = {"ece", "ECE", "ECE", "no cells, or a logit that is not finite"},
};

const char *flim_metric_name(flim_metric metric)
{
    return about[metric].name;
}

const char *flim_metric_title(flim_metric metric)
{
    return about[metric].title;
}

const char *flim_metric_head(flim_metric metric)
{
    return about[metric].head;
}

const char *flim_metric_undefined_reason(flim_metric metric)
{
    return about[metric].undefined;
}

flim_status flim_metrics_of_decisions(int64_t n, int classes, const int32_t *label, const float *logits,
                                      const int32_t *predicted, flim_metrics *out, flim_error *err)
{
    out->n = n;
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        out->value[m] = NAN;
    }
    for (int64_t i = 0; i < n * flim_class_outputs(classes); i++) {
        if (!isfinite(logits[i])) {
            return FLIM_OK; /* a diverged network has no metrics; class 0 everywhere would look like a result */
        }
    }
    if (n == 0) {
        return FLIM_OK;
    }
    flim_scores scores;
    FLIM_TRY(flim_scores_make(n, classes, label, logits, predicted, &scores, err));
    flim_scores_metrics(&scores, NULL, out->value);
    flim_scores_free(&scores);
    return FLIM_OK;
}

flim_status flim_metrics_compute(int64_t n, int classes, const int32_t *label, const float *logits, double threshold,
                                 flim_metrics *out, flim_error *err)
{
    int32_t *predicted = flim_alloc((size_t)n, sizeof *predicted, err);
    if (!predicted) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        predicted[i] = flim_predicted_class(classes, logits + i * flim_class_outputs(classes), threshold);
    }
    flim_status status = flim_metrics_of_decisions(n, classes, label, logits, predicted, out, err);
    flim_free(predicted);
    return status;
}

void flim_mean_sd(const double *v, int n, double *mean, double *sd, int *used)
{
    double sum = 0, squares = 0;
    *used = 0;
    for (int i = 0; i < n; i++) {
        if (!isnan(v[i])) {
            sum += v[i];
            ++*used;
        }
    }
    *mean = *used ? sum / *used : NAN;
    for (int i = 0; i < n; i++) {
        if (!isnan(v[i])) {
            squares += (v[i] - *mean) * (v[i] - *mean);
        }
    }
    *sd = *used > 1 ? sqrt(squares / (*used - 1)) : NAN;
}

#include "report/fit.h"

#include <math.h>

void report_fit_judge(report_fit *fit)
{
    const report_fit_point *c = &fit->chosen, *l = &fit->last;
    const double n = (double)fit->n_val;
    /* Agresti-Coull's share: two cells are added to each side, so that all right is not taken for sure. */
    const double share = (c->val_accuracy * n + 2) / (n + 4);
    fit->gap = c->train_accuracy - c->val_accuracy;
    fit->se = fit->n_val > 0 ? sqrt(share * (1 - share) / (n + 4)) : (double)NAN;
    fit->later = l->train_loss < c->train_loss && l->val_loss >= REPORT_FIT_LATER * c->val_loss; /* false for NaN */
    fit->verdict = isnan(fit->gap) || isnan(fit->se) || isnan(l->train_accuracy) ? REPORT_FIT_UNKNOWN
                   : l->train_accuracy < fit->common + REPORT_FIT_LEARNED        ? REPORT_FIT_UNDERFITS
                   : fit->gap >= REPORT_FIT_GAP && fit->gap >= 2 * fit->se       ? REPORT_FIT_OVERFITS
                                                                                 : REPORT_FIT_SOUND;
}

const char *report_fit_name(report_fit_verdict verdict)
{
    static const char *const names[] = {[REPORT_FIT_UNKNOWN] = "unknown",
                                        [REPORT_FIT_SOUND] = "sound",
                                        [REPORT_FIT_OVERFITS] = "overfits",
                                        [REPORT_FIT_UNDERFITS] = "underfits"};
    return names[verdict];
}

const char *report_fit_advice(const report_fit *fit)
{
    switch (fit->verdict) {
    case REPORT_FIT_UNKNOWN: return "No verdict: history.csv lacks accuracies, or there is no validation set.";
    case REPORT_FIT_OVERFITS:
        return "Try stronger --augment, --dropout or --weight-decay, a smaller --preset, or cells of more donors.";
    case REPORT_FIT_UNDERFITS:
        return "Try more --epochs or another --lr, a larger --preset, less --augment and --dropout; check the labels.";
    case REPORT_FIT_SOUND: break;
    }
    return fit->later
               ? "It would overfit later: the chosen epoch is before that, and --patience or fewer --epochs save the rest."
               : "Training and validation agree; more cells and donors are what is left to try.";
}

const char *report_fit_rule(void)
{
    return "overfits: training accuracy exceeds validation accuracy by 0.10 and by two standard errors at the chosen epoch; "
           "underfits: at the last epoch training accuracy is less than 0.05 above the share of the most common class";
}

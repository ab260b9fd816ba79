/* Training against validation: does a fold overfit, underfit, or neither, and what may be tried next.
 *
 * For: fold_metrics --errors.  From history.csv, at the epoch whose weights were kept and at the last one.
 * Owns: plain structs.  Errors: none; what history.csv lacks is NaN, and the verdict is then `unknown`.
 *
 * Training's figures are those of the epoch at work: of augmented cells, with dropout and label smoothing, while the weights moved.
 * They are too low rather than too high, so that a gap is none of their making.
 */
#ifndef FLIM_REPORT_FIT_H
#define FLIM_REPORT_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPORT_FIT_GAP 0.10 /* of accuracies, training - validation: so much is overfitting, if it is sure, too */
#define REPORT_FIT_LEARNED 0.05 /* training accuracy above that of naming the most common class: less is underfitting */
#define REPORT_FIT_LATER 1.2 /* validation loss at the end over that at the chosen epoch: so much is overfitting later on */

typedef enum report_fit_verdict {
    REPORT_FIT_UNKNOWN,
    REPORT_FIT_SOUND,
    REPORT_FIT_OVERFITS, /* training accuracy exceeds validation accuracy by 0.10 or more and by two standard errors */
    REPORT_FIT_UNDERFITS /* its training accuracy is less than 0.05 above that of the most common class, at the last epoch */
} report_fit_verdict;

typedef struct report_fit_point {
    double epoch, train_loss, val_loss, train_accuracy, val_accuracy;
} report_fit_point;

typedef struct report_fit {
    int fold; /* -1: the mean over folds */
    int64_t n_val; /* validation cells; of all folds together for the mean */
    double common; /* share of the most common class among the cells that training draws */
    report_fit_point chosen, last; /* at the epoch whose weights were kept; at the last one */
    /* The rest is by report_fit_judge. */
    double gap, se; /* training - validation accuracy at the chosen epoch; binomial standard error of the latter */
    /* Sound where it was stopped: behind the chosen epoch the training loss falls, the validation loss rises by a fifth. */
    bool later;
    report_fit_verdict verdict;
} report_fit;

/* n_val, common, chosen and last are set. */
void report_fit_judge(report_fit *fit);

const char *report_fit_name(report_fit_verdict verdict); /* "overfits" */
/* What may be tried next, in one sentence. */
const char *report_fit_advice(const report_fit *fit);
/* The rule, for those who read the tables. */
const char *report_fit_rule(void);

#endif

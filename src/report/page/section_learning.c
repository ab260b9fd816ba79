/* How the folds have learned: history.csv. */
#include <math.h>

#include "report/page/plot.h"
#include "report/page/sections.h"

bool section_learning_applies(const report_subject *subject)
{
    for (int f = 0; f < subject->run->n_folds; f++) {
        if (subject->run->history[f].n > 0) {
            return true;
        }
    }
    return false;
}

static bool has_validation(const report_run *run)
{
    bool any = false;
    for (int f = 0; f < run->n_folds; f++) {
        for (int64_t i = 0; i < run->history[f].n; i++) {
            any = any || isfinite(run->history[f].val_loss[i]);
        }
    }
    return any;
}

/* The loss of one fold by epoch; null if there is none. */
static flim_json *epochs_of(const report_run *run, int f)
{
    const report_history *h = &run->history[f];
    flim_json *epochs = flim_json_array();
    for (int64_t i = 0; i < h->n; i++) {
        const bool chosen = h->epoch[i] == (double)run->fold[f].best_epoch;
        flim_json *epoch = flim_json_object();
        flim_json_set_number(epoch, "epoch", h->epoch[i]);
        flim_json_set_number(epoch, "train", h->train_loss[i]);
        flim_json_set_number(epoch, "validation", h->val_loss[i]);
        flim_json_set_number(epoch, "chosen", chosen ? h->val_loss[i] : NAN);
        flim_json_add(epochs, epoch);
    }
    return epochs;
}

static flim_status plot_learning(flim_json *values, const report_run *run, flim_error *err)
{
    flim_json *plot = plot_begin(PLOT_HEIGHT), *folds = flim_json_array(), *drawn = flim_json_array();
    for (int f = 0; f < run->n_folds; f++) {
        flim_json *fold = flim_json_object();
        flim_json_set_integer(fold, "index", f);
        flim_json_set(fold, "epochs", epochs_of(run, f));
        flim_json_add(folds, fold);
        if (run->history[f].n > 0) {
            char title[PLOT_TITLE];
            flim_json *line = flim_json_object();
            flim_json_set_integer(line, "index", f);
            flim_json_set_integer(line, "number", f + 1);
            flim_json_set_string(line, "title", plot_fold_title(run, f, NAN, title));
            flim_json_add(drawn, line);
        }
    }
    flim_json_set(plot, "folds", folds);
    flim_json_set(plot, "drawn", drawn);
    flim_json_set_bool(plot, "validated", has_validation(run));
    return plot_finish(plot, "learning.gp", values, "learning", err);
}

flim_status section_learning_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    return plot_learning(values, subject->run, err);
}

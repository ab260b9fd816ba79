/* How the folds have learned: history.csv, also of folds that still train. */
#include <math.h>

#include "core/try.h"
#include "report/page/plot.h"
#include "report/page/sections.h"

enum { NO_COLUMN = -1, PLOTS_HEIGHT = 300 };

/* One figure: a column by epoch, one colour per fold; where there is one, another one dotted. */
typedef struct figure {
    const char *key, *ylabel;
    int solid, dotted; /* report_column */
    bool log_axis, chosen; /* chosen: a dot at the epoch whose weights were kept */
} figure;

static const figure figures[] = {
    {"loss", "loss", REPORT_VAL_LOSS, REPORT_TRAIN_LOSS, .log_axis = true, .chosen = true},
    {"auc", "ROC AUC, validation", REPORT_VAL_AUC, NO_COLUMN, .chosen = true},
    {"lr", "learning rate", REPORT_LR, NO_COLUMN, .log_axis = false},
    {"grad_norm", "gradient norm, mean of the epoch", REPORT_GRAD_NORM, NO_COLUMN, .log_axis = true},
};

bool section_learning_applies(const report_subject *subject)
{
    for (int k = 0; k < subject->run->splits.n_folds; k++) {
        if (subject->run->history[k].n > 0) {
            return true;
        }
    }
    return false;
}

/* The epoch whose weights fold k has kept; 0 while it is not done. */
static int64_t chosen_epoch(const report_run *run, int k)
{
    for (int i = 0; i < run->n_folds; i++) {
        if (run->fold[i].k == k) {
            return run->fold[i].best_epoch;
        }
    }
    return 0;
}

/* NaN where the value cannot be drawn. */
static double value_of(const report_history *h, int column, int64_t i, bool log_axis)
{
    const double value = column == NO_COLUMN ? NAN : h->column[column][i];
    return log_axis && !(value > 0) ? NAN : value;
}

/* The points of fold k: {epoch, solid, dotted, chosen}; *any is set if one of them can be drawn. */
static flim_json *points_of(const report_run *run, int k, const figure *f, bool *any)
{
    const report_history *h = &run->history[k];
    const double chosen = (double)chosen_epoch(run, k);
    flim_json *points = flim_json_array();
    for (int64_t i = 0; i < h->n; i++) {
        const double epoch = h->column[REPORT_EPOCH][i], solid = value_of(h, f->solid, i, f->log_axis),
                     dotted = value_of(h, f->dotted, i, f->log_axis);
        flim_json *point = flim_json_object();
        flim_json_set_number(point, "epoch", epoch);
        flim_json_set_number(point, "solid", solid);
        flim_json_set_number(point, "dotted", dotted);
        flim_json_set_number(point, "chosen", f->chosen && epoch == chosen ? solid : NAN);
        flim_json_add(points, point);
        *any = *any || isfinite(solid) || isfinite(dotted);
    }
    return points;
}

static flim_status plot_figure(flim_json *values, const report_run *run, const figure *f, flim_error *err)
{
    bool any = false;
    int drawn = 0;
    flim_json *plot = plot_begin(PLOTS_HEIGHT), *folds = flim_json_array();
    for (int k = 0; k < run->splits.n_folds; k++) {
        bool here = false;
        char title[PLOT_TITLE];
        flim_json *points = points_of(run, k, f, &here);
        if (!here) {
            flim_json_free(points);
            continue;
        }
        flim_json *fold = flim_json_object();
        flim_json_set_integer(fold, "index", k);
        flim_json_set_integer(fold, "number", k + 1);
        flim_json_set_string(fold, "title", plot_fold_title(run->splits.n_folds, k, drawn == 0, NAN, title));
        flim_json_set(fold, "points", points);
        flim_json_add(folds, fold);
        drawn++;
        any = true;
    }
    flim_json_set(plot, "folds", folds);
    flim_json_set_string(plot, "ylabel", f->ylabel);
    flim_json_set_bool(plot, "log_axis", f->log_axis);
    flim_json_set_bool(plot, "pair", f->dotted != NO_COLUMN);
    return plot_finish(plot, any ? "learning.gp" : NULL, values, f->key, err);
}

flim_status section_learning_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        FLIM_TRY(plot_figure(values, subject->run, &figures[i], err));
    }
    return FLIM_OK;
}

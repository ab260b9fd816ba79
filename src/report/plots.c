#include "report/plots.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"

enum { CALIBRATION_BINS = 10, HISTOGRAM_BINS = 20, MOST_GROUPS = 60, TIC_LABEL = 96 };

/* Wilson's 95 % interval of a share of n, right if the share is 0 or 1 as well. */
static void share_interval(double share, double n, double *low, double *high)
{
    const double z = 1.959963984540054, z2 = z * z;
    double middle = (share + z2 / (2 * n)) / (1 + z2 / n);
    double half = z / (1 + z2 / n) * sqrt(share * (1 - share) / n + z2 / (4 * n * n));
    *low = fmax(0, middle - half);
    *high = fmin(1, middle + half);
}

/* ---- learning curves */

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

flim_status report_plot_learning(const report_run *run, report_svg *out, flim_error *err)
{
    bool any = false;
    *out = (report_svg){0};
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
            any = true;
        }
    }
    flim_json_set(plot, "folds", folds);
    flim_json_set(plot, "drawn", drawn);
    flim_json_set_bool(plot, "validated", has_validation(run));
    return plot_finish(plot, any ? "learning.gp" : NULL, out, err);
}

/* ---- calibration and histogram */

/* Probabilities (n,K) of the pool. */
static double *pool_probabilities(const report_run *run, flim_error *err)
{
    double *p = flim_alloc((size_t)run->pool.n * (size_t)run->classes, sizeof *p, err);
    if (p) {
        flim_probabilities(run->pool.n, run->classes, run->pool.logits, p);
    }
    return p;
}

flim_status report_plot_calibration(const report_run *run, report_svg *out, flim_error *err)
{
    double said[CALIBRATION_BINS] = {0}, seen[CALIBRATION_BINS] = {0}, n[CALIBRATION_BINS] = {0};
    int classes = run->classes;
    *out = (report_svg){0};
    double *p = pool_probabilities(run, err);
    if (!p) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < run->pool.n; i++) {
        int c = 1;
        for (int d = 0; classes > 2 && d < classes; d++) {
            c = p[i * classes + d] > p[i * classes + c] ? d : c;
        }
        double value = p[i * classes + c];
        int bin = (int)(value * CALIBRATION_BINS);
        bin = bin < CALIBRATION_BINS ? bin : CALIBRATION_BINS - 1;
        said[bin] += value;
        seen[bin] += run->pool.label[i] == c;
        n[bin] += 1;
    }
    flim_free(p);
    flim_json *plot = plot_begin(PLOT_HEIGHT), *bins = flim_json_array();
    for (int b = 0; b < CALIBRATION_BINS; b++) {
        if (n[b] > 0) {
            double share = seen[b] / n[b], low, high;
            flim_json *bin = flim_json_object();
            share_interval(share, n[b], &low, &high);
            flim_json_set_number(bin, "said", said[b] / n[b]);
            flim_json_set_number(bin, "seen", share);
            flim_json_set_number(bin, "low", low);
            flim_json_set_number(bin, "high", high);
            flim_json_set_number(bin, "cells", n[b]);
            flim_json_add(bins, bin);
        }
    }
    flim_json_set(plot, "bins", bins);
    flim_json_set_bool(plot, "two", classes == 2);
    return plot_finish(plot, "calibration.gp", out, err);
}

/* The lowest and highest threshold of the folds. */
static void threshold_range(const report_run *run, double *low, double *high)
{
    *low = 1;
    *high = 0;
    for (int f = 0; f < run->n_folds; f++) {
        *low = fmin(*low, run->fold[f].threshold);
        *high = fmax(*high, run->fold[f].threshold);
    }
}

/* One class of the histogram: the share of its cells in each bin, so that a rare class is seen as well as a common one. */
static flim_json *class_histogram(const report_run *run, const int64_t count[HISTOGRAM_BINS], int c)
{
    int64_t total = 0;
    flim_json *class = flim_json_object(), *bins = flim_json_array();
    for (int b = 0; b < HISTOGRAM_BINS; b++) {
        total += count[b];
    }
    for (int b = 0; b < HISTOGRAM_BINS; b++) {
        flim_json *bin = flim_json_object();
        flim_json_set_number(bin, "middle", (b + 0.5) / HISTOGRAM_BINS);
        flim_json_set_number(bin, "percent", 100 * (total ? (double)count[b] / (double)total : 0));
        flim_json_add(bins, bin);
    }
    flim_json_set_integer(class, "index", c);
    flim_json_set_integer(class, "number", c + 1);
    flim_json_set_string(class, "name", run->class_name[c]);
    flim_json_set(class, "bins", bins);
    return class;
}

flim_status report_plot_histogram(const report_run *run, report_svg *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    const int classes = run->classes;
    char xlabel[256];
    *out = (report_svg){0};
    double *p = pool_probabilities(run, err);
    int64_t *count = flim_alloc((size_t)classes * HISTOGRAM_BINS, sizeof *count, err); /* (classes, bins) */
    FLIM_TRY_DONE(p && count ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < run->pool.n; i++) {
        int32_t label = run->pool.label[i];
        double value = p[i * classes + (classes == 2 ? 1 : label)];
        int bin = (int)(value * HISTOGRAM_BINS);
        count[label * HISTOGRAM_BINS + (bin < HISTOGRAM_BINS ? bin : HISTOGRAM_BINS - 1)]++;
    }
    flim_json *plot = plot_begin(PLOT_HEIGHT), *list = flim_json_array(), *thresholds = NULL;
    for (int c = 0; c < classes; c++) {
        flim_json_add(list, class_histogram(run, count + c * HISTOGRAM_BINS, c));
    }
    if (classes == 2) {
        double low, high;
        threshold_range(run, &low, &high);
        thresholds = flim_json_object();
        flim_json_set_number(thresholds, "low", fmin(low, high - 0.002));
        flim_json_set_number(thresholds, "high", high);
        flim_json_set(plot, "thresholds", thresholds);
    } else {
        flim_json_set_null(plot, "thresholds");
    }
    const char *of = classes == 2 ? run->class_name[1] : "the own class";
    snprintf(xlabel, sizeof xlabel, "probability of %.*s", (int)flim_utf8_cut(of, 200), of);
    flim_json_set(plot, "classes", list);
    flim_json_set_string(plot, "xlabel", xlabel);
    status = plot_finish(plot, "histogram.gp", out, err);
done:
    flim_free(p);
    flim_free(count);
    return status;
}

/* ---- groups */

/* A name as the label of a tic, which gnuplot takes for a format: per cent signs are doubled; long names are cut. */
static void tic_label(const char *name, char out[TIC_LABEL])
{
    char shown[256];
    size_t used = 0;
    flim_text_show(name, shown, sizeof shown);
    const size_t length = flim_utf8_cut(shown, 40);
    for (size_t i = 0; i < length; i++) {
        out[used++] = shown[i];
        if (shown[i] == '%') {
            out[used++] = '%';
        }
    }
    snprintf(out + used, TIC_LABEL - used, "%s", shown[length] ? "…" : "");
}

flim_status report_plot_groups(const report_run *run, report_svg *out, flim_error *err)
{
    const int64_t groups = run->groups < MOST_GROUPS ? run->groups : MOST_GROUPS;
    const int height = 90 + 26 * (int)groups;
    const report_row *pooled = report_row_of(run, REPORT_POOLED);
    *out = (report_svg){0};
    flim_json *plot = plot_begin(height < PLOT_HEIGHT ? PLOT_HEIGHT : height), *list = flim_json_array();
    for (int64_t g = 0; g < groups; g++) {
        double low, high;
        char name[TIC_LABEL];
        flim_json *group = flim_json_object();
        share_interval(run->group[g].accuracy, (double)run->group[g].n, &low, &high);
        tic_label(run->group[g].name, name);
        flim_json_set_string(group, "name", name);
        flim_json_set_integer(group, "index", g);
        flim_json_set_integer(group, "cells", run->group[g].n);
        flim_json_set_number(group, "accuracy", run->group[g].accuracy);
        flim_json_set_number(group, "low", low);
        flim_json_set_number(group, "high", high);
        flim_json_add(list, group);
    }
    flim_json_set(plot, "groups", list);
    flim_json_set_integer(plot, "last", groups - 1);
    flim_json_set_number(plot, "pooled", pooled ? pooled->value[FLIM_ACCURACY] : NAN);
    return plot_finish(plot, groups ? "groups.gp" : NULL, out, err);
}

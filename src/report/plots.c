#include "report/plots.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/metrics/rank.h"
#include "report/gnuplot.h"

enum {
    WIDTH = 430,
    HEIGHT = 400,
    CALIBRATION_BINS = 10,
    HISTOGRAM_BINS = 20,
    MOST_GROUPS = 60,
    MOST_POINTS = 2000,
    MOST_NAMED = 8 /* folds with an entry of their own in the key of a plot */
};

static flim_status finish(gnuplot_script *script, report_svg *out, flim_error *err)
{
    return gnuplot_run(script, &out->text, &out->bytes, err);
}

/* Wilson's 95 % interval of a share of n, right where the share is 0 or 1 as well. */
static void share_interval(double share, double n, double *low, double *high)
{
    const double z = 1.959963984540054, z2 = z * z;
    double middle = (share + z2 / (2 * n)) / (1 + z2 / n);
    double half = z / (1 + z2 / n) * sqrt(share * (1 - share) / n + z2 / (4 * n * n));
    *low = fmax(0, middle - half);
    *high = fmin(1, middle + half);
}

/* "title 'fold 3'", or notitle where there are too many folds to name; one of those stands for all. */
static void put_fold_title(FILE *stream, const report_run *run, int f)
{
    if (run->n_folds <= MOST_NAMED) {
        fprintf(stream, "title 'fold %d'", run->fold[f].k);
    } else {
        fputs(f == 0 ? "title 'folds'" : "notitle", stream);
    }
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

flim_status report_plot_learning(const report_run *run, report_svg *out, flim_error *err)
{
    gnuplot_script script;
    *out = (report_svg){0};
    bool any = false, any_val = has_validation(run);
    for (int f = 0; f < run->n_folds; f++) {
        any = any || run->history[f].n > 0;
    }
    if (!any) {
        return FLIM_OK;
    }
    FLIM_TRY(gnuplot_begin(&script, WIDTH, HEIGHT, err));
    for (int f = 0; f < run->n_folds; f++) { /* epoch, training loss, validation loss, the latter at the chosen epoch */
        const report_history *h = &run->history[f];
        fprintf(script.stream, "$d%d << EOD\n", f);
        for (int64_t i = 0; i < h->n; i++) {
            double values[] = {h->train_loss[i], h->val_loss[i],
                               h->epoch[i] == (double)run->fold[f].best_epoch ? h->val_loss[i] : NAN};
            fprintf(script.stream, "%.9g", h->epoch[i]);
            for (int j = 0; j < 3; j++) {
                fprintf(script.stream, isfinite(values[j]) ? " %.9g" : " ?", values[j]);
            }
            putc('\n', script.stream);
        }
        fputs("EOD\n", script.stream);
    }
    fputs("set datafile missing '?'\nset xlabel 'epoch'\nset ylabel 'loss'\nset bmargin screen 0.3\nset key at screen 0.5, "
          "screen 0.015 center bottom maxrows 4 width 1 Left "
          "reverse\nplot ",
          script.stream);
    const char *comma = "";
    for (int f = 0; f < run->n_folds; f++) {
        if (run->history[f].n == 0) {
            continue;
        }
        fprintf(script.stream, "%s$d%d using 1:2 with lines dt 3 lw 1 lc %d ", comma, f, f + 1);
        if (!any_val) {
            put_fold_title(script.stream, run, f);
        } else {
            fprintf(script.stream, "notitle, $d%d using 1:3 with lines lw 1.8 lc %d ", f, f + 1);
            put_fold_title(script.stream, run, f);
            fprintf(script.stream, ", $d%d using 1:4 with points pt 7 ps 0.6 lc %d notitle", f, f + 1);
        }
        comma = ", ";
    }
    fputs("\n", script.stream);
    return finish(&script, out, err);
}

/* ---- ROC and precision-recall */

/* Scored cells of one class against the rest. */
typedef struct curve {
    int64_t n, positives;
    flim_ranked *ranked; /* (n) descending */
    bool *positive; /* (n) by item */
} curve;

static void free_curve(curve *c)
{
    flim_free(c->ranked);
    flim_free(c->positive);
}

/* Cells of the pool, those of fold `only` or all (-1), with the logits (n,K') of the network or of a baseline; the score is the
 * logit (two classes) or the probability of class c. */
static flim_status make_curve(const report_run *run, const float *logits, int only, int c, curve *out, flim_error *err)
{
    const flim_pool *p = &run->pool;
    *out = (curve){0};
    double *score = flim_alloc((size_t)p->n, sizeof *score, err);
    double *probability = flim_alloc((size_t)run->classes, sizeof *probability, err);
    out->ranked = flim_alloc((size_t)p->n, sizeof *out->ranked, err);
    out->positive = flim_alloc((size_t)p->n, sizeof *out->positive, err);
    flim_status status = score && probability && out->ranked && out->positive ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int64_t i = 0; status == FLIM_OK && i < p->n; i++) {
        const float *z = logits + i * p->outputs; /* (K') */
        if (only >= 0 && p->fold[i] != only) {
            continue;
        }
        if (run->classes > 2) {
            flim_probabilities(1, run->classes, z, probability);
        }
        score[out->n] = run->classes == 2 ? (double)z[0] : probability[c];
        out->positive[out->n] = p->label[i] == c;
        out->positives += p->label[i] == c;
        out->n++;
    }
    if (status == FLIM_OK) {
        flim_rank_descending(out->n, score, out->ranked);
    }
    flim_free(score);
    flim_free(probability);
    return status;
}

/* The points of a curve, one for each distinct score, thinned to about MOST_POINTS; ROC: (false alarms, hits), else (recall,
 * precision), as shares. */
static void put_curve(FILE *stream, const curve *c, bool roc, int index)
{
    double negatives = (double)(c->n - c->positives), positives = (double)c->positives;
    int64_t hits = 0, step = c->n / MOST_POINTS + 1, last = -step;
    fprintf(stream, "$d%d << EOD\n", index);
    if (roc) {
        fputs("0 0\n", stream);
    }
    for (int64_t i = 0; i < c->n; i++) {
        hits += c->positive[c->ranked[i].item];
        bool tied = i + 1 < c->n && c->ranked[i + 1].score == c->ranked[i].score;
        if (tied || (i - last < step && i + 1 < c->n)) {
            continue;
        }
        last = i;
        double taken = (double)(i + 1);
        if (roc) {
            fprintf(stream, "%.6g %.6g\n", (taken - (double)hits) / negatives, (double)hits / positives);
        } else {
            fprintf(stream, "%.6g %.6g\n", (double)hits / positives, (double)hits / taken);
        }
    }
    fputs("EOD\n", stream);
}

/* One line of the two plots. */
typedef struct drawn {
    const float *logits; /* (n,K') */
    int only, c; /* of make_curve */
    enum { OF_FOLD, OF_CLASS, OF_POOL, OF_BASELINE } kind;
    bool defined; /* both kinds of cells are there */
} drawn;

/* Two classes: folds, a baseline, the pool on top; more: a line a class. */
static int list_curves(const report_run *run, drawn *list)
{
    const flim_predictions *confounds = &run->baseline[FLIM_BASELINE_CONFOUNDS];
    int n = 0;
    for (int c = 0; run->classes > 2 && c < run->classes; c++) {
        list[n++] = (drawn){.logits = run->pool.logits, .only = -1, .c = c, .kind = OF_CLASS};
    }
    for (int f = 0; run->classes == 2 && f < run->n_folds; f++) {
        list[n++] = (drawn){.logits = run->pool.logits, .only = run->fold[f].k, .c = 1, .kind = OF_FOLD};
    }
    if (run->classes == 2 && confounds->n > 0) {
        list[n++] = (drawn){.logits = confounds->logits, .only = -1, .c = 1, .kind = OF_BASELINE};
    }
    if (run->classes == 2) {
        list[n++] = (drawn){.logits = run->pool.logits, .only = -1, .c = 1, .kind = OF_POOL};
    }
    return n;
}

/* "0.812", after the name of a line. */
static void put_value(FILE *stream, const report_row *row, bool roc)
{
    double value = row ? row->value[roc ? FLIM_ROC_AUC : FLIM_AVERAGE_PRECISION] : NAN;
    if (!isnan(value)) {
        fprintf(stream, " (%.3f)", value);
    }
}

static const report_row *baseline_row(const report_run *run, int baseline)
{
    for (int r = 0; r < run->n_rows; r++) {
        if (run->row[r].kind == REPORT_BASELINE && run->row[r].baseline == baseline) {
            return &run->row[r];
        }
    }
    return NULL;
}

static void put_line(FILE *stream, const report_run *run, const drawn *line, int index, bool roc)
{
    fprintf(stream, ", $d%d with lines ", index);
    if (line->kind == OF_FOLD) {
        fprintf(stream, "lw 1 lc %d ", index + 1);
        if (run->n_folds <= MOST_NAMED) {
            fprintf(stream, "title 'fold %d", run->fold[index].k);
            put_value(stream, &run->row[index], roc); /* the folds' rows come first */
            putc('\'', stream);
        } else {
            put_fold_title(stream, run, index);
        }
    } else if (line->kind == OF_CLASS) {
        fprintf(stream, "lw 2.5 lc %d title ", index + 1);
        gnuplot_put_text(stream, run->class_name[line->c]);
    } else if (line->kind == OF_BASELINE) {
        fputs("lw 1.6 dt 2 lc rgb '#555555' title 'confounds", stream);
        put_value(stream, baseline_row(run, FLIM_BASELINE_CONFOUNDS), roc);
        putc('\'', stream);
    } else {
        fputs("lw 3 lc rgb 'black' title 'pooled", stream);
        put_value(stream, report_row_of(run, REPORT_POOLED), roc);
        putc('\'', stream);
    }
}

static flim_status plot_curves(const report_run *run, bool roc, report_svg *out, flim_error *err)
{
    gnuplot_script script;
    *out = (report_svg){0};
    flim_status status = gnuplot_begin(&script, WIDTH, HEIGHT, err);
    if (status != FLIM_OK) {
        return status;
    }
    FILE *stream = script.stream;
    drawn *list = flim_alloc((size_t)run->n_folds + (size_t)run->classes + 2, sizeof *list, err);
    status = list ? FLIM_OK : FLIM_ERROR_MEMORY;
    int n = list ? list_curves(run, list) : 0, any = 0;
    int64_t positives = 0;
    for (int i = 0; i < n && status == FLIM_OK; i++) {
        curve c;
        status = make_curve(run, list[i].logits, list[i].only, list[i].c, &c, err);
        if (status == FLIM_OK && c.positives > 0 && c.positives < c.n) { /* else the curve is undefined */
            put_curve(stream, &c, roc, i);
            list[i].defined = true;
            any++;
        }
        positives = c.positives; /* the pool comes last */
        free_curve(&c);
    }
    if (status != FLIM_OK || any == 0) {
        gnuplot_abandon(&script);
        flim_free(list);
        return status;
    }
    fputs("set xrange [0:1]\nset yrange [0:1.02]\nset bmargin screen 0.3\nset key at screen 0.5, screen 0.015 center bottom "
          "maxrows 4 width -4 Left reverse\n",
          stream);
    fputs(roc ? "set xlabel 'false positive rate'\nset ylabel 'true positive rate'\nplot x"
              : "set xlabel 'recall'\nset ylabel 'precision'\nplot ",
          stream);
    if (!roc && run->classes == 2) { /* what guessing would give */
        fprintf(stream, "%.6g", (double)positives / (double)run->pool.n);
    } else if (!roc) {
        fputs("NaN", stream);
    }
    fputs(" with lines lc rgb '#999999' dt 3 notitle", stream);
    for (int i = 0; i < n; i++) {
        if (list[i].defined) {
            put_line(stream, run, &list[i], i, roc);
        }
    }
    fputs("\n", stream);
    flim_free(list);
    return finish(&script, out, err);
}

flim_status report_plot_roc(const report_run *run, report_svg *out, flim_error *err)
{
    return plot_curves(run, true, out, err);
}

flim_status report_plot_precision_recall(const report_run *run, report_svg *out, flim_error *err)
{
    return plot_curves(run, false, out, err);
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
    gnuplot_script script;
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
    FLIM_TRY(gnuplot_begin(&script, WIDTH, HEIGHT, err));
    fputs("$d << EOD\n", script.stream);
    for (int b = 0; b < CALIBRATION_BINS; b++) {
        if (n[b] > 0) {
            double share = seen[b] / n[b], low, high;
            share_interval(share, n[b], &low, &high);
            fprintf(script.stream, "%.6g %.6g %.6g %.6g %.0f\n", said[b] / n[b], share, low, high, n[b]);
        }
    }
    fputs("EOD\nset xrange [0:1]\nset yrange [-0.1:1.05]\nunset key\n", script.stream);
    fprintf(script.stream, "set xlabel 'mean predicted probability%s'\n", classes == 2 ? "" : " of the winning class");
    fputs("set ylabel 'observed share'\nset ytics 0,0.2,1\n"
          "plot x with lines lc rgb '#999999' dt 3, $d using 1:2 with lines lw 1.5 lc 1, "
          "$d using 1:2:3:4 with yerrorbars pt 7 ps 0.7 lc 1, "
          "$d using 1:(-0.06):5 with labels font ',9' tc rgb '#666666'\n",
          script.stream);
    return finish(&script, out, err);
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

/* Shares of each class's cells by bin, so that a rare class is seen as well as a common one. */
static void put_histogram(FILE *stream, const report_run *run, const int64_t *count)
{
    int classes = run->classes;
    for (int c = 0; c < classes; c++) {
        int64_t total = 0;
        for (int b = 0; b < HISTOGRAM_BINS; b++) {
            total += count[c * HISTOGRAM_BINS + b];
        }
        fprintf(stream, "$d%d << EOD\n", c);
        for (int b = 0; b < HISTOGRAM_BINS; b++) {
            double share = total ? (double)count[c * HISTOGRAM_BINS + b] / (double)total : 0;
            fprintf(stream, "%.6g %.6g\n", (b + 0.5) / HISTOGRAM_BINS, 100 * share);
        }
        fputs("EOD\n", stream);
    }
    if (classes == 2) {
        double low, high;
        threshold_range(run, &low, &high);
        fprintf(
            stream,
            "set object rectangle from %.6g, graph 0 to %.6g, graph 1 fillcolor rgb '#bbbbbb' fillstyle solid 0.4 noborder "
            "behind\nset arrow from 0.5, graph 0 to 0.5, graph 1 nohead dt 3 lc rgb '#777777' back\n",
            fmin(low, high - 0.002), high);
    }
    fputs("set xrange [0:1]\nset yrange [0:*]\nset bmargin screen 0.3\nset key at screen 0.5, screen 0.015 center bottom "
          "maxrows 4 width -4 Left reverse\nset ylabel '% of the "
          "class'\nset style "
          "fill "
          "transparent solid 0.45 border\nset boxwidth 0.05\nset xlabel ",
          stream);
    char head[256];
    snprintf(head, sizeof head, "probability of %.200s", classes == 2 ? run->class_name[1] : "the own class");
    gnuplot_put_text(stream, head);
    fputs("\nplot ", stream);
    for (int c = 0; c < classes; c++) {
        fprintf(stream, "%s$d%d with boxes lc %d title ", c ? ", " : "", c, c + 1);
        gnuplot_put_text(stream, run->class_name[c]);
    }
    fputs("\n", stream);
}

flim_status report_plot_histogram(const report_run *run, report_svg *out, flim_error *err)
{
    gnuplot_script script;
    int classes = run->classes;
    *out = (report_svg){0};
    double *p = pool_probabilities(run, err);
    int64_t *count = flim_alloc((size_t)classes * HISTOGRAM_BINS, sizeof *count, err);
    flim_status status = p && count ? gnuplot_begin(&script, WIDTH, HEIGHT, err) : FLIM_ERROR_MEMORY;
    if (status == FLIM_OK) {
        for (int64_t i = 0; i < run->pool.n; i++) {
            int32_t label = run->pool.label[i];
            double value = p[i * classes + (classes == 2 ? 1 : label)];
            int bin = (int)(value * HISTOGRAM_BINS);
            count[label * HISTOGRAM_BINS + (bin < HISTOGRAM_BINS ? bin : HISTOGRAM_BINS - 1)]++;
        }
        put_histogram(script.stream, run, count);
        status = finish(&script, out, err);
    }
    flim_free(p);
    flim_free(count);
    return status;
}

/* ---- groups */

flim_status report_plot_groups(const report_run *run, report_svg *out, flim_error *err)
{
    gnuplot_script script;
    int64_t groups = run->groups < MOST_GROUPS ? run->groups : MOST_GROUPS;
    *out = (report_svg){0};
    if (groups == 0) {
        return FLIM_OK;
    }
    int height = 90 + 26 * (int)groups;
    FLIM_TRY(gnuplot_begin(&script, WIDTH, height < HEIGHT ? HEIGHT : height, err));
    fputs("$d << EOD\n", script.stream);
    for (int64_t g = 0; g < groups; g++) {
        double low, high;
        share_interval(run->group[g].accuracy, (double)run->group[g].n, &low, &high);
        fprintf(script.stream, "%.6g %" PRId64 " %" PRId64 " %.6g %.6g\n", run->group[g].accuracy, g, run->group[g].n, low,
                high);
    }
    fputs("EOD\nset ytics (", script.stream);
    for (int64_t g = 0; g < groups; g++) {
        char name[64];
        snprintf(name, sizeof name, "%.40s", run->group[g].name);
        fputs(g ? ", " : "", script.stream);
        gnuplot_put_text(script.stream, name);
        fprintf(script.stream, " %" PRId64, g);
    }
    const report_row *pooled = report_row_of(run, REPORT_POOLED);
    if (pooled && !isnan(pooled->value[FLIM_ACCURACY])) {
        fprintf(script.stream, ")\nset arrow from %.6g, graph 0 to %.6g, graph 1 nohead dt 3 lc rgb '#777777' front\n",
                pooled->value[FLIM_ACCURACY], pooled->value[FLIM_ACCURACY]);
    } else {
        fputs(")\n", script.stream);
    }
    fprintf(
        script.stream,
        "set yrange [%" PRId64
        ".6:-0.6]\nset xrange [0:1.12]\nset xtics 0,0.2,1\nunset key\nset xlabel 'accuracy'\nset style fill solid 0.45 "
        "noborder\nplot $d using (0):2:(0):1:($2-0.35):($2+0.35) with boxxyerror lc 1, $d using 1:2:4:5 with xerrorbars pt 7 "
        "ps 0.4 lc rgb '#333333', $d using (1.03):2:3 with labels left font ',9' tc rgb '#666666'\n",
        groups - 1);
    return finish(&script, out, err);
}

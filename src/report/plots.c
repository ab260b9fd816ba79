#include "report/plots.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include "core/alloc.h"
#include "cv/rank.h"
#include "report/gnuplot.h"

enum { WIDTH = 560, HEIGHT = 400, CALIBRATION_BINS = 10, HISTOGRAM_BINS = 20, MOST_GROUPS = 60, MOST_POINTS = 2000 };

static flim_status finish(gnuplot_script *script, report_svg *out, flim_error *err)
{
    return gnuplot_run(script, &out->text, &out->bytes, err);
}

/* ---- learning curves */

flim_status report_plot_learning(const report_run *run, report_svg *out, flim_error *err)
{
    gnuplot_script script;
    *out = (report_svg){0};
    bool any = false, any_val = false;
    for (int f = 0; f < run->n_folds; f++) {
        any = any || run->fold[f].history.n > 0;
        for (int64_t i = 0; i < run->fold[f].history.n; i++) {
            any_val = any_val || isfinite(run->fold[f].history.val_loss[i]);
        }
    }
    if (!any) {
        return FLIM_OK;
    }
    flim_status status = gnuplot_begin(&script, WIDTH, HEIGHT, err);
    if (status != FLIM_OK) {
        return status;
    }
    for (int f = 0; f < run->n_folds; f++) {
        const report_history *h = &run->fold[f].history;
        fprintf(script.stream, "$d%d << EOD\n", f);
        for (int64_t i = 0; i < h->n; i++) {
            fprintf(script.stream, "%.9g %.9g ", h->epoch[i], h->train_loss[i]);
            fprintf(script.stream, isfinite(h->val_loss[i]) ? "%.9g\n" : "?\n", h->val_loss[i]);
        }
        fputs("EOD\n", script.stream);
    }
    fputs("set datafile missing '?'\nset xlabel 'epoch'\nset ylabel 'loss'\nset key outside right\nplot ", script.stream);
    const char *comma = "";
    for (int f = 0; f < run->n_folds; f++) {
        if (run->fold[f].history.n == 0) {
            continue;
        }
        fprintf(script.stream, "%s$d%d using 1:2 with lines dt 2 lw 1 lc %d %s", comma, f, f + 1, any_val ? "notitle" : "");
        if (!any_val) {
            fprintf(script.stream, "title 'fold %d'", run->fold[f].k);
        } else {
            fprintf(script.stream, ", $d%d using 1:3 with lines lw 2 lc %d title 'fold %d'", f, f + 1, run->fold[f].k);
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

/* Cells of the pool, those of fold `only` or all (-1); the score is the logit (two classes) or the probability of class c. */
static flim_status make_curve(const report_run *run, int only, int c, curve *out, flim_error *err)
{
    const report_pool *p = &run->pool;
    int outputs = run->classes == 2 ? 1 : run->classes;
    *out = (curve){0};
    double *score = flim_alloc((size_t)p->n, sizeof *score, err);
    double *probability = flim_alloc((size_t)run->classes, sizeof *probability, err);
    out->ranked = flim_alloc((size_t)p->n, sizeof *out->ranked, err);
    out->positive = flim_alloc((size_t)p->n, sizeof *out->positive, err);
    flim_status status = score && probability && out->ranked && out->positive ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int64_t i = 0; status == FLIM_OK && i < p->n; i++) {
        if (only >= 0 && p->fold[i] != only) {
            continue;
        }
        if (run->classes > 2) {
            flim_probabilities(1, run->classes, p->logits + i * outputs, probability);
        }
        score[out->n] = run->classes == 2 ? (double)p->logits[i] : probability[c];
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
static void put_curve(FILE *stream, const curve *c, bool roc, const char *name, int index)
{
    double negatives = (double)(c->n - c->positives), positives = (double)c->positives;
    int64_t hits = 0, step = c->n / MOST_POINTS + 1, last = -step;
    fprintf(stream, "$%s%d << EOD\n", name, index);
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

static flim_status plot_curves(const report_run *run, bool roc, report_svg *out, flim_error *err)
{
    gnuplot_script script;
    int lines = run->classes == 2 ? run->n_folds + 1 : run->classes; /* with two classes the pooled curve comes last */
    *out = (report_svg){0};
    flim_status status = gnuplot_begin(&script, WIDTH, HEIGHT, err);
    bool *drawn = flim_alloc((size_t)lines, sizeof *drawn, err);
    if (status == FLIM_OK && !drawn) {
        status = FLIM_ERROR_MEMORY;
        gnuplot_abandon(&script);
    }
    int any = 0;
    for (int i = 0; i < lines && status == FLIM_OK; i++) {
        curve c;
        int only = run->classes == 2 && i < run->n_folds ? run->fold[i].k : -1;
        status = make_curve(run, only, run->classes == 2 ? 1 : i, &c, err);
        if (status == FLIM_OK && c.positives > 0 && c.positives < c.n) { /* else the curve is undefined */
            put_curve(script.stream, &c, roc, "d", i);
            drawn[i] = true;
            any++;
        }
        free_curve(&c);
        if (status != FLIM_OK) {
            gnuplot_abandon(&script);
        }
    }
    if (status != FLIM_OK || any == 0) {
        if (status == FLIM_OK) {
            gnuplot_abandon(&script);
        }
        flim_free(drawn);
        return status;
    }
    FILE *stream = script.stream;
    fputs(roc ? "set xlabel 'false positive rate'\nset ylabel 'true positive rate'\n"
              : "set xlabel 'recall'\nset ylabel 'precision'\n",
          stream);
    fputs("set xrange [0:1]\nset yrange [0:1.02]\nset size square\nset key outside right\nplot ", stream);
    const char *comma = "";
    if (roc) {
        fputs("x with lines lc 'gray' dt 3 notitle", stream);
        comma = ", ";
    }
    for (int i = 0; i < lines; i++) {
        if (!drawn[i]) {
            continue;
        }
        bool pooled = run->classes == 2 && i == run->n_folds;
        fprintf(stream, "%s$d%d with lines lw %d lc %s%d title ", comma, i, pooled || run->classes > 2 ? 3 : 1,
                pooled ? "rgb 0x00000" : "", pooled ? 0 : i + 1);
        if (pooled) {
            gnuplot_put_text(stream, "pooled");
        } else if (run->classes > 2) {
            gnuplot_put_text(stream, run->class_name[i]);
        } else {
            fprintf(stream, "'fold %d'", run->fold[i].k);
        }
        comma = ", ";
    }
    fputs("\n", stream);
    flim_free(drawn);
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
    flim_status status = gnuplot_begin(&script, WIDTH, HEIGHT, err);
    if (status != FLIM_OK) {
        return status;
    }
    fputs("$d << EOD\n", script.stream);
    for (int b = 0; b < CALIBRATION_BINS; b++) {
        if (n[b] > 0) { /* with a binomial standard error */
            double share = seen[b] / n[b];
            fprintf(script.stream, "%.6g %.6g %.6g %.0f\n", said[b] / n[b], share, sqrt(share * (1 - share) / n[b]), n[b]);
        }
    }
    fprintf(script.stream,
            "EOD\nset xrange [0:1]\nset yrange [-0.06:1.08]\nset size square\nunset key\nset xlabel 'mean predicted "
            "probability%s'\n"
            "set ylabel 'observed share'\nplot x with lines lc 'gray' dt 3, $d using 1:2:3 with yerrorbars pt 7 ps 0.6 lc 1, "
            "$d using 1:2 with lines lc 1, $d using 1:(-0.03):4 with labels font ',9' tc 'gray40'\n",
            classes == 2 ? "" : " of the winning class");
    return finish(&script, out, err);
}

flim_status report_plot_histogram(const report_run *run, report_svg *out, flim_error *err)
{
    gnuplot_script script;
    int classes = run->classes;
    *out = (report_svg){0};
    double *p = pool_probabilities(run, err);
    int64_t *count = flim_alloc((size_t)classes * HISTOGRAM_BINS, sizeof *count, err);
    flim_status status = p && count ? gnuplot_begin(&script, WIDTH, HEIGHT, err) : FLIM_ERROR_MEMORY;
    if (status != FLIM_OK) {
        goto done;
    }
    for (int64_t i = 0; i < run->pool.n; i++) {
        int32_t label = run->pool.label[i];
        double value = p[i * classes + (classes == 2 ? 1 : label)];
        int bin = (int)(value * HISTOGRAM_BINS);
        count[label * HISTOGRAM_BINS + (bin < HISTOGRAM_BINS ? bin : HISTOGRAM_BINS - 1)]++;
    }
    for (int c = 0; c < classes; c++) {
        fprintf(script.stream, "$d%d << EOD\n", c);
        for (int b = 0; b < HISTOGRAM_BINS; b++) {
            fprintf(script.stream, "%.6g %" PRId64 "\n", (b + 0.5) / HISTOGRAM_BINS, count[c * HISTOGRAM_BINS + b]);
        }
        fputs("EOD\n", script.stream);
    }
    fputs("set xrange [0:1]\nset yrange [0:*]\nset key outside right\nset ylabel 'cells'\nset style fill transparent solid "
          "0.4\nset "
          "boxwidth 0.05\nset xlabel ",
          script.stream);
    char head[256];
    snprintf(head, sizeof head, "probability of %.200s", classes == 2 ? run->class_name[1] : "the own class");
    gnuplot_put_text(script.stream, head);
    fputs("\nplot ", script.stream);
    for (int c = 0; c < classes; c++) {
        fprintf(script.stream, "%s$d%d with boxes lc %d title ", c ? ", " : "", c, c + 1);
        gnuplot_put_text(script.stream, run->class_name[c]);
    }
    fputs("\n", script.stream);
    status = finish(&script, out, err);
done:
    flim_free(p);
    flim_free(count);
    return status;
}

/* ---- groups */

flim_status report_plot_groups(const report_run *run, report_svg *out, flim_error *err)
{
    gnuplot_script script;
    int64_t groups = run->pool.groups < MOST_GROUPS ? run->pool.groups : MOST_GROUPS;
    *out = (report_svg){0};
    if (groups == 0) {
        return FLIM_OK;
    }
    flim_status status = gnuplot_begin(&script, WIDTH, 120 + 18 * (int)groups, err);
    if (status != FLIM_OK) {
        return status;
    }
    fputs("$d << EOD\n", script.stream);
    for (int64_t g = 0; g < groups; g++) {
        fprintf(script.stream, "%.6g %" PRId64 " %" PRId64 "\n", run->group[g].accuracy, g, run->group[g].n);
    }
    fputs("EOD\nset ytics (", script.stream);
    for (int64_t g = 0; g < groups; g++) {
        char name[64];
        snprintf(name, sizeof name, "%.40s", run->group[g].name);
        fputs(g ? ", " : "", script.stream);
        gnuplot_put_text(script.stream, name);
        fprintf(script.stream, " %" PRId64, g);
    }
    fprintf(
        script.stream,
        ")\nset yrange [%" PRId64
        ".6:-0.6]\nset xrange [0:1.08]\nunset key\nset xlabel 'accuracy (cells)'\nset style fill solid 0.5\n"
        "plot $d using (0):2:(0):1:($2-0.35):($2+0.35) with boxxyerror lc 1, $d using 1:2:3 with labels left offset 0.5,0\n",
        groups - 1);
    return finish(&script, out, err);
}

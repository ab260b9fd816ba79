/* ROC curves, and precision against recall. */
#include <math.h>
#include <stdbool.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/metrics/rank.h"
#include "report/page/plot.h"
#include "report/page/sections.h"

enum { MOST_POINTS = 2000 };

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

/* Cells of the pool, those of fold `only` or all (-1), with the logits (n,K') of the network or of a baseline; the score is
 * the logit (two classes) or the probability of class c. */
static flim_status make_curve(const report_run *run, const float *logits, int only, int c, curve *out, flim_error *err)
{
    const flim_pool *p = &run->pool;
    *out = (curve){0};
    double *score = flim_alloc((size_t)p->n, sizeof *score, err);
    double *probability = flim_alloc((size_t)run->classes, sizeof *probability, err);
    out->ranked = flim_alloc((size_t)p->n, sizeof *out->ranked, err);
    out->positive = flim_alloc((size_t)p->n, sizeof *out->positive, err);
    const bool whole = score && probability && out->ranked && out->positive;
    for (int64_t i = 0; whole && i < p->n; i++) {
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
    if (whole) {
        flim_rank_descending(out->n, score, out->ranked);
    }
    flim_free(score);
    flim_free(probability);
    return whole ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* The points of a curve, one for each distinct score, thinned to about MOST_POINTS; ROC: (false alarms, hits), else (recall,
 * precision), as shares. */
static flim_json *points_of(const curve *c, bool roc)
{
    const double negatives = (double)(c->n - c->positives), positives = (double)c->positives;
    int64_t hits = 0, step = c->n / MOST_POINTS + 1, last = -step;
    flim_json *points = flim_json_array();
    for (int64_t i = 0; i < c->n; i++) {
        hits += c->positive[c->ranked[i].item];
        bool tied = i + 1 < c->n && c->ranked[i + 1].score == c->ranked[i].score;
        if (tied || (i - last < step && i + 1 < c->n)) {
            continue;
        }
        last = i;
        const double taken = (double)(i + 1), recall = (double)hits / positives;
        char text[64];
        snprintf(text, sizeof text, "%.6g %.6g", roc ? (taken - (double)hits) / negatives : recall,
                 roc ? recall : (double)hits / taken);
        flim_json_add_string(points, text);
    }
    return points;
}

/* One line of the two plots. */
typedef struct drawn {
    const float *logits; /* (n,K') */
    int only, c; /* of make_curve */
    enum { OF_FOLD, OF_CLASS, OF_POOL, OF_BASELINE } kind;
} drawn;

/* Two classes: folds, a baseline, the pool on top; more: one line per class. */
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

static const report_row *baseline_row(const report_run *run, int baseline)
{
    for (int r = 0; r < run->n_rows; r++) {
        if (run->row[r].kind == REPORT_BASELINE && run->row[r].baseline == baseline) {
            return &run->row[r];
        }
    }
    return NULL;
}

/* "pooled (0.812)"; without the number if there is none. */
static const char *title_of(const char *name, const report_row *row, bool roc, char title[PLOT_TITLE])
{
    const double value = row ? row->value[roc ? FLIM_ROC_AUC : FLIM_AVERAGE_PRECISION] : NAN;
    snprintf(title, PLOT_TITLE, isnan(value) ? "%s" : "%s (%.3f)", name, value);
    return title;
}

static flim_json *line_of(const report_run *run, const drawn *line, int index, bool roc, flim_json *points)
{
    const char *title = run->class_name[line->c];
    char text[PLOT_TITLE];
    flim_json *object = flim_json_object();
    if (line->kind == OF_FOLD) { /* the folds' rows come first */
        title = plot_fold_title(run, index, run->row[index].value[roc ? FLIM_ROC_AUC : FLIM_AVERAGE_PRECISION], text);
    } else if (line->kind == OF_BASELINE) {
        title = title_of("confounds", baseline_row(run, FLIM_BASELINE_CONFOUNDS), roc, text);
    } else if (line->kind == OF_POOL) {
        title = title_of("pooled", report_row_of(run, REPORT_POOLED), roc, text);
    }
    flim_json_set_integer(object, "index", index);
    flim_json_set_integer(object, "number", index + 1);
    flim_json_set_bool(object, "fold", line->kind == OF_FOLD);
    flim_json_set_bool(object, "class", line->kind == OF_CLASS);
    flim_json_set_bool(object, "baseline", line->kind == OF_BASELINE);
    flim_json_set_bool(object, "pool", line->kind == OF_POOL);
    flim_json_set_string(object, "title", title);
    flim_json_set(object, "points", points);
    return object;
}

static flim_status plot_curves(flim_json *values, const report_run *run, bool roc, flim_error *err)
{
    drawn *list = flim_alloc((size_t)run->n_folds + (size_t)run->classes + 2, sizeof *list, err);
    if (!list) {
        return FLIM_ERROR_MEMORY;
    }
    flim_json *plot = plot_begin(PLOT_HEIGHT), *lines = flim_json_array();
    flim_status status = FLIM_OK;
    const int n = list_curves(run, list);
    int64_t positives = 0;
    bool any = false;
    for (int i = 0; i < n && status == FLIM_OK; i++) {
        curve c;
        status = make_curve(run, list[i].logits, list[i].only, list[i].c, &c, err);
        if (status == FLIM_OK && c.positives > 0 && c.positives < c.n) { /* else the curve is undefined */
            flim_json_add(lines, line_of(run, &list[i], i, roc, points_of(&c, roc)));
            any = true;
        }
        positives = c.positives; /* the pool comes last */
        free_curve(&c);
    }
    flim_free(list);
    flim_json_set(plot, "lines", lines);
    flim_json_set_bool(plot, "roc", roc);
    flim_json_set_number(plot, "guessing", run->classes == 2 ? (double)positives / (double)run->pool.n : NAN);
    if (status != FLIM_OK) {
        flim_json_free(plot);
        return status;
    }
    return plot_finish(plot, any ? "curves.gp" : NULL, values, roc ? "roc" : "precision_recall", err);
}

flim_status section_curves_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    FLIM_TRY(plot_curves(values, subject->run, true, err));
    return plot_curves(values, subject->run, false, err);
}

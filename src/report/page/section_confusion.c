/* Which classes are taken for which: pooled, in each fold, and what that makes for each class. */
#include <math.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/page/sections.h"

/* One row of a confusion matrix: the cells of class c by predicted class, from matrix (classes, classes). */
static flim_json *row_of(const report_run *run, const int64_t *matrix, int c)
{
    flim_json *row = flim_json_object(), *predicted = flim_json_array();
    int64_t total = 0;
    for (int d = 0; d < run->classes; d++) {
        total += matrix[c * run->classes + d];
    }
    for (int d = 0; d < run->classes; d++) {
        const int64_t cells = matrix[c * run->classes + d];
        const double share = total ? (double)cells / (double)total : 0;
        flim_json *field = flim_json_object();
        flim_json_set_bool(field, "right", c == d);
        flim_json_set_number(field, "shade", 0.5 * share);
        flim_json_set_integer(field, "cells", cells);
        flim_json_set_number(field, "percent", total ? 100 * share : NAN);
        flim_json_add(predicted, field);
    }
    flim_json_set_string(row, "name", run->class_name[c]);
    flim_json_set(row, "predicted", predicted);
    return row;
}

static void add_matrix(flim_json *matrices, const report_run *run, const int64_t *matrix, bool pooled, const char *title)
{
    flim_json *object = flim_json_object(), *rows = flim_json_array();
    for (int c = 0; c < run->classes; c++) {
        flim_json_add(rows, row_of(run, matrix, c));
    }
    flim_json_set_string(object, "title", title);
    flim_json_set_bool(object, "pooled", pooled);
    flim_json_set(object, "rows", rows);
    flim_json_add(matrices, object);
}

static flim_status set_matrices(flim_json *values, const report_run *run, flim_error *err)
{
    const size_t fields = (size_t)run->classes * (size_t)run->classes;
    int64_t *matrix = flim_alloc(fields, sizeof *matrix, err); /* (classes, classes) */
    flim_json *matrices = flim_json_array();
    if (matrix) {
        add_matrix(matrices, run, run->matrix, true, "all folds");
    }
    for (int f = 0; matrix && run->n_folds > 1 && f < run->n_folds; f++) {
        const flim_predictions *p = &run->fold[f].predictions;
        for (size_t i = 0; i < fields; i++) {
            matrix[i] = 0;
        }
        for (int64_t i = 0; i < p->n; i++) {
            matrix[p->label[i] * run->classes + p->predicted[i]]++;
        }
        add_matrix(matrices, run, matrix, false, run->row[f].name); /* the folds' rows come first */
    }
    flim_json_set(values, "matrices", matrices);
    flim_free(matrix);
    return matrix ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* part of total, NaN of nothing. */
static double share_of(int64_t part, int64_t total)
{
    return total ? (double)part / (double)total : NAN;
}

/* Class c against the rest in the pool: NaN where a class is absent. */
static flim_status class_auc(const report_run *run, int c, double *auc, flim_error *err)
{
    const flim_pool *p = &run->pool;
    uint8_t *positive = flim_alloc((size_t)p->n, sizeof *positive, err);
    double *score = flim_alloc((size_t)p->n, sizeof *score, err);
    double *probability = flim_alloc((size_t)run->classes, sizeof *probability, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(positive && score && probability ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < p->n; i++) {
        const float *z = p->logits + i * p->outputs; /* (K') */
        flim_probabilities(1, run->classes, z, probability);
        positive[i] = p->label[i] == c;
        score[i] = run->classes > 2 ? probability[c] : c == 1 ? (double)z[0] : -(double)z[0];
    }
    status = flim_roc_auc(p->n, positive, score, auc, err);
done:
    flim_free(positive);
    flim_free(score);
    flim_free(probability);
    return status;
}

static flim_status add_class(flim_json *list, const report_run *run, int c, flim_error *err)
{
    const int classes = run->classes;
    int64_t cells = 0, called = 0, hits = run->matrix[c * classes + c];
    double auc;
    for (int d = 0; d < classes; d++) {
        cells += run->matrix[c * classes + d];
        called += run->matrix[d * classes + c];
    }
    FLIM_TRY(class_auc(run, c, &auc, err));
    const int64_t others = run->pool.n - cells;
    flim_json *object = flim_json_object();
    flim_json_set_string(object, "name", run->class_name[c]);
    flim_json_set_integer(object, "cells", cells);
    flim_json_set_integer(object, "called", called);
    flim_json_set_number(object, "precision", share_of(hits, called));
    flim_json_set_number(object, "recall", share_of(hits, cells));
    flim_json_set_number(object, "specificity", share_of(others - (called - hits), others));
    flim_json_set_number(object, "f1", share_of(2 * hits, cells + called));
    flim_json_set_number(object, "auc", auc);
    flim_json_add(list, object);
    return FLIM_OK;
}

flim_status section_confusion_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    const report_run *run = subject->run;
    flim_status status = FLIM_OK;
    flim_json *list = flim_json_array(), *heads = flim_json_array();
    static const flim_metric shown[] = {FLIM_PRECISION_SCORE, FLIM_RECALL, FLIM_SPECIFICITY, FLIM_F1, FLIM_ROC_AUC};
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        flim_json_add_string(heads, flim_metric_title(shown[i]));
    }
    for (int c = 0; c < run->classes && status == FLIM_OK; c++) {
        status = add_class(list, run, c, err);
    }
    flim_json_set(values, "heads", heads);
    flim_json_set(values, "per_class", list);
    return status == FLIM_OK ? set_matrices(values, run, err) : status;
}

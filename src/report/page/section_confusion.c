/* Which classes are taken for which. */
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
        flim_json_set_number(field, "percent", 100 * share);
        flim_json_add(predicted, field);
    }
    flim_json_set_string(row, "name", run->class_name[c]);
    flim_json_set(row, "predicted", predicted);
    return row;
}

flim_status section_confusion_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    (void)err;
    flim_json *rows = flim_json_array();
    for (int c = 0; c < subject->run->classes; c++) {
        flim_json_add(rows, row_of(subject->run, subject->run->matrix, c));
    }
    flim_json_set(values, "rows", rows);
    return FLIM_OK;
}

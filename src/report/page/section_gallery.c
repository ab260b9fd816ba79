/* The gallery of the page, the errors that the network was surest of. */
#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/page/picture.h"
#include "report/page/explained_cell.h"
#include "report/page/sections.h"

enum { GALLERY = 12 };

typedef struct mistake {
    int64_t at; /* in the pool */
    double probability; /* of the wrong class that was predicted */
} mistake;

static int surest_first(const void *a, const void *b)
{
    const mistake *x = a, *y = b;
    if (x->probability != y->probability) {
        return x->probability > y->probability ? -1 : 1;
    }
    return (x->at > y->at) - (x->at < y->at);
}

/* ---- the decay of a cell, with those of its class and of the class it is taken for behind it */

enum { LEFT = 26, RIGHT = 148, TOP = 6, BOTTOM = 66 };

/* decay (t) times scale as points of a line; the axis is logarithmic from 1 count to `decades` powers of ten. */
static flim_json *line_of(const double *decay, int t, double scale, int decades)
{
    flim_json *points = flim_json_array();
    for (int i = 0; i < t; i++) {
        const double counts = decay[i] * scale, height = counts > 1 ? fmin(log10(counts) / decades, 1) : 0;
        flim_json *point = flim_json_object();
        flim_json_set_number(point, "x", LEFT + (double)(RIGHT - LEFT) * i / (t > 1 ? t - 1 : 1));
        flim_json_set_number(point, "y", BOTTOM - (BOTTOM - TOP) * height);
        flim_json_add(points, point);
    }
    return points;
}

/* Class means (K,T) are scaled to the photons of the cell's mask. */
static void set_decay(flim_json *values, const report_cells *cells, int64_t cell, int label, int predicted)
{
    const int t = cells->info->t;
    const double *decay = cells->decay + cell * t;
    double most = 10, photons = 0;
    for (int i = 0; i < t; i++) {
        most = fmax(most, decay[i]);
        photons += decay[i];
    }
    const int decades = (int)ceil(log10(most) - 1e-9);
    flim_json *ticks = flim_json_array();
    for (int d = 0; d <= decades; d++) {
        const double y = BOTTOM - (double)(BOTTOM - TOP) * d / decades;
        flim_json *tick = flim_json_object();
        flim_json_set_number(tick, "y", y);
        flim_json_set_number(tick, "text_y", y + 3);
        flim_json_set_number(tick, "value", pow(10, d));
        flim_json_add(ticks, tick);
    }
    flim_json_set_integer(values, "left", LEFT);
    flim_json_set_integer(values, "right", RIGHT);
    flim_json_set_integer(values, "text_x", LEFT - 3);
    flim_json_set(values, "ticks", ticks);
    flim_json_set(values, "points", line_of(decay, t, 1, decades));
    flim_json_set(values, "own", line_of(cells->class_decay + (int64_t)label * t, t, photons, decades));
    flim_json_set(values, "other", line_of(cells->class_decay + (int64_t)predicted * t, t, photons, decades));
    flim_json_set_integer(values, "bins", t);
}

static flim_status set_picture(flim_json *values, const report_subject *subject, int64_t at, flim_error *err)
{
    const report_cells *cells = subject->cells;
    const flim_pool *p = &subject->run->pool;
    const int h = cells->info->h, w = cells->info->w;
    double *intensity, photons = 0, brightest = 0;
    FLIM_TRY(report_cells_intensity(cells, p->cell[at], &intensity, err));
    for (int64_t i = 0; i < (int64_t)h * w; i++) {
        photons += intensity[i];
        brightest = fmax(brightest, intensity[i]);
    }
    flim_json *object = flim_json_object();
    flim_json_set_number(object, "photons", photons);
    flim_json_set_number(object, "brightest", brightest);
    set_decay(object, cells, p->cell[at], p->label[at], p->predicted[at]);
    flim_status status = html_set_grey(object, "png", intensity, h, w, brightest, err);
    status = status == FLIM_OK ? html_set_explanation(object, subject, at, LEFT, RIGHT, err) : status;
    flim_json_set(values, "picture", object);
    flim_free(intensity);
    return status;
}

/* ---- the errors */

static flim_status add_mistake(flim_json *list, const report_subject *subject, const mistake *m, flim_error *err)
{
    const report_run *run = subject->run;
    const flim_pool *p = &run->pool;
    const int64_t at = m->at;
    flim_status status = FLIM_OK;
    flim_json *cell = flim_json_object();
    flim_json_set_string(cell, "name", p->name[at][0] ? p->name[at] : "cell");
    flim_json_set_integer(cell, "cell", p->cell[at]);
    flim_json_set_integer(cell, "fold", p->fold[at]);
    flim_json_set_string(cell, "group", run->groups ? p->group_of[at] : NULL);
    flim_json_set_string(cell, "label", run->class_name[p->label[at]]);
    flim_json_set_string(cell, "predicted", run->class_name[p->predicted[at]]);
    flim_json_set_number(cell, "probability", m->probability);
    if (subject->cells) {
        status = set_picture(cell, subject, at, err);
    } else {
        flim_json_set_null(cell, "picture");
    }
    flim_json_add(list, cell);
    return status;
}

/* The cells that are predicted wrongly, surest first; the caller frees the list. */
static flim_status find_mistakes(const report_run *run, mistake **out, int64_t *count, flim_error *err)
{
    const flim_pool *p = &run->pool;
    mistake *list = *out = flim_alloc((size_t)p->n, sizeof *list, err);
    double *probability = flim_alloc((size_t)p->n * (size_t)run->classes, sizeof *probability, err);
    *count = 0;
    if (list && probability) {
        flim_probabilities(p->n, run->classes, p->logits, probability);
        for (int64_t i = 0; i < p->n; i++) {
            if (p->predicted[i] != p->label[i]) {
                list[(*count)++] = (mistake){.at = i, .probability = probability[i * run->classes + p->predicted[i]]};
            }
        }
        qsort(list, (size_t)*count, sizeof *list, surest_first);
    }
    flim_free(probability);
    return list && probability ? FLIM_OK : FLIM_ERROR_MEMORY;
}

bool section_gallery_applies(const report_subject *subject)
{
    const flim_pool *p = &subject->run->pool;
    bool wrong = false;
    for (int64_t i = 0; i < p->n && !wrong; i++) {
        wrong = p->predicted[i] != p->label[i];
    }
    return wrong;
}

flim_status section_gallery_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    int64_t wrong = 0;
    mistake *list = NULL;
    flim_status status = FLIM_OK;
    flim_json *cells = flim_json_array();
    FLIM_TRY_DONE(find_mistakes(subject->run, &list, &wrong, err));
    const int64_t shown = wrong < GALLERY ? wrong : GALLERY;
    flim_json_set_integer(values, "n_wrong", wrong);
    flim_json_set_integer(values, "n_shown", shown);
    flim_json_set_bool(values, "explained", subject->cells && html_has_explanations(subject));
    flim_json_set_bool(values, "pictures", subject->cells != NULL);
    flim_json_set_string(values, "missing", subject->report->options.pictures && !subject->cells ? subject->no_cells : NULL);
    for (int64_t i = 0; i < shown; i++) {
        FLIM_TRY_DONE(add_mistake(cells, subject, &list[i], err));
    }
done:
    flim_json_set(values, "cells", cells);
    flim_free(list);
    return status;
}

/* The gallery of the page, the errors that the network was surest of. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"
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

static void put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

/* Intensity (H,W) as a grey 24-bit bitmap, black = 0, white = `most`, the brightest pixel. */
static flim_status set_bitmap(flim_json *values, const report_picture *picture, double most, flim_error *err)
{
    enum { HEAD = 54 };
    const size_t row = ((size_t)picture->w * 3 + 3) / 4 * 4, pixels = row * (size_t)picture->h, size = HEAD + pixels;
    unsigned char *bmp = flim_alloc(size, 1, err);
    if (!bmp) {
        return FLIM_ERROR_MEMORY;
    }
    bmp[0] = 'B';
    bmp[1] = 'M';
    put_u32(bmp + 2, (uint32_t)size);
    put_u32(bmp + 10, HEAD);
    put_u32(bmp + 14, 40);
    put_u32(bmp + 18, (uint32_t)picture->w);
    put_u32(bmp + 22, (uint32_t)picture->h);
    bmp[26] = 1;
    bmp[28] = 24;
    for (int y = 0; y < picture->h; y++) {
        for (int x = 0; x < picture->w; x++) {
            double value = picture->intensity[(int64_t)(picture->h - 1 - y) * picture->w + x]; /* rows from below */
            memset(bmp + HEAD + (size_t)y * row + 3 * (size_t)x, most > 0 ? (int)(255 * value / most + 0.5) : 0, 3);
        }
    }
    char *text = flim_base64(bmp, size, err);
    flim_free(bmp);
    flim_json_set_string(values, "bitmap", text);
    flim_free(text);
    return text ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* The decay on a logarithmic axis from 1 count (0 lies on the axis) to a whole power of ten, as decays are read. */
static void set_decay(flim_json *values, const report_picture *picture)
{
    enum { LEFT = 26, RIGHT = 148, TOP = 6, BOTTOM = 66 };
    double most = 10;
    flim_json *ticks = flim_json_array(), *points = flim_json_array();
    for (int t = 0; t < picture->t; t++) {
        most = fmax(most, picture->decay[t]);
    }
    const int decades = (int)ceil(log10(most) - 1e-9);
    for (int d = 0; d <= decades; d++) {
        const double y = BOTTOM - (double)(BOTTOM - TOP) * d / decades;
        flim_json *tick = flim_json_object();
        flim_json_set_number(tick, "y", y);
        flim_json_set_number(tick, "text_y", y + 3);
        flim_json_set_number(tick, "value", pow(10, d));
        flim_json_add(ticks, tick);
    }
    for (int t = 0; t < picture->t; t++) {
        const double height = picture->decay[t] > 1 ? log10(picture->decay[t]) / decades : 0;
        flim_json *point = flim_json_object();
        flim_json_set_number(point, "x", LEFT + (double)(RIGHT - LEFT) * t / (picture->t > 1 ? picture->t - 1 : 1));
        flim_json_set_number(point, "y", BOTTOM - (BOTTOM - TOP) * height);
        flim_json_add(points, point);
    }
    flim_json_set_integer(values, "left", LEFT);
    flim_json_set_integer(values, "right", RIGHT);
    flim_json_set_integer(values, "text_x", LEFT - 3);
    flim_json_set(values, "ticks", ticks);
    flim_json_set(values, "points", points);
    flim_json_set_integer(values, "bins", picture->t);
}

static flim_status set_picture(flim_json *values, const report_picture *picture, flim_error *err)
{
    double photons = 0, brightest = 0;
    flim_json *object = flim_json_object();
    for (int64_t i = 0; i < (int64_t)picture->h * picture->w; i++) {
        photons += picture->intensity[i];
        brightest = fmax(brightest, picture->intensity[i]);
    }
    flim_json_set_number(object, "photons", photons);
    flim_json_set_number(object, "brightest", brightest);
    set_decay(object, picture);
    const flim_status status = set_bitmap(object, picture, brightest, err);
    flim_json_set(values, "picture", object);
    return status;
}

/* picture: NULL if there is none. */
static flim_status add_mistake(flim_json *cells, const report_run *run, const mistake *m, const report_picture *picture,
                               flim_error *err)
{
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
    if (picture) {
        status = set_picture(cell, picture, err);
    } else {
        flim_json_set_null(cell, "picture");
    }
    flim_json_add(cells, cell);
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
    const report_run *run = subject->run;
    const flim_report_options *options = &subject->report->options;
    report_picture picture[GALLERY] = {{0}};
    int64_t cell[GALLERY], wrong = 0;
    bool found = false;
    mistake *list = NULL;
    flim_error why = {0};
    flim_status status = FLIM_OK;
    flim_json *cells = flim_json_array();
    FLIM_TRY_DONE(find_mistakes(run, &list, &wrong, err));
    const int64_t shown = wrong < GALLERY ? wrong : GALLERY;
    for (int64_t i = 0; i < shown; i++) {
        cell[i] = run->pool.cell[list[i].at];
    }
    if (options->pictures) {
        FLIM_TRY_DONE(report_read_pictures(run, options, cell, shown, picture, &found, &why, err));
    }
    flim_json_set_integer(values, "n_wrong", wrong);
    flim_json_set_integer(values, "n_shown", shown);
    flim_json_set_bool(values, "pictures", found);
    flim_json_set_string(values, "missing", options->pictures && !found ? why.text : NULL);
    for (int64_t i = 0; i < shown; i++) {
        FLIM_TRY_DONE(add_mistake(cells, run, &list[i], found ? &picture[i] : NULL, err));
    }
done:
    flim_json_set(values, "cells", cells);
    for (int i = 0; i < GALLERY; i++) {
        flim_free(picture[i].intensity);
        flim_free(picture[i].decay);
    }
    flim_free(list);
    return status;
}

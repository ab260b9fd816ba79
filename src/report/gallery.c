/* The gallery of the page: the errors that the network was surest of. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "report/html.h"

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

/* Intensity (H,W) as a grey 24-bit bitmap, black = 0, white = the brightest pixel. */
static flim_status put_bitmap(FILE *stream, const report_picture *picture, flim_error *err)
{
    size_t row = ((size_t)picture->w * 3 + 3) / 4 * 4, pixels = row * (size_t)picture->h, size = 54 + pixels;
    unsigned char *bmp = flim_alloc(size, 1, err);
    if (!bmp) {
        return FLIM_ERROR_MEMORY;
    }
    double most = 0;
    for (int64_t i = 0; i < (int64_t)picture->h * picture->w; i++) {
        most = fmax(most, picture->intensity[i]);
    }
    bmp[0] = 'B';
    bmp[1] = 'M';
    put_u32(bmp + 2, (uint32_t)size);
    put_u32(bmp + 10, 54);
    put_u32(bmp + 14, 40);
    put_u32(bmp + 18, (uint32_t)picture->w);
    put_u32(bmp + 22, (uint32_t)picture->h);
    bmp[26] = 1;
    bmp[28] = 24;
    for (int y = 0; y < picture->h; y++) {
        for (int x = 0; x < picture->w; x++) {
            double value = picture->intensity[(int64_t)(picture->h - 1 - y) * picture->w + x]; /* rows from below */
            memset(bmp + 54 + (size_t)y * row + 3 * (size_t)x, most > 0 ? (int)(255 * value / most + 0.5) : 0, 3);
        }
    }
    fputs("<img class=\"cell\" alt=\"intensity\" src=\"data:image/bmp;base64,", stream);
    html_put_base64(stream, bmp, size);
    fputs("\">", stream);
    flim_free(bmp);
    return FLIM_OK;
}

/* The decay on a logarithmic axis from 1 count (0 lies on the axis) to a whole power of ten, as decays are read. */
static void put_decay(FILE *stream, const report_picture *picture)
{
    enum { LEFT = 26, RIGHT = 148, TOP = 6, BOTTOM = 66 };
    double most = 10;
    for (int t = 0; t < picture->t; t++) {
        most = fmax(most, picture->decay[t]);
    }
    const int decades = (int)ceil(log10(most) - 1e-9);
    fputs("<svg width=\"150\" height=\"84\" viewBox=\"0 0 150 84\" role=\"img\" aria-label=\"decay\">", stream);
    for (int d = 0; d <= decades; d++) {
        double y = BOTTOM - (double)(BOTTOM - TOP) * d / decades;
        fprintf(stream,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"%s\"/><text x=\"%d\" y=\"%.1f\" class=\"e\">",
                LEFT, RIGHT, y, y, d ? "g" : "a", LEFT - 3, y + 3);
        fprintf(stream, "%.0f</text>", pow(10, d));
    }
    fputs("<polyline points=\"", stream);
    for (int t = 0; t < picture->t; t++) {
        double x = LEFT + (double)(RIGHT - LEFT) * t / (picture->t > 1 ? picture->t - 1 : 1);
        double height = picture->decay[t] > 1 ? log10(picture->decay[t]) / decades : 0;
        fprintf(stream, "%.1f,%.1f ", x, BOTTOM - (BOTTOM - TOP) * height);
    }
    fprintf(stream,
            "\"/><text x=\"%d\" y=\"78\" class=\"s\">0</text><text x=\"%d\" y=\"78\" class=\"e\">%d bins</text></svg>", LEFT,
            RIGHT, picture->t);
}

static double sum_of(const double *values, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += values[i];
    }
    return sum;
}

static flim_status put_mistake(FILE *stream, const report_run *run, const mistake *m, const report_picture *picture,
                               flim_error *err)
{
    const flim_pool *p = &run->pool;
    const int64_t at = m->at;
    flim_status status = FLIM_OK;
    fputs("<figure>", stream);
    if (picture) {
        status = put_bitmap(stream, picture, err);
        put_decay(stream, picture);
    }
    fputs("<figcaption><b>", stream);
    html_put_text(stream, p->name[at][0] ? p->name[at] : "cell");
    fprintf(stream, "</b><br>cell %" PRId64 ", fold %d", p->cell[at], p->fold[at]);
    if (run->groups) {
        fputs(", ", stream);
        html_put_text(stream, p->group_of[at]);
    }
    fputs("<br>is <b>", stream);
    html_put_text(stream, run->class_name[p->label[at]]);
    fputs("</b><br>predicted ", stream);
    html_put_text(stream, run->class_name[p->predicted[at]]);
    fprintf(stream, ", %.3f", m->probability);
    if (picture) {
        double most = 0;
        for (int64_t i = 0; i < (int64_t)picture->h * picture->w; i++) {
            most = fmax(most, picture->intensity[i]);
        }
        fprintf(stream, "<br>%.0f photons, brightest pixel %.0f",
                sum_of(picture->intensity, (int64_t)picture->h * picture->w), most);
    }
    fputs("</figcaption></figure>\n", stream);
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

flim_status html_put_gallery(FILE *stream, const report_run *run, const flim_report_options *options, flim_error *err)
{
    report_picture picture[GALLERY] = {{0}};
    int64_t cell[GALLERY], wrong = 0;
    bool found = false;
    mistake *list = NULL;
    flim_error why = {0};
    flim_status status = find_mistakes(run, &list, &wrong, err);
    const int64_t shown = wrong < GALLERY ? wrong : GALLERY;
    for (int64_t i = 0; status == FLIM_OK && i < shown; i++) {
        cell[i] = run->pool.cell[list[i].at];
    }
    if (status == FLIM_OK && options->pictures && shown > 0) {
        status = report_read_pictures(run, options, cell, shown, picture, &found, &why, err);
    }
    if (status == FLIM_OK) {
        fprintf(
            stream,
            "<h3>Most confident errors</h3>\n<p class=\"about\">%" PRId64 " of %" PRId64
            " cells are predicted wrongly; the %" PRId64 " with the highest probability of the wrong class are shown%s</p>\n",
            wrong, run->pool.n, shown,
            found ? ": intensity (photons summed over time; black is 0, white the cell's brightest pixel) and decay summed "
                    "over the mask (logarithmic)."
                  : ".");
        if (options->pictures && shown > 0 && !found) {
            fputs("<p class=\"note\">No pictures: ", stream);
            html_put_text(stream, why.text);
            fputs(" (name the data with --data).</p>\n", stream);
        }
        fputs("<div class=\"gallery\">\n", stream);
    }
    for (int64_t i = 0; i < shown && status == FLIM_OK; i++) {
        status = put_mistake(stream, run, &list[i], found ? &picture[i] : NULL, err);
    }
    if (status == FLIM_OK) {
        fputs("</div>\n", stream);
    }
    for (int i = 0; i < GALLERY; i++) {
        flim_free(picture[i].intensity);
        flim_free(picture[i].decay);
    }
    flim_free(list);
    return status;
}

#include "report/page/explained_cell.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "report/page/picture.h"

/* The place (model, cell) of the pool's cell `at` in the explanation's arrays, -1 if it is not there: the model must be of this
 * run's splits and of the fold that tested the cell, which that model has not seen. */
static int64_t find(const report_subject *subject, int64_t at)
{
    const report_run *run = subject->run;
    const flim_explanation *e = &subject->report->explanation;
    if (e->n == 0 || !run->splits_sha256[0] || strcmp(e->data_sha256, run->splits.sha256) != 0) {
        return -1;
    }
    for (int m = 0; m < e->models; m++) {
        if (e->fold[m] != run->pool.fold[at] || strcmp(e->splits[m], run->splits_sha256) != 0) {
            continue;
        }
        for (int64_t i = 0; i < e->n; i++) {
            if (e->cell[i] == run->pool.cell[at]) {
                return m * e->n + i;
            }
        }
    }
    return -1;
}

bool html_has_explanations(const report_subject *subject)
{
    for (int64_t i = 0; subject->report->explanation.n > 0 && i < subject->run->pool.n; i++) {
        if (find(subject, i) >= 0) {
            return true;
        }
    }
    return false;
}

/* The effect of block b, of `blocks`, on the logit of the predicted class. */
static double effect_of(const flim_explanation *e, const float *effects, int64_t place, int64_t blocks, int64_t b,
                        int predicted)
{
    const int k = e->outputs == 1 ? 0 : predicted;
    const double sign = e->outputs == 1 && predicted == 0 ? -1 : 1; /* one logit: of class 1 */
    return sign * (double)effects[(place * blocks + b) * e->outputs + k];
}

/* The effects of time blocks as stripes behind the decay. */
static void set_stripes(flim_json *map, const flim_explanation *e, int64_t place, int predicted, double left, double right)
{
    const double bins = e->t_edge[e->t_blocks];
    double most = 0;
    flim_json *stripes = flim_json_array();
    for (int b = 0; b < e->t_blocks; b++) {
        most = fmax(most, fabs(effect_of(e, e->time, place, e->t_blocks, b, predicted)));
    }
    for (int b = 0; b < e->t_blocks; b++) {
        const double effect = effect_of(e, e->time, place, e->t_blocks, b, predicted);
        flim_json *stripe = flim_json_object();
        flim_json_set_number(stripe, "x", left + (right - left) * e->t_edge[b] / bins);
        flim_json_set_number(stripe, "width", (right - left) * (e->t_edge[b + 1] - e->t_edge[b]) / bins);
        flim_json_set_number(stripe, "opacity", most > 0 ? 0.6 * fabs(effect) / most : 0);
        flim_json_set_bool(stripe, "toward", effect >= 0);
        flim_json_add(stripes, stripe);
    }
    flim_json_set(map, "blocks", stripes);
    flim_json_set_number(map, "time_most", most);
}

flim_status html_set_explanation(flim_json *values, const report_subject *subject, int64_t at, double left, double right,
                                 flim_error *err)
{
    const flim_explanation *e = &subject->report->explanation;
    const int64_t place = find(subject, at);
    const int predicted = subject->run->pool.predicted[at];
    if (place < 0) {
        flim_json_set_null(values, "map");
        return FLIM_OK;
    }
    const int h = e->y_edge[e->y_blocks], w = e->x_edge[e->x_blocks];
    double *pixel = flim_alloc((size_t)h * (size_t)w, sizeof *pixel, err), most = 0; /* (h,w) */
    if (!pixel) {
        return FLIM_ERROR_MEMORY;
    }
    for (int by = 0; by < e->y_blocks; by++) {
        for (int bx = 0; bx < e->x_blocks; bx++) {
            const double effect =
                effect_of(e, e->space, place, (int64_t)e->y_blocks * e->x_blocks, (int64_t)by * e->x_blocks + bx, predicted);
            most = fmax(most, fabs(effect));
            for (int y = e->y_edge[by]; y < e->y_edge[by + 1]; y++) {
                for (int x = e->x_edge[bx]; x < e->x_edge[bx + 1]; x++) {
                    pixel[(int64_t)y * w + x] = effect;
                }
            }
        }
    }
    flim_json *map = flim_json_object();
    set_stripes(map, e, place, predicted, left, right);
    flim_json_set_number(map, "space_most", most);
    const flim_status status = html_set_signed(map, "png", pixel, h, w, most, err);
    flim_json_set(values, "map", map);
    flim_free(pixel);
    return status;
}

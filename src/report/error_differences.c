/* In what wrong cells differ from right ones. */
#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/errors.h"

/* The cells of one class, or of all, split by right and wrong; of one group, or of all. */
static bool is_of(const error_cells *cells, int64_t i, int32_t label)
{
    return label == ERROR_ALL_CLASSES || cells->label[i] == label;
}

static void count_groups(const error_cells *cells, error_difference *d, flim_moments *of)
{
    const double *value = cells->value + (int64_t)d->figure * cells->n;
    for (int64_t g = 0; g < 2 * cells->groups; g++) {
        of[g] = (flim_moments){0};
    }
    for (int64_t i = 0; i < cells->n; i++) {
        if (is_of(cells, i, d->label) && !isnan(value[i])) {
            flim_moments_add(&of[2 * cells->group[i] + (cells->label[i] == cells->predicted[i])], value[i]);
        }
    }
    for (int64_t g = 0; g < cells->groups; g++) {
        const flim_moments *wrong = &of[2 * g], *right = wrong + 1;
        if (wrong->n > 1 && right->n > 1) {
            d->groups++;
            d->agree += (wrong->mean - right->mean) * d->test.difference > 0;
        }
    }
}

static error_difference compare(const error_cells *cells, error_figure figure, int32_t label, flim_moments *of_groups)
{
    const double *value = cells->value + (int64_t)figure * cells->n;
    error_difference d = {.figure = figure, .label = label};
    for (int64_t i = 0; i < cells->n; i++) {
        if (is_of(cells, i, label) && !isnan(value[i])) {
            flim_moments_add(cells->label[i] == cells->predicted[i] ? &d.right : &d.wrong, value[i]);
        }
    }
    d.test = flim_welch_test(&d.wrong, &d.right);
    if (cells->groups > 1) {
        count_groups(cells, &d, of_groups);
    }
    return d;
}

/* Two cells of either kind are the least that a test can be made of. */
static bool can_be_compared(const error_cells *cells, int32_t label)
{
    int64_t count[2] = {0};
    for (int64_t i = 0; i < cells->n; i++) {
        count[cells->label[i] == cells->predicted[i]] += is_of(cells, i, label);
    }
    return count[0] > 1 && count[1] > 1;
}

static int by_class_then_size(const void *a, const void *b)
{
    const error_difference *x = a, *y = b;
    const double size_x = isnan(x->test.g) ? -1 : fabs(x->test.g), size_y = isnan(y->test.g) ? -1 : fabs(y->test.g);
    if (x->label != y->label) {
        return x->label < y->label ? -1 : 1;
    }
    if (size_x != size_y) {
        return size_x > size_y ? -1 : 1;
    }
    return (x->figure > y->figure) - (x->figure < y->figure);
}

/* Holm's p over all of them. */
static flim_status adjust(error_difference *list, int64_t n, int64_t *tests, flim_error *err)
{
    double *p = flim_alloc((size_t)n, sizeof *p, err), *adjusted = flim_alloc((size_t)n, sizeof *adjusted, err);
    *tests = 0;
    if (p && adjusted) {
        for (int64_t i = 0; i < n; i++) {
            p[i] = list[i].test.p;
            *tests += !isnan(p[i]);
        }
        flim_holm(n, p, adjusted);
        for (int64_t i = 0; i < n; i++) {
            list[i].p_holm = adjusted[i];
        }
    }
    flim_free(p);
    flim_free(adjusted);
    return p && adjusted ? FLIM_OK : FLIM_ERROR_MEMORY;
}

flim_status error_differences(const error_cells *cells, error_difference **out, int64_t *n, int64_t *tests, flim_error *err)
{
    error_difference *list = *out = flim_alloc((size_t)(cells->classes + 1) * ERROR_N_FIGURES, sizeof *list, err);
    flim_moments *of_groups = flim_alloc(2 * (size_t)cells->groups, sizeof *of_groups, err); /* (groups,2) wrong, right */
    flim_status status = FLIM_OK;
    *n = 0;
    FLIM_TRY_DONE(list && of_groups ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int32_t label = ERROR_ALL_CLASSES; label < cells->classes; label++) {
        for (int f = 0; f < ERROR_N_FIGURES && can_be_compared(cells, label); f++) {
            list[(*n)++] = compare(cells, (error_figure)f, label, of_groups);
        }
    }
    qsort(list, (size_t)*n, sizeof *list, by_class_then_size);
    status = adjust(list, *n, tests, err);
done:
    flim_free(of_groups);
    return status;
}

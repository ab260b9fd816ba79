#include "import/field_cells.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

const char *const flim_cells_by_names[] = {"auto", "value", "piece", NULL};
const char *const flim_crop_names[] = {"centroid", "box", NULL};

/* ---- pieces ---- */

/* Numbers the piece that pixel `from` lies in, over its eight neighbours, with a stack of pixels (pixels of the image). */
static void flood(const flim_label_image *image, int64_t from, uint32_t number, uint32_t *piece, int64_t *stack)
{
    int64_t n = 0;
    stack[n++] = from;
    piece[from] = number;
    while (n > 0) {
        const int64_t pixel = stack[--n], y = pixel / image->x, x = pixel % image->x;
        for (int64_t ny = y > 0 ? y - 1 : y; ny <= y + 1 && ny < image->y; ny++) {
            for (int64_t nx = x > 0 ? x - 1 : x; nx <= x + 1 && nx < image->x; nx++) {
                const int64_t next = ny * image->x + nx;
                if (image->label[next] && !piece[next]) {
                    piece[next] = number;
                    stack[n++] = next;
                }
            }
        }
    }
}

/* piece (Y,X): numbers from 1, row by row; 0 = background.  The caller's to flim_free. */
static flim_status find_pieces(const flim_label_image *image, uint32_t **piece, uint32_t *count, flim_error *err)
{
    const int64_t pixels = image->y * image->x;
    int64_t *stack = flim_alloc((size_t)pixels, sizeof *stack, err);
    *piece = stack ? flim_alloc((size_t)pixels, sizeof **piece, err) : NULL;
    *count = 0;
    for (int64_t i = 0; *piece && i < pixels; i++) {
        if (image->label[i] && !(*piece)[i]) {
            flood(image, i, ++*count, *piece, stack);
        }
    }
    flim_free(stack);
    return *piece ? FLIM_OK : FLIM_ERROR_MEMORY;
}

static bool has_one_value(const flim_label_image *image, uint32_t *value)
{
    *value = 0;
    for (int64_t i = 0; i < image->y * image->x; i++) {
        if (image->label[i] && *value && image->label[i] != *value) {
            return false;
        }
        *value = image->label[i] ? image->label[i] : *value;
    }
    return *value != 0;
}

/* label (Y,X) as the rule reads the mask: the image's own, or *made, which is the caller's to flim_free. */
static flim_status choose_labels(const char *path, const flim_label_image *image, flim_cells_by by, const uint32_t **label,
                                 uint32_t **made, flim_error *err)
{
    uint32_t value = 0, count;
    *label = image->label;
    *made = NULL;
    if (by == FLIM_CELLS_VALUE || (by == FLIM_CELLS_AUTO && !has_one_value(image, &value))) {
        return FLIM_OK;
    }
    FLIM_TRY(find_pieces(image, made, &count, err));
    if (by == FLIM_CELLS_AUTO && count > 1) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s: a mask of one value, %" PRIu32 ", in %" PRIu32
                         " pieces: --cells-by piece makes a cell of each, --cells-by value one of all",
                         path, value, count);
    }
    *label = by == FLIM_CELLS_PIECE ? *made : image->label;
    return FLIM_OK;
}

/* ---- cells ---- */

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The distinct values of label (pixels) but 0, ascending: *value is the caller's (flim_free). */
static flim_status distinct_values(const uint32_t *label, int64_t pixels, uint32_t **value, int32_t *n, flim_error *err)
{
    size_t count = 0, kept = 0;
    for (int64_t i = 0; i < pixels; i++) { /* where a run begins: far fewer than pixels */
        count += label[i] && (i == 0 || label[i] != label[i - 1]);
    }
    uint32_t *list = flim_alloc(count, sizeof *list, err);
    if (!list) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < pixels; i++) {
        if (label[i] && (i == 0 || label[i] != label[i - 1])) {
            list[kept++] = label[i];
        }
    }
    qsort(list, count, sizeof *list, by_value);
    kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || list[i] != list[kept - 1]) {
            list[kept++] = list[i];
        }
    }
    *value = list;
    *n = (int32_t)kept;
    return FLIM_OK;
}

static void add_pixel(flim_field_cell *c, int64_t y, int64_t x, int64_t *sum_y, int64_t *sum_x)
{
    c->y0 = c->pixels == 0 || y < c->y0 ? y : c->y0;
    c->y1 = c->pixels == 0 || y > c->y1 ? y : c->y1;
    c->x0 = c->pixels == 0 || x < c->x0 ? x : c->x0;
    c->x1 = c->pixels == 0 || x > c->x1 ? x : c->x1;
    c->pixels++;
    *sum_y += y;
    *sum_x += x;
}

/* Begin of a window of `size` pixels along one axis: around the centroid sum / n, rounded, moved so that first..last lies within
 * if it can; or around the middle of first..last. */
static int64_t place_window(const flim_cells_rule *rule, int64_t sum, int64_t n, int64_t first, int64_t last)
{
    if (rule->crop == FLIM_CROP_BOX) {
        const int64_t spare = rule->size - (last - first + 1);
        return first - (spare >= 0 ? spare / 2 : -((1 - spare) / 2));
    }
    const int64_t begin = (2 * sum + n) / (2 * n) - rule->size / 2;
    if (last - first + 1 > rule->size) {
        return begin;
    }
    return begin > first ? first : begin + rule->size - 1 < last ? last - rule->size + 1 : begin;
}

static void settle(const flim_cells_rule *rule, const flim_field_cells *all, flim_field_cell *c, int64_t sum_y, int64_t sum_x)
{
    c->top = place_window(rule, sum_y, c->pixels, c->y0, c->y1);
    c->left = place_window(rule, sum_x, c->pixels, c->x0, c->x1);
    const bool border = c->y0 == 0 || c->x0 == 0 || c->y1 == all->y - 1 || c->x1 == all->x - 1;
    const bool large = c->y1 - c->y0 + 1 > rule->size || c->x1 - c->x0 + 1 > rule->size;
    c->fate = border && !rule->keep_border ? FLIM_CELL_AT_BORDER
              : large && !rule->crop_large ? FLIM_CELL_TOO_LARGE
                                           : FLIM_CELL_KEPT;
}

static flim_status measure(const uint32_t *label, const uint32_t *value, const flim_cells_rule *rule, flim_field_cells *out,
                           flim_error *err)
{
    int32_t last = -1;
    int64_t *sum = flim_alloc((size_t)out->n * 2, sizeof *sum, err); /* (n,2): of y and of x */
    if (!sum) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < out->y * out->x; i++) {
        if (label[i] && (last < 0 || value[last] != label[i])) {
            const uint32_t *found = bsearch(&label[i], value, (size_t)out->n, sizeof *value, by_value);
            last = (int32_t)(found - value);
        }
        out->of_pixel[i] = label[i] ? last : -1;
        if (label[i]) {
            add_pixel(&out->cell[last], i / out->x, i % out->x, &sum[2 * last], &sum[2 * last + 1]);
        }
    }
    for (int32_t k = 0; k < out->n; k++) {
        out->cell[k].label = value[k];
        settle(rule, out, &out->cell[k], sum[2 * k], sum[2 * k + 1]);
    }
    flim_free(sum);
    return FLIM_OK;
}

flim_status flim_field_cells_find(const char *path, const flim_label_image *image, const flim_cells_rule *rule,
                                  flim_field_cells *out, flim_error *err)
{
    const size_t pixels = (size_t)(image->y * image->x);
    const uint32_t *label;
    uint32_t *made = NULL, *value = NULL;
    flim_status status = FLIM_OK;
    *out = (flim_field_cells){.y = image->y, .x = image->x};
    FLIM_TRY_DONE(choose_labels(path, image, rule->by, &label, &made, err));
    FLIM_TRY_DONE(distinct_values(label, (int64_t)pixels, &value, &out->n, err));
    out->cell = flim_alloc((size_t)out->n, sizeof *out->cell, err);
    out->of_pixel = out->cell ? flim_alloc(pixels, sizeof *out->of_pixel, err) : NULL;
    FLIM_TRY_DONE(out->of_pixel ? FLIM_OK : FLIM_ERROR_MEMORY);
    status = measure(label, value, rule, out, err);
done:
    flim_free(made);
    flim_free(value);
    if (status != FLIM_OK) {
        flim_field_cells_free(out);
    }
    return status;
}

flim_status flim_field_cells_whole(int64_t y, int64_t x, int64_t height, int64_t width, flim_field_cells *out,
                                   flim_error *err)
{
    *out = (flim_field_cells){.y = y, .x = x, .n = 1};
    out->cell = flim_alloc(1, sizeof *out->cell, err);
    out->of_pixel = out->cell ? flim_alloc((size_t)(y * x), sizeof *out->of_pixel, err) : NULL; /* all 0: the one cell */
    if (!out->of_pixel) {
        flim_field_cells_free(out);
        return FLIM_ERROR_MEMORY;
    }
    out->cell[0] = (flim_field_cell){
        .label = 1, .pixels = y * x, .y1 = y - 1, .x1 = x - 1, .top = -((height - y) / 2), .left = -((width - x) / 2)};
    return FLIM_OK;
}

void flim_field_cells_free(flim_field_cells *cells)
{
    flim_free(cells->cell);
    flim_free(cells->of_pixel);
    *cells = (flim_field_cells){0};
}

#include "data/hdf5/hdf5_boxes.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

enum { MOST_LOOKS = 1 << 28 };

flim_status flim_boxes_add(flim_boxes *boxes, const hsize_t *first, const hsize_t *last, flim_error *err)
{
    if (boxes->n == boxes->room) {
        const int64_t room = boxes->room ? 2 * boxes->room : 64;
        flim_box *more = flim_realloc(boxes->box, (size_t)room, sizeof *more, err);
        if (!more) {
            return FLIM_ERROR_MEMORY;
        }
        boxes->box = more;
        boxes->room = room;
    }
    flim_box *box = &boxes->box[boxes->n++];
    *box = (flim_box){0};
    for (int i = 0; i < boxes->rank; i++) {
        box->first[i] = first[i];
        box->end[i] = last[i] == UINT64_MAX ? last[i] : last[i] + 1;
    }
    return FLIM_OK;
}

void flim_boxes_free(flim_boxes *boxes)
{
    flim_free(boxes->box);
    boxes->box = NULL;
}

typedef struct search {
    const flim_boxes *boxes;
    int64_t looks;
    flim_error *err;
    hsize_t *hole;
} search;

typedef enum answer { COVERED, HOLE, UNKNOWN } answer;

static bool meets(const flim_box *a, const flim_box *b, int rank)
{
    for (int i = 0; i < rank; i++) {
        if (a->first[i] >= b->end[i] || b->first[i] >= a->end[i]) {
            return false;
        }
    }
    return true;
}

static bool covers(const flim_box *a, const flim_box *b, int rank)
{
    for (int i = 0; i < rank; i++) {
        if (a->first[i] > b->first[i] || a->end[i] < b->end[i]) {
            return false;
        }
    }
    return true;
}

static int by_size(const void *a, const void *b)
{
    const hsize_t x = *(const hsize_t *)a, y = *(const hsize_t *)b;
    return (x > y) - (x < y);
}

/* The axis on which most edges of the boxes lie strictly inside `area`, and the median of those edges.  There is one: each of
 * the boxes meets the area and does not cover it. */
static int choose_cut(const search *s, const flim_box *area, const int64_t *list, int64_t n, hsize_t *edges, hsize_t *cut)
{
    int best = -1;
    int64_t most = 0;
    for (int axis = 0; axis < s->boxes->rank; axis++) {
        int64_t inside = 0;
        for (int64_t i = 0; i < n; i++) {
            const flim_box *box = &s->boxes->box[list[i]];
            inside += box->first[axis] > area->first[axis];
            inside += box->end[axis] < area->end[axis];
        }
        best = inside > most ? axis : best;
        most = inside > most ? inside : most;
    }
    int64_t found = 0;
    for (int64_t i = 0; best >= 0 && i < n; i++) {
        const flim_box *box = &s->boxes->box[list[i]];
        if (box->first[best] > area->first[best]) {
            edges[found++] = box->first[best];
        }
        if (box->end[best] < area->end[best]) {
            edges[found++] = box->end[best];
        }
    }
    if (best >= 0) {
        qsort(edges, (size_t)found, sizeof *edges, by_size);
        *cut = edges[found / 2];
    }
    return best;
}

/* Is `area` covered by those of the boxes in `from` that meet it?  The area is halved until one box covers it or none is left. */
static answer is_covered(search *s, const flim_box *area, const int64_t *from, int64_t n_from)
{
    answer result = UNKNOWN;
    int64_t n = 0, *list = flim_alloc((size_t)n_from + 1, sizeof *list, s->err);
    hsize_t *edges = flim_alloc(2 * (size_t)n_from + 1, sizeof *edges, s->err);
    s->looks += n_from + 1;
    if (!list || !edges || s->looks > MOST_LOOKS) {
        goto done;
    }
    for (int64_t i = 0; i < n_from; i++) {
        const flim_box *box = &s->boxes->box[from[i]];
        if (covers(box, area, s->boxes->rank)) {
            result = COVERED;
            goto done;
        }
        if (meets(box, area, s->boxes->rank)) {
            list[n++] = from[i];
        }
    }
    if (n == 0) {
        memcpy(s->hole, area->first, sizeof area->first);
        result = HOLE;
        goto done;
    }
    hsize_t cut = 0;
    const int axis = choose_cut(s, area, list, n, edges, &cut);
    flim_free(edges);
    edges = NULL;
    if (axis >= 0) {
        flim_box low = *area, high = *area;
        low.end[axis] = high.first[axis] = cut;
        result = is_covered(s, &low, list, n);
        result = result == COVERED ? is_covered(s, &high, list, n) : result;
    }
done:
    flim_free(list);
    flim_free(edges);
    return result;
}

flim_status flim_boxes_hole(const flim_boxes *boxes, const hsize_t *extent, hsize_t hole[FLIM_BOX_RANK], bool *found,
                            bool *settled, flim_error *err)
{
    flim_box area = {0};
    flim_error memory = {0};
    search s = {.boxes = boxes, .err = &memory, .hole = hole};
    *found = *settled = false;
    for (int i = 0; i < boxes->rank; i++) {
        area.end[i] = extent[i];
        if (extent[i] == 0) {
            *settled = true;
            return FLIM_OK;
        }
    }
    int64_t *all = flim_alloc((size_t)boxes->n + 1, sizeof *all, err);
    if (!all) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < boxes->n; i++) {
        all[i] = i;
    }
    const answer result = is_covered(&s, &area, all, boxes->n);
    flim_free(all);
    if (memory.status != FLIM_OK) {
        return flim_fail(err, memory.status, "%s", memory.text);
    }
    *found = result == HOLE;
    *settled = result != UNKNOWN;
    return FLIM_OK;
}

#include "flim/explanation.h"

#include "core/alloc.h"
#include "core/try.h"

/* Edges of blocks of `size` along an axis of `length`. */
static flim_status make_edges(int length, int64_t size, int *blocks, int32_t **edge, flim_error *err)
{
    *blocks = (int)((length + size - 1) / size);
    *edge = flim_alloc((size_t)*blocks + 1, sizeof **edge, err);
    for (int b = 0; *edge && b <= *blocks; b++) {
        (*edge)[b] = (int32_t)(b * size < length ? b * size : length);
    }
    return *edge ? FLIM_OK : FLIM_ERROR_MEMORY;
}

flim_status flim_explanation_create(int models, int outputs, int64_t n, int t, int h, int w, int64_t bins, int64_t pixels,
                                    flim_explanation *out, flim_error *err)
{
    flim_explanation e = {.models = models, .outputs = outputs, .n = n};
    flim_status status = FLIM_OK;
    *out = (flim_explanation){0};
    if (bins < 1 || bins > t || pixels < 1 || pixels > (h > w ? h : w)) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "blocks of %lld bins and %lld pixels: expected 1 to %d bins and 1 to %d pixels, as the cells have",
                         (long long)bins, (long long)pixels, t, h > w ? h : w);
    }
    FLIM_TRY_DONE(make_edges(t, bins, &e.t_blocks, &e.t_edge, err));
    FLIM_TRY_DONE(make_edges(h, pixels, &e.y_blocks, &e.y_edge, err));
    FLIM_TRY_DONE(make_edges(w, pixels, &e.x_blocks, &e.x_edge, err));
    const size_t values = (size_t)models * (size_t)n * (size_t)outputs;
    e.cell = flim_alloc((size_t)n, sizeof *e.cell, err);
    e.fold = flim_alloc((size_t)models, sizeof *e.fold, err);
    e.splits = flim_alloc((size_t)models, sizeof *e.splits, err);
    e.logits = flim_alloc(values, sizeof *e.logits, err);
    e.time = flim_alloc(values * (size_t)e.t_blocks, sizeof *e.time, err);
    e.space = flim_alloc(values * (size_t)e.y_blocks * (size_t)e.x_blocks, sizeof *e.space, err);
    FLIM_TRY_DONE(e.cell && e.fold && e.splits && e.logits && e.time && e.space ? FLIM_OK : FLIM_ERROR_MEMORY);
    *out = e;
    return FLIM_OK;
done:
    flim_explanation_free(&e);
    return status;
}

void flim_explanation_free(flim_explanation *e)
{
    void *const arrays[] = {e->t_edge, e->y_edge, e->x_edge, e->cell, e->fold, e->splits, e->logits, e->time, e->space};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        flim_free(arrays[i]);
    }
    *e = (flim_explanation){0};
}

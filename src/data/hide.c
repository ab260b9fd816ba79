#include "data/hide.h"

#include <string.h>

#include "data/hide_math.h"

/* Pixels of the mask, and the rectangle around them. */
static int64_t bounds_of(int t, int h, int w, const uint8_t *mask, flim_hide_bounds *b)
{
    int64_t pixels = 0;
    *b = (flim_hide_bounds){t, h, 0, w, 0};
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            if (mask[y * w + x] != 0) {
                pixels++;
                b->y0 = y < b->y0 ? y : b->y0;
                b->y1 = y + 1 > b->y1 ? y + 1 : b->y1;
                b->x0 = x < b->x0 ? x : b->x0;
                b->x1 = x + 1 > b->x1 ? x + 1 : b->x1;
            }
        }
    }
    return pixels;
}

/* Hides up to `most` voxels of the box that are seen, the first ones; returns how many. */
static int64_t hide_box(const flim_hide_box *box, int64_t most, int h, int w, const uint8_t *mask, uint8_t *hidden)
{
    int64_t n = 0;
    for (int t = box->t0; t < box->t1; t++) {
        for (int y = box->y0; y < box->y1; y++) {
            for (int x = box->x0; x < box->x1 && n < most; x++) {
                const int64_t i = ((int64_t)t * h + y) * w + x;
                if (mask[y * w + x] != 0 && hidden[i] == 0) {
                    hidden[i] = 1;
                    n++;
                }
            }
        }
    }
    return n;
}

int64_t flim_hide_cell(const flim_cell_id *id, uint32_t share, int t, int h, int w, const uint8_t *mask, uint8_t *hidden)
{
    flim_hide_bounds bounds;
    memset(hidden, 0, (size_t)t * (size_t)h * (size_t)w);
    const int64_t wanted = flim_hide_count(bounds_of(t, h, w, mask, &bounds) * t, share);
    int64_t done = 0;
    for (uint32_t i = 0; done < wanted && i < FLIM_MOST_BOXES; i++) {
        const flim_hide_box box = flim_hide_box_at(id, i, &bounds);
        done += hide_box(&box, wanted - done, h, w, mask, hidden);
    }
    const flim_hide_box all = {0, t, 0, h, 0, w};
    return done + hide_box(&all, wanted - done, h, w, mask, hidden);
}

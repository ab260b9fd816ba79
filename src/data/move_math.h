/* Where photons go when a cell is blurred, zoomed or bent, for C and CUDA: integer arithmetic, equal bits on both.
 *
 * A photon has a place in its pixel, drawn uniformly, and moves as a whole: counts stay whole numbers.  Places are in units of
 * 2^-16 pixel; pixel x reaches from x to x + 1.  A step has a way forward, for photons, and back, for the mask: output pixels
 * whose centre comes from inside the mask are inside.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_DATA_MOVE_MATH_H
#define FLIM_DATA_MOVE_MATH_H

#include "data/count_math.h"

enum { FLIM_BLUR_REACH = 6, FLIM_FIELD_NODES = 4, FLIM_PLACE_BITS = 16 };

/* A step that moves photons within their bin, as it acts on one cell. */
typedef struct flim_move_step {
    int32_t op; /* FLIM_TRANSFORM_BLUR, _ZOOM or _ELASTIC */
    uint32_t key[2];
    int32_t factor, inverse; /* ZOOM: times 2^16 */
    union {
        uint32_t at_least[2 * FLIM_BLUR_REACH]; /* BLUR: a word of at least [k] goes to k + 1 - REACH or further */
        int32_t field[FLIM_FIELD_NODES][FLIM_FIELD_NODES]
                     [2]; /* ELASTIC: where output places come from: y, x further by this */
    };
} flim_move_step;

typedef struct flim_place {
    int32_t y, x; /* times 2^16 */
} flim_place;

/* Pixels that a blurred photon goes along an axis, by a random word. */
FLIM_HOST_DEVICE static inline int32_t flim_blur_reach(const flim_move_step *s, uint32_t word)
{
    int32_t d = -FLIM_BLUR_REACH;
    for (int32_t k = 0; k < 2 * FLIM_BLUR_REACH && word >= s->at_least[k]; k++) {
        d++;
    }
    return d;
}

/* One axis about its centre. */
FLIM_HOST_DEVICE static inline int32_t flim_zoomed(int32_t place, int32_t size, int32_t factor)
{
    const int64_t centre = (int64_t)size << (FLIM_PLACE_BITS - 1);
    return (int32_t)(centre + (((place - centre) * factor) >> FLIM_PLACE_BITS));
}

/* The field at a place: bilinear between nodes, the outer ones at the edges of the frame. */
FLIM_HOST_DEVICE static inline flim_place flim_field_at(const flim_move_step *s, flim_place at, int32_t h, int32_t w)
{
    const int32_t place[2] = {at.y, at.x}, size[2] = {h, w};
    int32_t node[2], part[2], out[2];
    for (int i = 0; i < 2; i++) {
        const int64_t last = (int64_t)(FLIM_FIELD_NODES - 1) << FLIM_PLACE_BITS;
        int64_t u = (int64_t)place[i] * (FLIM_FIELD_NODES - 1) / size[i];
        u = u < 0 ? 0 : u > last ? last : u;
        node[i] = (int32_t)(u >> FLIM_PLACE_BITS);
        node[i] -= node[i] == FLIM_FIELD_NODES - 1;
        part[i] = (int32_t)(u - ((int64_t)node[i] << FLIM_PLACE_BITS));
    }
    for (int i = 0; i < 2; i++) {
        const int64_t one = INT64_C(1) << FLIM_PLACE_BITS;
        const int64_t upper = s->field[node[0]][node[1]][i] * (one - part[1]) +
                              s->field[node[0]][node[1] + 1][i] * (int64_t)part[1],
                      lower = s->field[node[0] + 1][node[1]][i] * (one - part[1]) +
                              s->field[node[0] + 1][node[1] + 1][i] * (int64_t)part[1];
        out[i] = (int32_t)((upper / one * (one - part[0]) + lower / one * part[0]) / one);
    }
    const flim_place d = {out[0], out[1]};
    return d;
}

/* Where the steps take a place; voxel, photon: whose random numbers blur it, or blur = false. */
FLIM_HOST_DEVICE static inline flim_place flim_moved(const flim_move_step *step, int32_t n, flim_place at, int32_t h,
                                                     int32_t w, bool blur, uint32_t voxel, uint32_t photon)
{
    for (int32_t i = 0; i < n; i++) {
        const flim_move_step *s = &step[i];
        if (s->op == FLIM_TRANSFORM_ZOOM) {
            at.y = flim_zoomed(at.y, h, s->factor);
            at.x = flim_zoomed(at.x, w, s->factor);
        } else if (s->op == FLIM_TRANSFORM_ELASTIC) { /* the field says where output comes from: its inverse, by iteration */
            const flim_place from = at;
            for (int k = 0; k < 3; k++) {
                const flim_place d = flim_field_at(s, at, h, w);
                at.y = from.y - d.y;
                at.x = from.x - d.x;
            }
        } else if (blur) {
            uint32_t word[4];
            flim_random_keyed_block(s->key, voxel, photon, FLIM_DRAW_BLUR, word);
            at.y += flim_blur_reach(s, word[0]) * (1 << FLIM_PLACE_BITS);
            at.x += flim_blur_reach(s, word[1]) * (1 << FLIM_PLACE_BITS);
        }
    }
    return at;
}

/* The pixel of a place, -1 = outside the frame. */
FLIM_HOST_DEVICE static inline int32_t flim_pixel_of(flim_place at, int32_t h, int32_t w)
{
    const int32_t y = at.y >> FLIM_PLACE_BITS, x = at.x >> FLIM_PLACE_BITS;
    return y < 0 || y >= h || x < 0 || x >= w ? -1 : y * w + x;
}

/* The pixel that the centre of output pixel (y,x) comes from, -1 = from outside the frame. */
FLIM_HOST_DEVICE static inline int32_t flim_moved_from(const flim_move_step *step, int32_t n, int32_t y, int32_t x, int32_t h,
                                                       int32_t w)
{
    const int32_t half = 1 << (FLIM_PLACE_BITS - 1);
    flim_place at = {y * 2 * half + half, x * 2 * half + half};
    for (int32_t i = n - 1; i >= 0; i--) {
        const flim_move_step *s = &step[i];
        if (s->op == FLIM_TRANSFORM_ZOOM) {
            at.y = flim_zoomed(at.y, h, s->inverse);
            at.x = flim_zoomed(at.x, w, s->inverse);
        } else if (s->op == FLIM_TRANSFORM_ELASTIC) {
            const flim_place d = flim_field_at(s, at, h, w);
            at.y += d.y;
            at.x += d.x;
        }
    }
    return flim_pixel_of(at, h, w);
}

#endif

/* The arithmetic of transforms, for the loader (C) and the device cache's gather (CUDA): integers only, so that both give
 * equal bits.
 *
 * What a transform does to one cell is drawn on the host: a map from output voxels to input voxels, which all
 * symmetries and circular shifts compose into; one shift in time behind it, which may have edges and fractions; steps that
 * change counts, voxel by voxel; and steps that move photons within their bin.  A cell is read once however many steps there are.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_DATA_TRANSFORM_MATH_H
#define FLIM_DATA_TRANSFORM_MATH_H

#include "data/move_math.h"

/* Output voxel (t,y,x) takes input voxel ((t + bins) mod T, y0 + yy * y + yx * x, x0 + xy * y + xx * x). */
typedef struct flim_voxel_map {
    int32_t bins; /* 0..T-1 */
    int32_t y0, yy, yx, x0, xy, xx;
} flim_voxel_map;

/* What the bins hold that a shift leaves free. */
typedef enum flim_edge { FLIM_EDGE_CIRCULAR, FLIM_EDGE_FILL, FLIM_EDGE_ZERO } flim_edge;

/* What a transform does to one cell. */
typedef struct flim_cell_transform {
    flim_voxel_map map;
    int32_t edge; /* flim_edge */
    int32_t shift; /* bins; output bin t takes bin t - shift of the map's output */
    uint32_t fraction; /* of 2^32: the share of the photons that goes one bin further */
    uint32_t key[2]; /* of the shift */
    int32_t tail; /* FILL: how many of the last bins it draws from */
    int32_t drop_mask; /* 1: the mask is 0 everywhere */
    int32_t n_steps;
    flim_count_step step[FLIM_MAX_COUNT_STEPS + 1]; /* one for the share of a mixed cell */
    int32_t n_moves;
    flim_move_step move[FLIM_MAX_MOVE_STEPS];
    uint32_t cell; /* that goes through it */
    float share; /* of its signal in a mixture of signals; 1 unless mixed so */
} flim_cell_transform;

/* A cell as it is stored, (T,H,W). */
typedef struct flim_cell_view {
    const void *voxels;
    int32_t bytes; /* of a voxel: 1, 2: unsigned integers; 4: floats */
    int32_t t, h, w;
} flim_cell_view;

/* The input pixel of output pixel (y,x), as an index into (H,W). */
FLIM_HOST_DEVICE static inline int32_t flim_map_pixel(const flim_voxel_map *m, int32_t w, int32_t y, int32_t x)
{
    return (m->y0 + m->yy * y + m->yx * x) * w + m->x0 + m->xy * y + m->xx * x;
}

FLIM_HOST_DEVICE static inline int32_t flim_map_bin(const flim_voxel_map *m, int32_t bins, int32_t t)
{
    return t + m->bins < bins ? t + m->bins : t + m->bins - bins;
}

/* One symmetry (flim/transform.h says which) as a map. */
FLIM_HOST_DEVICE static inline flim_voxel_map flim_dihedral_map(int32_t symmetry, int32_t h, int32_t w)
{
    const int32_t exchange = symmetry >> 2 & 1, y_sign = symmetry & 2 ? -1 : 1, x_sign = symmetry & 1 ? -1 : 1;
    flim_voxel_map m = {0, 0, 0, 0, 0, 0, 0};
    m.y0 = symmetry & 2 ? h - 1 : 0;
    m.yy = exchange ? 0 : y_sign;
    m.yx = exchange ? y_sign : 0;
    m.x0 = symmetry & 1 ? w - 1 : 0;
    m.xy = exchange ? x_sign : 0;
    m.xx = exchange ? 0 : x_sign;
    return m;
}

/* first, then second: the voxel of `second`'s output comes from second's input, which is first's output. */
FLIM_HOST_DEVICE static inline flim_voxel_map flim_compose_maps(const flim_voxel_map *first, const flim_voxel_map *second,
                                                                int32_t bins)
{
    const flim_voxel_map *a = first, *b = second;
    flim_voxel_map m = {0, 0, 0, 0, 0, 0, 0};
    m.bins = flim_map_bin(a, bins, b->bins);
    m.y0 = a->y0 + a->yy * b->y0 + a->yx * b->x0;
    m.yy = a->yy * b->yy + a->yx * b->xy;
    m.yx = a->yy * b->yx + a->yx * b->xx;
    m.x0 = a->x0 + a->xy * b->y0 + a->xx * b->x0;
    m.xy = a->xy * b->yy + a->xx * b->xy;
    m.xx = a->xy * b->yx + a->xx * b->xx;
    return m;
}

/* Whether each output voxel is a copy of an input voxel, or zero: then any values may go through it. */
FLIM_HOST_DEVICE static inline bool flim_cell_only_copies(const flim_cell_transform *c)
{
    return c->n_steps == 0 && c->fraction == 0 && c->n_moves == 0;
}

/* Bin `bin` (which may lie outside 0..T-1) of the map's output, at the input pixel `pixel`: the index of the voxel that gives
 * its count, -1 = none; *voxel: the number that it draws by, which bins that are filled have for themselves. */
FLIM_HOST_DEVICE static inline int64_t flim_cell_source(const flim_cell_transform *c, int32_t bins, int32_t pixels,
                                                        int32_t bin, int32_t pixel, uint32_t *voxel)
{
    const bool outside = bin < 0 || bin >= bins;
    if (outside && c->edge == FLIM_EDGE_CIRCULAR) {
        bin = bin < 0 ? bin + bins : bin - bins;
    } else if (outside) {
        uint32_t word[4];
        if (c->edge == FLIM_EDGE_ZERO) {
            *voxel = 0;
            return -1;
        }
        *voxel = (uint32_t)((int64_t)bin * pixels + pixel);
        flim_random_keyed_block(c->key, *voxel, 0, FLIM_DRAW_TAIL, word);
        bin = bins - 1 - (int32_t)((uint64_t)word[0] * (uint32_t)c->tail >> 32);
        return (int64_t)flim_map_bin(&c->map, bins, bin) * pixels + pixel;
    }
    const int64_t at = (int64_t)flim_map_bin(&c->map, bins, bin) * pixels + pixel;
    *voxel = (uint32_t)at;
    return at;
}

FLIM_HOST_DEVICE static inline uint32_t flim_photons_at(const flim_cell_view *cell, int64_t at)
{
    return cell->bytes == 1   ? ((const uint8_t *)cell->voxels)[at]
           : cell->bytes == 2 ? ((const uint16_t *)cell->voxels)[at]
                              : (uint32_t)((const float *)cell->voxels)[at];
}

/* The photons of that bin after all steps. */
FLIM_HOST_DEVICE static inline uint32_t flim_cell_bin(const flim_cell_transform *c, const flim_cell_view *cell, int32_t bin,
                                                      int32_t pixel, bool in_mask, uint32_t *voxel)
{
    const int64_t at = flim_cell_source(c, cell->t, cell->h * cell->w, bin, pixel, voxel);
    if (at < 0) {
        return 0;
    }
    uint32_t n = flim_photons_at(cell, at);
    for (int32_t i = 0; i < c->n_steps; i++) {
        n = flim_count_after(&c->step[i], n, *voxel, in_mask);
    }
    return n;
}

/* The photons of output bin t at the input pixel `pixel` = flim_map_pixel of the output pixel; in_mask: whether that is. */
FLIM_HOST_DEVICE static inline uint32_t flim_cell_photons(const flim_cell_transform *c, const flim_cell_view *cell, int32_t t,
                                                          int32_t pixel, bool in_mask)
{
    uint32_t voxel;
    uint32_t n = flim_cell_bin(c, cell, t - c->shift, pixel, in_mask, &voxel);
    if (c->fraction != 0) { /* some went on to the next bin, some came from the one before */
        n -= n ? flim_draw_binomial(n, c->fraction, c->key, voxel, FLIM_DRAW_SPLIT) : 0;
        const uint32_t before = flim_cell_bin(c, cell, t - c->shift - 1, pixel, in_mask, &voxel);
        n += before ? flim_draw_binomial(before, c->fraction, c->key, voxel, FLIM_DRAW_SPLIT) : 0;
    }
    return n < FLIM_MOST_PHOTONS ? n : FLIM_MOST_PHOTONS;
}

/* The mask of output pixel (y,x), dropped or not; mask: (H,W) of the cell as it is stored. */
FLIM_HOST_DEVICE static inline bool flim_cell_mask(const flim_cell_transform *c, const uint8_t *mask, int32_t h, int32_t w,
                                                   int32_t y, int32_t x)
{
    const int32_t from = c->n_moves ? flim_moved_from(c->move, c->n_moves, y, x, h, w) : y * w + x;
    return from >= 0 && mask[flim_map_pixel(&c->map, w, from / w, from % w)] != 0;
}

/* The pixel that photon number `photon` of the voxel (t,y,x) ahead of the moves goes to, -1 = it is lost.  in_mask: whether
 * (y,x) is. */
FLIM_HOST_DEVICE static inline int32_t flim_photon_goes_to(const flim_cell_transform *c, const uint8_t *mask, int32_t h,
                                                           int32_t w, int32_t t, int32_t y, int32_t x, bool in_mask,
                                                           uint32_t photon)
{
    const uint32_t voxel = (uint32_t)(((int64_t)t * h + y) * w + x);
    const int32_t one = 1 << FLIM_PLACE_BITS;
    uint32_t word[4];
    flim_random_keyed_block(c->move[0].key, voxel, photon, FLIM_DRAW_PLACE, word);
    for (int attempt = 0; attempt < 2; attempt++) { /* as drawn, then as the centre of the pixel goes */
        flim_place at = {y * one + one / 2, x * one + one / 2};
        if (attempt == 0) {
            at.y = y * one + (int32_t)(word[0] >> (32 - FLIM_PLACE_BITS));
            at.x = x * one + (int32_t)(word[1] >> (32 - FLIM_PLACE_BITS));
        }
        const int32_t to = flim_pixel_of(flim_moved(c->move, c->n_moves, at, h, w, attempt == 0, voxel, photon), h, w);
        if (to >= 0 && (!in_mask || flim_cell_mask(c, mask, h, w, to / w, to % w))) {
            return to;
        }
    }
    return -1;
}

#endif

/* The arithmetic of transforms, for the loader (C) and the device cache's gather (CUDA): integers only, so that both give
 * equal bits.
 *
 * All operations so far are index maps: an output voxel takes the value of one input voxel.  The steps of a cell compose into
 * one map, so that a cell is read once however many steps there are.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_DATA_TRANSFORM_MATH_H
#define FLIM_DATA_TRANSFORM_MATH_H

#include <stdbool.h>

#include "core/random_block.h"
#include "flim/transform.h"

/* A checked transform of cells of one shape, as integers. */
typedef struct flim_transform_table {
    int32_t n, t, h, w;
    struct {
        int32_t op, low;
        uint32_t count; /* of the numbers that can be drawn: low..low + count - 1 */
        uint64_t below; /* the step acts if word 0 is below this: 0..2^32 */
    } step[FLIM_MAX_TRANSFORM_STEPS];
} flim_transform_table;

/* Output voxel (t,y,x) takes input voxel ((t + bins) mod T, y0 + yy * y + yx * x, x0 + xy * y + xx * x). */
typedef struct flim_voxel_map {
    int32_t bins; /* 0..T-1 */
    int32_t y0, yy, yx, x0, xy, xx;
} flim_voxel_map;

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

/* All steps of one cell as one map. */
FLIM_HOST_DEVICE static inline flim_voxel_map flim_transform_map(const flim_transform_table *table, const flim_cell_id *id)
{
    flim_voxel_map map = flim_dihedral_map(0, table->h, table->w);
    for (int32_t s = 0; s < table->n; s++) {
        uint32_t word[4];
        flim_random_block_of(id, FLIM_RANDOM_AUGMENT, (uint32_t)s, word);
        if (word[0] >= table->step[s].below) {
            continue;
        }
        const int32_t drawn = table->step[s].low + (int32_t)((uint64_t)word[1] * table->step[s].count >> 32);
        const bool shift = table->step[s].op == FLIM_TRANSFORM_TIME_SHIFT;
        flim_voxel_map step = flim_dihedral_map(shift ? 0 : drawn, table->h, table->w);
        if (shift) {
            const int32_t back = -drawn % table->t; /* output bin t takes input bin t - shift */
            step.bins = back < 0 ? back + table->t : back;
        }
        map = flim_compose_maps(&map, &step, table->t);
    }
    return map;
}

#endif

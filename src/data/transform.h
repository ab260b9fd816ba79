/* Transforms on the host: their tables, and what they draw for a cell. */
#ifndef FLIM_DATA_TRANSFORM_H
#define FLIM_DATA_TRANSFORM_H

#include "data/transform_math.h"
#include "flim/batch.h"

/* An operation: its name, and the numbers that it can draw. */
typedef struct flim_transform_info {
    const char *name, *unit;
    double least, most; /* equal: it draws none */
    double usual_low, usual_high; /* the range if none is given; usual_low > usual_high: one must be */
    bool whole; /* whole numbers */
    bool alone; /* one of these at most */
    bool photons; /* works on single photons: other counts cannot go through it */
    bool changes; /* counts, voxel by voxel */
    bool moves; /* photons within their bin */
    bool not_physical; /* no exposure of a photon counter gives what it makes */
} flim_transform_info;
extern const flim_transform_info flim_transform_ops[FLIM_TRANSFORM_OPS];

/* A checked transform of cells of one shape. */
typedef struct flim_transform_table {
    int32_t n, t, h, w;
    bool counts_photons; /* a step asks for the photons of a cell */
    bool moves; /* a step moves photons */
    const char *needs_photons; /* flim_transform_needs_photons; NULL = any counts will do */
    struct {
        int32_t op;
        uint64_t below; /* the step acts if word 0 is below this: 0..2^32 */
        double low, high;
    } step[FLIM_MAX_TRANSFORM_STEPS];
} flim_transform_table;

/* Checks a transform of cells of (t,h,w) as flim_transform_check does. */
flim_status flim_transform_compile(const flim_transform *transform, int t, int h, int w, flim_transform_table *out,
                                   flim_error *err);

/* What the table does to the cell `id`; photons: the sum of its counts, if counts_photons. */
void flim_transform_draw(const flim_transform_table *table, const flim_cell_id *id, uint64_t photons,
                         flim_cell_transform *out);

/* Both parts of a mixed cell: what the table does to `id` and to its partner, for which photons has the sums of the counts.
 * Returns the parts that there are: 1 if the cell stays alone. */
int flim_transform_draw_mixed(const flim_transform_table *table, const flim_cell_id *id, const flim_mix *mix, flim_mix_of of,
                              const uint64_t photons[2], flim_cell_transform out[2]);

/* FLIM_ERROR_DATA if counts (n) are none that what `needs` names can work on; the text is without the cell's name. */
flim_status flim_transform_check_photons(const char *needs, const float *counts, int64_t n, flim_error *err);
uint64_t flim_sum_of_photons(const float *counts, int64_t n);

/* Changes a cell as drawn: counts (T,H,W) -> out (T,H,W), mask (H,W) -> mask_out (H,W), without overlap. */
void flim_cell_apply(const flim_cell_transform *drawn, int t, int h, int w, const float *counts, const uint8_t *mask,
                     float *out, uint8_t *mask_out);

/* Applies a table to the cell `id`: counts (T,H,W) -> out (T,H,W), mask (H,W) -> mask_out (H,W).  Input and output must not
 * overlap.  FLIM_ERROR_DATA if a step needs photons and the counts are none; the text is without the cell's name. */
flim_status flim_transform_apply(const flim_transform_table *table, const flim_cell_id *id, const float *counts,
                                 const uint8_t *mask, float *out, uint8_t *mask_out, flim_error *err);

/* What a step needs that cells of a file do not have: "cell 7 of a.h5 ..." for messages.  The text of a FLIM_ERROR_DATA. */
#define FLIM_NO_PHOTONS                                                                                                      \
    "counts that are not whole numbers up to 65535, which %s needs: it moves or removes single photons; leave it out (of "   \
    "--augment symmetry, shift, shift_fill, shift_zero and mask_drop take any counts, and --mixup input does)"

#endif

/* Transforms on the host, and their tables for both sides. */
#ifndef FLIM_DATA_TRANSFORM_H
#define FLIM_DATA_TRANSFORM_H

#include "data/transform_math.h"

/* Checks a transform of cells of (t,h,w) as flim_transform_check does and turns it into integers. */
flim_status flim_transform_compile(const flim_transform *transform, int t, int h, int w, flim_transform_table *out,
                                   flim_error *err);

/* Applies a table to the cell `id`: counts (T,H,W) -> out (T,H,W), mask (H,W) -> mask_out (H,W).  Input and output must not
 * overlap. */
void flim_transform_apply(const flim_transform_table *table, const flim_cell_id *id, const float *counts, const uint8_t *mask,
                          float *out, uint8_t *mask_out);

#endif

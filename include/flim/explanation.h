/* Where networks look: what each cell's logits lose when photons are taken away, block by block (occlusion; Zeiler & Fergus, ECCV
 * 2014).
 *
 * For: predict --explain, which writes the file (docs/file-format.md), and fold_metrics --html, which shows it.
 *      effect(block) = z(cell) - z(cell without the photons of the block), z a logit: positive where the photons of the block speak
 *      for the class.  A time block is taken from all pixels; a pixel block is taken at all times and leaves the mask, too.
 * Owns: the arrays; flim_explanation_free.
 * Errors: FLIM_ERROR_USAGE for sizes that make no blocks; FLIM_ERROR_DATA for a file that is none of these; FLIM_ERROR_WRITE.
 */
#ifndef FLIM_EXPLANATION_H
#define FLIM_EXPLANATION_H

#include <stdint.h>

#include "flim/status.h"

typedef struct flim_explanation {
    int models, outputs; /* M, K': one logit for two classes (of class 1), else one per class */
    int64_t n; /* cells */
    int t_blocks, y_blocks, x_blocks; /* BT, BY, BX */
    int32_t *t_edge, *y_edge, *x_edge; /* (BT+1), (BY+1), (BX+1): block b is [edge[b], edge[b + 1]) */
    int64_t *cell; /* (n) number in the data */
    int32_t *fold; /* (M) that the model was trained in; -1 = not known */
    char (*splits)[65]; /* (M) SHA-256 of the splits that it belongs to; "" = not known */
    float *logits; /* (M,n,K') of the whole cell */
    float *time; /* (M,n,BT,K') effects of time blocks */
    float *space; /* (M,n,BY,BX,K') effects of pixel blocks */
    char data_sha256[65]; /* as flim_dataset_sha256 */
} flim_explanation;

/* Blocks of `bins` time bins and pixels x pixels pixels of cells (t,h,w); the last ones may be smaller.  Cells, logits and effects
 * are zero. */
flim_status flim_explanation_create(int models, int outputs, int64_t n, int t, int h, int w, int64_t bins, int64_t pixels,
                                    flim_explanation *out, flim_error *err);
void flim_explanation_free(flim_explanation *explanation); /* zeroed is allowed */

/* The bytes of an HDF5 file, the caller's (flim_free). */
flim_status flim_explanation_encode(const flim_explanation *explanation, void **bytes, size_t *count, flim_error *err);
flim_status flim_explanation_read(const char *path, flim_explanation *out, flim_error *err);

#endif

/* What a loss over the batch is computed from: cosine similarities of the cells' outputs, for C and CUDA.
 *
 * With e_i = x_i / |x_i| the similarity of cells i and j is e_i . e_j / temperature.  A loss takes the row of a cell, in which
 * cells that are not compared stand at FLIM_NOT_COMPARED, and gives its slopes G(i,j); then
 *   d loss / d e_i = sum over j of (G(i,j) + G(j,i)) e_j / temperature
 *   d loss / d x_i = (d e_i - (d e_i . e_i) e_i) / |x_i|.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_BACKEND_SIMILARITY_H
#define FLIM_BACKEND_SIMILARITY_H

#include "backend/loss.h"

#define FLIM_NOT_COMPARED (-1e30f)
#define FLIM_LEAST_NORM 1e-12 /* of a cell's outputs, which a division then survives */

/* The cell that cell i of n is to be found among: -1 = none. */
FLIM_LOSS_FUNCTION int64_t flim_partner_of(int64_t i, int64_t n)
{
    return (i ^ 1) < n ? i ^ 1 : -1;
}

/* Whether cell i is compared with cell j. */
FLIM_LOSS_FUNCTION bool flim_is_compared(flim_loss loss, const int32_t *label, int64_t i, int64_t j)
{
    return i != j && (loss != FLIM_LOSS_CONTRASTIVE_CLASS || (i ^ 1) == j || label[i] != label[j]);
}

#endif

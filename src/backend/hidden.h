/* Hidden voxels in a loss: what a voxel is to it, and the rate that needs no network, for C and CUDA.
 *
 * The baseline of a cell is its mean decay times the pixel's intensity, both from what is seen:
 *   mean     m = (N + 1/2) / V                      of N photons in V seen voxels
 *   decay    d(t) = (A(t) + 1) / (m V(t) + 1)       of A photons in V seen voxels of a bin; a bin that is hidden everywhere
 *                                                   takes the straight line between its nearest neighbours that are not
 *   pixel    g(p) = (B(p) + 1) / (m sum of d(t) over the bins seen at p + 1)
 *   rate     m d(t) g(p).
 * The photon that each factor adds at the rate expected keeps every rate above 0.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_BACKEND_HIDDEN_H
#define FLIM_BACKEND_HIDDEN_H

#include <math.h>

#include "backend/loss.h"

/* A voxel in a plane of floats: its photons where it is hidden, minus those minus 1 where it is seen inside the mask, and this
 * outside of it. */
#define FLIM_VOXEL_OUTSIDE (-1e30f)

/* Photons of a signal log1p(counts) / 10. */
FLIM_LOSS_FUNCTION double flim_photons_of(float signal)
{
    return rint(expm1(10.0 * (double)signal));
}

FLIM_LOSS_FUNCTION float flim_voxel_of(float signal, int inside, int hidden)
{
    const float photons = (float)flim_photons_of(signal);
    return hidden ? photons : inside ? -1.0f - photons : FLIM_VOXEL_OUTSIDE;
}

/* What a loss over hidden voxels compares y with. */
FLIM_LOSS_FUNCTION double flim_hidden_target(flim_loss loss, float voxel)
{
    return loss == FLIM_LOSS_HIDDEN_POISSON ? (double)voxel : log1p((double)voxel) / 10.0;
}

FLIM_LOSS_FUNCTION double flim_baseline_mean(double photons, double voxels)
{
    return voxels > 0.0 ? (photons + 0.5) / voxels : 0.5;
}

/* Of a bin or a pixel that gave so many photons where `expected` were: 1 where nothing is seen. */
FLIM_LOSS_FUNCTION double flim_baseline_factor(double photons, double expected)
{
    return (photons + 1.0) / (expected + 1.0);
}

/* The factor of a bin that is hidden everywhere, `before` and `after` bins from those that are not; 0 = there is none. */
FLIM_LOSS_FUNCTION double flim_baseline_between(double factor_before, int before, double factor_after, int after)
{
    return before == 0 && after == 0 ? 1.0
           : before == 0             ? factor_after
           : after == 0              ? factor_before
                                     : (factor_before * after + factor_after * before) / (double)(before + after);
}

/* - log likelihood of n photons at a rate, without log n!. */
FLIM_LOSS_FUNCTION double flim_poisson_loss(double rate, double photons)
{
    return rate - photons * log(rate);
}

#endif

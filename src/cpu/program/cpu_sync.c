#include "cpu/program/cpu_sync.h"

#include <string.h>

#include "core/try.h"

bool flim_cpu_is_synced(const flim_cpu_program *p)
{
    return p->base.options.sync_batchnorm && flim_ranks_size(p->base.options.ranks) > 1;
}

/* Moments of two batches as one, in place of the first's; Chan, Golub, LeVeque, The American Statistician 37, 1983, eq. 2.1. */
static void merge(double *moments, const double *other, int channels)
{
    const double n = moments[0], m = other[0];
    if (m == 0.0) {
        return;
    }
    if (n == 0.0) {
        memcpy(moments, other, flim_cpu_moment_doubles(channels) * sizeof *moments);
        return;
    }
    for (int c = 0; c < channels; c++) {
        const double delta = other[1 + c] - moments[1 + c];
        moments[1 + c] += delta * m / (n + m);
        moments[1 + channels + c] += other[1 + channels + c] + delta * delta * n * m / (n + m);
    }
    moments[0] = n + m;
}

/* What each rank has, (ranks,count). */
static flim_status gather(flim_cpu_program *p, size_t count, flim_error *err)
{
    return flim_ranks_gather(p->base.options.ranks, p->own, count * sizeof *p->own, p->of_ranks, err);
}

flim_status flim_cpu_sync_moments(flim_cpu_program *p, int channels, const double **out, flim_error *err)
{
    const size_t count = flim_cpu_moment_doubles(channels);
    *out = p->own;
    if (!flim_cpu_is_synced(p)) {
        return FLIM_OK;
    }
    FLIM_TRY(gather(p, count, err));
    for (int r = 1; r < flim_ranks_size(p->base.options.ranks); r++) {
        merge(p->of_ranks, p->of_ranks + (size_t)r * count, channels);
    }
    *out = p->of_ranks;
    return FLIM_OK;
}

flim_status flim_cpu_sync_sums(flim_cpu_program *p, size_t count, const double **out, flim_error *err)
{
    *out = p->own;
    if (!flim_cpu_is_synced(p)) {
        return FLIM_OK;
    }
    FLIM_TRY(gather(p, count, err));
    for (int r = 1; r < flim_ranks_size(p->base.options.ranks); r++) {
        for (size_t i = 0; i < count; i++) {
            p->of_ranks[i] += p->of_ranks[(size_t)r * count + i];
        }
    }
    *out = p->of_ranks;
    return FLIM_OK;
}

#include "cpu/layers/cpu_hidden.h"

#include <string.h>

#include "backend/hidden.h"

/* Of bins (T) and pixels (H,W): seen photons and voxels, and the baseline's factor. */
typedef struct margins {
    double *bin_photons, *bin_voxels, *bin_factor;
    double *pixel_photons, *pixel_expected;
    double mean;
} margins;

size_t flim_cpu_hidden_work(int bins, size_t plane)
{
    return 3 * (size_t)bins + 2 * plane;
}

/* Seen photons and voxels; the photons of the hidden voxels into *out. */
static void count(const flim_cpu_dense *d, margins *m, flim_hidden_totals *out)
{
    double photons = 0.0, voxels = 0.0;
    for (size_t i = 0; i < d->bins * d->plane; i++) {
        const size_t t = i / d->plane, p = i % d->plane;
        if (d->mask[p] == 0) {
            continue;
        }
        const double n = flim_photons_of(d->signal[i]);
        if (d->hidden[i] != 0) {
            out->voxels += 1.0;
            out->photons += n;
        } else {
            m->bin_photons[t] += n;
            m->bin_voxels[t] += 1.0;
            m->pixel_photons[p] += n;
            photons += n;
            voxels += 1.0;
        }
    }
    m->mean = flim_baseline_mean(photons, voxels);
}

static void find_bin_factors(const flim_cpu_dense *d, const margins *m)
{
    const int bins = (int)d->bins;
    for (int t = 0; t < bins; t++) {
        m->bin_factor[t] = flim_baseline_factor(m->bin_photons[t], m->mean * m->bin_voxels[t]);
    }
    for (int t = 0, before = -1, after = 0; t < bins; t++) {
        if (m->bin_voxels[t] > 0.0) {
            before = t;
            continue;
        }
        for (after = after > t ? after : t; after < bins && m->bin_voxels[after] == 0.0; after++) {
        }
        m->bin_factor[t] = flim_baseline_between(before >= 0 ? m->bin_factor[before] : 0.0, before >= 0 ? t - before : 0,
                                                 after < bins ? m->bin_factor[after] : 0.0, after < bins ? after - t : 0);
    }
}

flim_hidden_totals flim_cpu_hidden_sums(const flim_cpu_dense *d, double *work)
{
    flim_hidden_totals out = {0};
    margins m = {.bin_photons = work, .bin_voxels = work + d->bins, .bin_factor = work + 2 * d->bins};
    m.pixel_photons = work + 3 * d->bins;
    m.pixel_expected = m.pixel_photons + d->plane;
    memset(work, 0, flim_cpu_hidden_work((int)d->bins, d->plane) * sizeof *work);
    count(d, &m, &out);
    find_bin_factors(d, &m);
    for (size_t i = 0; i < d->bins * d->plane; i++) {
        const size_t p = i % d->plane;
        m.pixel_expected[p] += d->mask[p] != 0 && d->hidden[i] == 0 ? m.mean * m.bin_factor[i / d->plane] : 0.0;
    }
    for (size_t i = 0; i < d->bins * d->plane; i++) {
        const size_t p = i % d->plane;
        if (d->hidden[i] != 0) {
            const float voxel = flim_voxel_of(d->signal[i], 1, 1);
            const flim_target target = {.signal = flim_hidden_target(d->head->loss, voxel)};
            const double rate =
                m.mean * m.bin_factor[i / d->plane] * flim_baseline_factor(m.pixel_photons[p], m.pixel_expected[p]);
            double norm[FLIM_LOSS_NORMS] = {0};
            out.loss += flim_loss_of(d->head->loss, &d->y[i], 1, &target, norm);
            out.baseline += flim_poisson_loss(rate, (double)voxel);
        }
    }
    return out;
}

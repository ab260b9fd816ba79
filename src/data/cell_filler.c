#include "data/cell_filler.h"

#include "core/alloc.h"
#include "core/try.h"
#include "data/dataset_internal.h"

flim_status flim_cell_filler_create(flim_dataset *dataset, flim_cell_filler *out, flim_error *err)
{
    *out = (flim_cell_filler){.dataset = dataset};
    return flim_reader_create(dataset, &out->reader, err);
}

void flim_cell_filler_free(flim_cell_filler *f)
{
    flim_reader_destroy(f->reader);
    flim_free(f->counts);
    flim_free(f->mask);
    flim_free(f->partner);
    flim_free(f->partner_mask);
    *f = (flim_cell_filler){0};
}

static flim_status take(float **voxels, uint8_t **pixels, const flim_dataset *d, flim_error *err)
{
    return (*voxels || (*voxels = flim_alloc_aligned((size_t)d->voxels, sizeof **voxels, err))) &&
                   (*pixels || (*pixels = flim_alloc_aligned((size_t)d->pixels, 1, err)))
               ? FLIM_OK
               : FLIM_ERROR_MEMORY;
}

flim_status flim_cell_filler_prepare(flim_cell_filler *f, bool transforms, bool mixes, flim_error *err)
{
    FLIM_TRY(transforms || mixes ? take(&f->counts, &f->mask, f->dataset, err) : FLIM_OK);
    return mixes ? take(&f->partner, &f->partner_mask, f->dataset, err) : FLIM_OK;
}

/* "a.h5: /counts: cell 7: " before the error. */
static flim_status name_cell(const flim_dataset *d, int64_t cell, flim_error *err)
{
    int64_t local;
    const char *path = flim_dataset_path_of(d, cell, &local);
    return flim_fail_prefix(err, "%s: /counts: cell %lld: ", path, (long long)local);
}

/* A cell's counts into f->counts and f->mask, and their sum if the table asks for it. */
static flim_status read_photons(flim_cell_filler *f, uint32_t cell, const char *needs, bool sum, uint64_t *photons,
                                flim_error *err)
{
    const flim_dataset *d = f->dataset;
    FLIM_TRY(flim_reader_counts(f->reader, cell, f->counts, f->mask, err));
    if (flim_transform_check_photons(needs, f->counts, d->voxels, err) != FLIM_OK) {
        return name_cell(d, cell, err);
    }
    *photons = sum ? flim_sum_of_photons(f->counts, d->voxels) : 0;
    return FLIM_OK;
}

static void add_counts(const float *other, int64_t n, float *signal)
{
    for (int64_t i = 0; i < n; i++) {
        const float sum = signal[i] + other[i];
        signal[i] = sum < (float)FLIM_MOST_PHOTONS ? sum : (float)FLIM_MOST_PHOTONS;
    }
    flim_signal_from_counts(signal, signal, n);
}

static void add_signals(float *other, const flim_cell_transform drawn[2], int64_t n, float *signal)
{
    flim_signal_from_counts(signal, signal, n);
    flim_signal_from_counts(other, other, n);
    for (int64_t i = 0; i < n; i++) { /* two roundings and a sum, as on the device */
        const float a = drawn[0].share * signal[i], b = drawn[1].share * other[i];
        signal[i] = a + b;
    }
}

/* A cell and its partner, each transformed, as one. */
static flim_status fill_mixed(flim_cell_filler *f, const flim_transform_table *table, const flim_cell_id *id,
                              const flim_mix *mix, flim_mix_of of, float *signal, uint8_t *mask, flim_error *err)
{
    const flim_dataset *d = f->dataset;
    const char *needs = of == FLIM_MIX_COUNTS ? "--mixup counts" : table->needs_photons;
    uint64_t photons[2] = {0};
    flim_cell_transform drawn[2];
    FLIM_TRY(read_photons(f, mix->cell, needs, table->counts_photons, &photons[1], err));
    (void)flim_transform_draw_mixed(table, id, mix, of, photons, drawn);
    flim_cell_apply(&drawn[1], table->t, table->h, table->w, f->counts, f->mask, f->partner, f->partner_mask);
    FLIM_TRY(read_photons(f, id->cell, needs, table->counts_photons, &photons[0], err));
    (void)flim_transform_draw_mixed(table, id, mix, of, photons, drawn);
    flim_cell_apply(&drawn[0], table->t, table->h, table->w, f->counts, f->mask, signal, mask);
    if (of == FLIM_MIX_COUNTS) {
        add_counts(f->partner, d->voxels, signal);
    } else {
        add_signals(f->partner, drawn, d->voxels, signal);
    }
    for (int64_t i = 0; i < d->pixels; i++) {
        mask[i] |= f->partner_mask[i];
    }
    return FLIM_OK;
}

flim_status flim_cell_fill(flim_cell_filler *f, const flim_transform_table *table, const flim_batch *batch, int64_t at,
                           flim_error *err)
{
    const flim_dataset *d = f->dataset;
    const flim_cell_id *id = &batch->id[at];
    float *signal = batch->signal + at * d->voxels; /* (T,H,W) */
    uint8_t *mask = batch->mask + at * d->pixels; /* (H,W) */
    if (batch->mix && batch->mix[at].share > 0) {
        return fill_mixed(f, table, id, &batch->mix[at], batch->mix_of, signal, mask, err);
    }
    if (table->n == 0) {
        return flim_reader_signal(f->reader, id->cell, signal, mask, err);
    }
    FLIM_TRY(flim_reader_counts(f->reader, id->cell, f->counts, f->mask, err));
    if (flim_transform_apply(table, id, f->counts, f->mask, signal, mask, err) != FLIM_OK) {
        return name_cell(d, id->cell, err);
    }
    flim_signal_from_counts(signal, signal, d->voxels);
    return FLIM_OK;
}

void flim_mix_target(const flim_dataset *d, float smoothing, const flim_batch *batch, int64_t at)
{
    const int classes = d->info.classes;
    const flim_mix *mix = &batch->mix[at];
    const float rest = smoothing / (float)classes;
    float *target = batch->target + at * classes; /* (K) */
    const int32_t own = d->label[batch->id[at].cell], other = d->label[mix->cell];
    for (int k = 0; k < classes; k++) {
        const float share = (k == own ? 1.0f - mix->share : 0.0f) + (k == other ? mix->share : 0.0f);
        target[k] = (1.0f - smoothing) * share + rest;
    }
    batch->label[at] = mix->share > 0.5f ? other : own;
}

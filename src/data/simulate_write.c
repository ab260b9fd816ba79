/* A simulation as a data file. */
#include "data/simulate_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "core/try.h"
#include "flim/dataset_writer.h"

static flim_status write_cells(const flim_simulation *sim, flim_dataset_writer *writer, uint16_t *counts, uint8_t *mask,
                               const volatile int *stop, flim_simulation_totals *totals, flim_error *err)
{
    const flim_simulate_options *o = &sim->info.options;
    int64_t pixels = (int64_t)o->height * o->width, voxels = o->bins * pixels;
    for (int64_t cell = 0; cell < o->cells; cell++) {
        if (flim_stopped(stop)) {
            return flim_fail(err, FLIM_INTERRUPTED, "stopped after %" PRId64 " of %" PRId64 " cells", cell, o->cells);
        }
        FLIM_TRY(flim_simulation_cell(sim, cell, counts, mask, err));
        FLIM_TRY(flim_dataset_writer_cell(writer, cell, counts, mask, err));
        for (int64_t v = 0; v < voxels; v++) {
            totals->zero_voxels += counts[v] == 0;
            totals->photons += counts[v];
        }
        for (int64_t p = 0; p < pixels; p++) {
            totals->mask_pixels += mask[p];
        }
        totals->voxels += voxels;
    }
    return FLIM_OK;
}

const char *const flim_signal_names[] = {"share", "pattern", NULL};
const char *const flim_confound_names[] = {"none", "brightness", "size", NULL};

flim_status flim_simulation_write(const flim_simulation *sim, const char *path, const volatile int *stop,
                                  flim_simulation_totals *totals, flim_error *err)
{
    const flim_simulate_options *o = &sim->info.options;
    size_t cells = (size_t)o->cells, pixels = (size_t)o->height * (size_t)o->width;
    flim_simulation_totals ours = {0};
    flim_dataset_writer *writer = NULL;
    char note[768];
    snprintf(note, sizeof note,
             "Simulated by flim_simulate --cells %" PRId64 " --donors %d --classes %d --bins %d --height %d --width %d "
             "--photons %.17g --separation %.17g --signal %s --confound %s --donor-t0 %.17g --donor-brightness %.17g "
             "--donor-background %.17g --seed %" PRIu64,
             o->cells, o->donors, o->classes, o->bins, o->height, o->width, o->photons, o->separation,
             flim_signal_names[o->signal], flim_confound_names[o->confound], o->donor_t0_bins, o->donor_brightness,
             o->donor_background, o->seed);
    flim_status status = FLIM_ERROR_MEMORY;
    uint16_t *counts = flim_alloc((size_t)o->bins * pixels, sizeof *counts, err);
    uint8_t *mask = counts ? flim_alloc(pixels, 1, err) : NULL;
    const char **group = mask ? flim_alloc(cells, sizeof *group, err) : NULL;
    const char **name = group ? flim_alloc(cells, sizeof *name, err) : NULL;
    char(*text)[48] = name ? flim_alloc(cells, sizeof *text, err) : NULL;
    if (!text) {
        goto done;
    }
    for (size_t i = 0; i < cells; i++) {
        group[i] = sim->donor_name[sim->donor[i]];
        int64_t number = (int64_t)i - flim_sim_first_cell(o, sim->donor[i]) + 1;
        snprintf(text[i], sizeof text[i], "%s_c%05" PRId64, group[i], number);
        name[i] = text[i];
    }
    flim_dataset_layout layout = {.n = o->cells,
                                  .t = o->bins,
                                  .h = o->height,
                                  .w = o->width,
                                  .count_bytes = 2,
                                  .mask = true,
                                  .classes = o->classes,
                                  .class_name = sim->info.class_name,
                                  .label = sim->label,
                                  .group = group,
                                  .name = name,
                                  .time_range_ns = period_ns,
                                  .note = note};
    FLIM_TRY_DONE(flim_dataset_writer_create(path, &layout, &writer, err));
    FLIM_TRY_DONE(write_cells(sim, writer, counts, mask, stop, &ours, err));
    FLIM_TRY_DONE(flim_dataset_writer_finish(writer, err));
    if (totals) {
        *totals = ours;
    }
done:
    flim_dataset_writer_destroy(writer);
    flim_free(counts);
    flim_free(mask);
    flim_free(group);
    flim_free(name);
    flim_free(text);
    return status;
}

/* What is odd in the cells: no photons, no counts, clipped counts; and what may tell the classes instead of a lifetime. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/spelling.h"
#include "core/try.h"
#include "core/text.h"
#include "data/cell_values.h"
#include "data/dataset_internal.h"
#include "data/findings.h"

enum { SHOWN = 4, NAME_TEXT = 48 };

/* The cells of `found` as a finding, if there are any; format: of the number of cells and that of all. */
#define ADD_CELLS(kind, found, format)                                                                                       \
    FLIM_TRY((found).count == 0 ? FLIM_OK                                                                                    \
                                : flim_findings_add(out, kind, FLIM_FINDING_WARNING, &(found), err, format, (found).count,   \
                                                    n, flim_verb((found).count, "has", "have")))

static flim_status find_photons(const flim_dataset *d, const flim_cell_summary *summary, flim_findings *out, flim_error *err)
{
    const int64_t n = d->info.n;
    flim_found dark = {0}, bare = {0}, outside = {0}, full = {0};
    for (int64_t i = 0; i < n; i++) {
        const flim_cell_summary *s = &summary[i];
        if (isnan(s->stored_photons)) {
            continue; /* a cell that cannot be read is an error of its own */
        }
        if (s->stored_photons == 0) {
            flim_found_cell(&dark, i);
        } else if (d->mask && s->mask_pixels == 0) {
            flim_found_cell(&bare, i);
        } else if (d->mask && s->inside[FLIM_MASK_AS_IT_IS] == 0.0f) {
            flim_found_cell(&outside, i);
        }
        if (s->max_count >= flim_largest_count(d, i)) {
            flim_found_cell(&full, i);
        }
    }
    if (dark.count == n) {
        return flim_findings_add(
            out, FLIM_FINDING_NO_PHOTONS, FLIM_FINDING_ERROR, &dark, err,
            "none of the %" PRId64
            " cells has a photon: /counts is zero everywhere, expected counts; was the file written completely?",
            n);
    }
    ADD_CELLS(FLIM_FINDING_NO_PHOTONS, dark,
              "%" PRId64 " of %" PRId64 " cells %s no photons: nothing can be learned from them; exclude them");
    ADD_CELLS(FLIM_FINDING_NO_MASK, bare, "%" PRId64 " of %" PRId64 " cells %s an empty mask, although there are photons");
    ADD_CELLS(FLIM_FINDING_PHOTONS_OUTSIDE, outside,
              "%" PRId64 " of %" PRId64 " cells %s photons outside of the mask only: is it the mask of another cell?");
    if (full.count) {
        FLIM_TRY(flim_findings_add(out, FLIM_FINDING_SATURATED, FLIM_FINDING_WARNING, &full, err,
                                   "%" PRId64 " of %" PRId64
                                   " cells %s voxels at the largest number that %s can hold: they may be clipped",
                                   full.count, n, flim_verb(full.count, "has", "have"), d->info.counts_type));
    }
    return FLIM_OK;
}

/* Numbers that are no counts: what most of the cells that have them hold is named. */
static flim_status find_values(const flim_dataset *d, const flim_cell_summary *summary, flim_findings *out, flim_error *err)
{
    flim_found no_counts = {0};
    int64_t of_kind[FLIM_N_VALUES] = {0}, seen = 0;
    flim_values most = FLIM_VALUES_OTHER;
    double largest = 0, unit = 0;
    char what[160];
    for (int64_t i = 0; i < d->info.n; i++) {
        if (isnan(summary[i].stored_photons)) {
            continue;
        }
        seen++;
        if (summary[i].values != FLIM_VALUES_WHOLE) {
            flim_found_cell(&no_counts, i);
            of_kind[summary[i].values]++;
            unit = summary[i].values == FLIM_VALUES_MULTIPLES ? summary[i].unit : unit;
            largest = fmax(largest, summary[i].max_count);
        }
    }
    if (no_counts.count == 0) {
        return FLIM_OK;
    }
    for (flim_values kind = 0; kind < FLIM_N_VALUES; kind++) {
        most = of_kind[kind] > of_kind[most] ? kind : most;
    }
    if (most == FLIM_VALUES_MULTIPLES) {
        snprintf(what, sizeof what, "counts times a constant, in one cell %.6g: normalised?", unit);
    } else {
        snprintf(what, sizeof what, "%s", flim_values_words(most));
    }
    return flim_findings_add(out, FLIM_FINDING_NOT_COUNTS, FLIM_FINDING_WARNING, &no_counts, err,
                             "%" PRId64 " of %" PRId64
                             " cells have counts that are not whole numbers, the largest %.4g: they look like %s; expected "
                             "photon counts, to which log1p is applied here",
                             no_counts.count, seen, largest, what);
}

static flim_status find_in_cells(const flim_dataset *d, const flim_cell_summary *summary, flim_findings *out, flim_error *err)
{
    FLIM_TRY(find_photons(d, summary, out, err));
    return find_values(d, summary, out, err);
}

static flim_status find_in_time_range(const flim_dataset_info *info, flim_findings *out, flim_error *err)
{
    /* A period of 0.5 to 1500 ns is that of a laser of 0.7 MHz to 2 GHz. */
    static const struct {
        double most;
        const char *unit;
        double ns; /* of one */
    } units[] = {{1e-6, "seconds", 1e9}, {1e-3, "milliseconds", 1e6}, {0.5, "microseconds", 1e3}, {1e9, "picoseconds", 1e-3}};
    const double range = info->time_range_ns;
    if (range <= 0 || (range >= 0.5 && range <= 1500)) {
        return FLIM_OK;
    }
    int u = 0;
    while (u < 3 && range > units[u].most) {
        u++;
    }
    return flim_findings_add(out, FLIM_FINDING_TIME_RANGE, FLIM_FINDING_WARNING, NULL, err,
                             "time_range_ns is %g, %.3g ns per bin: is it in %s, %g ns?", range, range / info->t,
                             units[u].unit, range * units[u].ns);
}

/* ---- confounds */

/* "a 1.62, b 0.4" of the classes whose mean is more than 1.5 times that of the others, or less than its reciprocal; how many.
 * sum (classes): of a quantity over the class's cells; cells (classes). */
static int64_t list_classes(const flim_dataset *d, const double *sum, const int64_t *cells, char *text, size_t size)
{
    double total = 0;
    int64_t all = 0, met = 0;
    size_t used = 0;
    for (int k = 0; k < d->info.classes; k++) {
        total += sum[k];
        all += cells[k];
    }
    for (int k = 0; k < d->info.classes; k++) {
        const double own = sum[k] / (double)cells[k], rest = (total - sum[k]) / (double)(all - cells[k]), ratio = own / rest;
        if (cells[k] == 0 || cells[k] == all || !(ratio > 1.5 || ratio < 1 / 1.5)) {
            continue;
        }
        if (met++ < SHOWN) {
            char name[NAME_TEXT];
            flim_text_escaped(d->class_name[k], name, sizeof name);
            used += (size_t)snprintf(text + used, size - used, "%sclass %s %.2f times", met > 1 ? ", " : "", name, ratio);
        }
    }
    if (met > SHOWN) {
        snprintf(text + used, size - used, ", and %" PRId64 " more", met - SHOWN);
    }
    return met;
}

static flim_status find_class_differences(const flim_dataset *d, const flim_table_row *rows, int64_t n_rows,
                                          flim_findings *out, flim_error *err)
{
    const size_t classes = (size_t)d->info.classes;
    char list[SHOWN * (NAME_TEXT + 32) + 32];
    flim_status status = FLIM_OK;
    double *photons = flim_alloc(classes, sizeof *photons, err), *area = flim_alloc(classes, sizeof *area, err);
    int64_t *cells = flim_alloc(classes, sizeof *cells, err);
    FLIM_TRY_DONE(photons && area && cells ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i + 1 < n_rows; i++) {
        const int32_t k = rows[i].label;
        cells[k] += rows[i].cells;
        photons[k] += rows[i].photons_mean * (double)rows[i].cells;
        area[k] += rows[i].mask_area * (double)rows[i].cells;
    }
    if (list_classes(d, photons, cells, list, sizeof list)) {
        FLIM_TRY_DONE(flim_findings_add(out, FLIM_FINDING_BRIGHTNESS, FLIM_FINDING_NOTE, NULL, err,
                                        "photons per cell, against the other classes: %s: brightness alone may separate them",
                                        list));
    }
    if (list_classes(d, area, cells, list, sizeof list)) {
        FLIM_TRY_DONE(flim_findings_add(out, FLIM_FINDING_SIZE, FLIM_FINDING_NOTE, NULL, err,
                                        "mask area, against the other classes: %s: size alone may separate them", list));
    }
done:
    flim_free(photons);
    flim_free(area);
    flim_free(cells);
    return status;
}

/* rows (n_rows): flim_cell_table_make's. */
static flim_status find_confounds(const flim_dataset *d, const flim_table_row *rows, int64_t n_rows, flim_findings *out,
                                  flim_error *err)
{
    double least = INFINITY, most = -1;
    for (int64_t i = 0; i + 1 < n_rows; i++) {
        if (rows[i].peak_bin >= 0) {
            least = fmin(least, rows[i].peak_bin);
            most = fmax(most, rows[i].peak_bin);
        }
    }
    if (most - least > 2) {
        FLIM_TRY(flim_findings_add(out, FLIM_FINDING_PEAKS_DIFFER, FLIM_FINDING_NOTE, NULL, err,
                                   "the decay peaks between bin %g and bin %g, depending on group and class: a shifted "
                                   "instrument response can be mistaken for a lifetime",
                                   least, most));
    }
    return d->label && d->info.classes > 1 ? find_class_differences(d, rows, n_rows, out, err) : FLIM_OK;
}

flim_status flim_find_in_data(const flim_dataset *d, const flim_cell_summary *summary, const flim_table_row *rows,
                              int64_t n_rows, bool by_group, flim_findings *out, flim_error *err)
{
    if (summary) {
        FLIM_TRY(find_in_cells(d, summary, out, err));
        FLIM_TRY(flim_find_in_masks(d, summary, out, err));
    }
    FLIM_TRY(flim_find_in_groups(&d->info, by_group, out, err));
    FLIM_TRY(flim_find_in_classes(&d->info, out, err));
    FLIM_TRY(find_in_time_range(&d->info, out, err));
    return rows ? find_confounds(d, rows, n_rows, out, err) : FLIM_OK;
}

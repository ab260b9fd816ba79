/* Masks that belong to something else: file by file, by the share of the photons that they hold, here and elsewhere. */
#include <inttypes.h>
#include <math.h>

#include "core/try.h"
#include "data/dataset_internal.h"
#include "data/findings.h"

/* A mask that holds so much more of the photons elsewhere belongs there. */
#define CLEARLY 0.05
/* Cells that gain or lose less than this by another place say nothing. */
#define ABOUT_EQUAL 0.02

/* What the masks of one file hold, over its cells with photons and a mask. */
typedef struct fit {
    int64_t cells;
    flim_found covers_all; /* cells whose mask is the whole plane */
    double share[FLIM_N_MASK_PLACES]; /* mean */
    double area; /* mean share of the plane */
    int64_t gains[FLIM_N_MASK_PLACES], loses[FLIM_N_MASK_PLACES], used[FLIM_N_MASK_PLACES]; /* cells, against as it is */
    double gain[FLIM_N_MASK_PLACES]; /* mean over `used` */
} fit;

static const char *const place_words[FLIM_N_MASK_PLACES] = {[FLIM_MASK_AS_IT_IS] = "as it is",
                                                            [FLIM_MASK_INVERTED] = "inverted",
                                                            [FLIM_MASK_TRANSPOSED] = "transposed",
                                                            [FLIM_MASK_FLIPPED_ROWS] = "flipped top to bottom",
                                                            [FLIM_MASK_FLIPPED_COLUMNS] = "flipped left to right",
                                                            [FLIM_MASK_HALF_TURN] = "turned by 180 degrees",
                                                            [FLIM_MASK_QUARTER_TURN] = "turned by 90 degrees",
                                                            [FLIM_MASK_THREE_QUARTER_TURN] = "turned by 270 degrees",
                                                            [FLIM_MASK_OTHER_TRANSPOSED] =
                                                                "transposed and turned by 180 degrees",
                                                            [FLIM_MASK_OF_CELL_BEFORE] = "of the cell before",
                                                            [FLIM_MASK_OF_CELL_AFTER] = "of the cell after",
                                                            [FLIM_MASK_SHIFTED] = "shifted by up to three pixels"};

static int64_t end_of(const flim_dataset *d, int file)
{
    return d->file[file].first + d->file[file].source->info.n;
}

static bool counts(const flim_cell_summary *s)
{
    return s->stored_photons > 0 && s->mask_pixels > 0 && !isnan(s->inside[FLIM_MASK_AS_IT_IS]);
}

static fit fit_of(const flim_dataset *d, const flim_cell_summary *summary, int file)
{
    fit f = {0};
    for (int64_t i = d->file[file].first; i < end_of(d, file); i++) {
        const flim_cell_summary *s = &summary[i];
        if (!counts(s)) {
            continue;
        }
        f.cells++;
        f.area += (double)s->mask_pixels / (double)d->pixels;
        if (s->mask_pixels == d->pixels) {
            flim_found_cell(&f.covers_all, i);
        }
        for (int p = 0; p < FLIM_N_MASK_PLACES; p++) {
            const double gain = (double)s->inside[p] - (double)s->inside[FLIM_MASK_AS_IT_IS];
            if (!isnan(gain)) {
                f.used[p]++;
                f.share[p] += (double)s->inside[p];
                f.gain[p] += gain;
                f.gains[p] += gain > ABOUT_EQUAL;
                f.loses[p] += gain < -ABOUT_EQUAL;
            }
        }
    }
    f.area /= (double)f.cells;
    for (int p = 0; p < FLIM_N_MASK_PLACES; p++) {
        f.share[p] /= (double)f.used[p];
        f.gain[p] /= (double)f.used[p];
    }
    return f;
}

double flim_share_inside(const flim_dataset *d, const flim_cell_summary *summary, int file)
{
    return d->mask ? fit_of(d, summary, file).share[FLIM_MASK_AS_IT_IS] : (double)NAN;
}

/* Where the masks hold clearly more than as they are, in most cells that care; FLIM_MASK_AS_IT_IS if nowhere. */
static flim_mask_place better_place(const fit *f)
{
    flim_mask_place best = FLIM_MASK_AS_IT_IS;
    for (flim_mask_place p = 0; p < FLIM_N_MASK_PLACES; p++) {
        const bool clear = f->gain[p] > CLEARLY && f->gains[p] > 4 * f->loses[p] && 2 * f->gains[p] > f->used[p];
        /* A shift finds the best of many places: it has to be better by as much again than a place of one kind. */
        const double hurdle = p == FLIM_MASK_SHIFTED && best != FLIM_MASK_AS_IT_IS ? CLEARLY : 0;
        best = clear && f->gain[p] > f->gain[best] + hurdle ? p : best;
    }
    return best;
}

static flim_status find_place(const flim_dataset *d, const flim_cell_summary *summary, int file, flim_findings *out,
                              flim_error *err)
{
    const fit f = fit_of(d, summary, file);
    const double share = f.share[FLIM_MASK_AS_IT_IS];
    const char *path = d->path[file];
    const flim_mask_place place = better_place(&f);
    flim_found cells = {0};
    if (f.cells == 0) {
        return FLIM_OK;
    }
    for (int64_t i = d->file[file].first; i < end_of(d, file); i++) {
        const float *inside = summary[i].inside;
        if (counts(&summary[i]) && (place ? inside[place] - inside[FLIM_MASK_AS_IT_IS] > ABOUT_EQUAL : inside[0] < 0.5f)) {
            flim_found_cell(&cells, i);
        }
    }
    if (place) {
        FLIM_TRY(flim_findings_add(
            out, FLIM_FINDING_MASK_MISPLACED, FLIM_FINDING_WARNING, &cells, err,
            "%s: the masks contain %.1f %% of the photons, and %.1f %% if each is %s%s: do they belong to these cells?", path,
            100 * share, 100 * f.share[place],
            place == FLIM_MASK_OF_CELL_BEFORE || place == FLIM_MASK_OF_CELL_AFTER ? "that " : "", place_words[place]));
    } else if (share < 0.5) {
        FLIM_TRY(flim_findings_add(
            out, FLIM_FINDING_MASK_MISSES, FLIM_FINDING_WARNING, &cells, err,
            "%s: the masks contain %.1f %% of the photons only, and %.1f %% of the plane: do they belong to these cells?",
            path, 100 * share, 100 * f.area));
    } else if (f.area < 0.95 && share < f.area + 0.01) {
        FLIM_TRY(flim_findings_add(out, FLIM_FINDING_MASK_MISSES, FLIM_FINDING_WARNING, NULL, err,
                                   "%s: the masks contain %.1f %% of the photons on %.1f %% of the plane: no more than "
                                   "anywhere else; do they belong to these cells?",
                                   path, 100 * share, 100 * f.area));
    }
    if (f.covers_all.count) {
        const bool most = 2 * f.covers_all.count > f.cells;
        FLIM_TRY(flim_findings_add(
            out, FLIM_FINDING_MASK_COVERS_ALL, most ? FLIM_FINDING_WARNING : FLIM_FINDING_NOTE, &f.covers_all, err,
            "%s: the mask is inside everywhere in %" PRId64 " of %" PRId64 " cells: it carries no information", path,
            f.covers_all.count, f.cells));
    }
    return FLIM_OK;
}

static flim_status find_values(const flim_dataset *d, int file, flim_findings *out, flim_error *err)
{
    const flim_mask_values *v = &d->file[file].mask_values;
    if (v->soft) {
        FLIM_TRY(flim_findings_add(out, FLIM_FINDING_MASK_SOFT, FLIM_FINDING_WARNING, NULL, err,
                                   "%s: /mask has %" PRId64
                                   " values between 0 and 1, from %.3g to %.3g: probabilities? Every value above 0 counts as "
                                   "inside; write 0 and 1, thresholded as you see fit",
                                   d->path[file], v->soft, v->least, v->most));
    }
    if (v->mixed) {
        flim_found cells = {.count = v->mixed};
        for (int64_t i = 0; i < v->mixed && i < FLIM_FINDING_CELLS; i++) {
            cells.cell[i] = d->file[file].first + v->mixed_cell[i];
        }
        FLIM_TRY(flim_findings_add(out, FLIM_FINDING_MASK_NUMBERS, FLIM_FINDING_WARNING, &cells, err,
                                   "%s: /mask has several numbers in one mask in %" PRId64
                                   " cells, %g and %g in cell %" PRId64
                                   ": numbers of objects, or grey levels? All of them count as inside, including a "
                                   "neighbour's; write 1 where the cell itself is",
                                   d->path[file], v->mixed, v->pair[0], v->pair[1], cells.cell[0]));
    }
    return FLIM_OK;
}

flim_status flim_find_in_masks(const flim_dataset *d, const flim_cell_summary *summary, flim_findings *out, flim_error *err)
{
    for (int i = 0; d->mask && i < d->info.n_files; i++) {
        FLIM_TRY(find_place(d, summary, i, out, err));
        FLIM_TRY(find_values(d, i, out, err));
    }
    return FLIM_OK;
}

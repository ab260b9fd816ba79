/* Simulated FLIM data whose truth is known.
 *
 * For: flim_simulate, the demo, and tests.  Time-correlated single photon counting is simulated photon by photon: photons
 *      arrive at the pixels as an inhomogeneous Poisson process; each fluorescence photon's time is the laser pulse (with the
 *      donor's shift t0) + a Gaussian instrument response + an exponential lifetime, free or bound NAD(P)H, folded into the
 *      12.5 ns between two pulses, so that late photons of the period before are there; background photons are uniform.
 *      Classes differ in the share of free NAD(P)H only, or (FLIM_SIGNAL_PATTERN) in where within the cell it is; never in
 *      brightness, size or t0, unless a confound is asked for.
 * Owns: a simulation owns what its info points to; flim_simulation_destroy.
 * Deterministic: every cell is a pure function of (options, cell), from Philox and IEEE basic operations only (no libm), so
 *      that any machine makes the same counts.  Cells may be made from several threads at once.
 */
#ifndef FLIM_SIMULATE_H
#define FLIM_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/log.h"
#include "flim/status.h"

typedef enum flim_confound {
    FLIM_CONFOUND_NONE,
    FLIM_CONFOUND_BRIGHTNESS, /* brightness rises with the class, in cells and in donors that have more of the class */
    FLIM_CONFOUND_SIZE /* the same with the cell's area; photons per cell stay as they are */
} flim_confound;
extern const char *const flim_confound_names[]; /* ends in NULL */

typedef enum flim_signal {
    FLIM_SIGNAL_SHARE, /* the share of free NAD(P)H, the same in all pixels of a cell: the summed decay tells the classes apart */
    /* Its place: near the nucleus in the last class, the same pixel values in random places in the first, in between for the
     * classes between.  The expected decay summed over a cell is equal in all classes, and with two classes so is the
     * distribution of the pixels' shares. */
    FLIM_SIGNAL_PATTERN
} flim_signal;
extern const char *const flim_signal_names[]; /* ends in NULL */

typedef struct flim_simulate_options {
    int64_t cells; /* 1.. */
    int donors, classes; /* 1.., 2.. */
    int bins; /* T over the 12.5 ns of a laser period, 8.. */
    int height, width; /* 3.. */
    double photons; /* mean fluorescence photons per cell, before background */
    /* 0 = classes are alike.  1: free shares of neighbouring classes differ by 0.34; pattern: the share of photons from free
     * NAD(P)H falls by 0.4 from the nucleus to the rim. */
    double separation;
    flim_signal signal;
    flim_confound confound;
    /* How the second half of the donors (donors / 2, rounded down, and all after) differs from the first, in all classes
     * alike. */
    double donor_t0_bins; /* their decays begin later by this */
    double donor_brightness, donor_background; /* factors of their fluorescence and of their background */
    uint64_t seed;
} flim_simulate_options;

/* 600 cells of 6 donors, 2 classes, 256 x 21 x 21, 4000 photons (97 % zero voxels), separation 1, no difference between the halves
 * of the donors, seed 42. */
flim_simulate_options flim_simulate_defaults(void);

typedef struct flim_simulation flim_simulation;

typedef struct flim_simulation_info {
    flim_simulate_options options;
    const int32_t *label; /* (cells); with two classes 27 % are 1 ("activated"), with more the shares are equal */
    const int *donor; /* (cells) 0..donors-1, in order */
    const char *const *class_name; /* (classes) */
    const char *const *donor_name; /* (donors) */
    const double *free_share; /* (classes): amplitude share of the free component; pattern: in the cell's summed decay */
    double free_ns, bound_ns; /* lifetimes */
    double irf_fwhm_ns, period_ns;
    double background; /* mean background counts per pixel, of the first half of the donors */
} flim_simulation_info;

/* FLIM_ERROR_USAGE names the option that is out of range. */
flim_status flim_simulation_create(const flim_simulate_options *options, flim_simulation **out, flim_error *err);
void flim_simulation_destroy(flim_simulation *simulation); /* NULL is allowed */
const flim_simulation_info *flim_simulation_get_info(const flim_simulation *simulation);

/* One cell: counts (T,H,W), mask (H,W) 0/1.  FLIM_ERROR_USAGE if a voxel would hold more than 65535 photons. */
flim_status flim_simulation_cell(const flim_simulation *simulation, int64_t cell, uint16_t *counts, uint8_t *mask,
                                 flim_error *err);

/* What flim_simulation_write made. */
typedef struct flim_simulation_totals {
    int64_t voxels, zero_voxels;
    double photons, mask_pixels; /* sums over all cells */
} flim_simulation_totals;

/* All cells into an HDF5 file (flim/dataset_writer.h).  `stop` (may be NULL) is polled after each cell: FLIM_INTERRUPTED
 * leaves no file.  totals may be NULL. */
flim_status flim_simulation_write(const flim_simulation *simulation, const char *path, const volatile int *stop,
                                  flim_simulation_totals *totals, flim_error *err);

#endif

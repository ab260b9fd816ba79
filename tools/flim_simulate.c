/* flim_simulate: makes a data file whose truth is known (flim/simulate.h). */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include "flim/args.h"
#include "flim/simulate.h"
#include "flim/version.h"

static volatile int stop;

static void on_signal(int number)
{
    if (stop) { /* the second time the user means now */
        signal(number, SIG_DFL);
        raise(number);
    }
    stop = number;
}

static int fail(const flim_error *err)
{
    fprintf(stderr, "flim_simulate: %s\n", err->text);
    return err->status == FLIM_INTERRUPTED ? 128 + stop : (int)err->status;
}

int main(int argc, char **argv)
{
    static const char *const confounds[] = {"none", "brightness", "size"};
    flim_error err = {0};
    flim_simulate_options options = flim_simulate_defaults();
    const char *out = NULL;
    int64_t donors = options.donors, classes = options.classes, bins = options.bins;
    int64_t height = options.height, width = options.width;
    int confound = FLIM_CONFOUND_NONE;
    const flim_arg table[] = {
        {.name = "--out", .value = "FILE", .kind = FLIM_ARG_TEXT, .out = &out, .help = "HDF5 file to write; needed"},
        {.name = "--cells",
         .value = "N",
         .kind = FLIM_ARG_INT,
         .out = &options.cells,
         .min = 1,
         .max = 4294967295.0,
         .help = "cells of all donors together"},
        {.name = "--donors",
         .value = "N",
         .kind = FLIM_ARG_INT,
         .out = &donors,
         .min = 1,
         .max = 10000,
         .help = "donors: the groups of the file"},
        {.name = "--classes",
         .value = "K",
         .kind = FLIM_ARG_INT,
         .out = &classes,
         .min = 2,
         .max = 255,
         .help = "2: quiescent and 27 % activated cells; more: equal shares"},
        {.name = "--bins",
         .value = "T",
         .kind = FLIM_ARG_INT,
         .out = &bins,
         .min = 8,
         .max = 65536,
         .help = "time bins over the 12.5 ns between two laser pulses"},
        {.name = "--height", .value = "H", .kind = FLIM_ARG_INT, .out = &height, .min = 3, .max = 1024, .help = "pixels"},
        {.name = "--width", .value = "W", .kind = FLIM_ARG_INT, .out = &width, .min = 3, .max = 1024, .help = "pixels"},
        {.name = "--photons",
         .value = "P",
         .kind = FLIM_ARG_NUMBER,
         .out = &options.photons,
         .min = 0,
         .max = 1e7,
         .help = "mean photons a cell, before background"},
        {.name = "--separation",
         .value = "S",
         .kind = FLIM_ARG_NUMBER,
         .out = &options.separation,
         .min = 0,
         .max = 100,
         .help = "lifetime difference: 0.16 x S in the share of free NAD(P)H; 0 = none"},
        {.name = "--confound",
         .kind = FLIM_ARG_CHOICE,
         .out = &confound,
         .choice = confounds,
         .n_choice = 3,
         .help = "let brightness or cell size go with the class"},
        {.name = "--seed", .value = "N", .kind = FLIM_ARG_SEED, .out = &options.seed, .help = "same seed, same bytes"},
    };
    const int flags = (int)(sizeof table / sizeof table[0]);
    flim_args_action action;
    flim_simulation *simulation = NULL;
    flim_simulation_totals totals;
    if (flim_args_parse(table, flags, argc, argv, &action, &err) != FLIM_OK) {
        return fail(&err);
    }
    if (action == FLIM_ARGS_HELP) {
        printf(
            "Usage: flim_simulate --out FILE [flags]\n\n"
            "Simulates FLIM cells of donors, photon by photon, and writes them as a data file for train_cv: free (0.4 ns)\n"
            "and bound (2.5 ns) NAD(P)H, a Gaussian instrument response (0.25 ns), background, Poisson counts.  Donors\n"
            "have their own brightness, t0, cell size and class balance; the classes differ in lifetime only.\n\n");
        flim_args_help(stdout, table, flags);
        return 0;
    }
    if (action == FLIM_ARGS_VERSION) {
        printf("flim_simulate %s\n", flim_version());
        return 0;
    }
    if (!out) {
        flim_fail(&err, FLIM_ERROR_USAGE, "--out FILE is needed, for example --out data/flim.h5 (--help lists all flags)");
        return fail(&err);
    }
    options.donors = (int)donors;
    options.classes = (int)classes;
    options.bins = (int)bins;
    options.height = (int)height;
    options.width = (int)width;
    options.confound = (flim_confound)confound;
    struct sigaction handler = {.sa_handler = on_signal};
    sigaction(SIGINT, &handler, NULL);
    sigaction(SIGTERM, &handler, NULL);
    flim_status status = flim_simulation_create(&options, &simulation, &err);
    if (status == FLIM_OK) {
        status = flim_simulation_write(simulation, out, &stop, &totals, &err);
    }
    flim_simulation_destroy(simulation);
    if (status != FLIM_OK) {
        return fail(&err);
    }
    double cells = (double)options.cells;
    printf("%s: %" PRId64
           " cells of %d donors, %d classes, (%d,%d,%d); a cell has %.0f photons on %.0f pixels, %.1f %% zeros\n",
           out, options.cells, options.donors, options.classes, options.bins, options.height, options.width,
           totals.photons / cells, totals.mask_pixels / cells, 100 * (double)totals.zero_voxels / (double)totals.voxels);
    return 0;
}

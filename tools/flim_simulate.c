/* flim_simulate: makes a data file whose truth is known (flim/simulate.h). */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "common/tool.h"
#include "core/try.h"
#include "core/text.h"
#include "flim/simulate.h"

typedef struct options {
    char *out;
    flim_signal signal;
    flim_confound confound;
    int64_t cells, donors, classes, bins, height, width;
    double photons, separation, donor_t0, donor_brightness, donor_background;
    uint64_t seed;
} options;

#define FIELD(name) offsetof(options, name)

static const flim_flag_row rows[] = {
    {"Output", "out", FLIM_VALUE_TEXT, FIELD(out), "", "FILE", .help = "HDF5 file to write; required, must not exist",
     .writes = true},
    {"Cells", "cells", FLIM_VALUE_INTEGER, FIELD(cells), "600", "N", "cells of all donors together",
     .allowed = ">= 1, <= 4294967295"},
    {NULL, "donors", FLIM_VALUE_INTEGER, FIELD(donors), "6", "N", "donors: the groups of the file",
     .allowed = ">= 1, <= 10000"},
    {NULL, "classes", FLIM_VALUE_INTEGER, FIELD(classes), "2", "K",
     "2: quiescent and 27 % activated cells; more: equal shares", .allowed = ">= 2, <= 255"},
    {NULL, "bins", FLIM_VALUE_INTEGER, FIELD(bins), "256", "T", "time bins over the 12.5 ns between two laser pulses",
     .allowed = ">= 8, <= 65536"},
    {NULL, "height", FLIM_VALUE_INTEGER, FIELD(height), "21", "H", "pixels", .allowed = ">= 3, <= 1024"},
    {NULL, "width", FLIM_VALUE_INTEGER, FIELD(width), "21", "W", "pixels", .allowed = ">= 3, <= 1024"},
    {"Signal", "photons", FLIM_VALUE_REAL, FIELD(photons), "4000", "P", "mean photons per cell, before background",
     .allowed = ">= 0, <= 1e7"},
    {NULL, "signal", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, signal), "share", "WHAT",
     "how the classes differ: the share of free NAD(P)H, or only its place in the cell (pattern)",
     .choices = flim_signal_names},
    {NULL, "separation", FLIM_VALUE_REAL, FIELD(separation), "1", "S",
     "separation of the classes: 0.34 x S in the share of free NAD(P)H, 0.4 x S across a pattern; 0 = alike",
     .allowed = ">= 0, <= 100"},
    {NULL, "confound", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, confound), "none", "WHAT",
     "add a confounder that correlates with the class", .choices = flim_confound_names},
    {"Second half of the donors", "donor-t0", FLIM_VALUE_REAL, FIELD(donor_t0), "0", "BINS",
     "delay of their decays, in time bins", .allowed = ">= -65536, <= 65536"},
    {NULL, "donor-brightness", FLIM_VALUE_REAL, FIELD(donor_brightness), "1", "F", "factor of their photons",
     .allowed = ">= 0.01, <= 100"},
    {NULL, "donor-background", FLIM_VALUE_REAL, FIELD(donor_background), "1", "F", "factor of their background",
     .allowed = ">= 0, <= 1000"},
    {"Random numbers", "seed", FLIM_VALUE_UNSIGNED, FIELD(seed), "42", "N",
     .help = "random seed; the same seed gives the same file"},
};

static const flim_example examples[] = {
    {"flim_simulate --out data/flim.h5 --cells 600 --donors 6", "a data set to try the programs with"},
    {NULL, NULL},
};
static const flim_flag_table table = {
    "flim_simulate",
    "flim_simulate --out FILE [flag]...",
    "Simulates FLIM cells of donors, photon by photon, and writes them as a data file for train_cv: free (0.4 ns)\n"
    "and bound (2.5 ns) NAD(P)H, a Gaussian instrument response (0.2 ns), background, Poisson counts. Donors have\n"
    "their own brightness, t0, cell size and class balance; the classes differ in lifetime only, or (--signal pattern)\n"
    "only in where in the cell the lifetimes are.",
    rows,
    (int)(sizeof rows / sizeof rows[0]),
    .operand = NULL,
    .purpose = "FLIM data whose truth is known",
    .examples = examples,
    .see_also = "train_cv(1), flim_info(1)"};

static flim_status simulate(void *read, const flim_string_list *operands, console *screen, flim_error *err)
{
    (void)operands;
    const options *o = read;
    flim_simulate_options s = flim_simulate_defaults();
    s.cells = o->cells;
    s.donors = (int)o->donors;
    s.classes = (int)o->classes;
    s.bins = (int)o->bins;
    s.height = (int)o->height;
    s.width = (int)o->width;
    s.photons = o->photons;
    s.separation = o->separation;
    s.signal = o->signal;
    s.donor_t0_bins = o->donor_t0;
    s.donor_brightness = o->donor_brightness;
    s.donor_background = o->donor_background;
    s.seed = o->seed;
    s.confound = o->confound;
    if (!o->out[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--out FILE is needed, for example --out simulated.h5 (--help lists all flags)");
    }
    flim_simulation *simulation = NULL;
    flim_simulation_totals sum;
    FLIM_TRY(flim_simulation_create(&s, &simulation, err));
    const flim_status status = flim_simulation_write(simulation, o->out, console_catch_signals(), &sum, err);
    flim_simulation_destroy(simulation);
    FLIM_TRY(status);
    const double cells = (double)s.cells;
    fprintf(console_stream(screen),
            "%s: %" PRId64
            " cell%s of %d donor%s, %d classes, (%d,%d,%d); %.0f photons per cell, on %.0f pixels, %.1f %% zeros\n",
            o->out, s.cells, flim_s(s.cells), s.donors, flim_s(s.donors), s.classes, s.bins, s.height, s.width,
            sum.photons / cells, sum.mask_pixels / cells, 100 * (double)sum.zero_voxels / (double)sum.voxels);
    return FLIM_OK;
}

int main(int argc, char **argv)
{
    options o;
    return tool_main(&table, &o, simulate, argc, argv);
}

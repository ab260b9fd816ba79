/* Donors, classes and labels of a simulation. */
#include "data/simulate_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/try.h"

static const double active_share = 0.27;

enum { MOST_CLASSES = 255 };

/* share: (donors,classes), the class balance of every donor.  Each class's shares vary by up to half of the rarest class's
 * overall share and average to its overall share. */
static void draw_balance(const flim_simulation *sim, double *share)
{
    const flim_simulate_options *o = &sim->info.options;
    int donors = o->donors, classes = o->classes;
    double overall[2] = {1 - active_share, active_share};
    double rarest = classes == 2 ? active_share : 1.0 / classes, largest = 0;
    flim_random random = flim_sim_begin(sim, 0, BALANCE);
    for (int i = 0; i < donors * classes; i++) {
        share[i] = flim_sim_normal(&random);
    }
    for (int d = 0; d < donors; d++) { /* centre over the classes, then over the donors: both sums stay 0 */
        double mean = 0;
        for (int k = 0; k < classes; k++) {
            mean += share[d * classes + k] / classes;
        }
        for (int k = 0; k < classes; k++) {
            share[d * classes + k] -= mean;
        }
    }
    for (int k = 0; k < classes; k++) {
        double mean = 0;
        for (int d = 0; d < donors; d++) {
            mean += share[d * classes + k] / donors;
        }
        for (int d = 0; d < donors; d++) {
            share[d * classes + k] -= mean;
            largest = fmax(largest, fabs(share[d * classes + k]));
        }
    }
    /* With as few donors as classes nothing could be made independent of the balance: all donors get the same. */
    double scale = donors > classes && largest > 0 ? rarest / 2 / largest : 0;
    for (int d = 0; d < donors; d++) {
        for (int k = 0; k < classes; k++) {
            share[d * classes + k] = share[d * classes + k] * scale + (classes == 2 ? overall[k] : rarest);
        }
    }
}

/* Whole numbers of cells per class for each donor by cumulative rounding over donors, so that the totals are right to one
 * cell; a donor with enough cells has every class.  count: (donors,classes). */
static void count_labels(const flim_simulation *sim, const double *share, int64_t *count)
{
    const flim_simulate_options *o = &sim->info.options;
    int classes = o->classes;
    double want[MOST_CLASSES] = {0}; /* cells of the class up to this donor */
    int64_t have[MOST_CLASSES] = {0};
    for (int d = 0; d < o->donors; d++) {
        int64_t n = flim_sim_first_cell(o, d + 1) - flim_sim_first_cell(o, d), left = n;
        int64_t *c = count + (ptrdiff_t)d * classes;
        for (int k = classes - 1; k > 0; k--) {
            want[k] += share[(ptrdiff_t)d * classes + k] * (double)n;
            int64_t whole = (int64_t)floor(want[k] + 0.5) - have[k];
            int64_t least = n >= classes ? 1 : 0, most = left - (n >= classes ? k : 0);
            c[k] = whole < least ? least : whole > most ? most : whole;
            have[k] += c[k];
            left -= c[k];
        }
        c[0] = left;
    }
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Takes from v its part along each of the `columns` orthonormal vectors of basis (columns,n). */
static void project_out(double *v, const double *basis, int columns, int n)
{
    for (int c = 0; c < columns; c++) {
        double along = dot(v, basis + (ptrdiff_t)c * n, n);
        for (int i = 0; i < n; i++) {
            v[i] -= along * basis[(ptrdiff_t)c * n + i];
        }
    }
}

/* Scales v to mean square 1, or to zeros if nothing but rounding is left of it. */
static void normalise(double *v, int n)
{
    double square = dot(v, v, n) / n, scale = square > 1e-18 ? 1 / sqrt(square) : 0;
    for (int i = 0; i < n; i++) {
        v[i] *= scale;
    }
}

/* Donors' traits: normal numbers made orthogonal to the donors' class balance, so that with six donors chance alone does not
 * let brightness, size or t0 tell the classes apart.  A confounded trait follows the balance instead. */
static flim_status draw_traits(flim_simulation *sim, const int64_t *count, flim_error *err)
{
    const flim_simulate_options *o = &sim->info.options;
    int donors = o->donors, classes = o->classes, columns = 0;
    double *basis = flim_alloc((size_t)donors * (size_t)classes, sizeof *basis, err); /* (classes,donors) */
    if (!basis) {
        return FLIM_ERROR_MEMORY;
    }
    for (int k = 0; k < classes; k++) { /* the constant, then the shares of all classes but one */
        double *column = basis + (ptrdiff_t)columns * donors;
        for (int d = 0; d < donors; d++) {
            int64_t n = flim_sim_first_cell(o, d + 1) - flim_sim_first_cell(o, d);
            column[d] = k == 0 || n == 0 ? 1 : (double)count[d * classes + k] / (double)n;
        }
        project_out(column, basis, columns, donors);
        double square = dot(column, column, donors);
        if (square > 1e-12) {
            for (int d = 0; d < donors; d++) {
                column[d] /= sqrt(square);
            }
            columns++;
        }
    }
    flim_random random = flim_sim_begin(sim, 0, DONORS);
    for (int i = 0; i < TRAITS; i++) {
        double *trait = sim->trait + (ptrdiff_t)i * donors;
        for (int d = 0; d < donors; d++) {
            trait[d] = flim_sim_normal(&random);
        }
        project_out(trait, basis, columns, donors);
        normalise(trait, donors);
        bool follows = (i == TRAIT_BRIGHTNESS && o->confound == FLIM_CONFOUND_BRIGHTNESS) ||
                       (i == TRAIT_AREA && o->confound == FLIM_CONFOUND_SIZE);
        if (follows) {
            for (int d = 0; d < donors; d++) {
                double mean = 0;
                int64_t n = flim_sim_first_cell(o, d + 1) - flim_sim_first_cell(o, d);
                for (int k = 0; k < classes && n > 0; k++) {
                    mean += k * (double)count[d * classes + k] / (double)n;
                }
                trait[d] = mean;
            }
            project_out(trait, basis, 1, donors);
            normalise(trait, donors);
        }
    }
    flim_free(basis);
    return FLIM_OK;
}

/* The labels of a donor's cells in random order. */
static void deal_labels(flim_simulation *sim, const int64_t *count)
{
    const flim_simulate_options *o = &sim->info.options;
    for (int d = 0; d < o->donors; d++) {
        flim_random random = flim_sim_begin(sim, (uint32_t)d, LABELS);
        int64_t first = flim_sim_first_cell(o, d), n = flim_sim_first_cell(o, d + 1) - first, at = 0;
        for (int k = 0; k < o->classes; k++) {
            for (int64_t i = 0; i < count[d * o->classes + k]; i++) {
                sim->label[first + at++] = k;
            }
        }
        for (int64_t i = 0; i < n; i++) {
            sim->donor[first + i] = d;
        }
        for (int64_t i = n; i > 1; i--) {
            int64_t j = (int64_t)flim_random_below(&random, (uint64_t)i);
            int32_t swap = sim->label[first + i - 1];
            sim->label[first + i - 1] = sim->label[first + j];
            sim->label[first + j] = swap;
        }
    }
}

/* Neighbouring classes 0.34 x separation apart around 0.72, kept within 0.05..0.95.  A pattern's classes are all at the share
 * at which both components emit as many photons, which leaves the most room for a pattern. */
static void set_free_shares(flim_simulation *sim)
{
    const flim_simulate_options *o = &sim->info.options;
    double span = fmin(0.34 * o->separation * (o->classes - 1), 0.9);
    double low = fmax(0.05, fmin(0.72 - span / 2, 0.95 - span));
    if (o->signal == FLIM_SIGNAL_PATTERN) {
        low = bound_ns / (free_ns + bound_ns);
        span = 0;
    }
    for (int k = 0; k < o->classes; k++) {
        sim->free_share[k] = low + span * k / (o->classes - 1);
    }
}

static flim_status name_all(flim_simulation *sim, flim_error *err)
{
    const flim_simulate_options *o = &sim->info.options;
    static const char *const two[2] = {"quiescent", "activated"};
    int digits = snprintf(NULL, 0, "%d", o->donors);
    for (int k = 0; k < o->classes; k++) {
        sim->class_name[k] = o->classes == 2 ? flim_strdup(two[k], err) : flim_strprintf(err, "class_%d", k);
        if (!sim->class_name[k]) {
            return FLIM_ERROR_MEMORY;
        }
    }
    for (int d = 0; d < o->donors; d++) {
        sim->donor_name[d] = flim_strprintf(err, "donor_%0*d", digits, d + 1);
        if (!sim->donor_name[d]) {
            return FLIM_ERROR_MEMORY;
        }
    }
    return FLIM_OK;
}

flim_simulate_options flim_simulate_defaults(void)
{
    return (flim_simulate_options){.cells = 600,
                                   .donors = 6,
                                   .classes = 2,
                                   .bins = 256,
                                   .height = 21,
                                   .width = 21,
                                   .photons = 4000,
                                   .separation = 1,
                                   .signal = FLIM_SIGNAL_SHARE,
                                   .confound = FLIM_CONFOUND_NONE,
                                   .donor_brightness = 1,
                                   .donor_background = 1,
                                   .seed = 42};
}

static flim_status check(const flim_simulate_options *o, flim_error *err)
{
    const struct {
        const char *name;
        double value, min, max;
    } range[] = {
        {"cells", (double)o->cells, 1, 4294967295.0}, /* cell numbers are 32-bit words of the random counter */
        {"donors", o->donors, 1, 10000},
        {"classes", o->classes, 2, MOST_CLASSES},
        {"bins", o->bins, 8, 65536},
        {"height", o->height, 3, 1024},
        {"width", o->width, 3, 1024},
        {"photons", o->photons, 0, 1e7},
        {"separation", o->separation, 0, 100},
        {"donor_t0_bins", o->donor_t0_bins, -o->bins, o->bins},
        {"donor_brightness", o->donor_brightness, 0.01, 100},
        {"donor_background", o->donor_background, 0, 1000},
    };
    for (size_t i = 0; i < sizeof range / sizeof range[0]; i++) {
        if (!(range[i].value >= range[i].min && range[i].value <= range[i].max)) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s is %g, must be %g..%.10g", range[i].name, range[i].value,
                             range[i].min, range[i].max);
        }
    }
    if (o->cells < o->donors) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%" PRId64 " cells are fewer than the %d donors", o->cells, o->donors);
    }
    return FLIM_OK;
}

flim_status flim_simulation_create(const flim_simulate_options *options, flim_simulation **out, flim_error *err)
{
    *out = NULL;
    double *share = NULL;
    int64_t *count = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY(check(options, err));
    const size_t cells = (size_t)options->cells, donors = (size_t)options->donors, classes = (size_t)options->classes;
    flim_simulation *sim = flim_alloc(1, sizeof *sim, err);
    if (!sim) {
        return FLIM_ERROR_MEMORY;
    }
    sim->info.options = *options;
    if (!(sim->label = flim_alloc(cells, sizeof *sim->label, err)) ||
        !(sim->donor = flim_alloc(cells, sizeof *sim->donor, err)) ||
        !(sim->class_name = flim_alloc(classes, sizeof *sim->class_name, err)) ||
        !(sim->donor_name = flim_alloc(donors, sizeof *sim->donor_name, err)) ||
        !(sim->free_share = flim_alloc(classes, sizeof *sim->free_share, err)) ||
        !(sim->trait = flim_alloc(TRAITS * donors, sizeof *sim->trait, err)) ||
        !(share = flim_alloc(donors * classes, sizeof *share, err)) ||
        !(count = flim_alloc(donors * classes, sizeof *count, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    FLIM_TRY_DONE(name_all(sim, err));
    set_free_shares(sim);
    draw_balance(sim, share);
    count_labels(sim, share, count);
    deal_labels(sim, count);
    FLIM_TRY_DONE(draw_traits(sim, count, err));
    sim->info = (flim_simulation_info){.options = *options,
                                       .label = sim->label,
                                       .donor = sim->donor,
                                       .class_name = (const char *const *)sim->class_name,
                                       .donor_name = (const char *const *)sim->donor_name,
                                       .free_share = sim->free_share,
                                       .free_ns = free_ns,
                                       .bound_ns = bound_ns,
                                       .irf_fwhm_ns = irf_fwhm_ns,
                                       .period_ns = period_ns,
                                       .background = background};
    *out = sim;
    sim = NULL;
done:
    flim_free(share);
    flim_free(count);
    flim_simulation_destroy(sim);
    return status;
}

void flim_simulation_destroy(flim_simulation *sim)
{
    if (!sim) {
        return;
    }
    flim_free_list(sim->class_name, sim->info.options.classes);
    flim_free_list(sim->donor_name, sim->info.options.donors);
    flim_free(sim->free_share);
    flim_free(sim->trait);
    flim_free(sim->label);
    flim_free(sim->donor);
    flim_free(sim);
}

const flim_simulation_info *flim_simulation_get_info(const flim_simulation *sim)
{
    return &sim->info;
}

#include "flim/simulate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "flim/dataset_writer.h"
#include "flim/random.h"

/* What does not depend on the options.  Lifetimes and free shares are NAD(P)H's in living cells (free about 0.4 ns, bound
 * 2 to 3 ns, free share 0.6 to 0.8, higher in activated T cells); 80 MHz laser; detector response 0.2 ns. */
static const double period_ns = 12.5, free_ns = 0.4, bound_ns = 2.5, irf_fwhm_ns = 0.2;
static const double pulse_ns = 2.0; /* t0 of an average donor */
static const double background = 0.12; /* counts a pixel, over all bins */
static const double mean_radius = 1.0 / 3.0; /* of the shorter side: 7 of 21 pixels */
static const double active_share = 0.27;

/* Standard deviations of what varies, between donors and between the cells of a donor.  Brightness and area: of the log. */
static const double brightness_sd[2] = {0.15, 0.12}, area_sd[2] = {0.10, 0.12}, share_sd[2] = {0.01, 0.02};
static const double pulse_sd_ns = 0.08;
static const double confound_brightness = 1.1, confound_area = 0.6; /* log factor from the first class to the last */

enum { HARMONICS = 3, MOST_CLASSES = 255 };
enum { CELL = 0, LABELS = 1, DONORS = 2, BALANCE = 3 }; /* `repeat` of the random numbers for each purpose */

/* Traits of a donor, mean 0 and sd 1 over the donors. */
enum { TRAIT_BRIGHTNESS, TRAIT_AREA, TRAIT_PULSE, TRAIT_SHARE, TRAITS };

struct flim_simulation {
    flim_simulation_info info;
    int32_t *label; /* (cells) */
    int *donor; /* (cells) */
    char **class_name; /* (classes) */
    char **donor_name; /* (donors) */
    double *free_share; /* (classes) */
    double *trait; /* (TRAITS,donors) */
};

/* ---- exp, log and normal numbers from IEEE basic operations: a libm may differ in the last bit between machines */

#define LN2 0.69314718055994530942

static double log_of(double x) /* x > 0 */
{
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0.70710678118654752440) {
        m *= 2;
        exponent--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, sum = 0; /* |s| <= 0.172: s^23 is below the last bit */
    for (int k = 21; k >= 1; k -= 2) {
        sum = sum * s2 + 1.0 / k;
    }
    return exponent * LN2 + 2 * s * sum;
}

static double exp_of(double x) /* |x| < 700 */
{
    double k = floor(x / LN2 + 0.5), r = x - k * LN2, sum = 1;
    for (int i = 16; i >= 1; i--) {
        sum = 1 + r / i * sum;
    }
    return ldexp(sum, (int)k);
}

static double exponential(flim_random *random) /* mean 1 */
{
    return -log_of(1.0 - flim_random_uniform(random));
}

/* A uniform direction by rejection from the square; its squared length before scaling goes to *square. */
static void direction(flim_random *random, double *x, double *y, double *square)
{
    do {
        *x = 2 * flim_random_uniform(random) - 1;
        *y = 2 * flim_random_uniform(random) - 1;
        *square = *x * *x + *y * *y;
    } while (*square >= 1 || *square == 0);
}

static double normal(flim_random *random) /* Marsaglia's polar method: log and sqrt are enough */
{
    double x, y, s;
    direction(random, &x, &y, &s);
    return x * sqrt(-2 * log_of(s) / s);
}

/* ---- the donors and the labels */

static flim_random begin(const flim_simulation *sim, uint32_t number, uint32_t repeat)
{
    flim_cell_id id = {.seed = sim->info.options.seed, .cell = number, .repeat = repeat};
    return flim_random_begin(&id, FLIM_RANDOM_SIMULATE);
}

static int64_t first_cell(const flim_simulate_options *o, int donor)
{
    return o->cells * donor / o->donors;
}

/* share: (donors,classes), the class balance of every donor.  Each class's shares vary by up to half of the rarest class's
 * overall share and average to its overall share. */
static void draw_balance(const flim_simulation *sim, double *share)
{
    const flim_simulate_options *o = &sim->info.options;
    int donors = o->donors, classes = o->classes;
    double overall[2] = {1 - active_share, active_share};
    double rarest = classes == 2 ? active_share : 1.0 / classes, largest = 0;
    flim_random random = begin(sim, 0, BALANCE);
    for (int i = 0; i < donors * classes; i++) {
        share[i] = normal(&random);
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

/* Whole numbers of cells a class for each donor by cumulative rounding over donors, so that the totals are right to one cell;
 * a donor with enough cells has every class.  count: (donors,classes). */
static void count_labels(const flim_simulation *sim, const double *share, int64_t *count)
{
    const flim_simulate_options *o = &sim->info.options;
    int classes = o->classes;
    double want[MOST_CLASSES] = {0}; /* cells of the class up to this donor */
    int64_t have[MOST_CLASSES] = {0};
    for (int d = 0; d < o->donors; d++) {
        int64_t n = first_cell(o, d + 1) - first_cell(o, d), left = n;
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

/* Scales v to mean square 1, or to zeros where nothing but rounding is left of it. */
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
            int64_t n = first_cell(o, d + 1) - first_cell(o, d);
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
    flim_random random = begin(sim, 0, DONORS);
    for (int i = 0; i < TRAITS; i++) {
        double *trait = sim->trait + (ptrdiff_t)i * donors;
        for (int d = 0; d < donors; d++) {
            trait[d] = normal(&random);
        }
        project_out(trait, basis, columns, donors);
        normalise(trait, donors);
        bool follows = (i == TRAIT_BRIGHTNESS && o->confound == FLIM_CONFOUND_BRIGHTNESS) ||
                       (i == TRAIT_AREA && o->confound == FLIM_CONFOUND_SIZE);
        if (follows) {
            for (int d = 0; d < donors; d++) {
                double mean = 0;
                int64_t n = first_cell(o, d + 1) - first_cell(o, d);
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
        flim_random random = begin(sim, (uint32_t)d, LABELS);
        int64_t first = first_cell(o, d), n = first_cell(o, d + 1) - first, at = 0;
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

/* Neighbouring classes 0.34 x separation apart around 0.72, kept within 0.05..0.95. */
static void set_free_shares(flim_simulation *sim)
{
    const flim_simulate_options *o = &sim->info.options;
    double span = fmin(0.34 * o->separation * (o->classes - 1), 0.9);
    double low = fmax(0.05, fmin(0.72 - span / 2, 0.95 - span));
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
                                   .confound = FLIM_CONFOUND_NONE,
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
    flim_simulation *sim = NULL;
    flim_status status = check(options, err);
    if (status != FLIM_OK) {
        goto done;
    }
    size_t cells = (size_t)options->cells, donors = (size_t)options->donors, classes = (size_t)options->classes;
    status = FLIM_ERROR_MEMORY;
    sim = flim_alloc(1, sizeof *sim, err);
    if (!sim) {
        goto done;
    }
    sim->info.options = *options;
    sim->label = flim_alloc(cells, sizeof *sim->label, err);
    sim->donor = sim->label ? flim_alloc(cells, sizeof *sim->donor, err) : NULL;
    sim->class_name = sim->donor ? flim_alloc(classes, sizeof *sim->class_name, err) : NULL;
    sim->donor_name = sim->class_name ? flim_alloc(donors, sizeof *sim->donor_name, err) : NULL;
    sim->free_share = sim->donor_name ? flim_alloc(classes, sizeof *sim->free_share, err) : NULL;
    sim->trait = sim->free_share ? flim_alloc(TRAITS * donors, sizeof *sim->trait, err) : NULL;
    share = sim->trait ? flim_alloc(donors * classes, sizeof *share, err) : NULL;
    count = share ? flim_alloc(donors * classes, sizeof *count, err) : NULL;
    if (!count) {
        goto done;
    }
    status = name_all(sim, err);
    if (status != FLIM_OK) {
        goto done;
    }
    set_free_shares(sim);
    draw_balance(sim, share);
    count_labels(sim, share, count);
    deal_labels(sim, count);
    status = draw_traits(sim, count, err);
    if (status != FLIM_OK) {
        goto done;
    }
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
    for (int k = 0; sim->class_name && k < sim->info.options.classes; k++) {
        flim_free(sim->class_name[k]);
    }
    for (int d = 0; sim->donor_name && d < sim->info.options.donors; d++) {
        flim_free(sim->donor_name[d]);
    }
    flim_free(sim->class_name);
    flim_free(sim->donor_name);
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

/* ---- one cell */

/* A smooth outline: the radius at an angle is `radius` x (1 + harmonics 2, 3, 4 of small random amplitude). */
typedef struct outline {
    double y, x, radius;
    double cosine[HARMONICS], sine[HARMONICS];
} outline;

static outline draw_outline(flim_random *random, const flim_simulate_options *o, double area_factor)
{
    static const double sd[HARMONICS] = {0.06, 0.04, 0.025};
    double shorter = o->height < o->width ? o->height : o->width;
    outline shape;
    shape.radius = fmin(shorter * mean_radius * sqrt(area_factor), shorter * 0.46);
    double play = fmin(1.0, fmax(0.0, shorter / 2 - 0.5 - shape.radius)); /* the centre's jitter: the cell stays inside */
    shape.y = (o->height - 1) / 2.0 + play * (2 * flim_random_uniform(random) - 1);
    shape.x = (o->width - 1) / 2.0 + play * (2 * flim_random_uniform(random) - 1);
    for (int m = 0; m < HARMONICS; m++) {
        shape.cosine[m] = sd[m] * normal(random);
        shape.sine[m] = sd[m] * normal(random);
    }
    return shape;
}

/* Distance from the centre as a share of the outline's radius in that direction: inside where it is below 1. */
static double outline_depth(const outline *shape, double y, double x)
{
    double dy = y - shape->y, dx = x - shape->x, r = sqrt(dy * dy + dx * dx);
    if (r == 0) {
        return 0;
    }
    double c1 = dx / r, s1 = dy / r, c = c1, s = s1, factor = 1;
    for (int m = 0; m < HARMONICS; m++) { /* cos and sin of 2, 3, 4 times the angle by the addition theorem */
        double next = c * c1 - s * s1;
        s = s * c1 + c * s1;
        c = next;
        factor += shape->cosine[m] * c + shape->sine[m] * s;
    }
    return r / (shape->radius * fmax(factor, 0.5));
}

/* Where the photons of a cell come from: the cytoplasm, thinner to the rim; a dark nucleus off the centre; grainy by the
 * mitochondria.  weight: (H,W), sums to 1 over the mask; 0 outside. */
static void draw_image(flim_random *random, const flim_simulate_options *o, double area_factor, double *weight, uint8_t *mask)
{
    outline shape = draw_outline(random, o, area_factor), nucleus = shape;
    double away_x, away_y, square, total = 0;
    direction(random, &away_x, &away_y, &square);
    nucleus.radius *= 0.5;
    nucleus.y += 0.2 * shape.radius * away_y;
    nucleus.x += 0.2 * shape.radius * away_x;
    int64_t pixels = (int64_t)o->height * o->width, middle = -1;
    double nearest = INFINITY;
    for (int64_t p = 0; p < pixels; p++) {
        int64_t row = p / o->width, column = p % o->width;
        double y = (double)row, x = (double)column, depth = outline_depth(&shape, y, x);
        double grain = exp_of(0.2 * normal(random));
        if (depth < nearest) {
            nearest = depth;
            middle = p;
        }
        mask[p] = depth < 1;
        weight[p] = 0;
        if (mask[p]) {
            weight[p] = (0.3 + 0.7 * sqrt(1 - depth * depth)) * grain * (outline_depth(&nucleus, y, x) < 1 ? 0.4 : 1);
            total += weight[p];
        }
    }
    if (total == 0) { /* a cell thinner than a pixel */
        mask[middle] = 1;
        total = weight[middle] = 1;
    }
    for (int64_t p = 0; p < pixels; p++) {
        weight[p] /= total;
    }
}

/* What a cell's photons follow. */
typedef struct emission {
    double t0_ns, free_photons; /* share of the photons that the free component emits */
} emission;

static int time_bin(flim_random *random, const emission *e, double background_share, int bins)
{
    static const double sigma = irf_fwhm_ns / 2.3548200450309493; /* FWHM = sigma x sqrt(8 ln 2) */
    double t; /* in periods */
    if (flim_random_uniform(random) < background_share) {
        t = flim_random_uniform(random);
    } else {
        double lifetime = flim_random_uniform(random) < e->free_photons ? free_ns : bound_ns;
        t = (e->t0_ns + sigma * normal(random) + lifetime * exponential(random)) / period_ns;
        t -= floor(t); /* late photons meet the next laser pulse's clock */
    }
    int bin = (int)(t * bins);
    return bin < bins ? bin : bins - 1;
}

flim_status flim_simulation_cell(const flim_simulation *sim, int64_t cell, uint16_t *counts, uint8_t *mask, flim_error *err)
{
    const flim_simulate_options *o = &sim->info.options;
    int64_t pixels = (int64_t)o->height * o->width;
    if (cell < 0 || cell >= o->cells) {
        return flim_fail(err, FLIM_ERROR_USAGE, "cell %" PRId64 " of a simulation of %" PRId64, cell, o->cells);
    }
    double *weight = flim_alloc((size_t)pixels, sizeof *weight, err);
    if (!weight) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = FLIM_OK;
    flim_random random = begin(sim, (uint32_t)cell, CELL);
    int donor = sim->donor[cell], label = sim->label[cell];
    double rank = (double)label / (o->classes - 1) - 0.5; /* of the class, -0.5..0.5 */
    double value[TRAITS];
    static const double *const sd[] = {brightness_sd, area_sd, NULL, share_sd};
    for (int i = 0; i < TRAITS; i++) {
        double of_donor = sim->trait[(ptrdiff_t)i * o->donors + donor];
        value[i] = i == TRAIT_PULSE ? pulse_sd_ns * of_donor : sd[i][0] * of_donor + sd[i][1] * normal(&random);
    }
    double variance = brightness_sd[0] * brightness_sd[0] + brightness_sd[1] * brightness_sd[1];
    value[TRAIT_BRIGHTNESS] -= variance / 2; /* the mean of exp(normal) is 1 */
    value[TRAIT_BRIGHTNESS] += o->confound == FLIM_CONFOUND_BRIGHTNESS ? confound_brightness * rank : 0;
    value[TRAIT_AREA] += o->confound == FLIM_CONFOUND_SIZE ? confound_area * rank : 0;

    draw_image(&random, o, exp_of(value[TRAIT_AREA]), weight, mask);
    double share = fmin(0.98, fmax(0.02, sim->free_share[label] + value[TRAIT_SHARE]));
    double of_free = share * free_ns, of_bound = (1 - share) * bound_ns;
    emission emitted = {.t0_ns = pulse_ns + value[TRAIT_PULSE], .free_photons = of_free / (of_free + of_bound)};
    double photons = o->photons * exp_of(value[TRAIT_BRIGHTNESS]);

    /* One Poisson process of rate 1 runs along the pixels laid end to end, each as long as its expected count. */
    memset(counts, 0, (size_t)(o->bins * pixels) * sizeof *counts);
    double at = exponential(&random), end = 0;
    for (int64_t p = 0; p < pixels; p++) {
        double expected = photons * weight[p] + background;
        for (end += expected; at < end; at += exponential(&random)) {
            uint16_t *count = counts + (int64_t)time_bin(&random, &emitted, background / expected, o->bins) * pixels + p;
            if (*count == UINT16_MAX) {
                status = flim_fail(err, FLIM_ERROR_USAGE,
                                   "cell %" PRId64 " has more than 65535 photons in one voxel: use fewer photons", cell);
                goto done;
            }
            ++*count;
        }
    }
done:
    flim_free(weight);
    return status;
}

/* ---- all cells */

static flim_status write_cells(const flim_simulation *sim, flim_dataset_writer *writer, uint16_t *counts, uint8_t *mask,
                               const volatile int *stop, flim_simulation_totals *totals, flim_error *err)
{
    const flim_simulate_options *o = &sim->info.options;
    int64_t pixels = (int64_t)o->height * o->width, voxels = o->bins * pixels;
    for (int64_t cell = 0; cell < o->cells; cell++) {
        if (flim_stopped(stop)) {
            return flim_fail(err, FLIM_INTERRUPTED, "stopped after %" PRId64 " of %" PRId64 " cells", cell, o->cells);
        }
        flim_status status = flim_simulation_cell(sim, cell, counts, mask, err);
        if (status == FLIM_OK) {
            status = flim_dataset_writer_cell(writer, cell, counts, mask, err);
        }
        if (status != FLIM_OK) {
            return status;
        }
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

const char *const flim_confound_names[] = {"none", "brightness", "size", NULL};

flim_status flim_simulation_write(const flim_simulation *sim, const char *path, const volatile int *stop,
                                  flim_simulation_totals *totals, flim_error *err)
{
    const flim_simulate_options *o = &sim->info.options;
    size_t cells = (size_t)o->cells, pixels = (size_t)o->height * (size_t)o->width;
    flim_simulation_totals ours = {0};
    flim_dataset_writer *writer = NULL;
    char note[512];
    snprintf(note, sizeof note,
             "Simulated by flim_simulate --cells %" PRId64 " --donors %d --classes %d --bins %d --height %d --width %d "
             "--photons %.17g --separation %.17g --confound %s --seed %" PRIu64,
             o->cells, o->donors, o->classes, o->bins, o->height, o->width, o->photons, o->separation,
             flim_confound_names[o->confound], o->seed);
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
        int64_t number = (int64_t)i - first_cell(o, sim->donor[i]) + 1;
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
    status = flim_dataset_writer_create(path, &layout, &writer, err);
    if (status == FLIM_OK) {
        status = write_cells(sim, writer, counts, mask, stop, &ours, err);
    }
    if (status == FLIM_OK) {
        status = flim_dataset_writer_finish(writer, err);
    }
    if (status == FLIM_OK && totals) {
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

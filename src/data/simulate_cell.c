/* One simulated cell: its outline, where its photons come from, and when each arrives. */
#include "data/simulate_internal.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"

static const double pulse_ns = 2.0; /* t0 of an average donor */
static const double mean_radius = 1.0 / 3.0; /* of the shorter side: 7 of 21 pixels */

/* Standard deviations of what varies, between donors and between the cells of a donor.  Brightness and area: of the log. */
static const double brightness_sd[2] = {0.15, 0.12}, area_sd[2] = {0.10, 0.12}, share_sd[2] = {0.01, 0.02};
static const double pulse_sd_ns = 0.08;
static const double pattern_slope = 0.4; /* of the free photons' share, from the nucleus to twice its radius */
static const double confound_brightness = 1.1, confound_area = 0.6; /* log factor from the first class to the last */

enum { HARMONICS = 3 };

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
        shape.cosine[m] = sd[m] * flim_sim_normal(random);
        shape.sine[m] = sd[m] * flim_sim_normal(random);
    }
    return shape;
}

/* Distance from the centre as a share of the outline's radius in that direction: inside if it is below 1. */
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
 * mitochondria.  weight: (H,W), sums to 1 over the mask; 0 outside.  nearness: (H,W), 1 at the nucleus, falling to 0 at twice
 * its radius. */
static void draw_image(flim_random *random, const flim_simulate_options *o, double area_factor, double *weight,
                       double *nearness, uint8_t *mask)
{
    outline shape = draw_outline(random, o, area_factor), nucleus = shape;
    double away_x, away_y, square, total = 0;
    flim_sim_direction(random, &away_x, &away_y, &square);
    nucleus.radius *= 0.5;
    nucleus.y += 0.2 * shape.radius * away_y;
    nucleus.x += 0.2 * shape.radius * away_x;
    int64_t pixels = (int64_t)o->height * o->width, middle = -1;
    double nearest = INFINITY;
    for (int64_t p = 0; p < pixels; p++) {
        int64_t row = p / o->width, column = p % o->width;
        double y = (double)row, x = (double)column, depth = outline_depth(&shape, y, x);
        double grain = flim_sim_exp(0.2 * flim_sim_normal(random));
        if (depth < nearest) {
            nearest = depth;
            middle = p;
        }
        const double from_nucleus = outline_depth(&nucleus, y, x);
        mask[p] = depth < 1;
        weight[p] = 0;
        nearness[p] = fmin(1, fmax(0, 2 - from_nucleus));
        if (mask[p]) {
            weight[p] = (0.3 + 0.7 * sqrt(1 - depth * depth)) * grain * (from_nucleus < 1 ? 0.4 : 1);
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

/* The share of each pixel's photons that the free component emits, for a cell of `label` whose mean share is `mean`: by
 * nearness to the nucleus, of which a part of the pixels, none in the last class and all in the first, have exchanged their
 * values at random.  The photons' mean is `mean` in every class, so that the summed decay says nothing.  Takes the image's
 * nearness (H,W) and leaves the shares there. */
static void draw_pattern(const flim_simulation *sim, uint32_t cell, double mean, const double *weight, const uint8_t *mask,
                         int64_t *pixel, double *nearness)
{
    const flim_simulate_options *o = &sim->info.options;
    const int64_t pixels = (int64_t)o->height * o->width;
    const double exchanged = 1 - (double)sim->label[cell] / (o->classes - 1);
    flim_random random = flim_sim_begin(sim, cell, PATTERN);
    int64_t n = 0;
    for (int64_t p = 0; p < pixels; p++) {
        if (mask[p] && flim_random_uniform(&random) < exchanged) {
            pixel[n++] = p;
        }
    }
    for (int64_t i = n; i > 1; i--) { /* Fisher-Yates */
        const int64_t a = pixel[i - 1], b = pixel[flim_random_below(&random, (uint64_t)i)];
        const double swap = nearness[a];
        nearness[a] = nearness[b];
        nearness[b] = swap;
    }
    double centre = 0;
    for (int64_t p = 0; p < pixels; p++) {
        centre += weight[p] * nearness[p];
    }
    /* A share stays within 0..1 everywhere, else cutting it off would move the mean. */
    const double slope =
        fmin(pattern_slope * o->separation, fmin(mean / fmax(centre, 1e-9), (1 - mean) / fmax(1 - centre, 1e-9)));
    for (int64_t p = 0; p < pixels; p++) {
        nearness[p] = mean + slope * (nearness[p] - centre);
    }
}

/* What a pixel's photons follow. */
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
        t = (e->t0_ns + sigma * flim_sim_normal(random) + lifetime * flim_sim_exponential(random)) / period_ns;
        t -= floor(t); /* late photons meet the next laser pulse's clock */
    }
    int bin = (int)(t * bins);
    return bin < bins ? bin : bins - 1;
}

/* What is drawn of a cell before its photons. */
typedef struct cell_traits {
    double photons, background; /* mean counts: of the fluorescence in all, of the background per pixel */
    double area_factor, t0_ns, free_photons;
} cell_traits;

static cell_traits draw_traits(const flim_simulation *sim, flim_random *random, int donor, int label)
{
    static const double *const sd[] = {brightness_sd, area_sd, NULL, share_sd};
    const flim_simulate_options *o = &sim->info.options;
    const bool shifted = flim_sim_is_shifted(o, donor);
    const double rank = (double)label / (o->classes - 1) - 0.5; /* of the class, -0.5..0.5 */
    double value[TRAITS];
    for (int i = 0; i < TRAITS; i++) {
        double of_donor = sim->trait[(ptrdiff_t)i * o->donors + donor];
        value[i] = i == TRAIT_PULSE ? pulse_sd_ns * of_donor : sd[i][0] * of_donor + sd[i][1] * flim_sim_normal(random);
    }
    const double variance = brightness_sd[0] * brightness_sd[0] + brightness_sd[1] * brightness_sd[1];
    value[TRAIT_BRIGHTNESS] -= variance / 2; /* the mean of exp(normal) is 1 */
    value[TRAIT_BRIGHTNESS] += o->confound == FLIM_CONFOUND_BRIGHTNESS ? confound_brightness * rank : 0;
    value[TRAIT_AREA] += o->confound == FLIM_CONFOUND_SIZE ? confound_area * rank : 0;
    const double share = fmin(0.98, fmax(0.02, sim->free_share[label] + value[TRAIT_SHARE]));
    const double of_free = share * free_ns, of_bound = (1 - share) * bound_ns;
    return (cell_traits){.photons = o->photons * flim_sim_exp(value[TRAIT_BRIGHTNESS]) * (shifted ? o->donor_brightness : 1),
                         .background = background * (shifted ? o->donor_background : 1),
                         .area_factor = flim_sim_exp(value[TRAIT_AREA]),
                         .t0_ns = pulse_ns + value[TRAIT_PULSE] + (shifted ? o->donor_t0_bins * period_ns / o->bins : 0),
                         .free_photons = of_free / (of_free + of_bound)};
}

/* One Poisson process of rate 1 runs along the pixels laid end to end, each as long as its expected count. */
static flim_status draw_photons(const flim_simulation *sim, flim_random *random, int64_t cell, const cell_traits *traits,
                                const double *weight, const double *free_photons, uint16_t *counts, flim_error *err)
{
    const flim_simulate_options *o = &sim->info.options;
    const int64_t pixels = (int64_t)o->height * o->width;
    double at = flim_sim_exponential(random), end = 0;
    for (int64_t p = 0; p < pixels; p++) {
        const double expected = traits->photons * weight[p] + traits->background;
        const emission emitted = {.t0_ns = traits->t0_ns, .free_photons = free_photons[p]};
        for (end += expected; at < end; at += flim_sim_exponential(random)) {
            uint16_t *count =
                counts + (int64_t)time_bin(random, &emitted, traits->background / expected, o->bins) * pixels + p;
            if (*count == UINT16_MAX) {
                return flim_fail(err, FLIM_ERROR_USAGE,
                                 "cell %" PRId64 " has more than 65535 photons in one voxel: use fewer photons", cell);
            }
            ++*count;
        }
    }
    return FLIM_OK;
}

flim_status flim_simulation_cell(const flim_simulation *sim, int64_t cell, uint16_t *counts, uint8_t *mask, flim_error *err)
{
    const flim_simulate_options *o = &sim->info.options;
    const size_t pixels = (size_t)o->height * (size_t)o->width;
    if (cell < 0 || cell >= o->cells) {
        return flim_fail(err, FLIM_ERROR_USAGE, "cell %" PRId64 " of a simulation of %" PRId64, cell, o->cells);
    }
    flim_status status = FLIM_ERROR_MEMORY;
    double *weight = flim_alloc(2 * pixels, sizeof *weight, err); /* (H,W) and after it free_photons (H,W) */
    int64_t *scratch = weight ? flim_alloc(pixels, sizeof *scratch, err) : NULL; /* (H W) */
    if (scratch) {
        double *free_photons = weight + pixels;
        flim_random random = flim_sim_begin(sim, (uint32_t)cell, CELL);
        const cell_traits traits = draw_traits(sim, &random, sim->donor[cell], sim->label[cell]);
        draw_image(&random, o, traits.area_factor, weight, free_photons, mask);
        if (o->signal == FLIM_SIGNAL_PATTERN) {
            draw_pattern(sim, (uint32_t)cell, traits.free_photons, weight, mask, scratch, free_photons);
        } else {
            for (size_t p = 0; p < pixels; p++) {
                free_photons[p] = traits.free_photons;
            }
        }
        memset(counts, 0, (size_t)o->bins * pixels * sizeof *counts);
        status = draw_photons(sim, &random, cell, &traits, weight, free_photons, counts, err);
    }
    flim_free(weight);
    flim_free(scratch);
    return status;
}

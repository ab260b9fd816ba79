/* What the files of the simulation share: constants, the simulation, random numbers. */
#ifndef FLIM_DATA_SIMULATE_INTERNAL_H
#define FLIM_DATA_SIMULATE_INTERNAL_H

#include <math.h>

#include "flim/random.h"
#include "flim/simulate.h"

/* What does not depend on the options.  Lifetimes and free shares are NAD(P)H's in living cells (free about 0.4 ns, bound
 * 2 to 3 ns, free share 0.6 to 0.8, higher in activated T cells); 80 MHz laser; detector response 0.2 ns. */
static const double period_ns = 12.5, free_ns = 0.4, bound_ns = 2.5, irf_fwhm_ns = 0.2;
static const double background = 0.12; /* counts per pixel, over all bins */

enum { CELL = 0, LABELS = 1, DONORS = 2, BALANCE = 3, PATTERN = 4 }; /* `repeat` of the random numbers for each purpose */

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

static inline flim_random flim_sim_begin(const flim_simulation *sim, uint32_t number, uint32_t repeat)
{
    flim_cell_id id = {.seed = sim->info.options.seed, .cell = number, .repeat = repeat};
    return flim_random_begin(&id, FLIM_RANDOM_SIMULATE);
}

/* Whether a donor belongs to the half that the donor_* options change. */
static inline bool flim_sim_is_shifted(const flim_simulate_options *o, int donor)
{
    return donor >= o->donors / 2;
}

static inline int64_t flim_sim_first_cell(const flim_simulate_options *o, int donor)
{
    return o->cells * donor / o->donors;
}

/* ---- exp, log and normal numbers from IEEE basic operations: a libm may differ in the last bit between machines */

#define LN2 0.69314718055994530942

static inline double flim_sim_log(double x) /* x > 0 */
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

static inline double flim_sim_exp(double x) /* |x| < 700 */
{
    double k = floor(x / LN2 + 0.5), r = x - k * LN2, sum = 1;
    for (int i = 16; i >= 1; i--) {
        sum = 1 + r / i * sum;
    }
    return ldexp(sum, (int)k);
}

static inline double flim_sim_exponential(flim_random *random) /* mean 1 */
{
    return -flim_sim_log(1.0 - flim_random_uniform(random));
}

/* A uniform direction by rejection from the square; its squared length before scaling goes to *square. */
static inline void flim_sim_direction(flim_random *random, double *x, double *y, double *square)
{
    do {
        *x = 2 * flim_random_uniform(random) - 1;
        *y = 2 * flim_random_uniform(random) - 1;
        *square = *x * *x + *y * *y;
    } while (*square >= 1 || *square == 0);
}

static inline double flim_sim_normal(flim_random *random) /* Marsaglia's polar method: log and sqrt are enough */
{
    double x, y, s;
    flim_sim_direction(random, &x, &y, &s);
    return x * sqrt(-2 * flim_sim_log(s) / s);
}

#endif

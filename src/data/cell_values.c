#include "data/cell_values.h"

#include <math.h>

enum { SAMPLE = 512, LEAST_SAMPLE = 4, PARTS = 12 };

static double same(double v)
{
    return v;
}

static double from_log1p_tenth(double v)
{
    return expm1(10 * v);
}

static double from_log10(double v)
{
    return pow(10, v) - 1;
}

static double from_log2(double v)
{
    return exp2(v) - 1;
}

static double squared(double v)
{
    return v * v;
}

static const struct {
    double (*count)(double value);
    const char *words;
} kinds[FLIM_N_VALUES] = {[FLIM_VALUES_WHOLE] = {same, "whole numbers"},
                          [FLIM_VALUES_LOG1P] = {expm1, "log(1 + count)"},
                          [FLIM_VALUES_LOG1P_TENTH] = {from_log1p_tenth, "log(1 + count) / 10"},
                          [FLIM_VALUES_LOG10] = {from_log10, "log10(1 + count)"},
                          [FLIM_VALUES_LOG2] = {from_log2, "log2(1 + count)"},
                          [FLIM_VALUES_ROOT] = {squared, "square roots of counts"},
                          [FLIM_VALUES_MULTIPLES] = {same, "counts times a constant"},
                          [FLIM_VALUES_OTHER] = {same, "neither counts nor a known function of counts"}};

const char *flim_values_words(flim_values kind)
{
    return kinds[kind].words;
}

double flim_value_count(flim_values kind, double unit, double value)
{
    const double count = kinds[kind].count(value) / unit;
    return kind == FLIM_VALUES_OTHER ? count : nearbyint(count);
}

/* Adding 2^23 leaves no fraction in a float; what is larger has none. */
static bool all_whole(const float *values, int64_t n)
{
    int broken = 0;
    for (int64_t i = 0; i < n; i++) {
        const float shift = 8388608.0f;
        const float v = values[i] < shift ? values[i] : 0.0f;
        broken |= (v + shift) - shift != v;
    }
    return !broken;
}

/* At least 1, and whole within what rounding to float leaves of a function of a count. */
static bool is_whole(double count)
{
    return count > 0.5 && fabs(count - nearbyint(count)) < 2e-3 + 1e-6 * count && count < 2147483647.0;
}

static bool all_are(flim_values kind, double unit, const double *sample, int n)
{
    for (int i = 0; i < n; i++) {
        if (!is_whole(kinds[kind].count(sample[i]) / unit)) {
            return false;
        }
    }
    return true;
}

flim_values flim_values_of(const float *values, int64_t n, double *unit)
{
    double sample[SAMPLE], least = INFINITY;
    int taken = 0;
    *unit = 1;
    if (all_whole(values, n)) {
        return FLIM_VALUES_WHOLE;
    }
    for (int64_t i = 0; i < n; i++) {
        least = fmin(least, (double)values[i]);
        if (taken < SAMPLE) {
            sample[taken++] = (double)values[i];
        }
    }
    for (flim_values kind = FLIM_VALUES_LOG1P; kind <= FLIM_VALUES_ROOT; kind++) {
        if (taken >= LEAST_SAMPLE && all_are(kind, 1, sample, taken)) {
            return kind;
        }
    }
    for (int part = 1; taken >= LEAST_SAMPLE && part <= PARTS; part++) { /* the least value may be of several photons */
        if (all_are(FLIM_VALUES_MULTIPLES, least / part, sample, taken)) {
            *unit = least / part;
            return FLIM_VALUES_MULTIPLES;
        }
    }
    return FLIM_VALUES_OTHER;
}

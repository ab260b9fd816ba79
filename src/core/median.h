/* The median, for measurements and tables. */
#ifndef FLIM_CORE_MEDIAN_H
#define FLIM_CORE_MEDIAN_H

#include <stdint.h>
#include <stdlib.h>

static inline int flim_compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values; with an even number of them the mean of the middle two. */
static inline double flim_median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, flim_compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

#endif

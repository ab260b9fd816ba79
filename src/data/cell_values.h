/* What the numbers of a cell are: photon counts, or what somebody made of them. */
#ifndef FLIM_DATA_CELL_VALUES_H
#define FLIM_DATA_CELL_VALUES_H

#include <stdint.h>

#include "flim/dataset.h"

/* values (n): those of a cell that are above 0.  *unit gets what FLIM_VALUES_MULTIPLES are multiples of, else 1. */
flim_values flim_values_of(const float *values, int64_t n, double *unit);

/* The count that a value stands for, rounded to a whole number; of FLIM_VALUES_OTHER the value itself. */
double flim_value_count(flim_values kind, double unit, double value);

/* In words: "log(1 + count)". */
const char *flim_values_words(flim_values kind);

#endif

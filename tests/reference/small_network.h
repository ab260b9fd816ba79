/* Networks of a few units, made from rows: what a layer test runs as a program. */
#ifndef REFERENCE_SMALL_NETWORK_H
#define REFERENCE_SMALL_NETWORK_H

#include "flim/network.h"

enum { REF_BN = 1, REF_ACT = 2, REF_POOL = 4, REF_DROP = 8 };

typedef struct ref_row {
    int input; /* row whose y is x; -1 = the network's input of 2 channels */
    int skip; /* row whose y is added; -1 = none */
    int out_channels; /* 0 ends a list of rows */
    int kernel[3], stride[3], pad[3]; /* t, y, x */
    unsigned what; /* REF_BN | ... */
} ref_row;

/* Units of these rows, ended by `n` or a row without channels, then a head; outputs 1: two classes.  Units are called a, b, ... */
flim_network ref_small_network(const int size[3], const ref_row *rows, int n, int hidden, int outputs);

/* Parameters (P) and statistics (S): weights that every storage type holds exactly, a negative gamma in each BatchNorm. */
void ref_small_weights(const flim_network *net, uint32_t seed, float *parameters, float *statistics);

#endif

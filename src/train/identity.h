/* What a run's numbers depend on, as a list of named values: compared on --resume, and kept in every checkpoint.
 *
 * A field is fixed where going on with another value would mix two runs (other cells, folds, network, seed), and free where a
 * user may want it all the same (batch, precision, device, learning rate): --resume-override takes the latter only.
 */
#ifndef FLIM_TRAIN_IDENTITY_H
#define FLIM_TRAIN_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>

#include "flim/status.h"

enum { FLIM_IDENTITY_FIELDS = 40, FLIM_IDENTITY_TEXT = 4096 };

typedef struct flim_identity_field {
    char name[24], value[80]; /* neither holds a comma */
    bool fixed;
} flim_identity_field;

typedef struct flim_identity {
    int n;
    flim_identity_field field[FLIM_IDENTITY_FIELDS];
} flim_identity;

/* Adds a field; printf format for its value. */
void flim_identity_add(flim_identity *identity, const char *name, bool fixed, const char *format, ...) FLIM_PRINTF(4, 5);
/* The field of that name, or NULL. */
const flim_identity_field *flim_identity_find(const flim_identity *identity, const char *name);
/* "cells 72, shape 16x21x21, ...": one text for the whole. */
void flim_identity_text(const flim_identity *identity, char out[FLIM_IDENTITY_TEXT]);

#endif

/* What a run's numbers depend on, as a list of named values: compared on --resume, and carried by every checkpoint.
 *
 * For: resume.  A field is fixed if another value would mix two runs (other cells, folds, network, seed); --resume-override
 *      takes the others (batch, precision, device, learning rate).
 * Owns: a plain struct; zeroed is empty.  Errors: none.
 */
#ifndef FLIM_TRAIN_IDENTITY_H
#define FLIM_TRAIN_IDENTITY_H

#include <stdbool.h>

#include "config/settings.h"

enum { FLIM_IDENTITY_TEXT = 4096 };

typedef struct flim_identity_value {
    char name[24], text[160]; /* neither holds a comma; name "" = not known yet */
    bool fixed;
} flim_identity_value;

typedef struct flim_identity {
    flim_identity_value value[FLIM_IDENTITY_FIELDS]; /* by flim_identity_field */
} flim_identity;

/* Sets a field; printf format for its value. */
void flim_identity_set(flim_identity *identity, flim_identity_field field, const char *name, bool fixed, const char *format,
                       ...) FLIM_PRINTF(5, 6);
/* Sets the fields that the settings' table names, each to its setting's value; fixed as on_resume has it. */
void flim_identity_set_settings(flim_identity *identity, const flim_settings *settings);
/* A setting's field that something else decides: its value, in place of the setting's. */
void flim_identity_resolve(flim_identity *identity, flim_identity_field field, const char *format, ...) FLIM_PRINTF(3, 4);
/* "cells 72, shape 16x21x21, ...": one text for the whole. */
void flim_identity_text(const flim_identity *identity, char out[FLIM_IDENTITY_TEXT]);
/* Whether such a text has the field `name` with this value.  text NULL: no. */
bool flim_identity_text_has(const char *text, const char *name, const char *value);

static inline bool flim_identity_is_of_data(flim_identity_field field)
{
    return (field >= FLIM_IDENTITY_CELLS && field <= FLIM_IDENTITY_NAMES) ||
           (field >= FLIM_IDENTITY_CLASS_NAMES && field <= FLIM_IDENTITY_MASK);
}

#endif

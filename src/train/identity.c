#include "train/identity.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void flim_identity_add(flim_identity *identity, const char *name, bool fixed, const char *format, ...)
{
    if (identity->n == FLIM_IDENTITY_FIELDS) {
        return; /* not reached: the fields are listed in one place, in resume.c */
    }
    flim_identity_field *field = &identity->field[identity->n++];
    va_list args;
    va_start(args, format);
    vsnprintf(field->value, sizeof field->value, format, args);
    va_end(args);
    snprintf(field->name, sizeof field->name, "%s", name);
    field->fixed = fixed;
}

const flim_identity_field *flim_identity_find(const flim_identity *identity, const char *name)
{
    for (int i = 0; i < identity->n; i++) {
        if (strcmp(identity->field[i].name, name) == 0) {
            return &identity->field[i];
        }
    }
    return NULL;
}

void flim_identity_text(const flim_identity *identity, char out[FLIM_IDENTITY_TEXT])
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < identity->n && used < FLIM_IDENTITY_TEXT; i++) {
        const flim_identity_field *field = &identity->field[i];
        int length = snprintf(out + used, FLIM_IDENTITY_TEXT - used, "%s%s %s", i ? ", " : "", field->name, field->value);
        used += length > 0 ? (size_t)length : 0;
    }
}

/* CSV as RFC 4180 has it. */
#ifndef FLIM_FORMATS_CSV_H
#define FLIM_FORMATS_CSV_H

#include <stdio.h>

/* Writes one field, in quotes if it needs them.  NULL is an empty field. */
void flim_csv_put(FILE *stream, const char *text);

#endif

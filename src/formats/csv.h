/* CSV as RFC 4180 has it, in UTF-8.
 *
 * For: tables with names in them.  A text that a spreadsheet would run as a formula (it begins with = + - @, a tab or a carriage
 *      return and is no number, with or without apostrophes before it) gets an apostrophe in front; flim_csv_text takes it off.
 * Owns: nothing.  Errors: the stream's, which its owner sees.
 */
#ifndef FLIM_FORMATS_CSV_H
#define FLIM_FORMATS_CSV_H

#include <stdbool.h>
#include <stdio.h>

/* Writes one text field, in quotes if it needs them.  NULL is an empty field; bytes that are no UTF-8 are taken as Latin-1. */
void flim_csv_put(FILE *stream, const char *text);
/* The text of a field as flim_csv_put got it. */
const char *flim_csv_text(const char *field);

#endif

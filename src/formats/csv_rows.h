/* Rows of CSV as RFC 4180 has it, out of a text that is taken apart in place.
 *
 * For: tables that users write.  Fields may be in quotes, hold commas, line ends and doubled quotes; lines end in LF or CRLF; a mark of
 *      UTF-8 at the begin is passed over, and so are empty lines.
 * Owns: nothing: the fields lie in the caller's text.
 */
#ifndef FLIM_FORMATS_CSV_ROWS_H
#define FLIM_FORMATS_CSV_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/status.h"

typedef struct flim_csv_rows {
    char *at; /* begin with the text's first byte */
    int64_t line; /* of the row that was read last, counted from 1; begin with 0 */
    int64_t lines; /* read so far; begin with 0 */
} flim_csv_rows;

/* The next row's fields into field (most), *n of them; *n = 0 after the last.  FLIM_ERROR_DATA, with line but without the file's
 * name, for more fields than that and for quotes that do not end. */
flim_status flim_csv_next_row(flim_csv_rows *rows, char **field, int most, int *n, flim_error *err);

#endif

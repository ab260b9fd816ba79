/* gnuplot, shut in one file: a script in, an SVG picture out. */
#ifndef FLIM_REPORT_GNUPLOT_H
#define FLIM_REPORT_GNUPLOT_H

#include <stdio.h>

#include "flim/status.h"

typedef struct gnuplot_script {
    FILE *stream; /* write the script here; data go into it as datablocks */
    char path[64]; /* of the temporary file */
} gnuplot_script;

/* Opens a script that draws an SVG of width x height points. */
flim_status gnuplot_begin(gnuplot_script *script, int width, int height, flim_error *err);
/* Runs it.  *svg is the caller's (flim_free), *bytes its length.  FLIM_ERROR with gnuplot's own words where it is absent or
 * refuses.  Ends the script in any case. */
flim_status gnuplot_run(gnuplot_script *script, char **svg, size_t *bytes, flim_error *err);
void gnuplot_abandon(gnuplot_script *script); /* harmless after gnuplot_run */

/* Writes text as a quoted string of gnuplot. */
void gnuplot_put_text(FILE *stream, const char *text);

#endif

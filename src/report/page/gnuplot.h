/* gnuplot: a script from a template in, an SVG picture out. */
#ifndef FLIM_REPORT_GNUPLOT_H
#define FLIM_REPORT_GNUPLOT_H

#include "formats/json.h"

/* Draws what the template makes of the values.  *svg is the caller's (flim_free), *bytes its length.  FLIM_ERROR with
 * gnuplot's own words if it is not installed or refuses. */
flim_status gnuplot_draw(const char *template_name, const flim_json *values, char **svg, size_t *bytes, flim_error *err);

#endif

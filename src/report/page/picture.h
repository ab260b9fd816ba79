/* Small pictures of the page, as PNG files in base64. */
#ifndef FLIM_REPORT_PICTURE_H
#define FLIM_REPORT_PICTURE_H

#include "formats/json.h"
#include "flim/status.h"

/* Sets key to value (h,w) in grey: black = 0, white = `most`. */
flim_status html_set_grey(flim_json *values, const char *key, const double *value, int h, int w, double most,
                          flim_error *err);
/* Sets key to value (h,w) in two colours: black = 0, blue = most, orange = -most. */
flim_status html_set_signed(flim_json *values, const char *key, const double *value, int h, int w, double most,
                            flim_error *err);

#endif

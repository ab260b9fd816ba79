/* The parts of the page's values that have a file of their own: what the templates of the page are filled with. */
#ifndef FLIM_REPORT_HTML_H
#define FLIM_REPORT_HTML_H

#include "formats/json.h"
#include "report/report_internal.h"

/* gallery.html: the errors that the network was surest of, with pictures if the data can be read. */
flim_status html_set_gallery(flim_json *run_values, const report_run *run, const flim_report_options *options,
                             flim_error *err);
/* comparison.html */
flim_json *html_comparison(const report_comparison *c);

/* Sets key to a p-value as tables show it, null if it is undefined. */
void html_set_p(flim_json *object, const char *key, double p);
/* Sets "interval" to its ends, null if it is undefined. */
void html_set_interval(flim_json *object, const char *key, const flim_interval *interval);

#endif

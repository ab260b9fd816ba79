/* What html.c and gallery.c share: writing into the page. */
#ifndef FLIM_REPORT_HTML_H
#define FLIM_REPORT_HTML_H

#include "report/report_internal.h"

/* Text with <, >, & and quotes as entities. */
void html_put_text(FILE *stream, const char *text);
void html_put_base64(FILE *stream, const unsigned char *bytes, size_t count);

/* ---- gallery.c */
/* The errors that the network was surest of, with pictures where the data can be read. */
flim_status html_put_gallery(FILE *stream, const report_run *run, const flim_report_options *options, flim_error *err);

#endif

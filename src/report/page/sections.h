/* The page as a list of sections.
 *
 * For: everything that fold_metrics --html shows.  A section is a row of one of the two lists in sections.c: its id (its anchor, and
 *      its template, templates/ID.html), the title that the contents and its heading show, whether it applies, and what fills
 *      its template with values.  A section that does not apply is left out of the contents, too.
 * To add one: a file section_NAME.c with its functions, a template templates/NAME.html without a heading, and the row in sections.c at
 *      the place where the page shows it; its two functions are declared below.  A template finds, beside the values that its
 *      section sets, those of its run (set_run in page.c): folder, label, n_folds, mode, n_cells, n_classes, two,
 *      class_1, classes [{name, cells}], n_groups.  Figures are set by html_set_plot.
 * Owns: values belong to the page, which frees them.  Errors: FLIM_ERROR_MEMORY, FLIM_ERROR if gnuplot is missing or fails.
 */
#ifndef FLIM_REPORT_SECTIONS_H
#define FLIM_REPORT_SECTIONS_H

#include "formats/json.h"
#include "report/page/cells.h"

/* What a section is about. */
typedef struct report_subject {
    const flim_report *report;
    const report_run *run; /* NULL in sections about all runs */
    const report_cells *cells; /* the run's data; NULL if they are not wanted (options.pictures), or cannot be read, */
    const char *no_cells; /* for this reason */
} report_subject;

typedef struct report_section {
    const char *id, *title;
    bool (*applies)(const report_subject *subject); /* NULL = always */
    bool live; /* also of a run of which no fold is done yet: it has folder, label, splits and history only */
    flim_status (*fill)(flim_json *values, const report_subject *subject, flim_error *err);
} report_section;

/* In the page's order; (n) each.  About all runs together, then about each run. */
extern const report_section report_sections_of_all[], report_sections_of_run[];
extern const size_t report_n_sections_of_all, report_n_sections_of_run;

/* ---- section_*.c */
bool section_overlay_applies(const report_subject *subject);
flim_status section_overlay_fill(flim_json *values, const report_subject *subject, flim_error *err);
bool section_comparison_applies(const report_subject *subject);
flim_status section_comparison_fill(flim_json *values, const report_subject *subject, flim_error *err);
flim_status section_summary_fill(flim_json *values, const report_subject *subject, flim_error *err);
flim_status section_metrics_fill(flim_json *values, const report_subject *subject, flim_error *err);
flim_status section_curves_fill(flim_json *values, const report_subject *subject, flim_error *err);
flim_status section_confusion_fill(flim_json *values, const report_subject *subject, flim_error *err);
flim_status section_calibration_fill(flim_json *values, const report_subject *subject, flim_error *err);
bool section_learning_applies(const report_subject *subject);
flim_status section_learning_fill(flim_json *values, const report_subject *subject, flim_error *err);
bool section_groups_applies(const report_subject *subject);
flim_status section_groups_fill(flim_json *values, const report_subject *subject, flim_error *err);
bool section_baselines_applies(const report_subject *subject);
flim_status section_baselines_fill(flim_json *values, const report_subject *subject, flim_error *err);
bool section_decays_applies(const report_subject *subject);
flim_status section_decays_fill(flim_json *values, const report_subject *subject, flim_error *err);
bool section_embeddings_applies(const report_subject *subject);
flim_status section_embeddings_fill(flim_json *values, const report_subject *subject, flim_error *err);
bool section_errors_applies(const report_subject *subject);
flim_status section_errors_fill(flim_json *values, const report_subject *subject, flim_error *err);
bool section_gallery_applies(const report_subject *subject);
flim_status section_gallery_fill(flim_json *values, const report_subject *subject, flim_error *err);
flim_status section_making_fill(flim_json *values, const report_subject *subject, flim_error *err);

/* ---- values.c */
/* Sets key to a p-value as tables show it, null if it is undefined. */
void html_set_p(flim_json *object, const char *key, double p);
/* Sets key to the interval's ends, {low, high}, null if it is undefined. */
void html_set_interval(flim_json *object, const char *key, const flim_interval *interval);
/* Wilson's 95 % interval of a share of n (Wilson 1927), right if the share is 0 or 1 as well. */
flim_interval html_share_interval(double share, double n);

#endif

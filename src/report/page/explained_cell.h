/* Where the network that tested a cell looks: its row of a file of predict --explain, as values of the gallery. */
#ifndef FLIM_REPORT_EXPLAINED_CELL_H
#define FLIM_REPORT_EXPLAINED_CELL_H

#include "report/page/sections.h"

/* True if the page has an explanation for some cell of the run by the model of the fold that tested it. */
bool html_has_explanations(const report_subject *subject);
/* Sets "map" to {bitmap, blocks [{x, width, opacity, toward}], t_most, space_most}, null where cell `at` of the pool is not
 * explained.  Effects on the logit of the class that is predicted; a decay's axis reaches from `left` to `right`. */
flim_status html_set_explanation(flim_json *values, const report_subject *subject, int64_t at, double left, double right,
                                 flim_error *err);

#endif

/* Principal components of embeddings, and what they have to do with classes and groups.
 *
 * For: fold_metrics --embeddings.  Components are those of the covariance of the features, centred and not scaled: each model's
 *      features by themselves, over all cells of the file.  Eta squared of a class in a component is the share of the scores'
 *      variance that lies between the classes: 0 = the component tells nothing of them, 1 = it tells them entirely.  A component that
 *      tells donors apart is no fault, but a classifier may take it for the class.
 * Owns: report_components_free.
 * Errors: FLIM_ERROR_MEMORY; FLIM_ERROR_DATA for features that are not finite.
 */
#ifndef FLIM_REPORT_PRINCIPAL_H
#define FLIM_REPORT_PRINCIPAL_H

#include "flim/embeddings.h"

enum { REPORT_N_COMPONENTS = 5 };

typedef struct report_component {
    double share; /* of the variance of all features; NaN: these do not vary */
    double eta_class, eta_group; /* NaN: no labels, no groups, or only one; or a component without variance */
} report_component;

typedef struct report_components {
    int models, n_shown; /* components per model: at most REPORT_N_COMPONENTS, the features and the cells */
    int64_t n, groups; /* cells; groups among them, 0 = the file has none */
    int width; /* features */
    report_component *component; /* (models, n_shown) */
    double *effective; /* (models) (sum of variances)^2 / sum of squares: how many directions the features fill */
    double *score; /* (models, n, 2) of each cell on the first two components; the second is 0 if there is one only */
    int64_t *group_of; /* (n), NULL without groups */
    char **group_name; /* (groups) in the order of the alphabet; views into the embeddings */
} report_components;

/* *out is zeroed after an error. */
flim_status report_components_make(const flim_embeddings *e, report_components *out, flim_error *err);
void report_components_free(report_components *components); /* zeroed is allowed */

#endif

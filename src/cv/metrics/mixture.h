/* How common the classes of unlabelled cells are: the likeliest weights of a mixture of which each cell's densities are known.
 *
 * For: prior_shift.c.  The log likelihood sum_i times_i log(sum_k weight_k r_ik), r_ik = posterior_ik / source_k, is concave on
 *      the simplex.  With g_k = mean_i r_ik / (sum_j weight_j r_ij), no prior's mean log likelihood is above that of `weight`
 *      by more than max_k g_k - 1, the gap (Lindsay, The geometry of mixture likelihoods, Annals of Statistics 11, 1983).  The
 *      search ends where the gap is below 1e-12, or where rounding hides every rise.
 *      Two classes: the derivative's only zero, by Newton's steps inside a bracket, or an end of [0,1].  More: Newton's steps
 *      over the classes that the gradient does not hold at 0, halved until the likelihood rises, else one of EM.
 * Owns: nothing.  Errors: none.  Deterministic.
 */
#ifndef FLIM_CV_MIXTURE_H
#define FLIM_CV_MIXTURE_H

#include <stdint.h>

typedef struct flim_mixture {
    int64_t n;
    int classes;
    const double *posterior, *source; /* (n,K), (K) */
    const int64_t *times; /* (n) how often each cell counts; NULL = once */
} flim_mixture;

/* From the weights (K) that stand there, above 0 where source is, which are kept if they are likeliest already (so where all
 * are alike).  A class of source 0 stays at 0, and cells that have a posterior of such classes only are left out.
 * scratch: (K). */
void flim_mixture_maximise(const flim_mixture *mixture, double *weight, double *scratch);

#endif

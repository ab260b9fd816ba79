/* Exponential and logarithm by sums, products and quotients alone: the same bits on every machine, whatever its libm.
 * Relative error below 1e-12.  For: what random draws are decided by. */
#ifndef FLIM_CORE_EXACT_MATH_H
#define FLIM_CORE_EXACT_MATH_H

double flim_exact_exp(double x); /* x <= 0; 0 below -700 */
double flim_exact_log(double x); /* x > 0, finite, normal */

#endif

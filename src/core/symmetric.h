/* Eigenvalues and eigenvectors of a symmetric matrix in double precision.
 *
 * For: principal components of a few hundred columns; n^3 operations, so not for thousands.
 *      Householder's reduction to a tridiagonal matrix, then QL with implicit shifts: the procedures tred2 and imtql2 of Martin,
 *      Reinsch and Wilkinson (Numerische Mathematik 11 and 12, 1968), as in EISPACK.
 * Owns: nothing; the arrays are the caller's.
 * Errors: FLIM_ERROR_MEMORY; FLIM_ERROR for a matrix with values that are not finite.
 */
#ifndef FLIM_CORE_SYMMETRIC_H
#define FLIM_CORE_SYMMETRIC_H

#include "flim/status.h"

/* a (n,n): the matrix, of which the lower triangle is read; becomes its eigenvectors of length 1, one per row, each with its largest
 * component positive.  value (n): the eigenvalues, largest first. */
flim_status flim_symmetric_eigen(int n, double *a, double *value, flim_error *err);

#endif

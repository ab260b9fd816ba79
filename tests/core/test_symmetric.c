/* Eigenvalues and eigenvectors: A v = l v, vectors at right angles, in order; against Jacobi's rotations, a plain other way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/symmetric.h"

static uint32_t state_of_random;

static double random_number(void) /* in [-1, 1) */
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return (double)(state_of_random >> 8) / 8388608.0 - 1.0;
}

/* Cyclic rotations until nothing is left beside the diagonal; value in descending order. */
static void jacobi(int n, double *a, double *value)
{
    for (int sweep = 0; sweep < 60; sweep++) {
        for (int p = 0; p < n; p++) {
            for (int q = p + 1; q < n; q++) {
                if (fabs(a[p * n + q]) < 1e-300) {
                    continue;
                }
                const double theta = 0.5 * atan2(2 * a[p * n + q], a[q * n + q] - a[p * n + p]), c = cos(theta),
                             s = sin(theta);
                for (int k = 0; k < n; k++) {
                    const double x = a[k * n + p], y = a[k * n + q];
                    a[k * n + p] = c * x - s * y;
                    a[k * n + q] = s * x + c * y;
                }
                for (int k = 0; k < n; k++) {
                    const double x = a[p * n + k], y = a[q * n + k];
                    a[p * n + k] = c * x - s * y;
                    a[q * n + k] = s * x + c * y;
                }
            }
        }
    }
    for (int i = 0; i < n; i++) {
        double v = a[i * n + i];
        int j = i;
        for (; j > 0 && value[j - 1] < v; j--) {
            value[j] = value[j - 1];
        }
        value[j] = v;
    }
}

static void check(int n, const double *matrix, const char *what)
{
    const size_t cells = (size_t)n * (size_t)n;
    double *a = malloc(cells * sizeof *a), *other = malloc(cells * sizeof *a);
    double *value = calloc((size_t)n, sizeof *value), *expected = calloc((size_t)n, sizeof *value), size = 0;
    flim_error err = {0};
    memcpy(a, matrix, cells * sizeof *a);
    memcpy(other, matrix, cells * sizeof *a);
    for (size_t i = 0; i < cells; i++) {
        size = fmax(size, fabs(matrix[i]));
    }
    for (int i = 0; i < n; i++) {
        for (int j = i + 1; j < n; j++) {
            a[i * n + j] = NAN; /* only the lower triangle is read */
        }
    }
    assert_int_equal(flim_symmetric_eigen(n, a, value, &err), FLIM_OK);
    jacobi(n, other, expected);
    for (int i = 0; i < n; i++) {
        if (fabs(value[i] - expected[i]) > 1e-12 * n * size) {
            fail_msg("%s, n = %d: eigenvalue %d is %.17g, by Jacobi's rotations %.17g", what, n, i, value[i], expected[i]);
        }
        for (int j = 0; j < n; j++) {
            double product = 0, dot = 0;
            for (int k = 0; k < n; k++) {
                product += matrix[j * n + k] * a[i * n + k];
                dot += a[i * n + k] * a[j * n + k];
            }
            if (fabs(product - value[i] * a[i * n + j]) > 1e-12 * n * size || fabs(dot - (i == j)) > 1e-12 * n) {
                fail_msg("%s, n = %d: vector %d: (A v - l v)[%d] = %g, v%d . v%d = %.17g", what, n, i, j,
                         product - value[i] * a[i * n + j], i, j, dot);
            }
        }
    }
    free(a);
    free(other);
    free(value);
    free(expected);
}

static void random_matrices(void **state)
{
    (void)state;
    for (int n = 1; n <= 40; n += n < 8 ? 1 : 9) {
        double *m = malloc((size_t)n * (size_t)n * sizeof *m);
        for (int kind = 0; kind < 3; kind++) { /* full; of rank 2; with magnitudes far apart */
            state_of_random = (uint32_t)(100 * n + kind);
            double u[2][40], scale[40];
            for (int i = 0; i < n; i++) {
                u[0][i] = random_number();
                u[1][i] = random_number();
                scale[i] = kind == 2 ? pow(10, -8.0 * i / n) : 1;
            }
            for (int i = 0; i < n; i++) {
                for (int j = 0; j <= i; j++) {
                    const double v =
                        kind == 1 ? u[0][i] * u[0][j] + u[1][i] * u[1][j] : random_number() * scale[i] * scale[j];
                    m[i * n + j] = m[j * n + i] = v;
                }
            }
            check(n, m, kind == 0 ? "full" : kind == 1 ? "rank 2" : "scaled");
        }
        free(m);
    }
}

static void special_matrices(void **state)
{
    (void)state;
    double m[36] = {0};
    check(6, m, "zero");
    for (int i = 0; i < 6; i++) {
        m[i * 7] = 3;
    }
    check(6, m, "equal eigenvalues");
    m[0] = -1;
    m[35] = 1e-300;
    check(6, m, "diagonal");
    for (int i = 0; i < 5; i++) {
        m[i * 6 + i + 1] = m[(i + 1) * 6 + i] = i == 2 ? 0 : 1; /* two blocks */
    }
    check(6, m, "tridiagonal");
}

static void refuses_what_is_not_finite(void **state)
{
    (void)state;
    double m[4] = {1, 0, INFINITY, 1}, value[2];
    flim_error err = {0};
    assert_int_equal(flim_symmetric_eigen(2, m, value, &err), FLIM_ERROR);
    assert_non_null(strstr(err.text, "not finite"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_matrices), cmocka_unit_test(special_matrices),
                                       cmocka_unit_test(refuses_what_is_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

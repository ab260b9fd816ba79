#include "core/symmetric.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/alloc.h"

enum { MOST_ROUNDS = 60 }; /* per eigenvalue; 2 are usual */

typedef struct tridiagonal {
    int64_t n;
    double *a; /* (n,n): the matrix, then the columns of the transformation */
    double *diagonal, *off; /* (n) each; off[i] stands between i - 1 and i */
} tridiagonal;

static double *at(const tridiagonal *m, int64_t row, int64_t column)
{
    return &m->a[(size_t)row * (size_t)m->n + (size_t)column];
}

/* Row i of the matrix, whose entries left of the one beside the diagonal are to become 0, as the vector of its reflection; returns h
 * of I - u u' / h, 0 where there is nothing to do. */
static double make_reflection(tridiagonal *m, int64_t i)
{
    double scale = 0.0, h = 0.0;
    for (int64_t k = 0; k < i; k++) {
        scale += fabs(*at(m, i, k));
    }
    if (i == 1 || scale == 0.0) {
        m->off[i] = *at(m, i, i - 1);
        return 0.0;
    }
    for (int64_t k = 0; k < i; k++) {
        *at(m, i, k) /= scale;
        h += *at(m, i, k) * *at(m, i, k);
    }
    const double f = *at(m, i, i - 1), g = f >= 0.0 ? -sqrt(h) : sqrt(h);
    m->off[i] = scale * g;
    *at(m, i, i - 1) = f - g;
    return h - f * g;
}

/* The reflection of row i from both sides, on the rows and columns before it. */
static void reflect(tridiagonal *m, int64_t i, double h)
{
    double sum = 0.0;
    for (int64_t j = 0; j < i; j++) {
        double g = 0.0;
        *at(m, j, i) = *at(m, i, j) / h;
        for (int64_t k = 0; k <= j; k++) {
            g += *at(m, j, k) * *at(m, i, k);
        }
        for (int64_t k = j + 1; k < i; k++) {
            g += *at(m, k, j) * *at(m, i, k);
        }
        m->off[j] = g / h;
        sum += m->off[j] * *at(m, i, j);
    }
    const double half = sum / (h + h);
    for (int64_t j = 0; j < i; j++) {
        const double f = *at(m, i, j), g = m->off[j] - half * f;
        m->off[j] = g;
        for (int64_t k = 0; k <= j; k++) {
            *at(m, j, k) -= f * m->off[k] + g * *at(m, i, k);
        }
    }
}

static void reduce(tridiagonal *m)
{
    for (int64_t i = m->n - 1; i > 0; i--) {
        const double h = make_reflection(m, i);
        if (h != 0.0) {
            reflect(m, i, h);
        }
        m->diagonal[i] = h;
    }
    m->diagonal[0] = m->off[0] = 0.0;
    for (int64_t i = 0; i < m->n; i++) { /* the reflections, multiplied */
        if (m->diagonal[i] != 0.0) {
            for (int64_t j = 0; j < i; j++) {
                double g = 0.0;
                for (int64_t k = 0; k < i; k++) {
                    g += *at(m, i, k) * *at(m, k, j);
                }
                for (int64_t k = 0; k < i; k++) {
                    *at(m, k, j) -= g * *at(m, k, i);
                }
            }
        }
        m->diagonal[i] = *at(m, i, i);
        *at(m, i, i) = 1.0;
        for (int64_t j = 0; j < i; j++) {
            *at(m, j, i) = *at(m, i, j) = 0.0;
        }
    }
}

/* One sweep of rotations from `end` up to `first`, shifted by the eigenvalue of the first 2 x 2 block that is nearer to it. */
static void sweep(tridiagonal *m, int64_t first, int64_t end)
{
    double *d = m->diagonal, *e = m->off;
    double g = (d[first + 1] - d[first]) / (2.0 * e[first]), r = hypot(g, 1.0), s = 1.0, c = 1.0, p = 0.0;
    g = d[end] - d[first] + e[first] / (g + copysign(r, g));
    for (int64_t i = end - 1; i >= first; i--) {
        const double f = s * e[i], b = c * e[i];
        r = hypot(f, g);
        e[i + 1] = r;
        if (r == 0.0) { /* it has fallen apart already */
            d[i + 1] -= p;
            e[end] = 0.0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2.0 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        for (int64_t k = 0; k < m->n; k++) {
            const double x = *at(m, k, i + 1), y = *at(m, k, i);
            *at(m, k, i + 1) = s * y + c * x;
            *at(m, k, i) = c * y - s * x;
        }
    }
    d[first] -= p;
    e[first] = g;
    e[end] = 0.0;
}

static bool diagonalise(tridiagonal *m)
{
    for (int64_t i = 1; i < m->n; i++) {
        m->off[i - 1] = m->off[i];
    }
    m->off[m->n - 1] = 0.0;
    for (int64_t i = 0; i < m->n; i++) {
        for (int64_t round = 0;; round++) {
            int64_t end = i;
            while (end + 1 < m->n &&
                   fabs(m->off[end]) > DBL_EPSILON * (fabs(m->diagonal[end]) + fabs(m->diagonal[end + 1]))) {
                end++;
            }
            if (end == i) {
                break;
            }
            if (round == MOST_ROUNDS) {
                return false;
            }
            sweep(m, i, end);
        }
    }
    return true;
}

/* Columns become rows in the order of their eigenvalues, out (n,n). */
static void put_in_order(const tridiagonal *m, double *value, double *out)
{
    for (int64_t rank = 0; rank < m->n; rank++) {
        int64_t best = -1;
        for (int64_t i = 0; i < m->n; i++) {
            if (m->off[i] == 0.0 && (best < 0 || m->diagonal[i] > m->diagonal[best])) {
                best = i;
            }
        }
        int64_t largest = 0;
        m->off[best] = 1.0; /* is taken */
        value[rank] = m->diagonal[best];
        for (int64_t k = 1; k < m->n; k++) {
            largest = fabs(*at(m, k, best)) > fabs(*at(m, largest, best)) ? k : largest;
        }
        for (int64_t k = 0; k < m->n; k++) {
            out[(size_t)rank * (size_t)m->n + (size_t)k] = copysign(1.0, *at(m, largest, best)) * *at(m, k, best);
        }
    }
}

flim_status flim_symmetric_eigen(int n, double *a, double *value, flim_error *err)
{
    const size_t cells = (size_t)n * (size_t)n;
    tridiagonal m = {.n = n, .a = flim_alloc(cells, sizeof *m.a, err)};
    flim_status status = FLIM_OK;
    m.diagonal = flim_alloc((size_t)n, sizeof *m.diagonal, err);
    m.off = flim_alloc((size_t)n, sizeof *m.off, err);
    if (!m.a || !m.diagonal || !m.off) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        for (int64_t j = 0; j <= i; j++) {
            const double v = a[(size_t)i * (size_t)n + (size_t)j];
            *at(&m, i, j) = *at(&m, j, i) = v;
            if (!isfinite(v)) {
                status = flim_fail(err, FLIM_ERROR, "a matrix holds a value that is not finite: it has no eigenvalues");
            }
        }
    }
    if (status == FLIM_OK && n > 0) {
        reduce(&m);
        if (!diagonalise(&m)) {
            status = flim_fail(err, FLIM_ERROR, "the eigenvalues of a matrix were not found in %d rounds", (int)MOST_ROUNDS);
            goto done;
        }
        for (int64_t i = 0; i < n; i++) {
            m.off[i] = 0.0;
        }
        put_in_order(&m, value, a);
    }
done:
    flim_free(m.a);
    flim_free(m.diagonal);
    flim_free(m.off);
    return status;
}

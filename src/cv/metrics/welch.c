#include "cv/metrics/welch.h"

#include <math.h>
#include <stdbool.h>

#include "cv/metrics/interval.h"

void flim_moments_add(flim_moments *moments, double value)
{
    const double off = value - moments->mean;
    moments->n++;
    moments->mean += off / (double)moments->n;
    moments->squares += off * (value - moments->mean);
}

double flim_moments_sd(const flim_moments *moments)
{
    return moments->n > 1 ? sqrt(moments->squares / (double)(moments->n - 1)) : (double)NAN;
}

flim_welch flim_welch_test(const flim_moments *a, const flim_moments *b)
{
    flim_welch out = {.difference = a->n && b->n ? a->mean - b->mean : (double)NAN, .t = NAN, .df = NAN, .p = NAN, .g = NAN};
    if (a->n < 2 || b->n < 2 || a->squares + b->squares <= 0) {
        return out;
    }
    const double n_a = (double)a->n, n_b = (double)b->n, rest = n_a + n_b - 2;
    const double of_a = a->squares / (n_a - 1) / n_a, of_b = b->squares / (n_b - 1) / n_b; /* variances of the means */
    out.t = out.difference / sqrt(of_a + of_b);
    out.df = (of_a + of_b) * (of_a + of_b) / (of_a * of_a / (n_a - 1) + of_b * of_b / (n_b - 1));
    out.p = flim_student_p(out.t, out.df);
    out.g = out.difference / sqrt((a->squares + b->squares) / rest) * (1 - 3 / (4 * rest - 1));
    return out;
}

void flim_holm(int64_t n, const double *p, double *adjusted)
{
    int64_t tests = 0;
    for (int64_t i = 0; i < n; i++) {
        adjusted[i] = p[i];
        tests += !isnan(p[i]);
    }
    /* From the least p on: (tests left) x p, never below the one before.  `done` is the last p and its index that was taken. */
    double done = -1, floor = 0;
    int64_t done_at = -1;
    for (int64_t left = tests; left > 0; left--) {
        int64_t next = -1;
        for (int64_t i = 0; i < n; i++) {
            const bool after = p[i] > done || (p[i] == done && i > done_at);
            next = after && (next < 0 || p[i] < p[next]) ? i : next;
        }
        done = p[next];
        done_at = next;
        floor = fmax(floor, fmin(1, (double)left * done));
        adjusted[next] = floor;
    }
}

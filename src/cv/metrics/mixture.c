#include "cv/metrics/mixture.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double least_gap = 1e-12;

static double times_of(const flim_mixture *m, int64_t i)
{
    return m->times ? (double)m->times[i] : 1;
}

/* ---- two classes: the weight w of class 1 */

/* The derivative of the mean log likelihood by w, and the second one in *curve; both may be infinite at the ends. */
static double slope_of_two(const flim_mixture *m, double w, double *curve)
{
    const double over[2] = {m->source[0] > 0 ? 1 / m->source[0] : 0, m->source[1] > 0 ? 1 / m->source[1] : 0};
    double total = 0, slope = 0, bend = 0;
    for (int64_t i = 0; i < m->n; i++) {
        const double times = times_of(m, i), a = m->posterior[2 * i] * over[0], b = m->posterior[2 * i + 1] * over[1];
        if (times > 0 && a + b > 0) {
            const double ratio = (b - a) / ((1 - w) * a + w * b);
            slope += times * ratio;
            bend -= times * ratio * ratio;
            total += times;
        }
    }
    *curve = total > 0 ? bend / total : 0;
    return total > 0 ? slope / total : 0;
}

/* max(g_1, g_0) - 1 from the slope g_1 - g_0, as w g_1 + (1 - w) g_0 = 1. */
static double gap_of_two(double w, double slope)
{
    return slope > 0 ? (1 - w) * slope : -w * slope;
}

static double root_of_two(const flim_mixture *m, double w)
{
    enum { MOST_STEPS = 200 };
    double low = 0, high = 1, curve, moved = 1;
    w = w > 0 && w < 1 ? w : 0.5;
    for (int step = 0; step < MOST_STEPS && high - low > 1e-16; step++) {
        const double slope = slope_of_two(m, w, &curve);
        if (slope == 0 || (gap_of_two(w, slope) <= least_gap && moved <= least_gap)) {
            break;
        }
        *(slope > 0 ? &low : &high) = w;
        const double newton = w - slope / curve, next = newton > low && newton < high ? newton : (low + high) / 2;
        moved = fabs(next - w);
        w = next;
    }
    return w;
}

static void maximise_two(const flim_mixture *m, double *weight)
{
    double curve, w = weight[1];
    const double slope = slope_of_two(m, w, &curve);
    if (gap_of_two(w, slope) <= least_gap) {
        return;
    }
    w = slope_of_two(m, 0, &curve) <= 0 ? 0 : slope_of_two(m, 1, &curve) >= 0 ? 1 : root_of_two(m, w);
    weight[0] = 1 - w;
    weight[1] = w;
}

/* ---- more classes: u_k = weight_k / source_k, so that a cell's density is sum_k u_k posterior_k */

/* Of so many classes at most at a time, those with the steepest gradients: what a step needs lies on the stack. */
enum { MOST_AT_ONCE = 32 };

typedef struct block {
    int n, class[MOST_AT_ONCE];
    double hessian[MOST_AT_ONCE][MOST_AT_ONCE]; /* lower half, of minus the mean log likelihood */
    double step[MOST_AT_ONCE];
} block;

static double density_of(const flim_mixture *m, int64_t i, const double *u)
{
    double density = 0;
    for (int k = 0; k < m->classes; k++) {
        density += m->posterior[i * m->classes + k] * u[k];
    }
    return density;
}

/* pull (K): mean_i posterior_ik / density_i, which is source_k g_k.  Returns how many cells count. */
static double pull_of(const flim_mixture *m, const double *u, double *pull)
{
    double total = 0;
    memset(pull, 0, (size_t)m->classes * sizeof *pull);
    for (int64_t i = 0; i < m->n; i++) {
        const double times = times_of(m, i), density = times > 0 ? density_of(m, i, u) : 0;
        for (int k = 0; density > 0 && k < m->classes; k++) {
            pull[k] += times * (m->posterior[i * m->classes + k] / density);
        }
        total += density > 0 ? times : 0;
    }
    for (int k = 0; total > 0 && k < m->classes; k++) {
        pull[k] /= total;
    }
    return total;
}

static double gap_of(const flim_mixture *m, const double *pull)
{
    double largest = -INFINITY;
    for (int k = 0; k < m->classes; k++) {
        largest = m->source[k] > 0 ? fmax(largest, pull[k] / m->source[k] - 1) : largest;
    }
    return largest;
}

/* The classes that may move: all but those that the gradient holds at 0. */
static void choose(const flim_mixture *m, const double *u, const double *pull, block *b)
{
    double steep[MOST_AT_ONCE];
    b->n = 0;
    for (int k = 0; k < m->classes; k++) {
        const double g = m->source[k] > 0 ? pull[k] / m->source[k] - 1 : 0;
        if (m->source[k] <= 0 || (u[k] <= 0 && g <= 0)) {
            continue;
        }
        int at = b->n < MOST_AT_ONCE ? b->n++ : MOST_AT_ONCE;
        for (; at > 0 && steep[at - 1] < fabs(g); at--) {
            if (at < MOST_AT_ONCE) {
                steep[at] = steep[at - 1];
                b->class[at] = b->class[at - 1];
            }
        }
        if (at < MOST_AT_ONCE) {
            steep[at] = fabs(g);
            b->class[at] = k;
        }
    }
}

static void bend_of(const flim_mixture *m, const double *u, double total, block *b)
{
    double share[MOST_AT_ONCE];
    memset(b->hessian, 0, sizeof b->hessian);
    for (int64_t i = 0; i < m->n; i++) {
        const double times = times_of(m, i), density = times > 0 ? density_of(m, i, u) : 0;
        for (int r = 0; density > 0 && r < b->n; r++) {
            share[r] = m->posterior[i * m->classes + b->class[r]] / density;
            for (int c = 0; c <= r; c++) {
                b->hessian[r][c] += times / total * share[r] * share[c];
            }
        }
    }
}

/* step = hessian^-1 right by Cholesky over those of the block that are free; the others' steps are given. */
static void solve(block *b, const double *right, const bool *free)
{
    double root[MOST_AT_ONCE][MOST_AT_ONCE], x[MOST_AT_ONCE];
    int of[MOST_AT_ONCE], n = 0;
    for (int r = 0; r < b->n; r++) {
        if (free[r]) {
            of[n++] = r;
        }
    }
    for (int i = 0; i < n; i++) {
        const double own = b->hessian[of[i]][of[i]];
        x[i] = right[of[i]];
        for (int r = 0; r < b->n; r++) {
            x[i] -= free[r] ? 0 : b->step[r] * (r < of[i] ? b->hessian[of[i]][r] : b->hessian[r][of[i]]);
        }
        for (int j = 0; j <= i; j++) { /* classes that all cells take for the same make it singular */
            double sum = b->hessian[of[i]][of[j]] + (i == j ? 1e-13 * own : 0);
            for (int k = 0; k < j; k++) {
                sum -= root[i][k] * root[j][k];
            }
            root[i][j] = i == j ? sqrt(fmax(sum, 1e-14 * own + 1e-300)) : sum / root[j][j];
        }
        for (int k = 0; k < i; k++) {
            x[i] -= root[i][k] * x[k];
        }
        x[i] /= root[i][i];
    }
    for (int i = n; i-- > 0;) {
        for (int k = i + 1; k < n; k++) {
            x[i] -= root[k][i] * x[k];
        }
        x[i] /= root[i][i];
        b->step[of[i]] = x[i];
    }
}

/* Newton's step to weights that are not negative: a class that would fall below 0 goes to 0, and the others are solved anew.
 * Returns how fast the likelihood rises along it. */
static double aim(const flim_mixture *m, const double *u, const double *pull, block *b)
{
    double right[MOST_AT_ONCE], rise = 0;
    bool free[MOST_AT_ONCE], below = true;
    for (int r = 0; r < b->n; r++) {
        right[r] = pull[b->class[r]] - m->source[b->class[r]];
        free[r] = true;
    }
    while (below) {
        below = false;
        solve(b, right, free);
        for (int r = 0; r < b->n; r++) {
            if (free[r] && !(u[b->class[r]] + b->step[r] > 0)) {
                b->step[r] = -u[b->class[r]];
                free[r] = false;
                below = true;
            }
        }
    }
    for (int r = 0; r < b->n; r++) {
        rise += right[r] * b->step[r];
    }
    return rise;
}

/* What the mean log likelihood, less the sum of the weights, gains by `size` of the step: log1p of small changes, which the
 * difference of two sums would lose to rounding. */
static double gain_of(const flim_mixture *m, const double *u, double total, const block *b, double size)
{
    double gain = 0, more = 0;
    for (int64_t i = 0; i < m->n; i++) {
        const double times = times_of(m, i), density = times > 0 ? density_of(m, i, u) : 0;
        double change = 0;
        for (int r = 0; r < b->n; r++) {
            change += m->posterior[i * m->classes + b->class[r]] * b->step[r];
        }
        gain += density > 0 ? times * log1p(fmax(-1, size * change / density)) : 0;
    }
    for (int r = 0; r < b->n; r++) {
        more += m->source[b->class[r]] * b->step[r];
    }
    return gain / total - size * more;
}

/* A step of Newton's that gains enough (Armijo); false if there is none. */
static bool newton(const flim_mixture *m, double *u, const double *pull, double total)
{
    enum { MOST_HALVINGS = 40 };
    block b;
    choose(m, u, pull, &b);
    bend_of(m, u, total, &b);
    const double rise = aim(m, u, pull, &b);
    double size = 1;
    for (int t = 0; rise > 0 && t < MOST_HALVINGS; t++, size /= 2) {
        if (gain_of(m, u, total, &b, size) >= 1e-4 * size * rise) {
            for (int r = 0; r < b.n; r++) {
                double *at = &u[b.class[r]];
                *at = size == 1 && b.step[r] == -*at ? 0 : fmax(0, *at + size * b.step[r]);
            }
            return true;
        }
    }
    return false;
}

/* The weights' sum to 1, at which the likelihood less the sum is largest. */
static void scale(const flim_mixture *m, double *u)
{
    double sum = 0;
    for (int k = 0; k < m->classes; k++) {
        sum += m->source[k] * u[k];
    }
    for (int k = 0; k < m->classes; k++) {
        u[k] /= sum;
    }
}

static void maximise_more(const flim_mixture *m, double *u, double *pull)
{
    enum { MOST_STEPS = 1000 };
    for (int step = 0; step < MOST_STEPS; step++) {
        const double total = pull_of(m, u, pull);
        if (total <= 0 || gap_of(m, pull) <= least_gap) {
            break;
        }
        if (!newton(m, u, pull, total)) {
            double moved = 0;
            for (int k = 0; k < m->classes; k++) {
                const double next = m->source[k] > 0 ? u[k] * (pull[k] / m->source[k]) : 0;
                moved = fmax(moved, m->source[k] * fabs(next - u[k]));
                u[k] = next;
            }
            if (moved <= 1e-15) {
                break;
            }
        }
        scale(m, u);
    }
}

void flim_mixture_maximise(const flim_mixture *mixture, double *weight, double *scratch)
{
    if (mixture->classes == 2) {
        maximise_two(mixture, weight);
        return;
    }
    for (int k = 0; k < mixture->classes; k++) {
        weight[k] = mixture->source[k] > 0 ? weight[k] / mixture->source[k] : 0;
    }
    maximise_more(mixture, weight, scratch);
    for (int k = 0; k < mixture->classes; k++) {
        weight[k] *= mixture->source[k];
    }
}

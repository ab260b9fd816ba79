/* Hidden voxels, from the rules in data/hide_math.h and backend/hidden.h alone. */
#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HIDE = 9, MOST_BOXES = 4096 };

/* Which of `range` equal parts of 2^32 a word lies in. */
static int part_of(uint32_t word, int range)
{
    return (int)floor((double)word / 4294967296.0 * range);
}

void ref_hide(const flim_cell_id *id, double share, int t, int h, int w, const uint8_t *mask, uint8_t *hidden)
{
    int y0 = h, y1 = -1, x0 = w, x1 = -1; /* y1, x1: the last ones */
    int64_t inside = 0;
    for (int p = 0; p < h * w; p++) {
        if (mask[p]) {
            inside += t;
            y0 = p / w < y0 ? p / w : y0;
            y1 = p / w > y1 ? p / w : y1;
            x0 = p % w < x0 ? p % w : x0;
            x1 = p % w > x1 ? p % w : x1;
        }
    }
    memset(hidden, 0, (size_t)t * (size_t)h * (size_t)w);
    int64_t left = (int64_t)floor((double)inside * share + 0.5);
    for (uint32_t box = 0; left > 0; box++) {
        uint32_t word[4];
        ref_philox(id, HIDE, box, word);
        const int kind = part_of(word[0], 16);
        const bool tube = kind < 6, times = kind >= 6 && kind < 9, rest = box >= MOST_BOXES;
        const int most = t > 255 ? 32 : t > 15 ? t / 8 : 1, least = most % 2 ? (most + 1) / 2 : most / 2, side = tube ? 3 : 5;
        const int bins = least + part_of((uint32_t)((uint64_t)word[0] * 16 % 4294967296u), most - least + 1);
        const int first_t = 1 - bins + part_of(word[1], t + bins - 1);
        const int first_y = y0 + 1 - side + part_of(word[2], y1 - y0 + side);
        const int first_x = x0 + 1 - side + part_of(word[3], x1 - x0 + side);
        for (int64_t i = 0; i < (int64_t)t * h * w && left > 0; i++) {
            const int bin = (int)(i / (h * w)), y = (int)(i / w % h), x = (int)(i % w);
            const bool in_time = tube || rest || (bin >= first_t && bin < first_t + bins);
            const bool in_plane = times || rest || (y >= first_y && y < first_y + side && x >= first_x && x < first_x + side);
            if (in_time && in_plane && mask[y * w + x] && !hidden[i]) {
                hidden[i] = 1;
                left--;
            }
        }
    }
}

/* The rate of each voxel of a cell by its mean decay and its pixels' intensities. */
static void baseline(int t, int pixels, const double *photons, const uint8_t *mask, const uint8_t *hidden, double *rate)
{
    double seen = 0, n = 0;
    double *decay = ref_array(t);
    for (int i = 0; i < t * pixels; i++) {
        const bool counts = mask[i % pixels] && !hidden[i];
        seen += counts;
        n += counts ? photons[i] : 0;
    }
    const double mean = seen > 0 ? (n + 0.5) / seen : 0.5;
    for (int b = 0; b < t; b++) {
        double of_bin = 0, there = 0;
        for (int p = 0; p < pixels; p++) {
            const bool counts = mask[p] && !hidden[b * pixels + p];
            there += counts;
            of_bin += counts ? photons[b * pixels + p] : 0;
        }
        decay[b] = there > 0 ? (of_bin + 1) / (mean * there + 1) : NAN;
    }
    for (int p = 0; p < pixels; p++) {
        double of_pixel = 0, expected = 0;
        for (int b = 0; b < t; b++) {
            if (mask[p] && !hidden[b * pixels + p]) { /* then the bin's decay is known */
                of_pixel += photons[b * pixels + p];
                expected += mean * decay[b];
            }
        }
        for (int b = 0; b < t; b++) {
            int before = b, after = b;
            while (before >= 0 && isnan(decay[before])) {
                before--;
            }
            while (after < t && isnan(decay[after])) {
                after++;
            }
            const double d = before == after            ? decay[b]
                             : before < 0 && after == t ? 1
                             : before < 0               ? decay[after]
                             : after == t               ? decay[before]
                                          : decay[before] + (decay[after] - decay[before]) * (b - before) / (after - before);
            rate[b * pixels + p] = mean * d * (of_pixel + 1) / (expected + 1);
        }
    }
    free(decay);
}

void ref_hidden_head(const flim_head *head, const ref_hidden_run *r, flim_hidden_totals *totals, double *loss, double *dy)
{
    const int voxels = r->t * r->pixels;
    double *photons = ref_array(voxels), *rate = ref_array(voxels);
    *loss = 0;
    for (int64_t n = 0; n < r->n; n++) {
        const uint8_t *mask = r->mask + n * r->pixels, *hidden = r->hidden + n * voxels;
        const float *signal = r->signal + n * voxels;
        const double *y = r->y + n * voxels;
        double sum = 0, count = 0;
        for (int i = 0; i < voxels; i++) {
            photons[i] = round(exp(10 * (double)signal[i]) - 1);
            count += hidden[i];
        }
        baseline(r->t, r->pixels, photons, mask, hidden, rate);
        const double share = (double)r->cell_weight[n] * (double)head->weight / r->divisor / (count > 0 ? count : 1);
        for (int i = 0; i < voxels; i++) {
            if (hidden[i]) {
                const double at = log(photons[i] + 1) / 10, top = exp(12);
                const bool poisson = head->loss == FLIM_LOSS_HIDDEN_POISSON, high = y[i] > 12;
                const double lambda = high ? top * (y[i] - 11) : exp(y[i]), slope = high ? top : lambda;
                sum += poisson ? lambda - photons[i] * y[i] : (y[i] - at) * (y[i] - at);
                if (dy) {
                    dy[n * voxels + i] += share * (poisson ? slope - photons[i] : 2 * (y[i] - at));
                }
                totals->photons += photons[i];
                totals->baseline += rate[i] - photons[i] * log(rate[i]);
            }
        }
        totals->voxels += count;
        totals->loss += sum;
        *loss += share * sum;
    }
    free(photons);
    free(rate);
}

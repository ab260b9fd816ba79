#include "data/synthetic.h"

#include <math.h>
#include <string.h>

#include "flim/random.h"

/* Knuth's product of uniforms: the mean is well under 1 here. */
static float poisson(flim_random *random, double mean)
{
    const double limit = exp(-mean);
    int count = 0;
    for (double p = flim_random_uniform(random); p > limit; p *= flim_random_uniform(random)) {
        count++;
    }
    return (float)count;
}

int32_t flim_synthetic_cell(uint64_t seed, int64_t cell, int classes, int t, int h, int w, float *counts, uint8_t *mask)
{
    const flim_cell_id id = {.seed = seed, .cell = (uint32_t)cell};
    flim_random random = flim_random_begin(&id, FLIM_RANDOM_SIMULATE);
    const int label = (int)(cell % classes);
    const double tau = t * (0.10 + 0.10 * label / (classes - 1)), start = 0.15 * t;
    const double brightness = 0.25 + 0.5 * flim_random_uniform(&random);
    const double radius = (h < w ? h : w) * (0.25 + 0.15 * flim_random_uniform(&random));
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            double dy = y - (h - 1) / 2.0, dx = x - (w - 1) / 2.0;
            mask[y * w + x] = dy * dy + dx * dx <= radius * radius;
        }
    }
    for (int bin = 0; bin < t; bin++) {
        const double mean = bin < start ? 0.002 : brightness * exp(-(bin - start) / tau);
        float *plane = counts + (int64_t)bin * h * w;
        for (int i = 0; i < h * w; i++) {
            plane[i] = mask[i] ? poisson(&random, mean) : 0.0f;
        }
    }
    return label;
}

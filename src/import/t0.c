#include "import/t0.h"

#include <stdlib.h>
#include <string.h>

static int by_count(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int64_t flim_rising_edge(const uint64_t *decay, int64_t bins, uint64_t *scratch)
{
    int64_t peak = 0;
    for (int64_t t = 1; t < bins; t++) {
        peak = decay[t] > decay[peak] ? t : peak;
    }
    memcpy(scratch, decay, (size_t)bins * sizeof *decay);
    qsort(scratch, (size_t)bins, sizeof *scratch, by_count);
    const uint64_t background = scratch[(bins - 1) / 2];
    const uint64_t half = background + (decay[peak] - background + 1) / 2;
    for (int64_t back = 1; back < bins && decay[peak] > background; back++) {
        if (decay[(peak - back + bins) % bins] < half) {
            return (peak - back + 1 + bins) % bins;
        }
    }
    return -1;
}

void flim_roll_bins(uint32_t *planes, int64_t bins, int64_t pixels, int64_t shift, uint32_t *scratch)
{
    const size_t plane = (size_t)pixels * sizeof *planes;
    if (shift == 0) {
        return;
    }
    memcpy(scratch, planes, (size_t)bins * plane);
    memcpy(planes + shift * pixels, scratch, (size_t)(bins - shift) * plane);
    memcpy(planes, scratch + (bins - shift) * pixels, (size_t)shift * plane);
}

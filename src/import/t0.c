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

void flim_roll_bins(void *planes, int64_t bins, size_t plane_bytes, int64_t shift, void *scratch)
{
    const size_t moved = (size_t)shift * plane_bytes, stay = (size_t)(bins - shift) * plane_bytes;
    if (shift == 0) {
        return;
    }
    memcpy(scratch, planes, moved + stay);
    memcpy((uint8_t *)planes + moved, scratch, stay);
    memcpy(planes, (uint8_t *)scratch + stay, moved);
}

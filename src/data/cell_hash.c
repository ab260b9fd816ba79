/* A sum over what is not zero: most voxels are, and the order in which they are met does not matter. */
#include "data/cell_hash.h"

#include <string.h>

/* The output function of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t flim_cell_hash(const float *counts, const uint8_t *mask, int t, int64_t pixels)
{
    uint64_t sum = 0;
    for (int64_t bin = 0; bin < t; bin++) {
        const float *frame = counts + bin * pixels; /* (H,W) */
        for (int64_t i = 0; i < pixels; i++) {
            if (frame[i] != 0.0f && mask[i]) {
                uint32_t bits;
                memcpy(&bits, &frame[i], sizeof bits);
                sum += mix((uint64_t)(bin * pixels + i) << 32 | bits);
            }
        }
    }
    if (sum == 0) {
        return 0;
    }
    for (int64_t i = 0; i < pixels; i++) {
        sum += mask[i] ? mix((uint64_t)1 << 63 | (uint64_t)i) : 0;
    }
    return sum ? sum : 1;
}

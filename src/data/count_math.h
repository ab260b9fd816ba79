/* Random photon counts in integer arithmetic, for C and CUDA: equal bits on both.
 *
 * A draw is a function of a key (of a step of a cell), a voxel and what is drawn; nothing depends on the order of voxels.
 * Probabilities are whole multiples of 2^-32, the distributions for them are exact.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_DATA_COUNT_MATH_H
#define FLIM_DATA_COUNT_MATH_H

#include <stdbool.h>

#include "core/random_block.h"
#include "flim/transform.h"

/* What a key draws for a voxel. */
enum { FLIM_DRAW_COUNT, FLIM_DRAW_SPLIT, FLIM_DRAW_TAIL, FLIM_DRAW_PLACE, FLIM_DRAW_BLUR };

/* Binomial(n, below / 2^32). */
FLIM_HOST_DEVICE static inline uint32_t flim_draw_binomial(uint32_t n, uint32_t below, const uint32_t key[2], uint32_t voxel,
                                                           uint32_t what)
{
    uint32_t kept = 0, word[4];
    if (n <= 8) { /* a word per photon */
        for (uint32_t i = 0; i < n; i += 4) {
            flim_random_keyed_block(key, voxel, i / 4, what, word);
            for (uint32_t j = 0; j < 4; j++) {
                kept += i + j < n && word[j] < below;
            }
        }
        return kept;
    }
    /* 32 photons at once: bit i of the word of plane p is bit p of photon i's random number, which is compared with `below`
     * from the highest bit on, until each is decided: about seven planes of the 32. */
    for (uint32_t first = 0; first < n; first += 32) {
        uint32_t open = n - first >= 32 ? UINT32_MAX : (UINT32_C(1) << (n - first)) - 1, less = 0;
        for (uint32_t plane = 0; plane < 32 && open != 0; plane++) {
            if (plane % 4 == 0) {
                flim_random_keyed_block(key, voxel, first / 4 + plane / 4, what, word);
            }
            const uint32_t bits = word[plane % 4], same = below >> (31 - plane) & 1 ? bits : ~bits;
            less |= below >> (31 - plane) & 1 ? open & ~bits : 0;
            open &= same;
        }
        for (; less != 0; less &= less - 1) {
            kept++;
        }
    }
    return kept;
}

/* A Poisson distribution of mean at most 1, by inversion. */
enum { FLIM_POISSON_ENTRIES = 14 };
typedef struct flim_poisson {
    uint32_t n; /* entries */
    uint32_t at_least[FLIM_POISSON_ENTRIES]; /* a word of at least [k] gives k + 1 or more: P(count <= k) 2^32 */
} flim_poisson;

/* The sum of `rounds` draws. */
FLIM_HOST_DEVICE static inline uint32_t flim_draw_poisson(const flim_poisson *p, uint32_t rounds, const uint32_t key[2],
                                                          uint32_t voxel)
{
    uint32_t sum = 0, word[4];
    for (uint32_t i = 0; i < rounds; i++) {
        if (i % 4 == 0) {
            flim_random_keyed_block(key, voxel, i / 4, FLIM_DRAW_COUNT, word);
        }
        for (uint32_t k = 0; k < p->n && word[i % 4] >= p->at_least[k]; k++) {
            sum++;
        }
    }
    return sum;
}

/* n factor / 65536, rounded up with the probability that makes the mean that. */
FLIM_HOST_DEVICE static inline uint32_t flim_draw_scaled(uint32_t n, uint32_t factor, const uint32_t key[2], uint32_t voxel)
{
    const uint64_t product = (uint64_t)n * factor;
    uint32_t word[4];
    flim_random_keyed_block(key, voxel, 0, FLIM_DRAW_COUNT, word);
    return (uint32_t)(product >> 16) + ((word[0] >> 16) < (uint32_t)(product & 65535));
}

/* A step that changes counts, as it acts on one cell. */
typedef struct flim_count_step {
    int32_t op; /* FLIM_TRANSFORM_THIN (and MATCH, as one), _BACKGROUND, _BOOTSTRAP or _SCALE */
    uint32_t key[2];
    uint32_t number; /* THIN: photons are kept below this of 2^32; BACKGROUND: rounds; SCALE: factor * 65536 */
    flim_poisson poisson; /* BACKGROUND: of a round; BOOTSTRAP: of mean 1 */
} flim_count_step;

/* The n photons of a voxel, at most FLIM_MOST_PHOTONS, after the step. */
FLIM_HOST_DEVICE static inline uint32_t flim_count_after(const flim_count_step *s, uint32_t n, uint32_t voxel, bool in_mask)
{
    switch (s->op) {
    case FLIM_TRANSFORM_THIN: return n ? flim_draw_binomial(n, s->number, s->key, voxel, FLIM_DRAW_COUNT) : 0;
    case FLIM_TRANSFORM_BACKGROUND: n += in_mask ? flim_draw_poisson(&s->poisson, s->number, s->key, voxel) : 0; break;
    case FLIM_TRANSFORM_BOOTSTRAP: n = n ? flim_draw_poisson(&s->poisson, n, s->key, voxel) : 0; break;
    default: n = n ? flim_draw_scaled(n, s->number, s->key, voxel) : 0; break;
    }
    return n < FLIM_MOST_PHOTONS ? n : FLIM_MOST_PHOTONS;
}

#endif

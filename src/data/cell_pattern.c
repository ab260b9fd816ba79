/* The counts are divided by their greatest common divisor.  Each frame then gets, for each of the plane's eight symmetries, a
 * linear hash: the sum over pixels of count x a fixed random weight of the pixel's place under that symmetry.  A symmetry's
 * frames, begun where the sequence of hashes is least in the order of words, are hashed once more; the least of the eight is
 * the pattern.  Equal patterns of different cells are a matter of chance with probability 2^-64 per pair. */
#include "data/cell_pattern.h"

#include "core/alloc.h"
#include "core/try.h"

enum { SYMMETRIES = 8, LEAST_VOXELS = 8 };

struct flim_cell_pattern {
    int t, h, w, symmetries; /* 8, or 4 if H and W differ */
    uint64_t *weight; /* (H,W,SYMMETRIES) */
    uint64_t *hash; /* (SYMMETRIES,T) */
};

/* The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Place of pixel (y, x) under a symmetry: bit 0 flips rows, bit 1 columns, bit 2 transposes (of a square). */
static int64_t place_of(int symmetry, int y, int x, int h, int w)
{
    const int row = symmetry & 1 ? h - 1 - y : y, column = symmetry & 2 ? w - 1 - x : x;
    return symmetry & 4 ? (int64_t)column * w + row : (int64_t)row * w + column;
}

flim_status flim_cell_pattern_create(int t, int h, int w, flim_cell_pattern **out, flim_error *err)
{
    const size_t pixels = (size_t)h * (size_t)w;
    flim_status status = FLIM_OK;
    *out = NULL;
    flim_cell_pattern *p = flim_alloc(1, sizeof *p, err);
    FLIM_TRY_DONE(p ? FLIM_OK : FLIM_ERROR_MEMORY);
    *p = (flim_cell_pattern){.t = t, .h = h, .w = w, .symmetries = h == w ? SYMMETRIES : 4};
    p->weight = flim_alloc_aligned(pixels * SYMMETRIES, sizeof *p->weight, err);
    p->hash = flim_alloc_aligned((size_t)t * SYMMETRIES, sizeof *p->hash, err);
    FLIM_TRY_DONE(p->weight && p->hash ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            for (int s = 0; s < SYMMETRIES; s++) {
                p->weight[((size_t)y * (size_t)w + (size_t)x) * SYMMETRIES + (size_t)s] =
                    s < p->symmetries ? mix((uint64_t)place_of(s, y, x, h, w)) : 0;
            }
        }
    }
done:
    if (status == FLIM_OK) {
        *out = p;
    } else {
        flim_cell_pattern_destroy(p);
    }
    return status;
}

void flim_cell_pattern_destroy(flim_cell_pattern *p)
{
    if (p) {
        flim_free(p->weight);
        flim_free(p->hash);
        flim_free(p);
    }
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Where a cyclic sequence begins so that it is the least of its rotations (Shiloach 1981). */
static int least_rotation(const uint64_t *s, int n)
{
    int i = 0, j = 1, k = 0;
    while (i < n && j < n && k < n) {
        const uint64_t a = s[(i + k) % n], b = s[(j + k) % n];
        if (a == b) {
            k++;
            continue;
        }
        if (a > b) {
            i += k + 1;
        } else {
            j += k + 1;
        }
        j += i == j;
        k = 0;
    }
    return i < j ? i : j;
}

uint64_t flim_cell_pattern_of(flim_cell_pattern *p, const flim_lit_voxels *lit)
{
    const int64_t n = lit->begin[p->t];
    uint32_t divisor = 0;
    uint64_t least = UINT64_MAX;
    if (n < LEAST_VOXELS) {
        return 0;
    }
    for (int64_t i = 0; i < n && divisor != 1; i++) {
        divisor = common_divisor(lit->count[i], divisor);
    }
    if (divisor == 0) {
        return 0;
    }
    for (int t = 0; t < p->t; t++) {
        uint64_t sum[SYMMETRIES] = {0};
        for (int64_t i = lit->begin[t]; i < lit->begin[t + 1]; i++) {
            const uint64_t count = lit->count[i] / divisor, *weight = p->weight + (int64_t)lit->pixel[i] * SYMMETRIES;
            for (int s = 0; s < SYMMETRIES; s++) {
                sum[s] += count * weight[s];
            }
        }
        for (int s = 0; s < SYMMETRIES; s++) {
            p->hash[s * p->t + t] = sum[s];
        }
    }
    for (int s = 0; s < p->symmetries; s++) {
        const uint64_t *hash = p->hash + s * p->t;
        const int first = least_rotation(hash, p->t);
        uint64_t all = 0;
        for (int t = 0; t < p->t; t++) {
            all = mix(all ^ hash[(first + t) % p->t]);
        }
        least = all < least ? all : least;
    }
    return least | (least == 0);
}

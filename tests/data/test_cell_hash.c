/* A cell's hash: the published formula, the same whatever the file's type, and changed by any one photon or pixel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/cell_hash.h"
#include "flim/dataset.h"
#include "flim/dataset_writer.h"

enum { T = 16, H = 5, W = 7, PIXELS = H * W, VOXELS = T * PIXELS, CELLS = 6 };

/* SplitMix64's first output after the state x, from its published description. */
static uint64_t reference_mix(uint64_t x)
{
    uint64_t z = x + UINT64_C(11400714819323198485);
    z = (z ^ (z >> 30)) * UINT64_C(13787848793156543929);
    z = (z ^ (z >> 27)) * UINT64_C(10723151780598845931);
    return z ^ (z >> 31);
}

/* docs/file-format.md: every voxel inside with a photon, then every pixel inside. */
static uint64_t reference(const float *counts, const uint8_t *mask)
{
    uint64_t sum = 0;
    int photons = 0;
    for (int i = 0; i < VOXELS; i++) {
        union {
            float value;
            uint32_t bits;
        } as = {.value = counts[i]};
        if (mask[i % PIXELS] == 1 && counts[i] > 0) {
            sum += reference_mix(((uint64_t)(unsigned)i << 32) + as.bits);
            photons++;
        }
    }
    for (int i = 0; i < PIXELS && photons; i++) {
        sum += mask[i] == 1 ? reference_mix(UINT64_C(0x8000000000000000) + (unsigned)i) : 0;
    }
    return sum;
}

static void fill(unsigned seed, float *counts, uint8_t *mask)
{
    srand(seed);
    for (int i = 0; i < VOXELS; i++) {
        counts[i] = (float)(rand() % 4 == 0 ? rand() % 200 : 0);
    }
    for (int i = 0; i < PIXELS; i++) {
        mask[i] = (uint8_t)(rand() % 3 != 0);
    }
    mask[1] = 1;
    counts[1] = 3; /* never empty */
}

static void the_formula_is_the_published_one(void **state)
{
    (void)state;
    /* The first outputs of SplitMix64 with the seeds 0 and 1234567, as many implementations list them. */
    assert_true(reference_mix(0) == UINT64_C(0xE220A8397B1DCDAF));
    assert_true(reference_mix(1234567) == UINT64_C(6457827717110365317));
    for (unsigned seed = 0; seed < 50; seed++) {
        float counts[VOXELS];
        uint8_t mask[PIXELS];
        fill(seed, counts, mask);
        if (flim_cell_hash(counts, mask, T, PIXELS) != reference(counts, mask)) {
            fail_msg("seed %u: another hash", seed);
        }
    }
}

static void one_photon_or_pixel_changes_it_and_what_is_outside_does_not(void **state)
{
    (void)state;
    float counts[VOXELS];
    uint8_t mask[PIXELS];
    fill(7, counts, mask);
    const uint64_t base = flim_cell_hash(counts, mask, T, PIXELS);
    for (int i = 0; i < VOXELS; i++) {
        counts[i] += 1;
        assert_int_equal(flim_cell_hash(counts, mask, T, PIXELS) != base, mask[i % PIXELS]);
        counts[i] -= 1;
    }
    for (int i = 0; i < PIXELS; i++) {
        mask[i] ^= 1;
        assert_true(flim_cell_hash(counts, mask, T, PIXELS) != base);
        mask[i] ^= 1;
    }
    for (int i = 0; i + PIXELS < VOXELS; i++) { /* two that change places */
        float swapped[VOXELS];
        memcpy(swapped, counts, sizeof swapped);
        swapped[i] = counts[i + PIXELS];
        swapped[i + PIXELS] = counts[i];
        if (mask[i % PIXELS] && counts[i] != counts[i + PIXELS]) {
            assert_true(flim_cell_hash(swapped, mask, T, PIXELS) != base);
        }
    }
    memset(mask, 0, sizeof mask);
    assert_int_equal(flim_cell_hash(counts, mask, T, PIXELS), 0);
    memset(mask, 1, sizeof mask);
    memset(counts, 0, sizeof counts);
    assert_int_equal(flim_cell_hash(counts, mask, T, PIXELS), 0);
}

/* Writes the cells with `bytes` per count (0: float32), scans them, and hands their hashes over. */
static void hashes_of_file(int bytes, bool mask_counts, uint64_t hash[CELLS])
{
    char path[] = "/tmp/flim_cell_hash_XXXXXX";
    const int32_t label[CELLS] = {0, 1, 0, 1, 0, 1};
    const flim_dataset_layout layout = {.n = CELLS,
                                        .t = T,
                                        .h = H,
                                        .w = W,
                                        .count_bytes = bytes ? bytes : 4,
                                        .count_float = !bytes,
                                        .mask = true,
                                        .label = label};
    flim_dataset_writer *writer;
    flim_dataset *dataset;
    flim_cell_summary summary[CELLS];
    int64_t bad = 0;
    flim_error err = {0};
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path); /* of an earlier run */
    assert_int_equal(flim_dataset_writer_create(path, &layout, &writer, &err), FLIM_OK);
    for (int64_t c = 0; c < CELLS; c++) {
        float counts[VOXELS];
        uint8_t mask[PIXELS], raw[VOXELS * 4];
        fill((unsigned)c, counts, mask);
        for (int i = 0; i < VOXELS; i++) {
            const uint32_t whole = (uint32_t)counts[i];
            memcpy(raw + (size_t)i * (size_t)layout.count_bytes, bytes ? (const void *)&whole : (const void *)&counts[i],
                   (size_t)layout.count_bytes);
        }
        assert_int_equal(flim_dataset_writer_cell(writer, c, raw, mask, &err), FLIM_OK);
    }
    assert_int_equal(flim_dataset_writer_finish(writer, &err), FLIM_OK);
    flim_dataset_writer_destroy(writer);
    const char *const paths[] = {path};
    const flim_dataset_options options = {.mask_counts = mask_counts};
    if (flim_dataset_open(paths, 1, &options, &dataset, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(flim_dataset_scan(dataset, 2, NULL, NULL, summary, NULL, &bad, &err), FLIM_OK);
    for (int c = 0; c < CELLS; c++) {
        hash[c] = summary[c].hash;
    }
    flim_dataset_close(dataset);
    unlink(path);
}

static void the_file_does_not_matter(void **state)
{
    (void)state;
    static const int bytes[] = {1, 2, 4, 0};
    for (size_t i = 0; i < 2 * sizeof bytes / sizeof bytes[0]; i++) {
        uint64_t hash[CELLS];
        hashes_of_file(bytes[i / 2], i % 2, hash);
        for (int c = 0; c < CELLS; c++) {
            float counts[VOXELS];
            uint8_t mask[PIXELS];
            fill((unsigned)c, counts, mask);
            if (hash[c] != reference(counts, mask)) {
                fail_msg("cell %d, %d bytes, mask_counts %d: another hash", c, bytes[i / 2], (int)(i % 2));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_formula_is_the_published_one),
        cmocka_unit_test(one_photon_or_pixel_changes_it_and_what_is_outside_does_not),
        cmocka_unit_test(the_file_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

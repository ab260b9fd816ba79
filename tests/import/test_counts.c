/* Counts where they lie, against plain loops: every order of the axes, every width, sums, cells with added bins, counts too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "import/counts.h"
#include "import/read_plain.h"

enum { Y = 5, X = 41, T = 12, VOXELS = Y * X * T };

static uint32_t next_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Counts of `bytes` with the axes in order k of 6, the last of the order varying fastest; `gap` counts between the outermost. */
static flim_counts make_counts(int k, int bytes, int64_t gap, uint32_t most, uint64_t *seed)
{
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const int64_t size[3] = {Y, X, T};
    int64_t step[3], n = 1;
    for (int i = 2; i >= 0; i--) {
        step[order[k][i]] = n;
        n *= size[order[k][i]];
        n += i == 1 ? gap : 0;
    }
    uint8_t *data = malloc((size_t)n * (size_t)bytes);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t value = next_number(seed) % (most + 1);
        const uint8_t narrow = (uint8_t)value;
        const uint16_t middle = (uint16_t)value;
        memcpy(data + i * bytes,
               bytes == 1   ? (const void *)&narrow
               : bytes == 2 ? (const void *)&middle
                            : &value,
               (size_t)bytes);
    }
    return (flim_counts){
        .data = data, .bytes = bytes, .y = Y, .x = X, .t = T, .y_step = step[0], .x_step = step[1], .t_step = step[2]};
}

static void sums_of_pixels(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int k = 0; k < 6; k++) {
        for (int bytes = 1; bytes <= 4; bytes *= 2) {
            flim_counts c = make_counts(k, bytes, k % 2 ? 3 : 0, bytes == 1 ? 255 : bytes == 2 ? 65535 : 2147483647, &seed);
            uint64_t sum[Y * X];
            memset(sum, 0xff, sizeof sum);
            flim_counts_sum(&c, sum);
            for (int i = 0; i < Y * X; i++) {
                uint64_t want = 0;
                for (int t = 0; t < T; t++) {
                    want += read_count(&c, i / X, i % X, t);
                }
                if (sum[i] != want) {
                    fail_msg("order %d, %d bytes: pixel %d has %llu photons, expected %llu", k, bytes, i,
                             (unsigned long long)sum[i], (unsigned long long)want);
                }
            }
            free((void *)(uintptr_t)c.data);
        }
    }
}

/* More terms than a sum of 32 bits has room for, all the largest: a pixel of 70000 bins, and 70000 pictures. */
static void sums_do_not_overflow(void **state)
{
    (void)state;
    enum { MANY = 70000 };
    uint16_t *data = malloc(2 * MANY * sizeof *data);
    assert_non_null(data);
    memset(data, 0xff, 2 * MANY * sizeof *data);
    for (int together = 0; together < 2; together++) {
        const flim_counts c = {data, 2, 1, 2, MANY, 2 * MANY, together ? MANY : 1, together ? 1 : 2, NULL};
        uint64_t sum[2] = {0};
        flim_counts_sum(&c, sum);
        assert_true(sum[0] == 65535ull * MANY && sum[1] == 65535ull * MANY);
    }
    free(data);
}

/* The pixels of a window of H x W at (-1, 2), without those where (y + x) % 7 == 0. */
enum { H = 4, W = 37 };

static int64_t choose(const flim_counts *c, flim_pixel_run *run)
{
    int64_t n = 0;
    for (int64_t i = 0; i < H * W; i++) {
        const int64_t y = i / W - 1, x = i % W + 2, at = y * c->y_step + x * c->x_step;
        if (y < 0 || (y + x) % 7 == 0) {
            continue;
        }
        if (n > 0 && run[n - 1].to + run[n - 1].n == i && run[n - 1].from + run[n - 1].n * c->x_step == at) {
            run[n - 1].n++;
        } else {
            run[n++] = (flim_pixel_run){at, i, 1};
        }
    }
    return n;
}

static void cells_with_added_bins(void **state)
{
    (void)state;
    uint64_t seed = 2;
    flim_pixel_run run[H * W];
    for (int k = 0; k < 6; k++) {
        for (int bytes = 1; bytes <= 4; bytes *= 2) {
            for (int variant = 0; variant < 4; variant++) {
                const int bins = variant & 1 ? T / 3 : T, out_bytes = variant & 2 ? 4 : 2;
                flim_counts c = make_counts(k, bytes, 0, bytes == 1 ? 255 : 20000, &seed);
                uint32_t out[T * H * W], nothing;
                memset(out, 0xee, sizeof out);
                memset(&nothing, 0xee, sizeof nothing);
                assert_true(flim_counts_gather(&c, bins, run, choose(&c, run), H * W, out_bytes, out));
                for (int i = 0; i < bins * H * W; i++) {
                    const int b = i / (H * W), y = i / W % H - 1, x = i % W + 2;
                    const uint32_t got = out_bytes == 4 ? out[i] : ((const uint16_t *)out)[i];
                    uint32_t want = out_bytes == 4 ? nothing : nothing & 0xffff;
                    if (y >= 0 && (y + x) % 7 != 0) {
                        want = 0;
                        for (int t = b * T / bins; t < (b + 1) * T / bins; t++) {
                            want += read_count(&c, y, x, t);
                        }
                    }
                    if (got != want) {
                        fail_msg("order %d, %d bytes, variant %d: (%d,%d,%d) is %u, expected %u", k, bytes, variant, b, y, x,
                                 got, want);
                    }
                }
                free((void *)(uintptr_t)c.data);
            }
        }
    }
}

/* The last pixel of the window alone has too much: one count, or the sum of its bins. */
static void counts_that_do_not_fit(void **state)
{
    (void)state;
    uint32_t wide[T * 2] = {0};
    uint16_t narrow[T * 2] = {0}, out[T * 2];
    uint32_t out_wide[T * 2];
    const flim_pixel_run run = {0, 0, 2};
    const flim_counts c = {wide, 4, 1, 2, T, 2, 1, 2, NULL}, d = {narrow, 2, 1, 2, T, 2 * T, T, 1, NULL};
    wide[5] = 65535;
    narrow[T + 3] = narrow[T + 4] = 40000;
    assert_true(flim_counts_gather(&c, T, &run, 1, 2, 2, out));
    assert_true(flim_counts_gather(&d, T, &run, 1, 2, 2, out));
    assert_true(flim_counts_gather(&d, T / 3, &run, 1, 2, 4, out_wide));
    assert_int_equal(out_wide[2 + 1], 80000); /* bin 1: 3 to 5 */
    wide[5] = 65536;
    assert_false(flim_counts_gather(&c, T, &run, 1, 2, 2, out));
    assert_true(flim_counts_gather(&c, T, &run, 1, 2, 4, out_wide));
    assert_false(flim_counts_gather(&d, T / 3, &run, 1, 2, 2, out));
    wide[5] = wide[7] = UINT32_MAX; /* pixel 1, bins 2 and 3 */
    assert_true(flim_counts_gather(&c, T, &run, 1, 2, 4, out_wide));
    assert_false(flim_counts_gather(&c, T / 4, &run, 1, 2, 4, out_wide));
}

static void elements_as_counts(void **state)
{
    (void)state;
    static const int16_t good[] = {0, 1, 32767}, bad[] = {5, -1, 3};
    static const float real[] = {0, 7, 16777216}, part[] = {1, 2, 2.5f};
    _Alignas(4) uint8_t odd[16] = {0};
    const void *data;
    void *memory;
    int bytes;
    size_t n;
    assert_int_equal(
        flim_counts_from_elements(&(flim_element){'i', 2, false}, (const uint8_t *)good, 3, &data, &bytes, &memory, &n, NULL),
        FLIM_OK);
    assert_true(n == 3 && data == good && bytes == 2 && !memory); /* they stay where they are */
    assert_int_equal(
        flim_counts_from_elements(&(flim_element){'i', 2, false}, (const uint8_t *)bad, 3, &data, &bytes, &memory, &n, NULL),
        FLIM_OK);
    assert_true(n == 1 && !memory);
    assert_int_equal(
        flim_counts_from_elements(&(flim_element){'f', 4, false}, (const uint8_t *)real, 3, &data, &bytes, &memory, &n, NULL),
        FLIM_OK);
    assert_true(n == 3 && bytes == 4 && ((const uint32_t *)data)[2] == 16777216);
    flim_free(memory);
    assert_int_equal(
        flim_counts_from_elements(&(flim_element){'f', 4, false}, (const uint8_t *)part, 3, &data, &bytes, &memory, &n, NULL),
        FLIM_OK);
    assert_true(n == 2 && !memory);
    static const uint16_t halves[] = {0, 0x8000, 0x3c00, 0x6800, 0x7bff}; /* 0, -0, 1, 2048, 65504: the largest */
    assert_int_equal(flim_counts_from_elements(&(flim_element){'f', 2, false}, (const uint8_t *)halves, 5, &data, &bytes,
                                               &memory, &n, NULL),
                     FLIM_OK);
    assert_true(n == 5 && bytes == 4);
    assert_memory_equal(data, ((const uint32_t[]){0, 0, 1, 2048, 65504}), 20);
    flim_free(memory);
    odd[1] = 0x34; /* two bytes at an odd address: copied */
    odd[2] = 0x12;
    assert_int_equal(flim_counts_from_elements(&(flim_element){'u', 2, false}, odd + 1, 2, &data, &bytes, &memory, &n, NULL),
                     FLIM_OK);
    assert_true(n == 2 && memory && ((const uint16_t *)data)[0] == 0x1234);
    flim_free(memory);
    assert_int_equal(flim_counts_from_elements(&(flim_element){'u', 2, true}, odd + 1, 2, &data, &bytes, &memory, &n, NULL),
                     FLIM_OK);
    assert_true(n == 2 && bytes == 4 && ((const uint32_t *)data)[0] == 0x3412);
    flim_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_pixels),        cmocka_unit_test(sums_do_not_overflow),
        cmocka_unit_test(cells_with_added_bins), cmocka_unit_test(counts_that_do_not_fit),
        cmocka_unit_test(elements_as_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

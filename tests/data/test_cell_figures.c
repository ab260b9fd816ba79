/* The table of cells: its figures against plain sums in another order, and the cells that have none. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/cell_figures.h"
#include "flim/dataset_writer.h"
#include "flim/random.h"

enum { MOST_T = 24, MOST_PIXELS = 30 };

static void close_to(double got, double want, const char *what, int round)
{
    if (!(fabs(got - want) <= 1e-9 * fmax(1, fabs(want))) && !(isnan(got) && isnan(want))) {
        fail_msg("round %d: %s is %.12g, by its definition %.12g", round, what, got, want);
    }
}

static void figures_follow_their_definitions(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 21}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 400; round++) {
        const int t = 1 + (int)flim_random_below(&random, MOST_T), h = 1 + (int)flim_random_below(&random, 5),
                  w = 1 + (int)flim_random_below(&random, MOST_PIXELS / 5), pixels = h * w;
        double counts[MOST_T * MOST_PIXELS];
        uint8_t mask[MOST_PIXELS];
        double scratch[MOST_T], whole[MOST_T] = {0}, inside[MOST_T] = {0};
        double photons = 0, in_mask = 0, moment = 0, entropy = 0, background;
        int masked = 0, peak = -1;
        for (int i = 0; i < pixels; i++) {
            mask[i] = round % 7 ? (uint8_t)flim_random_below(&random, 2) : 0;
            masked += mask[i];
        }
        for (int i = 0; i < t * pixels; i++) {
            counts[i] = round % 11 ? (double)flim_random_below(&random, 6) : 0;
        }
        for (int i = pixels; i-- > 0;) {
            for (int k = 0; k < t; k++) {
                const double n = counts[k * pixels + i];
                whole[k] += n;
                inside[k] += mask[i] ? n : 0;
                photons += n;
                in_mask += mask[i] ? n : 0;
                moment += mask[i] ? n * (k + 0.5) : 0;
            }
        }
        for (int k = t; k-- > 0;) {
            peak = whole[k] > 0 && (peak < 0 || whole[k] >= whole[peak]) ? k : peak;
        }
        for (int i = 0; i < pixels && peak >= 0; i++) {
            const double p = counts[peak * pixels + i] / whole[peak];
            entropy += p > 0 ? p * log(1 / p) / log(2) : 0;
        }
        const int least = t / 10 > 1 ? t / 10 : 1;
        background = INFINITY;
        for (int from = 0; from + least <= t; from++) {
            double sum = 0;
            for (int k = from; k < from + least; k++) {
                sum += inside[k];
            }
            background = fmin(background, sum / least * t);
        }
        double apart = 0; /* over all pairs of photons: twice the mean square distance from their centre */
        for (int i = 0; i < pixels; i++) {
            for (int j = 0; j < pixels; j++) {
                double a = 0, b = 0;
                for (int k = 0; k < t; k++) {
                    a += mask[i] ? counts[k * pixels + i] : 0;
                    b += mask[j] ? counts[k * pixels + j] : 0;
                }
                apart += a * b * (pow(i / w - j / w, 2) + pow(i % w - j % w, 2));
            }
        }
        flim_cell_figures f;
        memset(&f, 0xff, sizeof f);
        flim_cell_figures_of(t, h, w, counts, mask, scratch, &f);
        close_to(f.photons, photons, "photons", round);
        assert_int_equal(f.mask_pixels, masked);
        assert_int_equal(f.peak_bin, peak);
        close_to(f.inside, photons > 0 ? in_mask / photons : NAN, "the share inside", round);
        close_to(f.peak_entropy, photons > 0 ? entropy : NAN, "the entropy", round);
        close_to(f.arrival, in_mask > 0 ? moment / in_mask : NAN, "the arrival", round);
        close_to(f.background, in_mask > 0 ? background / t : NAN, "the background", round);
        close_to(f.spread * f.spread, in_mask > 0 ? apart / (2 * in_mask * in_mask) : NAN, "the spread", round);
        close_to(f.snr, in_mask > 0 ? (in_mask - background) / sqrt(in_mask) : NAN, "the SNR", round);
    }
    /* known by heart: one pixel has no uncertainty, four equal ones have two bits */
    static const double one[8] = {0, 0, 0, 0, 9, 0, 0, 0}, four[8] = {1, 1, 1, 1, 3, 3, 3, 3};
    static const uint8_t all[4] = {1, 1, 1, 1};
    double scratch[2];
    flim_cell_figures f;
    flim_cell_figures_of(2, 2, 2, one, all, scratch, &f);
    assert_true(f.peak_entropy == 0 && f.peak_bin == 1 && f.arrival == 1.5 && f.inside == 1 && f.snr == 3);
    flim_cell_figures_of(2, 2, 2, four, all, scratch, &f);
    assert_true(f.peak_entropy == 2 && f.arrival == 1.25 && f.snr == (16 - 8) / 4.0);
}

/* A decay A exp(-t/tau) + b per bin after `peak` bins of b, as Poisson's noise leaves it if noise is set. */
static double lifetime_of(int t, int peak, double amplitude, double tau, double b, flim_random *noise)
{
    enum { LONGEST = 256 };
    double decay[LONGEST], scratch[LONGEST];
    const uint8_t mask = 1;
    flim_cell_figures f;
    assert_true(t <= LONGEST);
    for (int k = 0; k < t; k++) {
        const double mean = b + (k >= peak ? amplitude * exp(-(k - peak) / tau) : 0);
        decay[k] = mean;
        if (noise) {
            double left = mean;
            for (decay[k] = -1; left >= 0; decay[k]++) {
                left += log(1 - flim_random_uniform(noise));
            }
        }
    }
    flim_cell_figures_of(t, 1, 1, decay, &mask, scratch, &f);
    return f.lifetime;
}

/* Exact decays give their tau to rounding, whatever the peak's place, the photons, the background and the bins that are summed; with
 * counting noise the mean over cells is near. */
static void lifetimes_are_found(void **state)
{
    (void)state;
    static const double photons[] = {30, 300, 1e5}, taus[] = {6, 20, 51.2}, backgrounds[] = {0, 0.5, 3};
    for (int i = 0; i < 54; i++) {
        const double tau = taus[i % 3], b = backgrounds[i / 3 % 3], amplitude = photons[i / 9 % 3];
        const int peak = i < 27 ? 30 : 101; /* so that more than a tenth of the bins hold background alone */
        const double got = lifetime_of(256, peak, amplitude, tau, b, NULL);
        if (!(fabs(got / tau - 1) < 1e-9)) {
            fail_msg("tau %g from bin %d, %g photons at the peak, %g per bin: %.12g", tau, peak, amplitude, b, got);
        }
    }
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 22}, FLIM_RANDOM_SIMULATE);
    for (int i = 0; i < 6; i++) {
        const double tau = i % 2 ? 20 : 40, peak = i < 2 ? 8 : i < 4 ? 40 : 400; /* 160 to 16000 photons */
        double sum = 0;
        for (int n = 0; n < 200; n++) {
            sum += lifetime_of(256, 40, peak, tau, 0.2, &random) / 200;
        }
        printf("tau %g, %g photons at the peak: %g on average\n", tau, peak, sum);
        if (fabs(sum / tau - 1) > (peak < 10 ? 0.25 : 0.1)) {
            fail_msg("tau %g, %g photons at the peak: %g on average", tau, peak, sum);
        }
    }
    /* nothing to fit: flat, rising, all at the end */
    assert_true(isnan(lifetime_of(64, 64, 0, 1, 5, NULL)));
    assert_true(isnan(lifetime_of(64, 62, 50, 9, 1, NULL)));
    assert_true(isnan(lifetime_of(2, 0, 50, 9, 1, NULL)));
}

/* The file: a row per cell in order, names quoted, a time per bin where the data know it, and nothing where there is none. */
static void the_table_has_a_row_per_cell(void **state)
{
    (void)state;
    enum { T = 10, H = 5, W = 5, CELLS = 40 };
    char folder[] = "/tmp/flim_table_XXXXXX", path[2][64], line[512];
    static const char *const names[] = {"rest", "act,ive"};
    int32_t label[CELLS];
    const char *group[CELLS];
    uint8_t counts[T * H * W];
    flim_error err = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path[0], sizeof path[0], "%s/d.h5", folder);
    snprintf(path[1], sizeof path[1], "%s/d.csv", folder);
    for (int i = 0; i < CELLS; i++) {
        label[i] = i % 2;
        group[i] = i < 20 ? "d1" : "d2";
    }
    const flim_dataset_layout layout = {.n = CELLS,
                                        .t = T,
                                        .h = H,
                                        .w = W,
                                        .count_bytes = 1,
                                        .classes = 2,
                                        .class_name = names,
                                        .label = label,
                                        .group = group};
    flim_dataset_writer *writer;
    assert_int_equal(flim_dataset_writer_create(path[0], &layout, &writer, &err), FLIM_OK);
    for (int i = 0; i < CELLS; i++) {
        memset(counts, 0, sizeof counts);
        counts[(i % T) * H * W] = i == 7 ? 0 : (uint8_t)(i + 1);
        assert_int_equal(flim_dataset_writer_cell(writer, i, counts, NULL, &err), FLIM_OK);
    }
    assert_int_equal(flim_dataset_writer_finish(writer, &err), FLIM_OK);
    flim_dataset_writer_destroy(writer);
    flim_dataset *data;
    const char *const paths[] = {path[0]};
    const flim_dataset_options options = {0};
    const flim_output output = {.path = path[1], .kind = "a table", .begins = FLIM_CELL_FIGURES_HEAD};
    if (flim_dataset_open(paths, 1, &options, &data, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    const flim_dataset_info *info = flim_dataset_get_info(data);
    const double bin = info->time_range_ns > 0 ? info->time_range_ns / T : 1;
    assert_int_equal(flim_cell_figures_write(data, 3, NULL, &output, &err), FLIM_OK);
    FILE *file = fopen(path[1], "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(strncmp(line, "index,name,group,label,class,photons,mask_pixels,inside_share,peak_bin,", 70), 0);
    assert_true((strstr(line, "mean_arrival_ns") != NULL) == (info->time_range_ns > 0));
    for (int i = 0; i < CELLS; i++) {
        char want[256], figures[128];
        assert_non_null(fgets(line, sizeof line, file));
        snprintf(figures, sizeof figures, "%d,1,1,%d,0,%.9g,%.9g,0,,0\n", i + 1, i % T, (i % T + 0.5) * bin, sqrt(i + 1));
        if (i == 7) {
            snprintf(figures, sizeof figures, "0,0,,,,,,,,\n");
        }
        snprintf(want, sizeof want, "%d,%s,%s,%d,%s,%s", i, info->name ? info->name[i] : "", group[i], i % 2,
                 i % 2 ? "\"act,ive\"" : "rest", figures);
        assert_string_equal(line, want);
    }
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
    flim_dataset_close(data);
    unlink(path[0]);
    unlink(path[1]);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_follow_their_definitions),
        cmocka_unit_test(lifetimes_are_found),
        cmocka_unit_test(the_table_has_a_row_per_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* flim_simulate's data: the physics against closed formulas, what tells the classes apart and what must not, the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <hdf5.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/temporary_files.h"
#include "flim/dataset_writer.h"
#include "flim/simulate.h"

static flim_simulation *create(const flim_simulate_options *options)
{
    flim_simulation *sim;
    flim_error err = {0};
    if (flim_simulation_create(options, &sim, &err) != FLIM_OK) {
        fail_msg("flim_simulation_create: %s", err.text);
    }
    return sim;
}

static void make_cell(const flim_simulation *sim, int64_t cell, uint16_t *counts, uint8_t *mask)
{
    flim_error err = {0};
    if (flim_simulation_cell(sim, cell, counts, mask, &err) != FLIM_OK) {
        fail_msg("cell %lld: %s", (long long)cell, err.text);
    }
}

enum { T = 256, S = 21, PIXELS = S * S, VOXELS = T * PIXELS };

static uint64_t fnv(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

static uint64_t hash_cells(const flim_simulation *sim, int64_t first, int64_t count)
{
    uint16_t *counts = malloc(VOXELS * sizeof *counts);
    uint8_t mask[PIXELS];
    assert_non_null(counts);
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int64_t i = first; i < first + count; i++) {
        memset(counts, 0xff, VOXELS * sizeof *counts); /* what is not written shows */
        memset(mask, 0xff, sizeof mask);
        make_cell(sim, i, counts, mask);
        for (int p = 0; p < PIXELS; p++) {
            assert_true(mask[p] <= 1);
        }
        hash = fnv(fnv(hash, counts, VOXELS * sizeof *counts), mask, sizeof mask);
    }
    free(counts);
    return hash;
}

static void same_seed_same_counts_on_any_machine(void **state)
{
    (void)state;
    flim_simulate_options options = flim_simulate_defaults();
    flim_simulation *a = create(&options), *b = create(&options);
    assert_true(hash_cells(a, 0, 5) == hash_cells(b, 0, 5));
    /* A known value: a change of compiler, libm or processor must not change the data. */
    uint64_t hash = hash_cells(b, 100, 3);
    if (hash != UINT64_C(11377856452734752497)) {
        fail_msg("cells 100..102 of seed 42 hash to %llu", (unsigned long long)hash);
    }
    flim_simulation_destroy(b);
    options.seed = 43;
    b = create(&options);
    assert_true(hash_cells(a, 0, 1) != hash_cells(b, 0, 1));
    assert_memory_not_equal(flim_simulation_get_info(a)->label, flim_simulation_get_info(b)->label, 600 * sizeof(int32_t));
    flim_simulation_destroy(b);
    flim_simulation_destroy(a);
}

static void donors_and_classes_look_like_the_field(void **state)
{
    (void)state;
    flim_simulate_options options = flim_simulate_defaults();
    flim_simulation *sim = create(&options);
    const flim_simulation_info *info = flim_simulation_get_info(sim);
    int64_t count[6][2] = {{0}}, active = 0;
    for (int i = 0; i < 600; i++) {
        assert_int_equal(info->donor[i], i / 100);
        count[info->donor[i]][info->label[i]]++;
        active += info->label[i];
    }
    assert_int_equal(active, 162); /* 27 % */
    int64_t least = 100, most = 0;
    for (int d = 0; d < 6; d++) {
        least = count[d][1] < least ? count[d][1] : least;
        most = count[d][1] > most ? count[d][1] : most;
    }
    assert_true(least >= 12 && most <= 42 && most - least >= 10); /* own balance: 0.135..0.405 */
    assert_string_equal(info->class_name[0], "quiescent");
    assert_string_equal(info->class_name[1], "activated");
    assert_string_equal(info->donor_name[5], "donor_6");
    flim_simulation_destroy(sim);

    options = (flim_simulate_options){.cells = 100,
                                      .donors = 12,
                                      .classes = 5,
                                      .bins = 16,
                                      .height = 5,
                                      .width = 7,
                                      .photons = 100,
                                      .separation = 1,
                                      .donor_brightness = 1,
                                      .donor_background = 1,
                                      .seed = 7};
    sim = create(&options);
    info = flim_simulation_get_info(sim);
    int of_class[5] = {0}, of_both[12][5] = {{0}};
    for (int i = 0; i < 100; i++) {
        of_class[info->label[i]]++;
        of_both[info->donor[i]][info->label[i]]++;
    }
    for (int k = 0; k < 5; k++) {
        assert_true(of_class[k] >= 16 && of_class[k] <= 24);
        for (int d = 0; d < 12; d++) {
            assert_true(of_both[d][k] >= 1); /* 8 or 9 cells, so every class */
        }
        assert_true(k == 0 || info->free_share[k] > info->free_share[k - 1]);
    }
    assert_true(info->free_share[0] >= 0.05 && info->free_share[4] <= 0.95 + 1e-12);
    assert_string_equal(info->donor_name[0], "donor_01");
    flim_simulation_destroy(sim);
}

/* Cumulative distribution of a Gaussian plus an exponential at t. */
static double emg(double t, double sigma, double tau)
{
    return 0.5 * erfc(-t / sigma / sqrt(2)) -
           exp(sigma * sigma / (2 * tau * tau) - t / tau) * 0.5 * erfc(-(t / sigma - sigma / tau) / sqrt(2));
}

static void decay_is_the_folded_biexponential(void **state)
{
    (void)state;
    flim_simulate_options options = flim_simulate_defaults();
    options.cells = 250;
    options.donors = 1; /* a donor alone is an average one: t0 at 2 ns */
    options.separation = 0;
    flim_simulation *sim = create(&options);
    const flim_simulation_info *info = flim_simulation_get_info(sim);
    uint16_t *counts = malloc(VOXELS * sizeof *counts);
    uint8_t mask[PIXELS];
    double decay[T] = {0}, total = 0, outside = 0, outside_square = 0, outside_pixels = 0, zeros = 0;
    assert_non_null(counts);
    for (int i = 0; i < 250; i++) {
        make_cell(sim, i, counts, mask);
        for (int p = 0; p < PIXELS; p++) {
            double pixel = 0;
            for (int t = 0; t < T; t++) {
                double c = counts[t * PIXELS + p];
                decay[t] += c;
                pixel += c;
                zeros += c == 0;
            }
            total += pixel;
            if (!mask[p]) {
                outside += pixel;
                outside_square += pixel * pixel;
                outside_pixels++;
            }
        }
    }
    free(counts);
    assert_true(fabs(zeros / (250.0 * VOXELS) - 0.97) < 0.005);
    /* Outside the mask: background only, Poisson: mean 0.12 and variance equal to the mean. */
    double mean = outside / outside_pixels, variance = outside_square / outside_pixels - mean * mean;
    assert_true(fabs(mean - 0.12) < 5 * sqrt(0.12 / outside_pixels));
    assert_true(fabs(variance / mean - 1) < 0.05);

    double sigma = info->irf_fwhm_ns / (2 * sqrt(2 * log(2))), period = info->period_ns, share = info->free_share[0];
    double free_photons = share * info->free_ns / (share * info->free_ns + (1 - share) * info->bound_ns);
    double background = info->background * PIXELS * 250 / total, worst = 0, seen = 0, before = 0, expected_before = 0;
    for (int t = 0; t < T; t++) {
        double want = background * (t + 1) / T;
        for (int n = 0; n < 12; n++) { /* this pulse and those before it */
            double from = n * period - 2, to = from + (t + 1) * period / T;
            want +=
                (1 - background) * (free_photons * (emg(to, sigma, info->free_ns) - emg(from, sigma, info->free_ns)) +
                                    (1 - free_photons) * (emg(to, sigma, info->bound_ns) - emg(from, sigma, info->bound_ns)));
        }
        seen += decay[t] / total;
        worst = fmax(worst, fabs(seen - want));
        if (t == 30) { /* 1.5 ns: before the pulse only the previous decay's tail and background are there */
            before = seen;
            expected_before = want;
        }
    }
    assert_true(fabs(seen - 1) < 1e-12);
    if (worst > 0.004) {
        fail_msg("the decay's cumulative distribution is %g away from the formula", worst);
    }
    assert_true(expected_before > 0.005 && fabs(before / expected_before - 1) < 0.03);
    flim_simulation_destroy(sim);
}

/* What a baseline sees of a cell, beside the mean arrival time. */
enum { LOG_PHOTONS, AREA, PEAK, ARRIVAL, FEATURES };

/* Difference of the class means in standard errors, within donors: donor means are taken off first. */
static void class_differences(const flim_simulate_options *options, double z[FEATURES])
{
    flim_simulation *sim = create(options);
    const flim_simulation_info *info = flim_simulation_get_info(sim);
    int64_t n = options->cells;
    uint16_t *counts = malloc(VOXELS * sizeof *counts);
    uint8_t mask[PIXELS];
    double(*feature)[FEATURES] = calloc((size_t)n, sizeof *feature);
    assert_true(counts && feature);
    for (int64_t i = 0; i < n; i++) {
        make_cell(sim, i, counts, mask);
        double photons = 0, area = 0, time = 0, peak_count = -1;
        for (int p = 0; p < PIXELS; p++) {
            area += mask[p];
        }
        for (int t = 0; t < T; t++) {
            double here = 0;
            for (int p = 0; p < PIXELS; p++) {
                here += mask[p] ? counts[t * PIXELS + p] : 0;
            }
            photons += here;
            time += here * t;
            if (here > peak_count) {
                peak_count = here;
                feature[i][PEAK] = t;
            }
        }
        feature[i][LOG_PHOTONS] = log(photons);
        feature[i][AREA] = area;
        feature[i][ARRIVAL] = time / photons;
    }
    for (int f = 0; f < FEATURES; f++) {
        double sum[2] = {0}, square[2] = {0}, count[2] = {0};
        for (int d = 0; d < options->donors; d++) {
            double mean[2] = {0}, cells[2] = {0};
            for (int64_t i = 0; i < n; i++) {
                if (info->donor[i] == d) {
                    mean[info->label[i]] += feature[i][f];
                    cells[info->label[i]]++;
                }
            }
            double centre = (mean[0] / cells[0] + mean[1] / cells[1]) / 2; /* the same weight for both classes */
            for (int64_t i = 0; i < n; i++) {
                if (info->donor[i] == d) {
                    double x = feature[i][f] - centre;
                    sum[info->label[i]] += x;
                    square[info->label[i]] += x * x;
                    count[info->label[i]]++;
                }
            }
        }
        double a = sum[0] / count[0], b = sum[1] / count[1];
        z[f] = (b - a) / sqrt((square[0] / count[0] - a * a) / count[0] + (square[1] / count[1] - b * b) / count[1]);
    }
    free(feature);
    free(counts);
    flim_simulation_destroy(sim);
}

static void classes_differ_in_lifetime_only(void **state)
{
    (void)state;
    flim_simulate_options options = flim_simulate_defaults();
    double z[FEATURES];
    options.cells = 360;
    class_differences(&options, z);
    /* More free NAD(P)H moves the peak a fraction of a bin to the left: little beside the donors' own t0. */
    if (fabs(z[LOG_PHOTONS]) > 3 || fabs(z[AREA]) > 3 || fabs(z[PEAK]) > 6 || z[ARRIVAL] > -30) {
        fail_msg("class differences in standard errors: log photons %g, area %g, peak bin %g, arrival time %g", z[0], z[1],
                 z[2], z[3]);
    }
    options.separation = 0;
    class_differences(&options, z);
    assert_true(fabs(z[ARRIVAL]) < 3);
}

static void confounds_do_what_they_say(void **state)
{
    (void)state;
    flim_simulate_options options = flim_simulate_defaults();
    double z[FEATURES];
    options.cells = 200;
    options.separation = 0;
    options.confound = FLIM_CONFOUND_BRIGHTNESS;
    class_differences(&options, z);
    assert_true(z[LOG_PHOTONS] > 12 && fabs(z[AREA]) < 3 && fabs(z[ARRIVAL]) < 3.5);
    options.confound = FLIM_CONFOUND_SIZE;
    class_differences(&options, z);
    assert_true(z[AREA] > 12 && fabs(z[LOG_PHOTONS]) < 3 && fabs(z[ARRIVAL]) < 3.5);
}

/* How alike neighbouring pixels are in lifetime: the mean over the pairs of neighbours in the mask of the product of their
 * late photons beyond the cell's own share, in units of their photons; 0 if lifetimes are scattered at random. */
static double coherence(const uint16_t *counts, const uint8_t *mask)
{
    double all[PIXELS] = {0}, late[PIXELS] = {0}, sum_all = 0, sum_late = 0, product = 0, weight = 0;
    for (int t = 0; t < T; t++) {
        for (int p = 0; p < PIXELS; p++) {
            all[p] += mask[p] ? counts[t * PIXELS + p] : 0;
            late[p] += mask[p] && t >= 61 ? counts[t * PIXELS + p] : 0; /* 1 ns after the pulse */
        }
    }
    for (int p = 0; p < PIXELS; p++) {
        sum_all += all[p];
        sum_late += late[p];
    }
    for (int p = 0; p + S < PIXELS; p++) { /* the neighbours to the right and below */
        for (int k = 0; k < 2; k++) {
            const int q = k ? p + S : p + 1;
            if (k || p % S < S - 1) {
                product += (late[p] - all[p] * sum_late / sum_all) * (late[q] - all[q] * sum_late / sum_all);
                weight += sqrt(all[p] * all[q]);
            }
        }
    }
    return product / weight;
}

/* The classes of a pattern have equal decays, brightness and size; neighbours are alike in the last class only. */
static void pattern_is_in_the_place_only(void **state)
{
    (void)state;
    flim_simulate_options options = flim_simulate_defaults();
    double z[FEATURES], sum[2] = {0}, square[2] = {0}, count[2] = {0};
    uint16_t *counts = malloc(VOXELS * sizeof *counts);
    uint8_t mask[PIXELS];
    assert_non_null(counts);
    options.cells = 360;
    options.signal = FLIM_SIGNAL_PATTERN;
    class_differences(&options, z);
    for (int f = 0; f < FEATURES; f++) {
        if (fabs(z[f]) > 3.5) {
            fail_msg("feature %d differs between the classes by %g standard errors", f, z[f]);
        }
    }
    flim_simulation *sim = create(&options);
    const flim_simulation_info *info = flim_simulation_get_info(sim);
    assert_true(info->free_share[0] == info->free_share[1]);
    for (int i = 0; i < 360; i++) {
        make_cell(sim, i, counts, mask);
        const double c = coherence(counts, mask);
        sum[info->label[i]] += c;
        square[info->label[i]] += c * c;
        count[info->label[i]]++;
    }
    flim_simulation_destroy(sim);
    free(counts);
    for (int k = 0; k < 2; k++) {
        const double mean = sum[k] / count[k], error = sqrt((square[k] / count[k] - mean * mean) / count[k]);
        if (k == 0 ? fabs(mean) > 4 * error : mean < 20 * error) {
            fail_msg("neighbours of class %d are alike by %g, standard error %g", k, mean, error);
        }
    }
}

/* Fluorescence of donor 2 in its mask, background per pixel outside, and the bin by which half of its photons have come. */
static void second_donor(const flim_simulate_options *options, double *photons, double *outside, double *median)
{
    flim_simulation *sim = create(options);
    uint16_t *counts = malloc((size_t)options->bins * PIXELS * sizeof *counts);
    uint8_t mask[PIXELS];
    double decay[T] = {0}, below = 0, pixels = 0;
    assert_non_null(counts);
    *photons = *outside = *median = 0;
    for (int64_t i = options->cells / 2; i < options->cells; i++) {
        make_cell(sim, i, counts, mask);
        for (int t = 0; t < options->bins; t++) {
            for (int p = 0; p < PIXELS; p++) {
                decay[t] += mask[p] ? counts[t * PIXELS + p] : 0;
                *outside += mask[p] ? 0 : counts[t * PIXELS + p];
            }
        }
        for (int p = 0; p < PIXELS; p++) {
            pixels += !mask[p];
        }
    }
    for (int t = 0; t < options->bins; t++) {
        *photons += decay[t];
    }
    *outside /= pixels;
    for (int t = 0; t < options->bins && below + decay[t] < *photons / 2; t++) {
        below += decay[t];
        *median = t + 1;
    }
    *median += (*photons / 2 - below) / decay[(int)*median];
    free(counts);
    flim_simulation_destroy(sim);
}

static void second_half_of_the_donors_differs_as_asked(void **state)
{
    (void)state;
    flim_simulate_options options = flim_simulate_defaults();
    double photons[2], outside[2], median[2];
    options.cells = 120;
    options.donors = 2;
    options.bins = 64;
    options.separation = 0;
    second_donor(&options, &photons[0], &outside[0], &median[0]);
    options.donor_t0_bins = 5;
    second_donor(&options, &photons[1], &outside[1], &median[1]);
    assert_true(fabs(median[1] - median[0] - 5) < 0.35);
    assert_true(fabs(photons[1] / photons[0] - 1) < 0.02 && fabs(outside[1] / outside[0] - 1) < 0.06);
    options.donor_t0_bins = 0;
    options.donor_brightness = 3;
    options.donor_background = 4;
    second_donor(&options, &photons[1], &outside[1], &median[1]);
    assert_true(fabs(outside[1] / outside[0] - 4) < 0.2);
    assert_true(fabs(photons[1] / photons[0] - 3) < 0.06);
    assert_true(fabs(median[1] - median[0]) < 0.35);
}

/* Donor means of brightness and the donors' class balance are uncorrelated by construction, whatever the seed. */
static void donor_brightness_does_not_follow_the_balance(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        flim_simulate_options options = flim_simulate_defaults();
        options.seed = seed;
        options.cells = 480;
        options.bins = 8; /* neither time nor many photons matter here */
        options.photons = 800;
        flim_simulation *sim = create(&options);
        const flim_simulation_info *info = flim_simulation_get_info(sim);
        uint16_t *counts = malloc(8 * PIXELS * sizeof *counts);
        uint8_t mask[PIXELS];
        assert_non_null(counts);
        double photons[6] = {0}, share[6] = {0}, mean = 0, balance = 0;
        for (int i = 0; i < 480; i++) {
            make_cell(sim, i, counts, mask);
            double sum = 0;
            for (int v = 0; v < 8 * PIXELS; v++) {
                sum += counts[v];
            }
            photons[info->donor[i]] += log(sum) / 80;
            share[info->donor[i]] += info->label[i] / 80.0;
        }
        free(counts);
        for (int d = 0; d < 6; d++) {
            mean += photons[d] / 6;
            balance += share[d] / 6;
        }
        double xy = 0, xx = 0, yy = 0;
        for (int d = 0; d < 6; d++) {
            xy += (photons[d] - mean) * (share[d] - balance);
            xx += (photons[d] - mean) * (photons[d] - mean);
            yy += (share[d] - balance) * (share[d] - balance);
        }
        assert_true(sqrt(xx / 6) > 0.1); /* donors do differ */
        if (fabs(xy) > 0.35 * sqrt(xx * yy)) { /* what is left is the mean of 80 cells' own noise */
            fail_msg("seed %llu: correlation %g", (unsigned long long)seed, xy / sqrt(xx * yy));
        }
        flim_simulation_destroy(sim);
    }
}

/* ---- the file */

static const char *path_in(const char *name)
{
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", FLIM_BINARY_DIR, name);
    return path[next];
}

static flim_simulate_options small(void)
{
    flim_simulate_options options = flim_simulate_defaults();
    options.cells = 14;
    options.bins = 16;
    options.height = 5;
    options.width = 7;
    options.donors = 3;
    return options;
}

static void write_file(const flim_simulate_options *options, const char *path)
{
    flim_simulation *sim = create(options);
    flim_error err = {0};
    unlink(path); /* of an earlier run */
    if (flim_simulation_write(sim, path, NULL, NULL, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    flim_simulation_destroy(sim);
}

static void file_has_the_layout_of_the_specification(void **state)
{
    (void)state;
    flim_simulate_options options = small();
    const char *path = path_in("test_simulate_layout.h5");
    write_file(&options, path);
    flim_simulation *sim = create(&options);
    const flim_simulation_info *info = flim_simulation_get_info(sim);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    hid_t set = H5Dopen2(file, "counts", H5P_DEFAULT), list = H5Dget_create_plist(set), type = H5Dget_type(set);
    hsize_t chunk[4];
    assert_int_equal(H5Pget_chunk(list, 4, chunk), 4);
    assert_int_equal(chunk[0], 1);
    assert_int_equal(chunk[1], 16);
    assert_int_equal(chunk[2], 5);
    assert_int_equal(chunk[3], 7);
    assert_int_equal(H5Pget_nfilters(list), 2);
    unsigned flags, values[4], config;
    size_t n_values = 4;
    assert_int_equal(H5Pget_filter2(list, 0, &flags, &n_values, values, 0, NULL, &config), H5Z_FILTER_SHUFFLE);
    n_values = 4;
    assert_int_equal(H5Pget_filter2(list, 1, &flags, &n_values, values, 0, NULL, &config), H5Z_FILTER_DEFLATE);
    assert_int_equal(values[0], 4);
    assert_true(H5Tequal(type, H5T_STD_U16LE) > 0);
    uint16_t read[14][16 * 35], counts[16 * 35];
    uint8_t masks[14][35], mask[35];
    int64_t labels[14];
    char group[14][16];
    assert_true(H5Dread(set, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, read) >= 0);
    H5Tclose(type);
    H5Pclose(list);
    H5Dclose(set);
    set = H5Dopen2(file, "mask", H5P_DEFAULT);
    assert_true(H5Dread(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, masks) >= 0);
    H5Dclose(set);
    set = H5Dopen2(file, "label", H5P_DEFAULT);
    assert_true(H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels) >= 0);
    H5Dclose(set);
    set = H5Dopen2(file, "group", H5P_DEFAULT);
    type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 16);
    H5Tset_cset(type, H5T_CSET_UTF8);
    assert_true(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, group) >= 0);
    H5Tclose(type);
    H5Dclose(set);
    hid_t attribute = H5Aopen(file, "time_range_ns", H5P_DEFAULT);
    double range = 0;
    assert_true(H5Aread(attribute, H5T_NATIVE_DOUBLE, &range) >= 0);
    assert_true(range == 12.5);
    H5Aclose(attribute);
    assert_true(H5Aexists(file, "class_names") > 0 && H5Lexists(file, "name", H5P_DEFAULT) > 0);
    H5Fclose(file);
    for (int i = 0; i < 14; i++) {
        make_cell(sim, i, counts, mask);
        assert_memory_equal(read[i], counts, sizeof counts);
        assert_memory_equal(masks[i], mask, sizeof mask);
        assert_int_equal(labels[i], info->label[i]);
        assert_string_equal(group[i], info->donor_name[info->donor[i]]);
    }
    flim_simulation_destroy(sim);
    unlink(path);
}

static void same_seed_same_bytes_at_any_time(void **state)
{
    (void)state;
    flim_simulate_options options = small();
    const char *a = path_in("test_simulate_a.h5"), *b = path_in("test_simulate_b.h5");
    write_file(&options, a);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 50000000}, NULL); /* HDF5's time stamps count seconds */
    write_file(&options, b);
    char *bytes[2];
    size_t count[2];
    assert_int_equal(flim_file_read(a, 1 << 24, &bytes[0], &count[0], NULL), FLIM_OK);
    assert_int_equal(flim_file_read(b, 1 << 24, &bytes[1], &count[1], NULL), FLIM_OK);
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(bytes[0], bytes[1], count[0]);
    flim_free(bytes[0]);
    flim_free(bytes[1]);
    unlink(a);
    unlink(b);
}

static void failures_leave_no_file(void **state)
{
    (void)state;
    flim_simulate_options options = small();
    flim_simulation *sim = create(&options);
    flim_error err = {0};
    assert_int_equal(flim_simulation_write(sim, "/nowhere/at/all.h5", NULL, NULL, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "cannot write /nowhere/at/all.h5: there is no folder /nowhere"));
    const char *path = path_in("test_simulate_none.h5");
    volatile int stop = SIGTERM;
    unlink(path); /* of an earlier run */
    assert_int_equal(flim_simulation_write(sim, path, &stop, NULL, &err), FLIM_INTERRUPTED);
    assert_false(flim_file_exists(path) || temporary_files_of(path));

    /* A full disk, as RLIMIT_FSIZE plays it. */
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    flim_status status = flim_simulation_write(sim, path, NULL, NULL, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "File too large"));
    assert_false(flim_file_exists(path) || temporary_files_of(path));

    /* An older file of that name, whatever it is, stays as it was. */
    assert_int_equal(flim_file_write(path, "old", 3, &err), FLIM_OK);
    assert_int_equal(flim_simulation_write(sim, path, NULL, NULL, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "exists"));
    char *bytes;
    size_t count;
    assert_int_equal(flim_file_read(path, 100, &bytes, &count, NULL), FLIM_OK);
    assert_string_equal(bytes, "old");
    flim_free(bytes);
    unlink(path);

    /* Each allocation in turn fails: FLIM_ERROR_MEMORY, nothing left, nothing leaked (the sanitizer runs watch). */
    int failed_times = 0;
    for (long n = 1; n < 1000; n++) {
        flim_simulation *again = NULL;
        flim_alloc_fail_at(n);
        status = flim_simulation_create(&options, &again, &err);
        if (status == FLIM_OK) {
            status = flim_simulation_write(again, path, NULL, NULL, &err);
        }
        flim_alloc_fail_at(0);
        flim_simulation_destroy(again);
        if (status == FLIM_OK) {
            break;
        }
        assert_int_equal(status, FLIM_ERROR_MEMORY);
        assert_false(flim_file_exists(path) || temporary_files_of(path));
        failed_times++;
    }
    assert_int_equal(status, FLIM_OK);
    assert_true(failed_times > 20);
    unlink(path);
    flim_simulation_destroy(sim);
}

static void writer_wants_every_cell_once(void **state)
{
    (void)state;
    const char *path = path_in("test_simulate_writer.h5");
    flim_dataset_layout layout = {.n = 2, .t = 8, .h = 3, .w = 3, .count_bytes = 1};
    uint8_t counts[72] = {0}, mask[9] = {0};
    flim_dataset_writer *writer;
    flim_error err = {0};
    unlink(path); /* of an earlier run */
    assert_int_equal(flim_dataset_writer_create(path, &layout, &writer, &err), FLIM_OK);
    assert_int_equal(flim_dataset_writer_cell(writer, 2, counts, NULL, &err), FLIM_ERROR_USAGE);
    assert_int_equal(flim_dataset_writer_cell(writer, 1, counts, mask, &err), FLIM_ERROR_USAGE);
    assert_int_equal(flim_dataset_writer_cell(writer, 1, counts, NULL, &err), FLIM_OK);
    assert_int_equal(flim_dataset_writer_cell(writer, 1, counts, NULL, &err), FLIM_ERROR_USAGE);
    assert_int_equal(flim_dataset_writer_finish(writer, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "cell 0 of 2 has not come"));
    flim_dataset_writer_destroy(writer);
    assert_false(flim_file_exists(path));
    layout.count_bytes = 3;
    assert_int_equal(flim_dataset_writer_create(path, &layout, &writer, &err), FLIM_ERROR_USAGE);
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    flim_simulation *sim;
    flim_error err = {0};
    flim_simulate_options options = flim_simulate_defaults();
    options.photons = NAN;
    assert_int_equal(flim_simulation_create(&options, &sim, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "photons"));
    assert_null(sim);
    options = flim_simulate_defaults();
    options.cells = 5;
    assert_int_equal(flim_simulation_create(&options, &sim, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "5 cells are fewer than the 6 donors"));
    options.donors = 1; /* far too bright for uint16: an error, never a wrapped count */
    options.photons = 1e7;
    options.height = options.width = 3;
    sim = create(&options);
    uint16_t counts[T * 9];
    uint8_t mask[9];
    assert_int_equal(flim_simulation_cell(sim, 0, counts, mask, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "65535"));
    flim_simulation_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_same_counts_on_any_machine),
        cmocka_unit_test(donors_and_classes_look_like_the_field),
        cmocka_unit_test(decay_is_the_folded_biexponential),
        cmocka_unit_test(classes_differ_in_lifetime_only),
        cmocka_unit_test(confounds_do_what_they_say),
        cmocka_unit_test(pattern_is_in_the_place_only),
        cmocka_unit_test(second_half_of_the_donors_differs_as_asked),
        cmocka_unit_test(donor_brightness_does_not_follow_the_balance),
        cmocka_unit_test(file_has_the_layout_of_the_specification),
        cmocka_unit_test(same_seed_same_bytes_at_any_time),
        cmocka_unit_test(failures_leave_no_file),
        cmocka_unit_test(writer_wants_every_cell_once),
        cmocka_unit_test(options_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

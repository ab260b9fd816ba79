#include "results/repeated.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/parse.h"
#include "core/try.h"
#include "flim/settings.h"
#include "results/pool.h"

/* ---- folders ---- */

void flim_seed_folder(uint64_t seed, char out[48])
{
    snprintf(out, 48, "seed_%" PRIu64, seed);
}

static bool read_name(const char *name, uint64_t *seed)
{
    char again[48];
    if (strncmp(name, "seed_", 5) != 0 || flim_parse_u64("seed", name + 5, seed, NULL) != FLIM_OK) {
        return false;
    }
    flim_seed_folder(*seed, again);
    return strcmp(again, name) == 0;
}

bool flim_is_seed_folder(const char *name)
{
    uint64_t seed;
    return read_name(name, &seed);
}

/* FOLDER/seed_S/NAME */
static flim_status path_of(const char *folder, uint64_t seed, const char *name, char out[FLIM_FILE_PATH], flim_error *err)
{
    char seeds[48], below[96];
    flim_seed_folder(seed, seeds);
    snprintf(below, sizeof below, "%s%s%s", seeds, name[0] ? "/" : "", name);
    return flim_path_in(folder, below, out, err);
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

flim_status flim_seeds_find(const char *folder, flim_seeds *out, flim_error *err)
{
    char path[FLIM_FILE_PATH];
    const struct dirent *entry;
    flim_status status = FLIM_OK;
    out->n = 0;
    const int length = snprintf(path, sizeof path, "%s/splits.json", folder);
    DIR *list = length > 0 && length < FLIM_FILE_PATH && !flim_file_exists(path) ? opendir(folder) : NULL;
    while (list && (entry = readdir(list))) {
        uint64_t seed;
        if (!read_name(entry->d_name, &seed)) {
            continue;
        }
        FLIM_TRY_DONE(path_of(folder, seed, "splits.json", path, err));
        if (flim_file_exists(path) && out->n < FLIM_MOST_SEEDS) {
            out->seed[out->n++] = seed;
        }
    }
    qsort(out->seed, (size_t)out->n, sizeof *out->seed, by_number);
done:
    if (list) {
        closedir(list);
    }
    return status;
}

/* ---- which there are to be ---- */

flim_status flim_seeds_of(const char *text, flim_seeds *out, flim_error *err)
{
    return flim_parse_seeds(text, out->seed, FLIM_MOST_SEEDS, &out->n)
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_USAGE, "seeds: '%.200s' is no list of seeds, as 1-5 or 1,2,7", text);
}

flim_status flim_seeds_stored(const char *folder, flim_seeds *out, flim_error *err)
{
    char path[FLIM_FILE_PATH];
    flim_settings stored = {0};
    flim_status status = FLIM_OK;
    out->n = 0;
    FLIM_TRY(flim_path_in(folder, "config.yaml", path, err));
    if (!flim_file_exists(path)) {
        return FLIM_OK;
    }
    FLIM_TRY_DONE(flim_settings_init(&stored, err));
    FLIM_TRY_DONE(flim_settings_read(&stored, path, err));
    status = stored.seeds[0] ? flim_seeds_of(stored.seeds, out, err) : FLIM_OK;
done:
    flim_settings_free(&stored);
    return status;
}

void flim_seeds_add_stored(const char *folder, flim_seeds *seeds)
{
    flim_seeds stored;
    if (flim_seeds_stored(folder, &stored, NULL) != FLIM_OK) {
        return;
    }
    for (int i = 0; i < stored.n; i++) {
        bool there = seeds->n == FLIM_MOST_SEEDS;
        for (int k = 0; k < seeds->n; k++) {
            there = there || seeds->seed[k] == stored.seed[i];
        }
        if (!there) {
            seeds->seed[seeds->n++] = stored.seed[i];
        }
    }
    qsort(seeds->seed, (size_t)seeds->n, sizeof *seeds->seed, by_number);
}

/* ---- reading ---- */

/* All folds of all seeds: (FLIM_N_METRICS, room) values, and how many cells they tested and trained on. */
typedef struct gathered {
    double *value;
    int n, room;
    double test, train;
} gathered;

static flim_status gather(gathered *g, const flim_fold_result *fold, int n, flim_error *err)
{
    if (g->n + n > g->room) {
        const int room = 2 * (g->n + n);
        double *wider = flim_alloc((size_t)FLIM_N_METRICS * (size_t)room, sizeof *wider, err);
        if (!wider) {
            return FLIM_ERROR_MEMORY;
        }
        for (int m = 0; m < FLIM_N_METRICS && g->n > 0; m++) {
            memcpy(wider + m * room, g->value + m * g->room, (size_t)g->n * sizeof *wider);
        }
        flim_free(g->value);
        g->value = wider;
        g->room = room;
    }
    for (int k = 0; k < n; k++) {
        for (int m = 0; m < FLIM_N_METRICS; m++) {
            g->value[m * g->room + g->n] = fold[k].metrics.value[m];
        }
        g->test += (double)fold[k].n_test;
        g->train += (double)fold[k].n_train;
        g->n++;
    }
    return FLIM_OK;
}

static flim_status read_results(const char *run, const flim_splits *splits, flim_fold_result *fold, flim_repeated_seed *out,
                                gathered *g, flim_error *err)
{
    int used[FLIM_N_METRICS];
    flim_pool pool = {0};
    flim_metrics at_half;
    flim_status status = FLIM_OK;
    for (int k = 0; k < splits->n_folds; k++) {
        char failed[FLIM_FILE_PATH];
        if (flim_fold_is_done(run, k)) {
            FLIM_TRY_DONE(flim_fold_result_read(run, k, &splits->fold[k], &fold[out->done++], err));
        } else if (snprintf(failed, sizeof failed, "%.4000s/fold_%d/FAILED", run, k) > 0) {
            out->failed += flim_file_exists(failed);
        }
    }
    if (out->done > 0) {
        FLIM_TRY_DONE(flim_spread_over_folds(fold, out->done, false, out->mean, out->sd, used, err));
        FLIM_TRY_DONE(flim_pool_make(fold, out->done, &pool, err));
        FLIM_TRY_DONE(flim_pool_metrics(&pool, &out->pooled, &at_half, err));
        status = gather(g, fold, out->done, err);
    }
done:
    flim_pool_free(&pool);
    return status;
}

static flim_status read_seed(const char *folder, uint64_t seed, flim_repeated_seed *out, gathered *g, flim_error *err)
{
    char run[FLIM_FILE_PATH], path[FLIM_FILE_PATH];
    flim_splits splits = {0};
    flim_fold_result *fold = NULL;
    flim_status status = FLIM_OK;
    *out = (flim_repeated_seed){.seed = seed};
    FLIM_TRY(path_of(folder, seed, "", run, err));
    FLIM_TRY(path_of(folder, seed, "splits.json", path, err));
    if (!flim_file_exists(path)) {
        return FLIM_OK; /* not begun */
    }
    FLIM_TRY(flim_splits_read(path, NULL, &splits, err));
    out->n_folds = splits.n_folds;
    fold = flim_alloc((size_t)splits.n_folds, sizeof *fold, err);
    status = fold ? read_results(run, &splits, fold, out, g, err) : FLIM_ERROR_MEMORY;
    for (int k = 0; fold && k < out->done; k++) {
        flim_fold_result_free(&fold[k]);
    }
    flim_free(fold);
    flim_splits_free(&splits);
    return status;
}

/* The figures of one metric; scratch: (n). */
static void analyse(flim_repeated *r, const gathered *g, int m, double *scratch)
{
    double sd, within = 0, within_mean = 0;
    int used, counted = 0, seeds;
    for (int s = 0; s < r->n; s++) {
        scratch[s] = r->seed[s].mean[m];
        if (!isnan(r->seed[s].sd[m])) {
            const double v = r->seed[s].sd[m] * r->seed[s].sd[m];
            within += v;
            within_mean += v / r->seed[s].done;
            counted++;
        }
    }
    flim_mean_sd(scratch, r->n, &r->mean[m], &sd, &seeds);
    r->sd_seed_means[m] = sd;
    r->sd_folds[m] = counted > 0 ? sqrt(within / counted) : NAN;
    r->sd_seeds[m] = counted > 0 && !isnan(sd) ? sqrt(fmax(0, sd * sd - within_mean / counted)) : NAN;
    double all_mean, all_sd;
    flim_mean_sd(g->value + m * g->room, g->n, &all_mean, &all_sd, &used);
    r->standard_error[m] = used > 1 ? all_sd * sqrt(1.0 / used + r->test_share) : NAN;
    for (int s = 0; s < r->n; s++) {
        scratch[s] = r->seed[s].pooled.value[m];
    }
    flim_mean_sd(scratch, r->n, &r->pooled_mean[m], &r->pooled_sd[m], &used);
}

flim_status flim_repeated_read(const char *folder, const flim_seeds *seeds, flim_repeated *out, flim_error *err)
{
    gathered g = {0};
    double *scratch = flim_alloc((size_t)seeds->n, sizeof *scratch, err);
    flim_status status = FLIM_OK;
    *out = (flim_repeated){.wanted = seeds->n};
    snprintf(out->folder, sizeof out->folder, "%s", folder);
    out->seed = flim_alloc((size_t)seeds->n, sizeof *out->seed, err);
    FLIM_TRY_DONE(scratch && out->seed ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int s = 0; s < seeds->n; s++) {
        FLIM_TRY_DONE(read_seed(folder, seeds->seed[s], &out->seed[out->n], &g, err));
        out->n += out->seed[out->n].done > 0;
    }
    out->test_share = g.test / g.train;
    for (int m = 0; m < FLIM_N_METRICS && out->n > 0; m++) {
        analyse(out, &g, m, scratch);
    }
done:
    flim_free(scratch);
    flim_free(g.value);
    return status;
}

void flim_repeated_free(flim_repeated *result)
{
    flim_free(result->seed);
    result->seed = NULL;
    result->n = 0;
}

bool flim_repeated_has_ended(const flim_repeated *r)
{
    char path[FLIM_FILE_PATH];
    for (int s = 0; s < r->n; s++) {
        if (r->seed[s].done + r->seed[s].failed < r->seed[s].n_folds ||
            path_of(r->folder, r->seed[s].seed, "summary.json", path, NULL) != FLIM_OK || !flim_file_exists(path)) {
            return false;
        }
    }
    return r->n == r->wanted;
}

bool flim_repeated_is_summed_up(const flim_repeated *r)
{
    char path[FLIM_FILE_PATH];
    struct stat own, below;
    if (snprintf(path, sizeof path, "%.4000s/summary.json", r->folder) < 0 || stat(path, &own) != 0) {
        return false;
    }
    for (int s = 0; s < r->n; s++) {
        if (path_of(r->folder, r->seed[s].seed, "summary.json", path, NULL) == FLIM_OK && stat(path, &below) == 0 &&
            (below.st_mtim.tv_sec > own.st_mtim.tv_sec ||
             (below.st_mtim.tv_sec == own.st_mtim.tv_sec && below.st_mtim.tv_nsec > own.st_mtim.tv_nsec))) {
            return false;
        }
    }
    return true;
}

/* ---- writing ---- */

static flim_json *as_json(const flim_repeated *r)
{
    flim_json *json = flim_json_object(), *seeds = flim_json_array();
    for (int s = 0; s < r->n; s++) {
        const flim_repeated_seed *of = &r->seed[s];
        flim_json *one = flim_json_object();
        char folder[48];
        flim_seed_folder(of->seed, folder);
        flim_json_set_string(one, "folder", folder);
        flim_json_set_integer(one, "folds", of->n_folds);
        flim_json_set_integer(one, "done", of->done);
        flim_json_set_integer(one, "failed", of->failed);
        flim_json_set(one, "mean", flim_metrics_json(of->mean));
        flim_json_set(one, "sd", flim_metrics_json(of->sd));
        flim_json_set(one, "pooled", flim_metrics_json(of->pooled.value));
        flim_json_add(seeds, one);
    }
    flim_json_set(json, "seeds", seeds);
    flim_json_set_integer(json, "wanted", r->wanted);
    flim_json_set(json, "mean", flim_metrics_json(r->mean));
    flim_json_set(json, "sd_over_folds", flim_metrics_json(r->sd_folds));
    flim_json_set(json, "sd_over_seeds", flim_metrics_json(r->sd_seeds));
    flim_json_set(json, "sd_of_seed_means", flim_metrics_json(r->sd_seed_means));
    flim_json_set(json, "standard_error", flim_metrics_json(r->standard_error));
    flim_json_set_number(json, "test_cells_per_training_cell", r->test_share);
    flim_json_set(json, "pooled_mean", flim_metrics_json(r->pooled_mean));
    flim_json_set(json, "pooled_sd", flim_metrics_json(r->pooled_sd));
    return json;
}

static void csv_row(FILE *stream, const char *name, const double value[FLIM_N_METRICS])
{
    fputs(name, stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        if (isnan(value[m])) {
            fputc(',', stream);
        } else {
            fprintf(stream, ",%.17g", value[m]);
        }
    }
    fputc('\n', stream);
}

static void put_csv(FILE *stream, const flim_repeated *r)
{
    fputs("row", stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fprintf(stream, ",%s", flim_metric_name((flim_metric)m));
    }
    fputc('\n', stream);
    for (int s = 0; s < r->n; s++) {
        char name[64];
        flim_seed_folder(r->seed[s].seed, name);
        csv_row(stream, name, r->seed[s].mean);
    }
    for (int s = 0; s < r->n; s++) {
        char folder[48], name[64];
        flim_seed_folder(r->seed[s].seed, folder);
        snprintf(name, sizeof name, "%s_pooled", folder);
        csv_row(stream, name, r->seed[s].pooled.value);
    }
    csv_row(stream, "mean", r->mean);
    csv_row(stream, "sd_over_folds", r->sd_folds);
    csv_row(stream, "sd_over_seeds", r->sd_seeds);
    csv_row(stream, "sd_of_seed_means", r->sd_seed_means);
    csv_row(stream, "standard_error", r->standard_error);
    csv_row(stream, "pooled_mean", r->pooled_mean);
    csv_row(stream, "pooled_sd", r->pooled_sd);
}

flim_status flim_repeated_write(const flim_repeated *r, flim_error *err)
{
    char path[FLIM_FILE_PATH + 16];
    flim_file_writer writer;
    snprintf(path, sizeof path, "%s/summary.csv", r->folder);
    FLIM_TRY(flim_file_begin(&writer, path, err));
    put_csv(writer.stream, r);
    FLIM_TRY(flim_file_commit(&writer, err));
    snprintf(path, sizeof path, "%s/summary.json", r->folder);
    flim_json *json = as_json(r);
    const flim_status status = flim_json_write(json, path, err);
    flim_json_free(json);
    return status;
}

flim_status flim_repeated_write_json(const flim_repeated *r, const flim_output *output, flim_error *err)
{
    flim_json *json = as_json(r);
    const flim_status status = flim_json_write_output(json, output, err);
    flim_json_free(json);
    return status;
}

flim_status flim_repeated_write_csv(const flim_repeated *r, const flim_output *output, flim_error *err)
{
    flim_file_writer writer;
    FLIM_TRY(flim_output_begin(output, &writer, err));
    put_csv(writer.stream, r);
    return flim_file_commit(&writer, err);
}

static void print_row(const flim_log *log, const char *first, const double value[FLIM_N_METRICS])
{
    static const flim_metric shown[] = {FLIM_ACCURACY, FLIM_BALANCED_ACCURACY, FLIM_F1,
                                        FLIM_MCC,      FLIM_ROC_AUC,           FLIM_LOG_LOSS};
    char text[160];
    int used = snprintf(text, sizeof text, "  %-30s", first);
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        const double v = value[shown[i]];
        used += isnan(v) ? snprintf(text + used, sizeof text - (size_t)used, " %7s", "n/a")
                         : snprintf(text + used, sizeof text - (size_t)used, " %7.3f", v);
    }
    flim_log_line(log, FLIM_LOG_RESULT, "%s", text);
}

void flim_repeated_print(const flim_repeated *r, const flim_log *log)
{
    int done = 0, folds = 0;
    for (int s = 0; s < r->n; s++) {
        done += r->seed[s].done;
        folds += r->seed[s].n_folds;
    }
    flim_log_line(log, FLIM_LOG_RESULT, "Test-set metrics, %d of %d seeds, %d of %d folds of these:", r->n, r->wanted, done,
                  folds);
    flim_log_line(log, FLIM_LOG_RESULT, "  %-30s %7s %7s %7s %7s %7s %7s", "mean over folds", "acc", "bal.acc", "F1", "MCC",
                  "AUC", "logloss");
    for (int s = 0; s < r->n; s++) {
        char name[64];
        snprintf(name, sizeof name, "seed %" PRIu64, r->seed[s].seed);
        print_row(log, name, r->seed[s].mean);
    }
    print_row(log, "mean over seeds", r->mean);
    print_row(log, "sd over folds of a seed", r->sd_folds);
    print_row(log, "sd that seeds add", r->sd_seeds);
    print_row(log, "standard error (corrected)", r->standard_error);
    print_row(log, "pooled, mean over seeds", r->pooled_mean);
    print_row(log, "pooled, sd over seeds", r->pooled_sd);
}

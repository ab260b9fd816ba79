/* Finding the weight files of predict, and what they must have in common with each other and the data. */
#include "train/models.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/text.h"
#include "core/try.h"
#include "formats/json.h"
#include "flim/settings.h"
#include "flim/split.h"
#include "results/fold_result.h"
#include "results/fold_weights.h"
#include "results/repeated.h"
#include "train/identity.h"

enum { SHOWN = 10 };

/* ---- finding ---- */

/* Folders that train_cv or pretrain has made, but that are no models. */
static flim_status refuse_other_folder(const char *folder, bool encoders, flim_error *err)
{
    flim_seeds seeds;
    FLIM_TRY(flim_seeds_find(folder, &seeds, err));
    if (seeds.n > 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s has runs of %d seed%s: name them one by one, as in %s/seed_%" PRIu64,
                         folder, seeds.n, flim_s(seeds.n), folder, seeds.seed[0]);
    }
    if (!encoders && flim_run_is_pretraining(folder)) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s is a pretraining, whose encoder tells no classes apart: fine-tune it with train_cv --pretrained "
                         "%s/encoder.safetensors",
                         folder, folder);
    }
    return FLIM_OK;
}

/* The model's cells into those that any model has seen: a run of many folds would hold them as often. */
static flim_status take_cells(flim_models *m, flim_provenance *about, flim_error *err)
{
    flim_cell_set *const sets[] = {&about->train, &about->val, &about->inherited};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        FLIM_TRY(flim_cell_set_join(&m->seen, sets[i], err));
        flim_cell_set_free(sets[i]);
    }
    m->any_cells_known = m->any_cells_known || about->cells_are_known;
    m->all_cells_known = (m->n == 1 || m->all_cells_known) && about->cells_are_known && about->inherited_is_known;
    return FLIM_OK;
}

/* A model whose provenance is read already; takes that over. */
static flim_status add(flim_models *m, const char *path, double threshold, flim_provenance *about, flim_error *err)
{
    flim_model *grown = flim_realloc(m->model, (size_t)m->n + 1, sizeof *grown, err);
    if (!grown) {
        flim_provenance_free(about);
        return FLIM_ERROR_MEMORY;
    }
    m->model = grown;
    flim_model *model = &grown[m->n++];
    *model = (flim_model){.about = *about, .threshold = threshold};
    *about = (flim_provenance){0};
    FLIM_TRY(take_cells(m, &model->about, err));
    if (snprintf(model->path, sizeof model->path, "%s", path) >= (int)sizeof model->path) {
        return flim_fail(err, FLIM_ERROR_DATA, "the path %.100s... is too long", path);
    }
    return FLIM_OK;
}

/* What splits.json says of the run: the number of its folds, and the data that it was trained on. */
static flim_status read_splits(flim_models *m, const char *folder, int done, const flim_log *log, flim_error *err)
{
    char path[4200];
    flim_splits splits = {0};
    snprintf(path, sizeof path, "%s/splits.json", folder);
    FLIM_TRY(flim_splits_read(path, NULL, &splits, err));
    memcpy(m->trained_on, splits.sha256, sizeof m->trained_on);
    if (done < splits.n_folds) {
        flim_log_line(log, FLIM_LOG_WARNING, "%s: %d of its %d folds are done; only those are averaged", folder, done,
                      splits.n_folds);
    }
    flim_splits_free(&splits);
    return FLIM_OK;
}

/* How the run prepared and evaluated its cells. */
static flim_status read_config(flim_models *m, const char *path, flim_error *err)
{
    flim_settings settings;
    FLIM_TRY(flim_settings_init(&settings, err));
    const flim_status status = flim_settings_read(&settings, path, err);
    m->mask_counts = m->mask_counts || settings.mask_counts;
    m->tta = m->tta || settings.tta;
    flim_settings_free(&settings);
    return status;
}

/* All finished folds of a run folder. */
static flim_status add_run(flim_models *m, const char *folder, const flim_log *log, flim_error *err)
{
    char path[4200], splits[65] = "";
    int done = 0;
    FLIM_TRY(flim_fold_splits_sha256(folder, splits, err));
    for (int k = 0; k < FLIM_FINAL_FOLD; k++) { /* the final model is none of the folds */
        flim_provenance about;
        double threshold = 0.5;
        if (!flim_fold_is_done(folder, k)) {
            continue;
        }
        FLIM_TRY(flim_fold_threshold(folder, k, &threshold, err));
        FLIM_TRY(flim_fold_weights_about(folder, k, splits, &about, err));
        snprintf(path, sizeof path, "%s/fold_%d/best.safetensors", folder, k);
        FLIM_TRY(add(m, path, threshold, &about, err));
        done++;
    }
    if (done == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: no finished fold (fold_K/DONE) to predict with", folder);
    }
    m->runs++;
    snprintf(m->run, sizeof m->run, "%s", folder);
    return read_splits(m, folder, done, log, err);
}

/* Weights in the folder of a fold or a final model: the threshold of its summary.json, 0.5 without, and how the run above
 * it prepared and evaluated its cells, since the threshold is of such scores. */
static flim_status read_beside(flim_models *m, const char *weights, double *threshold, flim_error *err)
{
    char summary[4200], config[4200];
    flim_json *json = NULL;
    const char *slash = strrchr(weights, '/');
    const int folder = slash ? (int)(slash - weights + 1) : 0; /* bytes */
    *threshold = 0.5;
    snprintf(summary, sizeof summary, "%.*ssummary.json", folder < 4096 ? folder : 4096, weights);
    snprintf(config, sizeof config, "%.*s../config.yaml", folder < 4096 ? folder : 4096, weights);
    if (!flim_file_exists(summary)) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_json_read(summary, &json, err));
    const bool has_one = flim_json_get(json, "threshold") != NULL;
    const flim_status status = has_one ? flim_summary_threshold(json, summary, threshold, err) : FLIM_OK;
    flim_json_free(json);
    FLIM_TRY(status);
    return flim_file_exists(config) ? read_config(m, config, err) : FLIM_OK;
}

/* One file; within a run folder it must be in its fold's place. */
static flim_status add_file(flim_models *m, const char *path, flim_error *err)
{
    char folder[4096], splits[65] = "";
    int k = 0;
    double threshold;
    flim_provenance about;
    FLIM_TRY(flim_provenance_read(path, &about, err));
    if (flim_fold_of_weights(path, folder, sizeof folder, &k)) {
        flim_status status = flim_fold_splits_sha256(folder, splits, err);
        status = status == FLIM_OK ? flim_fold_weights_check(&about, path, folder, k, splits, err) : status;
        if (status != FLIM_OK) {
            flim_provenance_free(&about);
            return status;
        }
    }
    const flim_status status = read_beside(m, path, &threshold, err);
    if (status != FLIM_OK) {
        flim_provenance_free(&about);
        return status;
    }
    return add(m, path, threshold, &about, err);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return strcmp(a, b) == 0 || (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* Each with the first: one network must hold them all, and their outputs must mean the same. */
static flim_status check_alike(const flim_models *m, bool encoders, flim_error *err)
{
    const flim_model *first = &m->model[0];
    for (int i = 1; i < m->n; i++) {
        flim_weights_info other;
        const flim_model *model = &m->model[i];
        FLIM_TRY(flim_weights_probe(model->path, encoders, &other, err));
        FLIM_TRY(flim_provenance_check_alike(&first->about, first->path, &model->about, model->path, err));
        if (other.width != m->weights.width || other.depth != m->weights.depth || other.classes != m->weights.classes) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s has width %d, depth %d and %d classes, %s has width %d, depth %d and %d: an ensemble needs "
                             "one architecture",
                             first->path, m->weights.width, m->weights.depth, m->weights.classes, model->path, other.width,
                             other.depth, other.classes);
        }
        for (int j = 0; j < i; j++) {
            if (is_same_file(m->model[j].path, model->path)) {
                return flim_fail(err, FLIM_ERROR_USAGE, "%s is given twice: it would count twice in the ensemble mean",
                                 model->path);
            }
        }
    }
    return FLIM_OK;
}

/* What older files do not say cannot be checked. */
static void note_unknown(const flim_models *m, const flim_log *log)
{
    int unknown = 0;
    for (int i = 0; i < m->n; i++) {
        unknown += !m->model[i].about.is_known;
    }
    if (unknown) {
        flim_log_line(
            log, FLIM_LOG_NOTE,
            "%d of %d weight files carry no provenance (written by an older version or another program): their fold, "
            "time range and masks, and the cells they were trained on, cannot be checked",
            unknown, m->n);
    }
}

flim_status flim_models_find(const char *const *name, int n, bool encoders, const flim_log *log, flim_models *out,
                             flim_error *err)
{
    double sum = 0;
    *out = (flim_models){0};
    if (n < 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "no model was named");
    }
    for (int i = 0; i < n; i++) {
        char config[4200], inside[4200];
        FLIM_TRY(refuse_other_folder(name[i], encoders, err));
        const bool pretraining = flim_run_is_pretraining(name[i]);
        snprintf(config, sizeof config, "%s/config.yaml", name[i]);
        /* of a fold or the final model, whose folder has no settings */
        snprintf(inside, sizeof inside, "%s/%s.safetensors", name[i], pretraining ? "encoder" : "best");
        const bool is_run = !pretraining && flim_file_exists(config);
        FLIM_TRY(is_run ? add_run(out, name[i], log, err) : add_file(out, flim_file_exists(inside) ? inside : name[i], err));
        FLIM_TRY(is_run ? read_config(out, config, err) : FLIM_OK);
    }
    for (int i = 0; i < out->n; i++) {
        sum += out->model[i].threshold;
        out->mask_counts = out->mask_counts || out->model[i].about.mask_counts;
        /* A copy of a weight file has no settings beside it. */
        out->tta = out->tta || flim_identity_text_has(out->model[i].about.recipe, "tta", "1");
    }
    out->threshold = sum / out->n;
    FLIM_TRY(flim_weights_probe(out->model[0].path, encoders, &out->weights, err));
    FLIM_TRY(check_alike(out, encoders, err));
    note_unknown(out, log);
    return FLIM_OK;
}

void flim_models_free(flim_models *m)
{
    for (int i = 0; i < m->n; i++) {
        flim_provenance_free(&m->model[i].about);
    }
    flim_free(m->model);
    flim_cell_set_free(&m->seen);
    *m = (flim_models){0};
}

/* ---- against the data ---- */

/* A class that goes by its number has no name. */
static bool is_named(const char *name, int k)
{
    char number[16];
    snprintf(number, sizeof number, "%d", k);
    return strcmp(name, number) != 0;
}

/* Labels of the data must mean what the model's do.  The data may lack some of the model's classes, and may name none. */
static flim_status check_classes(const flim_models *m, const flim_dataset_info *info, const flim_log *log, flim_error *err)
{
    const flim_provenance *about = &m->model[0].about;
    const char *model = m->model[0].path;
    int of_model = 0, of_data = 0; /* classes with a name */
    if (info->classes > m->weights.classes) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s has labels of %d classes, %s knows %d", info->path[0], info->classes,
                         model, m->weights.classes);
    }
    if (!info->label || about->classes == 0) {
        return FLIM_OK;
    }
    for (int k = 0; k < about->classes; k++) {
        of_model += is_named(about->class_name[k], k);
        of_data += k < info->classes && is_named(info->class_name[k], k);
    }
    for (int k = 0; k < info->classes && of_model && of_data; k++) {
        if (strcmp(about->class_name[k], info->class_name[k]) != 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "class %d is '%s' in %s and '%s' in %s", k, info->class_name[k],
                             info->path[0], about->class_name[k], model);
        }
    }
    if ((of_model > 0) != (of_data > 0)) {
        flim_log_line(log, FLIM_LOG_WARNING,
                      "%s names no classes, %s does: label 0 is taken for '%s', and so on in that order",
                      of_model ? info->path[0] : model, of_model ? model : info->path[0],
                      of_model ? about->class_name[0] : info->class_name[0]);
    }
    return FLIM_OK;
}

flim_status flim_models_check_data(const flim_models *m, const flim_dataset_info *info, bool any_mask, const flim_log *log,
                                   flim_error *err)
{
    const flim_weights_info *w = &m->weights;
    const flim_model *first = &m->model[0];
    flim_error why = {0};
    const bool encoder = w->classes == 0; /* fits cells of any size */
    if (!encoder && w->t && (w->t != info->t || w->h != info->h || w->w != info->w)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s has cells of %d x %d x %d, %s was trained on %d x %d x %d", info->path[0],
                         info->t, info->h, info->w, first->path, w->t, w->h, w->w);
    }
    FLIM_TRY(encoder ? FLIM_OK : check_classes(m, info, log, err));
    for (int i = 0; i < m->n; i++) {
        FLIM_TRY(flim_provenance_check_bin_width(&m->model[i].about, m->model[i].path, info, err));
    }
    flim_provenance_warn_of_bin_width(&first->about, first->path, info, log);
    for (int i = 0; i < m->n; i++) {
        if (flim_provenance_check_mask(&m->model[i].about, m->model[i].path, info, &why) != FLIM_OK) {
            if (!any_mask) {
                return flim_fail(err, why.status, "%s; or predict anyway with --any-mask", why.text);
            }
            flim_log_line(log, FLIM_LOG_WARNING, "--any-mask: %s", why.text);
            break;
        }
    }
    return FLIM_OK;
}

void flim_models_warn_of_seen(const flim_models *m, const flim_dataset_info *info, const uint64_t *hash, const flim_log *log)
{
    char first[256] = "";
    size_t used = 0;
    int64_t seen = 0;
    for (int i = 0; i < m->n; i++) {
        if (hash && flim_provenance_check_mask(&m->model[i].about, m->model[i].path, info, NULL) != FLIM_OK) {
            flim_log_line(log, FLIM_LOG_WARNING,
                          "whether the weights have seen these cells in training cannot be told: a cell is known by its "
                          "counts within its mask, and these masks are from elsewhere");
            return;
        }
    }
    for (int64_t i = 0; hash && i < info->n; i++) {
        if (flim_cell_set_holds(&m->seen, hash[i])) {
            if (seen++ < SHOWN) {
                used += (size_t)snprintf(first + used, sizeof first - used, "%s%" PRId64, seen > 1 ? ", " : "", i);
            }
        }
    }
    if (seen > 0) {
        flim_log_line(log, FLIM_LOG_WARNING,
                      "%" PRId64 " of %" PRId64 " cells %s seen by %s in training or validation (cells %s%s): for these, "
                      "the metrics below are not a test result%s%s%s",
                      seen, info->n, flim_verb(seen, "was", "were"), m->n > 1 ? "at least one of the models" : "the model",
                      first, seen > SHOWN ? ", ..." : "", m->run[0] ? "; fold_metrics " : "", m->run,
                      m->run[0] ? " shows the test scores" : "");
    } else if (hash && m->all_cells_known) {
        flim_log_line(log, FLIM_LOG_NOTE,
                      "none of the %" PRId64
                      " cells was seen by the weights in training or validation; " FLIM_CELLS_AS_STORED,
                      info->n);
    }
}

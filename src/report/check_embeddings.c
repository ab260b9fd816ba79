/* A file of predict --embeddings against the run that it is shown with: cell by cell, and by the weights that it is of. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/try.h"
#include "flim/network.h"
#include "flim/settings.h"
#include "flim/weights.h"
#include "report/report_internal.h"

/* One cell as the run's predictions have it. */
typedef struct predicted_cell {
    int64_t index;
    const char *name, *group; /* "" = none */
    int32_t label; /* -1 = unknown */
} predicted_cell;

/* What a class is called; a run whose weights are gone knows numbers only, which is no difference. */
static const char *class_of(char **name, int classes, int32_t label, char text[24])
{
    snprintf(text, 24, "%d", label);
    return name && label >= 0 && label < classes ? name[label] : text;
}

static bool is_other_class(const report_run *run, const flim_embeddings *e, const predicted_cell *cell)
{
    char a[24], b[24], number[24];
    const int32_t label = e->label[cell->index];
    const char *in_file = class_of(e->class_name, e->classes, label, a);
    const char *in_run = class_of(run->class_name, run->classes, cell->label, b);
    snprintf(number, sizeof number, "%d", cell->label);
    return label != cell->label || (strcmp(in_run, number) != 0 && strcmp(in_file, in_run) != 0);
}

/* What of the cell differs, and both sides of it; NULL if nothing does, or the file does not have it. */
static const char *difference(const report_run *run, const flim_embeddings *e, const predicted_cell *cell, char text[2][24],
                              const char *side[2])
{
    if (e->name && strcmp(e->name[cell->index], cell->name) != 0) {
        side[0] = e->name[cell->index];
        side[1] = cell->name;
        return "name";
    }
    if (e->group && strcmp(e->group[cell->index], cell->group) != 0) {
        side[0] = e->group[cell->index];
        side[1] = cell->group;
        return "group";
    }
    if (e->label && cell->label >= 0 && is_other_class(run, e, cell)) {
        side[0] = class_of(e->class_name, e->classes, e->label[cell->index], text[0]);
        side[1] = class_of(run->class_name, run->classes, cell->label, text[1]);
        return "class";
    }
    return NULL;
}

/* The i-th cell that the run has predicted: those of its folds' test sets, then those held out. */
static predicted_cell cell_at(const report_run *run, int64_t i)
{
    const flim_predictions *out = &run->holdout;
    const int64_t k = i - run->pool.n;
    return k < 0 ? (predicted_cell){run->pool.cell[i], run->pool.name[i], run->pool.group_of[i], run->pool.label[i]}
                 : (predicted_cell){out->index[k], out->name && out->name[k] ? out->name[k] : "",
                                    out->group && out->group[k] ? out->group[k] : "", out->label[k]};
}

static flim_status check_cells(const report_run *run, const char *path, const flim_embeddings *e, flim_error *err)
{
    predicted_cell first = {.index = -1};
    const char *side[2], *what;
    char text[2][24];
    for (int64_t i = 0; i < run->pool.n + run->holdout.n; i++) {
        const predicted_cell cell = cell_at(run, i);
        if (cell.index >= 0 && cell.index < e->n && (first.index < 0 || cell.index < first.index) &&
            difference(run, e, &cell, text, side)) {
            first = cell;
        }
    }
    if (first.index < 0) {
        return FLIM_OK;
    }
    what = difference(run, e, &first, text, side);
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s has embeddings of other data than that of %s: the %s of cell %" PRId64
                     " is '%.80s', in the run's predictions '%.80s'; make the file with predict --model %s --data FILE "
                     "--embeddings, FILE being the run's data",
                     path, run->folder, what, first.index, side[0], side[1], run->folder);
}

/* The width of the run's features by its config.yaml; 0 if that cannot be read. */
static int64_t features_of(const report_run *run)
{
    enum { PER_WIDTH = 4 }; /* channels of the last block */
    char path[REPORT_PATH];
    flim_settings settings = {0};
    int64_t width = 0;
    if (flim_settings_init(&settings, NULL) == FLIM_OK) {
        snprintf(path, sizeof path, "%.4000s/config.yaml", run->folder);
        width = flim_settings_read(&settings, path, NULL) == FLIM_OK
                    ? PER_WIDTH * flim_model_size_of(settings.preset, settings.width, settings.depth).width
                    : 0;
    }
    flim_settings_free(&settings);
    return width;
}

/* What the file says of its m-th model must not contradict the run: that is of other splits, or fold k's weights are others. */
static flim_status check_model(const report_run *run, const char *path, const flim_embeddings *e, int m, flim_error *err)
{
    const flim_embedded_model *model = &e->model[m];
    char weights[REPORT_PATH];
    flim_weights_info info;
    if (model->splits_sha256[0] && run->splits_sha256[0] && strcmp(model->splits_sha256, run->splits_sha256) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s has embeddings of another run's model (number %d): that run's splits.json has SHA-256 %.16s..., "
                         "that of %s %.16s...; name that run, or make the file with predict --model %s",
                         path, m, model->splits_sha256, run->folder, run->splits_sha256, run->folder);
    }
    if (!model->splits_sha256[0] || model->fold < 0 || model->fold >= run->splits.n_folds) {
        return FLIM_OK; /* an encoder, a final model, or weights that do not say */
    }
    snprintf(weights, sizeof weights, "%.3900s/fold_%d/best.safetensors", run->folder, model->fold);
    return !model->weights_sha256[0] || flim_weights_probe(weights, false, &info, NULL) != FLIM_OK || !info.sha256[0] ||
                   strcmp(info.sha256, model->weights_sha256) == 0
               ? FLIM_OK
               : flim_fail(
                     err, FLIM_ERROR_DATA,
                     "%s has embeddings of other weights of fold %d (SHA-256 %.16s...) than %s has (%.16s...); name the "
                     "run that they are of, or make the file anew with predict --model %s",
                     path, model->fold, model->weights_sha256, weights, info.sha256, run->folder);
}

flim_status report_check_embeddings(const report_run *run, const char *path, const flim_embeddings *e, flim_error *err)
{
    if (e->n != run->splits.n) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s has embeddings of %" PRId64 " cells, the data of %s has %" PRId64, path,
                         e->n, run->folder, run->splits.n);
    }
    FLIM_TRY(check_cells(run, path, e, err));
    if (e->data_sha256[0] && run->splits.sha256[0] && strcmp(e->data_sha256, run->splits.sha256) != 0) {
        return flim_fail(
            err, FLIM_ERROR_DATA,
            "%s has embeddings of other data than that of %s: its SHA-256 is %.16s..., the run's data's %.16s... "
            "(shape, labels, groups or names differ)",
            path, run->folder, e->data_sha256, run->splits.sha256);
    }
    const int64_t features = features_of(run);
    if (features > 0 && features != e->width) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s has %d features per cell, those of a network as in %s/config.yaml are %" PRId64
                         ": it is of another model; make it with predict --model %s",
                         path, e->width, run->folder, features, run->folder);
    }
    for (int m = 0; e->model && m < e->models; m++) {
        FLIM_TRY(check_model(run, path, e, m, err));
    }
    return FLIM_OK;
}

/* predict: the classes of new cells from trained weights.  Everything happens in flim_predict (flim/predict.h). */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/spinning.h"
#include "common/tool.h"
#include "core/alloc.h"
#include "core/output.h"
#include "core/parse.h"
#include "core/try.h"
#include "flim/predict.h"

typedef struct options {
    char *out, *explain, *embeddings, *axes, *device, *threshold;
    flim_precision precision;
    flim_string_list model, data, explain_cells;
    int64_t explain_bins, explain_pixels, batch, workers, prefetch;
    bool tta, any_mask, scan, quiet, force, allow_external;
} options;

#define AT(member) offsetof(options, member)
static const flim_flag_row rows[] = {
    {"Input and output", "model", FLIM_VALUE_LIST, AT(model), "", "RUN|FILE",
     .help = "run folder (ensemble of its folds) or .safetensors file; repeatable: ensemble of all"},
    {NULL, "data", FLIM_VALUE_LIST, AT(data), "data/flim.h5", "FILE", .help = "HDF5 file with the cells; repeatable"},
    {NULL, "out", FLIM_VALUE_TEXT, AT(out), "predictions.csv", "FILE", .help = "CSV file to write", .writes = true},
    {NULL, "force", FLIM_VALUE_SWITCH, AT(force), "false", NULL, .help = "overwrite a file that predict has not made"},
    {NULL, "axes", FLIM_VALUE_TEXT, AT(axes), "NTYX", "AXES", .help = "order of the axes of /counts"},
    {NULL, "allow-external", FLIM_VALUE_SWITCH, AT(allow_external), "false", NULL,
     .help = "read files outside of the data file's folder, too, where it leads to them (links, views, external storage)"},
    {"Prediction", "threshold", FLIM_VALUE_TEXT, AT(threshold), "", "P",
     .help = "decision threshold on the probability of class 1; default: the mean of the folds' thresholds; for a file, that "
             "of the summary.json beside it, else 0.5"},
    {NULL, "tta", FLIM_VALUE_SWITCH, AT(tta), "false", NULL,
     .help = "average the logits over the 8 symmetries of a cell's plane (4 if H and W differ); the weights of a run made "
             "with --tta: always"},
    {NULL, "flips", FLIM_VALUE_SWITCH, AT(tta), "false", NULL, .help = "another name of --tta"},
    {NULL, "any-mask", FLIM_VALUE_SWITCH, AT(any_mask), "false", NULL,
     .help = "predict although the masks come from elsewhere than in training (from /mask, or from the counts)"},
    {NULL, "scan", FLIM_VALUE_SWITCH, AT(scan), "true", NULL,
     .help = "read every cell first, to report which of them the weights were trained on"},
    {"Explanation", "explain", FLIM_VALUE_TEXT, AT(explain), "", "FILE",
     .help = "HDF5 file to write: what each logit loses when the photons of a block are taken away (occlusion)",
     .writes = true},
    {NULL, "explain-cells", FLIM_VALUE_LIST, AT(explain_cells), "", "N,N",
     .help = "numbers of the cells to explain; repeatable; default: all"},
    {NULL, "explain-bins", FLIM_VALUE_INTEGER, AT(explain_bins), "8", "N", .help = "time bins of a block",
     .allowed = ">= 1, <= 65536"},
    {NULL, "explain-pixels", FLIM_VALUE_INTEGER, AT(explain_pixels), "3", "N", .help = "pixels of a block along y and x",
     .allowed = ">= 1, <= 65536"},
    {"Embeddings", "embeddings", FLIM_VALUE_TEXT, AT(embeddings), "", "FILE",
     .help =
         "file to write, .npy or .h5: what each model's head sees of each cell, the mean over time and pixels of the last "
         "block; with it a model may be an encoder of pretrain, and no classes are predicted then",
     .writes = true},
    {"Device", "device", FLIM_VALUE_TEXT, AT(device), "auto", "D", .help = FLIM_DEVICE_TEXTS},
    {NULL, "precision", FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(options, precision), "auto", "P",
     "numerical precision of the network", .choices = flim_precision_names, .also = "amp", .also_value = "amp"},
    {NULL, "batch", FLIM_VALUE_INTEGER, AT(batch), "64", "N", .help = "cells at a time", .allowed = ">= 1, <= 1000000"},
    {NULL, "workers", FLIM_VALUE_INTEGER, AT(workers), "8", "N", .help = "loader threads", .allowed = ">= 1, <= 256"},
    {NULL, "prefetch", FLIM_VALUE_INTEGER, AT(prefetch), "4", "N", .help = "batches ready ahead", .allowed = ">= 1, <= 64"},
    {NULL, "quiet", FLIM_VALUE_SWITCH, AT(quiet), "false", NULL, .help = "print warnings only"},
};
static const flim_example examples[] = {
    {"predict --model runs/NAME --data new.h5 --out predictions.csv", "the mean of the folds of a run"},
    {NULL, NULL},
};
static const flim_flag_table table = {"predict",
                                      "predict --model RUN --data FILE --out predictions.csv [flag]...",
                                      "Predicts the class of every cell; prints metrics if the data has labels.",
                                      rows,
                                      sizeof rows / sizeof rows[0],
                                      .operand = NULL,
                                      .purpose = "classes of new FLIM cells from trained weights",
                                      .examples = examples,
                                      .see_also = "train_cv(1), fold_metrics(1)"};

static flim_status threshold_of(const char *text, double *out, flim_error *err)
{
    char *end;
    *out = NAN;
    if (text[0]) {
        *out = strtod(text, &end);
        if (*end || !(*out >= 0 && *out <= 1)) {
            return flim_fail(err, FLIM_ERROR_USAGE, "--threshold '%s': must be a probability from 0 to 1", text);
        }
    }
    return FLIM_OK;
}

/* Files that must not be written to. */
static flim_status list_inputs(const options *o, flim_string_list *out, flim_error *err)
{
    for (int i = 0; i < o->model.n; i++) {
        FLIM_TRY(flim_string_list_add(out, o->model.item[i], err));
    }
    for (int i = 0; i < o->data.n; i++) {
        FLIM_TRY(flim_string_list_add(out, o->data.item[i], err));
    }
    return FLIM_OK;
}

/* --explain-cells as numbers, *cell the caller's (flim_free). */
static flim_status parse_cells(const flim_string_list *list, int64_t **cell, int64_t *n, flim_error *err)
{
    *cell = NULL;
    *n = 0;
    for (int i = 0; i < list->n; i++) {
        for (const char *at = list->item[i]; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
            char text[32];
            int64_t *longer = flim_realloc(*cell, (size_t)*n + 1, sizeof **cell, err);
            if (!longer) {
                return FLIM_ERROR_MEMORY;
            }
            *cell = longer;
            snprintf(text, sizeof text, "%.*s", (int)strcspn(at, ","), at);
            FLIM_TRY(flim_parse_i64("--explain-cells", text, 0, INT64_MAX, &longer[(*n)++], err));
        }
    }
    return FLIM_OK;
}

/* Bytes, the caller's still, to a path that the user names. */
static flim_status write_bytes(const void *bytes, size_t count, const flim_output *output, flim_error *err)
{
    flim_file_writer writer = {0};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_output_begin(output, &writer, err));
    fwrite(bytes, 1, count, writer.stream);
    status = flim_file_commit(&writer, err); /* a short write is found there */
done:
    flim_file_abandon(&writer);
    return status;
}

static flim_status write_explanation(const flim_explanation *explanation, const flim_output *output, flim_error *err)
{
    void *bytes = NULL;
    size_t count = 0;
    flim_status status = flim_explanation_encode(explanation, &bytes, &count, err);
    status = status == FLIM_OK ? write_bytes(bytes, count, output, err) : status;
    flim_free(bytes);
    return status;
}

static flim_status write_embeddings(const flim_embeddings *embeddings, bool npy, const flim_output *output, flim_error *err)
{
    void *bytes = NULL;
    size_t count = 0;
    flim_status status =
        npy ? flim_embeddings_npy(embeddings, &bytes, &count, err) : flim_embeddings_hdf5(embeddings, &bytes, &count, err);
    status = status == FLIM_OK ? write_bytes(bytes, count, output, err) : status;
    flim_free(bytes);
    return status;
}

/* By the name's end. */
static flim_status is_npy(const char *path, bool *npy, flim_error *err)
{
    const size_t length = strlen(path);
    if (strcmp(path, "-") == 0) { /* standard output, as .npy */
        *npy = true;
        return FLIM_OK;
    }
    static const char *const ends[] = {".npy", ".h5", ".hdf5"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t tail = strlen(ends[i]);
        if (length > tail && strcmp(path + length - tail, ends[i]) == 0) {
            *npy = i == 0;
            return FLIM_OK;
        }
    }
    return flim_fail(err, FLIM_ERROR_USAGE, "--embeddings %s: the name must end in .npy, .h5 or .hdf5", path);
}

/* begins: NULL = what is there stays. */
static flim_output output_at(const options *o, const char *path, const char *kind, const char *begins,
                             const flim_string_list *inputs, const volatile int *stop)
{
    return (flim_output){.path = path,
                         .kind = kind,
                         .begins = begins,
                         .input = (const char *const *)inputs->item,
                         .n_inputs = inputs->n,
                         .force = o->force,
                         .stop = stop};
}

static void print_metrics(const flim_metrics *metrics, const flim_log *log)
{
    for (int m = 0; m < FLIM_N_METRICS && metrics->n > 0; m++) {
        const char *name = flim_metric_title((flim_metric)m);
        if (isfinite(metrics->value[m])) {
            flim_log_line(log, FLIM_LOG_INFO, "  %-20s %.4f", name, metrics->value[m]);
        } else {
            flim_log_line(log, FLIM_LOG_INFO, "  %-20s n/a (%s)", name, flim_metric_undefined_reason((flim_metric)m));
        }
    }
}

static flim_status predict(void *read, const flim_string_list *operands, console *screen, flim_error *err)
{
    (void)operands;
    const options *o = read;
    flim_predictions predictions = {0};
    flim_metrics metrics;
    flim_explanation explanation = {0};
    flim_embeddings embeddings = {0};
    bool npy = false;
    const char *written = NULL; /* the predictions */
    int64_t *cells = NULL;
    console_be_quiet(screen, o->quiet);
    const flim_train_hooks hooks = {
        .log = console_log(screen), .progress = console_progress, .context = screen, .stop = console_catch_signals()};
    flim_predict_request request = {.model = (const char *const *)o->model.item,
                                    .n_models = o->model.n,
                                    .data = (const char *const *)o->data.item,
                                    .n_data = o->data.n,
                                    .axes = o->axes,
                                    .allow_external = o->allow_external,
                                    .device = o->device,
                                    .precision = o->precision,
                                    .batch = o->batch,
                                    .workers = o->workers,
                                    .prefetch = o->prefetch,
                                    .tta = o->tta,
                                    .any_mask = o->any_mask,
                                    .explanation = o->explain[0] ? &explanation : NULL,
                                    .embeddings = o->embeddings[0] ? &embeddings : NULL,
                                    .explain_bins = o->explain_bins,
                                    .explain_pixels = o->explain_pixels,
                                    .scan = o->scan};
    if (o->model.n == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--model is needed: a run folder or a .safetensors file");
    }
    flim_string_list inputs = {0};
    flim_file_writer writer = {0};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(list_inputs(o, &inputs, err));
    const flim_output output = output_at(o, o->out, "a file of predictions", FLIM_PREDICTIONS_BEGIN, &inputs, hooks.stop),
                      embedded = output_at(o, o->embeddings, "a file of embeddings", NULL, &inputs, hooks.stop),
                      explained = output_at(o, o->explain, "a file of explanations", NULL, &inputs, hooks.stop);
    FLIM_TRY_DONE(o->explain[0] ? flim_output_check(&explained, err) : FLIM_OK);
    FLIM_TRY_DONE(o->embeddings[0] ? is_npy(o->embeddings, &npy, err) : FLIM_OK);
    FLIM_TRY_DONE(o->embeddings[0] ? flim_output_check(&embedded, err) : FLIM_OK);
    FLIM_TRY_DONE(parse_cells(&o->explain_cells, &cells, &request.n_explain_cells, err));
    request.explain_cell = cells;
    FLIM_TRY_DONE(threshold_of(o->threshold, &request.threshold, err));
    FLIM_TRY_DONE(flim_output_check(&output, err));
    FLIM_TRY_DONE(flim_predict(&request, &hooks, &predictions, &metrics, err));
    FLIM_TRY_DONE(o->embeddings[0] ? write_embeddings(&embeddings, npy, &embedded, err) : FLIM_OK);
    if (predictions.n == 0 && o->embeddings[0]) { /* an encoder's */
        goto done;
    }
    FLIM_TRY_DONE(flim_output_begin(&output, &writer, err));
    FLIM_TRY_DONE(flim_predictions_print(&predictions, writer.stream, err));
    FLIM_TRY_DONE(flim_file_commit(&writer, err));
    FLIM_TRY_DONE(o->explain[0] ? write_explanation(&explanation, &explained, err) : FLIM_OK);
    print_metrics(&metrics, &hooks.log);
    written = o->out;
done:
    if (status == FLIM_OK) {
        tool_say_written(&hooks.log, (const char *const[]){written, o->embeddings, o->explain}, 3);
    }
    flim_file_abandon(&writer);
    flim_string_list_free(&inputs);
    flim_explanation_free(&explanation);
    flim_embeddings_free(&embeddings);
    flim_free(cells);
    flim_predictions_free(&predictions);
    return status;
}

int main(int argc, char **argv)
{
    options o;
    console_start();
    limit_spinning(argv);
    return tool_main(&table, &o, predict, argc, argv);
}

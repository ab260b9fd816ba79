/* The models of a request as one ONNX graph, with what a user of it must know as metadata. */
#include "flim/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/output.h"
#include "core/sha256.h"
#include "core/try.h"
#include "flim/settings.h"
#include "flim/version.h"
#include "results/fold_shift.h"
#include "train/models.h"

#ifdef FLIM_HAVE_PROTOBUF

#include "export/onnx_graph.h"

/* One export at work; all of it is released by `release`. */
typedef struct job {
    const flim_export_request *request;
    flim_models models;
    flim_network net;
    flim_onnx *onnx;
    flim_fold_shift *shift; /* (models.n), of which classes is 0 if a model carries no calibration */
    bool calibrated; /* all models are */
    bool takes_mask;
    float *parameters, *statistics; /* (P), (S) of one model */
    flim_json *hashes; /* SHA-256 of the weight files */
} job;

/* ---- models ---- */

/* The size of the cells, from the weights or the request. */
static flim_status build_network(job *j, flim_error *err)
{
    static const char *const flag[3] = {"bins", "height", "width"};
    const flim_weights_info *w = &j->models.weights;
    const int64_t asked[3] = {j->request->t, j->request->h, j->request->w};
    int size[3] = {w->t, w->h, w->w};
    for (int d = 0; d < 3; d++) {
        if (size[d] == 0 && asked[d] == 0) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s does not say the size of its cells (another program wrote it): give --bins, --height and "
                             "--width",
                             j->models.model[0].path);
        }
        if (size[d] != 0 && asked[d] != 0 && asked[d] != size[d]) {
            return flim_fail(err, FLIM_ERROR_USAGE, "--%s %" PRId64 ": %s was trained on cells of %d x %d x %d", flag[d],
                             asked[d], j->models.model[0].path, w->t, w->h, w->w);
        }
        size[d] = size[d] ? size[d] : (int)asked[d];
    }
    return flim_network_build_sized(&j->net, (flim_model_size){w->width, w->depth}, w->classes, size[0], size[1], size[2],
                                    err);
}

/* The calibration in the summary.json beside the weights; none if there is no such file. */
static flim_status read_calibration(job *j, int m, flim_error *err)
{
    const char *weights = j->models.model[m].path, *slash = strrchr(weights, '/');
    char path[4200];
    flim_json *json = NULL;
    snprintf(path, sizeof path, "%.*ssummary.json", slash ? (int)(slash - weights + 1) : 0, weights);
    if (!flim_file_exists(path)) {
        j->calibrated = false;
        return FLIM_OK;
    }
    FLIM_TRY(flim_json_read(path, &json, err));
    const flim_status status = flim_fold_shift_read(json, j->net.classes, path, &j->shift[m], err);
    j->calibrated = j->calibrated && j->shift[m].classes > 0;
    flim_json_free(json);
    return status;
}

static flim_status add_hash(job *j, const char *path, flim_error *err)
{
    char *bytes = NULL, sha256[65];
    size_t count = 0;
    FLIM_TRY(flim_file_read(path, (size_t)1 << 40, &bytes, &count, err));
    const flim_status status = flim_sha256_of(bytes, count, sha256, err);
    flim_free(bytes);
    FLIM_TRY(status);
    flim_json_add_string(j->hashes, sha256);
    return FLIM_OK;
}

static flim_status add_calibration(job *j, flim_onnx_place at, flim_error *err)
{
    const flim_calibration *c = &j->shift[at.m].calibration;
    const int outputs = flim_class_outputs(j->net.classes);
    float *bias = flim_alloc((size_t)outputs, sizeof *bias, err); /* (K') */
    if (!bias) {
        return FLIM_ERROR_MEMORY;
    }
    for (int k = 0; k < outputs; k++) {
        bias[k] = (float)(outputs == 1 ? c->bias[1] - c->bias[0] : c->bias[k]); /* as flim_calibrate */
    }
    flim_onnx_add_calibration(j->onnx, &j->net, at, c->temperature, bias);
    flim_free(bias);
    return FLIM_OK;
}

static flim_status add_models(job *j, flim_error *err)
{
    const int n = j->models.n;
    j->shift = flim_alloc((size_t)n, sizeof *j->shift, err);
    j->parameters = flim_alloc((size_t)j->net.parameters, sizeof(float), err);
    j->statistics = flim_alloc((size_t)j->net.statistics, sizeof(float), err);
    if (!j->shift || !j->parameters || !j->statistics) {
        return FLIM_ERROR_MEMORY;
    }
    j->calibrated = true;
    for (int m = 0; m < n; m++) {
        FLIM_TRY(read_calibration(j, m, err));
    }
    for (int m = 0; m < n; m++) {
        const flim_onnx_place at = {m, n};
        const char *path = j->models.model[m].path;
        FLIM_TRY(flim_weights_read(path, &j->net, j->parameters, j->statistics, err));
        FLIM_TRY(add_hash(j, path, err));
        flim_onnx_add_model(j->onnx, &j->net, at, j->parameters, j->statistics);
        FLIM_TRY(j->calibrated ? add_calibration(j, at, err) : FLIM_OK);
    }
    flim_onnx_add_outputs(j->onnx, &j->net, n, j->calibrated);
    return FLIM_OK;
}

/* ---- metadata ---- */

static void set_number(flim_onnx *onnx, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    flim_onnx_set_property(onnx, key, text);
}

static flim_status set_class_names(flim_onnx *onnx, const flim_provenance *about, flim_error *err)
{
    if (about->classes == 0) {
        return FLIM_OK;
    }
    flim_json *names = flim_json_array();
    for (int k = 0; k < about->classes; k++) {
        flim_json_add_string(names, about->class_name[k]);
    }
    char *text = flim_json_text(names);
    flim_json_free(names);
    if (!text) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "no memory for the names of the classes");
    }
    flim_onnx_set_property(onnx, "class_names", text);
    flim_json_text_free(text);
    return FLIM_OK;
}

static flim_status describe(job *j, flim_error *err)
{
    const flim_weights_info *w = &j->models.weights;
    const flim_provenance *about = &j->models.model[0].about;
    flim_onnx *o = j->onnx;
    char *hashes = flim_json_text(j->hashes);
    if (!hashes) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "no memory for the hashes of the weights");
    }
    flim_onnx_set_property(o, "flimcv_version", flim_version());
    flim_onnx_set_property(o, "weights_sha256", hashes);
    flim_json_text_free(hashes);
    FLIM_TRY(set_class_names(o, about, err));
    set_number(o, "models", j->models.n);
    if (w->classes == 2) {
        set_number(o, "threshold", j->models.threshold);
    }
    flim_onnx_set_property(o, "inputs", !j->request->from_counts ? "input" : j->takes_mask ? "counts, mask" : "counts");
    flim_onnx_set_property(o, "preprocessing", flim_preprocessing_name(j->models.mask_counts));
    flim_onnx_set_property(o, "mask", flim_mask_origin_name(about->mask));
    set_number(o, "T", j->net.in[0]);
    set_number(o, "H", j->net.in[1]);
    set_number(o, "W", j->net.in[2]);
    if (about->time_range_ns > 0) {
        set_number(o, "time_range_ns", about->time_range_ns);
        set_number(o, "bin_width_ns", about->time_range_ns / j->net.in[0]);
    }
    flim_onnx_set_property(o, "tta", j->models.tta ? "true" : "false");
    return FLIM_OK;
}

/* ---- the file ---- */

static flim_status write_file(job *j, flim_error *err)
{
    flim_file_writer writer = {0};
    const flim_output output = {.path = j->request->out,
                                .kind = "an ONNX file of flim_export",
                                .begins = "\x08\x08\x12\x06"
                                          "flimcv", /* format 8, program "flimcv" */
                                .input = j->request->model,
                                .n_inputs = j->request->n_models,
                                .force = j->request->force};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_output_begin(&output, &writer, err));
    FLIM_TRY_DONE(flim_onnx_write(j->onnx, writer.stream, err));
    status = flim_file_commit(&writer, err);
done:
    flim_file_abandon(&writer);
    return status;
}

static void release(job *j)
{
    for (int m = 0; j->shift && m < j->models.n; m++) {
        flim_fold_shift_free(&j->shift[m]);
    }
    flim_free(j->shift);
    flim_free(j->parameters);
    flim_free(j->statistics);
    flim_json_free(j->hashes);
    flim_onnx_free(j->onnx);
    flim_models_free(&j->models);
}

flim_status flim_export_onnx(const flim_export_request *request, const flim_log *log, flim_export_result *out,
                             flim_error *err)
{
    job j = {.request = request, .hashes = flim_json_array()};
    flim_status status = FLIM_OK;
    *out = (flim_export_result){0};
    FLIM_TRY_DONE(flim_models_find(request->model, request->n_models, false, log, &j.models, err));
    FLIM_TRY_DONE(build_network(&j, err));
    FLIM_TRY_DONE(flim_onnx_create(j.net.preset, &j.onnx, err));
    j.takes_mask = request->from_counts && j.models.model[0].about.mask != FLIM_MASK_ORIGIN_COUNTS;
    if (request->from_counts) {
        flim_onnx_add_counts_input(j.onnx, &j.net, j.takes_mask, j.models.mask_counts);
    } else {
        flim_onnx_add_plain_input(j.onnx, &j.net);
    }
    FLIM_TRY_DONE(add_models(&j, err));
    FLIM_TRY_DONE(describe(&j, err));
    FLIM_TRY_DONE(write_file(&j, err));
    if (j.models.tta) {
        flim_log_line(
            log, FLIM_LOG_WARNING,
            "the run evaluated itself with --tta and predict does so too; the graph sees each cell as it lies, and the "
            "threshold is of averaged scores: give it each of the cell's symmetries and average the logits");
    }
    *out = (flim_export_result){.models = j.models.n,
                                .classes = j.net.classes,
                                .t = j.net.in[0],
                                .h = j.net.in[1],
                                .w = j.net.in[2],
                                .takes_mask = j.takes_mask,
                                .calibrated = j.calibrated};
done:
    release(&j);
    return status;
}

#else

flim_status flim_export_onnx(const flim_export_request *request, const flim_log *log, flim_export_result *out,
                             flim_error *err)
{
    (void)request, (void)log;
    *out = (flim_export_result){0};
    return flim_fail(err, FLIM_ERROR_USAGE,
                     "this build writes no ONNX files: install protobuf-c (Debian and Ubuntu: apt-get install "
                     "libprotobuf-c-dev protobuf-c-compiler), then run cmake and build again");
}

#endif

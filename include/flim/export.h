/* Trained networks for other programs: what flim_export does.
 *
 * For: an ONNX file of one model, or of several as one graph that averages as flim_predict does.
 * Owns: the request's texts are the caller's.
 * Errors: FLIM_ERROR_DATA for weights that do not fit each other or do not say the size of their cells; FLIM_ERROR_USAGE if
 *      the path is not to be written, or in a build without protobuf-c; FLIM_ERROR_WRITE.
 */
#ifndef FLIM_EXPORT_H
#define FLIM_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/log.h"
#include "flim/status.h"

typedef struct flim_export_request {
    const char *const *model; /* (n_models) run folders and .safetensors files, as flim_predict takes them */
    int n_models;
    const char *out; /* the ONNX file */
    bool from_counts; /* the graph takes counts (N,T,H,W) and, if the weights had masks from the file, mask (N,H,W), and
                       * prepares them as flim_predict does; else the prepared input (N,2,T,H,W) */
    int64_t t, h, w; /* of a cell, for weights that do not say it; 0 = what they say */
    bool force; /* as predict --force */
} flim_export_request;

typedef struct flim_export_result {
    int models; /* in the graph */
    int classes, t, h, w;
    bool takes_mask; /* with from_counts */
    bool calibrated; /* there is an output calibrated_probabilities */
} flim_export_result;

flim_status flim_export_onnx(const flim_export_request *request, const flim_log *log, flim_export_result *out,
                             flim_error *err);

#endif

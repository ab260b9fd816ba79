/* A network as operators of ONNX.
 *
 * For: src/export/export.c.  The network is walked as its table says (flim/network.h); nothing here knows which one it is.
 *      BatchNorm takes its running statistics, dropout is left out.  Values are named after the weights; of several models each
 *      has the prefix "model_M/".
 * Owns: nothing.
 * Errors: as formats/onnx.h: remembered.  Networks with transposed units or a dense head are in no weight file: not for these.
 */
#ifndef FLIM_EXPORT_ONNX_GRAPH_H
#define FLIM_EXPORT_ONNX_GRAPH_H

#include <stdbool.h>

#include "flim/network.h"
#include "formats/onnx.h"

/* The models of a graph: model m of n, counted from 0. */
typedef struct flim_onnx_place {
    int m, n;
} flim_onnx_place;

/* Adds the network's input, value "input" (N,2,T,H,W), as an input of the graph. */
void flim_onnx_add_plain_input(flim_onnx *onnx, const flim_network *net);
/* Adds the inputs "counts" (N,T,H,W) and, with takes_mask, "mask" (N,H,W), non-zero inside the cell; without, a pixel that holds
 * a photon is inside.  "input" is made of them: log(1 + counts) / 10, with mask_counts inside the mask only, and the mask at
 * every time bin. */
void flim_onnx_add_counts_input(flim_onnx *onnx, const flim_network *net, bool takes_mask, bool mask_counts);

/* Adds a model, which reads "input"; its logits (N,K') are a value that flim_onnx_add_outputs finds. */
void flim_onnx_add_model(flim_onnx *onnx, const flim_network *net, flim_onnx_place at, const float *parameters,
                         const float *statistics);
/* Its calibrated logits: logits / temperature + bias (K'). */
void flim_onnx_add_calibration(flim_onnx *onnx, const flim_network *net, flim_onnx_place at, double temperature,
                               const float *bias);
/* Adds the outputs "logits" (N,K') and "probabilities" (N,K) of n models: of one its own, of several the mean probabilities and
 * their log-odds or logarithms, as flim_ensemble_mean.  calibrated: all models are; "calibrated_probabilities" (N,K) is the mean
 * of the probabilities of calibrated logits. */
void flim_onnx_add_outputs(flim_onnx *onnx, const flim_network *net, int n, bool calibrated);

#endif

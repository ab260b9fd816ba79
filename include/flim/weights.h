/* Weight files: .safetensors with the network described in __metadata__; written as fp32, read as fp32, fp64, fp16 or bf16.
 *
 * For: best.safetensors, --init-weights, predict, flim_bench; readable from Python's safetensors package.
 * Owns: the caller owns the arrays.  Writing is atomic: temp file beside it, fsync, rename, directory fsync.
 * Errors: FLIM_ERROR_DATA for a damaged or foreign file, a missing, extra or misshapen tensor (named); FLIM_ERROR_WRITE.
 */
#ifndef FLIM_WEIGHTS_H
#define FLIM_WEIGHTS_H

#include "flim/network.h"
#include "flim/provenance.h"

#define FLIM_WEIGHTS_VERSION "1" /* of the format: the metadata's flimcv_format */

typedef struct flim_weights_info {
    bool has_metadata; /* this program's own: Python's {"format": "pt"} does not count */
    /* width, depth and classes (by K') from names and shapes; t, h, w from the metadata, 0 if there is none. */
    int width, depth, classes, t, h, w;
    char preprocessing[256];
    char sha256[65]; /* of the tensors' bytes, as the metadata says; "" = it does not */
    bool mask_counts; /* trained on counts that were zeroed outside the mask, by the preprocessing */
} flim_weights_info;

/* Writes parameters (P) and statistics (S); statistics NULL leaves the running statistics out (gradients files).  about may
 * be NULL; of one that is not known (is_known) the class names (none, or net->classes) and mask_counts are written. */
flim_status flim_weights_write(const char *path, const flim_network *net, const flim_provenance *about,
                               const float *parameters, const float *statistics, flim_error *err);
/* Writes what a classifier can take of a pretrained network: the tensors of its units (stem.*, down.*, res*.*), under the
 * classifier's names and in its shapes, without a head; of a stem with more input channels the first two.  classifier: any
 * network that flim_network_build_sized gives for the width, depth and cells of `net`.  about->pretraining says what it saw. */
flim_status flim_weights_write_encoder(const char *path, const flim_network *classifier, const flim_network *net,
                                       const flim_provenance *about, const float *parameters, const float *statistics,
                                       flim_error *err);
/* What the metadata's key "preprocessing" says. */
const char *flim_preprocessing_name(bool mask_counts);

/* Reads shapes and metadata only; the names of the classes are flim_provenance_read's.  encoders: a file without a head is taken, too, with classes 0. */
flim_status flim_weights_probe(const char *path, bool encoders, flim_weights_info *out, flim_error *err);

/* Reads into the arrays of `net` (P and S floats); a width, class count or input size that differs is an error that says
 * both, as are values that are not finite.  statistics NULL: running statistics are neither needed nor read (gradients
 * files).  After an error the arrays are unspecified. */
flim_status flim_weights_read(const char *path, const flim_network *net, float *parameters, float *statistics,
                              flim_error *err);
/* The same to start a training from: a file of another number of classes gives all tensors but those of the last layer, which
 * stay as they are: *last_layer_is_new. */
flim_status flim_weights_read_to_start(const char *path, const flim_network *net, float *parameters, float *statistics,
                                       bool *last_layer_is_new, flim_error *err);
bool flim_weights_is_last_layer(const flim_tensor *tensor);
/* The tensors of the units of `net` alone, of a file with any head or none and for cells of any size; those of its heads stay as they
 * are.  parameters (P), statistics (S). */
flim_status flim_weights_read_encoder(const char *path, const flim_network *net, float *parameters, float *statistics,
                                      flim_error *err);

/* What reading would refuse: FLIM_ERROR_DATA names the tensor and the value that is not finite, or a negative variance. */
flim_status flim_weights_check_finite(const flim_network *net, const float *parameters, const float *statistics,
                                      flim_error *err);

#endif

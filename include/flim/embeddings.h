/* Embeddings: what a network's pooled head sees of each cell, for plots, clustering and other classifiers.
 *
 * For: predict --embeddings, fold_metrics --embeddings.
 *      The mean over time and pixels of the last block's output, (4 x width) numbers per cell.
 * Owns: the arrays; flim_embeddings_free.
 * Errors: FLIM_ERROR_MEMORY; FLIM_ERROR where HDF5 cannot make the file; FLIM_ERROR_DATA for a file that is not one of ours.
 */
#ifndef FLIM_EMBEDDINGS_H
#define FLIM_EMBEDDINGS_H

#include <stddef.h>
#include <stdint.h>

#include "flim/dataset.h"

/* What a file says of one of its models; an encoder has no fold and no splits here, whatever it was pretrained for. */
typedef struct flim_embedded_model {
    int fold; /* -1 = not known; 65535: a final model */
    char splits_sha256[65], weights_sha256[65]; /* of the run's splits.json, of the weights' tensors; "" = not known */
} flim_embedded_model;

typedef struct flim_embeddings {
    int models, width; /* M, C */
    int64_t n; /* cells, in the order of the data */
    float *value; /* (M,n,C) */
    int32_t *label; /* (n), NULL if the data has none */
    int classes; /* names below */
    char **class_name, **group, **name; /* (classes), (n), (n); NULL if the data has none */
    char data_sha256[65]; /* as flim_dataset_sha256; "" = not known */
    flim_embedded_model *model; /* (M); NULL: an older file */
} flim_embeddings;

/* For all cells of a data set, whose labels and names are copied; values are zero, the models unknown.  What is there after an error is the caller's, too. */
flim_status flim_embeddings_create(int models, int width, const flim_dataset_info *info, flim_embeddings *out,
                                   flim_error *err);
void flim_embeddings_free(flim_embeddings *embeddings); /* zeroed is allowed */

/* The bytes of a .npy file, float32 little endian in C order, (n,C) for one model, else (M,n,C); and of an HDF5 file with the dataset
 * embedding (M,n,C), fold (M) int32, splits_sha256 and weights_sha256 (M) as texts, and, as the data has them, label (n) int32,
 * and class_name, group and name as texts, (classes) and (n) twice.
 * The caller's (flim_free). */
flim_status flim_embeddings_npy(const flim_embeddings *embeddings, void **bytes, size_t *count, flim_error *err);
flim_status flim_embeddings_hdf5(const flim_embeddings *embeddings, void **bytes, size_t *count, flim_error *err);
/* A file of flim_embeddings_hdf5.  *out is zeroed after an error. */
flim_status flim_embeddings_read(const char *path, flim_embeddings *out, flim_error *err);

#endif

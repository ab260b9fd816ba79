/* predictions.csv: what a model said of each cell of a part.
 *
 * For: fold_K/predictions.csv, hold-out predictions, predict, and the tools that recompute metrics from them.
 *      Columns: index,name,group,label,predicted,logit_*,prob_*; RFC 4180 quoting; logits with nine digits,
 *      so that floats read back with the same bits.
 * Owns: flim_predictions owns its arrays; free with flim_predictions_free.
 * Errors: FLIM_ERROR_DATA names file, line and column; FLIM_ERROR_WRITE.
 */
#ifndef FLIM_PREDICTIONS_H
#define FLIM_PREDICTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "flim/status.h"

typedef struct flim_predictions {
    int64_t n;
    int classes; /* K */
    int outputs; /* K': 1 for two classes */
    int64_t *index; /* (n) cell in the data */
    char **name; /* (n), "" if there is none */
    char **group; /* (n), "" if there is none */
    int32_t *label; /* (n), -1 if unknown */
    int32_t *predicted; /* (n) */
    float *logits; /* (n,K') */
} flim_predictions;

/* Arrays for n cells, zeroed; names and groups NULL until set (written as empty). */
flim_status flim_predictions_create(int64_t n, int classes, flim_predictions *out, flim_error *err);
void flim_predictions_free(flim_predictions *predictions); /* leaves it zeroed; zeroed is allowed */

/* How the file begins, whatever the number of classes. */
#define FLIM_PREDICTIONS_BEGIN "index,name,group,label,predicted,logit_"

/* The rows into a stream, whose errors are the caller's to see. */
flim_status flim_predictions_print(const flim_predictions *predictions, FILE *stream, flim_error *err);
/* As a file of a run: what is at `path` is replaced. */
flim_status flim_predictions_write(const flim_predictions *predictions, const char *path, flim_error *err);
flim_status flim_predictions_read(const char *path, flim_predictions *out, flim_error *err);

#endif

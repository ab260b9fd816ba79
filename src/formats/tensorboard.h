/* Event files of TensorBoard: records of protobuf messages (tensorboard.proto).  The only place that knows the format.
 *
 * For: train_cv --tensorboard.  A file is its head, then events in the order of their steps.  A record is the length of its
 *      message (8 bytes), the masked CRC-32C of these, the message, and the masked CRC-32C of that, little endian.
 * Owns: nothing.
 * Errors: FLIM_ERROR_MEMORY; the stream's are the caller's to see.  Compiled if protobuf-c was found (FLIM_HAVE_PROTOBUF).
 */
#ifndef FLIM_FORMATS_TENSORBOARD_H
#define FLIM_FORMATS_TENSORBOARD_H

#include <stdint.h>
#include <stdio.h>

#include "flim/status.h"

/* Where an event stands: seconds since 1970, and the epoch. */
typedef struct flim_event_at {
    double seconds;
    int64_t step;
} flim_event_at;

typedef struct flim_event_scalar {
    const char *tag;
    double value; /* NaN and infinities are left out */
} flim_event_scalar;

enum { FLIM_EVENT_MOST_SCALARS = 32, FLIM_EVENT_CURVE_ROWS = 6 };

flim_status flim_event_head(FILE *stream, double seconds, flim_error *err);
flim_status flim_event_scalars(FILE *stream, flim_event_at at, int n, const flim_event_scalar *scalar, flim_error *err);
/* Rows: true and false positives, true and false negatives, precision, recall; at n thresholds from 0 to 1 in equal steps:
 * value (6,n). */
flim_status flim_event_pr_curve(FILE *stream, flim_event_at at, const char *tag, int n, const float *value, flim_error *err);
/* A picture of three channels as a PNG file. */
flim_status flim_event_image(FILE *stream, flim_event_at at, const char *tag, int height, int width, const void *png,
                             size_t bytes, flim_error *err);

#endif

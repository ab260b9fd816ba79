/* A confusion matrix as a picture: rows are the true classes, columns the predicted ones, from above and from the left; a square is
 * the darker the larger its share of its row, which up to 20 classes stands in it in percent. */
#ifndef FLIM_TRAIN_CONFUSION_PICTURE_H
#define FLIM_TRAIN_CONFUSION_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "flim/predictions.h"

/* A square PNG file of *side pixels; *png (*bytes) is the caller's (flim_free).  FLIM_ERROR_MEMORY. */
flim_status flim_confusion_picture(const flim_predictions *predictions, int *side, uint8_t **png, size_t *bytes,
                                   flim_error *err);

#endif

/* The counts of an image as the tests compare them, whatever the order in which its reader leaves them. */
#ifndef FLIM_TESTS_READ_PLAIN_H
#define FLIM_TESTS_READ_PLAIN_H

#include <stdlib.h>

#include "import/field_file.h"

static inline uint32_t read_count(const flim_counts *c, int64_t y, int64_t x, int64_t t)
{
    const int64_t at = y * c->y_step + x * c->x_step + t * c->t_step;
    return c->bytes == 1   ? ((const uint8_t *)c->data)[at]
           : c->bytes == 2 ? ((const uint16_t *)c->data)[at]
                           : ((const uint32_t *)c->data)[at];
}

/* *out: (Y,X,T), the caller's to free(); NULL after an error.  *photons: their sum. */
static inline flim_status read_plain(flim_field_file *file, int image, uint32_t **out, uint64_t *photons, flim_error *err)
{
    flim_counts c;
    *out = NULL;
    *photons = 0;
    const flim_status status = flim_field_read(file, image, &c, err);
    if (status != FLIM_OK) {
        return status;
    }
    if (c.y != file->image[image].y || c.x != file->image[image].x || c.t != file->image[image].t ||
        !(*out = malloc((size_t)(c.y * c.x * c.t) * sizeof **out))) {
        abort();
    }
    for (int64_t i = 0; i < c.y * c.x * c.t; i++) {
        (*out)[i] = read_count(&c, i / c.t / c.x, i / c.t % c.x, i % c.t);
        *photons += (*out)[i];
    }
    flim_counts_free(&c);
    return FLIM_OK;
}

#endif

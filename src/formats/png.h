/* Pictures as PNG files: 8 bits per channel, red, green, blue. */
#ifndef FLIM_FORMATS_PNG_H
#define FLIM_FORMATS_PNG_H

#include <stddef.h>
#include <stdint.h>

#include "flim/status.h"

/* pixel: (height,width,3).  *png (*bytes) is the caller's (flim_free).  FLIM_ERROR_MEMORY. */
flim_status flim_png_encode(int height, int width, const uint8_t *pixel, uint8_t **png, size_t *bytes, flim_error *err);

#endif

#include "report/page/picture.h"

#include <math.h>
#include <stdint.h>

#include "core/alloc.h"
#include "core/text.h"
#include "formats/png.h"

typedef struct colour {
    uint8_t red, green, blue;
} colour;

/* Between black and `full`; share 0..1. */
static uint8_t shade(uint8_t full, double share)
{
    return (uint8_t)(full * share + 0.5);
}

/* value (h,w): `positive` at most, `negative` at -most. */
static flim_status set_picture(flim_json *values, const char *key, const double *value, int h, int w, double most,
                               colour positive, colour negative, flim_error *err)
{
    const int64_t n = (int64_t)h * w;
    uint8_t *pixel = flim_alloc((size_t)n, 3, err), *png = NULL; /* (h,w,3) */
    size_t bytes = 0;
    char *text = NULL;
    for (int64_t i = 0; pixel && i < n; i++) {
        const colour full = value[i] < 0 ? negative : positive;
        const double share = most > 0 ? fmin(fabs(value[i]) / most, 1) : 0;
        pixel[3 * i] = shade(full.red, share);
        pixel[3 * i + 1] = shade(full.green, share);
        pixel[3 * i + 2] = shade(full.blue, share);
    }
    if (pixel && flim_png_encode(h, w, pixel, &png, &bytes, err) == FLIM_OK) {
        text = flim_base64(png, bytes, err);
        flim_json_set_string(values, key, text);
    }
    const flim_status status = text ? FLIM_OK : FLIM_ERROR_MEMORY;
    flim_free(text);
    flim_free(png);
    flim_free(pixel);
    return status;
}

flim_status html_set_grey(flim_json *values, const char *key, const double *value, int h, int w, double most, flim_error *err)
{
    static const colour white = {255, 255, 255};
    return set_picture(values, key, value, h, w, most, white, white, err);
}

flim_status html_set_signed(flim_json *values, const char *key, const double *value, int h, int w, double most,
                            flim_error *err)
{
    static const colour blue = {0x56, 0xb4, 0xe9}, orange = {0xe6, 0x9f, 0x00};
    return set_picture(values, key, value, h, w, most, blue, orange, err);
}

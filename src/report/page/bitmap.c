#include "report/page/bitmap.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/alloc.h"
#include "core/text.h"

typedef struct colour {
    unsigned char blue, green, red; /* as the file has them */
} colour;

static void put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

/* Between black and `full`; share 0..1. */
static colour shade(colour full, double share)
{
    return (colour){(unsigned char)(full.blue * share + 0.5), (unsigned char)(full.green * share + 0.5),
                    (unsigned char)(full.red * share + 0.5)};
}

/* value (h,w): `positive` at most, `negative` at -most. */
static flim_status set_bitmap(flim_json *values, const char *key, const double *value, int h, int w, double most,
                              colour positive, colour negative, flim_error *err)
{
    enum { HEAD = 54 };
    const size_t row = ((size_t)w * 3 + 3) / 4 * 4, pixels = row * (size_t)h, size = HEAD + pixels;
    unsigned char *bmp = flim_alloc(size, 1, err);
    if (!bmp) {
        return FLIM_ERROR_MEMORY;
    }
    bmp[0] = 'B';
    bmp[1] = 'M';
    put_u32(bmp + 2, (uint32_t)size);
    put_u32(bmp + 10, HEAD);
    put_u32(bmp + 14, 40);
    put_u32(bmp + 18, (uint32_t)w);
    put_u32(bmp + 22, (uint32_t)h);
    bmp[26] = 1;
    bmp[28] = 24;
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            const double v = value[(int64_t)(h - 1 - y) * w + x]; /* rows from below */
            const colour c = shade(v < 0 ? negative : positive, most > 0 ? fmin(fabs(v) / most, 1) : 0);
            memcpy(bmp + HEAD + (size_t)y * row + 3 * (size_t)x, &c, 3);
        }
    }
    char *text = flim_base64(bmp, size, err);
    flim_free(bmp);
    flim_json_set_string(values, key, text);
    flim_free(text);
    return text ? FLIM_OK : FLIM_ERROR_MEMORY;
}

flim_status html_set_grey(flim_json *values, const char *key, const double *value, int h, int w, double most, flim_error *err)
{
    static const colour white = {255, 255, 255};
    return set_bitmap(values, key, value, h, w, most, white, white, err);
}

flim_status html_set_signed(flim_json *values, const char *key, const double *value, int h, int w, double most,
                            flim_error *err)
{
    static const colour blue = {.red = 0x56, .green = 0xb4, .blue = 0xe9},
                        orange = {.red = 0xe6, .green = 0x9f, .blue = 0x00};
    return set_bitmap(values, key, value, h, w, most, blue, orange, err);
}

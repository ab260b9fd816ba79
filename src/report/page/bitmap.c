#include "report/page/bitmap.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/alloc.h"
#include "core/text.h"

static void put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

flim_status html_set_grey(flim_json *values, const char *key, const double *value, int h, int w, double most, flim_error *err)
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
            memset(bmp + HEAD + (size_t)y * row + 3 * (size_t)x, most > 0 ? (int)(255 * v / most + 0.5) : 0, 3);
        }
    }
    char *text = flim_base64(bmp, size, err);
    flim_free(bmp);
    flim_json_set_string(values, key, text);
    flim_free(text);
    return text ? FLIM_OK : FLIM_ERROR_MEMORY;
}

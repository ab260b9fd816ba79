#include "import/tiff_axes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/try.h"

enum { C, Z, T, N_AXES };
static const char letter[] = "CZT";

/* ---- descriptions ---- */

/* The value of attribute NAME="..." within the element that begins at `element`, into out (64); false if it has none. */
static bool attribute(const char *element, const char *name, char out[64])
{
    const char *end = strchr(element, '>');
    const size_t length = strlen(name);
    for (const char *at = element; (at = strstr(at, name)) && end && at < end; at++) {
        const char quote = at[length] == '=' ? at[length + 1] : '\0';
        if ((quote == '"' || quote == '\'') && strchr(" \t\r\n", at[-1])) {
            const char *value = at + length + 2, *stop = strchr(value, quote);
            if (!stop || stop > end) {
                return false;
            }
            snprintf(out, 64, "%.*s", (int)(stop - value < 63 ? stop - value : 63), value);
            return true;
        }
    }
    return false;
}

/* "key=12" at the begin of a line of ImageJ's description; 1 if it is not there. */
static int64_t line_value(const char *text, const char *key)
{
    const size_t length = strlen(key);
    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            return strtoll(at + length + 1, NULL, 10);
        }
    }
    return 1;
}

/* A lifetime axis within another: "<ModuloAlongT Type="lifetime" Unit="ps" Start="0" End="12500" Step="97">". */
static void read_modulo(const char *text, flim_tiff_axes *out)
{
    char type[64], value[64];
    for (const char *at = text; (at = strstr(at, "<ModuloAlong")); at++) {
        const char *axis = memchr(letter, at[strlen("<ModuloAlong")], N_AXES);
        if (!axis || !attribute(at, "Type", type) || strcmp(type, "lifetime") != 0) {
            continue;
        }
        const double start = attribute(at, "Start", value) ? strtod(value, NULL) : 0;
        const double end = attribute(at, "End", value) ? strtod(value, NULL) : 0;
        const double step = attribute(at, "Step", value) ? strtod(value, NULL) : 1;
        const double bins = step > 0 ? floor((end - start) / step + 1.5) : 0;
        const double ns = attribute(at, "Unit", value) && strcmp(value, "ns") == 0 ? 1 : 1e-3; /* ps */
        out->time = (int)(axis - letter);
        if (bins >= 2 && bins <= (double)out->size[out->time]) {
            out->bins = (int64_t)bins;
            out->range_ns = bins * step * ns;
        }
        return;
    }
}

static void read_ome(const char *text, const char *pixels, flim_tiff_axes *out)
{
    static const char *const sizes[] = {"SizeC", "SizeZ", "SizeT"};
    char value[64];
    for (int i = 0; i < N_AXES; i++) {
        out->size[i] = attribute(pixels, sizes[i], value) ? strtoll(value, NULL, 10) : 1;
    }
    if (attribute(pixels, "DimensionOrder", value) && strlen(value) == 5) { /* XYCZT: X and Y are within a page */
        int order[N_AXES] = {-1, -1, -1};
        for (int i = 0; i < N_AXES; i++) {
            const char *axis = memchr(letter, value[i + 2], N_AXES);
            order[i] = axis ? (int)(axis - letter) : -1;
        }
        if (order[0] + order[1] + order[2] == C + Z + T && order[0] != order[1] && order[1] != order[2] && order[0] >= 0) {
            memcpy(out->order, order, sizeof order);
        }
    }
    read_modulo(text, out);
}

static void read_description(const char *text, int64_t pages, flim_tiff_axes *out)
{
    const char *pixels = strstr(text, "<Pixels ");
    *out = (flim_tiff_axes){.size = {1, 1, pages}, .order = {C, Z, T}, .time = -1};
    if (pixels) {
        read_ome(text, pixels, out);
    } else if (strncmp(text, "ImageJ=", 7) == 0) {
        const int64_t c = line_value(text, "channels"), z = line_value(text, "slices"), t = line_value(text, "frames");
        if (c > 1 || z > 1 || t > 1) {
            out->size[C] = c;
            out->size[Z] = z;
            out->size[T] = t;
        } else {
            out->size[T] = line_value(text, "images");
        }
    }
}

/* ---- which is the time ---- */

static flim_status choose_time(const char *path, flim_time_axis asked, flim_tiff_axes *out, flim_error *err)
{
    int several = 0, one = T;
    for (int i = 0; i < N_AXES; i++) {
        several += out->size[i] > 1;
        one = out->size[i] > 1 ? i : one;
    }
    if (asked != FLIM_TIME_AUTO) {
        const int axis = (int)asked - FLIM_TIME_C;
        out->bins = axis == out->time ? out->bins : 0;
        out->time = axis;
    } else if (out->time < 0) {
        out->time = one;
        if (several > 1) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s: a stack of C %" PRId64 " x Z %" PRId64 " x T %" PRId64
                             " pages: say which of them is the time of the decay with --time-axis C, Z or T",
                             path, out->size[C], out->size[Z], out->size[T]);
        }
    }
    out->bins = out->bins ? out->bins : out->size[out->time];
    return out->size[out->time] % out->bins == 0
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA,
                           "%s: axis %c has %" PRId64 " entries, no whole number of decays of %" PRId64 " bins", path,
                           letter[out->time], out->size[out->time], out->bins);
}

flim_status flim_tiff_axes_of(const char *path, const char *description, int64_t pages, flim_time_axis asked,
                              flim_tiff_axes *out, flim_error *err)
{
    int64_t product = 1;
    read_description(description, pages, out);
    for (int i = 0; i < N_AXES; i++) {
        product = out->size[i] >= 1 && out->size[i] <= pages ? product * out->size[i] : 0;
    }
    if (product != pages) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: its description speaks of C %" PRId64 " x Z %" PRId64 " x T %" PRId64
                         " pages, the file has %" PRId64
                         "; is it one of several files, or a stack without pages of its own (ImageJ, above 4 GB)? Save it as "
                         "one TIFF or .npy",
                         path, out->size[C], out->size[Z], out->size[T], pages);
    }
    return choose_time(path, asked, out, err);
}

/* ---- pages of an image ---- */

/* The entries along C, Z and T at which an image begins.  Images vary along the axes in their order, the decay's own last. */
static void begin_of(const flim_tiff_axes *axes, int64_t image, int64_t at[N_AXES])
{
    for (int i = 0; i < N_AXES; i++) {
        const int axis = axes->order[i];
        if (axis != axes->time) {
            at[axis] = image % axes->size[axis];
            image /= axes->size[axis];
        }
    }
    at[axes->time] = image * axes->bins;
}

int64_t flim_tiff_axes_page(const flim_tiff_axes *axes, int64_t image, int64_t t)
{
    int64_t at[N_AXES], page = 0;
    begin_of(axes, image, at);
    at[axes->time] += t;
    for (int i = N_AXES - 1; i >= 0; i--) {
        page = page * axes->size[axes->order[i]] + at[axes->order[i]];
    }
    return page;
}

void flim_tiff_axes_name(const flim_tiff_axes *axes, int64_t image, char *out, size_t size)
{
    int64_t at[N_AXES];
    size_t used = 0;
    out[0] = '\0';
    begin_of(axes, image, at);
    at[axes->time] /= axes->bins;
    for (int i = 0; i < N_AXES && used < size; i++) {
        const int64_t entries = i == axes->time ? axes->size[i] / axes->bins : axes->size[i];
        if (entries > 1) {
            const int wrote = snprintf(out + used, size - used, "%s%c %" PRId64, used ? " " : "", letter[i], at[i]);
            used += wrote > 0 ? (size_t)wrote : 0;
        }
    }
}

#include "import/npy_header.h"

#include <stdlib.h>
#include <string.h>

#include "core/little_endian.h"
#include "core/try.h"

enum { MOST_HEADER = 65536, PREFIX = 10 };

bool flim_is_npy(const uint8_t *bytes, size_t count)
{
    return count >= PREFIX && memcmp(bytes, "\x93NUMPY", 6) == 0;
}

/* The text after 'key': in the header's dictionary, or NULL. */
static const char *find_value(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    at = at ? strchr(at + strlen(key), ':') : NULL;
    return at ? at + 1 + strspn(at + 1, " ") : NULL;
}

/* Bytes of a type's text up to the quote that ends it, at most 16. */
static size_t type_length(const char *text)
{
    const size_t length = strcspn(text, "'\"");
    return length < 16 ? length : 16;
}

static flim_status read_type(const char *name, const char *text, flim_bare_array *out, flim_error *err)
{
    char order = '|';
    if (text[0] != '\'' && text[0] != '"') {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: an array of records ('descr' is %.40s), expected one of numbers", name,
                         text);
    }
    text++;
    if (strchr("<>|=", text[0])) {
        order = *text++;
    }
    const char kind = text[0];
    const int bytes = kind && text[1] >= '1' && text[1] <= '8' && strchr("'\"", text[2]) ? text[1] - '0' : 0;
    out->element = (flim_element){.kind = kind, .bytes = bytes, .big = order == '>'};
    if (kind == 'O') {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: an array of Python objects, which cannot be read safely; save the counts as an array of "
                         "integers, one file per cell or one array per name (numpy.savez)",
                         name);
    }
    const bool integer = (kind == 'u' || kind == 'i') && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
    const bool real = kind == 'f' && (bytes == 2 || bytes == 4 || bytes == 8);
    if (!integer && !real && !(kind == 'b' && bytes == 1)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: elements of type '%.*s', expected integers, float16, float32 or float64",
                         name, (int)type_length(text), text);
    }
    return FLIM_OK;
}

static flim_status read_shape(const char *name, const char *text, flim_bare_array *out, flim_error *err)
{
    const char *at = text + (text[0] == '(');
    out->n_axes = 0;
    while (*at && *at != ')') {
        char *end;
        const long long size = strtoll(at, &end, 10);
        if (end == at || size < 1 || out->n_axes == FLIM_ARRAY_AXES) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: the shape %.60s, expected (Y,X,T), (T,Y,X) or N of them", name, text);
        }
        out->size[out->n_axes++] = size;
        at = end + strspn(end, " ,L");
    }
    return text[0] == '(' && *at == ')' ? FLIM_OK : flim_fail(err, FLIM_ERROR_DATA, "%s: its header has no shape", name);
}

flim_status flim_npy_header(const char *name, const uint8_t *bytes, size_t count, flim_bare_array *out, flim_error *err)
{
    char header[MOST_HEADER + 1];
    const bool short_length = count > 6 && bytes[6] == 1;
    const size_t before = short_length ? 10 : 12;
    *out = (flim_bare_array){0};
    if (count < before || memcmp(bytes, "\x93NUMPY", 6) != 0 || bytes[6] < 1 || bytes[6] > 3) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: no header of NumPy's format 1 to 3", name);
    }
    const size_t length = short_length ? flim_u16_at(bytes + 8) : flim_u32_at(bytes + 8);
    if (length > MOST_HEADER || length > count - before) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: its header of %zu bytes reaches past the end", name, length);
    }
    memcpy(header, bytes + before, length);
    header[length] = '\0';
    out->data = before + length;
    const char *type = find_value(header, "'descr'"), *order = find_value(header, "'fortran_order'");
    const char *shape = find_value(header, "'shape'");
    if (!type || !order || !shape) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: its header lacks descr, fortran_order or shape", name);
    }
    FLIM_TRY(read_type(name, type, out, err));
    FLIM_TRY(read_shape(name, shape, out, err));
    return flim_array_set_order(name, out, strncmp(order, "True", 4) == 0, NULL, err);
}

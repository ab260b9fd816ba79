/* JSON on jansson.  A flim_json is a json_t; jansson parses and holds the values, the text is written here: shortest numbers
 * that read back the same, and lists of plain values on one line, so that splits.json can be read by people.
 *
 * A failed allocation has to be remembered without allocating.  Values here have one owner, so jansson's reference count
 * would always be 1: an object or array that lacks a child gets a second reference, which the writer and free look for.
 */
#include "formats/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/parse.h"
#include "core/text.h"
#include "core/try.h"

/* More than any file of ours needs: a splits file of ten million cells has about 80 MB. */
enum { LARGEST_FILE = 1 << 30 };

static json_t *value_of(flim_json *json)
{
    return (json_t *)(void *)json;
}

static const json_t *const_value_of(const flim_json *json)
{
    return (const json_t *)(const void *)json;
}

static flim_json *wrap(json_t *value)
{
    return (flim_json *)(void *)value;
}

static bool is_incomplete(const json_t *container)
{
    return container->refcount > 1;
}

static void mark_incomplete(json_t *container)
{
    if (!is_incomplete(container)) {
        json_incref(container);
    }
}

static bool is_whole(json_t *value)
{
    bool whole = !(json_is_object(value) || json_is_array(value)) || !is_incomplete(value);
    for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at)) {
        whole = is_whole(json_object_iter_value(at)) && whole;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        whole = is_whole(json_array_get(value, i)) && whole;
    }
    return whole;
}

bool flim_json_is_whole(const flim_json *json)
{
    return json && is_whole((json_t *)const_value_of(json));
}

static void forget_marks(json_t *value)
{
    if (json_is_object(value) || json_is_array(value)) {
        if (is_incomplete(value)) {
            json_decref(value);
        }
        for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at)) {
            forget_marks(json_object_iter_value(at));
        }
        for (size_t i = 0; i < json_array_size(value); i++) {
            forget_marks(json_array_get(value, i));
        }
    }
}

flim_json *flim_json_object(void)
{
    return wrap(json_object());
}

flim_json *flim_json_array(void)
{
    return wrap(json_array());
}

void flim_json_free(flim_json *json)
{
    if (json) {
        forget_marks(value_of(json));
        json_decref(value_of(json));
    }
}

/* ---- building */

/* NaN and infinities become null. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *string(const char *value)
{
    if (!value) {
        return json_null();
    }
    char *text = flim_utf8_of(value, NULL);
    json_t *json = text ? json_string_nocheck(text) : NULL;
    flim_free(text);
    return json;
}

/* Takes the child, which may be NULL after a failed allocation, as may the object. */
static void put(flim_json *object, const char *key, json_t *child)
{
    char *name = object && child ? flim_utf8_of(key, NULL) : NULL;
    if (!name) {
        flim_json_free(wrap(child));
    } else if (json_object_set_new_nocheck(value_of(object), name, child) == 0) {
        flim_free(name);
        return;
    }
    flim_free(name);
    if (object) {
        mark_incomplete(value_of(object));
    }
}

static void append(flim_json *array, json_t *child)
{
    if (array && child && json_array_append_new(value_of(array), child) == 0) {
        return;
    }
    if (!array) {
        flim_json_free(wrap(child));
    } else {
        mark_incomplete(value_of(array));
    }
}

void flim_json_set_number(flim_json *object, const char *key, double value)
{
    put(object, key, number(value));
}

void flim_json_set_integer(flim_json *object, const char *key, int64_t value)
{
    put(object, key, json_integer(value));
}

void flim_json_set_unsigned(flim_json *object, const char *key, uint64_t value)
{
    char text[24];
    if (value <= INT64_MAX) {
        flim_json_set_integer(object, key, (int64_t)value);
    } else {
        snprintf(text, sizeof text, "%" PRIu64, value);
        flim_json_set_string(object, key, text);
    }
}

void flim_json_set_string(flim_json *object, const char *key, const char *value)
{
    put(object, key, string(value));
}

void flim_json_set_bool(flim_json *object, const char *key, bool value)
{
    put(object, key, json_boolean(value));
}

void flim_json_set_null(flim_json *object, const char *key)
{
    put(object, key, json_null());
}

void flim_json_set(flim_json *object, const char *key, flim_json *child)
{
    put(object, key, value_of(child));
}

void flim_json_add_number(flim_json *array, double value)
{
    append(array, number(value));
}

void flim_json_add_integer(flim_json *array, int64_t value)
{
    append(array, json_integer(value));
}

void flim_json_add_string(flim_json *array, const char *value)
{
    append(array, string(value));
}

void flim_json_add(flim_json *array, flim_json *child)
{
    append(array, value_of(child));
}

/* ---- writing */

static void write_real(FILE *out, double value)
{
    char text[32];
    flim_double_text(value, text);
    fprintf(out, "%s%s", text, value == 0 && signbit(value) ? ".0" : ""); /* the integer -0 would read back as 0 */
}

static void write_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *at = text; *at;) {
        uint32_t code = 0;
        const size_t bytes = flim_utf8_length(at, &code); /* valid: the builders saw to it */
        if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else if (*at == '\n') {
            fputs("\\n", out);
        } else if (*at == '\t') {
            fputs("\\t", out);
        } else if (code <= 0xffff && flim_text_is_hidden(code)) {
            fprintf(out, "\\u%04x", (unsigned)code);
        } else {
            fwrite(at, 1, bytes ? bytes : 1, out);
        }
        at += bytes ? bytes : 1;
    }
    fputc('"', out);
}

static void start_line(FILE *out, int indent)
{
    if (indent >= 0) {
        fprintf(out, "\n%*s", 2 * indent, "");
    }
}

static bool has_containers(const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *child = json_array_get(array, i);
        if (json_is_object(child) || json_is_array(child)) {
            return true;
        }
    }
    return false;
}

/* Writes a value whose children stand `indent` levels in; indent -1 = all on one line. */
static void write_value(FILE *out, const json_t *value, int indent)
{
    int inner = indent < 0 ? -1 : indent + 1;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        fputc('{', out);
        for (void *at = json_object_iter((json_t *)value), *first = at; at; at = json_object_iter_next((json_t *)value, at)) {
            if (at != first) {
                fputs(indent < 0 ? ", " : ",", out);
            }
            start_line(out, inner);
            write_string(out, json_object_iter_key(at));
            fputs(": ", out);
            write_value(out, json_object_iter_value(at), inner);
        }
        if (json_object_size(value)) {
            start_line(out, indent);
        }
        fputc('}', out);
        break;
    case JSON_ARRAY:
        if (!has_containers(value)) {
            inner = -1;
        }
        fputc('[', out);
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (i) {
                fputs(inner < 0 ? ", " : ",", out);
            }
            start_line(out, inner);
            write_value(out, json_array_get(value, i), inner);
        }
        if (inner >= 0) {
            start_line(out, indent);
        }
        fputc(']', out);
        break;
    case JSON_STRING: write_string(out, json_string_value(value)); break;
    case JSON_INTEGER: fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); break;
    case JSON_REAL: write_real(out, json_real_value(value)); break;
    case JSON_TRUE: fputs("true", out); break;
    case JSON_FALSE: fputs("false", out); break;
    case JSON_NULL: fputs("null", out); break;
    }
}

static flim_status check_whole(const flim_json *json, const char *path, flim_error *err)
{
    return flim_json_is_whole(json) ? FLIM_OK
                                    : flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory while %s was put together", path);
}

static flim_status write_and_commit(const flim_json *json, flim_file_writer *writer, flim_error *err)
{
    write_value(writer->stream, const_value_of(json), 0);
    fputc('\n', writer->stream);
    return flim_file_commit(writer, err);
}

flim_status flim_json_write(const flim_json *json, const char *path, flim_error *err)
{
    flim_file_writer writer;
    FLIM_TRY(check_whole(json, path, err));
    FLIM_TRY(flim_file_begin(&writer, path, err));
    return write_and_commit(json, &writer, err);
}

flim_status flim_json_write_output(const flim_json *json, const flim_output *output, flim_error *err)
{
    flim_file_writer writer;
    FLIM_TRY(check_whole(json, output->path, err));
    FLIM_TRY(flim_output_begin(output, &writer, err));
    return write_and_commit(json, &writer, err);
}

char *flim_json_text(const flim_json *json)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = flim_json_is_whole(json) ? open_memstream(&text, &length) : NULL;
    if (!out) {
        return NULL;
    }
    write_value(out, const_value_of(json), -1);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

void flim_json_text_free(char *text)
{
    free(text); /* open_memstream's, not flim_alloc's */
}

/* ---- reading */

flim_status flim_json_parse(const char *text, size_t length, const char *what, flim_json **out, flim_error *err)
{
    *out = NULL;
    json_error_t problem;
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
    if (!value) {
        if (json_error_code(&problem) == json_error_out_of_memory) {
            return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory while reading %s", what);
        }
        return flim_fail(err, FLIM_ERROR_DATA, "%s:%d:%d: not valid JSON: %s", what, problem.line, problem.column,
                         problem.text);
    }
    *out = wrap(value);
    return FLIM_OK;
}

flim_status flim_json_read(const char *path, flim_json **out, flim_error *err)
{
    char *text = NULL;
    size_t length = 0;
    *out = NULL;
    FLIM_TRY(flim_file_read(path, LARGEST_FILE, &text, &length, err));
    const flim_status status = flim_json_parse(text, length, path, out, err);
    flim_free(text);
    return status;
}

static const flim_json *view(const json_t *value)
{
    return (const flim_json *)(const void *)value;
}

const flim_json *flim_json_get(const flim_json *object, const char *key)
{
    return object ? view(json_object_get(const_value_of(object), key)) : NULL;
}

bool flim_json_next(const flim_json *object, void **iterator, const char **key, const flim_json **value)
{
    json_t *json = object ? (json_t *)const_value_of(object) : NULL; /* jansson's iterators want it without const */
    *iterator = *iterator ? json_object_iter_next(json, *iterator) : json_object_iter(json);
    if (!*iterator) {
        return false;
    }
    *key = json_object_iter_key(*iterator);
    *value = view(json_object_iter_value(*iterator));
    return true;
}

bool flim_json_is_object(const flim_json *json)
{
    return json && json_is_object(const_value_of(json));
}

bool flim_json_is_array(const flim_json *json)
{
    return json && json_is_array(const_value_of(json));
}

size_t flim_json_length(const flim_json *array)
{
    return array ? json_array_size(const_value_of(array)) : 0;
}

const flim_json *flim_json_at(const flim_json *array, size_t index)
{
    return array ? view(json_array_get(const_value_of(array), index)) : NULL;
}

bool flim_json_is_null(const flim_json *json)
{
    return json && json_is_null(const_value_of(json));
}

bool flim_json_number(const flim_json *json, double *value)
{
    if (!json || !json_is_number(const_value_of(json))) {
        return false;
    }
    *value = json_number_value(const_value_of(json));
    return true;
}

bool flim_json_integer(const flim_json *json, int64_t *value)
{
    if (!json) {
        return false;
    }
    if (json_is_integer(const_value_of(json))) {
        *value = json_integer_value(const_value_of(json));
        return true;
    }
    /* 3.0 and 1e3 are whole, too; beyond 2^53 a double no longer tells. */
    double real = json_is_real(const_value_of(json)) ? json_real_value(const_value_of(json)) : NAN;
    if (!(fabs(real) <= 0x1p53) || real != floor(real)) {
        return false;
    }
    *value = (int64_t)real;
    return true;
}

bool flim_json_unsigned(const flim_json *json, uint64_t *value)
{
    const char *text = flim_json_string(json);
    int64_t whole = 0;
    if (text) {
        return flim_parse_u64("", text, value, NULL) == FLIM_OK;
    }
    if (!flim_json_integer(json, &whole) || whole < 0) {
        return false;
    }
    *value = (uint64_t)whole;
    return true;
}

const char *flim_json_string(const flim_json *json)
{
    return json ? json_string_value(const_value_of(json)) : NULL;
}

bool flim_json_boolean(const flim_json *json, bool *value)
{
    if (!json || !json_is_boolean(const_value_of(json))) {
        return false;
    }
    *value = json_is_true(const_value_of(json));
    return true;
}

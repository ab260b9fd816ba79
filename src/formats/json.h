/* JSON values: a thin cover over jansson, so that only src/formats/ knows it.
 *
 * For: splits.json, summary.json, environment.json, --json outputs and their readers.  NaN and infinities become null: JSON
 *      has neither.  Objects keep the order in which keys were set.
 * Owns: the caller owns what it creates or parses until it puts it into a parent, which then owns it.
 * Errors: builders never fail at once; a failed allocation is remembered: flim_json_is_whole, and FLIM_ERROR_MEMORY of
 *      flim_json_write.  Parsing: FLIM_ERROR_DATA with file, line and column.
 */
#ifndef FLIM_JSON_H
#define FLIM_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/output.h"
#include "flim/status.h"

typedef struct flim_json flim_json;

flim_json *flim_json_object(void);
flim_json *flim_json_array(void);
void flim_json_free(flim_json *json); /* NULL is allowed */

void flim_json_set_number(flim_json *object, const char *key, double value);
void flim_json_set_integer(flim_json *object, const char *key, int64_t value);
/* As an integer if an int64_t holds it, else as text: seeds have 64 bits. */
void flim_json_set_unsigned(flim_json *object, const char *key, uint64_t value);
void flim_json_set_string(flim_json *object, const char *key,
                          const char *value); /* NULL = null; bytes that are no UTF-8 are taken as Latin-1 */
void flim_json_set_bool(flim_json *object, const char *key, bool value);
void flim_json_set_null(flim_json *object, const char *key);
void flim_json_set(flim_json *object, const char *key, flim_json *child);
void flim_json_add_number(flim_json *array, double value);
void flim_json_add_integer(flim_json *array, int64_t value);
void flim_json_add_string(flim_json *array, const char *value);
void flim_json_add(flim_json *array, flim_json *child);

/* False if an allocation failed while the value was built; of NULL too. */
bool flim_json_is_whole(const flim_json *json);

/* Writes indented text (lists of plain values on one line, numbers as short as they read back the same), atomically
 * (temp file, fsync, rename).  Frees nothing. */
flim_status flim_json_write(const flim_json *json, const char *path, flim_error *err);
/* The same into a file whose path a user gave. */
flim_status flim_json_write_output(const flim_json *json, const flim_output *output, flim_error *err);
/* One line of text for logs; the caller frees it with flim_json_text_free. NULL when out of memory. */
char *flim_json_text(const flim_json *json);
void flim_json_text_free(char *text);

/* Reading.  Views returned by get/at belong to the parsed root and must not be freed. */
flim_status flim_json_read(const char *path, flim_json **out, flim_error *err);
flim_status flim_json_parse(const char *text, size_t length, const char *what, flim_json **out, flim_error *err);
const flim_json *flim_json_get(const flim_json *object, const char *key); /* NULL if absent; all take NULL */
/* Walks an object's keys in their order: start with *iterator = NULL; false after the last one. */
bool flim_json_next(const flim_json *object, void **iterator, const char **key, const flim_json **value);
bool flim_json_is_object(const flim_json *json);
bool flim_json_is_array(const flim_json *json);
size_t flim_json_length(const flim_json *array); /* 0 for what is no array */
const flim_json *flim_json_at(const flim_json *array, size_t index);
bool flim_json_is_null(const flim_json *json);
bool flim_json_number(const flim_json *json, double *value); /* false if it is no number */
bool flim_json_integer(const flim_json *json, int64_t *value); /* false if it is no whole number */
bool flim_json_unsigned(const flim_json *json,
                        uint64_t *value); /* as set_unsigned writes it; false if it is something else */
const char *flim_json_string(const flim_json *json); /* NULL if it is no string */
bool flim_json_boolean(const flim_json *json, bool *value);

#endif

/* Changing values of a YAML file in place: every byte that is no value of a named key stays. */
#include "formats/yaml.h"

#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "core/try.h"
#include "core/alloc.h"
#include "core/text.h"

/* A value's bytes in the text; length 0 at `begin` for `key:` without one. */
typedef struct span {
    size_t begin, end;
    bool found;
    bool is_block; /* after | or >: its lines are its form */
} span;

/* libyaml counts characters. */
static size_t byte_of(const char *text, size_t length, size_t character)
{
    size_t at = 0;
    while (character > 0 && at < length) {
        size_t bytes = flim_utf8_length(text + at, NULL);
        at += bytes ? bytes : 1;
        character--;
    }
    return at;
}

/* Finds the values of the top map's keys; the text is valid: flim_yaml_parse took it. */
static flim_status find_values(const char *text, size_t length, const char *name, const flim_yaml_change *change, int n,
                               span *where, flim_error *err)
{
    yaml_parser_t parser;
    yaml_event_t event;
    const size_t mark = flim_utf8_mark(text, length);
    const char *at = text + mark;
    length -= mark;
    int depth = 0, match = -1;
    bool done = false, key = true;
    if (!yaml_parser_initialize(&parser)) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory while reading %s", name);
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)at, length);
    while (!done && yaml_parser_parse(&parser, &event)) {
        const yaml_event_type_t type = event.type;
        const bool opens = type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
        depth -= type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT;
        if (depth == 1 && type == YAML_SCALAR_EVENT && key) {
            match = -1;
            for (int i = 0; i < n; i++) {
                match = strcmp((const char *)event.data.scalar.value, change[i].key) == 0 ? i : match;
            }
            key = false;
        } else if (depth == 1 && (type == YAML_SCALAR_EVENT || opens) && !key) {
            if (match >= 0 && type == YAML_SCALAR_EVENT) {
                const yaml_scalar_style_t style = event.data.scalar.style;
                where[match] = (span){mark + byte_of(at, length, event.start_mark.index),
                                      mark + byte_of(at, length, event.end_mark.index), true,
                                      style == YAML_LITERAL_SCALAR_STYLE || style == YAML_FOLDED_SCALAR_STYLE};
            }
            key = true;
        }
        depth += opens;
        done = type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return FLIM_OK;
}

/* Every key that is to change stands in the file, in a form that can be; all that are missing are named at once. */
static flim_status check_found(const char *name, const flim_yaml_change *change, int n, const span *where, flim_error *err)
{
    char keys[256] = "", lines[512] = "";
    int missing = 0;
    for (int i = 0; i < n; i++) {
        if (where[i].found && where[i].is_block) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s: '%s' stands in a form that cannot be changed in place; write '%s: %s'", name, change[i].key,
                             change[i].key, change[i].value);
        }
        if (!where[i].found) {
            const size_t a = strlen(keys), b = strlen(lines);
            snprintf(keys + a, sizeof keys - a, "%s'%s'", a ? ", " : "", change[i].key);
            snprintf(lines + b, sizeof lines - b, "%s'%s: %s'", b ? ", " : "", change[i].key, change[i].value);
            missing++;
        }
    }
    return missing == 0 ? FLIM_OK
                        : flim_fail(err, FLIM_ERROR_USAGE, "%s has no key%s %s to change; add the line%s %s to it", name,
                                    missing == 1 ? "" : "s", keys, missing == 1 ? "" : "s", lines);
}

flim_status flim_yaml_change_values(const char *text, size_t length, const char *name, const flim_yaml_change *change, int n,
                                    char **out, flim_error *err)
{
    enum { MOST = 16 };
    flim_yaml parsed;
    span where[MOST] = {{0}};
    *out = NULL;
    if (n > MOST) {
        return flim_fail(err, FLIM_ERROR, "internal: %d changes of a config at once", n);
    }
    FLIM_TRY(flim_yaml_parse(text, length, name, &parsed, err));
    flim_yaml_free(&parsed);
    FLIM_TRY(find_values(text, length, name, change, n, where, err));
    FLIM_TRY(check_found(name, change, n, where, err));
    size_t most = length + 1;
    for (int i = 0; i < n; i++) {
        most += strlen(change[i].value) + 1;
    }
    char *result = flim_alloc(most, 1, err);
    if (!result) {
        return FLIM_ERROR_MEMORY;
    }
    size_t from = 0, to = 0;
    for (;;) { /* the next value in the order of the text */
        int next = -1;
        for (int i = 0; i < n; i++) {
            if (where[i].found && (next < 0 || where[i].begin < where[next].begin)) {
                next = i;
            }
        }
        const size_t until = next < 0 ? length : where[next].begin;
        memcpy(result + to, text + from, until - from);
        to += until - from;
        if (next < 0) {
            break;
        }
        if (where[next].begin == where[next].end && to > 0 && result[to - 1] == ':') {
            result[to++] = ' ';
        }
        const size_t bytes = strlen(change[next].value);
        memcpy(result + to, change[next].value, bytes);
        to += bytes;
        from = where[next].end;
        where[next].found = false;
    }
    result[to] = '\0';
    *out = result;
    return FLIM_OK;
}

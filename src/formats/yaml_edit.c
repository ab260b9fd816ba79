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

enum { MOST = 16 };

/* Where the values of the keys that are to change stand, and where the top map ends. */
typedef struct places {
    span where[MOST];
    size_t end; /* byte behind its last line, or of its brace */
    bool is_flow, is_empty; /* in braces; without a key */
    size_t column; /* of its keys */
} places;

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
                               places *out, flim_error *err)
{
    span *where = out->where;
    *out = (places){.end = length, .is_empty = true};
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
        if (depth == 0 && type == YAML_MAPPING_START_EVENT) {
            out->is_flow = event.data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
        } else if (depth == 0 && type == YAML_MAPPING_END_EVENT) {
            out->end = mark + byte_of(at, length, event.start_mark.index);
        } else if (depth == 1 && type == YAML_SCALAR_EVENT && key) {
            out->column = out->is_empty ? event.start_mark.column : out->column;
            out->is_empty = false;
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

/* What is to change stands in a form that can be. */
static flim_status check_found(const char *name, const flim_yaml_change *change, int n, const span *where, flim_error *err)
{
    for (int i = 0; i < n; i++) {
        if (where[i].found && where[i].is_block) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s: '%s' is written in a form that cannot be changed in place; write '%s: %s'", name,
                             change[i].key, change[i].key, change[i].value);
        }
    }
    return FLIM_OK;
}

/* Puts `bytes` of text behind what `result` holds. */
static void put(char *result, size_t *to, const char *text, size_t bytes)
{
    memcpy(result + *to, text, bytes);
    *to += bytes;
}

/* Adds the keys that the top map lacks, which ends here. */
static void put_missing(char *result, size_t *to, const places *p, const bool *missing, const flim_yaml_change *change, int n,
                        const char *line_end)
{
    bool first = p->is_empty;
    for (int i = 0; i < n; i++) {
        if (!missing[i]) {
            continue;
        }
        if (p->is_flow) {
            put(result, to, ", ", first ? 0 : 2);
        } else {
            if (*to > 0 && result[*to - 1] != '\n') {
                put(result, to, line_end, strlen(line_end));
            }
            memset(result + *to, ' ', p->column);
            *to += p->column;
        }
        put(result, to, change[i].key, strlen(change[i].key));
        put(result, to, ": ", 2);
        put(result, to, change[i].value, strlen(change[i].value));
        put(result, to, line_end, p->is_flow ? 0 : strlen(line_end));
        first = false;
    }
}

flim_status flim_yaml_change_values(const char *text, size_t length, const char *name, const flim_yaml_change *change, int n,
                                    char **out, flim_error *err)
{
    flim_yaml parsed;
    places p;
    bool missing[MOST] = {false};
    *out = NULL;
    if (n > MOST) {
        return flim_fail(err, FLIM_ERROR, "internal: %d changes of a config at once", n);
    }
    FLIM_TRY(flim_yaml_parse(text, length, name, &parsed, err));
    flim_yaml_free(&parsed);
    FLIM_TRY(find_values(text, length, name, change, n, &p, err));
    FLIM_TRY(check_found(name, change, n, p.where, err));
    size_t most = length + 1;
    for (int i = 0; i < n; i++) {
        missing[i] = !p.where[i].found;
        most += strlen(change[i].key) + strlen(change[i].value) + p.column + 8; /* colon, blank, comma, ends of two lines */
    }
    char *result = flim_alloc(most, 1, err);
    if (!result) {
        return FLIM_ERROR_MEMORY;
    }
    size_t from = 0, to = 0;
    for (;;) { /* the next value in the order of the text */
        int next = -1;
        for (int i = 0; i < n; i++) {
            if (p.where[i].found && (next < 0 || p.where[i].begin < p.where[next].begin)) {
                next = i;
            }
        }
        const size_t until = next < 0 ? p.end : p.where[next].begin;
        put(result, &to, text + from, until - from);
        if (next < 0) {
            break;
        }
        if (p.where[next].begin == p.where[next].end && to > 0 && result[to - 1] == ':') {
            result[to++] = ' ';
        }
        put(result, &to, change[next].value, strlen(change[next].value));
        from = p.where[next].end;
        p.where[next].found = false;
    }
    put_missing(result, &to, &p, missing, change, n, strstr(text, "\r\n") ? "\r\n" : "\n");
    put(result, &to, text + p.end, length - p.end);
    result[to] = '\0';
    *out = result;
    return FLIM_OK;
}

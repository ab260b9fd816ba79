/* Changing settings of the items of a config's list (stages:), in place: every byte that is no such value stays. */
#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"
#include "formats/yaml.h"

enum { MOST = 256 }; /* changes at once */

/* Bytes of the text that another text takes the place of. */
typedef struct edit {
    size_t begin, end;
    char with[160];
} edit;

/* The item of the list that the parser is in. */
typedef struct item {
    int number; /* 0-based; -1 = none yet */
    bool is_map, is_flow, has_key;
    size_t column; /* of its keys */
    size_t end; /* byte behind its last value so far */
} item;

typedef struct editor {
    const char *text;
    size_t length, mark; /* bytes; of a byte-order mark before what libyaml sees */
    const char *name;
    const flim_yaml_item_change *change;
    int n;
    bool done[MOST]; /* the value stood there */
    edit edit[2 * MOST]; /* in the order of the text */
    int n_edits;
    const char *line_end;
} editor;

/* libyaml counts characters. */
static size_t byte_of(const editor *e, size_t character)
{
    size_t at = e->mark;
    while (character > 0 && at < e->length) {
        const size_t bytes = flim_utf8_length(e->text + at, NULL);
        at += bytes ? bytes : 1;
        character--;
    }
    return at;
}

static flim_status cannot(const editor *e, const flim_yaml_item_change *c, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_USAGE,
                     "%s: item %d of the list is written in a form that cannot be changed in place; give it '%s: %s'",
                     e->name, c->item + 1, c->key, c->value);
}

static flim_status add_edit(editor *e, size_t begin, size_t end, const char *before, const flim_yaml_item_change *c,
                            const char *after, flim_error *err)
{
    edit *to = &e->edit[e->n_edits++];
    to->begin = begin;
    to->end = end;
    const int used = snprintf(to->with, sizeof to->with, "%s%s%s", before, c->value, after);
    return used >= 0 && (size_t)used < sizeof to->with ? FLIM_OK : cannot(e, c, err);
}

/* ---- an item of words: "fine epochs=2 batch=8" */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '"' || c == '\'';
}

/* The scalar in the bytes [begin, end), with its quotes. */
static flim_status edit_words(editor *e, int number, size_t begin, size_t end, bool is_block, bool is_quoted, flim_error *err)
{
    const size_t close = is_quoted && end > begin ? end - 1 : end;
    for (int i = 0; i < e->n; i++) {
        const flim_yaml_item_change *c = &e->change[i];
        const size_t bytes = strlen(c->key);
        size_t at = begin;
        if (c->item != number) {
            continue;
        }
        if (is_block) {
            return cannot(e, c, err);
        }
        while (at + bytes < close && !((at == begin || is_blank(e->text[at - 1])) &&
                                       memcmp(e->text + at, c->key, bytes) == 0 && e->text[at + bytes] == '=')) {
            at++;
        }
        if (at + bytes < close) {
            size_t last = at += bytes + 1;
            while (last < close && !is_blank(e->text[last])) {
                last++;
            }
            FLIM_TRY(add_edit(e, at, last, "", c, "", err));
        } else {
            char word[80];
            snprintf(word, sizeof word, " %.60s=", c->key);
            FLIM_TRY(add_edit(e, close, close, word, c, "", err));
        }
        e->done[i] = true;
    }
    return FLIM_OK;
}

/* ---- an item that is a map */

/* The keys that it lacks, at its end: before its brace, or on lines of their own behind its last value. */
static flim_status add_missing(editor *e, const item *in, size_t brace, flim_error *err)
{
    size_t at = in->is_flow ? brace : in->end;
    const bool is_line = at > 0 && e->text[at - 1] == '\n'; /* its last value ends with its line */
    while (!in->is_flow && !is_line && at < e->length && e->text[at] != '\n' && e->text[at] != '\r') {
        at++; /* a comment behind it stays there */
    }
    bool first = !in->has_key;
    for (int i = 0; i < e->n; i++) {
        const flim_yaml_item_change *c = &e->change[i];
        char before[128];
        if (c->item != in->number || e->done[i]) {
            continue;
        }
        if (in->is_flow) {
            snprintf(before, sizeof before, "%s%.60s: ", first ? "" : ", ", c->key);
        } else {
            snprintf(before, sizeof before, "%s%*s%.60s: ", is_line ? "" : e->line_end,
                     (int)(in->column < 40 ? in->column : 40), "", c->key);
        }
        FLIM_TRY(add_edit(e, at, at, before, c, is_line && !in->is_flow ? e->line_end : "", err));
        e->done[i] = true;
        first = false;
    }
    return FLIM_OK;
}

/* ---- the whole */

/* What an event means depends on how deep it is: 1 in the config's map, 2 in the list, 3 in an item. */
static flim_status walk(editor *e, const char *list, yaml_parser_t *parser, flim_error *err)
{
    yaml_event_t event;
    item in = {.number = -1};
    int depth = 0, match = -1;
    bool top_key = true, key = true, in_list = false, done = false;
    flim_status status = FLIM_OK;
    while (!done && status == FLIM_OK && yaml_parser_parse(parser, &event)) {
        const yaml_event_type_t type = event.type;
        const bool opens = type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
        const bool closes = type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT;
        const bool scalar = type == YAML_SCALAR_EVENT;
        const size_t begin = byte_of(e, event.start_mark.index), end = byte_of(e, event.end_mark.index);
        const yaml_scalar_style_t style = scalar ? event.data.scalar.style : YAML_ANY_SCALAR_STYLE;
        const bool is_block = style == YAML_LITERAL_SCALAR_STYLE || style == YAML_FOLDED_SCALAR_STYLE;
        const bool is_quoted = style == YAML_SINGLE_QUOTED_SCALAR_STYLE || style == YAML_DOUBLE_QUOTED_SCALAR_STYLE;
        depth -= closes;
        if (depth == 1 && scalar && top_key) {
            in_list = strcmp((const char *)event.data.scalar.value, list) == 0;
            top_key = false;
        } else if (depth == 1 && (scalar || opens)) {
            if (in_list && scalar) { /* a list of one item */
                status = edit_words(e, ++in.number, begin, end, is_block, is_quoted, err);
            }
            top_key = true;
        } else if (depth == 1 && closes) {
            in_list = false;
        } else if (depth == 2 && in_list && scalar) {
            status = edit_words(e, ++in.number, begin, end, is_block, is_quoted, err);
        } else if (depth == 2 && in_list && type == YAML_MAPPING_START_EVENT) {
            in = (item){.number = in.number + 1,
                        .is_map = true,
                        .is_flow = event.data.mapping_start.style == YAML_FLOW_MAPPING_STYLE};
            key = true;
        } else if (depth == 2 && in_list && type == YAML_MAPPING_END_EVENT) {
            status = add_missing(e, &in, begin, err);
        } else if (depth == 3 && in_list && scalar && key) {
            in.column = in.has_key ? in.column : event.start_mark.column;
            in.has_key = true;
            match = -1;
            for (int i = 0; i < e->n; i++) {
                match = e->change[i].item == in.number && strcmp((const char *)event.data.scalar.value, e->change[i].key) == 0
                            ? i
                            : match;
            }
            in.end = end;
            key = false;
        } else if (depth == 3 && in_list && scalar) { /* an item holds nothing deeper: flim_yaml_parse took it */
            if (match >= 0 && !is_block) {
                const bool bare = begin == end && begin > 0 && e->text[begin - 1] == ':'; /* `key:` without a value */
                status = add_edit(e, begin, end, bare ? " " : "", &e->change[match], "", err);
                e->done[match] = true;
            } else if (match >= 0) {
                status = cannot(e, &e->change[match], err);
            }
            in.end = end;
            key = true;
        }
        depth += opens;
        done = type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    return status;
}

/* In the order of the text; those at one place stay in theirs. */
static void sort_edits(editor *e)
{
    for (int i = 1; i < e->n_edits; i++) {
        const edit one = e->edit[i];
        int at = i;
        for (; at > 0 && e->edit[at - 1].begin > one.begin; at--) {
            e->edit[at] = e->edit[at - 1];
        }
        e->edit[at] = one;
    }
}

static char *apply_edits(const editor *e, flim_error *err)
{
    size_t bytes = e->length + 1, from = 0, to = 0;
    for (int i = 0; i < e->n_edits; i++) {
        bytes += strlen(e->edit[i].with);
    }
    char *out = flim_alloc(bytes, 1, err);
    for (int i = 0; out && i <= e->n_edits; i++) {
        const edit *at = i < e->n_edits ? &e->edit[i] : NULL;
        const size_t until = at ? at->begin : e->length, length = at ? strlen(at->with) : 0;
        memcpy(out + to, e->text + from, until - from);
        memcpy(out + to + (until - from), at ? at->with : "", length);
        to += until - from + length;
        from = at ? at->end : until;
    }
    return out; /* zeroed memory: it ends with a zero */
}

/* The new text, read as a config is, has the values. */
static flim_status check_result(const editor *e, const char *list, const char *result, flim_error *err)
{
    flim_yaml parsed;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_yaml_parse(result, strlen(result), e->name, &parsed, err));
    for (int i = 0; i < e->n && status == FLIM_OK; i++) {
        const flim_yaml_item_change *c = &e->change[i];
        bool found = false;
        for (int k = 0; k < parsed.n; k++) {
            const flim_yaml_entry *entry = &parsed.entry[k];
            if (strcmp(entry->key, list) == 0 && c->item < entry->value.n) {
                char words[1100], word[160];
                snprintf(words, sizeof words, " %.1024s ", entry->value.item[c->item]);
                snprintf(word, sizeof word, " %.60s=%.80s ", c->key, c->value);
                found = strstr(words, word) != NULL;
            }
        }
        status = found ? FLIM_OK : cannot(e, c, err);
    }
    flim_yaml_free(&parsed);
    return status;
}

flim_status flim_yaml_change_items(const char *text, size_t length, const char *name, const char *list,
                                   const flim_yaml_item_change *change, int n, char **out, flim_error *err)
{
    yaml_parser_t parser;
    flim_yaml parsed;
    flim_status status = FLIM_OK;
    char *result = NULL;
    *out = NULL;
    if (n > MOST) {
        return flim_fail(err, FLIM_ERROR, "internal: %d changes of a list at once", n);
    }
    FLIM_TRY(flim_yaml_parse(text, length, name, &parsed, err)); /* one map without what only libyaml would take */
    flim_yaml_free(&parsed);
    editor *e = flim_alloc(1, sizeof *e, err);
    if (!e) {
        return FLIM_ERROR_MEMORY;
    }
    *e = (editor){.text = text,
                  .length = length,
                  .mark = flim_utf8_mark(text, length),
                  .name = name,
                  .change = change,
                  .n = n,
                  .line_end = strstr(text, "\r\n") ? "\r\n" : "\n"};
    if (!yaml_parser_initialize(&parser)) {
        flim_free(e);
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory while reading %s", name);
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text + e->mark, length - e->mark);
    FLIM_TRY_DONE(walk(e, list, &parser, err));
    sort_edits(e);
    result = apply_edits(e, err);
    FLIM_TRY_DONE(result ? check_result(e, list, result, err) : FLIM_ERROR_MEMORY);
    *out = result;
    result = NULL;
done:
    flim_free(result);
    yaml_parser_delete(&parser);
    flim_free(e);
    return status;
}

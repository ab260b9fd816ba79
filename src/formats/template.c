#include "formats/template.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/try.h"

enum { NAME_LENGTH = 64 };

/* What names are looked up in: the item of a section, inside that of the section around it. */
typedef struct scope {
    const struct scope *outer;
    const flim_json *value;
    bool item, first; /* of an array */
} scope;

typedef struct renderer {
    const flim_template_set *set;
    FILE *stream;
    const flim_template *file;
    flim_error *err;
} renderer;

typedef struct tag {
    char kind; /* '#', '^', '/', '>', '!', '{', or 'v' for a value */
    char name[NAME_LENGTH];
    const char *format; /* what follows a colon, "" without one */
    const char *begin, *end; /* in the template, its line with it if it is alone there */
} tag;

static flim_status fault(const renderer *r, const char *what, const char *name)
{
    return flim_fail(r->err, FLIM_ERROR, "template %s: %s '%s'", r->file ? r->file->name : "(none)", what, name);
}

/* ---- tags */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Widens a tag that is alone on its line to the whole line. */
static void take_line(const renderer *r, tag *t)
{
    const char *text = (const char *)r->file->text, *begin = t->begin, *end = t->end;
    while (begin > text && is_blank(begin[-1])) {
        begin--;
    }
    while (is_blank(*end)) {
        end++;
    }
    if ((begin == text || begin[-1] == '\n') && *end == '\n') {
        t->begin = begin;
        t->end = end + 1;
    }
}

/* The next tag from `at`; t->kind = 0 if there is none before `end`. */
static flim_status next_tag(const renderer *r, const char *at, const char *end, tag *t)
{
    *t = (tag){.begin = strstr(at, "{{"), .format = ""};
    if (!t->begin || t->begin >= end) {
        return FLIM_OK;
    }
    const char *name = t->begin + 2;
    t->kind = strchr("#^/>!{", *name) ? *name++ : 'v';
    const char *close = t->kind == '{' ? "}}}" : "}}";
    t->end = strstr(name, close);
    if (!t->end) {
        return fault(r, "not closed:", name);
    }
    if (t->kind != '!') {
        snprintf(t->name, sizeof t->name, "%.*s", (int)(t->end - name), name);
        char *colon = strchr(t->name, ':');
        if (colon) {
            *colon = '\0';
            t->format = colon + 1;
        }
    }
    t->end += strlen(close);
    if (strchr("#^/>!", t->kind)) {
        take_line(r, t);
    }
    return FLIM_OK;
}

/* The tag that closes the section `open`. */
static flim_status find_close(const renderer *r, const tag *open, const char *end, tag *close)
{
    int depth = 1;
    const char *at = open->end;
    while (depth > 0) {
        FLIM_TRY(next_tag(r, at, end, close));
        if (!close->kind) {
            return fault(r, "no end of section", open->name);
        }
        if (strcmp(close->name, open->name) == 0) {
            depth += close->kind == '#' || close->kind == '^';
            depth -= close->kind == '/';
        }
        at = close->end;
    }
    return FLIM_OK;
}

/* ---- values */

static flim_status look_up(const renderer *r, const scope *s, const char *name, const flim_json **out)
{
    *out = s->value;
    if (strcmp(name, ".") == 0) {
        return FLIM_OK;
    }
    for (; s; s = s->outer) {
        *out = flim_json_is_object(s->value) ? flim_json_get(s->value, name) : NULL;
        if (*out) {
            return FLIM_OK;
        }
    }
    return fault(r, "no value", name);
}

static bool is_true(const flim_json *value)
{
    const char *text = flim_json_string(value);
    bool boolean;
    return text                                 ? text[0] != '\0'
           : flim_json_is_array(value)          ? flim_json_length(value) > 0
           : flim_json_boolean(value, &boolean) ? boolean
                                                : !flim_json_is_null(value);
}

/* A number as format has it: [+][.]digits[g]. */
static void write_number(FILE *stream, const char *format, double value)
{
    const bool sign = *format == '+', significant = format[strlen(format) - 1] == 'g';
    const int digits = (int)strtol(format + strspn(format, "+."), NULL, 10);
    if (significant) {
        fprintf(stream, "%.*g", digits, value);
    } else {
        fprintf(stream, sign ? "%+.*f" : "%.*f", digits, value);
    }
}

static flim_status write_value(const renderer *r, const tag *t, const scope *s)
{
    const flim_json *value;
    int64_t whole;
    double number;
    FLIM_TRY(look_up(r, s, t->name, &value));
    const char *text = flim_json_string(value);
    if (text && t->kind == '{') {
        fputs(text, r->stream);
    } else if (text) {
        r->set->escape(r->stream, text);
    } else if (flim_json_is_null(value)) {
        fputs(r->set->undefined, r->stream);
    } else if (t->format[0] && flim_json_number(value, &number)) {
        write_number(r->stream, t->format, number);
    } else if (flim_json_integer(value, &whole)) {
        fprintf(r->stream, "%" PRId64, whole);
    } else {
        return fault(r, "neither a text nor a whole number:", t->name);
    }
    return FLIM_OK;
}

/* ---- writing */

/* Text between tags, with lines joined. */
static void write_text(FILE *stream, const char *at, const char *end)
{
    for (; at < end; at++) {
        if (at[0] == '\\' && at[1] == '\n') {
            for (at++; at + 1 < end && is_blank(at[1]);) {
                at++;
            }
        } else {
            putc(*at, stream);
        }
    }
}

static flim_status write_part(const renderer *r, const char *at, const char *end, const scope *s);

static flim_status write_section(const renderer *r, const tag *open, const tag *close, const scope *s)
{
    const flim_json *value = NULL;
    bool wanted;
    if (strcmp(open->name, "@first") == 0) {
        const scope *item = s;
        while (item && !item->item) {
            item = item->outer;
        }
        wanted = (item && item->first) == (open->kind == '#');
        return wanted ? write_part(r, open->end, close->begin, s) : FLIM_OK;
    }
    FLIM_TRY(look_up(r, s, open->name, &value));
    if (open->kind == '^') {
        return is_true(value) ? FLIM_OK : write_part(r, open->end, close->begin, s);
    }
    for (size_t i = 0; i < flim_json_length(value); i++) {
        const scope inner = {s, flim_json_at(value, i), .item = true, .first = i == 0};
        FLIM_TRY(write_part(r, open->end, close->begin, &inner));
    }
    const scope inner = {s, value, .item = false};
    return is_true(value) && !flim_json_is_array(value) ? write_part(r, open->end, close->begin, &inner) : FLIM_OK;
}

/* name: of a file, or *KEY: of the value that holds it. */
static flim_status write_file(const renderer *r, const char *name, const scope *s)
{
    if (name[0] == '*') {
        const flim_json *value = NULL;
        FLIM_TRY(look_up(r, s, name + 1, &value));
        const char *text = flim_json_string(value);
        return text && text[0] != '*' ? write_file(r, text, s) : fault(r, "no name of a template:", name);
    }
    for (size_t i = 0; i < r->set->n; i++) {
        if (strcmp(r->set->file[i].name, name) == 0) {
            const renderer inner = {r->set, r->stream, &r->set->file[i], r->err};
            const char *text = (const char *)inner.file->text;
            return write_part(&inner, text, text + strlen(text), s);
        }
    }
    return flim_fail(r->err, FLIM_ERROR, "there is no template '%s'", name);
}

/* The text from `at` to `end`, which holds whole sections. */
static flim_status write_part(const renderer *r, const char *at, const char *end, const scope *s)
{
    tag t, close;
    for (;;) {
        FLIM_TRY(next_tag(r, at, end, &t));
        write_text(r->stream, at, t.kind ? t.begin : end);
        if (!t.kind) {
            return FLIM_OK;
        }
        at = t.end;
        if (t.kind == '#' || t.kind == '^') {
            FLIM_TRY(find_close(r, &t, end, &close));
            FLIM_TRY(write_section(r, &t, &close, s));
            at = close.end;
        } else if (t.kind == '>') {
            FLIM_TRY(write_file(r, t.name, s));
        } else if (t.kind == '/') {
            return fault(r, "no section begins for", t.name);
        } else if (t.kind != '!') {
            FLIM_TRY(write_value(r, &t, s));
        }
    }
}

flim_status flim_template_write(const flim_template_set *set, const char *name, const flim_json *values, FILE *stream,
                                flim_error *err)
{
    const renderer r = {set, stream, NULL, err};
    const scope outermost = {NULL, values, .item = false};
    if (!flim_json_is_whole(values)) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory while %s was put together", name);
    }
    return write_file(&r, name, &outermost);
}

#include "formats/yaml.h"

#include <string.h>
#include <strings.h>

#include <yaml.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/text.h"
#include "core/try.h"

/* Far above any config; they bound what a wrong file costs. */
enum { LARGEST_FILE = 1 << 20, MOST_KEYS = 1000 };

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    bool has_event;
    const char *name; /* of the file, for errors */
    const char *text;
    size_t length;
    flim_yaml *out;
    flim_error *err;
} reader;

static int line_of(const reader *r)
{
    return (int)r->event.start_mark.line + 1;
}

/* libyaml's own complaint, with its place. */
static flim_status syntax_error(const reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) {
        return flim_fail(r->err, FLIM_ERROR_MEMORY, "out of host memory while reading %s", r->name);
    }
    if (p->error == YAML_READER_ERROR) {
        size_t line = 1;
        for (size_t i = 0; i < p->problem_offset && i < r->length; i++) {
            line += r->text[i] == '\n';
        }
        return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%zu: not valid YAML: %s", r->name, line, p->problem);
    }
    size_t line = p->problem_mark.line + 1, at = p->problem_mark.index;
    if (at < r->length && r->text[at] == '\t') {
        return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%zu: a tab: YAML wants blanks there", r->name, line);
    }
    return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%zu: not valid YAML: %s%s%s", r->name, line, p->context ? p->context : "",
                     p->context ? ", " : "", p->problem ? p->problem : "cannot be read");
}

static void drop_event(reader *r)
{
    if (r->has_event) {
        yaml_event_delete(&r->event);
        r->has_event = false;
    }
}

/* Moves on to the next event and refuses what no config may hold. */
static flim_status next(reader *r)
{
    drop_event(r);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        return syntax_error(r);
    }
    r->has_event = true;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (r->event.type) {
    case YAML_SCALAR_EVENT:
        anchor = r->event.data.scalar.anchor;
        tag = r->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = r->event.data.sequence_start.anchor;
        tag = r->event.data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = r->event.data.mapping_start.anchor;
        tag = r->event.data.mapping_start.tag;
        break;
    case YAML_ALIAS_EVENT: anchor = r->event.data.alias.anchor; break;
    default: break;
    }
    if (anchor) {
        return flim_fail(
            r->err, FLIM_ERROR_USAGE,
            "%s:%d: the anchor or alias '%.40s': a config uses neither; for a text that begins with %s, put it in quotes",
            r->name, line_of(r), (const char *)anchor, r->event.type == YAML_ALIAS_EVENT ? "*" : "&");
    }
    if (tag) {
        return flim_fail(r->err, FLIM_ERROR_USAGE,
                         "%s:%d: the tag '%.40s': a config has none; for a text that begins with !, put it in quotes",
                         r->name, line_of(r), (const char *)tag);
    }
    return FLIM_OK;
}

/* The scalar of the current event, checked for zero bytes, which C texts cannot hold. */
static flim_status scalar(const reader *r, const char **text)
{
    *text = (const char *)r->event.data.scalar.value;
    if (strlen(*text) != r->event.data.scalar.length) {
        return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: a zero byte in a text", r->name, line_of(r));
    }
    return FLIM_OK;
}

static bool is_null(const yaml_event_t *event, const char *text)
{
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text[0] == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}

/* A new entry, the last one, for the key of the current event. */
static flim_status begin_entry(reader *r)
{
    const char *key;
    flim_yaml *out = r->out;
    if (r->event.type != YAML_SCALAR_EVENT) {
        return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: a key must be a word, as in 'batch: 64'", r->name, line_of(r));
    }
    FLIM_TRY(scalar(r, &key));
    for (int i = 0; i < out->n; i++) {
        if (strcmp(out->entry[i].key, key) == 0) {
            return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: the key '%.80s' is already set in line %d", r->name,
                             line_of(r), key, out->entry[i].line);
        }
    }
    if (out->n == MOST_KEYS) {
        return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: more than %d keys: this is not a config", r->name, line_of(r),
                         MOST_KEYS);
    }
    flim_yaml_entry *grown = flim_realloc(out->entry, (size_t)out->n + 1, sizeof *grown, r->err);
    if (!grown) {
        return FLIM_ERROR_MEMORY;
    }
    out->entry = grown;
    grown[out->n] = (flim_yaml_entry){.key = flim_strdup(key, r->err), .line = line_of(r)};
    if (!grown[out->n].key) {
        return FLIM_ERROR_MEMORY;
    }
    out->n++;
    return FLIM_OK;
}

/* A map in the list `stages:`, as a text "key=value key=value". */
static flim_status read_stage(reader *r, flim_yaml_entry *entry)
{
    char text[512] = "";
    size_t used = 0;
    bool key = true;
    for (;;) {
        const char *word;
        FLIM_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) {
            return flim_string_list_add(&entry->value, text, r->err);
        }
        if (r->event.type != YAML_SCALAR_EVENT) {
            return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: a stage may only have 'key: value'", r->name, line_of(r));
        }
        FLIM_TRY(scalar(r, &word));
        int wrote = snprintf(text + used, sizeof text - used, "%s%s", key ? (used ? " " : "") : "=", word);
        if (strpbrk(word, " \t=") || wrote < 0 || (size_t)wrote >= sizeof text - used) {
            return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: '%.80s': a stage has short words without blanks or =", r->name,
                             line_of(r), word);
        }
        used += (size_t)wrote;
        key = !key;
    }
}

/* The keys of a map that a key holds; what they hold is passed over. */
static flim_status read_keys(reader *r, flim_yaml_entry *entry)
{
    int depth = 0;
    bool key = true;
    entry->is_map = true;
    for (;;) {
        const char *text;
        FLIM_TRY(next(r));
        const yaml_event_type_t type = r->event.type;
        const bool opens = type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
        if (depth == 0 && type == YAML_MAPPING_END_EVENT) {
            return FLIM_OK;
        }
        if (depth == 0 && key && type == YAML_SCALAR_EVENT) {
            FLIM_TRY(scalar(r, &text));
            FLIM_TRY(flim_string_list_add(&entry->value, text, r->err));
        }
        depth -= type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT;
        key = depth == 0 && !opens ? !key : key;
        depth += opens;
    }
}

/* The value of an entry: the current event and, for a list, those up to its end. */
static flim_status read_value(reader *r, flim_yaml_entry *entry)
{
    const char *text;
    if (r->event.type == YAML_SCALAR_EVENT) {
        FLIM_TRY(scalar(r, &text));
        entry->is_null = is_null(&r->event, text);
        return flim_string_list_add(&entry->value, entry->is_null ? "" : text, r->err);
    }
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        return read_keys(r, entry);
    }
    if (r->event.type != YAML_SEQUENCE_START_EVENT) {
        return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: '%.80s': expected '%.80s: value' or a list", r->name, line_of(r),
                         entry->key, entry->key);
    }
    entry->is_list = true;
    for (;;) {
        FLIM_TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) {
            return FLIM_OK;
        }
        if (r->event.type == YAML_MAPPING_START_EVENT && strcmp(entry->key, "stages") == 0) {
            FLIM_TRY(read_stage(r, entry));
            continue;
        }
        if (r->event.type != YAML_SCALAR_EVENT) {
            return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: the list '%.80s' may only have texts", r->name, line_of(r),
                             entry->key);
        }
        FLIM_TRY(scalar(r, &text));
        FLIM_TRY(flim_string_list_add(&entry->value, text, r->err));
    }
}

static flim_status read_map(reader *r)
{
    for (;;) {
        FLIM_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) {
            return FLIM_OK;
        }
        FLIM_TRY(begin_entry(r));
        FLIM_TRY(next(r));
        FLIM_TRY(read_value(r, &r->out->entry[r->out->n - 1]));
    }
}

/* One document that is a map, or nothing at all. */
static flim_status read_stream(reader *r)
{
    bool document = false;
    for (;;) {
        FLIM_TRY(next(r));
        if (r->event.type == YAML_STREAM_END_EVENT) {
            return FLIM_OK;
        }
        switch (r->event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT: break;
        case YAML_DOCUMENT_START_EVENT:
            if (document) {
                return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: a second document: a config has one", r->name, line_of(r));
            }
            document = true;
            break;
        case YAML_MAPPING_START_EVENT: FLIM_TRY(read_map(r)); break;
        case YAML_SCALAR_EVENT:
            if (is_null(&r->event, (const char *)r->event.data.scalar.value)) {
                break; /* only comments, or `---` and no more */
            } /* fall through */
        default: return flim_fail(r->err, FLIM_ERROR_USAGE, "%s:%d: expected lines of 'key: value'", r->name, line_of(r));
        }
    }
}

/* libyaml would take UTF-16 as well and name byte offsets only. */
static flim_status check_encoding(const char *text, size_t length, const char *name, flim_error *err)
{
    int line = 1;
    for (size_t i = 0; i < length;) {
        size_t bytes = flim_utf8_length(text + i, NULL);
        if (!bytes || text[i] == '\0') {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s:%d: byte 0x%02x is not UTF-8 text; save the file as UTF-8", name,
                             line, (unsigned)(unsigned char)text[i]);
        }
        line += text[i] == '\n';
        i += bytes;
    }
    return FLIM_OK;
}

flim_status flim_yaml_parse(const char *text, size_t length, const char *name, flim_yaml *out, flim_error *err)
{
    const size_t mark = flim_utf8_mark(text, length);
    text += mark;
    length -= mark;
    reader r = {.name = name, .text = text, .length = length, .out = out, .err = err};
    *out = (flim_yaml){0};
    FLIM_TRY(check_encoding(text, length, name, err));
    if (!yaml_parser_initialize(&r.parser)) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory while reading %s", name);
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, length);
    const flim_status status = read_stream(&r);
    drop_event(&r);
    yaml_parser_delete(&r.parser);
    if (status != FLIM_OK) {
        flim_yaml_free(out);
    }
    return status;
}

flim_status flim_yaml_read(const char *path, flim_yaml *out, flim_error *err)
{
    char *text = NULL;
    size_t length = 0;
    *out = (flim_yaml){0};
    flim_status status = flim_file_read(path, LARGEST_FILE, &text, &length, err);
    if (status == FLIM_ERROR_DATA) { /* no data file: a wrong configuration, exit code 2 */
        status = flim_fail(err, FLIM_ERROR_USAGE, "%s", err ? err->text : "");
    }
    FLIM_TRY(status);
    status = flim_yaml_parse(text, length, path, out, err);
    flim_free(text);
    return status;
}

void flim_yaml_free(flim_yaml *yaml)
{
    for (int i = 0; i < yaml->n; i++) {
        flim_free(yaml->entry[i].key);
        flim_string_list_free(&yaml->entry[i].value);
    }
    flim_free(yaml->entry);
    *yaml = (flim_yaml){0};
}

/* ---- writing */

/* A plain word that no YAML reader takes for a number, a truth value, null or a date. */
static bool is_plain(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (!text[0] || (!strchr(letters, text[0]) && text[0] != '/' && text[0] != '_')) {
        return false;
    }
    size_t length = strlen(text);
    size_t safe = 0;
    while (safe < length && (strchr(letters, text[safe]) || strchr("0123456789_./+-:", text[safe]))) {
        safe++;
    }
    if (safe < length || text[length - 1] == ':') {
        return false;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            return false;
        }
    }
    return true;
}

void flim_yaml_write_text(FILE *out, const char *text)
{
    if (is_plain(text)) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *at = text; *at;) {
        uint32_t code = 0;
        size_t bytes = flim_utf8_length(at, &code);
        bool printable = (code >= 0x20 && code < 0x7f) || (code > 0xa0 && code != 0x2028 && code != 0x2029 &&
                                                           code != 0xfeff && code != 0xfffe && code != 0xffff);
        if (code == '"' || code == '\\') {
            fprintf(out, "\\%c", (int)code);
        } else if (bytes && printable) {
            fwrite(at, 1, bytes, out);
        } else {
            fprintf(out, code > 0xff ? "\\u%04x" : "\\x%02x", (unsigned)code);
        }
        at += bytes ? bytes : 1;
    }
    fputc('"', out);
}

/* YAML as configs use it: one map of `key: text` and `key: [text, ...]`, on libyaml.
 *
 * For: settings files.  `stages:` alone may list maps; each becomes a text of "key=value" words.  Of other maps within
 *      the map only the keys are kept, for a hint: a config is a flat list.  Anchors, aliases, tags, several documents and
 *      repeated keys are errors: what looks like more would not do what its writer meant.  A byte-order mark before the text is no part of it.
 * Owns: flim_yaml_free frees what read and parse made; on failure there is nothing to free.
 * Errors: FLIM_ERROR_USAGE, with "file:line" for everything in the file; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_FORMATS_YAML_H
#define FLIM_FORMATS_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "flim/string_list.h"

typedef struct flim_yaml_entry {
    char *key;
    int line; /* from 1 */
    bool is_list;
    bool is_map; /* value: the keys in it, whatever they hold */
    bool is_null; /* `key:`, ~ or null without quotes; the text is empty then */
    flim_string_list value; /* one item unless is_list */
} flim_yaml_entry;

typedef struct flim_yaml {
    flim_yaml_entry *entry;
    int n;
} flim_yaml;

flim_status flim_yaml_read(const char *path, flim_yaml *out, flim_error *err);
/* `name` stands in errors for the path. */
flim_status flim_yaml_parse(const char *text, size_t length, const char *name, flim_yaml *out, flim_error *err);
void flim_yaml_free(flim_yaml *yaml);

/* One value to change: `value` is put into the text as it is. */
typedef struct flim_yaml_change {
    const char *key, *value;
} flim_yaml_change;

/* The text of a config with some scalar values changed, keys that are not there added at its end, and every other byte,
 * comments too, as it was; *out is the caller's (flim_free).  FLIM_ERROR_USAGE for what is no config and for a value that
 * stands over several lines, with nothing made. */
flim_status flim_yaml_change_values(const char *text, size_t length, const char *name, const flim_yaml_change *change, int n,
                                    char **out, flim_error *err);

/* One setting of an item of a list: of "name=a batch=8", or of a map. */
typedef struct flim_yaml_item_change {
    int item; /* 0-based */
    const char *key, *value;
} flim_yaml_item_change;

/* The same for items of the list with that name (stages:): a value is changed where it stands, a key that the item lacks is added
 * at the item's end.  FLIM_ERROR_USAGE for an item in a form that cannot be changed in place, and for one that is not there. */
flim_status flim_yaml_change_items(const char *text, size_t length, const char *name, const char *list,
                                   const flim_yaml_item_change *change, int n, char **out, flim_error *err);

/* Writes a text (valid UTF-8) so that it reads back the same, in quotes if a plain word would read as something else. */
void flim_yaml_write_text(FILE *out, const char *text);

#endif

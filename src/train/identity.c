#include "train/identity.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void flim_identity_set(flim_identity *identity, flim_identity_field field, const char *name, bool fixed, const char *format,
                       ...)
{
    flim_identity_value *value = &identity->value[field];
    va_list args;
    va_start(args, format);
    vsnprintf(value->text, sizeof value->text, format, args);
    va_end(args);
    snprintf(value->name, sizeof value->name, "%s", name);
    value->fixed = fixed;
}

void flim_identity_resolve(flim_identity *identity, flim_identity_field field, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(identity->value[field].text, sizeof identity->value[field].text, format, args);
    va_end(args);
}

/* As far as it fits: what a list of the identity comes to is resolved by its owner. */
static void set_list(flim_identity *identity, flim_identity_field field, const char *key, bool fixed,
                     const flim_string_list *list)
{
    char text[sizeof identity->value[field].text] = "";
    size_t used = 0;
    for (int i = 0; i < list->n && used < sizeof text; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "", list->item[i]);
    }
    flim_identity_set(identity, field, key, fixed, "%s", text);
}

/* A text stands in an identity without commas, which separate its fields. */
static void set_text(flim_identity *identity, flim_identity_field field, const char *name, bool fixed, const char *text)
{
    flim_identity_set(identity, field, name, fixed, "%s", text);
    for (char *at = strchr(identity->value[field].text, ','); at; at = strchr(at, ',')) {
        *at = ':';
    }
}

/* Every digit of a number counts: checkpoints compare these texts. */
static void set_row(flim_identity *identity, const flim_flag_row *row, const flim_settings *settings)
{
    const void *value = (const char *)settings + row->offset;
    const flim_identity_field field = (flim_identity_field)row->identity;
    const bool fixed = row->on_resume == FLIM_ON_RESUME_FIXED;
    char key[FLIM_KEY_MAX];
    flim_flag_key(row, key, sizeof key);
    switch (row->type) {
    case FLIM_VALUE_SWITCH: flim_identity_set(identity, field, key, fixed, "%d", *(const bool *)value); break;
    case FLIM_VALUE_INTEGER: flim_identity_set(identity, field, key, fixed, "%" PRId64, *(const int64_t *)value); break;
    case FLIM_VALUE_UNSIGNED: flim_identity_set(identity, field, key, fixed, "%" PRIu64, *(const uint64_t *)value); break;
    case FLIM_VALUE_REAL: flim_identity_set(identity, field, key, fixed, "%.17g", *(const double *)value); break;
    case FLIM_VALUE_TEXT: set_text(identity, field, key, fixed, *(char *const *)value); break;
    case FLIM_VALUE_CHOICE: flim_identity_set(identity, field, key, fixed, "%s", row->choices[*(const int *)value]); break;
    case FLIM_VALUE_LIST: set_list(identity, field, key, fixed, value); break;
    }
}

void flim_identity_set_settings(flim_identity *identity, const flim_settings *settings)
{
    for (int i = 0; i < flim_settings_table.n; i++) {
        if (flim_settings_table.row[i].identity > FLIM_IDENTITY_NONE) {
            set_row(identity, &flim_settings_table.row[i], settings);
        }
    }
}

void flim_identity_text(const flim_identity *identity, char out[FLIM_IDENTITY_TEXT])
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < FLIM_IDENTITY_FIELDS && used < FLIM_IDENTITY_TEXT; i++) {
        const flim_identity_value *value = &identity->value[i];
        if (value->name[0]) {
            int length =
                snprintf(out + used, FLIM_IDENTITY_TEXT - used, "%s%s %s", used ? ", " : "", value->name, value->text);
            used += length > 0 ? (size_t)length : 0;
        }
    }
}

bool flim_identity_text_has(const char *text, const char *name, const char *value)
{
    const size_t of_name = strlen(name), of_value = strlen(value);
    while (text) {
        const bool found = strncmp(text, name, of_name) == 0 && text[of_name] == ' ' &&
                           strncmp(text + of_name + 1, value, of_value) == 0 &&
                           (text[of_name + 1 + of_value] == ',' || text[of_name + 1 + of_value] == '\0');
        if (found) {
            return true;
        }
        text = strstr(text, ", ");
        text = text ? text + 2 : NULL;
    }
    return false;
}

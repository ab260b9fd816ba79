/* Settings as text: the resolved YAML (--print-config, config.yaml) and their comparison. */
#include <errno.h>
#include <string.h>

#include "config/settings.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "formats/yaml.h"

static void print_list(const char *key, const flim_string_list *list, FILE *out)
{
    if (list->n == 0) {
        fprintf(out, "%s: []\n", key);
        return;
    }
    fprintf(out, "%s:\n", key);
    for (int i = 0; i < list->n; i++) {
        fputs("  - ", out);
        flim_yaml_write_text(out, list->item[i]);
        fputc('\n', out);
    }
}

static void print_value(const flim_flag_row *row, const char *key, const char *text, FILE *out)
{
    fprintf(out, "%s: ", key);
    const char *exponent = strchr(text, 'e');
    if (row->type == FLIM_VALUE_TEXT || row->type == FLIM_VALUE_CHOICE) {
        flim_yaml_write_text(out, text);
    } else if (row->type == FLIM_VALUE_REAL && exponent && !strchr(text, '.')) {
        /* Python's YAML takes 1e-05 for a text and 1.0e-05 for a number. */
        fprintf(out, "%.*s.0%s", (int)(exponent - text), text, exponent);
    } else {
        fputs(text, out);
    }
    fputc('\n', out);
}

flim_status flim_settings_print(const flim_settings *settings, FILE *out, flim_error *err)
{
    const char *program = settings->pretrains ? flim_all_settings_table.program : flim_settings_table.program;
    const flim_flag_row *rows;
    const int n = flim_settings_rows(settings, &rows);
    fprintf(out, "# Settings of %s: read with %s --config FILE\n", program, program);
    for (int i = 0; i < n; i++) {
        const flim_flag_row *row = &rows[i];
        char key[FLIM_KEY_MAX];
        flim_flag_key(row, key, sizeof key);
        if (row->group) {
            fprintf(out, "\n# %s\n", row->group);
        }
        if (row->type == FLIM_VALUE_LIST) {
            print_list(key, flim_flag_list(row, settings), out);
            continue;
        }
        char *text = flim_flag_text(row, settings, err);
        if (!text) {
            return FLIM_ERROR_MEMORY;
        }
        print_value(row, key, text, out);
        flim_free(text);
    }
    if (fflush(out) != 0 || ferror(out)) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write the settings: %s", strerror(errno));
    }
    return FLIM_OK;
}

flim_status flim_settings_write(const flim_settings *settings, const char *path, flim_error *err)
{
    flim_file_writer writer;
    FLIM_TRY(flim_file_begin(&writer, path, err));
    const flim_status status = flim_settings_print(settings, writer.stream, err);
    if (status != FLIM_OK) {
        flim_file_abandon(&writer);
        flim_fail_prefix(err, "%s: ", path);
        return status;
    }
    return flim_file_commit(&writer, err);
}

/* A value as one line for messages; NULL when out of memory. */
static char *value_text(const flim_flag_row *row, const flim_settings *settings)
{
    if (row->type != FLIM_VALUE_LIST) {
        return flim_flag_text(row, settings, NULL);
    }
    const flim_string_list *list = flim_flag_list(row, settings);
    char *text = flim_strdup("[", NULL);
    for (int i = 0; text && i <= list->n; i++) {
        const char *more = i < list->n ? list->item[i] : "]";
        char *longer = flim_strprintf(NULL, "%s%s%s", text, i > 0 && i < list->n ? ", " : "", more);
        flim_free(text);
        text = longer;
    }
    return text;
}

void flim_settings_compare(const flim_settings *a, const flim_settings *b,
                           void (*differs)(void *context, const flim_flag_row *row, const char *value_a, const char *value_b),
                           void *context)
{
    const flim_flag_row *rows;
    const int n = flim_settings_rows(a, &rows);
    for (int i = 0; i < n; i++) {
        const flim_flag_row *row = &rows[i];
        char *text_a = value_text(row, a), *text_b = value_text(row, b);
        bool equal = row->type == FLIM_VALUE_LIST ? flim_string_list_equal(flim_flag_list(row, a), flim_flag_list(row, b))
                                                  : text_a && text_b && strcmp(text_a, text_b) == 0;
        if (!equal) { /* or no memory to tell */
            differs(context, row, text_a ? text_a : "?", text_b ? text_b : "?");
        }
        flim_free(text_a);
        flim_free(text_b);
    }
}

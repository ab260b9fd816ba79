/* --help from a table of flags: groups, two columns, defaults, at most 100 columns. */
#include <string.h>

#include "flim/flags.h"

enum { LEFT = 27, WIDTH = 100, LONGEST = 1024 };

static void append(char *text, const char *separator, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, LONGEST - used, "%s%s", separator, more);
}

/* "help: choice, choice (default X, >= 1)". */
static void describe(const flim_flag_row *row, char *text)
{
    snprintf(text, LONGEST, "%s", row->help);
    for (int i = 0; row->choices && row->choices[i]; i++) {
        append(text, i ? ", " : ": ", row->choices[i]);
    }
    const bool is_switch = row->type == FLIM_VALUE_SWITCH;
    const bool bounds = row->allowed && !row->valid;
    const char *initial = is_switch ? (strcmp(row->initial, "true") == 0 ? "on" : "") : row->initial;
    if (initial[0]) {
        append(text, " (default ", initial);
    }
    if (bounds) {
        append(text, initial[0] ? "; " : " (", row->allowed);
    }
    if (initial[0] || bounds) {
        append(text, "", ")");
    }
}

/* Words of text from column LEFT on, wrapped at WIDTH; the cursor stands at `column`. */
static void wrap(FILE *out, const char *text, int column)
{
    if (column + 1 >= LEFT) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", LEFT - column, "");
    column = LEFT;
    for (const char *at = text; *at;) {
        int length = (int)strcspn(at, " ");
        if (column > LEFT && column + 1 + length > WIDTH) {
            fprintf(out, "\n%*s", LEFT, "");
            column = LEFT;
        }
        column += fprintf(out, "%s%.*s", column > LEFT ? " " : "", length, at);
        at += length;
        at += strspn(at, " ");
    }
    fputc('\n', out);
}

static void print_row(const flim_flag_row *row, FILE *out)
{
    char text[LONGEST];
    bool on = row->type == FLIM_VALUE_SWITCH && strcmp(row->initial, "true") == 0;
    int column =
        fprintf(out, "  --%s%s%s%s", on ? "[no-]" : "", row->name, row->metavar ? " " : "", row->metavar ? row->metavar : "");
    describe(row, text);
    wrap(out, text, column);
}

void flim_flag_table_help(const flim_flag_table *table, FILE *out)
{
    fprintf(out, "Usage: %s\n", table->usage);
    if (table->about[0]) {
        fprintf(out, "\n%s\n", table->about);
    }
    for (int i = 0; i < table->n; i++) {
        if (table->row[i].group || i == 0) {
            fprintf(out, "\n%s\n", table->row[i].group ? table->row[i].group : "Flags");
        }
        print_row(&table->row[i], out);
    }
    fputs("\nHelp\n", out);
    wrap(out, "this text", fprintf(out, "  -h, --help"));
    wrap(out, "name and version", fprintf(out, "  --version"));
    if (table->epilogue) {
        fprintf(out, "\n%s\n", table->epilogue);
    }
}

/* --help from a table of flags (groups, two columns, defaults, at most 100 columns), and --version. */
#include "config/flag_table.h"

#include <errno.h>
#include <string.h>

#include "flim/version.h"

enum { LEFT = 27, WIDTH = 100, LONGEST = 1024, KEEP = '\1' };

static void append(char *text, const char *separator, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, LONGEST - used, "%s%s", separator, more);
}

/* Bounds for a reader: "1..256"; an upper bound that only keeps sums small is left out. */
static void append_bounds(char *text, const char *separator, const char *allowed)
{
    double low, high;
    char bounds[64];
    if (sscanf(allowed, ">= %lf, <= %lf", &low, &high) == 2) {
        snprintf(bounds, sizeof bounds, high < 10000 ? "%.15g..%.15g" : ">= %.15g", low, high);
        append(text, separator, bounds);
    } else {
        append(text, separator, allowed);
    }
}

/* "what: choice, choice; more about it (default X; 1..256)": choices stand before the first semicolon of the help; KEEP in
 * place of blanks keeps the parenthesis on one line. */
static void describe(const flim_flag_row *row, char *text)
{
    int first = (int)strcspn(row->help, ";");
    snprintf(text, LONGEST, "%.*s", first, row->help);
    for (int i = 0; row->choices && row->choices[i]; i++) {
        append(text, i ? ", " : ": ", row->choices[i]);
    }
    append(text, row->help + first, "");
    size_t used = strlen(text);
    const bool is_switch = row->type == FLIM_VALUE_SWITCH;
    const bool bounds = row->allowed && !row->valid;
    const char *initial = is_switch ? (strcmp(row->initial, "true") == 0 ? "on" : "") : row->initial;
    if (initial[0]) {
        append(text, " (default ", initial);
    }
    if (bounds) {
        append_bounds(text, initial[0] ? "; " : " (", row->allowed);
    }
    if (initial[0] || bounds) {
        append(text, "", ")");
    }
    for (char *at = text + used; *at && *(at + 1); at++) {
        if (at[1] == ' ') {
            at[1] = KEEP;
        }
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
        if (column > LEFT) {
            fputc(' ', out);
            column++;
        }
        for (int i = 0; i < length; i++) {
            fputc(at[i] == KEEP ? ' ' : at[i], out);
        }
        column += length;
        at += length;
        at += strspn(at, " ");
    }
    fputc('\n', out);
}

static void print_row(const flim_flag_row *row, FILE *out)
{
    char text[LONGEST];
    bool on = row->type == FLIM_VALUE_SWITCH && strcmp(row->initial, "true") == 0;
    int column = fprintf(out, "  --%s%s", on ? "[no-]" : "", row->name);
    if (row->metavar) {
        column += fprintf(out, row->alone ? " [%s]" : " %s", row->metavar);
    }
    describe(row, text);
    wrap(out, text, column);
    if (row->also) {
        snprintf(text, sizeof text, "the same as --%s %s", row->name, row->also_value);
        wrap(out, text, fprintf(out, "  --%s", row->also));
    }
}

static void print_help(const flim_flag_table *table, FILE *out)
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

flim_status flim_flag_table_show(const flim_flag_table *table, flim_flag_action action, FILE *out, flim_error *err)
{
    if (action == FLIM_FLAGS_HELP) {
        print_help(table, out);
    } else if (action == FLIM_FLAGS_VERSION) {
        fprintf(out, "%s (flimcv) %s\n", table->program, flim_version());
    }
    if (fflush(out) != 0 || ferror(out)) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write the help: %s", strerror(errno));
    }
    return FLIM_OK;
}

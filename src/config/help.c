/* --help from a table of flags (groups, two columns, defaults, at most 80 columns), and --version. */
#include "config/program_pages.h"

#include <errno.h>
#include <string.h>

#include "flim/version.h"

enum { LEFT = 27, LEFT_OF_USAGE = 7, WIDTH = 80 };

const flim_exit_code flim_exit_codes[] = {
    {"0", "done"},
    {"2", "usage or configuration"},
    {"3", "data"},
    {"4", "no usable device"},
    {"5", "out of memory"},
    {"6", "cannot write"},
    {"130 and 143", "after INT and TERM"},
    {"1", "anything else"},
    {NULL, NULL},
};

static void append(char *text, const char *separator, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, FLIM_DESCRIPTION - used, "%s%s", separator, more);
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

void flim_flag_describe(const flim_flag_row *row, char text[FLIM_DESCRIPTION])
{
    int first = (int)strcspn(row->help, ";"); /* choices stand before the first semicolon */
    snprintf(text, FLIM_DESCRIPTION, "%.*s", first, row->help);
    for (int i = 0; row->choices && row->choices[i]; i++) {
        append(text, i ? ", " : ": ", row->choices[i]);
    }
    append(text, row->help + first, row->writes ? "; - is standard output" : "");
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
            at[1] = FLIM_KEEP_BLANK;
        }
    }
}

void flim_flag_describe_also(const flim_flag_row *row, char text[FLIM_DESCRIPTION])
{
    snprintf(text, FLIM_DESCRIPTION, "the same as --%s%s%s", row->name, row->also_value ? " " : "",
             row->also_value ? row->also_value : "");
}

/* Words of text, wrapped at WIDTH, rows after the first from column `left` on; the cursor stands at `column`.  A line end is a
 * blank; `end` ends each row but the last. */
static void put_words(FILE *out, const char *text, int left, int column, const char *end)
{
    const int width = WIDTH - (int)strlen(end);
    bool first = true; /* of its row */
    for (const char *at = text; *at;) {
        int length = (int)strcspn(at, " \n");
        if (!first && column + 1 + length > width) {
            fprintf(out, "%s\n%*s", end, left, "");
            column = left;
            first = true;
        }
        if (!first) {
            fputc(' ', out);
            column++;
        }
        for (int i = 0; i < length; i++) {
            fputc(at[i] == FLIM_KEEP_BLANK ? ' ' : at[i], out);
        }
        column += length;
        first = false;
        at += length;
        at += strspn(at, " \n");
    }
    fputc('\n', out);
}

/* The same from column `left` on, in a row of its own if the cursor is beyond. */
static void wrap(FILE *out, const char *text, int left, int column)
{
    if (column > 0 && column + 1 >= left) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", left - column, "");
    put_words(out, text, left, left, "");
}

static void print_row(const flim_flag_row *row, FILE *out)
{
    char text[FLIM_DESCRIPTION];
    bool on = row->type == FLIM_VALUE_SWITCH && strcmp(row->initial, "true") == 0;
    int column = fprintf(out, "  --%s%s", on ? "[no-]" : "", row->name);
    if (row->metavar) {
        column += fprintf(out, row->alone ? " [%s]" : " %s", row->metavar);
    }
    flim_flag_describe(row, text);
    wrap(out, text, LEFT, column);
    if (row->also) {
        flim_flag_describe_also(row, text);
        wrap(out, text, LEFT, fprintf(out, row->also_value ? "  --%s" : "  --%s %s", row->also, row->metavar));
    }
}

static void print_subcommands(const flim_flag_table *table, FILE *out)
{
    fprintf(out, "\nSubcommands (%s SUBCOMMAND --help lists the flags of one)\n", table->program);
    for (int i = 0; i < table->n_subcommands; i++) {
        wrap(out, table->subcommand[i].purpose, LEFT, fprintf(out, "  %s", table->subcommand[i].name));
    }
}

static void print_examples(const flim_flag_table *table, FILE *out)
{
    fputs("\nExamples\n", out);
    for (const flim_example *example = table->examples; example->call; example++) {
        put_words(out, example->call, 6, fprintf(out, "  "), " \\"); /* as a shell takes it */
        wrap(out, example->purpose, 6, 0);
    }
}

static void print_exit_codes(FILE *out)
{
    char text[FLIM_DESCRIPTION] = "Exit codes:";
    for (const flim_exit_code *exit = flim_exit_codes; exit->code; exit++) {
        append(text, " ", exit->code);
        append(text, " ", exit->meaning);
        append(text, exit[1].code ? "," : ".", "");
    }
    fputc('\n', out);
    wrap(out, text, 0, 0);
}

static void print_help(const flim_flag_table *table, FILE *out)
{
    put_words(out, table->usage, LEFT_OF_USAGE, fprintf(out, "Usage: "), "");
    if (table->about[0]) {
        fputc('\n', out);
        wrap(out, table->about, 0, 0);
    }
    for (int i = 0; i < table->n; i++) {
        if (table->row[i].group || i == 0) {
            fprintf(out, "\n%s\n", table->row[i].group ? table->row[i].group : "Flags");
        }
        print_row(&table->row[i], out);
    }
    if (table->n_subcommands > 0) {
        print_subcommands(table, out);
    }
    fputs("\nHelp\n", out);
    wrap(out, "this text; --help=man: the manual page; --help=bash, --help=zsh: completion for that shell", LEFT,
         fprintf(out, "  -h, --help"));
    wrap(out, "name and version", LEFT, fprintf(out, "  --version"));
    if (table->examples) {
        print_examples(table, out);
    }
    if (table->epilogue) {
        fputc('\n', out);
        wrap(out, table->epilogue, 0, 0);
    }
    print_exit_codes(out);
}

flim_status flim_flag_table_show(const flim_flag_table *table, flim_flag_action action, FILE *out, flim_error *err)
{
    switch (action) {
    case FLIM_FLAGS_RUN: break;
    case FLIM_FLAGS_HELP: print_help(table, out); break;
    case FLIM_FLAGS_VERSION: fprintf(out, "%s (flimcv) %s\n", table->program, flim_version()); break;
    case FLIM_FLAGS_MAN: flim_write_man_page(table, out); break;
    case FLIM_FLAGS_BASH: flim_write_bash_completion(table, out); break;
    case FLIM_FLAGS_ZSH: flim_write_zsh_completion(table, out); break;
    }
    if (fflush(out) != 0 || ferror(out)) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write the help: %s", strerror(errno));
    }
    return FLIM_OK;
}

/* A program's manual page from its table of flags, in the macros of man(7). */
#include "config/program_pages.h"

#include <ctype.h>
#include <string.h>

#include "flim/version.h"

enum { LINE = 72 };

/* One byte of text as roff has it; bytes of UTF-8 stay. */
static void put_byte(FILE *out, char byte)
{
    switch (byte) {
    case '\\': fputs("\\e", out); break;
    case '-': fputs("\\-", out); break; /* else it becomes a hyphen, and a copied flag does not work */
    case '\'': fputs("\\(aq", out); break;
    case '`': fputs("\\(ga", out); break;
    case '^': fputs("\\(ha", out); break;
    case '~': fputs("\\(ti", out); break;
    case FLIM_KEEP_BLANK: fputs("\\ ", out); break;
    default: fputc(byte, out);
    }
}

static void put_bytes(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        put_byte(out, text[i]);
    }
}

/* Text to be filled: its words in lines of about LINE bytes; an empty line begins a paragraph. */
static void put_text(FILE *out, const char *text)
{
    size_t column = 0;
    while (*text) {
        const size_t blank = strspn(text, " \n"), length = strcspn(text + blank, " \n");
        const bool paragraph = column > 0 && strncmp(text, "\n\n", 2) == 0;
        text += blank;
        if (length == 0) {
            break;
        }
        if (paragraph) {
            fputs("\n.PP", out);
        }
        const bool begins = column == 0 || paragraph || column + 1 + length > LINE;
        fputs(!begins ? " " : column > 0 ? "\n" : "", out);
        if (begins && *text == '.') { /* no macro */
            fputs("\\&", out);
        }
        put_bytes(out, text, length);
        column = (begins ? 0 : column + 1) + length;
        text += length;
    }
    fputc('\n', out);
}

static void put_bold(FILE *out, const char *text)
{
    fputs("\\fB", out);
    put_bytes(out, text, strlen(text));
    fputs("\\fR", out);
}

static void put_flag(FILE *out, const flim_flag_row *row)
{
    char text[FLIM_DESCRIPTION];
    const bool on = row->type == FLIM_VALUE_SWITCH && strcmp(row->initial, "true") == 0;
    fputs(on ? ".TP\n\\fB\\-\\-[no\\-]" : ".TP\n\\fB\\-\\-", out);
    put_bytes(out, row->name, strlen(row->name));
    fputs("\\fR", out);
    if (row->metavar) {
        fputs(row->alone ? " [\\fI" : " \\fI", out);
        put_bytes(out, row->metavar, strlen(row->metavar));
        fputs(row->alone ? "\\fR]" : "\\fR", out);
    }
    fputc('\n', out);
    flim_flag_describe(row, text);
    put_text(out, text);
    if (row->also) {
        fputs(".TP\n\\fB\\-\\-", out);
        put_bytes(out, row->also, strlen(row->also));
        fputs("\\fR", out);
        if (!row->also_value) {
            fputs(" \\fI", out);
            put_bytes(out, row->metavar, strlen(row->metavar));
            fputs("\\fR", out);
        }
        fputc('\n', out);
        flim_flag_describe_also(row, text);
        put_text(out, text);
    }
}

static void put_flags(FILE *out, const flim_flag_table *table)
{
    for (int i = 0; i < table->n; i++) {
        if (table->row[i].group) {
            fprintf(out, ".SS %s\n", table->row[i].group);
        }
        put_flag(out, &table->row[i]);
    }
}

static void put_subcommands(FILE *out, const flim_flag_table *table)
{
    fputs(".SH SUBCOMMANDS\n", out);
    for (int i = 0; i < table->n_subcommands; i++) {
        const flim_subcommand *sub = &table->subcommand[i];
        fprintf(out, ".SS %s\n", sub->name);
        put_text(out, sub->purpose);
        for (int row = 0; row < sub->flags->n; row++) {
            put_flag(out, &sub->flags->row[row]);
        }
    }
}

static void put_examples(FILE *out, const flim_example *examples)
{
    fputs(".SH EXAMPLES\n", out);
    for (const flim_example *example = examples; example->call; example++) {
        fputs(".TP\n", out);
        put_bold(out, example->call);
        fputc('\n', out);
        put_text(out, example->purpose);
    }
}

/* ".TH TRAIN_CV 1 ...", NAME, SYNOPSIS, DESCRIPTION. */
static void put_head(FILE *out, const flim_flag_table *table)
{
    char name[64]; /* a subcommand's page is that of one word, as git-log(1) */
    snprintf(name, sizeof name, "%s", table->program);
    for (char *at = name; *at; at++) {
        *at = *at == ' ' ? '-' : *at;
    }
    fputs(".TH ", out);
    for (const char *at = name; *at; at++) {
        fputc(toupper((unsigned char)*at), out);
    }
    fprintf(out, " 1 %s \"flimcv %s\" \"flimcv\"\n.SH NAME\n", flim_version_date(), flim_version());
    put_bytes(out, name, strlen(name));
    fputs(" \\- ", out);
    put_text(out, table->purpose ? table->purpose : table->about);
    fputs(".SH SYNOPSIS\n", out);
    put_bold(out, table->program);
    fputc('\n', out);
    put_text(out, table->usage + strlen(table->program));
    fputs(".SH DESCRIPTION\n", out);
    put_text(out, table->about);
}

void flim_write_man_page(const flim_flag_table *table, FILE *out)
{
    put_head(out, table);
    fputs(".SH OPTIONS\n", out);
    put_flags(out, table);
    fputs(".SS Help\n.TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR[=\\fITOPIC\\fR]\n"
          "a short form of this page; man: this page itself; bash, zsh: completion\nfor that shell\n"
          ".TP\n\\fB\\-\\-version\\fR\nname and version\n",
          out);
    if (table->n_subcommands > 0) {
        put_subcommands(out, table);
    }
    if (table->epilogue) {
        fputs(".SH NOTES\n", out);
        put_text(out, table->epilogue);
    }
    fputs(".SH EXIT STATUS\n", out);
    for (const flim_exit_code *exit = flim_exit_codes; exit->code; exit++) {
        fputs(".TP\n", out);
        put_bold(out, exit->code);
        fputc('\n', out);
        put_text(out, exit->meaning);
    }
    if (table->examples) {
        put_examples(out, table->examples);
    }
    if (table->see_also) {
        fputs(".SH SEE ALSO\n", out);
        put_text(out, table->see_also);
    }
}

/* Completion of a program's command line in bash and zsh, from its table of flags. */
#include "config/program_pages.h"

#include <string.h>

/* The function of a table in a script: _flim_bench_step. */
static void put_function(FILE *out, const flim_flag_table *table)
{
    fputc('_', out);
    for (const char *at = table->program; *at; at++) {
        fputc(*at == ' ' ? '_' : *at, out);
    }
}

static bool has_words(const flim_flag_row *row)
{
    return row->choices || row->word;
}

/* The values that a flag has names for, with blanks between; text with a quote is no name. */
static void put_words(FILE *out, const flim_flag_row *row)
{
    const char *separator = "";
    for (int i = 0; row->choices && row->choices[i]; i++) {
        fprintf(out, "%s%s", separator, row->choices[i]);
        separator = " ";
    }
    if (row->word) {
        fprintf(out, "%s%s", separator, row->word);
    }
}

/* ---- bash */

/* What is offered for a path, and the end of the case. */
static void put_bash_paths(FILE *out, flim_path_kind kind)
{
    switch (kind) {
    case FLIM_PATH_FILE: fputs("compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$current\") ;;\n", out); break;
    case FLIM_PATH_FOLDER:
        fputs("compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$current\") ;;\n", out);
        break;
    case FLIM_PATH_NONE: fputs(";;\n", out); break; /* a number, a name: nothing to offer */
    }
}

static void put_bash_value(FILE *out, const flim_flag_row *row)
{
    if (row->type == FLIM_VALUE_SWITCH) {
        return;
    }
    const bool renamed = row->also && !row->also_value; /* another name, with the same values */
    fprintf(out, "    --%s%s%s) ", row->name, renamed ? "|--" : "", renamed ? row->also : "");
    if (has_words(row)) {
        fputs("mapfile -t COMPREPLY < <(compgen -W '", out);
        put_words(out, row);
        fputs("' -- \"$current\") ;;\n", out);
        return;
    }
    put_bash_paths(out, flim_flag_path_kind(row->metavar));
}

/* --x; of a switch --no-x as well, but for those that are off, only where the user has begun with --no-. */
static void put_bash_flags(FILE *out, const flim_flag_table *table)
{
    fputs("    local flags='--help --version", out);
    for (int i = 0; i < table->n; i++) {
        const flim_flag_row *row = &table->row[i];
        const bool on = row->type == FLIM_VALUE_SWITCH && strcmp(row->initial, "true") == 0;
        fprintf(out, " --%s%s", on ? "no-" : "", row->name);
        if (row->also) {
            fprintf(out, " --%s", row->also);
        }
    }
    fputs("' opposite='", out);
    for (int i = 0; i < table->n; i++) {
        const flim_flag_row *row = &table->row[i];
        if (row->type == FLIM_VALUE_SWITCH) {
            fprintf(out, " --%s --no-%s", row->name, row->name);
        }
    }
    fputs("'\n", out);
}

static void put_bash_function(FILE *out, const flim_flag_table *table)
{
    put_function(out, table);
    fputs("() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]} joined='' word\n",
          out);
    put_bash_flags(out, table);
    fputs("    # Bash splits words at an equals sign: flag, =, value.\n"
          "    if [[ $current == = ]]; then\n"
          "        current='' joined=yes\n"
          "    elif [[ $flag == = && $COMP_CWORD -gt 1 ]]; then\n"
          "        flag=${COMP_WORDS[COMP_CWORD - 2]} joined=yes\n"
          "    fi\n"
          "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD - 1}\"; do\n"
          "        [[ $word != -- ]] || flag=--\n"
          "    done\n"
          "    COMPREPLY=()\n"
          "    if [[ -z $joined && $flag != -- && $current == -* ]]; then\n"
          "        [[ ${current#--} != no* ]] || flags=$opposite\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$current\")\n"
          "        return\n"
          "    fi\n"
          "    case $flag in\n"
          "    --help) [[ -z $joined ]] || mapfile -t COMPREPLY < <(compgen -W 'man bash zsh' -- \"$current\") ;;\n",
          out);
    for (int i = 0; i < table->n; i++) {
        put_bash_value(out, &table->row[i]);
    }
    fputs("    *) ", out);
    put_bash_paths(out, flim_flag_path_kind(table->operand));
    fputs("    esac\n}\n", out);
}

static void put_bash_chooser(FILE *out, const flim_flag_table *table)
{
    put_function(out, table);
    fputs("() {\n"
          "    if [[ $COMP_CWORD -gt 1 ]]; then\n"
          "        ! declare -F \"",
          out);
    put_function(out, table);
    fputs("_${COMP_WORDS[1]}\" >/dev/null || \"", out);
    put_function(out, table);
    fputs("_${COMP_WORDS[1]}\"\n"
          "    else\n"
          "        mapfile -t COMPREPLY < <(compgen -W '--help --version",
          out);
    for (int i = 0; i < table->n_subcommands; i++) {
        fprintf(out, " %s", table->subcommand[i].name);
    }
    fputs("' -- \"${COMP_WORDS[COMP_CWORD]}\")\n    fi\n}\n", out);
}

void flim_write_bash_completion(const flim_flag_table *table, FILE *out)
{
    fprintf(out, "# Completion of %s in bash; %s --help=bash prints it.\n", table->program, table->program);
    for (int i = 0; i < table->n_subcommands; i++) {
        put_bash_function(out, table->subcommand[i].flags);
    }
    if (table->n_subcommands > 0) {
        put_bash_chooser(out, table);
    } else {
        put_bash_function(out, table);
    }
    fputs("complete -F ", out);
    put_function(out, table);
    fprintf(out, " %s\n", table->program);
}

/* ---- zsh */

/* Text within '...' of a script and [...] of _arguments. */
static void put_zsh_text(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\'') {
            fputs("'\\''", out);
        } else {
            fputs(strchr("[]:\\", text[i]) ? "\\" : "", out);
            fputc(text[i], out);
        }
    }
}

static void put_zsh_action(FILE *out, flim_path_kind kind)
{
    fputs(kind == FLIM_PATH_FILE ? "_files" : kind == FLIM_PATH_FOLDER ? "_files -/" : " ", out);
}

static void put_zsh_name(FILE *out, const flim_flag_row *row, const char *name)
{
    const size_t first = strcspn(row->help, ";");
    const bool is_switch = row->type == FLIM_VALUE_SWITCH;
    if (is_switch) {
        fprintf(out, "        '(--%s)--no-%s[not\\: ", name, name);
        put_zsh_text(out, row->help, first);
        fprintf(out, "]'\n        '(--no-%s)--%s[", name, name);
    } else {
        fprintf(out, "        '%s--%s=[", row->type == FLIM_VALUE_LIST ? "*" : "", name);
    }
    put_zsh_text(out, row->help, first);
    fputc(']', out);
    if (!is_switch) {
        fputs(row->alone ? "::" : ":", out);
        put_zsh_text(out, row->metavar, strlen(row->metavar));
        fputc(':', out);
        if (has_words(row)) {
            fputc('(', out);
            put_words(out, row);
            fputc(')', out);
        } else {
            put_zsh_action(out, flim_flag_path_kind(row->metavar));
        }
    }
    fputs("'\n", out);
}

static void put_zsh_flag(FILE *out, const flim_flag_row *row)
{
    put_zsh_name(out, row, row->name);
    if (row->also && !row->also_value) {
        put_zsh_name(out, row, row->also);
    } else if (row->also) {
        fprintf(out, "        '--%s[the same as --%s %s]'\n", row->also, row->name, row->also_value);
    }
}

static void put_zsh_function(FILE *out, const flim_flag_table *table)
{
    put_function(out, table);
    fputs("() {\n    local -a arguments=(\n"
          "        '(- *)--help=-[this and other help]::topic:(man bash zsh)'\n"
          "        '(- *)--version[name and version]'\n",
          out);
    for (int i = 0; i < table->n; i++) {
        put_zsh_flag(out, &table->row[i]);
    }
    if (table->operand) {
        fprintf(out, "        '*:%s:", table->operand);
        put_zsh_action(out, flim_flag_path_kind(table->operand));
        fputs("'\n", out);
    }
    fputs("    )\n    _arguments \"$arguments[@]\"\n}\n", out);
}

static void put_zsh_chooser(FILE *out, const flim_flag_table *table)
{
    put_function(out, table);
    fputs("() {\n"
          "    if (( CURRENT > 2 )); then\n"
          "        local chosen=$words[2]\n"
          "        shift words\n"
          "        (( CURRENT-- ))\n"
          "        (( ! $+functions[",
          out);
    put_function(out, table);
    fputs("_$chosen] )) || ", out);
    put_function(out, table);
    fputs("_$chosen\n"
          "    else\n"
          "        local -a subcommands=(\n",
          out);
    for (int i = 0; i < table->n_subcommands; i++) {
        fprintf(out, "            '%s:", table->subcommand[i].name);
        put_zsh_text(out, table->subcommand[i].purpose, strlen(table->subcommand[i].purpose));
        fputs("'\n", out);
    }
    fputs("        )\n        _describe subcommand subcommands\n    fi\n}\n", out);
}

void flim_write_zsh_completion(const flim_flag_table *table, FILE *out)
{
    fprintf(out, "#compdef %s\n# Completion of %s in zsh; %s --help=zsh prints it.\n", table->program, table->program,
            table->program);
    for (int i = 0; i < table->n_subcommands; i++) {
        put_zsh_function(out, table->subcommand[i].flags);
    }
    if (table->n_subcommands > 0) {
        put_zsh_chooser(out, table);
    } else {
        put_zsh_function(out, table);
    }
    /* Loaded from $fpath the file is the function's first call; sourced, it only makes it known. */
    fputs("if [[ ${funcstack[1]} == ", out);
    put_function(out, table);
    fputs(" ]]; then\n    ", out);
    put_function(out, table);
    fputs(" \"$@\"\nelse\n    compdef ", out);
    put_function(out, table);
    fprintf(out, " %s\nfi\n", table->program);
}

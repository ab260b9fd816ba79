#include "flim/args.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/parse.h"

static flim_status unknown_flag(const flim_arg *table, int n, const char *found, flim_error *err)
{
    if (strncmp(found, "--", 2) != 0 || n == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "'%s': only flags are expected; --help lists them", found);
    }
    const char **names = flim_alloc((size_t)n, sizeof *names, err);
    if (!names) {
        return FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        names[i] = table[i].name;
    }
    flim_status status = flim_fail(err, FLIM_ERROR_USAGE, "unknown flag %s; the nearest is %s (--help lists all)", found,
                                   flim_nearest(found, names, n));
    flim_free(names);
    return status;
}

static flim_status choose(const flim_arg *arg, const char *text, flim_error *err)
{
    for (int i = 0; i < arg->n_choice; i++) {
        if (strcmp(arg->choice[i], text) == 0) {
            *(int *)arg->out = i;
            return FLIM_OK;
        }
    }
    char all[512] = "";
    size_t used = 0;
    for (int i = 0; i < arg->n_choice && used < sizeof all; i++) {
        int length = snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", arg->choice[i]);
        used += length > 0 ? (size_t)length : 0;
    }
    return flim_fail(err, FLIM_ERROR_USAGE, "%s: '%s' is none of %s", arg->name, text, all);
}

static flim_status set(const flim_arg *arg, const char *text, flim_error *err)
{
    switch (arg->kind) {
    case FLIM_ARG_SWITCH: *(bool *)arg->out = true; return FLIM_OK;
    case FLIM_ARG_INT: return flim_parse_i64(arg->name, text, (int64_t)arg->min, (int64_t)arg->max, arg->out, err);
    case FLIM_ARG_SEED: return flim_parse_u64(arg->name, text, arg->out, err);
    case FLIM_ARG_NUMBER: return flim_parse_double(arg->name, text, arg->min, arg->max, arg->out, err);
    case FLIM_ARG_TEXT: *(const char **)arg->out = text; return FLIM_OK;
    case FLIM_ARG_CHOICE: return choose(arg, text, err);
    }
    return flim_fail(err, FLIM_ERROR, "%s: bad entry in the table of flags", arg->name);
}

flim_status flim_args_parse(const flim_arg *table, int n, int argc, char *const *argv, flim_args_action *action,
                            flim_error *err)
{
    *action = FLIM_ARGS_RUN;
    for (int i = 1; i < argc; i++) {
        const char *found = argv[i];
        if (strcmp(found, "--help") == 0 || strcmp(found, "-h") == 0) {
            *action = FLIM_ARGS_HELP;
            return FLIM_OK;
        }
        if (strcmp(found, "--version") == 0) {
            *action = FLIM_ARGS_VERSION;
            return FLIM_OK;
        }
        size_t length = strcspn(found, "=");
        const flim_arg *arg = NULL;
        for (int j = 0; j < n && !arg; j++) {
            if (strlen(table[j].name) == length && strncmp(table[j].name, found, length) == 0) {
                arg = &table[j];
            }
        }
        if (!arg) {
            return unknown_flag(table, n, found, err);
        }
        const char *text = found[length] == '=' ? found + length + 1 : NULL;
        if (arg->kind == FLIM_ARG_SWITCH && text) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s takes no value, found '%s'", arg->name, text);
        }
        if (arg->kind != FLIM_ARG_SWITCH && !text) {
            if (i + 1 == argc) {
                return flim_fail(err, FLIM_ERROR_USAGE, "%s wants a value: %s", arg->name, arg->help);
            }
            text = argv[++i];
        }
        flim_status status = set(arg, text, err);
        if (status != FLIM_OK) {
            return status;
        }
    }
    return FLIM_OK;
}

static void print_default(FILE *out, const flim_arg *arg)
{
    switch (arg->kind) {
    case FLIM_ARG_SWITCH: break;
    case FLIM_ARG_INT: fprintf(out, " [%" PRId64 "]", *(const int64_t *)arg->out); break;
    case FLIM_ARG_SEED: fprintf(out, " [%" PRIu64 "]", *(const uint64_t *)arg->out); break;
    case FLIM_ARG_NUMBER: fprintf(out, " [%g]", *(const double *)arg->out); break;
    case FLIM_ARG_TEXT:
        if (*(const char *const *)arg->out) {
            fprintf(out, " [%s]", *(const char *const *)arg->out);
        }
        break;
    case FLIM_ARG_CHOICE: fprintf(out, " [%s]", arg->choice[*(const int *)arg->out]); break;
    }
}

void flim_args_help(FILE *out, const flim_arg *table, int n)
{
    for (int i = 0; i < n; i++) {
        char left[128];
        int used = snprintf(left, sizeof left, "  %s%s%s", table[i].name, table[i].value ? " " : "",
                            table[i].value ? table[i].value : "");
        for (int j = 0; j < table[i].n_choice && used > 0 && (size_t)used < sizeof left; j++) {
            used += snprintf(left + used, sizeof left - (size_t)used, "%s%s", j ? "|" : " ", table[i].choice[j]);
        }
        fprintf(out, "%-22s%s%s", left, used > 21 ? "\n                      " : "", table[i].help);
        print_default(out, &table[i]);
        fputc('\n', out);
    }
    fprintf(out, "%-22s%s\n%-22s%s\n", "  --help", "this text", "  --version", "name and version");
}

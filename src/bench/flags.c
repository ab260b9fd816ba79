#include "bench/flags.h"

#include <inttypes.h>
#include <string.h>

#include "core/parse.h"

enum { MOST_FLAGS = 64 };

/* The flag whose name is the text up to '='; FLIM_ERROR_USAGE names the nearest. */
static flim_status find(const flim_flag *flags, int n, const char *text, const flim_flag **out, flim_error *err)
{
    size_t length = strcspn(text, "=");
    const char *names[MOST_FLAGS];
    int known = n < MOST_FLAGS ? n : MOST_FLAGS;
    for (int i = 0; i < known; i++) {
        names[i] = flags[i].name;
        if (strlen(names[i]) == length && strncmp(names[i], text, length) == 0) {
            *out = &flags[i];
            return FLIM_OK;
        }
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), text);
    return flim_fail(err, FLIM_ERROR_USAGE, "unknown flag '%s' (did you mean '%s'?)", name, flim_nearest(name, names, known));
}

static flim_status set(const flim_flag *flag, const char *text, flim_error *err)
{
    switch (flag->kind) {
    case FLIM_FLAG_I64:
        return flim_parse_i64(flag->name, text, (int64_t)flag->min, (int64_t)flag->max, (int64_t *)flag->value, err);
    case FLIM_FLAG_U64: return flim_parse_u64(flag->name, text, (uint64_t *)flag->value, err);
    case FLIM_FLAG_DOUBLE: return flim_parse_double(flag->name, text, flag->min, flag->max, (double *)flag->value, err);
    case FLIM_FLAG_TEXT:
        if (!text[0]) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s: an empty value; expected %s", flag->name, flag->argument);
        }
        *(const char **)flag->value = text;
        return FLIM_OK;
    case FLIM_FLAG_SWITCH: break;
    }
    *(bool *)flag->value = true;
    return FLIM_OK;
}

flim_status flim_flags_parse(const flim_flag *flags, int n, int argc, char *const *argv, bool *help, flim_error *err)
{
    *help = false;
    for (int i = 0; i < argc; i++) {
        *help = *help || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    }
    for (int i = 0; i < argc && !*help; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            return flim_fail(err, FLIM_ERROR_USAGE, "unexpected argument '%s': every argument is a flag (see --help)",
                             argv[i]);
        }
        const flim_flag *flag;
        flim_status status = find(flags, n, argv[i], &flag, err);
        if (status != FLIM_OK) {
            return status;
        }
        const char *value = strchr(argv[i], '=');
        if (flag->kind == FLIM_FLAG_SWITCH && value) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s takes no value, found '%s'", flag->name, value + 1);
        }
        if (flag->kind != FLIM_FLAG_SWITCH && !value && i + 1 == argc) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s needs a value: %s %s", flag->name, flag->name, flag->argument);
        }
        if (value) {
            value++;
        } else if (flag->kind != FLIM_FLAG_SWITCH) {
            value = argv[++i];
        }
        status = set(flag, value ? value : "", err);
        if (status != FLIM_OK) {
            return status;
        }
    }
    return FLIM_OK;
}

static void print_default(const flim_flag *flag, FILE *out)
{
    switch (flag->kind) {
    case FLIM_FLAG_I64: fprintf(out, " [%" PRId64 "]", *(const int64_t *)flag->value); break;
    case FLIM_FLAG_U64: fprintf(out, " [%" PRIu64 "]", *(const uint64_t *)flag->value); break;
    case FLIM_FLAG_DOUBLE: fprintf(out, " [%g]", *(const double *)flag->value); break;
    case FLIM_FLAG_TEXT:
        if (*(const char *const *)flag->value) {
            fprintf(out, " [%s]", *(const char *const *)flag->value);
        }
        break;
    case FLIM_FLAG_SWITCH: break;
    }
    fputc('\n', out);
}

void flim_flags_print(const flim_flag *flags, int n, FILE *out)
{
    for (int i = 0; i < n; i++) {
        char left[48];
        snprintf(left, sizeof left, "%s%s%s", flags[i].name, flags[i].argument ? " " : "",
                 flags[i].argument ? flags[i].argument : "");
        fprintf(out, "  %-22s %s", left, flags[i].help);
        print_default(&flags[i], out);
    }
}

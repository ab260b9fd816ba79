#include "config/flag_table.h"

#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/alloc.h"
#include "core/parse.h"
#include "core/text.h"
#include "core/try.h"
#include "config/synonyms.h"

enum { NAME_MAX_LENGTH = 80 };

/* ---- values */

static void *value_of(const flim_flag_row *row, void *options)
{
    return (char *)options + row->offset;
}

static const void *const_value_of(const flim_flag_row *row, const void *options)
{
    return (const char *)options + row->offset;
}

/* True when value meets every bound of allowed: ">= 0, < 1". */
static bool within(const char *allowed, double value)
{
    for (const char *at = allowed; at && *at;) {
        bool lower = *at++ == '>', equal = *at == '=';
        char *end;
        double bound = strtod(at + equal, &end);
        if ((lower ? value < bound : value > bound) || (!equal && value == bound)) {
            return false;
        }
        at = end + strspn(end, ", ");
    }
    return true;
}

static flim_status out_of_range(const flim_flag_row *row, const char *what, const char *text, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_USAGE, "%s: %s is out of range, must be %s%s%s", what, text, row->allowed,
                     row->word ? " or " : "", row->word ? row->word : "");
}

static flim_status check_text(const flim_flag_row *row, const char *what, const char *text, flim_error *err)
{
    if (!flim_utf8_is_valid(text)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: the value is not valid UTF-8", what);
    }
    if (row->type == FLIM_VALUE_LIST && !text[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: an empty name", what);
    }
    if (row->choices) {
        int unused;
        FLIM_TRY(flim_parse_choice(what, text, row->choices, &unused, err));
    }
    if (row->valid && !row->valid(text)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: '%.200s' is not %s", what, text, row->allowed);
    }
    return FLIM_OK;
}

static flim_status set_integer(const flim_flag_row *row, int64_t *value, const char *what, const char *text, flim_error *err)
{
    int64_t parsed;
    if (row->word && strcmp(text, row->word) == 0) {
        *value = row->word_value;
        return FLIM_OK;
    }
    FLIM_TRY(flim_parse_i64(what, text, INT64_MIN, INT64_MAX, &parsed, err));
    if (!within(row->allowed, (double)parsed)) {
        return out_of_range(row, what, text, err);
    }
    *value = parsed;
    return FLIM_OK;
}

static flim_status set_real(const flim_flag_row *row, double *value, const char *what, const char *text, flim_error *err)
{
    double parsed;
    FLIM_TRY(flim_parse_double(what, text, -DBL_MAX, DBL_MAX, &parsed, err));
    if (!within(row->allowed, parsed)) {
        return out_of_range(row, what, text, err);
    }
    *value = parsed;
    return FLIM_OK;
}

flim_path_kind flim_flag_path_kind(const char *metavar)
{
    static const struct {
        const char *metavar;
        flim_path_kind kind;
    } kinds[] = {{"FILE", FLIM_PATH_FILE},
                 {"CONFIG", FLIM_PATH_FILE},
                 {"RUN|FILE", FLIM_PATH_FILE},
                 {"RUN", FLIM_PATH_FOLDER},
                 {"DIR", FLIM_PATH_FOLDER}};
    for (size_t i = 0; metavar && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(metavar, kinds[i].metavar) == 0) {
            return kinds[i].kind;
        }
    }
    return FLIM_PATH_NONE;
}

static bool is_path(const flim_flag_row *row)
{
    return flim_flag_path_kind(row->metavar) != FLIM_PATH_NONE;
}

flim_status flim_path_expand(const char *what, const char *text, char **out, flim_error *err)
{
    const char *home = getenv("HOME");
    if (text[0] != '~') {
        *out = flim_strdup(text, err);
        return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
    if ((text[1] && text[1] != '/') || !home || !home[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: '%.200s': %s; write the whole path, or ./~ for a name that begins so",
                         what, text, text[1] && text[1] != '/' ? "only ~/ means a home folder" : "HOME is not set");
    }
    *out = flim_strprintf(err, "%s%s", home, text + 1);
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

static flim_status replace_text(char **value, const char *text, flim_error *err)
{
    char *copy = flim_strdup(text, err);
    if (!copy) {
        return FLIM_ERROR_MEMORY;
    }
    flim_free(*value);
    *value = copy;
    return FLIM_OK;
}

static flim_status set_text(const flim_flag_row *row, char **value, const char *what, const char *text, flim_error *err)
{
    FLIM_TRY(check_text(row, what, text, err));
    if (!is_path(row)) {
        return replace_text(value, text, err);
    }
    char *path;
    FLIM_TRY(flim_path_expand(what, text, &path, err));
    flim_free(*value);
    *value = path;
    return FLIM_OK;
}

flim_status flim_flag_set(const flim_flag_row *row, void *options, const char *what, const char *text, flim_error *err)
{
    void *value = value_of(row, options);
    switch (row->type) {
    case FLIM_VALUE_SWITCH: return flim_parse_bool(what, text, value, err);
    case FLIM_VALUE_INTEGER: return set_integer(row, value, what, text, err);
    case FLIM_VALUE_UNSIGNED: return flim_parse_u64(what, text, value, err);
    case FLIM_VALUE_REAL: return set_real(row, value, what, text, err);
    case FLIM_VALUE_TEXT: return set_text(row, value, what, text, err);
    case FLIM_VALUE_CHOICE: return flim_parse_choice(what, text, row->choices, value, err);
    case FLIM_VALUE_LIST: break;
    }
    FLIM_TRY(check_text(row, what, text, err));
    if (!is_path(row)) {
        return flim_string_list_add(value, text, err);
    }
    char *path;
    FLIM_TRY(flim_path_expand(what, text, &path, err));
    const flim_status status = flim_string_list_add(value, path, err);
    flim_free(path);
    return status;
}

void flim_flag_clear(const flim_flag_row *row, void *options)
{
    if (row->type == FLIM_VALUE_LIST) {
        flim_string_list_free(value_of(row, options));
    }
}

static char *real_text(double value, flim_error *err)
{
    char text[32];
    flim_double_text(value, text);
    return flim_strdup(text, err);
}

char *flim_flag_text(const flim_flag_row *row, const void *options, flim_error *err)
{
    const void *value = const_value_of(row, options);
    switch (row->type) {
    case FLIM_VALUE_SWITCH: return flim_strdup(*(const bool *)value ? "true" : "false", err);
    case FLIM_VALUE_INTEGER:
        if (row->word && *(const int64_t *)value == row->word_value) {
            return flim_strdup(row->word, err);
        }
        return flim_strprintf(err, "%" PRId64, *(const int64_t *)value);
    case FLIM_VALUE_UNSIGNED: return flim_strprintf(err, "%" PRIu64, *(const uint64_t *)value);
    case FLIM_VALUE_REAL: return real_text(*(const double *)value, err);
    case FLIM_VALUE_TEXT: return flim_strdup(*(char *const *)value, err);
    case FLIM_VALUE_CHOICE: return flim_strdup(*(const int *)value < 0 ? "" : row->choices[*(const int *)value], err);
    case FLIM_VALUE_LIST: break;
    }
    return flim_strdup("", err);
}

const flim_string_list *flim_flag_list(const flim_flag_row *row, const void *options)
{
    return const_value_of(row, options);
}

flim_status flim_flag_copy(const flim_flag_row *row, const void *from, void *to, flim_error *err)
{
    static const size_t sizes[] = {[FLIM_VALUE_SWITCH] = sizeof(bool),
                                   [FLIM_VALUE_INTEGER] = sizeof(int64_t),
                                   [FLIM_VALUE_UNSIGNED] = sizeof(uint64_t),
                                   [FLIM_VALUE_REAL] = sizeof(double),
                                   [FLIM_VALUE_CHOICE] = sizeof(int)};
    if (row->type == FLIM_VALUE_LIST) {
        const flim_string_list *list = flim_flag_list(row, from);
        flim_flag_clear(row, to);
        for (int i = 0; i < list->n; i++) {
            FLIM_TRY(flim_string_list_add(value_of(row, to), list->item[i], err));
        }
    } else if (row->type == FLIM_VALUE_TEXT) {
        return replace_text(value_of(row, to), *(char *const *)const_value_of(row, from), err);
    } else {
        memcpy(value_of(row, to), const_value_of(row, from), sizes[row->type]);
    }
    return FLIM_OK;
}

void flim_flag_key(const flim_flag_row *row, char *key, size_t size)
{
    snprintf(key, size, "%s", row->name);
    for (char *at = key; *at; at++) {
        *at = *at == '-' ? '_' : *at;
    }
}

static flim_status set_initial(const flim_flag_row *row, void *options, flim_error *err)
{
    if (row->type == FLIM_VALUE_TEXT) { /* of no check: "" for none */
        char **text = value_of(row, options);
        *text = flim_strdup(row->initial, err);
        return *text ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
    if (row->type == FLIM_VALUE_CHOICE && !row->initial[0]) {
        *(int *)value_of(row, options) = -1;
        return FLIM_OK;
    }
    const bool empty = row->type == FLIM_VALUE_LIST && !row->initial[0];
    return empty ? FLIM_OK : flim_flag_set(row, options, row->name, row->initial, err);
}

flim_status flim_flag_table_init(const flim_flag_table *table, void *options, flim_error *err)
{
    /* Texts and lists first, so that free may be called after any failure. */
    for (int i = 0; i < table->n; i++) {
        if (table->row[i].type == FLIM_VALUE_TEXT) {
            *(char **)value_of(&table->row[i], options) = NULL;
        } else if (table->row[i].type == FLIM_VALUE_LIST) {
            *(flim_string_list *)value_of(&table->row[i], options) = (flim_string_list){0};
        }
    }
    flim_status status = FLIM_OK;
    for (int i = 0; i < table->n && status == FLIM_OK; i++) {
        status = set_initial(&table->row[i], options, err);
    }
    if (status != FLIM_OK) {
        flim_flag_table_free(table, options);
    }
    return status;
}

void flim_flag_table_free(const flim_flag_table *table, void *options)
{
    for (int i = 0; i < table->n; i++) {
        const flim_flag_row *row = &table->row[i];
        if (row->type == FLIM_VALUE_TEXT) {
            char **text = value_of(row, options);
            flim_free(*text);
            *text = NULL;
        }
        flim_flag_clear(row, options);
    }
}

/* ---- command lines */

/* The row of a flag's name (without dashes, `length` bytes), or NULL; *off: it has --no- before it. */
static const flim_flag_row *find(const flim_flag_table *table, const char *name, size_t length, bool *off)
{
    for (int i = 0; i < table->n; i++) {
        const flim_flag_row *row = &table->row[i];
        size_t own = strlen(row->name);
        if (own == length && strncmp(row->name, name, length) == 0) {
            *off = false;
            return row;
        }
        if (row->type == FLIM_VALUE_SWITCH && own + 3 == length && strncmp(name, "no-", 3) == 0 &&
            strncmp(row->name, name + 3, own) == 0) {
            *off = true;
            return row;
        }
    }
    return NULL;
}

/* The row that a flag of another name stands for; fixed: with its also_value. */
static const flim_flag_row *find_also(const flim_flag_table *table, const char *name, size_t length, bool fixed)
{
    for (int i = 0; i < table->n; i++) {
        const char *also = table->row[i].also;
        if (also && fixed == (table->row[i].also_value != NULL) && strlen(also) == length &&
            strncmp(also, name, length) == 0) {
            return &table->row[i];
        }
    }
    return NULL;
}

static flim_status unknown_flag(const flim_flag_table *table, const char *name, size_t length, flim_error *err)
{
    char found[NAME_MAX_LENGTH];
    snprintf(found, sizeof found, "%.*s", length < sizeof found - 1 ? (int)length : (int)sizeof found - 1, name);
    const bool off = strncmp(found, "no-", 3) == 0;
    const flim_flag_row *row = flim_flag_meant(table, found);
    if (off && (!row || row->type == FLIM_VALUE_SWITCH)) {
        row = flim_flag_meant(table, found + 3);
    }
    const char *names[] = {"help", "version", row ? row->name : "help"}; /* --hlep is no --clip */
    const char *near = flim_nearest(found, names, 3);
    near = near || !row ? near : row->name; /* by its meaning */
    return flim_fail(err, FLIM_ERROR_USAGE, "unknown flag --%s (%s%s%s%s%s --help lists all)", found,
                     near ? "did you mean --" : "",
                     off && row && near == row->name && row->type == FLIM_VALUE_SWITCH ? "no-" : "", near ? near : "",
                     near ? "? " : "", table->program);
}

/* A word that no flag takes; a path is data, where there is such a flag. */
static flim_status unexpected_argument(const flim_flag_table *table, const char *word, flim_error *err)
{
    bool off;
    const size_t length = strlen(word);
    const bool is_data = strchr(word, '/') || (length > 3 && strcmp(word + length - 3, ".h5") == 0) ||
                         (length > 5 && strcmp(word + length - 5, ".hdf5") == 0);
    if (is_data && find(table, "data", 4, &off)) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "unexpected argument '%.200s' (did you mean --data %.200s? %s --help lists all)", word, word,
                         table->program);
    }
    return flim_fail(err, FLIM_ERROR_USAGE, "unexpected argument '%.200s' (%s --help lists all)", word, table->program);
}

/* Reads argv[*i], which begins with "--", and its value, which may be argv[*i + 1]. */
static flim_status scan_flag(const flim_flag_table *table, int argc, char *const *argv, int *i, flim_flag_use *use,
                             flim_error *err)
{
    const char *name = argv[*i] + 2;
    size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    bool off = false;
    if (value && length == strlen("help") && strncmp(name, "help", length) == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--help=%.80s: there are --help, --help=man, --help=bash and --help=zsh",
                         value);
    }
    use->row = find_also(table, name, length, true);
    if (use->row) {
        use->value = use->row->also_value;
        return value ? flim_fail(err, FLIM_ERROR_USAGE, "--%s takes no value, found '%.200s' (it means --%s %s)",
                                 use->row->also, value, use->row->name, use->value)
                     : FLIM_OK;
    }
    use->row = find(table, name, length, &off);
    use->row = use->row ? use->row : find_also(table, name, length, false);
    if (!use->row) {
        return unknown_flag(table, name, length, err);
    }
    if (use->row->type == FLIM_VALUE_SWITCH) {
        if (value) {
            return flim_fail(err, FLIM_ERROR_USAGE, "--%.*s takes no value, found '%.200s' (there are --%s and --no-%s)",
                             (int)length, name, value, use->row->name, use->row->name);
        }
        use->value = off ? "false" : "true";
        return FLIM_OK;
    }
    /* A row whose value is flags itself takes what begins with dashes. */
    const bool takes_flags = use->row->metavar && strcmp(use->row->metavar, "FLAGS") == 0;
    const bool alone = !value && (*i + 1 >= argc || (!takes_flags && strncmp(argv[*i + 1], "--", 2) == 0));
    if (alone) {
        if (!use->row->alone) {
            return flim_fail(err, FLIM_ERROR_USAGE, "--%s needs a value: --%s %s", use->row->name, use->row->name,
                             use->row->metavar);
        }
        value = use->row->alone;
    }
    use->value = value ? value : argv[++*i];
    return FLIM_OK;
}

/* What the call asks the program for instead of running: the first of such arguments counts. */
static flim_flag_action question(int argc, char *const *argv)
{
    static const struct {
        const char *argument;
        flim_flag_action action;
    } questions[] = {{"-h", FLIM_FLAGS_HELP},        {"--help", FLIM_FLAGS_HELP},      {"--version", FLIM_FLAGS_VERSION},
                     {"--help=man", FLIM_FLAGS_MAN}, {"--help=bash", FLIM_FLAGS_BASH}, {"--help=zsh", FLIM_FLAGS_ZSH}};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        for (size_t q = 0; q < sizeof questions / sizeof questions[0]; q++) {
            if (strcmp(argv[i], questions[q].argument) == 0) {
                return questions[q].action;
            }
        }
    }
    return FLIM_FLAGS_RUN;
}

flim_status flim_flag_table_scan(const flim_flag_table *table, int argc, char *const *argv, flim_flag_use *uses, int *n_uses,
                                 flim_string_list *operands, flim_flag_action *action, flim_error *err)
{
    *n_uses = 0;
    *action = question(argc, argv);
    if (*action != FLIM_FLAGS_RUN) {
        return FLIM_OK;
    }
    bool flags = true;
    for (int i = 1; i < argc; i++) {
        if (flags && strcmp(argv[i], "--") == 0) {
            flags = false;
        } else if (flags && strncmp(argv[i], "--", 2) == 0) {
            FLIM_TRY(scan_flag(table, argc, argv, &i, &uses[*n_uses], err));
            *n_uses += 1;
        } else if (flags && argv[i][0] == '-' && argv[i][1]) {
            return flim_fail(err, FLIM_ERROR_USAGE, "unknown flag %.80s: flags begin with two dashes (%s --help lists all)",
                             argv[i], table->program);
        } else if (!table->operand || !operands) {
            return unexpected_argument(table, argv[i], err);
        } else {
            FLIM_TRY(flim_string_list_add(operands, argv[i], err));
        }
    }
    return FLIM_OK;
}

flim_status flim_flag_apply(const flim_flag_table *table, const flim_flag_use *use, void *options, bool *seen,
                            flim_error *err)
{
    char what[NAME_MAX_LENGTH];
    snprintf(what, sizeof what, "--%s", use->row->name);
    bool *first = &seen[use->row - table->row];
    if (!*first) {
        flim_flag_clear(use->row, options);
        *first = true;
    }
    return flim_flag_set(use->row, options, what, use->value, err);
}

static flim_status parse(const flim_flag_table *table, void *options, int argc, char *const *argv, flim_string_list *operands,
                         flim_flag_action *action, flim_error *err)
{
    int n = 0;
    flim_flag_use *uses = flim_alloc((size_t)(argc > 0 ? argc : 1), sizeof *uses, err);
    bool *seen = flim_alloc((size_t)table->n, sizeof *seen, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(uses && seen ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_flag_table_scan(table, argc, argv, uses, &n, operands, action, err));
    for (int i = 0; *action == FLIM_FLAGS_RUN && i < n; i++) {
        FLIM_TRY_DONE(flim_flag_apply(table, &uses[i], options, seen, err));
    }
done:
    flim_free(seen);
    flim_free(uses);
    return status;
}

/* The first row from `from` on whose file is standard output; NULL = none. */
static const flim_flag_row *next_stdout(const flim_flag_table *table, const void *options, int from)
{
    for (int i = from; i < table->n; i++) {
        const flim_flag_row *row = &table->row[i];
        if (row->writes) {
            const char *path = *(char *const *)((const char *)options + row->offset);
            if (path[0] && flim_file_is_standard_output(path)) {
                return row;
            }
        }
    }
    return NULL;
}

const flim_flag_row *flim_flag_table_stdout(const flim_flag_table *table, const void *options)
{
    return next_stdout(table, options, 0);
}

static flim_status check_stdout(const flim_flag_table *table, const void *options, flim_error *err)
{
    const flim_flag_row *one = next_stdout(table, options, 0);
    const flim_flag_row *two = one ? next_stdout(table, options, (int)(one - table->row) + 1) : NULL;
    return two ? flim_fail(err, FLIM_ERROR_USAGE, "standard output is for one file: --%s and --%s both lead there", one->name,
                           two->name)
               : FLIM_OK;
}

flim_status flim_flag_table_read(const flim_flag_table *table, void *options, int argc, char *const *argv,
                                 flim_string_list *operands, FILE *out, bool *go, flim_error *err)
{
    flim_flag_action action = FLIM_FLAGS_RUN;
    *go = false;
    FLIM_TRY(flim_flag_table_init(table, options, err));
    flim_status status = parse(table, options, argc, argv, operands, &action, err);
    if (status == FLIM_OK && action == FLIM_FLAGS_RUN) {
        status = check_stdout(table, options, err);
    }
    if (status == FLIM_OK && action == FLIM_FLAGS_RUN) {
        *go = true;
        return FLIM_OK;
    }
    if (status == FLIM_OK) {
        status = flim_flag_table_show(table, action, out, err);
    }
    flim_flag_table_free(table, options);
    if (operands) {
        flim_string_list_free(operands);
    }
    return status;
}

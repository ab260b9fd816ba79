/* What is odd in the names of groups and classes: donors that are missing, donors and classes that are written in two ways, and
 * donors that are too few or too many to split by. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alike_names.h"
#include "core/alloc.h"
#include "core/spelling.h"
#include "core/try.h"
#include "core/text.h"
#include "data/findings.h"

enum { SHOWN = 4, NAME_TEXT = 64 };

/* ---- missing */

typedef enum presence { PRESENT, DOUBTFUL, MISSING } presence;

/* A group's name as a number; false if it is none. */
static bool as_number(const char *name, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(name, &end, 10);
    return errno == 0 && end != name && *end == '\0' && !isspace((unsigned char)name[0]);
}

/* Of groups that are all numbers: the numbers that stand out among them. */
typedef struct numbers {
    bool all; /* groups are numbers */
    int64_t least_plain, most_plain; /* among those that no program writes for "missing" */
} numbers;

static bool is_negative_code(int64_t v)
{
    return v == -1 || v == -9 || v == -99 || v == -999 || v == -9999 || v == -99999 || v == -128 || v == -32768;
}

static bool is_largest(int64_t v)
{
    return v == 255 || v == 65535 || v == INT32_MAX || v == INT64_MAX;
}

/* What programs leave where nothing was written: NULL for an ordinary number. */
static const char *fill_of(int64_t v)
{
    static const struct {
        int64_t value;
        const char *words;
    } fills[] = {{INT64_MIN, "the smallest 64-bit integer, which marks a missing value"},
                 {INT64_MIN + 2, "netCDF's fill value of 64-bit integers"},
                 {INT32_MIN, "the smallest 32-bit integer, R's NA"},
                 {INT32_MIN + 1, "netCDF's fill value of 32-bit integers"},
                 {UINT32_MAX, "netCDF's fill value of unsigned 32-bit integers"},
                 {INT16_MIN + 1, "netCDF's fill value of 16-bit integers"},
                 {INT8_MIN + 1, "netCDF's fill value of bytes"}};
    for (size_t i = 0; i < sizeof fills / sizeof fills[0]; i++) {
        if (fills[i].value == v) {
            return fills[i].words;
        }
    }
    return NULL;
}

static numbers numbers_of(const flim_dataset_info *info)
{
    numbers n = {.all = true, .least_plain = INT64_MAX, .most_plain = INT64_MIN};
    for (int64_t g = 0; g < info->groups && n.all; g++) {
        int64_t v;
        n.all = as_number(info->group_name[g], &v);
        if (n.all && !fill_of(v) && !is_negative_code(v) && !is_largest(v)) {
            n.least_plain = v < n.least_plain ? v : n.least_plain;
            n.most_plain = v > n.most_plain ? v : n.most_plain;
        }
    }
    return n;
}

/* A code stands out if no other number is near: -1 among numbers from 0 on, 255 among numbers below 128. */
static presence presence_of_number(int64_t v, const numbers *all)
{
    const bool small = v == INT16_MIN + 1 || v == INT8_MIN + 1; /* numbers that people may write, too */
    const bool plain = all->least_plain <= all->most_plain, no_negative = plain && all->least_plain >= 0;
    if (fill_of(v) && !(small && !(all->all && no_negative))) {
        return MISSING;
    }
    if (!all->all || !plain) {
        return PRESENT;
    }
    return (is_negative_code(v) && no_negative) || (is_largest(v) && all->most_plain < v / 2) ? DOUBTFUL : PRESENT;
}

/* folded: blanks and invisible characters dropped, lower case, no quotes. */
static presence presence_of_text(const char *folded)
{
    static const char *const words[] = {"nan",       "na",           "n/a",        "n.a.",    "n.a",          "<na>",
                                        "#n/a",      "#na",          "none",       "null",    "<null>",       "nil",
                                        "nat",       "nd",           "n/d",        "unknown", "unkn",         "unk",
                                        "undefined", "undetermined", "unassigned", "missing", "notavailable", "notapplicable",
                                        "nogroup",   "nodonor",      "nopatient",  "tbd",     "empty",        ".",
                                        "?",         "??",           "???",        "-",       "--",           "---",
                                        "_",         "<none>",       "unspecified"};
    if (!folded[0]) {
        return MISSING;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i], folded) == 0) {
            return DOUBTFUL;
        }
    }
    return PRESENT;
}

static flim_status find_presence(const flim_dataset_info *info, presence *is, flim_error *err)
{
    const numbers all = numbers_of(info);
    const unsigned how = FLIM_SPELLING_BLANKS | FLIM_SPELLING_CASE | FLIM_SPELLING_INVISIBLE | FLIM_SPELLING_QUOTES;
    for (int64_t g = 0; g < info->groups; g++) {
        int64_t v;
        if (as_number(info->group_name[g], &v)) {
            is[g] = presence_of_number(v, &all);
            continue;
        }
        char *folded = flim_text_folded(info->group_name[g], how, err);
        if (!folded) {
            return FLIM_ERROR_MEMORY;
        }
        is[g] = presence_of_text(folded);
        flim_free(folded);
    }
    return FLIM_OK;
}

/* "'nan', '?' and 3 more" of the groups that are as `wanted` says. */
static void name_groups(const flim_dataset_info *info, const presence *is, presence wanted, char *text, size_t size)
{
    int64_t met = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int64_t g = 0; g < info->groups; g++) {
        if (is[g] == wanted && met++ < SHOWN) {
            char name[NAME_TEXT];
            flim_text_escaped(info->group_name[g], name, sizeof name);
            used += (size_t)snprintf(text + used, size - used, "%s'%s'", met > 1 ? ", " : "", name);
        }
    }
    if (met > SHOWN) {
        snprintf(text + used, size - used, " and %" PRId64 " more", met - SHOWN);
    }
}

static flim_status report_missing(const flim_dataset_info *info, const presence *is, bool by_group, flim_findings *out,
                                  flim_error *err)
{
    flim_found missing = {0}, doubtful = {0};
    char names[SHOWN * (NAME_TEXT + 4) + 32], about[128] = "";
    for (int64_t i = 0; i < info->n; i++) {
        if (is[info->group[i]] != PRESENT) {
            flim_found_cell(is[info->group[i]] == MISSING ? &missing : &doubtful, i);
        }
    }
    if (missing.count) {
        int64_t v;
        const char *name = info->group_name[info->group[missing.cell[0]]];
        if (as_number(name, &v) && fill_of(v)) {
            snprintf(about, sizeof about, ", %s", fill_of(v));
        }
        name_groups(info, is, MISSING, names, sizeof names);
        FLIM_TRY(flim_findings_add(
            out, FLIM_FINDING_GROUP_MISSING, by_group ? FLIM_FINDING_ERROR : FLIM_FINDING_WARNING, &missing, err,
            "%" PRId64 " of %" PRId64 " cells %s no group: /group is %s%s in them, cell %" PRId64
            " first; expected a name per cell, since cells without one would be one more donor: name "
            "their donor, exclude them, or use --cv stratified",
            missing.count, info->n, flim_verb(missing.count, "has", "have"), names, about, missing.cell[0]));
    }
    if (doubtful.count) {
        name_groups(info, is, DOUBTFUL, names, sizeof names);
        FLIM_TRY(flim_findings_add(out, FLIM_FINDING_GROUP_DOUBTFUL, FLIM_FINDING_WARNING, &doubtful, err,
                                   "%" PRId64 " of %" PRId64 " cells %s the group %s, which programs write for a missing "
                                   "value: all of them are treated as one donor; is that right?",
                                   doubtful.count, info->n, flim_verb(doubtful.count, "has", "have"), names));
    }
    return FLIM_OK;
}

/* ---- names that look alike */

/* A finding of the names of groups or classes, with the cells whose name another spelling came before. */
static flim_status report_alike(const flim_dataset_info *info, const flim_names *names, flim_finding_kind kind,
                                flim_findings *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    char *text = NULL;
    flim_found cells = {0};
    bool *alike = flim_alloc((size_t)names->n, sizeof *alike, err); /* (names) */
    FLIM_TRY_DONE(alike ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_alike_names(names, alike, &text, err));
    for (int64_t i = 0; text && i < info->n; i++) {
        const int64_t name = kind == FLIM_FINDING_GROUPS_ALIKE ? info->group[i] : info->label ? info->label[i] : -1;
        if (name >= 0 && alike[name]) {
            flim_found_cell(&cells, i);
        }
    }
    status = text ? flim_findings_add(out, kind, FLIM_FINDING_WARNING, &cells, err, "%s", text) : FLIM_OK;
done:
    flim_free(alike);
    flim_free(text);
    return status;
}

static flim_status find_alike(const flim_dataset_info *info, const presence *is, flim_findings *out, flim_error *err)
{
    bool *missing = flim_alloc((size_t)info->groups, sizeof *missing, err); /* (groups) */
    if (!missing) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t g = 0; g < info->groups; g++) {
        missing[g] = is[g] == MISSING;
    }
    const flim_names names = {
        .n = info->groups, .name = info->group_name, .left_out = missing, .what = "groups", .one = "donor"};
    const flim_status status = report_alike(info, &names, FLIM_FINDING_GROUPS_ALIKE, out, err);
    flim_free(missing);
    return status;
}

flim_status flim_find_in_classes(const flim_dataset_info *info, flim_findings *out, flim_error *err)
{
    const flim_names names = {.n = info->classes, .name = info->class_name, .what = "classes", .one = "class"};
    return info->classes > 0 ? report_alike(info, &names, FLIM_FINDING_CLASSES_ALIKE, out, err) : FLIM_OK;
}

/* ---- how many cells and classes a group has */

static flim_status find_sizes(const flim_dataset_info *info, flim_findings *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    int64_t *cells = flim_alloc((size_t)info->groups, sizeof *cells, err);
    int32_t *label = flim_alloc((size_t)info->groups, sizeof *label, err); /* of its cells; -1 = several */
    int64_t alone = 0, one_class = 0;
    flim_found lonely = {0};
    FLIM_TRY_DONE(cells && label ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < info->n; i++) {
        const int64_t g = info->group[i];
        const int32_t k = info->label ? info->label[i] : -1;
        label[g] = cells[g]++ == 0 || label[g] == k ? k : -1;
    }
    for (int64_t g = 0; g < info->groups; g++) {
        alone += cells[g] == 1;
        one_class += label[g] >= 0;
    }
    if (info->groups == 1) {
        FLIM_TRY_DONE(flim_findings_add(out, FLIM_FINDING_ONE_GROUP, FLIM_FINDING_WARNING, NULL, err,
                                        "all cells are of one group: cross-validation by group is not possible"));
    } else if (info->n > 2 && 2 * alone > info->n) {
        for (int64_t i = 0; i < info->n; i++) {
            if (cells[info->group[i]] == 1) {
                flim_found_cell(&lonely, i);
            }
        }
        status = flim_findings_add(out, FLIM_FINDING_GROUPS_OF_ONE_CELL, FLIM_FINDING_WARNING, &lonely, err,
                                   "%" PRId64 " of %" PRId64
                                   " groups have one cell only: folds by group are then folds by cell, and cells of one "
                                   "donor may be in training and test sets alike; does /group number cells?",
                                   alone, info->groups);
    } else if (info->classes > 1 && one_class == info->groups) {
        status = flim_findings_add(out, FLIM_FINDING_GROUPS_OF_ONE_CLASS, FLIM_FINDING_WARNING, NULL, err,
                                   "every group has one class only: differences between groups (instrument, day) cannot be "
                                   "separated from the class");
    }
done:
    flim_free(cells);
    flim_free(label);
    return status;
}

flim_status flim_find_in_groups(const flim_dataset_info *info, bool by_group, flim_findings *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    if (!info->group) {
        return FLIM_OK;
    }
    presence *is = flim_alloc((size_t)info->groups, sizeof *is, err); /* (groups) */
    FLIM_TRY_DONE(is ? find_presence(info, is, err) : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(report_missing(info, is, by_group, out, err));
    FLIM_TRY_DONE(find_alike(info, is, out, err));
    status = find_sizes(info, out, err);
done:
    flim_free(is);
    return status;
}

/* The fold table. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/text.h"
#include "cv/split/split_internal.h"

enum { MOST_TEXT = 4000 };

/* Columns on a terminal: code points, not bytes. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text; text++) {
        width += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return width;
}

static void add_text(char *line, size_t *used, const char *text, int width)
{
    int blanks = width - width_of(text);
    if (*used < MOST_TEXT - 1) {
        *used += (size_t)snprintf(line + *used, MOST_TEXT - *used, "%*s%s", blanks > 0 ? blanks : 0, "", text);
        *used = *used < MOST_TEXT ? *used : MOST_TEXT - 1;
    }
}

static void add_number(char *line, size_t *used, int64_t value, int width)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    add_text(line, used, text, width);
}

static int class_width(const flim_split_data *data, int c)
{
    char buffer[32];
    int width = width_of(flim_split_class(data, c, buffer));
    return (width > 6 ? width : 6) + 2;
}

/* seen: (groups) and count: (classes), scratch.  named: the groups are listed after the numbers, whole. */
static void part_row(const flim_split_data *data, const char *fold, const char *part, const int64_t *list, int64_t n,
                     bool named, bool *seen, int64_t *count, const flim_log *log)
{
    char line[MOST_TEXT];
    size_t used = 0;
    int64_t groups = 0;
    memset(count, 0, (size_t)data->classes * sizeof *count);
    memset(seen, 0, data->group ? (size_t)data->groups * sizeof *seen : 0);
    for (int64_t i = 0; i < n; i++) {
        count[data->label[list[i]]]++;
        if (data->group) {
            groups += !seen[data->group[list[i]]];
            seen[data->group[list[i]]] = true;
        }
    }
    add_text(line, &used, fold, 4);
    used += (size_t)snprintf(line + used, MOST_TEXT - used, "  %-7s", part);
    add_number(line, &used, n, 8);
    if (data->group) {
        add_number(line, &used, groups, 8);
    }
    for (int c = 0; c < data->classes; c++) {
        add_number(line, &used, count[c], class_width(data, c));
    }
    for (int64_t g = 0; named && g < data->groups; g++) {
        char buffer[32];
        if (seen[g]) {
            add_text(line, &used, "  ", 2);
            add_text(line, &used, flim_split_group(data, g, buffer), 0);
        }
    }
    flim_log_line(log, FLIM_LOG_INFO, "%s", line);
}

void flim_splits_table(const flim_splits *splits, const flim_split_data *data, const flim_log *log)
{
    char line[MOST_TEXT], buffer[32];
    size_t used = 0;
    bool *seen = flim_alloc(data->group ? (size_t)data->groups : 0, sizeof *seen, NULL);
    int64_t *count = flim_alloc((size_t)data->classes, sizeof *count, NULL);
    if (!seen || !count) {
        flim_log_line(log, FLIM_LOG_WARNING, "no memory for the fold table");
        goto done;
    }
    if (splits->n_folds == 1) {
        flim_log_line(log, FLIM_LOG_INFO, "one split (%s), seed %" PRIu64, flim_split_mode_name(splits->mode), splits->seed);
    } else {
        flim_log_line(log, FLIM_LOG_INFO, "cross-validation: %s, %d folds, seed %" PRIu64, flim_split_mode_name(splits->mode),
                      splits->n_folds, splits->seed);
    }
    add_text(line, &used, "fold", 4);
    used += (size_t)snprintf(line + used, MOST_TEXT - used, "  %-7s", "part");
    add_text(line, &used, "cells", 8);
    if (data->group) {
        add_text(line, &used, "groups", 8);
    }
    for (int c = 0; c < data->classes; c++) {
        add_text(line, &used, flim_split_class(data, c, buffer), class_width(data, c));
    }
    flim_log_line(log, FLIM_LOG_INFO, "%s", line);
    bool named = flim_split_by_group(splits->mode) && data->group;
    for (int f = 0; f < splits->n_folds; f++) {
        const flim_fold *fold = &splits->fold[f];
        snprintf(buffer, sizeof buffer, "%d", f);
        part_row(data, buffer, "train", fold->train, fold->n_train, false, seen, count, log);
        part_row(data, "", "val", fold->val, fold->n_val, named, seen, count, log);
        part_row(data, "", "test", fold->test, fold->n_test, named, seen, count, log);
    }
    if (splits->n_holdout) {
        part_row(data, "", "holdout", splits->holdout, splits->n_holdout, data->group != NULL, seen, count, log);
    }
    if (splits->n_unused) {
        part_row(data, "", "unused", splits->unused, splits->n_unused, false, seen, count, log);
    }
    if (named && flim_splits_check(splits, data, NULL) == FLIM_OK) {
        flim_log_line(log, FLIM_LOG_INFO, "leakage check passed: no group is shared between train, val, test and holdout");
    }
done:
    flim_free(seen);
    flim_free(count);
}

/* What is odd in data before anything is trained on it: one list, with counts and the first cells.
 *
 * For: flim_info shows it as a table, train_cv as one line each before it trains, and in summary.json.  Checks add to it; a
 *      check is a function over plain arrays or over what the scan saw of each cell, and says nothing of what is as it
 *      should be.
 * Owns: the list owns its items and texts; flim_findings_free.
 * Errors: FLIM_ERROR_MEMORY.  A finding is no error; train_cv refuses data with one of severity FLIM_FINDING_ERROR.
 */
#ifndef FLIM_DATA_FINDINGS_H
#define FLIM_DATA_FINDINGS_H

#include <stdint.h>
#include <stdio.h>

#include "data/cell_table.h"
#include "formats/json.h"

/* X(enum, word): the word is what tables and JSON call it. */
#define FLIM_FINDING_KINDS(X)                                                                                                \
    X(FLIM_FINDING_GROUP_MISSING, group_missing)                                                                             \
    X(FLIM_FINDING_GROUP_DOUBTFUL, group_doubtful)                                                                           \
    X(FLIM_FINDING_GROUPS_ALIKE, groups_alike)                                                                               \
    X(FLIM_FINDING_ONE_GROUP, one_group)                                                                                     \
    X(FLIM_FINDING_GROUPS_OF_ONE_CELL, groups_of_one_cell)                                                                   \
    X(FLIM_FINDING_GROUPS_OF_ONE_CLASS, groups_of_one_class)                                                                 \
    X(FLIM_FINDING_CLASSES_ALIKE, classes_alike)                                                                             \
    X(FLIM_FINDING_NO_PHOTONS, no_photons)                                                                                   \
    X(FLIM_FINDING_NO_MASK, empty_mask)                                                                                      \
    X(FLIM_FINDING_PHOTONS_OUTSIDE, photons_outside)                                                                         \
    X(FLIM_FINDING_SATURATED, saturated)                                                                                     \
    X(FLIM_FINDING_NOT_COUNTS, not_counts)                                                                                   \
    X(FLIM_FINDING_MASK_MISPLACED, mask_misplaced)                                                                           \
    X(FLIM_FINDING_MASK_MISSES, mask_misses)                                                                                 \
    X(FLIM_FINDING_MASK_COVERS_ALL, mask_covers_all)                                                                         \
    X(FLIM_FINDING_MASK_SOFT, mask_soft)                                                                                     \
    X(FLIM_FINDING_MASK_NUMBERS, mask_numbers)                                                                               \
    X(FLIM_FINDING_TIME_RANGE, time_range)                                                                                   \
    X(FLIM_FINDING_PEAKS_DIFFER, peaks_differ)                                                                               \
    X(FLIM_FINDING_BRIGHTNESS, brightness_differs)                                                                           \
    X(FLIM_FINDING_SIZE, size_differs)                                                                                       \
    X(FLIM_FINDING_COPIES, copies)                                                                                           \
    X(FLIM_FINDING_MULTIPLES, multiples)                                                                                     \
    X(FLIM_FINDING_ROLLED_COPIES, rolled_copies)                                                                             \
    X(FLIM_FINDING_COUNTED_TWICE, counted_twice)                                                                             \
    X(FLIM_FINDING_HOLDOUT_OF_ONE_CLASS, holdout_of_one_class)

typedef enum flim_finding_kind {
#define FLIM_FINDING_ENUM(name, word) name,
    FLIM_FINDING_KINDS(FLIM_FINDING_ENUM)
#undef FLIM_FINDING_ENUM
        FLIM_N_FINDING_KINDS
} flim_finding_kind;

typedef enum flim_finding_severity { FLIM_FINDING_NOTE, FLIM_FINDING_WARNING, FLIM_FINDING_ERROR } flim_finding_severity;

/* Cells that a check met: how many, and the first of them. */
enum { FLIM_FINDING_CELLS = 5 };
typedef struct flim_found {
    int64_t count;
    int64_t cell[FLIM_FINDING_CELLS];
} flim_found;

static inline void flim_found_cell(flim_found *found, int64_t cell)
{
    if (found->count < FLIM_FINDING_CELLS) {
        found->cell[found->count] = cell;
    }
    found->count++;
}

typedef struct flim_finding {
    flim_finding_kind kind;
    flim_finding_severity severity;
    flim_found cells; /* count 0: it is of no cell in particular */
    char *text; /* one line */
} flim_finding;

typedef struct flim_findings {
    flim_finding *item; /* (n) in the order in which they were added */
    int n, capacity;
} flim_findings;

void flim_findings_free(flim_findings *findings); /* zeroed is allowed; leaves it so */

const char *flim_finding_name(flim_finding_kind kind);

/* cells may be NULL: of no cell in particular. */
flim_status flim_findings_add(flim_findings *findings, flim_finding_kind kind, flim_finding_severity severity,
                              const flim_found *cells, flim_error *err, const char *format, ...) FLIM_PRINTF(6, 7);

/* The first of severity FLIM_FINDING_ERROR, NULL if there is none. */
const flim_finding *flim_findings_refusal(const flim_findings *findings);

/* Logs the findings from number `from` on, one line each. */
void flim_findings_log(const flim_findings *findings, int from, const flim_log *log);
/* The table: kind, severity, cells, first cells, and below each the text. */
void flim_findings_print(const flim_findings *findings, FILE *out);
/* [{"kind", "severity", "count", "cells": [], "text"}]; the caller's. */
flim_json *flim_findings_json(const flim_findings *findings);

/* ---- cell_findings.c: cells without photons or counts; what differs between classes; the time range; and all below but copies */

/* All that a file can be asked without folds.  summary (n), rows: of a scan, NULL without one.  by_group: as below. */
flim_status flim_find_in_data(const flim_dataset *dataset, const flim_cell_summary *summary, const flim_table_row *rows,
                              int64_t n_rows, bool by_group, flim_findings *out, flim_error *err);

/* ---- mask_findings.c: masks that belong to something else, or are none; nothing without /mask */
flim_status flim_find_in_masks(const flim_dataset *dataset, const flim_cell_summary *summary, flim_findings *out,
                               flim_error *err);
/* Mean over a file's cells of the share of their photons inside the mask; NaN without /mask or photons. */
double flim_share_inside(const flim_dataset *dataset, const flim_cell_summary *summary, int file);

/* ---- copy_findings.c: cells that are in the data more than once, flipped, turned, rolled in time or times a factor, too.
 * fold: (n) the one that tests the cell, or one of the places below; then copies in different places are found, and exact ones
 * in one place under a kind of their own.  NULL: all. */
enum { FLIM_PLACE_HELD_OUT = -1, FLIM_PLACE_UNUSED = -2, FLIM_PLACE_NOT_TESTED = -3 };
flim_status flim_find_copies(const flim_dataset_info *info, const flim_cell_summary *summary, const int *fold,
                             flim_findings *out, flim_error *err);

/* ---- group_findings.c: needs n, group, groups and group_name of info; label if there are labels; nothing without groups */

/* Cells whose group is missing, groups that may stand for "missing", names that look alike, groups of one cell or class.
 * by_group: folds are made by group, or may be: then a missing group is an error, else a warning. */
flim_status flim_find_in_groups(const flim_dataset_info *info, bool by_group, flim_findings *out, flim_error *err);
/* Names of classes that look alike; needs n, classes, class_name and label of info; nothing without classes. */
flim_status flim_find_in_classes(const flim_dataset_info *info, flim_findings *out, flim_error *err);

#endif

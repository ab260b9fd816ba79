/* The inside of the splitter: tables of groups by class, and the searches over them.
 *
 * Everything works on a table whose cells and groups stand in an order of their own (by name), so that the order of the rows
 * in the file never shows.  Random choices come from flim_split_random: one stream for each (seed, stage, fold).
 */
#ifndef FLIM_CV_SPLIT_PARTS_H
#define FLIM_CV_SPLIT_PARTS_H

#include "flim/random.h"
#include "flim/split.h"

/* The cells that are not held out, and their groups. */
typedef struct flim_split_table {
    const flim_split_data *data;
    int64_t n; /* cells */
    int64_t *cell; /* (n) index into the data, ordered by name, group name, label */
    int64_t *group_of; /* (n) row of `count`, by place in `cell`; NULL without groups */
    int64_t groups; /* groups that have cells; 0 without groups */
    int64_t *group_id; /* (groups) index into the data's groups, ordered by group name */
    int64_t *count; /* (groups, classes) cells */
    int64_t *kind_of; /* (groups) groups with equal rows of `count` are of one kind: any of them does as well */
    int64_t kinds;
    int64_t *class_cells; /* (classes) */
    int64_t *class_groups; /* (classes) groups that have the class */
} flim_split_table;

/* held_out: (data->groups) or NULL. */
flim_status flim_split_table_make(const flim_split_data *data, const bool *held_out, flim_split_table *out, flim_error *err);
void flim_split_table_free(flim_split_table *table);

typedef enum flim_split_stage {
    FLIM_SPLIT_STAGE_TEST = 1,
    FLIM_SPLIT_STAGE_SEARCH,
    FLIM_SPLIT_STAGE_VALIDATION,
    FLIM_SPLIT_STAGE_FRACTION
} flim_split_stage;

flim_random flim_split_random(uint64_t seed, flim_split_stage stage, int fold);

/* What is known about "every class in every fold". */
typedef enum flim_cover { FLIM_COVER_FOUND, FLIM_COVER_NONE, FLIM_COVER_UNKNOWN } flim_cover;

/* Exact search: can the groups, count (groups, classes), be dealt into `folds` so that every fold has every class that any
 * group has?  FOUND fills fold_of (groups), -1 for groups that no fold needed; NONE is a proof; UNKNOWN if the search would
 * take too long (or for more than 64 classes). */
flim_status flim_cover_folds(int64_t groups, int classes, const int64_t *count, int folds, flim_cover *cover, int *fold_of,
                             flim_error *err);

/* Deals groups into folds, none empty (groups >= folds).  With classes > 0: every class in every fold if that can be, else
 * as few gaps as found; then the least mean over classes of the standard deviation over folds of the class's share (the
 * measure that scikit-learn's StratifiedGroupKFold minimises); then even fold sizes.  With classes = 0, count is (groups,1),
 * the sizes, and only they are evened out.  *cover (may be NULL) says what is known about full coverage. */
flim_status flim_assign_groups(int64_t groups, int classes, const int64_t *count, int folds, uint64_t seed, flim_cover *cover,
                               int *fold_of, flim_error *err);

/* Marks val (data->n) for a validation set of the cells with rest (data->n): whole groups when by_group, else stratified
 * cells. */
flim_status flim_split_validation(const flim_split_table *table, const bool *rest, bool by_group, double fraction,
                                  uint64_t seed, int fold, bool *val, flim_error *err);

/* Where validation sets are from: nowhere, since none was asked for; drawn here; a file. */
typedef enum flim_validation_origin {
    FLIM_VALIDATION_UNASKED,
    FLIM_VALIDATION_DRAWN,
    FLIM_VALIDATION_READ
} flim_validation_origin;

static inline flim_validation_origin flim_validation_of(const flim_split_request *request)
{
    return request->val_fraction > 0 ? FLIM_VALIDATION_DRAWN : FLIM_VALIDATION_UNASKED;
}

/* Logs what a user must know about the folds: absent classes, shared groups, incomplete validation. */
flim_status flim_split_warn(const flim_splits *splits, const flim_split_data *data, flim_validation_origin validation,
                            flim_cover cover, const flim_log *log, flim_error *err);

/* The index of a group by its name; FLIM_ERROR_USAGE says what was meant by `what` and which name is near. */
flim_status flim_split_find_group(const flim_split_data *data, const char *what, const char *wanted, int64_t *group,
                                  flim_error *err);
/* Calls take for each group that an item names: one, or several with commas between their names (a name may have commas itself).
 * key: of the list, for errors. */
typedef flim_status flim_split_take(void *context, int64_t group, const char *name, flim_error *err);
flim_status flim_split_each_group(const flim_split_data *data, const char *key, const char *item, flim_split_take *take,
                                  void *context, flim_error *err);
/* held_out (groups) is filled from the names asked for. */
flim_status flim_split_find_holdout(const flim_split_data *data, const flim_split_request *request, bool *held_out,
                                    flim_error *err);
/* What every split needs of data and request. */
flim_status flim_split_check_input(const flim_split_data *data, const flim_split_request *request, flim_error *err);
/* The data without the cells marked in unused, with the groups that are left; cell (out->n), the caller's, says which cell of
 * the data each is.  flim_split_rest_free. */
flim_status flim_split_rest(const flim_split_data *data, const bool *unused, flim_split_data *out, int64_t **cell,
                            flim_error *err);
void flim_split_rest_free(flim_split_data *rest); /* zeroed is allowed */
/* Makes splits of such a rest splits of the data. */
flim_status flim_split_to_all(flim_splits *splits, const flim_split_data *data, const bool *unused, const int64_t *cell,
                              flim_error *err);
/* One split of whole groups, for a request with test groups. */
flim_status flim_split_by_names(const flim_split_data *data, const flim_split_request *request, flim_splits *out,
                                flim_error *err);

/* Cells by their name: made when the first is looked for.  Zeroed but for data is empty; flim_split_names_free. */
typedef struct flim_split_names {
    const flim_split_data *data; /* with names */
    struct flim_named_cell *sorted; /* (n) */
} flim_split_names;
void flim_split_names_free(flim_split_names *names);
/* *found: how many cells have the name, 2 for more than one; *cell is one of them. */
flim_status flim_split_find_name(flim_split_names *names, const char *name, int64_t *cell, int *found, flim_error *err);

/* Sorted list of the marked cells; *list is the caller's. */
flim_status flim_split_list(const bool *marked, int64_t n, int64_t **list, int64_t *count, flim_error *err);

/* Sets val_complete of every fold. */
flim_status flim_split_set_complete(flim_splits *splits, const flim_split_data *data, flim_error *err);

/* Name of a class or group for messages; buffer is used if the data has no names. */
const char *flim_split_class(const flim_split_data *data, int c, char buffer[32]);
const char *flim_split_group(const flim_split_data *data, int64_t g, char buffer[32]);

static inline bool flim_split_by_group(flim_split_mode mode)
{
    return mode == FLIM_SPLIT_GROUP || mode == FLIM_SPLIT_STRATIFIED_GROUP || mode == FLIM_SPLIT_LEAVE_ONE_GROUP_OUT;
}

#endif

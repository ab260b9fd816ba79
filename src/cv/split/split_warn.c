/* What a user must know about the folds before trusting a score, one line a matter, with the numbers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/try.h"
#include "core/alloc.h"
#include "core/text.h"
#include "cv/split/split_internal.h"

enum { SHOWN = 8 };

/* "0, 2, 5 and 7 more" of the marked numbers; name (may be NULL) turns a number into text. */
static void list_marked(const bool *marked, int64_t n, const flim_split_data *names, char *text, size_t size)
{
    int64_t shown = 0, more = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < n; i++) {
        char buffer[32], number[32];
        if (!marked[i]) {
            continue;
        }
        snprintf(number, sizeof number, "%" PRId64, i);
        const char *item = names ? flim_split_group(names, i, buffer) : number;
        if (shown == SHOWN || used + strlen(item) + 32 > size) {
            more++;
            continue;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", shown ? ", " : "", item);
        shown++;
    }
    if (more) {
        snprintf(text + used, size - used, " and %" PRId64 " more", more);
    }
}

typedef struct counts {
    int64_t *train, *val, *test; /* (folds, classes) */
    bool *mark; /* (folds) scratch */
    int64_t *groups; /* (classes) groups with cells of the class that are not held out */
    int64_t *cells; /* (classes) cells not held out */
} counts;

static void count_part(const flim_split_data *data, const int64_t *list, int64_t n, int64_t *count)
{
    for (int64_t i = 0; i < n; i++) {
        count[data->label[list[i]]]++;
    }
}

static void warn_of_absent_classes(const flim_splits *s, const flim_split_data *data, const counts *k, flim_cover cover,
                                   const flim_log *log)
{
    char folds[256], buffer[32], of[96];
    int classes = data->classes;
    bool any = false;
    for (int c = 0; c < classes; c++) {
        if (k->cells[c] == 0) {
            continue;
        }
        const char *name = flim_split_class(data, c, buffer);
        int64_t no_test = 0, no_train = 0;
        for (int f = 0; f < s->n_folds; f++) {
            no_test += k->mark[f] = k->test[f * classes + c] == 0;
        }
        list_marked(k->mark, s->n_folds, NULL, folds, sizeof folds);
        snprintf(of, sizeof of, data->group ? "%" PRId64 " cell%s in %" PRId64 " group%s" : "%" PRId64 " cell%s", k->cells[c],
                 flim_s(k->cells[c]), data->group ? k->groups[c] : 0, flim_s(data->group ? k->groups[c] : 0));
        if (no_test) {
            any = true;
            flim_log_line(log, FLIM_LOG_WARNING,
                          "class '%s' (%s) is absent from the test set of %" PRId64
                          " of %d folds (%s): AUC is undefined there",
                          name, of, no_test, s->n_folds, folds);
        }
        for (int f = 0; f < s->n_folds; f++) {
            no_train += k->mark[f] = k->train[f * classes + c] == 0;
        }
        if (no_train) {
            list_marked(k->mark, s->n_folds, NULL, folds, sizeof folds);
            flim_log_line(
                log, FLIM_LOG_WARNING,
                "class '%s' (%s) is absent from the training set of fold %s: its test cells there cannot be learned", name,
                of, folds);
        }
    }
    if (any && s->mode == FLIM_SPLIT_STRATIFIED_GROUP && cover == FLIM_COVER_NONE) {
        flim_log_line(log, FLIM_LOG_NOTE, "no assignment of the groups to %d folds gives every fold every class", s->n_folds);
    } else if (any && s->mode == FLIM_SPLIT_STRATIFIED_GROUP) {
        flim_log_line(log, FLIM_LOG_NOTE,
                      "no assignment that gives each of the %d folds every class was found; whether one exists is unknown",
                      s->n_folds);
    }
}

static void warn_of_validation(const flim_splits *s, const flim_split_data *data, const counts *k,
                               flim_validation_origin origin, const flim_log *log)
{
    char folds[256], buffer[32], why[160];
    int64_t empty = 0;
    const bool two = data->classes == 2; /* with more there is no threshold */
    const char *fallback = two ? "the last epoch and the threshold 0.5 are used" : "the last epoch is used";
    if (origin == FLIM_VALIDATION_UNASKED) {
        flim_log_line(log, FLIM_LOG_NOTE, "no validation set: %s", fallback);
        return;
    }
    for (int f = 0; f < s->n_folds; f++) {
        empty += k->mark[f] = s->fold[f].n_val == 0;
    }
    if (empty) {
        list_marked(k->mark, s->n_folds, NULL, folds, sizeof folds);
        if (origin == FLIM_VALIDATION_READ) {
            snprintf(why, sizeof why, "the splits file has no \"val\" there");
        } else {
            snprintf(why, sizeof why, "no %s can be moved there without removing a class from the training set",
                     flim_split_by_group(s->mode) ? "group" : "cell");
        }
        flim_log_line(log, FLIM_LOG_WARNING, "no validation set in %" PRId64 " of %d folds (%s): %s; %s there", empty,
                      s->n_folds, folds, why, fallback);
    }
    for (int c = 0; c < data->classes; c++) {
        int64_t without = 0;
        for (int f = 0; f < s->n_folds; f++) {
            bool missing = s->fold[f].n_val > 0 && k->val[f * data->classes + c] == 0 && k->train[f * data->classes + c] > 0;
            without += k->mark[f] = missing;
        }
        if (without) {
            list_marked(k->mark, s->n_folds, NULL, folds, sizeof folds);
            flim_log_line(
                log, FLIM_LOG_WARNING,
                "class '%s' is absent from the validation set of %" PRId64
                " of %d folds (%s), so that the training set keeps it: the epoch is chosen by validation loss%s there",
                flim_split_class(data, c, buffer), without, s->n_folds, folds, two ? " and the threshold is 0.5" : "");
        }
    }
}

/* Groups that have cells both in the test set of some fold and in that fold's other parts. */
static flim_status warn_of_shared_groups(const flim_splits *s, const flim_split_data *data, const flim_log *log,
                                         flim_error *err)
{
    flim_status status = FLIM_OK;
    bool *shared = flim_alloc((size_t)data->groups, sizeof *shared, err);
    bool *tested = flim_alloc((size_t)data->groups, sizeof *tested, err);
    bool *present = flim_alloc((size_t)data->groups, sizeof *present, err);
    FLIM_TRY_DONE(shared && tested && present ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int f = 0; f < s->n_folds; f++) {
        const flim_fold *fold = &s->fold[f];
        memset(tested, 0, (size_t)data->groups * sizeof *tested);
        for (int64_t i = 0; i < fold->n_test; i++) {
            tested[data->group[fold->test[i]]] = true;
            present[data->group[fold->test[i]]] = true;
        }
        for (int64_t i = 0; i < fold->n_train + fold->n_val; i++) {
            int64_t cell = i < fold->n_train ? fold->train[i] : fold->val[i - fold->n_train];
            shared[data->group[cell]] = shared[data->group[cell]] || tested[data->group[cell]];
        }
    }
    int64_t n_shared = 0, n_present = 0;
    for (int64_t g = 0; g < data->groups; g++) {
        n_shared += shared[g];
        n_present += present[g];
    }
    if (n_shared) {
        char names[512];
        list_marked(shared, data->groups, data, names, sizeof names);
        flim_log_line(log, FLIM_LOG_WARNING,
                      "cv %s: %" PRId64 " of %" PRId64 " groups have cells in both training and test set of a fold (%s): the "
                      "scores do not estimate performance on unseen groups (donors)",
                      flim_split_mode_name(s->mode), n_shared, n_present, names);
    }
done:
    flim_free(shared);
    flim_free(tested);
    flim_free(present);
    return status;
}

flim_status flim_split_warn(const flim_splits *splits, const flim_split_data *data, flim_validation_origin validation,
                            flim_cover cover, const flim_log *log, flim_error *err)
{
    flim_status status = FLIM_OK;
    size_t classes = (size_t)data->classes, rows = (size_t)splits->n_folds * classes;
    counts k = {0};
    bool *seen = NULL;
    int64_t *numbers = flim_alloc(3 * rows + 2 * classes, sizeof *numbers, err);
    k.mark = flim_alloc((size_t)splits->n_folds, sizeof *k.mark, err);
    seen = flim_alloc(data->group ? (size_t)data->groups * classes : 0, sizeof *seen, err);
    FLIM_TRY_DONE(numbers && k.mark && seen ? FLIM_OK : FLIM_ERROR_MEMORY);
    k.train = numbers;
    k.val = numbers + rows;
    k.test = numbers + 2 * rows;
    k.cells = numbers + 3 * rows;
    k.groups = k.cells + classes;
    for (int f = 0; f < splits->n_folds; f++) {
        const flim_fold *fold = &splits->fold[f];
        count_part(data, fold->train, fold->n_train, k.train + (size_t)f * classes);
        count_part(data, fold->val, fold->n_val, k.val + (size_t)f * classes);
        count_part(data, fold->test, fold->n_test, k.test + (size_t)f * classes);
        count_part(data, fold->test, fold->n_test, k.cells);
        for (int64_t i = 0; data->group && i < fold->n_test; i++) {
            size_t at = (size_t)data->group[fold->test[i]] * classes + (size_t)data->label[fold->test[i]];
            k.groups[data->label[fold->test[i]]] += !seen[at];
            seen[at] = true;
        }
    }
    for (int c = 0; c < data->classes; c++) {
        char buffer[32];
        if (k.cells[c] == 0) {
            flim_log_line(log, FLIM_LOG_WARNING, "class '%s' has no cells%s", flim_split_class(data, c, buffer),
                          splits->n_holdout ? " outside the hold-out groups" : "");
        }
    }
    if (data->group && !flim_split_by_group(splits->mode)) {
        status = warn_of_shared_groups(splits, data, log, err);
    }
    warn_of_absent_classes(splits, data, &k, cover, log);
    warn_of_validation(splits, data, &k, validation, log);
done:
    flim_free(numbers);
    flim_free(k.mark);
    flim_free(seen);
    return status;
}

flim_status flim_splits_warn(const flim_splits *splits, const flim_split_data *data, bool validation_asked,
                             const flim_log *log, flim_error *err)
{
    return flim_split_warn(splits, data, validation_asked ? FLIM_VALIDATION_READ : FLIM_VALIDATION_UNASKED,
                           FLIM_COVER_UNKNOWN, log, err);
}

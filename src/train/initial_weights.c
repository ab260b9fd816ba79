/* --init-weights and --pretrained: read once and early, so that a file that does not fit leaves no run folder; and what they have
 * seen. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/spelling.h"
#include "core/try.h"
#include "flim/weights.h"
#include "train/fold_cells.h"
#include "train/run.h"

enum { SHOWN = 10 }; /* names in another spelling that have a line each */

const char *flim_run_start_file(const flim_run *run)
{
    const flim_settings *s = run->settings;
    return run->encoder[0] ? run->encoder : s->pretrained[0] ? s->pretrained : s->init_weights;
}

/* The last layer means what its classes do. */
static void warn_of_classes(const flim_run *run, const flim_dataset_info *info, flim_fresh_tensors fresh)
{
    const flim_provenance *from = &run->initial;
    const char *path = flim_run_start_file(run);
    if (fresh == FLIM_FRESH_HEAD) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "%s gives the encoder; the head starts from random weights", path);
        return;
    }
    if (fresh == FLIM_FRESH_LAST_LAYER) {
        flim_log_line(&run->log, FLIM_LOG_WARNING,
                      "%s has another number of classes than the data, which has %d: its last layer (head.fc2) starts from "
                      "random weights, all others from the file",
                      path, info->classes);
        return;
    }
    for (int k = 0; k < from->classes && k < info->classes; k++) {
        if (strcmp(from->class_name[k], info->class_name[k]) != 0) {
            flim_log_line(&run->log, FLIM_LOG_WARNING,
                          "class %d is '%s' in %s and '%s' in the data: training has to relabel it", k, from->class_name[k],
                          path, info->class_name[k]);
            return;
        }
    }
}

static void warn_of_inputs(const flim_run *run, const flim_dataset_info *info)
{
    const flim_provenance *from = &run->initial;
    const char *path = flim_run_start_file(run);
    const bool masked = run->settings->mask_counts;
    if (from->preprocessing[0] && from->mask_counts != masked) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "%s was trained with mask_counts %s, this run has %s", path,
                      from->mask_counts ? "true" : "false", masked ? "true" : "false");
    }
    if (from->mask && from->mask != flim_mask_origin_of(info->has_mask)) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "%s was trained with masks from the %s, this run has them from the %s",
                      path, flim_mask_origin_name(from->mask), flim_mask_origin_name(flim_mask_origin_of(info->has_mask)));
    }
}

/* Of the cells cell[0..n-1]; -1 = not known. */
static int64_t count_seen(const flim_run *run, const flim_study *study, const int64_t *cell, int64_t n)
{
    const flim_provenance *from = &run->initial;
    int64_t seen = 0;
    if (!flim_run_start_file(run)[0]) {
        return 0;
    }
    for (int64_t i = 0; study->hash && i < n; i++) {
        seen += flim_provenance_has_seen(from, study->hash[cell[i]]);
    }
    return seen > 0 || (study->hash && from->cells_are_known && from->inherited_is_known) ? seen : -1;
}

int64_t flim_run_seen_test_cells(const flim_run *run, const flim_study *study, int k)
{
    return count_seen(run, study, study->splits.fold[k].test, study->splits.fold[k].n_test);
}

int64_t flim_run_seen_holdout_cells(const flim_run *run, const flim_study *study)
{
    /* An encoder of a fold that has seen one is refused when it is read. */
    return flim_settings_per_fold(run->settings) ? 0 : count_seen(run, study, study->splits.holdout, study->splits.n_holdout);
}

/* Sets tested[g] (groups) for groups with a cell that is held out, since all folds are scored on that in the end, or that a fold
 * tests which this call trains. */
static void find_tested_groups(const flim_run *run, const flim_study *study, bool *tested)
{
    const flim_splits *splits = &study->splits;
    const int64_t *group = study->info->group;
    for (int k = 0; k < splits->n_folds; k++) {
        const flim_fold *fold = &splits->fold[k];
        for (int64_t i = 0; flim_run_wants_fold(run, k) && i < fold->n_test; i++) {
            tested[group[fold->test[i]]] = true;
        }
    }
    for (int64_t i = 0; i < splits->n_holdout; i++) {
        tested[group[splits->holdout[i]]] = true;
    }
}

/* A name in another spelling is taken for the same donor's, as in a pretraining. */
static flim_status warn_of_spelling(const flim_run *run, const char *name, const char *pretrained, flim_error *err)
{
    char a[256], b[256], difference[256];
    FLIM_TRY(flim_spelling_difference(name, pretrained, difference, err));
    flim_text_escaped(name, a, sizeof a);
    flim_text_escaped(pretrained, b, sizeof b);
    flim_log_line(
        &run->log, FLIM_LOG_WARNING,
        "group '%s' of the data differs only by %s from '%s', which %s was pretrained on, and is taken for the same", a,
        difference, b, flim_run_start_file(run));
    return FLIM_OK;
}

/* A donor has no cell in a fold's test set and in a pretraining, or its scores are not those of an unseen donor.  Said beside the
 * cells, since its other cells tell of it, too. */
static flim_status warn_of_donors(const flim_run *run, const flim_study *study, flim_error *err)
{
    const flim_provenance *from = &run->initial;
    const flim_dataset_info *info = study->info;
    char names[256] = "";
    size_t used = 0;
    int seen = 0, respelled = 0;
    bool *tested = NULL, *all = NULL; /* (groups), (donors) */
    int64_t *like = NULL; /* (groups) the encoder's donor of this name; -1 = none */
    flim_status status = FLIM_OK;
    if (!info->group || from->donors == 0) {
        return FLIM_OK;
    }
    tested = flim_alloc((size_t)info->groups, sizeof *tested, err);
    like = flim_alloc((size_t)info->groups, sizeof *like, err);
    all = flim_alloc((size_t)from->donors, sizeof *all, err);
    FLIM_TRY_DONE(tested && like && all ? FLIM_OK : FLIM_ERROR_MEMORY);
    memset(all, true, (size_t)from->donors * sizeof *all);
    find_tested_groups(run, study, tested);
    FLIM_TRY_DONE(flim_fold_groups_like((const char *const *)from->donor, all, from->donors,
                                        (const char *const *)info->group_name, info->groups, like, err));
    for (int64_t g = 0; g < info->groups; g++) {
        if (!tested[g] || like[g] < 0) {
            continue;
        }
        if (strcmp(info->group_name[g], from->donor[like[g]]) != 0 && respelled++ < SHOWN) {
            FLIM_TRY_DONE(warn_of_spelling(run, info->group_name[g], from->donor[like[g]], err));
        }
        seen++;
        const int length = snprintf(names + used, sizeof names - used, "%s%.40s", used ? ", " : "", info->group_name[g]);
        used = used + (size_t)length < sizeof names ? used + (size_t)length : sizeof names - 1;
    }
    if (seen > 0) {
        flim_log_line(&run->log, FLIM_LOG_WARNING,
                      "%s was pretrained on cells of %d of the groups that are tested here (%s): for scores of unseen groups "
                      "pretrain without them (pretrain --groups-out, or --splits RUN --fold K)",
                      flim_run_start_file(run), seen, names);
    }
done:
    flim_free(tested);
    flim_free(like);
    flim_free(all);
    return status;
}

/* Test cells that the weights were trained on make the scores too good: those of the folds that this call trains. */
static void warn_of_seen(const flim_run *run, const flim_study *study)
{
    const char *path = flim_run_start_file(run);
    char folds[512] = "", which[32] = "";
    size_t used = 0;
    int64_t sum = 0, cells = 0;
    bool known = true;
    for (int k = 0; k < study->splits.n_folds; k++) {
        if (!flim_run_wants_fold(run, k)) {
            continue;
        }
        const int64_t seen = flim_run_seen_test_cells(run, study, k), n = study->splits.fold[k].n_test;
        known = known && seen >= 0;
        sum += seen > 0 ? seen : 0;
        cells += n;
        if (seen > 0 && used + 64 < sizeof folds) {
            used += (size_t)snprintf(folds + used, sizeof folds - used, "%sfold %d: %" PRId64 " of %" PRId64,
                                     used ? ", " : "", k, seen, n);
        }
    }
    if (run->settings->fold >= 0) {
        snprintf(which, sizeof which, " of fold %" PRId64, run->settings->fold);
    }
    const int64_t held = flim_run_seen_holdout_cells(run, study);
    if (held > 0) {
        flim_log_line(&run->log, FLIM_LOG_WARNING,
                      "%s has seen %" PRId64 " of the %" PRId64
                      " cells that are held out: their scores are not a test result",
                      path, held, study->splits.n_holdout);
    }
    if (sum > 0) {
        flim_log_line(&run->log, FLIM_LOG_WARNING,
                      "%s has seen %" PRId64 " of %" PRId64
                      " test cells in training or validation (%s): the scores on these are not a test result",
                      path, sum, cells, folds);
    } else if (!known) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "whether %s has seen test cells of this run cannot be checked: %s", path,
                      study->hash ? "the file does not list the cells it was trained on" : "--no-scan");
    } else {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "%s has seen none of the %" PRId64 " test cells%s; " FLIM_CELLS_AS_STORED,
                      path, cells, which);
    }
}

/* Of validation cells a note: a fold's epoch and threshold are chosen on them. */
static void tell_of_validation(const flim_run *run, const flim_study *study)
{
    int64_t seen = 0, cells = 0;
    for (int k = 0; k < study->splits.n_folds; k++) {
        const flim_fold *fold = &study->splits.fold[k];
        if (flim_run_wants_fold(run, k)) {
            const int64_t here = count_seen(run, study, fold->val, fold->n_val);
            seen += here > 0 ? here : 0;
            cells += fold->n_val;
        }
    }
    if (seen > 0) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "%s has seen %" PRId64 " of %" PRId64
                      " validation cells: epochs and thresholds chosen on these fit unseen cells less well (pretrain "
                      "--train-set-only leaves them out)",
                      flim_run_start_file(run), seen, cells);
    }
}

flim_status flim_run_read_initial_weights(flim_run *run, const flim_study *study, flim_trainer *t, flim_error *err)
{
    const char *path = flim_run_start_file(run);
    if (!path[0]) {
        return FLIM_OK;
    }
    t->initial_parameter = flim_alloc((size_t)t->net.parameters, sizeof(float), err);
    t->initial_statistic = flim_alloc((size_t)t->net.statistics, sizeof(float), err);
    FLIM_TRY(t->initial_parameter && t->initial_statistic ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY(flim_provenance_read(path, &run->initial, err));
    if (run->settings->pretrained[0]) {
        t->fresh = FLIM_FRESH_HEAD;
        FLIM_TRY(flim_weights_read_encoder(path, &t->net, t->initial_parameter, t->initial_statistic, err));
    } else {
        bool last_layer_is_new = false;
        FLIM_TRY(
            flim_weights_read_to_start(path, &t->net, t->initial_parameter, t->initial_statistic, &last_layer_is_new, err));
        t->fresh = last_layer_is_new ? FLIM_FRESH_LAST_LAYER : FLIM_FRESH_NONE;
    }
    FLIM_TRY(flim_provenance_check_bin_width(&run->initial, path, study->info, err));
    flim_provenance_warn_of_bin_width(&run->initial, path, study->info, &run->log);
    warn_of_classes(run, study->info, t->fresh);
    warn_of_inputs(run, study->info);
    warn_of_seen(run, study);
    tell_of_validation(run, study);
    return warn_of_donors(run, study, err);
}

/* The pretraining that belongs to the fold has been told what not to see: this is the second look, at what it says it saw. */
static flim_status check_unseen(const flim_run *run, const flim_study *study, int k, flim_error *err)
{
    const flim_splits *splits = &study->splits;
    const flim_fold *fold = k < splits->n_folds ? &splits->fold[k] : NULL; /* the final model tests nothing */
    const struct {
        const int64_t *cell;
        int64_t n;
        const char *what;
    } part[] = {{fold ? fold->test : NULL, fold ? fold->n_test : 0, "in the fold's test set"},
                {fold ? fold->val : NULL, fold ? fold->n_val : 0, "in the fold's validation set"},
                {splits->holdout, splits->n_holdout, "held out"}};
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        const int64_t seen = count_seen(run, study, part[i].cell, part[i].n);
        if (seen != 0) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: %" PRId64 " of the %" PRId64 " cells %s were pretrained on, or it does not say; remove its "
                             "folder to pretrain anew",
                             run->encoder, seen > 0 ? seen : 0, part[i].n, part[i].what);
        }
    }
    return FLIM_OK;
}

static flim_status check_place(const flim_run *run, const flim_study *study, int k, const char *path, flim_error *err)
{
    const flim_provenance *about = &run->initial;
    if (k < study->splits.n_folds) {
        return flim_provenance_check_place(about, path, k, run->splits_sha256, err);
    }
    return about->pretraining && about->fold < 0 && strcmp(about->splits_sha256, run->splits_sha256) == 0
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "%s is not the encoder of this run's final model; remove its folder", path);
}

flim_status flim_run_read_encoder(flim_run *run, const flim_study *study, flim_trainer *t, int k, const char *path,
                                  flim_error *err)
{
    if (!t->initial_parameter) {
        t->initial_parameter = flim_alloc((size_t)t->net.parameters, sizeof(float), err);
        t->initial_statistic = flim_alloc((size_t)t->net.statistics, sizeof(float), err);
        FLIM_TRY(t->initial_parameter && t->initial_statistic ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
    t->fresh = FLIM_FRESH_HEAD;
    snprintf(run->encoder, sizeof run->encoder, "%s", path);
    flim_provenance_free(&run->initial);
    FLIM_TRY(flim_provenance_read(path, &run->initial, err));
    FLIM_TRY(check_place(run, study, k, path, err));
    FLIM_TRY(flim_provenance_check_bin_width(&run->initial, path, study->info, err));
    FLIM_TRY(check_unseen(run, study, k, err));
    return flim_weights_read_encoder(path, &t->net, t->initial_parameter, t->initial_statistic, err);
}

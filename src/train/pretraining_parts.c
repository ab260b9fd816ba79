/* The cells of a pretraining: what it trains on, what it only evaluates, and what it never sees. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/loss.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/spelling.h"
#include "core/try.h"
#include "flim/random.h"
#include "train/copies.h"
#include "train/fold_cells.h"
#include "train/pretraining.h"

/* What becomes of a cell. */
typedef enum place { TRAINED, EVALUATED, LEFT_OUT, NEVER_SEEN } place;

typedef struct parts {
    uint8_t *place; /* (n) */
    int64_t *cell; /* (n) scratch */
} parts;

static int64_t list(const parts *p, int64_t n, place where, int64_t *out)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (p->place[i] == where) {
            out[count++] = i;
        }
    }
    return count;
}

static flim_status mark_groups(const flim_study *study, const char *key, const flim_string_list *names, place where, parts *p,
                               flim_error *err)
{
    const flim_split_data *data = &study->split_data;
    if (names->n == 0) {
        return FLIM_OK;
    }
    if (!data->group) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: the data has no /group", key);
    }
    bool *named = flim_alloc((size_t)data->groups, sizeof *named, err);
    flim_status status =
        named ? flim_split_mark_groups(data, key, (const char *const *)names->item, names->n, named, err) : FLIM_ERROR_MEMORY;
    for (int64_t i = 0; status == FLIM_OK && i < data->n; i++) {
        if (named[data->group[i]] && p->place[i] != TRAINED && p->place[i] != LEFT_OUT) {
            status = flim_fail(err, FLIM_ERROR_USAGE, "group '%s' is named by groups_out and by %s",
                               data->group_name[data->group[i]], key);
        }
        const bool stays_out = p->place[i] == LEFT_OUT && where == EVALUATED;
        p->place[i] = named[data->group[i]] && !stays_out ? (uint8_t)where : p->place[i];
    }
    flim_free(named);
    return status;
}

/* --data as the run of --splits had it, with its labels: its cells are the first ones of the pretraining's. */
static flim_status open_tested(const flim_run *run, flim_study *out, flim_error *err)
{
    const flim_log none = {0};
    flim_settings s = *run->settings; /* texts and lists stay with their owner */
    s.pretrains = false;
    s.pretraining_data = s.groups_out = s.val_groups = (flim_string_list){0};
    return flim_study_open(out, &s, FLIM_CACHE_NONE, 1, run->hooks->stop, &none, err);
}

static flim_status read_splits(flim_run *run, const flim_study *tested, flim_splits *out, flim_error *err)
{
    const flim_settings *s = run->settings;
    char path[FLIM_PATH_MAX], *bytes = NULL;
    size_t count = 0;
    struct stat about;
    const bool folder = stat(s->splits, &about) == 0 && S_ISDIR(about.st_mode);
    snprintf(path, sizeof path, "%.4000s%s", s->splits, folder ? "/splits.json" : "");
    FLIM_TRY(flim_splits_read(path, &tested->split_data, out, err));
    if (out->sha256[0] && strcmp(out->sha256, tested->sha256) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s was made for other data: its sha256 is %.16s..., the data's is %.16s... (shape, labels, "
                         "groups or names differ); leave the run's test groups out with --groups-out instead",
                         path, out->sha256, tested->sha256);
    }
    if (s->fold >= out->n_folds) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--fold %" PRId64 ": %s has %d folds, numbered from 0", s->fold, path,
                         out->n_folds);
    }
    FLIM_TRY(flim_file_read(path, (size_t)1 << 32, &bytes, &count, err));
    const flim_status status = flim_sha256_of(bytes, count, run->pretraining_splits_sha256, err);
    flim_free(bytes);
    return status;
}

/* A name in another spelling is taken for the same donor's. */
static flim_status tell_spelling(const flim_run *run, const char *name, const char *left_out, flim_error *err)
{
    char a[256], b[256], difference[256];
    if (strcmp(name, left_out) == 0) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_spelling_difference(name, left_out, difference, err));
    flim_text_escaped(name, a, sizeof a);
    flim_text_escaped(left_out, b, sizeof b);
    flim_log_line(&run->log, FLIM_LOG_NOTE,
                  "group '%s' of the further files differs only by %s from '%s', which is left out, and is left out, too", a,
                  difference, b);
    return FLIM_OK;
}

/* No cell of a group that the fold tests (validates, holds out) and does not train on: neither one that is in no part of the run, nor,
 * in whatever spelling of the group, one of the other files. */
static flim_status mark_tested_groups(const flim_run *run, const flim_study *study, const flim_fold_cells *cells, parts *p,
                                      flim_error *err)
{
    const flim_dataset_info *info = study->info;
    const char *const *name = (const char *const *)info->group_name;
    flim_status status = FLIM_OK;
    bool *out = NULL, *told = NULL; /* (groups) each */
    int64_t *like = NULL; /* (groups) */
    if (!info->group) {
        return FLIM_OK;
    }
    out = flim_alloc((size_t)info->groups, sizeof *out, err);
    told = flim_alloc((size_t)info->groups, sizeof *told, err);
    like = flim_alloc((size_t)info->groups, sizeof *like, err);
    FLIM_TRY_DONE(out && told && like ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_fold_groups_out(cells, info->group, info->groups, out);
    FLIM_TRY_DONE(flim_fold_groups_like(name, out, info->groups, name, info->groups, like, err));
    for (int64_t i = 0; i < cells->n; i++) {
        p->place[i] = out[info->group[i]] ? NEVER_SEEN : p->place[i];
    }
    for (int64_t i = cells->n; i < info->n; i++) {
        const int64_t g = info->group[i];
        if (like[g] < 0) {
            continue;
        }
        p->place[i] = NEVER_SEEN;
        FLIM_TRY_DONE(told[g] ? FLIM_OK : tell_spelling(run, name[g], name[like[g]], err));
        told[g] = true;
    }
done:
    flim_free(out);
    flim_free(told);
    flim_free(like);
    return status;
}

/* The test cells of --fold of --splits, and what those splits hold out; by --train-set-only all but its training set. */
static flim_status mark_fold(flim_run *run, const flim_study *study, parts *p, flim_error *err)
{
    const flim_settings *s = run->settings;
    flim_study tested = {0};
    flim_splits splits = {0};
    flim_fold_cells cells = {0};
    flim_status status = FLIM_OK;
    if (!s->splits[0]) {
        return FLIM_OK;
    }
    FLIM_TRY_DONE(open_tested(run, &tested, err));
    FLIM_TRY_DONE(read_splits(run, &tested, &splits, err));
    run->pretraining_folds = splits.n_folds;
    FLIM_TRY_DONE(flim_fold_cells_of(&splits, (int)s->fold, s->train_set_only, &cells, err));
    for (int64_t i = 0; i < cells.n; i++) {
        const flim_cell_use use = (flim_cell_use)cells.use[i];
        p->place[i] = use == FLIM_CELL_TESTED                                                  ? NEVER_SEEN
                      : use == FLIM_CELL_UNUSED && s->train_set_only && p->place[i] == TRAINED ? LEFT_OUT
                                                                                               : p->place[i];
    }
    status = mark_tested_groups(run, study, &cells, p, err);
done:
    flim_fold_cells_free(&cells);
    flim_splits_free(&splits);
    flim_study_close(&tested);
    return status;
}

/* Copies of a cell that is never seen are not seen, either. */
static flim_status mark_copies(const flim_run *run, const flim_study *study, parts *p, flim_error *err)
{
    const int64_t n = list(p, study->info->n, NEVER_SEEN, p->cell);
    flim_copies never = {0};
    int64_t copies = 0;
    flim_status status = FLIM_OK;
    if (n > 0 && !study->summary) {
        flim_log_line(
            &run->log, FLIM_LOG_WARNING,
            "copies of cells that are left out are not looked for (--no-scan): if there are any, they are trained on");
    }
    FLIM_TRY_DONE(flim_copies_of(study, p->cell, n, &never, err));
    for (int64_t i = 0; i < study->info->n; i++) {
        if (p->place[i] != NEVER_SEEN && flim_copies_hold(&never, study, i)) {
            p->place[i] = NEVER_SEEN;
            copies++;
        }
    }
    if (copies > 0) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "%" PRId64 " cells are copies of cells that are left out, and left out, too",
                      copies);
    }
done:
    flim_copies_free(&never);
    return status;
}

/* --val-fraction of what is left: drawn by the seed. */
static void draw_evaluated(const flim_settings *s, int64_t n, parts *p)
{
    const int64_t left = list(p, n, TRAINED, p->cell), wanted = (int64_t)(s->val_fraction * (double)left + 0.5);
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = s->seed, .cell = UINT32_MAX}, FLIM_RANDOM_PAIRS);
    flim_random_shuffle(&random, p->cell, (size_t)left);
    for (int64_t i = 0; i < wanted && i + 1 < left; i++) {
        p->place[p->cell[i]] = EVALUATED;
    }
}

static flim_status keep(flim_study *study, const flim_settings *s, const parts *p, flim_error *err)
{
    const size_t n = (size_t)study->info->n;
    flim_splits *splits = &study->splits;
    *splits = (flim_splits){.mode = FLIM_SPLIT_STRATIFIED, .seed = s->seed, .n = study->info->n};
    memcpy(splits->sha256, study->sha256, sizeof splits->sha256);
    splits->fold = flim_alloc(1, sizeof *splits->fold, err);
    FLIM_TRY(splits->fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    splits->n_folds = 1;
    flim_fold *fold = &splits->fold[0];
    fold->train = flim_alloc(n, sizeof *fold->train, err);
    fold->val = flim_alloc(n, sizeof *fold->val, err);
    splits->unused = flim_alloc(n, sizeof *splits->unused, err);
    FLIM_TRY(fold->train && fold->val && splits->unused ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < study->info->n; i++) {
        switch ((place)p->place[i]) {
        case TRAINED: fold->train[fold->n_train++] = i; break;
        case EVALUATED: fold->val[fold->n_val++] = i; break;
        case LEFT_OUT:
        case NEVER_SEEN: splits->unused[splits->n_unused++] = i; break;
        }
    }
    return FLIM_OK;
}

/* The Poisson loss is of whole photons, and holds to FLIM_LARGEST_LOG_RATE: other counts would give numbers that mean nothing. */
static flim_status check_counts(const flim_settings *s, const flim_study *study, const parts *p, flim_error *err)
{
    double most = 0;
    int64_t cell = -1;
    if (s->masked_loss != FLIM_MASKED_POISSON || s->mask_ratio == 0 || !study->summary) {
        return FLIM_OK;
    }
    for (int64_t i = 0; i < study->info->n; i++) {
        const bool seen = p->place[i] == TRAINED || p->place[i] == EVALUATED;
        if (seen && study->summary[i].max_count > most) {
            most = study->summary[i].max_count;
            cell = i;
        }
    }
    const double limit = floor(exp(FLIM_LARGEST_LOG_RATE));
    if (most > limit) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "cell %" PRId64
                         " has %.0f photons in one voxel, and the Poisson loss is of up to %.0f: leave it out "
                         "(--exclude), or take --masked-loss squared",
                         cell, most, limit);
    }
    if (most < 0.5) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "the largest count of all cells is %g, and the Poisson loss is of whole photons: are the counts "
                         "divided by something? --masked-loss squared takes them as they are",
                         most);
    }
    return FLIM_OK;
}

flim_status flim_pretraining_split(flim_run *run, flim_study *study, flim_error *err)
{
    const flim_settings *s = run->settings;
    const int64_t n = study->info->n;
    parts p = {.place = flim_alloc((size_t)n, sizeof *p.place, err), .cell = flim_alloc((size_t)n, sizeof *p.cell, err)};
    bool *unused = NULL; /* (n) */
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(p.place && p.cell ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_split_find_unused(&study->split_data, s, &run->log, &unused, err));
    for (int64_t i = 0; unused && i < n; i++) {
        p.place[i] = unused[i] ? LEFT_OUT : TRAINED;
    }
    FLIM_TRY_DONE(mark_groups(study, "groups_out", &s->groups_out, NEVER_SEEN, &p, err));
    FLIM_TRY_DONE(mark_groups(study, "val_groups", &s->val_groups, EVALUATED, &p, err));
    FLIM_TRY_DONE(mark_fold(run, study, &p, err));
    FLIM_TRY_DONE(mark_copies(run, study, &p, err));
    if (s->val_groups.n == 0) {
        draw_evaluated(s, n, &p);
    }
    FLIM_TRY_DONE(check_counts(s, study, &p, err));
    FLIM_TRY_DONE(keep(study, s, &p, err));
    const flim_fold *fold = &study->splits.fold[0];
    if (fold->n_train < 2) {
        FLIM_TRY_DONE(
            flim_fail(err, FLIM_ERROR_USAGE, "%" PRId64 " cells are left to train on: at least 2 are needed", fold->n_train));
    }
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "Cells: %" PRId64 " to train on, %" PRId64 " that are only evaluated, %" PRId64 " that are left out",
                  fold->n_train, fold->n_val, study->splits.n_unused);
done:
    flim_free(p.place);
    flim_free(p.cell);
    flim_free(unused);
    return status;
}

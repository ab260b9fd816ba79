/* One fold: from its checkpoint, if there is one, through its epochs to DONE or FAILED. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/temporary_file.h"
#include "core/try.h"
#include "flim/weights.h"
#include "train/checkpoint.h"
#include "train/fold.h"
#include "train/pretraining_recipe.h"

/* ---- state to and from the program ---- */

static flim_status put_state(flim_fold_work *f, flim_error *err)
{
    const flim_fold_state *s = &f->state;
    FLIM_TRY(flim_trainer_load(f->trainer, s->parameter, s->statistic, err));
    FLIM_TRY(flim_trainer_write(f->trainer, FLIM_STATE_MOMENT1, s->moment1, err));
    FLIM_TRY(flim_trainer_write(f->trainer, FLIM_STATE_MOMENT2, s->moment2, err));
    if (s->average_parameter) {
        FLIM_TRY(flim_trainer_write(f->trainer, FLIM_STATE_AVERAGE_PARAMETERS, s->average_parameter, err));
        FLIM_TRY(flim_trainer_write(f->trainer, FLIM_STATE_AVERAGE_STATISTICS, s->average_statistic, err));
    }
    FLIM_TRY(flim_trainer_set_counters(f->trainer, &s->counters, err));
    return flim_trainer_set_totals(f->trainer, &s->totals, err);
}

flim_status flim_fold_get_state(flim_fold_work *f, flim_error *err)
{
    flim_program *program = f->trainer->program;
    flim_fold_state *s = &f->state;
    FLIM_TRY(flim_program_read(program, FLIM_STATE_PARAMETERS, s->parameter, err));
    FLIM_TRY(flim_program_read(program, FLIM_STATE_STATISTICS, s->statistic, err));
    FLIM_TRY(flim_program_read(program, FLIM_STATE_MOMENT1, s->moment1, err));
    FLIM_TRY(flim_program_read(program, FLIM_STATE_MOMENT2, s->moment2, err));
    if (s->average_parameter) {
        FLIM_TRY(flim_program_read(program, FLIM_STATE_AVERAGE_PARAMETERS, s->average_parameter, err));
        FLIM_TRY(flim_program_read(program, FLIM_STATE_AVERAGE_STATISTICS, s->average_statistic, err));
    }
    return flim_program_get_counters(program, &s->counters, err);
}

flim_status flim_fold_save(flim_fold_work *f, flim_error *err)
{
    FLIM_TRY(flim_fold_get_state(f, err));
    return flim_checkpoint_submit(f->run->checkpoints, &f->state, f->checkpoint, f->identity, err);
}

/* Weights to start from: --init-weights, Kaiming, or those that the stage before has chosen; all with fresh moments, so that a
 * stage is the same as a training from the weight file of the one before. */
static void initialise(flim_fold_work *f)
{
    const flim_trainer *t = f->trainer;
    flim_fold_state *s = &f->state;
    s->counters.loss_scale = t->precision == FLIM_PRECISION_FP16 ? (double)FLIM_LOSS_SCALE_START : 1.0;
    s->totals.nonfinite_call = -1;
    if (f->before) {
        memcpy(s->parameter, f->before->state.best_parameter, (size_t)s->parameters * sizeof *s->parameter);
        memcpy(s->statistic, f->before->state.best_statistic, (size_t)s->statistics * sizeof *s->statistic);
        return;
    }
    flim_network_init(&t->net, f->run->settings->seed, (uint32_t)f->k, s->parameter, s->statistic);
    for (int i = 0; t->initial_parameter && i < t->net.n_tensors; i++) {
        const flim_tensor *tensor = &t->net.tensor[i];
        const bool statistic = flim_tensor_is_statistic(tensor);
        const bool fresh = t->fresh == FLIM_FRESH_HEAD
                               ? tensor->unit >= t->net.n_units
                               : t->fresh == FLIM_FRESH_LAST_LAYER && flim_weights_is_last_layer(tensor);
        if (!fresh) {
            memcpy((statistic ? s->statistic : s->parameter) + tensor->offset,
                   (statistic ? t->initial_statistic : t->initial_parameter) + tensor->offset,
                   (size_t)tensor->count * sizeof(float));
        }
    }
}

/* ---- where the fold stands ---- */

static void checkpoint_below(const char *folder, char out[FLIM_PATH_MAX])
{
    snprintf(out, FLIM_PATH_MAX, "%.4000s/checkpoint", folder);
}

/* The training's folder; one that failed before is begun anew from its checkpoint. */
static flim_status open_folder(flim_fold_work *f, flim_error *err)
{
    char failed[FLIM_PATH_MAX];
    checkpoint_below(f->folder, f->checkpoint);
    snprintf(failed, sizeof failed, "%.4000s/FAILED", f->folder);
    unlink(failed);
    FLIM_TRY(flim_make_folder(f->checkpoint, err));
    flim_sweep_temporary_files(f->folder, NULL, true); /* of a process that was killed: the folder is ours */
    return FLIM_OK;
}

int64_t flim_fold_updates(const flim_fold_work *f, int64_t n)
{
    const int64_t effective = flim_run_batch_cells(f->run) * flim_run_update_batches(f->run);
    return (n + effective - 1) / effective;
}

int64_t flim_fold_draws(const flim_fold_work *f)
{
    return f->last_draws > 0 && f->state.epoch + 1 == f->epochs ? f->last_draws
                                                                : flim_pretraining_views(f->run->settings) * f->part->n_train;
}

/* A checkpoint's batch number, counted in the present batches: --resume-override may have changed their size.  Its cells
 * must end at an update of both. */
static flim_status convert_calls(flim_fold_work *f, flim_error *err)
{
    flim_fold_state *s = &f->state;
    const int64_t n = flim_fold_draws(f), batch = flim_run_batch_cells(f->run), accumulate = flim_run_update_batches(f->run);
    const int64_t effective = batch * accumulate;
    if (s->calls > 0 && s->calls > (n + s->batch - 1) / s->batch) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: its checkpoint is %" PRId64 " batches of %" PRId64 " inside an epoch of %" PRId64
                         " cells: it is not of this run. Remove %s to train it from the start",
                         f->name, s->calls, s->batch, n, f->checkpoint);
    }
    if (s->calls > 0 && (s->batch != batch || s->accumulate != accumulate)) {
        const int64_t cells = s->calls * s->batch < n ? s->calls * s->batch : n;
        if (cells < n && cells % effective != 0) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s: its checkpoint is %" PRId64 " cells inside an epoch, at batches of %" PRId64 " x %" PRId64
                             "; --batch x --accumulate must divide that, %" PRId64 " x %" PRId64 " does not",
                             f->name, cells, s->batch, s->accumulate, batch, accumulate);
        }
        s->calls = (cells + batch - 1) / batch;
        s->totals.calls = s->calls;
        s->totals.nonfinite = false; /* a batch's number means another now */
        s->totals.nonfinite_call = -1;
    }
    s->batch = batch;
    s->accumulate = accumulate;
    return FLIM_OK;
}

/* What a training's checkpoint is told apart by: its name ("fold 2") and the run's identity; *out is the caller's (flim_free). */
static flim_status identity_of(const flim_fold_work *f, const char *of_run, char **out, flim_error *err)
{
    *out = flim_strprintf(err, "%s, %s", f->name, of_run);
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* Under the present identity, or one that an override has left behind; or, as older versions wrote it, under one that does
 * not say the fold. */
static flim_status read_checkpoint(flim_fold_work *f, bool *found, flim_error *err)
{
    const flim_run *run = f->run;
    const int n = run->accepted.n;
    int which = -1;
    const char **identity = flim_alloc((size_t)n * 2 + 2, sizeof *identity, err);
    char **with_fold = flim_alloc((size_t)n, sizeof *with_fold, err); /* (n) */
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(identity && with_fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    identity[0] = f->identity;
    identity[n + 1] = run->checkpoint_text;
    for (int i = 0; i < n; i++) {
        FLIM_TRY_DONE(identity_of(f, run->accepted.item[i], &with_fold[i], err));
        identity[i + 1] = with_fold[i];
        identity[n + 2 + i] = run->accepted.item[i];
    }
    FLIM_TRY_DONE(flim_checkpoint_read(&f->state, f->checkpoint, identity, 2 * n + 2, &run->log, &which, err));
    *found = which >= 0;
    if (which > n) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "%s: its checkpoint is of an older version and does not name its fold: it is used for this one",
                      f->name);
    }
done:
    flim_free(identity);
    flim_free_list(with_fold, n);
    return status;
}

/* Whether no epoch is left; --resume-override may have changed how many there are. */
static bool is_finished(const flim_fold_work *f)
{
    const flim_fold_state *s = &f->state;
    const flim_settings *now = f->run->settings;
    return s->calls == 0 && s->n_history > 0 &&
           (s->epoch >= f->epochs ||
            (f->part->n_val > 0 && now->patience > 0 && s->epoch - 1 - s->best_epoch >= now->patience));
}

/* The state of the checkpoint, or the first one, into f->state and the program. */
static flim_status begin(flim_fold_work *f, flim_error *err)
{
    bool found = false;
    FLIM_TRY(read_checkpoint(f, &found, err));
    FLIM_TRY(convert_calls(f, err));
    f->state.finished = is_finished(f);
    if (found) {
        flim_log_line(&f->run->log, FLIM_LOG_NOTE, "%s: resuming from checkpoint, epoch %" PRId64 ", batch %" PRId64, f->name,
                      f->state.epoch + 1, f->state.calls + 1);
    } else {
        initialise(f);
        flim_fold_state_begin_epoch(&f->state);
    }
    flim_fold_state_begin_average(&f->state);
    flim_run_event_fold_start(f, found);
    return put_state(f, err);
}

/* Every class of the data has a validation cell.  Without, an AUC is undefined and an F1 may be 0 in each epoch, so that
 * the first one would be taken for the best; also if the training set lacks the class, too, and the validation set is as
 * complete as can be. */
static bool has_all_classes(const flim_study *study, const flim_fold *part)
{
    for (int c = 0; c < study->info->classes; c++) {
        bool found = false;
        for (int64_t i = 0; i < part->n_val && !found; i++) {
            found = study->info->label[part->val[i]] == c;
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

static flim_monitor monitor_of(const flim_fold_work *f)
{
    const flim_monitor asked = f->run->settings->monitor;
    if (f->part->n_val == 0 || asked == FLIM_MONITOR_VAL_LOSS || has_all_classes(f->study, f->part)) {
        return asked;
    }
    flim_log_line(&f->run->log, FLIM_LOG_WARNING, "%s: its validation set lacks a class; val_loss chooses the epoch",
                  f->name);
    return FLIM_MONITOR_VAL_LOSS;
}

/* ---- its end ---- */

void flim_run_fold_clean(flim_run *run, int k)
{
    static const char *const names[] = {"checkpoint", "refit/checkpoint"};
    char folder[FLIM_PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (flim_run_fold_path(run, k, names[i], folder, NULL) == FLIM_OK && flim_file_exists(folder)) {
            flim_checkpoint_remove(folder);
        }
    }
    for (int i = 0; i + 1 < run->n_stages; i++) { /* the last one's is the fold's own */
        char name[32];
        snprintf(name, sizeof name, "stage_%d", i + 1);
        if (flim_run_fold_path(run, k, name, folder, NULL) == FLIM_OK && flim_file_exists(folder)) {
            char checkpoint[FLIM_PATH_MAX];
            checkpoint_below(folder, checkpoint);
            flim_checkpoint_remove(checkpoint);
            rmdir(checkpoint);
            rmdir(folder);
        }
    }
}

/* DONE, written last. */
static flim_status end(flim_fold_work *f, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/DONE", f->folder);
    FLIM_TRY(flim_file_write(path, "done\n", 5, err));
    flim_run_fold_clean(f->run, f->k);
    return FLIM_OK;
}

static flim_status write_failed(const flim_fold_work *f, flim_error *err)
{
    const flim_error reason = *err;
    char path[FLIM_PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/FAILED", f->folder);
    FLIM_TRY(flim_file_write(path, reason.text, strlen(reason.text), err));
    return flim_fail(err, FLIM_ERROR_NONFINITE, "%s", reason.text);
}

/* Training, and the checkpoints on the disk: an error of the last one must not hide an earlier one. */
static flim_status train(flim_fold_work *f, flim_error *err)
{
    flim_error unwritten = {0};
    const flim_status status = flim_fold_train(f, err);
    const flim_status flushed = flim_checkpoint_flush(f->run->checkpoints, &unwritten);
    return status == FLIM_OK && flushed != FLIM_OK ? flim_fail(err, flushed, "%s", unwritten.text) : status;
}

flim_status flim_fold_work_through(flim_fold_work *f, flim_error *err)
{
    const flim_network *net = &f->trainer->net;
    FLIM_TRY(open_folder(f, err));
    if (!f->history.folder) {
        f->history = (flim_history){.folder = f->folder, .state = &f->state};
    }
    FLIM_TRY(identity_of(f, f->run->checkpoint_text, &f->identity, err));
    f->monitor = monitor_of(f);
    FLIM_TRY(flim_fold_state_create(net, f->epochs, &f->state, err));
    f->val_logits = flim_alloc((size_t)(f->part->n_val * net->head[0].outputs), sizeof *f->val_logits, err);
    FLIM_TRY(f->val_logits ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY(flim_fold_weights_create(f, err));
    FLIM_TRY(flim_fold_diagnostics_create(f, err));
    FLIM_TRY(flim_fold_begin_recipe(f, err));
    FLIM_TRY(begin(f, err));
    FLIM_TRY(flim_fold_diagnostics_begin(f, err));
    FLIM_TRY(train(f, err));
    flim_fold_diagnostics_end(f); /* further stages have a probe of their own */
    return flim_fold_record_end(f, err); /* a kill may have come between a record and the checkpoint */
}

void flim_fold_work_free(flim_fold_work *f)
{
    flim_free(f->identity);
    flim_free(f->val_logits);
    flim_free(f->class_weight);
    flim_fold_weights_free(f);
    flim_fold_diagnostics_end(f);
    flim_fold_state_free(&f->state);
    f->identity = NULL;
    f->val_logits = NULL;
    f->class_weight = NULL;
}

flim_status flim_fold_end(flim_fold_work *f, flim_status status, flim_error *err)
{
    if (status == FLIM_OK) {
        status = end(f, err);
    }
    return status == FLIM_ERROR_NONFINITE && err ? write_failed(f, err) : status;
}

/* The trainings of fold k, one per stage; a run without stages has one.  out: (n) */
static flim_status set_up_stages(flim_run *run, const flim_study *study, flim_trainer *trainer, int k, int n,
                                 flim_fold_work *out, flim_error *err)
{
    for (int i = 0; i < n; i++) {
        flim_fold_work *f = &out[i];
        const flim_stage *stage = run->n_stages > 0 ? &run->stages[i] : NULL;
        char below[32] = "";
        *f = (flim_fold_work){.run = run,
                              .study = study,
                              .trainer = trainer,
                              .k = k,
                              .part = &study->splits.fold[k],
                              .stage = i,
                              .before = i > 0 ? &out[i - 1] : NULL,
                              .first_epoch = flim_run_epochs_before(run, i),
                              .epochs = stage ? stage->settings.epochs : run->settings->epochs};
        snprintf(f->name, sizeof f->name, "fold %d%s%.20s", k, stage ? " " : "", stage ? stage->name : "");
        if (i + 1 < n) { /* the last one works in the fold's own folder */
            snprintf(below, sizeof below, "stage_%d", i + 1);
        }
        FLIM_TRY(flim_run_fold_path(run, k, below, f->folder, err));
    }
    for (int i = 0; i < n; i++) { /* one history.csv for all of them */
        out[i].history = (flim_history){.folder = out[n - 1].folder,
                                        .stage = run->n_stages > 0 ? run->stages[i].name : NULL,
                                        .before = i > 0 ? &out[i - 1].history : NULL,
                                        .state = &out[i].state};
    }
    return FLIM_OK;
}

/* Every stage from its checkpoint, if there is one.  What stands of a stage whose predecessor has been trained further is of
 * other weights, and is removed. */
static flim_status train_stages(flim_fold_work *work, int n, flim_error *err)
{
    flim_run *run = work->run;
    const int64_t trained = run->epochs_trained;
    for (int i = 0; i < n; i++) {
        flim_fold_work *f = &work[i];
        FLIM_TRY(flim_run_enter_stage(run, f->study, f->trainer, i, err));
        if (i > 0 && run->epochs_trained > trained) {
            char checkpoint[FLIM_PATH_MAX];
            checkpoint_below(f->folder, checkpoint);
            flim_checkpoint_remove(checkpoint);
        }
        FLIM_TRY(flim_fold_work_through(f, err));
        FLIM_TRY(flim_fold_check_weights(f, err));
    }
    return FLIM_OK;
}

/* The fold's own trainings, then that of its whole part if --refit asks for it. */
static flim_status train_all(flim_fold_work *work, int n, flim_fold *whole, flim_fold_work *refit, flim_error *err)
{
    flim_fold_work *f = &work[n - 1];
    const int64_t trained = f->run->epochs_trained;
    FLIM_TRY(train_stages(work, n, err));
    if (!f->run->settings->refit) {
        return FLIM_OK;
    }
    if (f->part->n_val == 0) {
        flim_log_line(&f->run->log, FLIM_LOG_NOTE, "%s: no validation set, so there is nothing to refit on", f->name);
        return FLIM_OK;
    }
    FLIM_TRY(flim_fold_begin_refit(f, f->run->epochs_trained > trained, whole, refit, err));
    return flim_fold_work_through(refit, err);
}

flim_status flim_run_fold(flim_run *run, const flim_study *study, flim_trainer *trainer, int k, flim_error *err)
{
    const int n = run->n_stages > 0 ? run->n_stages : 1;
    flim_fold whole = {0};
    flim_fold_work refit = {0};
    flim_status status = FLIM_OK;
    flim_fold_work *work = flim_alloc((size_t)n, sizeof *work, err); /* (n) */
    if (!work) {
        return FLIM_ERROR_MEMORY;
    }
    flim_fold_work *f = &work[n - 1]; /* what is tested */
    FLIM_TRY_DONE(set_up_stages(run, study, trainer, k, n, work, err));
    FLIM_TRY_DONE(train_all(work, n, &whole, &refit, err));
    status = flim_fold_test(f, refit.run ? &refit : f, err);
done:
    status = flim_fold_end(f, status, err);
    flim_fold_work_free(&refit);
    for (int i = 0; i < n; i++) {
        flim_fold_work_free(&work[i]);
    }
    flim_free(work);
    flim_free(whole.train);
    flim_run_leave_stages(run);
    return status;
}

/* --tensorboard: a training's epochs, behind those of the stages before it, and a fold's test as an event file in its folder.
 *
 * A folder has one file, and that each epoch once, numbered as in history.csv: a process that begins with the training writes a new one of all epochs in the
 * checkpoint and then removes what was there.  Its name is later, so that a TensorBoard at work goes on to it. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "formats/tensorboard.h"
#include "train/confusion_picture.h"
#include "train/fold.h"

#define NAME_BEGIN "events.out.tfevents."
#define NAME_END ".flimcv"

enum { CURVE_THRESHOLDS = 201 }; /* as TensorBoard's own summaries */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- names ---- */

static void path_of(const char *folder, int64_t number, char out[FLIM_PATH_MAX])
{
    snprintf(out, FLIM_PATH_MAX, "%.4000s/" NAME_BEGIN "%010" PRId64 NAME_END, folder, number);
}

/* The number in a file's name; -1 if it is none of ours. */
static int64_t number_of(const char *name)
{
    const size_t begin = sizeof NAME_BEGIN - 1;
    char *end;
    if (strncmp(name, NAME_BEGIN, begin) != 0) {
        return -1;
    }
    const long long number = strtoll(name + begin, &end, 10);
    return number >= 0 && strcmp(end, NAME_END) == 0 ? number : -1;
}

/* The latest file of the folder, -1 if there is none; those before `keep` are removed. */
static int64_t look_through(const char *folder, int64_t keep)
{
    char path[FLIM_PATH_MAX];
    int64_t latest = -1;
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        const int64_t number = number_of(entry->d_name);
        latest = number > latest ? number : latest;
        if (number >= 0 && number < keep) {
            path_of(folder, number, path);
            unlink(path);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return latest;
}

/* ---- epochs ---- */

/* Which stage of the fold this is, counted from 1; NaN if it is none. */
static double stage_number(const flim_history *history)
{
    double number = history->stage ? 1 : NAN;
    for (const flim_history *h = history->before; h; h = h->before) {
        number++;
    }
    return number;
}

static flim_status put_row(FILE *stream, double seconds, const flim_history *history, const flim_epoch_row *r,
                           flim_error *err)
{
    const flim_event_at at = {seconds, flim_history_epochs_before(history) + r->epoch};
    const flim_event_scalar scalars[] = {{"learning_rate", r->learning_rate},
                                         {"loss/train", r->train_loss},
                                         {"loss/val", r->val_loss},
                                         {"accuracy/train", r->train_accuracy},
                                         {"accuracy/val", r->val_accuracy},
                                         {"balanced_accuracy/val", r->val_balanced_accuracy},
                                         {"f1/val", r->val_f1},
                                         {"roc_auc/val", r->val_roc_auc},
                                         {"grad_norm/mean", r->grad_norm_mean},
                                         {"grad_norm/min", r->grad_norm_least},
                                         {"grad_norm/max", r->grad_norm_most},
                                         {"speed/cells_per_s", r->cells_per_second},
                                         {"speed/wait_share", r->wait_share},
                                         {"stage", stage_number(history)}};
    return flim_event_scalars(stream, at, sizeof scalars / sizeof scalars[0], scalars, err);
}

static double seconds_of(const flim_history *history)
{
    double seconds = history->before ? seconds_of(history->before) : 0;
    for (int64_t i = 0; i < history->state->n_history; i++) {
        seconds += history->state->history[i].seconds;
    }
    return seconds;
}

/* All rows; *begin is when the next of them began. */
static flim_status put_rows(FILE *stream, double *begin, const flim_history *history, flim_error *err)
{
    FLIM_TRY(history->before ? put_rows(stream, begin, history->before, err) : FLIM_OK);
    for (int64_t i = 0; i < history->state->n_history; i++) {
        *begin += history->state->history[i].seconds;
        FLIM_TRY(put_row(stream, *begin, history, &history->state->history[i], err));
    }
    return FLIM_OK;
}

flim_status flim_write_events(const flim_history *history, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_file_writer writer = {0};
    flim_status status = FLIM_OK;
    const double end = now();
    const int64_t latest = look_through(history->folder, 0);
    const int64_t number = latest >= (int64_t)end ? latest + 1 : (int64_t)end;
    double begin = end - seconds_of(history); /* as if training had just gone on */
    path_of(history->folder, number, path);
    FLIM_TRY(flim_file_begin(&writer, path, err));
    FLIM_TRY_DONE(flim_event_head(writer.stream, begin, err));
    FLIM_TRY_DONE(put_rows(writer.stream, &begin, history, err));
    FLIM_TRY_DONE(flim_file_commit(&writer, err));
    look_through(history->folder, number);
done:
    flim_file_abandon(&writer);
    return status;
}

/* Events in memory, to be added to a file by one write. */
typedef struct event_bytes {
    FILE *stream;
    char *bytes; /* the C library's; valid after finish */
    size_t count;
} event_bytes;

static flim_status begin_bytes(event_bytes *out, const char *folder, flim_error *err)
{
    out->stream = open_memstream(&out->bytes, &out->count);
    return out->stream ? FLIM_OK : flim_fail(err, FLIM_ERROR_MEMORY, "%s: no memory for events", folder);
}

static flim_status finish_bytes(event_bytes *e, const char *folder, flim_error *err)
{
    FILE *stream = e->stream;
    e->stream = NULL;
    return fclose(stream) == 0 ? FLIM_OK : flim_fail(err, FLIM_ERROR_MEMORY, "%s: no memory for events", folder);
}

static void free_bytes(event_bytes *e)
{
    if (e->stream) {
        fclose(e->stream);
    }
    free(e->bytes);
}

/* was_lost: the folder has no file to add to. */
static flim_status append(const char *folder, const event_bytes *e, bool *was_lost, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    const int64_t latest = look_through(folder, 0);
    *was_lost = latest < 0;
    path_of(folder, latest, path);
    return *was_lost ? FLIM_OK : flim_file_append_own(path, e->bytes, e->count, was_lost, err);
}

flim_status flim_append_events(const flim_history *history, flim_error *err)
{
    const flim_fold_state *state = history->state;
    event_bytes e = {0};
    bool was_lost = false;
    flim_status status = FLIM_OK;
    FLIM_TRY(begin_bytes(&e, history->folder, err));
    FLIM_TRY_DONE(put_row(e.stream, now(), history, &state->history[state->n_history - 1], err));
    FLIM_TRY_DONE(finish_bytes(&e, history->folder, err));
    FLIM_TRY_DONE(append(history->folder, &e, &was_lost, err));
    status = was_lost ? flim_write_events(history, err) : FLIM_OK;
done:
    free_bytes(&e);
    return status;
}

/* ---- a fold's test ---- */

static flim_status put_metrics(FILE *stream, flim_event_at at, const flim_metrics *metrics, flim_error *err)
{
    char tag[FLIM_N_METRICS][64];
    flim_event_scalar scalar[FLIM_N_METRICS];
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        snprintf(tag[m], sizeof tag[m], "test/%s", flim_metric_name((flim_metric)m));
        scalar[m] = (flim_event_scalar){tag[m], metrics->value[m]};
    }
    return flim_event_scalars(stream, at, FLIM_N_METRICS, scalar, err);
}

/* The curve of class k against the others, from probabilities (n,K): a cell counts at each threshold that it reaches. */
static flim_status put_curve(FILE *stream, flim_event_at at, const flim_predictions *p, const double *probability, int k,
                             const char *name, flim_error *err)
{
    enum { N = CURVE_THRESHOLDS };
    int64_t reached[2][N] = {{0}}; /* by whether the cell is of class k: cells whose last threshold this is */
    float value[FLIM_EVENT_CURVE_ROWS][N];
    char tag[160];
    int64_t total[2] = {0}, above[2] = {0};
    for (int64_t i = 0; i < p->n; i++) {
        const int is = p->label[i] == k;
        reached[is][(int)(fmin(fmax(probability[i * p->classes + k], 0), 1) * (N - 1))]++;
        total[is]++;
    }
    for (int t = N - 1; t >= 0; t--) {
        above[0] += reached[0][t];
        above[1] += reached[1][t];
        const int64_t called = above[0] + above[1];
        value[0][t] = (float)above[1];
        value[1][t] = (float)above[0];
        value[2][t] = (float)(total[0] - above[0]);
        value[3][t] = (float)(total[1] - above[1]);
        value[4][t] = called > 0 ? (float)above[1] / (float)called : 0;
        value[5][t] = total[1] > 0 ? (float)above[1] / (float)total[1] : 0;
    }
    snprintf(tag, sizeof tag, "test/pr_curve/%.120s", name);
    return flim_event_pr_curve(stream, at, tag, N, value[0], err);
}

static flim_status put_curves(FILE *stream, flim_event_at at, const flim_predictions *p, const char *const *class_name,
                              flim_error *err)
{
    flim_status status = FLIM_OK;
    double *probability = flim_alloc((size_t)(p->n * p->classes), sizeof *probability, err); /* (n,K) */
    FLIM_TRY_DONE(probability ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_probabilities(p->n, p->classes, p->logits, probability);
    for (int k = p->classes == 2 ? 1 : 0; k < p->classes; k++) {
        FLIM_TRY_DONE(put_curve(stream, at, p, probability, k, class_name[k], err));
    }
done:
    flim_free(probability);
    return status;
}

static flim_status put_confusion(FILE *stream, flim_event_at at, const flim_predictions *p, flim_error *err)
{
    uint8_t *png = NULL;
    size_t bytes = 0;
    int side = 0;
    FLIM_TRY(flim_confusion_picture(p, &side, &png, &bytes, err));
    const flim_status status = flim_event_image(stream, at, "test/confusion", side, side, png, bytes, err);
    flim_free(png);
    return status;
}

flim_status flim_append_test_events(const flim_fold_work *f, const flim_fold_result *result, flim_error *err)
{
    const flim_event_at at = {now(), flim_history_epochs_before(&f->history) + f->state.n_history};
    event_bytes e = {0};
    bool was_lost = false;
    flim_status status = FLIM_OK;
    FLIM_TRY(begin_bytes(&e, f->folder, err));
    FLIM_TRY_DONE(put_metrics(e.stream, at, &result->metrics, err));
    FLIM_TRY_DONE(put_curves(e.stream, at, &result->predictions, f->study->info->class_name, err));
    FLIM_TRY_DONE(put_confusion(e.stream, at, &result->predictions, err));
    FLIM_TRY_DONE(finish_bytes(&e, f->folder, err));
    FLIM_TRY_DONE(append(f->folder, &e, &was_lost, err));
    if (was_lost) { /* somebody removed it: its epochs again, then the test */
        FLIM_TRY_DONE(flim_write_events(&f->history, err));
        status = append(f->folder, &e, &was_lost, err);
    }
done:
    free_bytes(&e);
    return status;
}

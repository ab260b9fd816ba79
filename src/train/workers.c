/* --jobs and --devices: worker processes that train the folds of a run (of several, with --seeds), each the next one that is
 * free.
 *
 * Which fold is whose is decided in the run folder, by the folds' locks, as among processes that were started by hand, on this
 * machine or another: this process trains nothing and hands nothing out.  It starts one worker, and the others once there is a
 * run; shows what they say; starts one anew that has died, whose fold is free again with its process; stops all of them.
 *
 * Deaths are counted, so that what always dies ends: those in a fold for the fold, until it gets an epoch further; those of a
 * failed device, or outside folds, for the seat.  A fold that is given up is marked FAILED, a seat that is is left empty and
 * its work left to the others.  Errors that would meet every worker (usage, data, files) end the run.
 */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/shell.h"
#include "core/threads.h"
#include "core/try.h"
#include "results/fold_result.h"
#include "train/crew.h"
#include "train/device_list.h"
#include "train/run.h"
#include "train/seeds.h"
#include "train/train_log.h"
#include "train/workers.h"

enum { MOST_WORKERS = 1024, MORE_FLAGS = 8 };
#define TICK 0.1 /* seconds between two looks at the flag that a signal sets */
#define PAUSE 0.5 /* seconds before a seat's second start in a row, twice as many before its third, ... */

typedef enum place { FREE, AT_WORK, TO_START, ENDED, GIVEN_UP } place;

typedef struct seat {
    char name[40], device[24]; /* in lines; of --device */
    int on_device; /* seats with that device */
    place place;
    bool tells; /* its lines are of interest: it is the first worker, or has begun a fold */
    int deaths; /* of the device or outside folds, without a fold between */
    double start_at; /* not before */
    int run, fold; /* at work at; fold -1: at none */
    bool knows_end; /* it has said how it ends: */
    flim_status status;
    char text[FLIM_WORKER_TEXT];
} seat;

/* A fold that a worker has begun. */
typedef struct fold_record {
    int run, fold, deaths;
    int64_t epoch;
} fold_record;

typedef struct office {
    const flim_settings *settings;
    const flim_train_hooks *hooks;
    flim_seeds seeds; /* of the runs; n = 0: one run */
    flim_run run; /* of which only the folder and the logs are used */
    char *const *argv;
    flim_crew *crew;
    int n, asked; /* workers, those that the call asked for */
    seat *seat; /* (n) */
    flim_worker_view *view; /* (n) */
    fold_record *fold; /* (n_folds) */
    int n_folds;
    bool begun, stopping, owed; /* owed: somebody is to look for folds that were left */
    flim_status status; /* what ends the run, or with NONFINITE the first failed fold */
    flim_error error;
} office;

/* ---- seats ---- */

/* Appends a seat. */
static flim_status add_seat(office *o, const char *device, flim_error *err)
{
    if (o->n == MOST_WORKERS) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--devices: more than %d", MOST_WORKERS);
    }
    seat *list = flim_realloc(o->seat, (size_t)o->n + 1, sizeof *list, err);
    if (!list) {
        return FLIM_ERROR_MEMORY;
    }
    o->seat = list;
    list[o->n] = (seat){.fold = -1};
    snprintf(list[o->n].device, sizeof list[o->n].device, "%s", device);
    o->n++;
    return FLIM_OK;
}

/* No more workers than folds, as far as the settings tell how many there are. */
static int64_t most_workers(const office *o)
{
    const flim_settings *s = o->settings;
    const bool counted = !s->resume && !s->splits[0] && s->cv != FLIM_SPLIT_LEAVE_ONE_GROUP_OUT && s->test_groups.n == 0;
    const int64_t per_run = s->fold >= 0 ? 1 : counted ? s->folds : MOST_WORKERS;
    return per_run * (o->seeds.n > 0 ? o->seeds.n : 1);
}

static flim_status make_seats(office *o, flim_error *err)
{
    const flim_settings *s = o->settings;
    flim_string_list devices = {0};
    flim_status status = flim_list_devices(&s->devices, &devices, err);
    for (int64_t i = 0; status == FLIM_OK && i < (s->devices.n > 0 ? devices.n : s->jobs); i++) {
        status = add_seat(o, s->devices.n > 0 ? devices.item[i] : s->device, err);
    }
    flim_string_list_free(&devices);
    FLIM_TRY(status);
    o->asked = o->n;
    o->n = o->n < most_workers(o) ? o->n : (int)most_workers(o);
    for (int i = 0; i < o->n; i++) {
        int before = 0;
        for (int j = 0; j < o->n; j++) {
            const bool same = strcmp(o->seat[i].device, o->seat[j].device) == 0;
            o->seat[i].on_device += same;
            before += same && j < i;
        }
        if (o->seat[i].on_device == 1) {
            snprintf(o->seat[i].name, sizeof o->seat[i].name, "%s", o->seat[i].device);
        } else {
            snprintf(o->seat[i].name, sizeof o->seat[i].name, "%s/%d", o->seat[i].device, before + 1);
        }
    }
    o->view = flim_alloc((size_t)o->n, sizeof *o->view, err);
    for (int i = 0; o->view && i < o->n; i++) {
        o->view[i].name = o->seat[i].name;
    }
    return o->view ? flim_crew_create(o->n, &o->crew, err) : FLIM_ERROR_MEMORY;
}

static flim_status start(office *o, int number, flim_error *err)
{
    seat *s = &o->seat[number];
    const char *more[MORE_FLAGS] = {"--out", o->run.folder, "--device", s->device,
                                    o->settings->resume ? NULL : "--resume-or-start"};
    const char *set[3] = {NULL};
    char share[48], threads[24];
    int argc = 0, n_more = 0;
    while (o->argv[argc]) {
        argc++;
    }
    while (more[n_more]) {
        n_more++;
    }
    const char **argv = flim_alloc((size_t)argc + (size_t)n_more + 1, sizeof *argv, err);
    if (!argv) {
        return FLIM_ERROR_MEMORY;
    }
    memcpy(argv, o->argv, (size_t)argc * sizeof *argv);
    memcpy(argv + argc, more, (size_t)n_more * sizeof *argv);
    snprintf(share, sizeof share, "%d:%d:%d", o->n, s->on_device, !o->begun);
    if (!getenv("OMP_NUM_THREADS")) {
        const int own = flim_processors() / o->n;
        snprintf(threads, sizeof threads, "%d", own > 1 ? own : 1);
        set[0] = "OMP_NUM_THREADS";
        set[1] = threads;
    }
    const flim_crew_start how = {.argv = (char *const *)(uintptr_t)argv, .set = set, .share = share};
    const flim_status status = flim_crew_seat(o->crew, number, &how, err);
    flim_free(argv);
    if (status == FLIM_OK) {
        s->place = AT_WORK;
        s->tells = !o->begun;
        s->fold = -1;
        s->knows_end = false;
        o->view[number] = (flim_worker_view){.name = s->name, .at_work = true};
    }
    return status;
}

/* ---- what ends the run ---- */

static void stop_all(office *o)
{
    if (!o->stopping) {
        flim_crew_signal(o->crew, SIGTERM); /* not INT, which they ignore: a terminal sends it to them, too */
        o->stopping = true;
    }
}

static void end_with(office *o, flim_status status, const char *text)
{
    if (o->status == FLIM_OK || o->status == FLIM_ERROR_NONFINITE) {
        o->status = flim_fail(&o->error, status, "%s", text);
    }
    stop_all(o);
}

/* ---- deaths ---- */

static fold_record *record_of(office *o, int run, int fold)
{
    for (int i = 0; i < o->n_folds; i++) {
        if (o->fold[i].run == run && o->fold[i].fold == fold) {
            return &o->fold[i];
        }
    }
    fold_record *list = flim_realloc(o->fold, (size_t)o->n_folds + 1, sizeof *list, NULL);
    if (!list) {
        return NULL;
    }
    o->fold = list;
    list[o->n_folds] = (fold_record){.run = run, .fold = fold};
    return &list[o->n_folds++];
}

/* "fold 3", "fold 3 of seed 2", "the final model" */
static void name_fold(const office *o, int run, int fold, char out[64])
{
    char name[32], seed[32] = "";
    if (o->seeds.n > 0) {
        snprintf(seed, sizeof seed, " of seed %" PRIu64, o->seeds.seed[run]);
    }
    snprintf(out, 64, "%s%s", flim_fold_name(fold, name), seed);
}

/* FAILED in the fold's folder, for the other workers and the summary. */
static flim_status mark_failed(const office *o, int run, int fold, const char *text, flim_error *err)
{
    char below[96], seed[48], name[32], path[FLIM_PATH_MAX];
    flim_fold_folder(fold, name);
    if (o->seeds.n > 0) {
        flim_seed_folder(o->seeds.seed[run], seed);
    }
    snprintf(below, sizeof below, "%s%s%s/FAILED", o->seeds.n > 0 ? seed : "", o->seeds.n > 0 ? "/" : "", name);
    FLIM_TRY(flim_run_folder_path(&o->run, below, path, err));
    return flim_file_write(path, text, strlen(text), err);
}

static void give_up_fold(office *o, int run, int fold, flim_status status, const char *why)
{
    char name[64], text[FLIM_ERROR_TEXT];
    flim_error err = {0};
    name_fold(o, run, fold, name);
    snprintf(text, sizeof text, "%s: its worker %.1500s, %" PRId64 " times without an epoch in between", name, why,
             o->settings->worker_retries + 1);
    flim_log_line(&o->run.log, FLIM_LOG_WARNING, "%s; the fold has failed, the others continue", text);
    if (status == FLIM_ERROR_MEMORY) { /* so would the others */
        end_with(o, status, why);
    } else if (mark_failed(o, run, fold, text, &err) != FLIM_OK) {
        end_with(o, err.status, err.text);
    } else if (o->status == FLIM_OK) {
        o->status = flim_fail(&o->error, FLIM_ERROR_NONFINITE, "%s", text);
    }
}

/* Nobody sits there again; another seat that has ended looks for what was left. */
static void give_up_seat(office *o, int number, flim_status status, const char *why)
{
    int left = 0;
    o->seat[number].place = GIVEN_UP;
    for (int i = 0; i < o->n; i++) {
        left += o->seat[i].place != GIVEN_UP;
    }
    if (left == 0) {
        end_with(o, status, why);
        return;
    }
    flim_log_line(&o->run.log, FLIM_LOG_WARNING,
                  "worker %s is given up: it %s %" PRId64 " times in a row; %d others continue", o->seat[number].name, why,
                  o->settings->worker_retries + 1, left);
    o->owed = true;
}

/* Its fold is free with its process. */
static void mourn(office *o, int number, flim_status status, const char *why)
{
    seat *s = &o->seat[number];
    char name[64];
    fold_record *record = s->fold >= 0 && status != FLIM_ERROR_DEVICE ? record_of(o, s->run, s->fold) : NULL;
    const int deaths = record ? ++record->deaths : ++s->deaths;
    if (s->fold >= 0) {
        name_fold(o, s->run, s->fold, name);
        flim_log_line(&o->run.log, FLIM_LOG_WARNING,
                      "worker %s %s at %s, which is free again and continues from its checkpoint", s->name, why, name);
    } else {
        flim_log_line(&o->run.log, FLIM_LOG_WARNING, "worker %s %s", s->name, why);
    }
    s->place = TO_START;
    s->start_at = flim_seconds() + (deaths > 1 ? PAUSE * (deaths < 8 ? deaths - 1 : 7) : 0);
    if (deaths > o->settings->worker_retries) {
        if (record) {
            record->deaths = 0;
            give_up_fold(o, s->run, s->fold, status, why);
        } else {
            give_up_seat(o, number, status, why);
        }
    }
}

/* Whether every worker would end like this: what may be one device's or process's own is tried again, once the run has begun. */
static bool concerns_all(const office *o, flim_status status)
{
    const bool own = status == FLIM_ERROR_DEVICE || status == FLIM_ERROR_MEMORY;
    return status != FLIM_INTERRUPTED && !(own && o->begun);
}

/* "was killed by signal 9 (Killed)" */
static void describe_end(const seat *s, int how, char out[FLIM_WORKER_TEXT + 64])
{
    if (s->knows_end && s->status == FLIM_INTERRUPTED) {
        snprintf(out, FLIM_WORKER_TEXT + 64, "was stopped by a signal");
    } else if (s->knows_end) {
        snprintf(out, FLIM_WORKER_TEXT + 64, "ended with: %s", s->text);
    } else if (WIFSIGNALED(how)) {
        snprintf(out, FLIM_WORKER_TEXT + 64, "was killed by signal %d (%s)", WTERMSIG(how), strsignal(WTERMSIG(how)));
    } else {
        snprintf(out, FLIM_WORKER_TEXT + 64, "ended without a word, exit code %d", WEXITSTATUS(how));
    }
}

/* A worker has ended. */
static void take_leave(office *o, int number, int how)
{
    seat *s = &o->seat[number];
    char why[FLIM_WORKER_TEXT + 64];
    o->view[number].at_work = false;
    s->place = ENDED;
    if (o->stopping) {
        return;
    }
    if (s->knows_end && s->status == FLIM_OK) {
        s->deaths = 0;
    } else if (s->knows_end && s->status == FLIM_ERROR_NONFINITE) { /* its other folds are done */
        o->status = o->status == FLIM_OK ? flim_fail(&o->error, s->status, "%s", s->text) : o->status;
    } else if (s->knows_end && concerns_all(o, s->status)) {
        end_with(o, s->status, s->text);
    } else {
        describe_end(s, how, why);
        mourn(o, number, s->knows_end ? s->status : FLIM_ERROR, why);
    }
    s->fold = -1;
}

/* ---- what they say ---- */

/* The first worker tells of the start, of the others only what concerns folds and results is of interest. */
static void pass_on(const office *o, int number, const flim_worker_event *event)
{
    const flim_log *log = &o->hooks->log;
    if (log->line && (o->seat[number].tells || event->number == FLIM_LOG_RESULT)) {
        log->line(log->context, (flim_log_level)event->number, event->text);
    }
}

/* How a worker ends is no end of the run. */
static void pass_json(const office *o, int number, const flim_worker_event *event)
{
    char name[32];
    const size_t length = strcspn(event->text, "\n");
    snprintf(name, sizeof name, "%.*s", (int)length, event->text);
    const bool ends = strcmp(name, "run_end") == 0 || strcmp(name, "error") == 0;
    if (o->hooks->event && event->text[length] && !ends && (o->seat[number].tells || strcmp(name, "summary") == 0)) {
        o->hooks->event(o->hooks->context, name, event->text + length + 1);
    }
}

static void take_progress(office *o, int number, const flim_worker_event *event)
{
    const seat *s = &o->seat[number];
    o->view[number].progress = event->progress;
    fold_record *record = s->fold >= 0 && event->progress.phase == FLIM_PHASE_TRAIN ? record_of(o, s->run, s->fold) : NULL;
    if (record && record->epoch != event->progress.epoch) {
        record->deaths = record->epoch == 0 ? record->deaths : 0;
        record->epoch = event->progress.epoch;
    }
}

/* train.log is there from now on, and others may begin: as many as there is work for. */
static flim_status take_begin(office *o, const flim_worker_event *event, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    int others = 0;
    if (o->begun) {
        return FLIM_OK;
    }
    o->begun = true;
    FLIM_TRY(flim_run_folder_path(&o->run, "train.log", path, err));
    FLIM_TRY(flim_train_log_open(&o->run.file_log, path, true, err));
    for (int i = 0; i < o->n; i++) {
        if (o->seat[i].place == FREE) {
            const bool wanted = o->seeds.n > 0 || others + 1 < event->number;
            o->seat[i].place = wanted ? TO_START : ENDED;
            others += wanted;
        }
    }
    return FLIM_OK;
}

static flim_status take_event(office *o, int number, const flim_worker_event *event, flim_error *err)
{
    seat *s = &o->seat[number];
    switch (event->kind) {
    case FLIM_WORKER_LINE: pass_on(o, number, event); break;
    case FLIM_WORKER_JSON: pass_json(o, number, event); break;
    case FLIM_WORKER_PROGRESS: take_progress(o, number, event); break;
    case FLIM_WORKER_BEGUN: return take_begin(o, event, err);
    case FLIM_WORKER_FOLD:
        s->run = event->run;
        s->fold = event->number;
        s->tells = true;
        s->deaths = event->number >= 0 ? 0 : s->deaths;
        o->view[number].progress = (flim_progress){0};
        break;
    case FLIM_WORKER_ENDED:
        s->knows_end = true;
        s->status = (flim_status)event->number;
        snprintf(s->text, sizeof s->text, "%s", event->text);
        break;
    }
    return FLIM_OK;
}

/* ---- the run ---- */

/* Whom the work needs now is started. */
static flim_status start_who_is_needed(office *o, bool *waiting, flim_error *err)
{
    *waiting = false;
    if (o->stopping) {
        return FLIM_OK;
    }
    if (!o->begun && flim_crew_living(o->crew) == 0) { /* the first one, or the next if its seat was given up */
        for (int i = 0; i < o->n; i++) {
            if (o->seat[i].place == FREE || o->seat[i].place == TO_START) {
                o->seat[i].place = TO_START;
                break;
            }
        }
    }
    for (int i = 0; i < o->n && o->owed; i++) {
        if (o->seat[i].place == ENDED) {
            o->seat[i].place = TO_START;
            o->owed = false;
        }
    }
    const double now = flim_seconds();
    for (int i = 0; i < o->n; i++) {
        if (o->seat[i].place == TO_START && now >= o->seat[i].start_at) {
            FLIM_TRY(start(o, i, err));
        }
        *waiting = *waiting || o->seat[i].place == TO_START;
    }
    return FLIM_OK;
}

static flim_status oversee(office *o, flim_error *err)
{
    flim_crew_news news;
    bool waiting = false;
    double shown = 0;
    FLIM_TRY(start_who_is_needed(o, &waiting, err));
    while (flim_crew_living(o->crew) > 0 || waiting) {
        flim_crew_next(o->crew, TICK, &news);
        if (flim_run_stopped(&o->run)) {
            stop_all(o);
        }
        if (news.kind == FLIM_CREW_SAID) {
            FLIM_TRY(take_event(o, news.seat, &news.event, err));
        } else if (news.kind == FLIM_CREW_ENDED) {
            take_leave(o, news.seat, news.how);
        }
        FLIM_TRY(start_who_is_needed(o, &waiting, err));
        if (o->hooks->workers && flim_seconds() - shown >= TICK) {
            o->hooks->workers(o->hooks->context, o->view, o->n);
            shown = flim_seconds();
        }
    }
    return FLIM_OK;
}

/* Folds that have failed in an earlier call are tried again in this one. */
static void forget_failures(const flim_run *run)
{
    DIR *folder = opendir(run->folder);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char path[FLIM_PATH_MAX + 300];
        if (strncmp(entry->d_name, "fold_", 5) == 0) {
            snprintf(path, sizeof path, "%s/%s/FAILED", run->folder, entry->d_name);
            unlink(path);
        } else if (flim_is_seed_folder(entry->d_name)) {
            flim_run below = {0};
            snprintf(below.folder, sizeof below.folder, "%.3800s/%.200s", run->folder, entry->d_name);
            forget_failures(&below);
        }
    }
    if (folder) {
        closedir(folder);
    }
}

static flim_status prepare(office *o, flim_error *err)
{
    const flim_settings *s = o->settings;
    char path[FLIM_PATH_MAX];
    if (s->resume || (s->resume_or_start && s->out[0])) {
        snprintf(o->run.folder, sizeof o->run.folder, "%s", s->out);
        snprintf(path, sizeof path, "%.4000s/config.yaml", s->out);
        if (s->resume && !flim_file_exists(path)) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s has no run to resume: there is no %s", s->out, path);
        }
    } else {
        FLIM_TRY(flim_run_folder_check(&o->run, err));
    }
    FLIM_TRY(make_seats(o, err));
    forget_failures(&o->run);
    flim_log_line(&o->run.log, FLIM_LOG_INFO, "Workers: %d process%s%s", o->n, o->n == 1 ? "" : "es",
                  o->n < o->asked ? ", as many as there are folds" : "");
    return FLIM_OK;
}

static void log_end(office *o, double seconds, flim_status status, const flim_error *err)
{
    char out[FLIM_PATH_MAX];
    if (o->begun && status != FLIM_ERROR_USAGE) {
        flim_log_cost(&o->run, seconds);
    }
    if (status == FLIM_INTERRUPTED) {
        flim_shell_quote(o->run.folder, out, sizeof out);
        flim_log_line(&o->run.log, FLIM_LOG_NOTE, "interrupted%s%s",
                      o->begun ? "; resume with the same --jobs or --devices and: train_cv --resume --out "
                               : ", before there was anything to keep",
                      o->begun ? out : "");
    }
    if (status != FLIM_OK && status != FLIM_INTERRUPTED) {
        flim_train_log_only(&o->run.file_log, "error: ", err ? err->text : "");
    }
}

flim_status flim_train_workers(const flim_settings *settings, const flim_train_hooks *hooks, char *const *argv,
                               flim_error *err)
{
    const double begun = flim_seconds();
    flim_error unwritten = {0};
    flim_status status = FLIM_OK;
    office *o = flim_alloc(1, sizeof *o, err);
    if (!o) {
        return FLIM_ERROR_MEMORY;
    }
    o->settings = settings;
    o->hooks = hooks;
    o->argv = argv;
    o->run = (flim_run){.settings = settings,
                        .hooks = hooks,
                        .folder_lock = FLIM_NO_LOCK,
                        .fold_lock = FLIM_NO_LOCK,
                        .start_lock = FLIM_NO_LOCK,
                        .locked_fold = -1,
                        .epochs_trained = -1};
    o->run.log = flim_train_log_begin(&o->run.file_log, &hooks->log);
    FLIM_TRY_DONE(flim_find_seeds(settings, &o->seeds, err));
    FLIM_TRY_DONE(prepare(o, err));
    FLIM_TRY_DONE(oversee(o, err));
    if (flim_run_stopped(&o->run)) {
        status = flim_fail(err, FLIM_INTERRUPTED, "interrupted");
    } else if (o->status != FLIM_OK) {
        status = flim_fail(err, o->status, "%s", o->error.text);
    }
done:
    log_end(o, flim_seconds() - begun, status, err);
    flim_run_event_end(&o->run, flim_seconds() - begun, status, err);
    flim_crew_destroy(o->crew);
    if (flim_train_log_close(&o->run.file_log, &unwritten) != FLIM_OK && status == FLIM_OK) {
        status = flim_fail(err, unwritten.status, "%s", unwritten.text);
    }
    flim_free(o->seat);
    flim_free(o->view);
    flim_free(o->fold);
    flim_free(o);
    return status;
}

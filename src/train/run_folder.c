/* The run folder: making, locking, and the files that say what the run is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "formats/json.h"
#include "results/fold_result.h"
#include "train/run.h"

flim_status flim_run_folder_path(const flim_run *run, const char *name, char out[FLIM_PATH_MAX], flim_error *err)
{
    int length = snprintf(out, FLIM_PATH_MAX, "%s/%s", run->folder, name);
    return length > 0 && length < FLIM_PATH_MAX - 96 /* room for the names below it */
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_WRITE, "the path %.200s/%s is too long", run->folder, name);
}

/* runs/<date>-<time>, with -2, -3, ... where that is taken already. */
static void default_folder(char out[FLIM_PATH_MAX])
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
    snprintf(out, FLIM_PATH_MAX, "runs/%s", stamp);
    for (int i = 2; flim_file_exists(out) && i < 1000; i++) {
        snprintf(out, FLIM_PATH_MAX, "runs/%s-%d", stamp, i);
    }
}

/* Where flock is not to be had (some network file systems), the text of the lock file must do: true when it names a process
 * of this machine that lives. */
static bool is_alive(const char *text, const char *host)
{
    long pid = 0;
    char there[256] = "";
    return sscanf(text, "process %ld on %255s", &pid, there) == 2 && strcmp(there, host) == 0 && pid > 0 &&
           pid != (long)getpid() && kill((pid_t)pid, 0) == 0;
}

/* flock ends with its process, so a lock left by a killed one is no lock; its text, which a clean end empties, tells of it. */
static flim_status lock_folder(flim_run *run, flim_error *err)
{
    char path[FLIM_PATH_MAX], text[320] = "", host[256] = "?";
    FLIM_TRY(flim_run_folder_path(run, ".lock", path, err));
    run->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (run->lock < 0) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write into the run folder %s: %s", run->folder, strerror(errno));
    }
    gethostname(host, sizeof host - 1);
    const int refused = flock(run->lock, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    ssize_t got = pread(run->lock, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    if (refused == EWOULDBLOCK || (refused && is_alive(text, host))) {
        close(run->lock);
        run->lock = -1; /* the text in it is another's */
        return flim_fail(err, FLIM_ERROR_USAGE, "the run folder %s is in use by another process (%s)", run->folder,
                         text[0] ? text : "unknown");
    }
    if (refused) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "%s cannot be locked (%s): see to it that no second train_cv writes there",
                      run->folder, strerror(refused));
    }
    if (text[0]) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "stale lock: %s did not come to its end here", text);
    }
    int length = snprintf(text, sizeof text, "process %ld on %s", (long)getpid(), host);
    if (ftruncate(run->lock, 0) != 0 || pwrite(run->lock, text, (size_t)length, 0) != length) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", path, strerror(errno));
    }
    return FLIM_OK;
}

/* A new run's folder must hold no other's results: finished folds would be taken for its own, checkpoints gone on from.  What a run
 * that was killed before it began leaves (its log, splits.json) is written over. */
static flim_status check_untaken(const flim_run *run, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_status status = flim_run_folder_path(run, "config.yaml", path, err);
    if (status != FLIM_OK) {
        return status;
    }
    if (flim_file_exists(path)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s holds a run already; choose another --out, or go on with it by --resume",
                         run->folder);
    }
    DIR *folder = opendir(run->folder);
    const struct dirent *entry;
    while (folder && status == FLIM_OK && (entry = readdir(folder))) {
        if (strncmp(entry->d_name, "fold_", 5) == 0 || strcmp(entry->d_name, "summary.json") == 0 ||
            strcmp(entry->d_name, "holdout_predictions.csv") == 0) {
            status =
                flim_fail(err, FLIM_ERROR_USAGE,
                          "%s holds %.200s of a run whose config.yaml is gone; choose another --out, or remove the folder",
                          run->folder, entry->d_name);
        }
    }
    if (folder) {
        closedir(folder);
    }
    return status;
}

static void choose_folder(flim_run *run)
{
    if (run->settings->out[0]) {
        snprintf(run->folder, sizeof run->folder, "%s", run->settings->out);
    } else {
        default_folder(run->folder);
    }
}

flim_status flim_run_folder_check(flim_run *run, flim_error *err)
{
    char path[FLIM_PATH_MAX], *slash;
    struct stat about;
    choose_folder(run);
    FLIM_TRY(check_untaken(run, err));
    /* The deepest part of the path that exists must take new files. */
    snprintf(path, sizeof path, "%s", run->folder);
    while (!flim_file_exists(path)) {
        slash = strrchr(path, '/');
        if (!slash) {
            snprintf(path, sizeof path, ".");
            break;
        }
        slash[slash == path ? 1 : 0] = '\0';
    }
    if (stat(path, &about) == 0 && !S_ISDIR(about.st_mode)) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot make the run folder %s: %s is a file", run->folder, path);
    }
    if (access(path, W_OK | X_OK) != 0) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot make the run folder %s: %s: %s", run->folder, path, strerror(errno));
    }
    return FLIM_OK;
}

flim_status flim_run_folder_open(flim_run *run, bool resuming, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    choose_folder(run);
    flim_status status = flim_make_folder(run->folder, err);
    if (status == FLIM_OK) {
        status = lock_folder(run, err);
    }
    if (status == FLIM_OK && !resuming) { /* another one may have been quicker */
        status = check_untaken(run, err);
    }
    if (status == FLIM_OK) {
        status = flim_run_folder_path(run, "train.log", path, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    run->tee.file = fopen(path, resuming ? "a" : "w");
    if (!run->tee.file || setvbuf(run->tee.file, NULL, _IOLBF, 0) != 0) {
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", path, strerror(errno));
    }
    if (run->tee.early) {
        if (fwrite(run->tee.early, 1, run->tee.early_bytes, run->tee.file) != run->tee.early_bytes ||
            fflush(run->tee.file) != 0) {
            run->tee.error = errno;
        }
        flim_free(run->tee.early);
        run->tee.early = NULL;
    }
    return flim_run_log_check(run, err);
}

flim_status flim_run_log_check(flim_run *run, flim_error *err)
{
    return run->tee.error
               ? flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s/train.log: %s", run->folder, strerror(run->tee.error))
               : FLIM_OK;
}

flim_status flim_run_folder_close(flim_run *run, flim_error *err)
{
    if (run->tee.file) {
        /* Network file systems tell of a full disk or quota as late as here. */
        if ((fflush(run->tee.file) != 0 || fsync(fileno(run->tee.file)) != 0) && !run->tee.error) {
            run->tee.error = errno;
        }
        if (fclose(run->tee.file) != 0 && !run->tee.error) {
            run->tee.error = errno;
        }
        run->tee.file = NULL;
    }
    if (run->lock >= 0) {
        (void)!ftruncate(run->lock, 0); /* a clean end */
        close(run->lock);
        run->lock = -1;
    }
    return flim_run_log_check(run, err);
}

bool flim_run_fold_has_failed(const flim_run *run, int k, char reason[1024])
{
    char path[FLIM_PATH_MAX], name[32], *text = NULL;
    size_t count = 0;
    snprintf(name, sizeof name, "fold_%d/FAILED", k);
    if (flim_fold_is_done(run->folder, k) || flim_run_folder_path(run, name, path, NULL) != FLIM_OK ||
        !flim_file_exists(path)) {
        return false;
    }
    const bool known = flim_file_read(path, 1 << 20, &text, &count, NULL) == FLIM_OK;
    snprintf(reason, 1024, "%.1000s", known ? text : "unknown");
    flim_free(text);
    return true;
}

static flim_status write_environment(flim_run *run, flim_error *err)
{
    char path[FLIM_PATH_MAX], hdf5[32], now[64];
    struct utsname host;
    time_t seconds = time(NULL);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    uname(&host);
    flim_hdf5_version(hdf5);
    const flim_device_info *device = flim_device_get_info(run->device);
    flim_json *json = flim_json_object(), *versions = flim_json_object(), *about = flim_json_object();
    flim_json_set_string(versions, "flimcv", FLIM_VERSION);
    flim_json_set_string(versions, "hdf5", hdf5);
    flim_json_set_string(versions, "device_libraries", device->libraries);
    flim_json_set(json, "versions", versions);
    flim_json_set_string(about, "kind", device->kind);
    flim_json_set_string(about, "name", device->name);
    flim_json_set_string(about, "architecture", device->architecture);
    flim_json_set_string(about, "id", device->id);
    flim_json_set_string(about, "uuid", device->uuid);
    flim_json_set_integer(about, "memory_bytes", device->memory_bytes);
    flim_json_set_string(about, "precision", flim_precision_name(run->precision));
    flim_json_set(json, "device", about);
    flim_json_set_string(json, "host", host.nodename);
    flim_json_set_string(json, "system", host.release);
    flim_json_set_string(json, "started", now);
    flim_json_set_string(json, "command_line", run->hooks->command_line);
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, run->settings->seed);
    if (run->settings->seed <= INT64_MAX) {
        flim_json_set_integer(json, "seed", (int64_t)run->settings->seed);
    } else {
        flim_json_set_string(json, "seed", seed);
    }
    flim_status status = flim_run_folder_path(run, "environment.json", path, err);
    if (status == FLIM_OK) {
        status = flim_json_write(json, path, err);
    }
    flim_json_free(json);
    return status;
}

flim_status flim_run_folder_begin(flim_run *run, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    FLIM_TRY(flim_run_folder_path(run, "splits.json", path, err));
    FLIM_TRY(flim_splits_write(&run->splits, path, err));
    FLIM_TRY(write_environment(run, err));
    FLIM_TRY(flim_resume_identify_rest(run, err));
    FLIM_TRY(flim_resume_begin(run, err));
    FLIM_TRY(flim_run_folder_path(run, "config.yaml", path, err));
    return flim_settings_write(run->settings, path, err);
}

static void put_real(FILE *stream, double value)
{
    if (isnan(value)) {
        putc(',', stream);
    } else {
        fprintf(stream, ",%.9g", value);
    }
}

flim_status flim_run_write_history(const char *folder, const flim_fold_state *state, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_file_writer writer;
    snprintf(path, sizeof path, "%.4000s/history.csv", folder);
    FLIM_TRY(flim_file_begin(&writer, path, err));
    FILE *stream = writer.stream;
    fputs(
        "epoch,lr,train_loss,train_accuracy,val_loss,val_accuracy,val_balanced_accuracy,val_f1,val_roc_auc,grad_norm,cells,"
        "updates,skipped,seconds,it_per_s,cells_per_s,wait_share,device_share,peak_bytes,gpu_busy,gpu_memory_bytes,gpu_watts,"
        "gpu_celsius\n",
        stream);
    for (int64_t i = 0; i < state->n_history; i++) {
        const flim_epoch_row *r = &state->history[i];
        fprintf(stream, "%" PRId64, r->epoch);
        const double results[] = {r->learning_rate,         r->train_loss, r->train_accuracy, r->val_loss, r->val_accuracy,
                                  r->val_balanced_accuracy, r->val_f1,     r->val_roc_auc,    r->grad_norm};
        for (size_t j = 0; j < sizeof results / sizeof results[0]; j++) {
            put_real(stream, results[j]);
        }
        fprintf(stream, ",%" PRId64 ",%" PRId64 ",%" PRId64, r->cells, r->updates, r->skipped);
        const double times[] = {r->seconds, r->iterations_per_second, r->cells_per_second, r->wait_share, r->device_share};
        for (size_t j = 0; j < sizeof times / sizeof times[0]; j++) {
            put_real(stream, times[j]);
        }
        fprintf(stream, ",%" PRId64, r->peak_bytes);
        const double device[] = {r->device_busy, r->device_memory, r->device_watts, r->device_celsius};
        for (size_t j = 0; j < sizeof device / sizeof device[0]; j++) {
            put_real(stream, device[j]);
        }
        putc('\n', stream);
    }
    return flim_file_commit(&writer, err);
}

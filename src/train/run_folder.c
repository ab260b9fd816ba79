/* The run folder: making it, and the files that say what the run is. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/shell.h"
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

flim_status flim_run_fold_path(const flim_run *run, int k, const char *name, char out[FLIM_PATH_MAX], flim_error *err)
{
    char below[96], fold[32];
    flim_fold_folder(k, fold);
    snprintf(below, sizeof below, "%s%s%.60s", fold, name[0] ? "/" : "", name);
    return flim_run_folder_path(run, below, out, err);
}

/* runs/<date>-<time>, with -2, -3, ... if that is taken already. */
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

static bool is_results(const char *name)
{
    return strncmp(name, "fold_", 5) == 0 || strcmp(name, "pretraining") == 0 || strcmp(name, "summary.json") == 0 ||
           strcmp(name, "holdout_predictions.csv") == 0;
}

/* What a run that was killed before it began leaves, and is written over. */
static bool is_left_by_a_run(const char *name)
{
    static const char *const names[] = {"train.log", "splits.json", "environment.json", "resume.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The file into which the caller's shell or batch system has led our own output. */
static bool is_our_output(const char *folder, const char *name)
{
    char path[FLIM_PATH_MAX + 256];
    struct stat about, own;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (stat(path, &about) == 0 && fstat(fd, &own) == 0 && about.st_dev == own.st_dev && about.st_ino == own.st_ino) {
            return true;
        }
    }
    return false;
}

/* A new run's folder is missing, empty or one that train_cv made: of another run the finished folds would be taken for its own,
 * checkpoints gone on from; of somebody's own files splits.json or summary.csv would be written over.  Hidden files and
 * lost+found are in nobody's way. */
static flim_status check_untaken(const flim_run *run, flim_error *err)
{
    char path[FLIM_PATH_MAX], again[2 * FLIM_PATH_MAX];
    const struct dirent *entry;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_run_folder_path(run, "config.yaml", path, err));
    if (flim_file_exists(path)) {
        char quoted[FLIM_PATH_MAX], fold[32] = "";
        flim_shell_quote(run->folder, quoted, sizeof quoted);
        if (run->settings->fold >= 0 && !run->settings->pretrains) {
            snprintf(fold, sizeof fold, " --fold %" PRId64, run->settings->fold);
        }
        snprintf(again, sizeof again, "%s --resume --out %s%s", flim_run_program(run), quoted, fold);
        return flim_fail(err, FLIM_ERROR_USAGE, "%s already contains a run; choose another --out, or %s with: %s",
                         run->folder, fold[0] ? "work at this fold of it" : "continue it", again);
    }
    DIR *folder = opendir(run->folder);
    if (!folder) {
        return FLIM_OK;
    }
    FLIM_TRY_DONE(flim_run_folder_path(run, ".lock", path, err));
    const bool ours = flim_file_exists(path);
    while ((entry = readdir(folder))) {
        const char *name = entry->d_name;
        if (name[0] == '.' || strcmp(name, "lost+found") == 0 || (ours && is_left_by_a_run(name)) ||
            is_our_output(run->folder, name)) {
            continue;
        }
        FLIM_TRY_DONE(
            is_results(name)
                ? flim_fail(err, FLIM_ERROR_USAGE,
                            "%s has %.200s of a run whose config.yaml is missing; choose another --out, or remove the folder",
                            run->folder, name)
                : flim_fail(err, FLIM_ERROR_USAGE,
                            "%s is not empty and not a folder that train_cv made (it has %.200s): choose another --out; "
                            "train_cv makes the folder",
                            run->folder, name));
    }
done:
    closedir(folder);
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
    if (strcmp(run->folder, "-") == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--out -: a run is a folder of files, which standard output cannot hold");
    }
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
    FLIM_TRY(flim_make_folder(run->folder, err));
    FLIM_TRY(flim_run_folder_lock(run, err));
    FLIM_TRY(resuming ? FLIM_OK : check_untaken(run, err)); /* another one may have been quicker */
    FLIM_TRY(flim_run_folder_path(run, FLIM_RUN_WORKING, path, err));
    FLIM_TRY(flim_lock_share(path, &run->working, err));
    FLIM_TRY(flim_run_folder_path(run, "train.log", path, err));
    FLIM_TRY(flim_train_log_open(&run->file_log, path, resuming, err));
    if (resuming) {
        flim_run_folder_unlock(run);
        FLIM_TRY(flim_run_take_fold_asked_for(run, err));
    }
    return FLIM_OK;
}

flim_status flim_run_folder_close(flim_run *run, flim_error *err)
{
    const flim_status status = flim_train_log_close(&run->file_log, err);
    flim_run_release_fold(run);
    flim_run_folder_unlock(run);
    flim_lock_release(&run->working);
    return status;
}

bool flim_run_fold_has_failed(const flim_run *run, int k, char reason[1024])
{
    char path[FLIM_PATH_MAX], *text = NULL;
    size_t count = 0;
    if (flim_fold_is_done(run->folder, k) || flim_run_fold_path(run, k, "FAILED", path, NULL) != FLIM_OK ||
        !flim_file_exists(path)) {
        return false;
    }
    const bool known = flim_file_read(path, 1 << 20, &text, &count, NULL) == FLIM_OK;
    snprintf(reason, 1024, "%.1000s", known ? text : "unknown");
    flim_free(text);
    return true;
}

static flim_status write_environment(const flim_run *run, const flim_trainer *trainer, flim_error *err)
{
    char path[FLIM_PATH_MAX], hdf5[32], now[64];
    struct utsname host;
    time_t seconds = time(NULL);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    uname(&host);
    flim_hdf5_version(hdf5);
    const flim_device_info *device = flim_device_get_info(trainer->device);
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
    flim_json_set_string(about, "precision", flim_precision_name(trainer->precision));
    flim_json_set(json, "device", about);
    flim_json_set_string(json, "host", host.nodename);
    flim_json_set_string(json, "system", host.release);
    flim_json_set_string(json, "started", now);
    flim_json_set_string(json, "command_line", run->hooks->command_line);
    flim_json_set_unsigned(json, "seed", run->settings->seed);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_run_folder_path(run, "environment.json", path, err));
    status = flim_json_write(json, path, err);
done:
    flim_json_free(json);
    return status;
}

flim_status flim_run_folder_begin(flim_run *run, const flim_study *study, const flim_trainer *trainer, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    FLIM_TRY(flim_run_folder_path(run, "splits.json", path, err));
    FLIM_TRY(flim_splits_write(&study->splits, path, err));
    FLIM_TRY(write_environment(run, trainer, err));
    FLIM_TRY(flim_resume_identify_rest(run, trainer, err));
    FLIM_TRY(flim_resume_begin(run, err));
    FLIM_TRY(flim_run_folder_path(run, "config.yaml", path, err));
    flim_settings written = *run->settings; /* texts and lists stay with their owner */
    written.workers = run->asked_workers;
    if (written.resume_or_start && !written.pretrains) { /* one call of several, each for a fold: the run is of all of them */
        written.fold = -1;
    }
    FLIM_TRY(flim_settings_write(&written, path, err));
    flim_run_folder_unlock(run);
    return FLIM_OK;
}

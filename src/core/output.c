#include "core/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/hdf5_signature.h"
#include "core/little_endian.h"
#include "core/try.h"

enum { HEAD_BYTES = 4096 };

/* ---- the files of a run (docs/file-format.md) */

static bool exists_in(const char *folder, const char *name)
{
    char path[FLIM_FILE_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return flim_file_exists(path);
}

static bool is_run_folder(const char *folder)
{
    return exists_in(folder, "config.yaml") && (exists_in(folder, "resume.json") || exists_in(folder, "splits.json"));
}

static bool is_name_of_a_run(const char *name)
{
    static const char *const names[] = {"config.yaml", "environment.json", "resume.json", "splits.json",
                                        "train.log",   "summary.json",     "summary.csv", "holdout_predictions.csv",
                                        ".lock",       ".working"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    const char *end = strrchr(name, '.');
    return strncmp(name, "baseline_", 9) == 0 && end && strcmp(end, ".csv") == 0;
}

/* Cuts the last part off a path and returns it; the path becomes the folder ("." if it had none). */
static const char *cut_name(char path[FLIM_FILE_PATH], char name[FLIM_FILE_PATH])
{
    char *slash = strrchr(path, '/');
    snprintf(name, FLIM_FILE_PATH, "%s", slash ? slash + 1 : path);
    if (slash) {
        slash[slash == path ? 1 : 0] = '\0';
    } else {
        snprintf(path, FLIM_FILE_PATH, ".");
    }
    return name;
}

/* A file of a run, or a place where only the run itself makes files: the folders of its folds. */
static bool belongs_to_a_run(const char *target)
{
    char folder[FLIM_FILE_PATH], name[FLIM_FILE_PATH], above[FLIM_FILE_PATH], below[FLIM_FILE_PATH];
    snprintf(folder, sizeof folder, "%s", target);
    cut_name(folder, name);
    if (is_run_folder(folder) && is_name_of_a_run(name)) {
        return true;
    }
    char real[FLIM_FILE_PATH];
    if (!realpath(folder, real)) {
        return false;
    }
    snprintf(above, sizeof above, "%s", real);
    for (int i = 0; i < 2; i++) { /* fold_K, final, fold_K/checkpoint */
        const char *part = cut_name(above, below);
        if ((strncmp(part, "fold_", 5) == 0 || strcmp(part, "final") == 0) && is_run_folder(above)) {
            return true;
        }
    }
    return false;
}

/* ---- what is there */

/* The first bytes of the file into head, zero-filled; returns the file's length, -1 if it cannot be read.  *hdf5 (may be
 * NULL): it is one of HDF5's. */
static int64_t read_head(const char *path, char *head, size_t size, bool *hdf5)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    memset(head, 0, size);
    int64_t length = fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? (int64_t)about.st_size : -1;
    if (length > 0 && pread(fd, head, size, 0) < 0) {
        length = -1;
    }
    if (hdf5) {
        *hdf5 = length > 0 && flim_hdf5_signature(fd) >= 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return length;
}

/* safetensors: the header's length (8 bytes, little endian), then the header, which is JSON. */
static bool is_weights(const char *head, int64_t length)
{
    return length > 8 && flim_u64_at((const uint8_t *)head) <= (uint64_t)length - 8 && head[8] == '{';
}

static flim_status never(const char *path, const char *what, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_USAGE, "%s is %s, which is never overwritten: choose another name, or remove it first",
                     path, what);
}

flim_status flim_output_check_kind(const char *path, flim_error *err)
{
    char target[FLIM_FILE_PATH], head[16];
    FLIM_TRY(flim_file_target(path, target, err));
    if (belongs_to_a_run(target)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s is a file of a run, which only train_cv writes: choose another name",
                         path);
    }
    bool hdf5;
    const int64_t length = read_head(target, head, sizeof head, &hdf5);
    if (hdf5) {
        return never(path, "an HDF5 file", err);
    }
    if (is_weights(head, length)) {
        return never(path, "a file of weights (safetensors)", err);
    }
    return length >= 8 && memcmp(head, "FLIMCKPT", 8) == 0 ? never(path, "a checkpoint", err) : FLIM_OK;
}

static flim_status check_inputs(const flim_output *output, const char *target, const struct stat *about, flim_error *err)
{
    for (int i = 0; i < output->n_inputs; i++) {
        struct stat other;
        char path[FLIM_FILE_PATH];
        const bool same = stat(output->input[i], &other) == 0
                              ? about && other.st_dev == about->st_dev && other.st_ino == about->st_ino
                              : flim_file_target(output->input[i], path, NULL) == FLIM_OK && strcmp(path, target) == 0;
        if (same) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s is a file that this call reads or writes already: choose another name", output->path);
        }
    }
    return FLIM_OK;
}

/* The rule of the header for a target that is no device, pipe or stream. */
static flim_status check_rule(const flim_output *output, flim_error *err)
{
    char target[FLIM_FILE_PATH], head[HEAD_BYTES];
    struct stat about;
    FLIM_TRY(flim_file_target(output->path, target, err));
    const bool there = stat(target, &about) == 0;
    if (there && S_ISDIR(about.st_mode)) {
        return FLIM_OK; /* which the writer refuses */
    }
    FLIM_TRY(check_inputs(output, target, there ? &about : NULL, err));
    if (there && !S_ISREG(about.st_mode)) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_output_check_kind(target, err));
    if (!there || about.st_size == 0 || flim_file_is_standard_output(output->path)) {
        return FLIM_OK;
    }
    if (!output->begins) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s exists: choose another name, or remove it first", output->path);
    }
    const size_t length = strlen(output->begins);
    const bool own = length <= sizeof head && read_head(target, head, sizeof head, NULL) >= (int64_t)length &&
                     memcmp(head, output->begins, length) == 0;
    return own || output->force ? FLIM_OK
                                : flim_fail(err, FLIM_ERROR_USAGE,
                                            "%s exists and is not %s: choose another name, or use --force to overwrite it",
                                            output->path, output->kind);
}

flim_status flim_output_begin(const flim_output *output, flim_file_writer *writer, flim_error *err)
{
    *writer = (flim_file_writer){0};
    FLIM_TRY(strcmp(output->path, "-") == 0 ? FLIM_OK : check_rule(output, err));
    struct stat about;
    const bool empty = stat(output->path, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0; /* as mktemp makes */
    return flim_file_begin_kind(writer, output->path, output->begins || empty ? FLIM_FILE_NAMED : FLIM_FILE_NEW,
                                output->seeks, output->stop, err);
}

flim_status flim_output_check(const flim_output *output, flim_error *err)
{
    flim_file_writer writer;
    struct stat about;
    if (strcmp(output->path, "-") == 0) {
        return FLIM_OK;
    }
    FLIM_TRY(check_rule(output, err));
    if (stat(output->path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) {
        return access(output->path, W_OK) == 0 /* to open a pipe would be seen at its other end */
                   ? FLIM_OK
                   : flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", output->path, strerror(errno));
    }
    const flim_status status = flim_file_begin_kind(&writer, output->path, FLIM_FILE_NAMED, false, output->stop, err);
    if (status == FLIM_OK) {
        flim_file_abandon(&writer);
    }
    return status;
}

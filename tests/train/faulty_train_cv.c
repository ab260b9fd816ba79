/* train_cv with faults on demand: its own main, and calls of the C library that fail, wait or raise a signal where the
 * environment says so.  Nothing of this is in the installed program.
 *
 *   FLIM_FAULT=CALL:PATH:N:ERRNO   the N-th CALL (rename, fsync, fclose) on a path with PATH in it fails with that errno;
 *                                  N = 0: every one
 *   FLIM_AIM=WHERE:N:SIGNAL        raises SIGNAL at the N-th time of WHERE: line=TEXT (a line of the log that contains TEXT),
 *                                  train, val, test, holdout (a batch of that phase is done), step (a batch is trained, also
 *                                  in ranks that have no hooks), rename=PATH (before a file
 *                                  comes into place), read=PATH (of the data), plan (a convolution is built)
 *   FLIM_AIM_ONCE=FILE             first waits until this file is there (10 s at most): a thread may still be writing it
 *   FLIM_AIM_MARK=FILE             writes this file right before
 *   FLIM_AIM_AGAIN=SIGNAL          raises this one right after
 *   FLIM_SLOW_THREAD=MS            the first loader thread that reads waits so long at each reading
 *   FLIM_INFINITE_CELL=N           the program meets a value that is not finite in cell N, in training and prediction
 *   FLIM_WATCH=FILE                gets "threads KiB" of the process at each end of a fold
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <math.h>

#include "flim/device.h"
#include "flim/train.h"

/* An environment variable "WHAT:N:VALUE"; read_order is false where it is not set. */
typedef struct order {
    char text[512];
    char *what; /* the rest before them */
    long n, value;
} order;

static bool read_order(const char *variable, order *o)
{
    const char *set = getenv(variable);
    if (!set) {
        return false;
    }
    snprintf(o->text, sizeof o->text, "%s", set);
    char *last = strrchr(o->text, ':');
    if (!last) {
        abort();
    }
    *last = '\0';
    o->value = strtol(last + 1, NULL, 10);
    last = strrchr(o->text, ':');
    if (!last) {
        abort();
    }
    *last = '\0';
    o->n = strtol(last + 1, NULL, 10);
    o->what = o->text;
    return true;
}

static void await(const char *path)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; path && access(path, F_OK) != 0 && i < 1000; i++) {
        nanosleep(&pause, NULL);
    }
}

static void mark(const char *path)
{
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fclose(file);
    }
}

/* Counts a place; raises the ordered signal when its turn has come. */
static void aim(const char *where, const char *detail)
{
    static atomic_long count;
    order o;
    if (!read_order("FLIM_AIM", &o)) {
        return;
    }
    char *equal = strchr(o.what, '=');
    if (equal) {
        *equal = '\0';
    }
    if (strcmp(o.what, where) == 0 && (!equal || strstr(detail, equal + 1)) && atomic_fetch_add(&count, 1) + 1 == o.n) {
        const char *again = getenv("FLIM_AIM_AGAIN");
        await(getenv("FLIM_AIM_ONCE"));
        mark(getenv("FLIM_AIM_MARK"));
        kill(getpid(), (int)o.value);
        if (again) {
            const struct timespec pause = {.tv_nsec = 50000000}; /* of two that wait, the lower number would come first */
            nanosleep(&pause, NULL);
            kill(getpid(), (int)strtol(again, NULL, 10));
        }
    }
}

/* True with errno set where this call is to fail. */
static bool fails(const char *call, const char *path)
{
    static atomic_long count;
    order o;
    if (!read_order("FLIM_FAULT", &o)) {
        return false;
    }
    char *colon = strchr(o.what, ':');
    if (!colon) {
        abort();
    }
    *colon = '\0';
    if (strcmp(o.what, call) != 0 || !strstr(path, colon + 1)) {
        return false;
    }
    const long turn = atomic_fetch_add(&count, 1) + 1;
    errno = (int)o.value;
    return o.n == 0 || turn == o.n;
}

/* The path of a descriptor; that of a temporary file, ".NAME.<16 digits>.tmp", is that of its target. */
static void path_of(int fd, char out[512])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, out, 511);
    out[length > 0 ? length : 0] = '\0';
    char *name = strrchr(out, '/');
    if (name && name[1] == '.' && length > 22 && strcmp(out + length - 4, ".tmp") == 0 && out[length - 21] == '.') {
        out[length - 21] = '\0';
        memmove(name + 1, name + 2, strlen(name + 2) + 1);
    }
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        abort();
    }
    return found;
}

/* The C library's own function of that name, under the name `call`. */
#define NEXT(name)                                                                                                           \
    __typeof__(name) *call;                                                                                                  \
    do {                                                                                                                     \
        void *found = next(#name);                                                                                           \
        memcpy(&call, &found, sizeof call);                                                                                  \
    } while (0)

int rename(const char *from, const char *to)
{
    NEXT(rename);
    aim("rename", to);
    return fails("rename", to) ? -1 : call(from, to);
}

int fsync(int fd)
{
    char path[512];
    NEXT(fsync);
    path_of(fd, path);
    return fails("fsync", path) ? -1 : call(fd);
}

int fclose(FILE *stream)
{
    char path[512];
    NEXT(fclose);
    path_of(fileno(stream), path);
    int status = call(stream);
    return fails("fclose", path) ? EOF : status;
}

static void wait_if_slow(const char *path)
{
    static atomic_flag taken = ATOMIC_FLAG_INIT;
    static _Thread_local bool slow;
    const char *ms = getenv("FLIM_SLOW_THREAD");
    if (!ms || !strstr(path, ".h5") || getpid() == (pid_t)gettid()) { /* not the main thread */
        return;
    }
    slow = slow || !atomic_flag_test_and_set(&taken);
    const struct timespec pause = {.tv_nsec = strtol(ms, NULL, 10) * 1000000};
    if (slow) {
        nanosleep(&pause, NULL);
    }
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    char path[512];
    NEXT(pread);
    path_of(fd, path);
    aim("read", path);
    wait_if_slow(path);
    return call(fd, to, bytes, at);
}

/* oneDNN's, whose header this file does not need. */
int dnnl_primitive_create(void **primitive, const void *descriptor);
int dnnl_primitive_create(void **primitive, const void *descriptor)
{
    NEXT(dnnl_primitive_create);
    aim("plan", "");
    return call(primitive, descriptor);
}

/* ---- a cell whose signal is not finite: the linker gives the library's calls of these two to us (--wrap) ---- */

flim_status __real_flim_program_train(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err);
flim_status __real_flim_program_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err);
flim_status __wrap_flim_program_train(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err);
flim_status __wrap_flim_program_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err);

static void spoil(const flim_batch *batch)
{
    const char *set = getenv("FLIM_INFINITE_CELL");
    const int64_t voxels = (int64_t)batch->t * batch->h * batch->w;
    for (int64_t i = 0; set && i < batch->n; i++) {
        if (batch->id[i].cell == (uint32_t)strtoul(set, NULL, 10) && batch->signal) {
            batch->signal[i * voxels] = INFINITY;
        }
    }
}

flim_status __wrap_flim_program_train(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err)
{
    spoil(batch);
    aim("step", "");
    return __real_flim_program_train(program, batch, step, err);
}

flim_status __wrap_flim_program_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err)
{
    spoil(batch);
    return __real_flim_program_predict(program, batch, logits, err);
}

/* ---- hooks of the run ---- */

static const flim_train_hooks *real;

static void watch(void)
{
    const char *path = getenv("FLIM_WATCH");
    char line[128];
    long threads = 0, kib = 0;
    FILE *status = path ? fopen("/proc/self/status", "r") : NULL, *out = status ? fopen(path, "a") : NULL;
    while (out && fgets(line, sizeof line, status)) {
        (void)(sscanf(line, "Threads: %ld", &threads) || sscanf(line, "VmRSS: %ld", &kib));
    }
    if (out) {
        fprintf(out, "%ld %ld\n", threads, kib);
        fclose(out);
    }
    if (status) {
        fclose(status);
    }
}

static void line(void *context, flim_log_level level, const char *text)
{
    (void)context;
    real->log.line(real->log.context, level, text);
    aim("line", text);
    if (strncmp(text, "fold ", 5) == 0 && strstr(text, "done: best epoch")) {
        watch();
    }
}

static void progress(void *context, const flim_progress *at)
{
    static const char *const names[] = {"scan", "train", "val", "test", "holdout"};
    real->progress(context, at);
    aim(names[at->phase], "");
}

static const flim_train_hooks *with_hooks(const flim_train_hooks *hooks)
{
    static flim_train_hooks own;
    own = *hooks;
    real = hooks;
    own.log = (flim_log){line, NULL};
    own.progress = progress;
    return &own;
}

static flim_status train(const flim_settings *settings, const flim_train_hooks *hooks, char *const *argv, flim_error *err)
{
    return flim_train(settings, with_hooks(hooks), argv, err);
}

static flim_status train_runs(const flim_settings *settings, const flim_train_hooks *hooks, flim_error *err)
{
    return flim_train_runs(settings, with_hooks(hooks), err);
}

#define flim_train train
#define flim_train_runs train_runs
#include "../../tools/common/train.c"
#include "../../tools/train_cv.c"

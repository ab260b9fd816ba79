/* A first opening of data files in a child process (Linux: it dies with its parent).
 *
 * Why: libhdf5 (1.10 to 1.14 at least) crashes, loops for ever or asks for absurd memory on some damaged files, and can leave
 * its own state broken after a failed open.  The child finds out, under limits that follow the size of the files; the parent
 * opens only what the child has opened, and otherwise hands on the child's error.
 */
#include "flim/dataset.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "core/try.h"
#include "data/dataset_open.h"
#include "data/format.h"

enum { MOST_CELLS = 64 }; /* read by the child: all of a small file, else some from first to last */

static int64_t size_of_files(const char *const *paths, int n_paths)
{
    int64_t sum = 0;
    for (int i = 0; i < n_paths; i++) {
        struct stat about;
        sum += stat(paths[i], &about) == 0 ? (int64_t)about.st_size : 0;
    }
    return sum;
}

static rlim_t address_space_in_use(void)
{
    unsigned long long pages = 0;
    FILE *stream = fopen("/proc/self/statm", "r");
    if (stream) {
        if (fscanf(stream, "%llu", &pages) != 1) {
            pages = 0;
        }
        fclose(stream);
    }
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void lower(int resource, rlim_t value)
{
    struct rlimit now;
    if (getrlimit(resource, &now) == 0 && value < now.rlim_cur) {
        now.rlim_cur = value;
        if (resource == RLIMIT_CPU) {
            now.rlim_max = value; /* the first signal kills */
        }
        setrlimit(resource, &now);
    }
}

/* In the child: what ends it by accident ends it at once; what asks for the end is the parent's to hear, as both get it when it
 * goes to the process group.  The parent ends the child, and where the parent is killed the child goes with it. */
static void settle_signals(pid_t parent)
{
    static const int accidents[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGXCPU, SIGSYS, SIGTRAP};
    static const int requests[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof accidents / sizeof accidents[0]; i++) {
        signal(accidents[i], SIG_DFL);
        sigaddset(&set, accidents[i]);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        signal(requests[i], SIG_IGN);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* gone already */
    }
}

/* In the child: seconds of processor time and address space by the size of the files. */
static void limit_myself(int64_t bytes)
{
    int64_t seconds = 10 + bytes / (16 << 20),
            memory = ((int64_t)256 << 20) + (bytes > (INT64_MAX >> 14) ? INT64_MAX >> 2 : bytes * 4400);
    lower(RLIMIT_CORE, 0);
    lower(RLIMIT_CPU, (rlim_t)seconds);
    rlim_t used = address_space_in_use();
    if (used && used < RLIM_INFINITY - (rlim_t)memory) {
        lower(RLIMIT_AS, used + (rlim_t)memory);
    }
    alarm((unsigned)(seconds < 100000 ? 60 + 20 * seconds : 0)); /* a lock that another thread held at the fork, ... */
}

/* Opens and reads some cells, then closes everything: damage to the heap shows when it is given back.  Bad values are no matter
 * here, whoever reads the cell will say so. */
static flim_status try_files(const char *const *paths, int n_paths, const flim_dataset_options *options, flim_error *err)
{
    flim_dataset *dataset = NULL;
    flim_dataset_options quiet = *options;
    quiet.log = NULL;
    quiet.hdf5_errors = NULL;
    quiet.cache = FLIM_CACHE_NONE;
    FLIM_TRY(flim_dataset_open_here(paths, n_paths, &quiet, true, &dataset, err));
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    flim_reader *reader = NULL;
    float *counts = flim_alloc((size_t)info->t * (size_t)info->h, (size_t)info->w * sizeof *counts, NULL);
    if (counts && flim_reader_create(dataset, &reader, NULL) == FLIM_OK) {
        int64_t step = info->n <= MOST_CELLS ? 1 : (info->n - 1) / 15;
        for (int64_t cell = 0; cell < info->n; cell += step) {
            flim_reader_counts(reader, cell, counts, NULL, NULL);
        }
    }
    flim_reader_destroy(reader);
    flim_free(counts);
    flim_dataset_close(dataset);
    return FLIM_OK;
}

/* The whole struct from the pipe, or false if the child ended before, or a stop was asked for. */
static bool receive(int fd, const volatile int *stop, flim_error *answer)
{
    enum { LOOK_MS = 50 };
    size_t got = 0;
    while (got < sizeof *answer) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (flim_stopped(stop)) {
            return false;
        }
        if (poll(&ready, 1, LOOK_MS) <= 0) {
            continue;
        }
        ssize_t n = read(fd, (char *)answer + got, sizeof *answer - got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        got += (size_t)n;
    }
    answer->text[sizeof answer->text - 1] = '\0';
    return true;
}

static _Noreturn void be_child(pid_t parent, int fd, const char *const *paths, int n_paths,
                               const flim_dataset_options *options)
{
    flim_error answer = {0};
    settle_signals(parent);
    limit_myself(size_of_files(paths, n_paths));
    answer.status = try_files(paths, n_paths, options, &answer);
    for (size_t sent = 0; sent < sizeof answer;) {
        ssize_t n = write(fd, (const char *)&answer + sent, sizeof answer - sent);
        if (n <= 0 && errno != EINTR) {
            break;
        }
        sent += n > 0 ? (size_t)n : 0;
    }
    _exit(0); /* no handlers: neither HDF5's nor those of the program that called */
}

/* FLIM_OK if the files can be opened here, else the error; *ended: the child came to its end with that answer, and did not
 * crash.  If no child can be made the answer is FLIM_OK. */
static flim_status probe(const char *const *paths, int n_paths, const flim_dataset_options *options, bool *ended,
                         flim_error *err)
{
    int fd[2];
    *ended = true;
    if (pipe(fd) != 0) {
        return FLIM_OK;
    }
    const pid_t self = getpid(), child = flim_format_of(paths[0])->fork();
    if (child == 0) {
        close(fd[0]);
        be_child(self, fd[1], paths, n_paths, options);
    }
    close(fd[1]);
    flim_error answer = {0};
    bool answered = child > 0 && receive(fd[0], options->stop, &answer);
    close(fd[0]);
    if (child < 0) {
        return FLIM_OK;
    }
    if (flim_stopped(options->stop)) {
        kill(child, SIGKILL);
    }
    int how = 0;
    pid_t gone;
    do {
        gone = waitpid(child, &how, 0);
    } while (gone < 0 && errno == EINTR);
    if (flim_stopped(options->stop)) {
        return flim_fail(err, FLIM_INTERRUPTED, "interrupted while %s was opened", paths[0]);
    }
    if (answered) {
        return answer.status == FLIM_OK ? FLIM_OK : flim_fail(err, answer.status, "%s", answer.text);
    }
    *ended = false;
    int number = gone == child && WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    char version[32];
    flim_hdf5_version(version);
    return flim_fail(err, FLIM_ERROR_DATA, "%s%s: the file is damaged: HDF5 %s %s (%s) when a first process opened it",
                     paths[0], n_paths > 1 ? " or one of the other files" : "", version,
                     number == SIGXCPU || number == SIGALRM || number == SIGKILL ? "did not come to an end" : "crashed",
                     number ? strsignal(number) : "no signal");
}

flim_status flim_dataset_open(const char *const *paths, int n_paths, const flim_dataset_options *options, flim_dataset **out,
                              flim_error *err)
{
    static const flim_dataset_options none = {0};
    *out = NULL;
    options = options ? options : &none;
    if (n_paths < 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "no data file was given");
    }
    bool ended = true;
    const flim_status status = options->trusted ? FLIM_OK : probe(paths, n_paths, options, &ended, err);
    if (status != FLIM_OK && !(options->hdf5_errors && ended)) { /* the child's stacks went with it */
        return status;
    }
    return flim_dataset_open_here(paths, n_paths, options, false, out, err);
}

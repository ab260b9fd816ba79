#include "common/console.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/progress_bar.h"
#include "common/worker_line.h"
#include "common/wrap.h"
#include "formats/json.h"

enum { LINE_BYTES = 4096 + 512 }; /* of the library's longest line (core/log.c), with its mark */

static volatile int stop_signal; /* written by the handler only */

static void on_signal(int number)
{
    if (stop_signal && number == SIGINT) {
        _exit(128 + SIGINT);
    }
    __atomic_store_n(&stop_signal, number, __ATOMIC_RELAXED); /* threads of the library poll it */
}

const volatile int *console_catch_signals(void)
{
    const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++) {
        struct sigaction before;
        /* Under nohup the end of the terminal is to be no end.  (INT is ignored in a shell's background jobs without that
         * anybody asked for it, so it is caught all the same.) */
        if (caught[i] != SIGHUP || sigaction(SIGHUP, NULL, &before) != 0 || before.sa_handler != SIG_IGN) {
            sigaction(caught[i], &action, NULL);
        }
    }
    return &stop_signal;
}

void console_start(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* takes the lowest number, which is fd */
        }
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* exit code 6 */
}

void console_error_told(console *c)
{
    c->error_told = true;
}

void console_be_quiet(console *c, bool quiet)
{
    c->quiet = quiet;
    c->bar = c->bar && !quiet;
}

void console_leave_stdout(console *c)
{
    c->stdout_taken = true;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A view may have hundreds of source files, and a data set hundreds of files; shells give 1024 by default. */
static void raise_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

void console_open(console *c, bool quiet, bool json)
{
    const char *kind = getenv("TERM"), *none = getenv("NO_COLOR");
    const bool able = !json && !(kind && strcmp(kind, "dumb") == 0), colour = able && !(none && none[0]);
    raise_open_files();
    *c = (console){.quiet = quiet,
                   .json = json,
                   .bar = !quiet && able && isatty(STDERR_FILENO),
                   .colour = {colour && isatty(STDOUT_FILENO), colour && isatty(STDERR_FILENO)}};
}

/* Columns of a terminal now: it may be resized at any time.  80 if nobody knows. */
static int terminal_columns(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    const char *variable = getenv("COLUMNS");
    const long columns = variable ? strtol(variable, NULL, 10) : 0;
    return columns > 0 && columns < 10000 ? (int)columns : 80;
}

int console_columns(int fd)
{
    return isatty(fd) ? terminal_columns(fd) : 0;
}

/* Lines that tell in words what an event tells in fields are left out. */
static void print_json(flim_log_level level, const char *text)
{
    struct timespec now = {0};
    if (level != FLIM_LOG_WARNING && level != FLIM_LOG_NOTE) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    flim_json *object = flim_json_object();
    flim_json_set_string(object, "event", level == FLIM_LOG_WARNING ? "warning" : "note");
    flim_json_set_number(object, "time", (double)now.tv_sec + floor((double)now.tv_nsec / 1e6) / 1e3);
    flim_json_set_string(object, "message", text);
    char *line = flim_json_text(object);
    if (line) {
        puts(line);
    }
    flim_json_text_free(line);
    flim_json_free(object);
}

static void print_line(void *context, flim_log_level level, const char *text)
{
    static const char *const marks[] = {"", "note: ", "warning: ", "", ""};
    static const char *const colours[] = {NULL, NULL, "\033[33m", NULL, "\033[32m"}; /* yellow, green */
    console *c = context;
    if (c->quiet && level != FLIM_LOG_WARNING && level != FLIM_LOG_RESULT) {
        return;
    }
    console_close(c);
    if (c->json) {
        print_json(level, text);
    } else {
        const bool to_stderr = level == FLIM_LOG_WARNING || c->stdout_taken;
        FILE *out = to_stderr ? stderr : stdout;
        char line[LINE_BYTES];
        snprintf(line, sizeof line, "%s%s", marks[level], text);
        fflush(stdout);
        wrap_line(out, line, console_columns(fileno(out)), c->colour[to_stderr] ? colours[level] : NULL);
    }
    fflush(stdout);
}

flim_log console_log(console *c)
{
    return (flim_log){print_line, c};
}

/* Removes the bar, also where a narrower terminal has broken it into several rows since it was drawn. */
static void erase_bar(const console *c, int columns)
{
    const int rows_above = columns > 0 && c->drawn > 0 ? (c->drawn - 1) / columns : 0;
    if (rows_above > 0) {
        fprintf(stderr, "\033[%dA", rows_above);
    }
    fputs("\r\033[J", stderr);
}

void console_event(void *context, const char *name, const char *json)
{
    console *c = context;
    c->error_told = c->error_told || strcmp(name, "error") == 0;
    if (!c->quiet || strcmp(name, "summary") == 0 || strcmp(name, "error") == 0 || strcmp(name, "run_end") == 0) {
        puts(json);
        fflush(stdout);
    }
}

FILE *console_stream(console *c)
{
    FILE *out = c->stdout_taken ? stderr : stdout;
    const int columns = console_columns(fileno(out));
    if (columns > 0 && !c->stream) {
        c->stream = wrap_stream(out, columns);
    }
    return c->stream ? c->stream : out;
}

void console_close_stream(console *c)
{
    if (c->stream) {
        fclose(c->stream); /* what was lost is known to stdout */
        c->stream = NULL;
    }
}

void console_close(console *c)
{
    if (c->drawn > 0) {
        erase_bar(c, terminal_columns(STDERR_FILENO));
        fflush(stderr);
        c->drawn = 0;
    }
}

void console_progress(void *context, const flim_progress *p)
{
    console *c = context;
    const double time_now = now();
    if (!c->bar || (time_now - c->last < 0.1 && p->done < p->total)) {
        return;
    }
    c->last = time_now;
    char line[PROGRESS_BAR_BYTES];
    const int columns = terminal_columns(STDERR_FILENO);
    progress_bar_text(p, columns, line);
    erase_bar(c, columns);
    fputs(line, stderr);
    fflush(stderr);
    c->drawn = progress_bar_columns(line);
}

/* Both streams end in the same place: what is on one of them is not needed on the other. */
static bool streams_are_one(void)
{
    struct stat out, err;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
           out.st_ino == err.st_ino;
}

void console_workers(void *context, const flim_worker_view *worker, int n)
{
    console *c = context;
    char line[PROGRESS_BAR_BYTES];
    if (!c->bar) {
        return;
    }
    const int columns = terminal_columns(STDERR_FILENO);
    worker_line_text(worker, n, columns, line);
    erase_bar(c, columns);
    fputs(line, stderr);
    fflush(stderr);
    c->drawn = progress_bar_columns(line);
}

int console_exit(console *c, const char *program, flim_status status, const flim_error *err)
{
    console_close(c);
    fflush(stdout);
    if (status == FLIM_OK) {
        return 0;
    }
    if (status == FLIM_INTERRUPTED) {
        return 128 + (stop_signal ? stop_signal : SIGINT);
    }
    char line[LINE_BYTES];
    snprintf(line, sizeof line, "%s: error: %s", program, err->text);
    if (!c->error_told || !streams_are_one()) {
        wrap_line(stderr, line, console_columns(STDERR_FILENO), c->colour[1] ? "\033[31m" : NULL);
    }
    return status <= FLIM_ERROR_WRITE ? (int)status : 1;
}

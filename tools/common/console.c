#include "common/console.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "formats/json.h"

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
    raise_open_files();
    *c = (console){.quiet = quiet, .json = json, .bar = !quiet && !json && isatty(STDERR_FILENO)};
}

void console_close(console *c)
{
    if (c->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        c->drawn = false;
    }
}

static void print_json(flim_log_level level, const char *text)
{
    static const char *const names[] = {"info", "note", "warning", "result"};
    flim_json *object = flim_json_object();
    flim_json_set_integer(object, "time", (int64_t)time(NULL));
    flim_json_set_string(object, "level", names[level]);
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
    static const char *const marks[] = {"", "note: ", "warning: ", ""};
    console *c = context;
    if (c->quiet && level != FLIM_LOG_WARNING && level != FLIM_LOG_RESULT) {
        return;
    }
    console_close(c);
    if (c->json) {
        print_json(level, text);
    } else if (level == FLIM_LOG_WARNING || c->stdout_taken) {
        fflush(stdout);
        fprintf(stderr, "%s%s\n", marks[level], text);
    } else {
        printf("%s%s\n", marks[level], text);
    }
    fflush(stdout);
}

flim_log console_log(console *c)
{
    return (flim_log){print_line, c};
}

static void format_time(double seconds, char out[16])
{
    int64_t s = isfinite(seconds) && seconds < 1e7 ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(out, 16, "%" PRId64 ":%02d:%02d", s / 3600 % 10000, (int)(s / 60 % 60), (int)(s % 60));
    } else {
        snprintf(out, 16, "%d:%02d", (int)(s / 60 % 60), (int)(s % 60));
    }
}

/* " GPU 87 % 19.6 GiB 65 W 61 °C", without what is not known. */
static void device_text(const flim_device_status *s, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    if (!s || isnan(s->busy)) {
        return;
    }
    const struct {
        double value;
        const char *format;
    } parts[] = {{100 * s->busy, " GPU %.0f %%"},
                 {s->memory_bytes / 1073741824.0, " %.1f GiB"},
                 {s->watts, " %.0f W"},
                 {s->celsius, " %.0f °C"}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && used < size; i++) {
        if (!isnan(parts[i].value)) {
            int wrote = snprintf(out + used, size - used, parts[i].format, parts[i].value);
            used += wrote > 0 ? (size_t)wrote : 0;
        }
    }
}

void console_progress(void *context, const flim_progress *p)
{
    static const char *const phases[] = {"scan", "train", "val", "test", "holdout", "import"};
    enum { WIDTH = 24 };
    console *c = context;
    double time_now = now();
    if (!c->bar || (time_now - c->last < 0.1 && p->done < p->total)) {
        return;
    }
    c->last = time_now;
    char bar[WIDTH * 3 + 1] = "", left[16], loss[24] = "", where[64] = "", device[80];
    int full = p->total > 0 ? (int)(p->done * WIDTH / p->total) : 0;
    for (int i = 0; i < WIDTH; i++) {
        strncat(bar, i < full ? "█" : "░", sizeof bar - strlen(bar) - 1);
    }
    double rate = p->seconds > 0 ? (double)p->done / p->seconds : 0;
    format_time(rate > 0 ? (double)(p->total - p->done) / rate : 0, left);
    if (isfinite(p->loss)) {
        snprintf(loss, sizeof loss, " loss %.4f", p->loss);
    }
    if (p->fold > 0) {
        snprintf(where, sizeof where, "fold %d/%d epoch %" PRId64 "/%" PRId64 " ", p->fold, p->folds, p->epoch, p->epochs);
    }
    device_text(p->device, device, sizeof device);
    char line[512];
    snprintf(line, sizeof line, "%s%s %s %" PRId64 "/%" PRId64 " %.2f it/s %.1f cells/s%s%s %s left", where, phases[p->phase],
             bar, p->done, p->total, rate, p->seconds > 0 ? (double)p->cells / p->seconds : 0, loss, device, left);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    c->drawn = true;
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
    fprintf(stderr, "%s: error: %s\n", program, err->text);
    return status <= FLIM_ERROR_WRITE ? (int)status : 1;
}

#include "core/first_look.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/stop.h"

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

static _Noreturn void be_child(pid_t parent, int fd, const flim_first_look *look)
{
    flim_error answer = {0};
    settle_signals(parent);
    limit_myself(size_of_files(look->paths, look->n_paths));
    answer.status = look->look(look->context, &answer);
    for (size_t sent = 0; sent < sizeof answer;) {
        ssize_t n = write(fd, (const char *)&answer + sent, sizeof answer - sent);
        if (n <= 0 && errno != EINTR) {
            break;
        }
        sent += n > 0 ? (size_t)n : 0;
    }
    _exit(0); /* no handlers: neither the library's nor those of the program that called */
}

flim_status flim_look_first(const flim_first_look *look, bool *ended, flim_error *err)
{
    int fd[2];
    *ended = true;
    if (pipe(fd) != 0) {
        return FLIM_OK;
    }
    const pid_t self = getpid(), child = look->fork();
    if (child == 0) {
        close(fd[0]);
        be_child(self, fd[1], look);
    }
    close(fd[1]);
    flim_error answer = {0};
    bool answered = child > 0 && receive(fd[0], look->stop, &answer);
    close(fd[0]);
    if (child < 0) {
        return FLIM_OK;
    }
    if (flim_stopped(look->stop)) {
        kill(child, SIGKILL);
    }
    int how = 0;
    pid_t gone;
    do {
        gone = waitpid(child, &how, 0);
    } while (gone < 0 && errno == EINTR);
    if (flim_stopped(look->stop)) {
        return flim_fail(err, FLIM_INTERRUPTED, "interrupted while %s was opened", look->paths[0]);
    }
    if (answered) {
        return answer.status == FLIM_OK ? FLIM_OK : flim_fail(err, answer.status, "%s", answer.text);
    }
    *ended = false;
    int number = gone == child && WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    return flim_fail(err, FLIM_ERROR_DATA, "%s%s: the file is damaged: %s %s (%s) when a first process opened it",
                     look->paths[0], look->n_paths > 1 ? " or one of the other files" : "", look->library,
                     number == SIGXCPU || number == SIGALRM || number == SIGKILL ? "did not come to an end" : "crashed",
                     number ? strsignal(number) : "no signal");
}

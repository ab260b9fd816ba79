#include "train/crew.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/try.h"

enum { BUFFER = 4 * FLIM_WORKER_MESSAGE };

typedef struct seat {
    pid_t pid; /* 0 = free */
    int pipe; /* to read from */
    bool gone; /* the child has ended, as `how` says; what it has written is still to be read */
    int how;
    size_t used;
    char buffer[BUFFER];
} seat;

struct flim_crew {
    int n;
    int next; /* the seat that is asked first, so that none is left waiting by a talkative one */
    seat *seat; /* (n) */
    struct pollfd *poll; /* (n) scratch */
};

flim_status flim_crew_create(int seats, flim_crew **out, flim_error *err)
{
    *out = flim_alloc(1, sizeof **out, err);
    if (!*out) {
        return FLIM_ERROR_MEMORY;
    }
    (*out)->n = seats;
    (*out)->seat = flim_alloc((size_t)seats, sizeof *(*out)->seat, err);
    (*out)->poll = flim_alloc((size_t)seats, sizeof *(*out)->poll, err);
    if (!(*out)->seat || !(*out)->poll) {
        flim_crew_destroy(*out);
        *out = NULL;
        return FLIM_ERROR_MEMORY;
    }
    return FLIM_OK;
}

static void vacate(seat *s)
{
    close(s->pipe);
    s->pid = 0;
    s->used = 0;
    s->gone = false;
}

void flim_crew_destroy(flim_crew *crew)
{
    for (int i = 0; crew && crew->seat && i < crew->n; i++) {
        seat *s = &crew->seat[i];
        if (s->pid > 0) {
            if (!s->gone) {
                kill(s->pid, SIGKILL);
                while (waitpid(s->pid, &s->how, 0) < 0 && errno == EINTR) {
                }
            }
            vacate(s);
        }
    }
    if (crew) {
        flim_free(crew->seat);
        flim_free(crew->poll);
        flim_free(crew);
    }
}

/* In the child.  It must not outlive the parent, which may have died before the kernel was asked to watch. */
static void become(const flim_crew_start *start, int pipe, pid_t parent)
{
    char place[96];
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        fcntl(pipe, F_SETFD, 0) != 0) {
        _exit(127);
    }
    snprintf(place, sizeof place, "%d:%s", pipe, start->share);
    for (int i = 0; start->set && start->set[i]; i += 2) {
        setenv(start->set[i], start->set[i + 1], 1);
    }
    setenv("FLIM_WORKER", place, 1);
    execv("/proc/self/exe", start->argv);
    _exit(127);
}

flim_status flim_crew_seat(flim_crew *crew, int number, const flim_crew_start *start, flim_error *err)
{
    seat *s = &crew->seat[number];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return flim_fail(err, FLIM_ERROR, "cannot start a worker process: %s", strerror(errno));
    }
    fflush(NULL); /* a child that cannot exec must have nothing to write */
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        become(start, ends[1], parent);
    }
    const int number_of_error = errno;
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return flim_fail(err, FLIM_ERROR, "cannot start a worker process: %s", strerror(number_of_error));
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    s->pid = child;
    s->pipe = ends[0];
    return FLIM_OK;
}

/* What has come, up to the buffer's end.  True at the end of the pipe. */
static bool take_in(seat *s)
{
    while (s->used < sizeof s->buffer) {
        const ssize_t got = read(s->pipe, s->buffer + s->used, sizeof s->buffer - s->used);
        if (got > 0) {
            s->used += (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            return got == 0;
        }
    }
    return false;
}

/* A whole message, if there is one.  Bytes that are none come from nobody we know: they end the talk. */
static bool said(seat *s, flim_worker_event *out)
{
    const int took = flim_worker_event_take(s->buffer, s->used, out);
    if (took <= 0) {
        s->used = took < 0 ? 0 : s->used;
        return false;
    }
    s->used -= (size_t)took;
    memmove(s->buffer, s->buffer + took, s->used);
    return true;
}

/* A message that waits, or an end with nothing left to say. */
static bool find(flim_crew *crew, flim_crew_news *out)
{
    for (int i = 0; i < crew->n; i++) {
        const int number = (crew->next + i) % crew->n;
        seat *s = &crew->seat[number];
        if (s->pid == 0) {
            continue;
        }
        if (!s->gone) {
            s->gone = waitpid(s->pid, &s->how, WNOHANG) == s->pid;
        }
        take_in(s); /* after waitpid: all that a process that is gone has said is there */
        out->seat = number;
        if (said(s, &out->event)) {
            out->kind = FLIM_CREW_SAID;
            crew->next = (number + 1) % crew->n;
            return true;
        }
        if (s->gone) {
            out->kind = FLIM_CREW_ENDED;
            out->how = s->how;
            vacate(s);
            return true;
        }
    }
    return false;
}

void flim_crew_next(flim_crew *crew, double seconds, flim_crew_news *out)
{
    int n = 0;
    out->kind = FLIM_CREW_NOTHING;
    if (find(crew, out)) {
        return;
    }
    for (int i = 0; i < crew->n; i++) {
        if (crew->seat[i].pid > 0) {
            crew->poll[n++] = (struct pollfd){.fd = crew->seat[i].pipe, .events = POLLIN};
        }
    }
    const int ready = poll(crew->poll, (nfds_t)n, (int)(1000 * seconds));
    if (ready > 0 && !find(crew, out)) { /* the end of a pipe comes a moment before that of its process */
        const struct timespec moment = {.tv_nsec = 1000000};
        nanosleep(&moment, NULL);
    }
}

void flim_crew_signal(flim_crew *crew, int signal)
{
    for (int i = 0; i < crew->n; i++) {
        if (crew->seat[i].pid > 0 && !crew->seat[i].gone) {
            kill(crew->seat[i].pid, signal);
        }
    }
}

int flim_crew_living(const flim_crew *crew)
{
    int n = 0;
    for (int i = 0; i < crew->n; i++) {
        n += crew->seat[i].pid > 0;
    }
    return n;
}

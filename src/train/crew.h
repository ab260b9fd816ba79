/* A crew of child processes: each sits on a seat, says what it does through a pipe, and ends.
 *
 * For: workers.c, which decides who is started when.  A child is this program started once more (/proc/self/exe), by fork and
 *      exec, so that nothing of a device, of OpenMP or of HDF5 is shared with it.  It gets TERM if this process dies.
 * Owns: the children and their pipes; flim_crew_destroy.  From one thread only, in a process without other threads: the
 *      child sets its environment between fork and exec.
 * Errors: FLIM_ERROR for processes or pipes that the system does not give.
 */
#ifndef FLIM_TRAIN_CREW_H
#define FLIM_TRAIN_CREW_H

#include "train/worker_event.h"

typedef struct flim_crew flim_crew;

flim_status flim_crew_create(int seats, flim_crew **out, flim_error *err);
void flim_crew_destroy(flim_crew *crew); /* kills who still lives; NULL is allowed */

/* What a child is started with: argv ends in NULL; of each pair in set (name, value; ends in NULL) the environment gets the
 * value.  Its place in the environment for worker.c is FLIM_WORKER: the descriptor of its pipe, then `share`. */
typedef struct flim_crew_start {
    char *const *argv;
    const char *const *set;
    const char *share; /* "processes:on_device:first", as in flim_shared_run */
} flim_crew_start;

/* Starts a child on a free seat. */
flim_status flim_crew_seat(flim_crew *crew, int seat, const flim_crew_start *start, flim_error *err);

typedef enum flim_crew_news_kind { FLIM_CREW_NOTHING, FLIM_CREW_SAID, FLIM_CREW_ENDED } flim_crew_news_kind;

typedef struct flim_crew_news {
    flim_crew_news_kind kind;
    int seat;
    int how; /* ENDED: as waitpid gives it */
    flim_worker_event event; /* SAID */
} flim_crew_news;

/* The next that a child says, or its end, after all that it has said; NOTHING after so many seconds or a signal. */
void flim_crew_next(flim_crew *crew, double seconds, flim_crew_news *out);
/* Sends a signal to all that live. */
void flim_crew_signal(flim_crew *crew, int signal);
int flim_crew_living(const flim_crew *crew);

#endif

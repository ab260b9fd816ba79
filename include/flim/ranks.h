/* Ranks: the processes that share the work of one training (data parallelism), and what they say to each other.
 *
 * For: programs (flim_program_options.ranks), which sum gradients and statistics over the ranks of a step, and the trainer,
 *      whose rank 0 leads the others.  What joins the processes is a table of functions: one process alone, or MPI.
 * Owns: flim_ranks_open gives a group to its caller, flim_ranks_close; one per process.  All calls come from the thread that
 *      opened it.  Every rank makes the same calls in the same order, but for flim_ranks_break.
 * Errors: FLIM_ERROR_USAGE if this program cannot join processes, or was started in a way in which they do not find each
 *      other; FLIM_ERROR if the connection fails.  A rank that dies ends the others through the launcher (mpirun, srun).
 */
#ifndef FLIM_RANKS_H
#define FLIM_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "flim/status.h"

typedef struct flim_ranks flim_ranks;

/* The group of this process: what the launcher started together, else the process alone (mpirun is not needed for that). */
flim_status flim_ranks_open(flim_ranks **out, flim_error *err);
/* This rank has failed where the others go on, and wait for it: no call of its group works from now on. */
void flim_ranks_break(flim_ranks *ranks);
bool flim_ranks_is_broken(const flim_ranks *ranks);
/* All together, as the last thing that each does; NULL is allowed.  A rank whose group is broken ends all processes with the
 * exit code `code` instead. */
void flim_ranks_close(flim_ranks *ranks, int code);

/* Of a group that may be NULL: one process. */
int flim_ranks_size(const flim_ranks *ranks);
int flim_ranks_rank(const flim_ranks *ranks); /* 0..size-1 */
int flim_ranks_local_rank(const flim_ranks *ranks); /* among those of the same host */
int flim_ranks_local_size(const flim_ranks *ranks);
const char *flim_ranks_host(const flim_ranks *ranks); /* name of this one's */
const char *flim_ranks_library(const flim_ranks *ranks); /* "Open MPI v4.1.4"; "" for a process alone */

/* Replaces values (count) by their sums over the ranks, taken in the order of the ranks: ((v0 + v1) + v2) + ...  Every rank
 * gets the same bits, and the same ones each time. */
flim_status flim_ranks_sum_floats(flim_ranks *ranks, float *values, size_t count, flim_error *err);
/* all: (size, bytes), each rank's `mine` of as many bytes. */
flim_status flim_ranks_gather(flim_ranks *ranks, const void *mine, size_t bytes, void *all, flim_error *err);
/* Rank 0's bytes to all. */
flim_status flim_ranks_broadcast(flim_ranks *ranks, void *bytes, size_t count, flim_error *err);
/* The same for ranks that may have to wait long: they sleep meanwhile. */
flim_status flim_ranks_await(flim_ranks *ranks, void *bytes, size_t count, flim_error *err);
/* FLIM_OK if all ranks give that; else every rank gets the status and text of the first rank that does not, with its number. */
flim_status flim_ranks_settle(flim_ranks *ranks, flim_status status, flim_error *err);

#endif

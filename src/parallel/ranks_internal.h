/* What joins ranks: a table of functions; ranks.c builds the rest on it.  Private to src/parallel/.
 *
 * Errors: FLIM_ERROR.
 */
#ifndef FLIM_RANKS_INTERNAL_H
#define FLIM_RANKS_INTERNAL_H

#include "flim/ranks.h"

typedef struct flim_ranks_ops {
    /* in, out: (size, bytes); out[r] gets what rank r has for this one. */
    flim_status (*exchange)(flim_ranks *ranks, const void *in, size_t bytes, void *out, flim_error *err);
    flim_status (*gather)(flim_ranks *ranks, const void *mine, size_t bytes, void *all, flim_error *err);
    flim_status (*broadcast)(flim_ranks *ranks, void *bytes, size_t count, bool patient, flim_error *err);
    void (*end_all)(flim_ranks *ranks, int code);
    void (*close)(flim_ranks *ranks);
} flim_ranks_ops;

struct flim_ranks {
    const flim_ranks_ops *ops; /* NULL: a process alone */
    int rank, size, local_rank, local_size;
    bool broken; /* flim_ranks_break */
    char host[256], library[64];
    char *scratch; /* of sums */
    size_t scratch_bytes;
};

/* Whether a launcher that Open MPI understands started this process. */
bool flim_mpi_is_launched(void);
/* Joins the processes that it started; *out is to be freed with ops->close. */
flim_status flim_mpi_open(flim_ranks **out, flim_error *err);

#endif

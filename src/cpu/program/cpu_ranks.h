/* A training call whose work several ranks share: statistics, totals and gradients of all of them.
 *
 * Each rank has a batch of its own, as if one program were given them one after the other: running statistics and totals are
 * moved in that order, gradients are summed in it.  With sync_batchnorm it is as if it were given all as one batch (cpu_sync.h).
 * With one rank nothing is exchanged, and the same is done.
 */
#ifndef FLIM_CPU_RANKS_H
#define FLIM_CPU_RANKS_H

#include "cpu/program/cpu_program.h"

/* Forward pass, heads and losses of this rank's batch (n = 0: none); running statistics moved by all batches. */
flim_status flim_cpu_ranks_forward(flim_cpu_program *p, const flim_batch *batch, flim_cpu_loss *out, flim_error *err);
/* Adds the losses and cells of all batches to the totals; *calls: how many had cells, or 1 if they are one.  A loss that is not
 * finite is noted. */
flim_status flim_cpu_ranks_account(flim_cpu_program *p, int64_t n, const flim_cpu_loss *loss, int64_t *calls,
                                   flim_error *err);
/* The gradients of all ranks, summed. */
flim_status flim_cpu_ranks_gradients(flim_cpu_program *p, flim_error *err);

/* Call number `call` had a loss or gradient that is not finite: from here on nothing is updated until the totals are reset. */
static inline void flim_cpu_note_nonfinite(flim_cpu_program *p, int64_t call)
{
    if (!p->totals.nonfinite) {
        p->totals.nonfinite = true;
        p->totals.nonfinite_call = call;
    }
}

#endif

/* BatchNorm over the batches of all ranks (flim_program_options.sync_batchnorm): its sums, between the pass that makes them and the
 * one that uses them.
 *
 * For: forward, heads and backward, which put what this rank's batch has into program->own.  Without ranks, or without the option,
 *      it is handed back as it is and nothing is exchanged.
 * Order: all ranks call these in the same order, whatever cells they have, none included; batches are taken in the ranks' order,
 *      so that all get the same bits, and the same ones each time.
 * Errors: those of flim/ranks.h.
 */
#ifndef FLIM_CPU_SYNC_H
#define FLIM_CPU_SYNC_H

#include "cpu/program/cpu_program.h"

bool flim_cpu_is_synced(const flim_cpu_program *p);
/* own: moments (moments.h) of so many channels -> *out: those of all ranks' batches as one, valid until the next call. */
flim_status flim_cpu_sync_moments(flim_cpu_program *p, int channels, const double **out, flim_error *err);
/* own: (count) sums -> *out: summed over the ranks, valid until the next call. */
flim_status flim_cpu_sync_sums(flim_cpu_program *p, size_t count, const double **out, flim_error *err);

#endif

/* The hidden voxels of a cell: what the network's prediction of them costs, and the baseline's (backend/hidden.h).
 *
 * Owns: nothing; `work` is flim_cpu_hidden_work doubles of the caller's.  Cannot fail.
 */
#ifndef FLIM_CPU_HIDDEN_H
#define FLIM_CPU_HIDDEN_H

#include "cpu/layers/cpu_head.h"
#include "flim/device.h"

size_t flim_cpu_hidden_work(int bins, size_t plane);

/* Sums over the hidden voxels of one cell of a dense head, cell->hidden set. */
flim_hidden_totals flim_cpu_hidden_sums(const flim_cpu_dense *cell, double *work);

#endif

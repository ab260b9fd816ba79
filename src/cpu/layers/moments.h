/* Moments of a batch for BatchNorm: the number of values per channel, of each of C channels the mean, of each the sum of squares
 * around it; 1 + 2 C doubles in this order.  So those of several batches merge without cancelling.
 *
 * For: units and heads, which make them and use them, and ranks, which merge them in between (program/cpu_sync.h).
 */
#ifndef FLIM_CPU_MOMENTS_H
#define FLIM_CPU_MOMENTS_H

#include <stddef.h>

static inline size_t flim_cpu_moment_doubles(int channels)
{
    return 1 + 2 * (size_t)channels;
}

#endif

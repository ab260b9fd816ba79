/* Running statistics of BatchNorm: how a batch moves them, at once or later.
 *
 * For: layers and heads.  Ranks that train together (program/cpu_ranks.h) note their moves, and make those of all in order.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_CPU_RUNNING_H
#define FLIM_CPU_RUNNING_H

#include <stddef.h>

/* What a batch does to a running statistic: it becomes keep * statistic + add. */
typedef struct flim_cpu_move {
    double keep, add;
} flim_cpu_move;

static inline float flim_cpu_moved(float running, flim_cpu_move move)
{
    return (float)(move.keep * (double)running + move.add);
}

/* Moves running[c], or notes the move in note[c] if there is such a list. */
static inline void flim_cpu_move_running(float *running, flim_cpu_move *note, int c, double momentum, double add)
{
    const flim_cpu_move move = {1.0 - momentum, add};
    if (note) {
        note[c] = move;
    } else {
        running[c] = flim_cpu_moved(running[c], move);
    }
}

#endif

/* How long idle threads of OpenMP spin before they sleep. */
#ifndef FLIM_TOOLS_SPINNING_H
#define FLIM_TOOLS_SPINNING_H

/* libgomp's idle threads spin for milliseconds, which takes the processor from the loader's threads and from everybody else
 * on the machine: a run of preset tiny takes a third of the processor time without (docs/reliability.md).  libgomp reads its
 * environment before main, so this starts the program once more with GOMP_SPINCOUNT=1000, unless the user has set that or
 * OMP_WAIT_POLICY.  Call it first in main; it returns if nothing is to be done or exec fails. */
void limit_spinning(char **argv);

#endif

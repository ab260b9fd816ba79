/* The host memory that this process may have. */
#ifndef FLIM_CORE_HOST_MEMORY_H
#define FLIM_CORE_HOST_MEMORY_H

#include <stdint.h>

/* Bytes.  total: the machine's, or less if a control group (a container, a batch system's job) or ulimit -v bounds it;
 * available: of these, what can still be allocated without swapping. */
typedef struct flim_host_memory {
    int64_t total, available;
} flim_host_memory;

flim_host_memory flim_host_memory_now(void);
/* The same from a folder in which the kernel's files stand as in / (proc/meminfo, proc/self/cgroup, sys/fs/cgroup/...), and
 * without ulimit -v: for tests. */
flim_host_memory flim_host_memory_below(const char *root);

#endif

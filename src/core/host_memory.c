/* Host memory by /proc/meminfo, control groups (versions 1 and 2) and the limit of the address space. */
#include "core/host_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { PATH_ROOM = 4096 };

/* The number after `key` in a small text file of the kernel's, or -1; an empty key takes the file's first number ("max" is
 * none). */
static int64_t kernel_number(const char *path, const char *key)
{
    char line[512];
    long long value = -1;
    FILE *stream = fopen(path, "r");
    while (stream && fgets(line, sizeof line, stream)) {
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%lld", &value) == 1) {
            break;
        }
        value = -1;
    }
    if (stream) {
        fclose(stream);
    }
    return value;
}

static int64_t number_at(const char *folder, const char *file, const char *key)
{
    char path[PATH_ROOM];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, file);
    return length > 0 && (size_t)length < sizeof path ? kernel_number(path, key) : -1;
}

static void bound(flim_host_memory *memory, int64_t limit, int64_t used)
{
    if (limit >= 0 && used >= 0) {
        const int64_t left = limit > used ? limit - used : 0;
        memory->total = limit < memory->total ? limit : memory->total;
        memory->available = left < memory->available ? left : memory->available;
    }
}

/* One control group's folder.  Its file cache counts as used, though the kernel gives it up before it lets an allocation
 * fail. */
static void bound_by_group(flim_host_memory *memory, const char *folder, bool second)
{
    const int64_t limit = number_at(folder, second ? "memory.max" : "memory.limit_in_bytes", "");
    const int64_t used = number_at(folder, second ? "memory.current" : "memory.usage_in_bytes", "");
    const int64_t cached = number_at(folder, "memory.stat", second ? "inactive_file " : "total_inactive_file ");
    bound(memory, limit, cached > 0 && cached < used ? used - cached : used);
}

/* A group and those above it, up to the mount: each may be the one that bounds.  In a container the group's path may be the
 * host's, and only the mount itself is seen. */
static void bound_by_groups(flim_host_memory *memory, const char *mount, const char *group, bool second)
{
    char folder[PATH_ROOM];
    const int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (length <= 0 || (size_t)length >= sizeof folder) {
        return;
    }
    for (;;) {
        bound_by_group(memory, folder, second);
        char *slash = strrchr(folder, '/');
        if (!slash || strlen(folder) <= strlen(mount)) {
            return;
        }
        *slash = '\0';
    }
}

flim_host_memory flim_host_memory_below(const char *root)
{
    char path[PATH_ROOM], mount[PATH_ROOM], line[PATH_ROOM];
    flim_host_memory memory = {(int64_t)1 << 30, (int64_t)1 << 30}; /* if nothing is known */
    snprintf(path, sizeof path, "%.3000s/proc/meminfo", root);
    const int64_t total = kernel_number(path, "MemTotal:"), available = kernel_number(path, "MemAvailable:");
    if (available >= 0) {
        memory = (flim_host_memory){total > available ? total * 1024 : available * 1024, available * 1024};
    }
    snprintf(path, sizeof path, "%.3000s/proc/self/cgroup", root);
    FILE *stream = fopen(path, "r");
    while (stream && fgets(line, sizeof line, stream)) {
        line[strcspn(line, "\n")] = '\0';
        char *kind = strchr(line, ':'), *end = kind ? strchr(kind + 1, ':') : NULL;
        if (!end) {
            continue;
        }
        *end = '\0';
        const char *group = strstr(end + 1, "/..") ? "/" : end + 1; /* a group outside of the name space */
        if (strcmp(kind, ":") == 0) { /* "0::/path" */
            snprintf(mount, sizeof mount, "%.3000s/sys/fs/cgroup", root);
            bound_by_groups(&memory, mount, group, true);
        } else if (strcmp(kind, ":memory") == 0) { /* "4:memory:/path" */
            snprintf(mount, sizeof mount, "%.3000s/sys/fs/cgroup/memory", root);
            bound_by_groups(&memory, mount, group, false);
        }
    }
    if (stream) {
        fclose(stream);
    }
    return memory;
}

flim_host_memory flim_host_memory_now(void)
{
    flim_host_memory memory = flim_host_memory_below("");
    struct rlimit limit; /* ulimit -v: batch systems set it */
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < (rlim_t)INT64_MAX) {
        const int64_t size = kernel_number("/proc/self/status", "VmSize:");
        bound(&memory, (int64_t)limit.rlim_cur, size > 0 ? size * 1024 : 0);
    }
    return memory;
}

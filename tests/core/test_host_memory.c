/* The host memory that a process may have, from the kernel's files as machines, containers and batch systems have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/host_memory.h"

enum { MOST_FILES = 8 };

typedef struct kernel_file {
    const char *path, *text;
} kernel_file;

/* Writes the files into a folder of their own and reads them as the kernel's. */
static flim_host_memory read_files(const kernel_file *file)
{
    char root[] = "/tmp/flim_memory_XXXXXX", path[512], command[64];
    assert_non_null(mkdtemp(root));
    for (int i = 0; i < MOST_FILES && file[i].path; i++) {
        snprintf(path, sizeof path, "%s/%s", root, file[i].path);
        for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
            *at = '\0';
            (void)mkdir(path, 0755);
            *at = '/';
        }
        FILE *stream = fopen(path, "w");
        assert_non_null(stream);
        assert_true(fputs(file[i].text, stream) >= 0 && fclose(stream) == 0);
    }
    const flim_host_memory memory = flim_host_memory_below(root);
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
    return memory;
}

static const char meminfo[] = "MemTotal:       64000000 kB\nMemFree:         1000000 kB\nMemAvailable:   50000000 kB\n";
static const char gib4[] = "4294967296\n";

static void every_bound_counts(void **state)
{
    (void)state;
    static const int64_t machine = 64000000LL * 1024, left = 50000000LL * 1024, gib = 1 << 30;
    static const struct {
        const char *what;
        kernel_file file[MOST_FILES];
        int64_t total, available;
    } cases[] = {{"a machine", {{"proc/meminfo", meminfo}}, machine, left},
                 {"no limit, version 2",
                  {{"proc/meminfo", meminfo},
                   {"proc/self/cgroup", "0::/user.slice/session\n"},
                   {"sys/fs/cgroup/user.slice/session/memory.max", "max\n"},
                   {"sys/fs/cgroup/user.slice/session/memory.current", "1000000\n"}},
                  machine,
                  left},
                 {"a container, version 2: 1 GiB used, half of it file cache",
                  {{"proc/meminfo", meminfo},
                   {"proc/self/cgroup", "0::/\n"},
                   {"sys/fs/cgroup/memory.max", gib4},
                   {"sys/fs/cgroup/memory.current", "1073741824\n"},
                   {"sys/fs/cgroup/memory.stat", "anon 536870912\nfile 536870912\ninactive_file 536870912\nactive_file 0\n"}},
                  4 * gib,
                  4 * gib - gib / 2},
                 {"a group outside of the container's name space",
                  {{"proc/meminfo", meminfo},
                   {"proc/self/cgroup", "0::/../../job_7\n"},
                   {"sys/fs/cgroup/memory.max", gib4},
                   {"sys/fs/cgroup/memory.current", "0\n"}},
                  4 * gib,
                  4 * gib},
                 {"a job's limit stands above the step's group",
                  {{"proc/meminfo", meminfo},
                   {"proc/self/cgroup", "0::/slurm/job_7/step_0\n"},
                   {"sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n"},
                   {"sys/fs/cgroup/slurm/job_7/step_0/memory.current", "0\n"},
                   {"sys/fs/cgroup/slurm/job_7/memory.max", gib4},
                   {"sys/fs/cgroup/slurm/job_7/memory.current", "2147483648\n"}},
                  4 * gib,
                  2 * gib},
                 {"version 1, in a container that sees only the mount",
                  {{"proc/meminfo", meminfo},
                   {"proc/self/cgroup", "5:devices:/\n4:memory:/docker/abc\n0::/\n"},
                   {"sys/fs/cgroup/memory/memory.limit_in_bytes", gib4},
                   {"sys/fs/cgroup/memory/memory.usage_in_bytes", "3221225472\n"},
                   {"sys/fs/cgroup/memory/memory.stat", "cache 0\ntotal_inactive_file 1073741824\n"}},
                  4 * gib,
                  2 * gib},
                 {"version 1 without a limit",
                  {{"proc/meminfo", meminfo},
                   {"proc/self/cgroup", "4:memory:/x\n"},
                   {"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n"},
                   {"sys/fs/cgroup/memory/x/memory.usage_in_bytes", "3221225472\n"}},
                  machine,
                  left},
                 {"more used than there may be",
                  {{"proc/meminfo", meminfo},
                   {"proc/self/cgroup", "0::/\n"},
                   {"sys/fs/cgroup/memory.max", gib4},
                   {"sys/fs/cgroup/memory.current", "5368709120\n"}},
                  4 * gib,
                  0},
                 {"nothing is told", {{"proc/other", ""}}, gib, gib}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const flim_host_memory memory = read_files(cases[i].file);
        if (memory.total != cases[i].total || memory.available != cases[i].available) {
            fail_msg("%s: total %lld, available %lld, expected %lld and %lld", cases[i].what, (long long)memory.total,
                     (long long)memory.available, (long long)cases[i].total, (long long)cases[i].available);
        }
    }
}

static void this_process_has_some(void **state)
{
    (void)state;
    const flim_host_memory memory = flim_host_memory_now();
    assert_true(memory.available > 0 && memory.available <= memory.total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_bound_counts), cmocka_unit_test(this_process_has_some)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

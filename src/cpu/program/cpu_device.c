/* The CPU as a device: what it is, its memory, and the table of its functions. */
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "backend/precision.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/host_memory.h"
#include "core/try.h"
#include "cpu/program/cpu_compile.h"
#include "cpu/program/cpu_program.h"

/* Copies what follows "key ... :" in a /proc file, without blanks around it; false if the key is not there. */
static bool proc_value(const char *path, const char *key, char *out, size_t size)
{
    FILE *file = fopen(path, "r");
    char line[512];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && colon) {
            const char *value = colon + 1 + strspn(colon + 1, " \t");
            snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
            found = true;
        }
    }
    if (file) {
        fclose(file);
    }
    return found;
}

static void close_device(flim_device *device)
{
    flim_cpu_device *cpu = (flim_cpu_device *)(void *)device;
    dnnl_engine_destroy(cpu->engine);
    flim_free(cpu);
}

static flim_status host_alloc(flim_device *device, size_t bytes, void **out, bool *pinned, flim_error *err)
{
    (void)device;
    *pinned = false;
    *out = flim_alloc_aligned(bytes, 1, err);
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

static void host_free(flim_device *device, void *memory)
{
    (void)device;
    flim_free(memory);
}

static flim_status memory_free(flim_device *device, int64_t *bytes, flim_error *err)
{
    (void)device, (void)err;
    *bytes = flim_host_memory_now().available;
    return FLIM_OK;
}

static const flim_device_ops device_ops = {.close = close_device,
                                           .host_alloc = host_alloc,
                                           .host_free = host_free,
                                           .compile = flim_cpu_compile,
                                           .memory_free = memory_free};

static void describe(flim_device_info *info)
{
    const flim_host_memory memory = flim_host_memory_now();
    *info = (flim_device_info){
        .kind = "cpu", .memory_bytes = memory.total, .memory_free = memory.available, .threads = omp_get_max_threads()};
    flim_set_precisions(info, info->kind, 0);
    if (!proc_value("/proc/cpuinfo", "model name", info->name, sizeof info->name)) {
        snprintf(info->name, sizeof info->name, "CPU");
    }
    const dnnl_version_t *version = dnnl_version();
    snprintf(info->libraries, sizeof info->libraries, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    snprintf(info->architecture, sizeof info->architecture, "%s", flim_onednn_isa());
}

static flim_status count_devices(int *count, flim_error *err)
{
    (void)err;
    *count = 1;
    return FLIM_OK;
}

/* oneDNN and libgomp do not look whether their memory and threads came, and crash: under ulimit -v there must be room for
 * generated code, thread stacks and malloc's arenas. */
static flim_status check_address_space(flim_error *err)
{
    enum { ROOM_MIB = 96 };
    struct rlimit limit;
    const int64_t available = flim_host_memory_now().available;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || available >= ROOM_MIB * FLIM_MIB) {
        return FLIM_OK;
    }
    return flim_fail(
        err, FLIM_ERROR_MEMORY,
        "ulimit -v is %.0f MiB, which leaves %.0f MiB; the CPU backend needs %d: raise it, or lift it with ulimit -v "
        "unlimited",
        flim_mib((int64_t)limit.rlim_cur), flim_mib(available), ROOM_MIB);
}

/* Far more threads than processors (OMP_NUM_THREADS=100000) would be none at all. */
static void limit_threads(void)
{
    const int processors = omp_get_num_procs();
    if (omp_get_max_threads() > 4 * processors && omp_get_max_threads() > 64) {
        omp_set_num_threads(processors);
    }
}

static flim_status open_device(int index, flim_device **out, flim_error *err)
{
    if (index != 0) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "CPU number %d: there is only number 0", index);
    }
    FLIM_TRY(check_address_space(err));
    limit_threads();
    flim_cpu_device *cpu = flim_alloc(1, sizeof *cpu, err);
    if (!cpu) {
        return FLIM_ERROR_MEMORY;
    }
    dnnl_status_t status = dnnl_engine_create(&cpu->engine, dnnl_cpu, 0);
    if (status != dnnl_success) {
        flim_free(cpu);
        return flim_fail(err, FLIM_ERROR_DEVICE, "oneDNN gives no CPU engine: status %d", (int)status);
    }
    cpu->kernels = flim_cpu_kernels_choose();
    cpu->base.ops = &device_ops;
    describe(&cpu->base.info);
    *out = &cpu->base;
    return FLIM_OK;
}

const flim_backend flim_backend_cpu = {"cpu", count_devices, open_device, NULL};

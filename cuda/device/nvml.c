#include "cuda/device/nvml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/dl.h"

/* NVML's structs (nvml.h of any driver since 510); their layouts are part of its interface. */
typedef struct utilization {
    unsigned gpu, memory; /* per cent */
} utilization;

typedef struct memory_info {
    unsigned long long total, free, used;
} memory_info;

typedef struct process_info {
    unsigned pid;
    unsigned long long bytes; /* all ones = not known */
    unsigned gpu_instance, compute_instance;
} process_info;

enum { MOST_PROCESSES = 64, MOST_NAMED = 3 };

bool flim_nvml_open(flim_nvml *nvml, const char *pci_bus_id)
{
    int (*init)(void), (*handle)(const char *, void **);
    *nvml = (flim_nvml){0};
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        return false;
    }
    bool found = flim_dl_find(lib, "nvmlInit_v2", &init) && flim_dl_find(lib, "nvmlShutdown", &nvml->shutdown) &&
                 flim_dl_find(lib, "nvmlDeviceGetHandleByPciBusId_v2", &handle);
    /* Each of the others may be missing. */
    (void)flim_dl_find(lib, "nvmlDeviceGetUtilizationRates", &nvml->utilization);
    (void)flim_dl_find(lib, "nvmlDeviceGetMemoryInfo", &nvml->memory);
    (void)flim_dl_find(lib, "nvmlDeviceGetPowerUsage", &nvml->power);
    (void)flim_dl_find(lib, "nvmlDeviceGetTemperature", &nvml->temperature);
    (void)flim_dl_find(lib, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes);
    (void)flim_dl_find(lib, "nvmlSystemGetProcessName", &nvml->process_name);
    if (!found || init() != 0) {
        dlclose(lib);
        *nvml = (flim_nvml){0};
        return false;
    }
    nvml->library = lib;
    if (handle(pci_bus_id, &nvml->device) != 0) {
        nvml->device = NULL;
        flim_nvml_close(nvml);
        return false;
    }
    return true;
}

void flim_nvml_close(flim_nvml *nvml)
{
    if (nvml->library) {
        (void)nvml->shutdown();
        dlclose(nvml->library);
    }
    *nvml = (flim_nvml){0};
}

void flim_nvml_status(const flim_nvml *nvml, flim_device_status *out)
{
    utilization busy;
    memory_info memory;
    unsigned milliwatts, celsius;
    *out = (flim_device_status){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    if (!nvml->device) {
        return;
    }
    if (nvml->utilization && nvml->utilization(nvml->device, &busy) == 0) {
        out->busy = busy.gpu / 100.0;
    }
    if (nvml->memory && nvml->memory(nvml->device, &memory) == 0) {
        out->memory_bytes = (double)memory.used;
    }
    if (nvml->power && nvml->power(nvml->device, &milliwatts) == 0) {
        out->watts = milliwatts / 1000.0;
    }
    if (nvml->temperature && nvml->temperature(nvml->device, 0, &celsius) == 0) {
        out->celsius = celsius;
    }
}

/* The last part of a program's path. */
static void name_of(const flim_nvml *nvml, unsigned pid, char *name, size_t size)
{
    char path[256] = "";
    const char *last = "a program";
    if (nvml->process_name && nvml->process_name(pid, path, sizeof path) == 0) {
        path[sizeof path - 1] = '\0';
        path[strcspn(path, " ")] = '\0';
        const char *slash = strrchr(path, '/');
        last = slash ? slash + 1 : path;
    }
    snprintf(name, size, "%.60s", last[0] ? last : "a program");
}

void flim_nvml_others(const flim_nvml *nvml, char *text, size_t size)
{
    process_info list[MOST_PROCESSES];
    unsigned count = MOST_PROCESSES;
    size_t used = 0;
    text[0] = '\0';
    if (!nvml->device || !nvml->processes || nvml->processes(nvml->device, &count, list) != 0) {
        return;
    }
    for (int named = 0; named < MOST_NAMED; named++) {
        process_info *most = NULL;
        for (unsigned i = 0; i < count && i < MOST_PROCESSES; i++) {
            const bool known = list[i].bytes != 0 && list[i].bytes != ~0ULL;
            if (known && list[i].pid != (unsigned)getpid() && (!most || list[i].bytes > most->bytes)) {
                most = &list[i];
            }
        }
        if (!most || used >= size) {
            return;
        }
        char name[64];
        name_of(nvml, most->pid, name, sizeof name);
        int wrote = snprintf(text + used, size - used, "%s%s (pid %u) %.2f GiB", used ? ", " : "", name, most->pid,
                             (double)most->bytes / 1073741824.0);
        used += wrote > 0 ? (size_t)wrote : 0;
        most->bytes = 0;
    }
}

/* A management library for tests: one card, three processes that hold its memory, one of them the test itself. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device);
int nvmlDeviceGetUtilizationRates(void *device, unsigned *out);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *out);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *out);
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length);

static int card, begun;

int nvmlInit_v2(void)
{
    begun++;
    return 0;
}

int nvmlShutdown(void)
{
    begun--;
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device)
{
    *device = &card;
    return strcmp(id, "0000:00:03.0") == 0 && begun == 1 ? 0 : 6;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *out)
{
    out[0] = 87;
    out[1] = 40;
    return device == &card ? 0 : 2;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *out)
{
    out[0] = 24000000000ULL;
    out[1] = 3000000000ULL;
    out[2] = 21000000000ULL;
    return device == &card ? 0 : 2;
}

/* No nvmlDeviceGetPowerUsage: a driver may lack a call. */

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    *celsius = 61;
    return device == &card && sensor == 0 ? 0 : 2;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *out)
{
    struct {
        unsigned pid;
        unsigned long long bytes;
        unsigned a, b;
    } list[4] = {
        {100, 1ULL << 30, 0, 0}, {(unsigned)getpid(), 8ULL << 30, 0, 0}, {200, 40ULL << 30, 0, 0}, {300, ~0ULL, 0, 0}};
    if (*count < 4) {
        return 7;
    }
    *count = 4;
    memcpy(out, list, sizeof list);
    return device == &card ? 0 : 2;
}

int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    snprintf(name, length, pid == 200 ? "/opt/bin/python3 train.py" : "");
    return 0;
}

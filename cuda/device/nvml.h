/* The driver's management library (NVML), opened at run time: how busy, full, warm a card is and who holds its memory.
 *
 * For: progress, history.csv and the texts of out-of-memory errors.  Where the library or a figure is missing, that is fine:
 *      the figure is NaN, the text empty.  No CUDA call is made, and no header of NVML is needed.
 * Owns: flim_nvml_close frees what open made.
 */
#ifndef FLIM_CUDA_NVML_H
#define FLIM_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>

#include "flim/device.h"

typedef struct flim_nvml {
    void *library, *device; /* dlopen's; the card's handle; NULL = not to be had */
    int (*shutdown)(void);
    int (*utilization)(void *device, void *out);
    int (*memory)(void *device, void *out);
    int (*power)(void *device, unsigned *milliwatts);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*processes)(void *device, unsigned *count, void *out);
    int (*process_name)(unsigned pid, char *name, unsigned length);
} flim_nvml;

/* The card with a PCI bus id ("0000:00:03.0"); false leaves an empty struct, which the other calls take. */
bool flim_nvml_open(flim_nvml *nvml, const char *pci_bus_id);
void flim_nvml_close(flim_nvml *nvml);

void flim_nvml_status(const flim_nvml *nvml, flim_device_status *out);
/* "python3 (pid 4711) 39.50 GiB, ...", at most a few, the largest first, without this process; "" if none is known. */
void flim_nvml_others(const flim_nvml *nvml, char *text, size_t size);

#endif

/* A device that stands for a card which is not there: its programs are laid out as on the card, with the workspace of the
 * plans that cuDNN makes from the card's properties.  No call here reaches the CUDA runtime or a driver. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/precision.h"
#include "core/alloc.h"
#include "core/try.h"
#include "cuda/device/cuda_device.h"

static void close_card(flim_device *base)
{
    flim_cuda_device *device = flim_cuda_device_of(base);
    if (device->conv_store) {
        device->free_conv_store(device);
    }
    flim_cudnn_close(&device->cudnn);
    flim_free(device);
}

static flim_status get_card(const flim_device *device, flim_card *out, flim_error *err)
{
    (void)err;
    *out = ((const flim_cuda_device *)device)->card;
    return FLIM_OK;
}

static flim_status only_described(const flim_device *device, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DEVICE, "%s is only a description: it can be planned for, not used", device->info.name);
}

static flim_status host_alloc(flim_device *device, size_t bytes, void **out, bool *pinned, flim_error *err)
{
    (void)bytes, (void)pinned;
    *out = NULL;
    return only_described(device, err);
}

static void host_free(flim_device *device, void *memory)
{
    (void)device, (void)memory;
}

static flim_status memory_free(flim_device *device, int64_t *bytes, flim_error *err)
{
    (void)err;
    *bytes = device->info.memory_free;
    return FLIM_OK;
}

static const flim_device_ops card_ops = {
    .close = close_card, .host_alloc = host_alloc, .host_free = host_free, .memory_free = memory_free, .get_card = get_card};

/* The keys that cuDNN's heuristics and engines read; those without a field in flim_card are the same on all cards since
 * 7.5. */
static void properties_text(const flim_card *card, char *text, size_t size)
{
    snprintf(text, size,
             "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"deviceVer\": %d, "
             "\"driverVer\": 13000, \"multiProcessorCount\": %d, \"regsPerBlock\": 65536, \"smClockRateKHz\": %d, "
             "\"memClockRateKHz\": %d, \"l2CacheSize\": %" PRId64 ", \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
             "\"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": %d, \"maxRegistersPerSM\": %d, "
             "\"pciDeviceId\": 0, \"maxCtasPerSM\": %d, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": %d, "
             "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"totalGlobalMem\": %" PRId64 ", \"cudaDeviceId\": 0, "
             "\"deviceName\": \"%s\"}",
             card->capability * 10, card->processors, card->core_khz, card->memory_khz, card->l2_bytes, card->shared_bytes,
             card->capability >= 80 ? 1024 : 0, card->registers, card->blocks, card->threads, card->memory_bytes, card->name);
}

static flim_status open_cudnn(flim_cuda_device *device, flim_error *err)
{
    flim_device_info *info = &device->base.info;
    flim_error why = {0};
    char text[1024];
    info->assumes_workspace = flim_cudnn_open(&device->cudnn, &why) != FLIM_OK || device->cudnn.version < 91100;
    if (info->assumes_workspace) {
        snprintf(info->libraries, sizeof info->libraries, "cuDNN 9.11 or later is not installed here");
        return FLIM_OK;
    }
    properties_text(&device->card, text, sizeof text);
    snprintf(info->libraries, sizeof info->libraries, "cuDNN %zu.%zu.%zu", device->cudnn.version / 10000,
             device->cudnn.version / 100 % 100, device->cudnn.version % 100);
    return flim_cudnn_describe(&device->cudnn, device->card.name, text, err);
}

flim_status flim_cuda_check_capability(const char *name, int capability, flim_error *err)
{
    return capability >= FLIM_LEAST_CAPABILITY
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DEVICE,
                           "%s has compute capability %d.%d; %d.%d (T4) is the oldest that this program runs on: CUDA 13 and "
                           "cuDNN have no code for older cards; use --device cpu",
                           name, capability / 10, capability % 10, FLIM_LEAST_CAPABILITY / 10, FLIM_LEAST_CAPABILITY % 10);
}

flim_status flim_cuda_describe(const flim_card *card, flim_device **out, flim_error *err)
{
    *out = NULL;
    FLIM_TRY(flim_cuda_check_capability(card->name, card->capability, err));
    if (card->processors < 1 || card->memory_bytes < 1 || strpbrk(card->name, "\"\\")) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s: a card with its processors and memory is expected, found %d and %" PRId64 " bytes", card->name,
                         card->processors, card->memory_bytes);
    }
    flim_cuda_device *device = flim_alloc(1, sizeof *device, err);
    if (!device) {
        return FLIM_ERROR_MEMORY;
    }
    flim_device_info *info = &device->base.info;
    device->base.ops = &card_ops;
    device->card = *card;
    device->sm = card->capability;
    info->described = true;
    info->memory_bytes = info->memory_free = card->memory_bytes;
    info->own_memory = true;
    snprintf(info->kind, sizeof info->kind, "cuda");
    memcpy(info->name, card->name, sizeof info->name);
    snprintf(info->architecture, sizeof info->architecture, "sm_%d", card->capability);
    flim_set_precisions(info, info->kind, card->capability);
    flim_status status = open_cudnn(device, err);
    if (status != FLIM_OK) {
        close_card(&device->base);
        return status;
    }
    *out = &device->base;
    return FLIM_OK;
}

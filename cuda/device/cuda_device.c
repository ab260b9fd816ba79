/* Finding, opening and describing CUDA devices. */
#include "cuda/device/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/precision.h"
#include "cuda/device/check.h"
#include "core/alloc.h"
#include "core/try.h"

static void version_text(int version, char *text, size_t size)
{
    snprintf(text, size, "%d.%d", version / 1000, version % 1000 / 10);
}

/* One message for each way in which a machine can have no usable device. */
static flim_status explain_no_device(cudaError_t code, flim_error *err)
{
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetLastError();
    char driver_text[16], runtime_text[16];
    version_text(driver, driver_text, sizeof driver_text);
    version_text(runtime, runtime_text, sizeof runtime_text);
    if (driver == 0) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "no NVIDIA driver found (libcuda.so.1); install one, or use --device cpu");
    }
    if (code == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000) {
        return flim_fail(
            err, FLIM_ERROR_DEVICE,
            "the NVIDIA driver is too old: it supports CUDA %s, this program needs CUDA %s; update the driver, or use "
            "--device cpu",
            driver_text, runtime_text);
    }
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (code == cudaSuccess || code == cudaErrorNoDevice) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "no visible CUDA device: CUDA_VISIBLE_DEVICES is %s%s%s",
                         visible ? "'" : "not set", visible ? visible : " and the driver sees no card", visible ? "'" : "");
    }
    return flim_fail(err, FLIM_ERROR_DEVICE, "CUDA does not start: %s (%s); CUDA_VISIBLE_DEVICES is '%s', driver for CUDA %s",
                     cudaGetErrorString(code), cudaGetErrorName(code), visible ? visible : "(not set)", driver_text);
}

flim_status flim_cuda_device_count(int *count, flim_error *err)
{
    *count = 0;
    cudaError_t code = cudaGetDeviceCount(count);
    return code == cudaSuccess && *count > 0 ? FLIM_OK : explain_no_device(code, err);
}

flim_status flim_cuda_device_use(flim_cuda_device *device, flim_error *err)
{
    if (device->base.info.described) {
        return FLIM_OK;
    }
    return flim_cuda_check(cudaSetDevice(device->ordinal), "cudaSetDevice", err);
}

flim_status flim_cuda_malloc(flim_cuda_device *device, int64_t bytes, const char *what, void **out, flim_error *err)
{
    *out = NULL;
    cudaError_t code = cudaMalloc(out, (size_t)bytes);
    if (code != cudaErrorMemoryAllocation) {
        return flim_cuda_check(code, "cudaMalloc", err);
    }
    (void)cudaGetLastError();
    size_t free_bytes = 0, total = 0;
    (void)cudaMemGetInfo(&free_bytes, &total);
    char beside[440];
    flim_cuda_beside(device, beside, sizeof beside);
    return flim_fail(err, FLIM_ERROR_MEMORY, "%s: %s needs %.2f GiB, %.2f GiB of %.2f GiB are free%s", device->base.info.name,
                     what, (double)bytes / 1073741824.0, (double)free_bytes / 1073741824.0, (double)total / 1073741824.0,
                     beside);
}

static void close_device(flim_device *base)
{
    flim_cuda_device *device = flim_cuda_device_of(base);
    if (cudaSetDevice(device->ordinal) == cudaSuccess) {
        if (device->conv_store) {
            device->free_conv_store(device);
        }
        if (device->handle) {
            (void)device->cudnn.destroy(device->handle);
        }
        if (device->stream) {
            (void)cudaStreamDestroy(device->stream);
        }
        if (device->copy_stream) {
            (void)cudaStreamDestroy(device->copy_stream);
        }
    }
    flim_nvml_close(&device->nvml);
    flim_cudnn_close(&device->cudnn);
    flim_free(device);
}

static flim_status host_alloc(flim_device *base, size_t bytes, void **out, bool *pinned, flim_error *err)
{
    FLIM_TRY(flim_cuda_device_use(flim_cuda_device_of(base), err));
    bool locked = cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocPortable) == cudaSuccess;
    if (!locked) {
        (void)cudaGetLastError();
        *out = flim_alloc_aligned(bytes, 1, err);
    }
    if (pinned) {
        *pinned = locked;
    }
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* Whether cudaHostAlloc made it is asked of the runtime: the caller keeps only the pointer.  A card that has failed does not
 * answer; then the memory stays until the program ends, which is about to. */
static void host_free(flim_device *base, void *memory)
{
    (void)cudaSetDevice(flim_cuda_device_of(base)->ordinal);
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
        (void)cudaGetLastError();
    } else if (attributes.type == cudaMemoryTypeHost) {
        (void)cudaFreeHost(memory);
    } else {
        flim_free(memory);
    }
}

static flim_status memory_free(flim_device *base, int64_t *bytes, flim_error *err)
{
    size_t free_bytes = 0, total = 0;
    flim_status status = flim_cuda_device_use(flim_cuda_device_of(base), err);
    if (status == FLIM_OK) {
        status = flim_cuda_check(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo", err);
    }
    *bytes = (int64_t)free_bytes;
    return status;
}

static void get_status(const flim_device *base, flim_device_status *out)
{
    flim_nvml_status(&((const flim_cuda_device *)base)->nvml, out);
}

void flim_cuda_beside(const flim_cuda_device *device, char *text, size_t size)
{
    char others[400];
    flim_nvml_others(&device->nvml, others, sizeof others);
    snprintf(text, size, "%s%s", others[0] ? "; beside it on the card: " : "", others);
}

static flim_status get_card(const flim_device *device, flim_card *out, flim_error *err)
{
    (void)err;
    *out = ((const flim_cuda_device *)device)->card;
    return FLIM_OK;
}

static const flim_device_ops device_ops = {.close = close_device,
                                           .host_alloc = host_alloc,
                                           .host_free = host_free,
                                           .memory_free = memory_free,
                                           .status = get_status,
                                           .get_card = get_card};

/* FLIM_TEST_CARD=CAPABILITY,SHARED_BYTES,PROCESSORS: kernels are chosen and cut as for a card with less than this one has, so
 * that its cuts can be tested on any card. */
static void take_test_card(flim_cuda_device *device, struct cudaDeviceProp *prop)
{
#ifdef FLIM_TEST_HOOKS
    const char *text = getenv("FLIM_TEST_CARD");
    int capability = 0, shared = 0, processors = 0;
    if (text && sscanf(text, "%d,%d,%d", &capability, &shared, &processors) == 3) {
        device->sm = capability < device->sm ? capability : device->sm;
        prop->sharedMemPerBlockOptin =
            (size_t)shared < prop->sharedMemPerBlockOptin ? (size_t)shared : prop->sharedMemPerBlockOptin;
        prop->multiProcessorCount = processors < prop->multiProcessorCount ? processors : prop->multiProcessorCount;
    }
#else
    (void)device, (void)prop;
#endif
}

static flim_status describe(flim_cuda_device *device, flim_error *err)
{
    flim_device_info *info = &device->base.info;
    struct cudaDeviceProp prop;
    flim_status status = flim_cuda_check(cudaGetDeviceProperties(&prop, device->ordinal), "cudaGetDeviceProperties", err);
    if (status != FLIM_OK) {
        return status;
    }
    int runtime = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    char runtime_text[16];
    version_text(runtime, runtime_text, sizeof runtime_text);
    flim_driver_version(device->driver, sizeof device->driver);
    device->sm = 10 * prop.major + prop.minor;
    take_test_card(device, &prop);
    FLIM_TRY(flim_cuda_check_capability(prop.name, device->sm, err));
    snprintf(info->kind, sizeof info->kind, "cuda");
    info->index = device->ordinal;
    snprintf(info->name, sizeof info->name, "%.127s", prop.name);
    if (cudaDeviceGetPCIBusId(info->id, sizeof info->id, device->ordinal) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    const unsigned char *u = (const unsigned char *)prop.uuid.bytes;
    snprintf(info->uuid, sizeof info->uuid, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
             u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    snprintf(info->architecture, sizeof info->architecture, "sm_%d", device->sm);
    snprintf(info->libraries, sizeof info->libraries, "CUDA %s (driver %s) · cuDNN %zu.%zu.%zu", runtime_text, device->driver,
             device->cudnn.version / 10000, device->cudnn.version / 100 % 100, device->cudnn.version % 100);
    size_t free_bytes = 0, total = 0;
    status = flim_cuda_check(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo", err);
    info->memory_bytes = (int64_t)total;
    info->memory_free = (int64_t)free_bytes;
    info->own_memory = true;
    flim_set_precisions(info, info->kind, device->sm);
    device->card = (flim_card){.memory_bytes = info->memory_bytes,
                               .capability = device->sm,
                               .processors = prop.multiProcessorCount,
                               .shared_bytes = (int)prop.sharedMemPerBlockOptin,
                               .registers = prop.regsPerMultiprocessor,
                               .threads = prop.maxThreadsPerMultiProcessor,
                               .blocks = prop.maxBlocksPerMultiProcessor,
                               .l2_bytes = prop.l2CacheSize};
    memcpy(device->card.name, info->name, sizeof device->card.name);
    (void)cudaDeviceGetAttribute(&device->card.core_khz, cudaDevAttrClockRate, device->ordinal);
    (void)cudaDeviceGetAttribute(&device->card.memory_khz, cudaDevAttrMemoryClockRate, device->ordinal);
    return status;
}

flim_status flim_cuda_device_open(int index, flim_device **out, flim_error *err)
{
    *out = NULL;
    flim_status status = FLIM_OK;
    flim_cuda_device *device = flim_alloc(1, sizeof *device, err);
    if (!device) {
        return FLIM_ERROR_MEMORY;
    }
    device->base.ops = &device_ops;
    device->ordinal = index;
    FLIM_TRY_DONE(flim_cuda_device_use(device, err));
    FLIM_TRY_DONE(flim_cudnn_open(&device->cudnn, err));
    FLIM_TRY_DONE(describe(device, err));
    (void)flim_nvml_open(&device->nvml, device->base.info.id); /* absent is fine */
    FLIM_TRY_CUDA_DONE(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    FLIM_TRY_CUDA_DONE(cudaStreamCreateWithFlags(&device->copy_stream, cudaStreamNonBlocking));
    cudnnStatus_t made = device->cudnn.create(&device->handle);
    if (made == CUDNN_STATUS_SUCCESS) {
        made = device->cudnn.set_stream(device->handle, device->stream);
    }
    if (made != CUDNN_STATUS_SUCCESS) {
        status = flim_fail(err, FLIM_ERROR_DEVICE, "cuDNN does not start on %s: %s", device->base.info.name,
                           device->cudnn.status_text(made));
    }
done:
    if (status != FLIM_OK) {
        close_device(&device->base);
    } else {
        *out = &device->base;
    }
    return status;
}

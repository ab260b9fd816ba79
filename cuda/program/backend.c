/* The CUDA backend as src/backend finds it: devices of cuda/device, with the functions that need the floors above it. */
#include "core/try.h"
#include "cuda/device/check.h"
#include "cuda/program/compile.h"
#include "cuda/program/profile.h"
#include "cuda/program/schedule_build.h"

/* The code compiled in runs on this card. */
static flim_status check_code(const flim_cuda_device *device, flim_error *err)
{
    const cudaError_t code = flim_kernels_probe();
    if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction) {
        (void)cudaGetLastError();
        return flim_fail(err, FLIM_ERROR_DEVICE,
                         "%s has compute capability %d.%d, for which this program has no code; build with "
                         "-DFLIM_CUDA_ARCHITECTURES=%d, or use --device cpu",
                         device->base.info.name, device->sm / 10, device->sm % 10, device->sm);
    }
    return flim_cuda_check(code, "loading the kernels", err);
}

static flim_status largest_tensor(const flim_device *device, const flim_network *net, flim_precision precision,
                                  int64_t *elements, flim_error *err)
{
    return flim_schedule_predict_largest((const flim_cuda_device *)device, net, precision, elements, err);
}

static void complete(flim_cuda_device *device)
{
    device->ops = *device->base.ops;
    device->ops.compile = flim_cuda_compile;
    device->ops.largest_tensor = largest_tensor;
    device->ops.measure_limits = device->base.info.described ? NULL : flim_cuda_measure_limits;
    device->base.ops = &device->ops;
}

static flim_status open_device(int index, flim_device **out, flim_error *err)
{
    flim_device *device;
    *out = NULL;
    FLIM_TRY(flim_cuda_device_open(index, &device, err));
    if (check_code(flim_cuda_device_of(device), err) != FLIM_OK) {
        device->ops->close(device);
        return FLIM_ERROR_DEVICE;
    }
    complete(flim_cuda_device_of(device));
    *out = device;
    return FLIM_OK;
}

static flim_status describe(const flim_card *card, flim_device **out, flim_error *err)
{
    FLIM_TRY(flim_cuda_describe(card, out, err));
    complete(flim_cuda_device_of(*out));
    return FLIM_OK;
}

const flim_backend flim_backend_cuda = {"cuda", flim_cuda_device_count, open_device, describe};

/* The list of compiled-in backends, and the public functions of devices, which check and dispatch. */
#include "flim/device.h"

#include <math.h>
#include <string.h>

#include "core/try.h"
#include "backend/backend.h"
#include "backend/precision.h"

#if !defined(FLIM_HAVE_CPU) && !defined(FLIM_HAVE_CUDA)
#error "a build needs the CPU or the CUDA backend"
#endif

static flim_status open_cpu(flim_device **out, flim_error *err)
{
#ifdef FLIM_HAVE_CPU
    return flim_backend_cpu.open(0, out, err);
#else
    (void)out;
    return flim_fail(err, FLIM_ERROR_DEVICE, "this program was built without the CPU backend (FLIM_CPU=ON builds it in)");
#endif
}

static flim_status open_cuda(int index, flim_device **out, flim_error *err)
{
#ifdef FLIM_HAVE_CUDA
    int count = 0;
    FLIM_TRY(flim_backend_cuda.count(&count, err));
    if (index >= count) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "cuda:%d: there are %d visible CUDA devices, numbered from 0", index, count);
    }
    return flim_backend_cuda.open(index, out, err);
#else
    (void)index, (void)out;
    return flim_fail(err, FLIM_ERROR_DEVICE, "this program was built without CUDA (FLIM_CUDA=ON builds it in)");
#endif
}

flim_status flim_device_open(const char *spec, const flim_log *log, flim_device **out, flim_error *err)
{
    *out = NULL;
    flim_device_kind kind;
    int index;
    if (!flim_parse_device(spec, &kind, &index)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "device '%s': must be " FLIM_DEVICE_TEXTS, spec);
    }
    if (kind != FLIM_DEVICE_AUTO) {
        return kind == FLIM_DEVICE_CPU ? open_cpu(out, err) : open_cuda(index, out, err);
    }
    flim_error why = {0};
    if (open_cuda(0, out, &why) == FLIM_OK) {
        flim_log_line(log, FLIM_LOG_NOTE, "device auto: %s (first CUDA device)", (*out)->info.name);
        return FLIM_OK;
    }
    flim_status status = open_cpu(out, err);
    if (status != FLIM_OK) {
        return flim_fail(err, status, "no CUDA device (%s) and no CPU backend", why.text);
    }
    why.text[strcspn(why.text, ";")] = '\0'; /* what follows is advice to who asked for CUDA */
    flim_log_line(log, FLIM_LOG_NOTE, "%s; running on the CPU", why.text);
    return FLIM_OK;
}

flim_status flim_device_count(int *n, flim_error *err)
{
    *n = 0;
#ifdef FLIM_HAVE_CUDA
    return flim_backend_cuda.count(n, err);
#else
    return flim_fail(err, FLIM_ERROR_DEVICE, "this program was built without CUDA (FLIM_CUDA=ON builds it in)");
#endif
}

flim_status flim_device_describe(const flim_card *card, flim_device **out, flim_error *err)
{
    *out = NULL;
#ifdef FLIM_HAVE_CUDA
    return flim_backend_cuda.describe(card, out, err);
#else
    return flim_fail(err, FLIM_ERROR_DEVICE,
                     "a plan for %s needs a build with CUDA, which needs no card (FLIM_CUDA=ON builds it in)", card->name);
#endif
}

flim_status flim_device_get_card(const flim_device *device, flim_card *out, flim_error *err)
{
    *out = (flim_card){0};
    return device->ops->get_card ? device->ops->get_card(device, out, err)
                                 : flim_fail(err, FLIM_ERROR_USAGE, "%s is not a CUDA card", device->info.name);
}

flim_status flim_device_largest_tensor(const flim_device *device, const flim_network *net, flim_precision precision,
                                       int64_t *elements, flim_error *err)
{
    *elements = flim_network_largest_tensor(net);
    return device->ops->largest_tensor ? device->ops->largest_tensor(device, net, precision, elements, err) : FLIM_OK;
}

void flim_device_close(flim_device *device)
{
    if (device) {
        device->ops->close(device);
    }
}

const flim_device_info *flim_device_get_info(const flim_device *device)
{
    return &device->info;
}

flim_status flim_device_host_alloc(flim_device *device, size_t bytes, void **out, bool *pinned, flim_error *err)
{
    return device->ops->host_alloc(device, bytes, out, pinned, err);
}

void flim_device_host_free(flim_device *device, void *memory)
{
    if (memory) {
        device->ops->host_free(device, memory);
    }
}

flim_status flim_device_check_precision(const flim_device *device, flim_precision precision, flim_error *err)
{
    if (precision == FLIM_PRECISION_AUTO || !(device->info.precisions & 1u << precision)) {
        char there[48];
        flim_precision_list(device->info.precisions, FLIM_PRECISION_AUTO, there);
        return flim_fail(err, FLIM_ERROR_USAGE, "precision %s: %s cannot compute in it; it has %s",
                         flim_precision_name(precision), device->info.name, there);
    }
    return FLIM_OK;
}

void flim_device_get_status(const flim_device *device, flim_device_status *out)
{
    *out = (flim_device_status){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    if (device->ops->status) {
        device->ops->status(device, out);
    }
}

flim_status flim_device_memory_free(flim_device *device, int64_t *bytes, flim_error *err)
{
    *bytes = 0;
    return device->ops->memory_free(device, bytes, err);
}

flim_status flim_device_measure_limits(flim_device *device, flim_device_limits *out, flim_error *err)
{
    *out = (flim_device_limits){0};
    return device->ops->measure_limits ? device->ops->measure_limits(device, out, err)
                                       : flim_fail(err, FLIM_ERROR_USAGE, "limits are measured on CUDA devices only");
}

#include "cuda/device/cudnn_library.h"

#include <stdio.h>
#include <string.h>

#include "core/dl.h"

flim_status flim_cudnn_open(flim_cudnn *cudnn, flim_error *err)
{
    *cudnn = (flim_cudnn){0};
    void *lib = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror();
        return flim_fail(
            err, FLIM_ERROR_DEVICE,
            "cuDNN 9 could not be loaded: %s; install cuDNN 9.16 or later, or put its folder into LD_LIBRARY_PATH",
            why ? why : "libcudnn.so.9 not found");
    }
    cudnn->library = lib;
    int found = flim_dl_find(lib, "cudnnGetVersion", &cudnn->get_version) &&
                flim_dl_find(lib, "cudnnGetErrorString", &cudnn->status_text) &&
                flim_dl_find(lib, "cudnnGetLastErrorString", &cudnn->last_error) &&
                flim_dl_find(lib, "cudnnCreate", &cudnn->create) && flim_dl_find(lib, "cudnnDestroy", &cudnn->destroy) &&
                flim_dl_find(lib, "cudnnSetStream", &cudnn->set_stream) &&
                flim_dl_find(lib, "cudnnBackendCreateDescriptor", &cudnn->descriptor_create) &&
                flim_dl_find(lib, "cudnnBackendDestroyDescriptor", &cudnn->descriptor_destroy) &&
                flim_dl_find(lib, "cudnnBackendFinalize", &cudnn->finalize) &&
                flim_dl_find(lib, "cudnnBackendSetAttribute", &cudnn->set) &&
                flim_dl_find(lib, "cudnnBackendGetAttribute", &cudnn->get) &&
                flim_dl_find(lib, "cudnnBackendExecute", &cudnn->execute);
    if (!found) {
        flim_cudnn_close(cudnn);
        return flim_fail(err, FLIM_ERROR_DEVICE, "libcudnn.so.9 lacks the graph API; install cuDNN 9.16 or later");
    }
    cudnn->version = cudnn->get_version();
    return FLIM_OK;
}

flim_status flim_cudnn_describe(flim_cudnn *cudnn, const char *name, const char *json, flim_error *err)
{
    cudnnStatus_t code = cudnn->descriptor_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &cudnn->card);
    if (code == CUDNN_STATUS_SUCCESS) {
        code =
            cudnn->set(cudnn->card, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json), json);
    }
    if (code == CUDNN_STATUS_SUCCESS) {
        code = cudnn->finalize(cudnn->card);
    }
    return code == CUDNN_STATUS_SUCCESS
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DEVICE, "cuDNN %zu does not accept the properties of %s: %s", cudnn->version, name,
                           cudnn->status_text(code));
}

void flim_cudnn_close(flim_cudnn *cudnn)
{
    if (cudnn->card) {
        (void)cudnn->descriptor_destroy(cudnn->card);
    }
    if (cudnn->library) {
        dlclose(cudnn->library);
    }
    *cudnn = (flim_cudnn){0};
}

static int version_from_nvml(char *text, size_t size)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        return 0;
    }
    int (*init)(void), (*version)(char *, unsigned), (*shutdown)(void);
    int known = flim_dl_find(lib, "nvmlInit_v2", &init) && flim_dl_find(lib, "nvmlSystemGetDriverVersion", &version) &&
                flim_dl_find(lib, "nvmlShutdown", &shutdown) && init() == 0;
    if (known) {
        known = version(text, (unsigned)size) == 0;
        shutdown();
    }
    dlclose(lib);
    return known;
}

void flim_driver_version(char *text, size_t size)
{
    if (version_from_nvml(text, size)) {
        return;
    }
    snprintf(text, size, "unknown");
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    if (file) {
        char line[64];
        if (fgets(line, sizeof line, file)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(text, size, "%s", line);
        }
        fclose(file);
    }
}

#include "cuda/device/nccl_library.h"

#include "core/dl.h"

flim_status flim_nccl_open(flim_nccl *out, flim_error *err)
{
    *out = (flim_nccl){0};
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror();
        return flim_fail(
            err, FLIM_ERROR_DEVICE,
            "NCCL, which sums gradients over cards, could not be loaded: %s; install NCCL 2, or put its folder into "
            "LD_LIBRARY_PATH",
            why ? why : "libnccl.so.2 not found");
    }
    out->library = lib;
    const int found =
        flim_dl_find(lib, "ncclGetVersion", &out->get_version) && flim_dl_find(lib, "ncclGetUniqueId", &out->get_id) &&
        flim_dl_find(lib, "ncclCommInitRank", &out->init_rank) && flim_dl_find(lib, "ncclCommDestroy", &out->destroy) &&
        flim_dl_find(lib, "ncclCommAbort", &out->abort_comm) && flim_dl_find(lib, "ncclGetErrorString", &out->error_text) &&
        flim_dl_find(lib, "ncclGetLastError", &out->last_error) && flim_dl_find(lib, "ncclAllReduce", &out->all_reduce) &&
        flim_dl_find(lib, "ncclAllGather", &out->all_gather) && flim_dl_find(lib, "ncclBroadcast", &out->broadcast);
    if (!found || out->get_version(&out->version) != FLIM_NCCL_SUCCESS) {
        flim_nccl_close(out);
        return flim_fail(err, FLIM_ERROR_DEVICE, "libnccl.so.2 lacks a function of NCCL 2.13; install a later one");
    }
    return FLIM_OK;
}

void flim_nccl_close(flim_nccl *nccl)
{
    if (nccl->library) {
        dlclose(nccl->library);
    }
    *nccl = (flim_nccl){0};
}

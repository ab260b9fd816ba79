#include "cuda/program/pieces.h"

#include <string.h>

#include "cuda/device/check.h"
#include "core/alloc.h"

void flim_pieces_free(flim_pieces *p)
{
    for (int i = 0; i < p->n; i++) {
        (void)cudaFree(p->at[i]);
    }
    p->n = 0;
}

flim_status flim_pieces_take(flim_pieces *p, int64_t bytes, void *out, flim_error *err)
{
    void *at = NULL;
    if (p->n == FLIM_MAX_PIECES) {
        return flim_fail(err, FLIM_ERROR, "internal: too many pieces of memory");
    }
    FLIM_TRY(flim_cuda_malloc(p->device, bytes > 0 ? bytes : 256, "a layer", &at, err));
    p->at[p->n++] = at;
    memcpy(out, &at, sizeof at);
    return flim_cuda_check(cudaMemsetAsync(at, 0xff, (size_t)(bytes > 0 ? bytes : 256), p->device->stream), "cudaMemsetAsync",
                           err);
}

flim_status flim_pieces_copy(flim_pieces *p, const void *host, int64_t bytes, void *out, flim_error *err)
{
    flim_status status = flim_pieces_take(p, bytes, out, err);
    if (status != FLIM_OK || !host) {
        return status;
    }
    void *at;
    memcpy(&at, out, sizeof at);
    return flim_cuda_check(cudaMemcpyAsync(at, host, (size_t)bytes, cudaMemcpyHostToDevice, p->device->stream),
                           "copying to the device", err);
}

flim_status flim_pieces_fetch(flim_pieces *p, void *host, const void *device, int64_t bytes, flim_error *err)
{
    return !host ? FLIM_OK
                 : flim_cuda_check(cudaMemcpyAsync(host, device, (size_t)bytes, cudaMemcpyDeviceToHost, p->device->stream),
                                   "copying from the device", err);
}

flim_status flim_pieces_dropout(flim_pieces *p, const flim_launch *launch, const flim_cell_id *id, int64_t n, float rate,
                                uint32_t unit, int channels, int c, float **out, flim_error *err)
{
    flim_status status;
    flim_cell_id *id_there = NULL;
    float *rate_there = NULL;
    FLIM_TRY_DONE(flim_pieces_copy(p, id, n * (int64_t)sizeof *id, &id_there, err));
    FLIM_TRY_DONE(flim_pieces_copy(p, &rate, sizeof rate, &rate_there, err));
    FLIM_TRY_DONE(flim_pieces_take(p, n * c * (int64_t)sizeof(float), out, err));
    flim_dropout_table table = {.n = 1};
    table.item[0].unit = unit;
    table.item[0].channels = channels;
    table.item[0].c = c;
    table.item[0].multiplier = *out;
    FLIM_TRY_CUDA_DONE(flim_k_dropout(launch, &table, id_there, n, rate_there));
    FLIM_TRY_CUDA_DONE(cudaStreamSynchronize(launch->stream)); /* rate is on this function's stack */
done:
    return status;
}

#include "cuda/program/transfer.h"

#include <string.h>

#include "cuda/device/check.h"
#include "cuda/program/layout.h"

static size_t logit_bytes(const flim_cuda_program *p)
{
    return (size_t)(p->predict.batch * flim_network_outputs(&p->base.net)) * sizeof(float);
}

int64_t flim_transfer_pinned_bytes(const flim_cuda_program *p)
{
    flim_call_block block;
    return FLIM_SLOTS * (flim_call_block_at(&block, NULL, &p->base.net, p->batch) + (int64_t)logit_bytes(p));
}

flim_status flim_transfer_make(flim_cuda_program *p, flim_error *err)
{
    flim_call_block block;
    const size_t slot_bytes = (size_t)flim_call_block_at(&block, NULL, &p->base.net, p->batch);
    for (int i = 0; i < FLIM_STAGES; i++) {
        FLIM_TRY_CUDA(cudaEventCreateWithFlags(&p->stage[i].copied, cudaEventDisableTiming));
        FLIM_TRY_CUDA(cudaEventCreateWithFlags(&p->stage[i].free, cudaEventDisableTiming));
    }
    for (int i = 0; i < FLIM_SLOTS; i++) {
        FLIM_TRY_CUDA(cudaHostAlloc((void **)&p->slot[i].block, slot_bytes, cudaHostAllocDefault));
        FLIM_TRY_CUDA(cudaEventCreateWithFlags(&p->slot[i].done, cudaEventDisableTiming));
        if (logit_bytes(p) > 0) {
            FLIM_TRY_CUDA(cudaHostAlloc((void **)&p->logits[i].pinned, logit_bytes(p), cudaHostAllocDefault));
            FLIM_TRY_CUDA(cudaEventCreateWithFlags(&p->logits[i].done, cudaEventDisableTiming));
        }
    }
    return FLIM_OK;
}

static void free_event(cudaEvent_t *event)
{
    if (*event) {
        (void)cudaEventDestroy(*event);
        *event = NULL;
    }
}

void flim_transfer_free(flim_cuda_program *p)
{
    for (int i = 0; i < FLIM_STAGES; i++) {
        free_event(&p->stage[i].copied);
        free_event(&p->stage[i].free);
    }
    for (int i = 0; i < FLIM_SLOTS; i++) {
        (void)cudaFreeHost(p->slot[i].block);
        (void)cudaFreeHost(p->logits[i].pinned);
        p->slot[i].block = NULL;
        p->logits[i].pinned = NULL;
        free_event(&p->slot[i].done);
        free_event(&p->logits[i].done);
    }
}

/* Voxels and masks of a batch into a stage, beside the step before. */
static flim_status copy_batch(flim_cuda_program *p, const flim_stage *stage, const flim_batch *batch, int64_t voxels,
                              int64_t pixels, flim_error *err)
{
    cudaStream_t copy = p->device->copy_stream;
    FLIM_TRY_CUDA(cudaStreamWaitEvent(copy, stage->free, 0)); /* an event never recorded does not wait */
    FLIM_TRY_CUDA(cudaMemcpyAsync(stage->signal, batch->signal, (size_t)(batch->n * voxels) * sizeof(float),
                                  cudaMemcpyHostToDevice, copy));
    FLIM_TRY_CUDA(cudaMemcpyAsync(stage->mask, batch->mask, (size_t)(batch->n * pixels), cudaMemcpyHostToDevice, copy));
    FLIM_TRY_CUDA(cudaEventRecord(stage->copied, copy));
    return FLIM_OK;
}

flim_status flim_transfer_in(flim_cuda_program *p, flim_schedule *schedule, const flim_batch *batch,
                             const flim_device_step *step, flim_error *err)
{
    const flim_network *net = &p->base.net;
    const int64_t n = batch->n, pixels = (int64_t)net->in[1] * net->in[2], voxels = pixels * net->in[0];
    flim_stage *stage = &p->stage[p->calls % FLIM_STAGES];
    flim_slot *slot = &p->slot[p->calls % FLIM_SLOTS];
    cudaStream_t compute = p->launch.stream;
    flim_transform_table transform;
    FLIM_TRY(flim_transform_compile(&batch->transform, net->in[0], net->in[1], net->in[2], &transform, err));
    if (!batch->device_cached && n > 0) {
        FLIM_TRY(copy_batch(p, stage, batch, voxels, pixels, err));
    }
    FLIM_TRY_CUDA(cudaEventSynchronize(slot->done)); /* four calls back: long done */
    flim_call_block block;
    (void)flim_call_block_at(&block, slot->block, net, p->batch);
    *block.step = *step;
    const bool hides = net->channels == 3;
    for (int64_t i = 0; (schedule->train || batch->device_cached || hides) && i < n; i++) {
        block.id[i] = batch->id[i];
        block.label[i] = batch->label[i];
        block.weight[i] = batch->weight[i];
    }
    if (schedule->train && block.target && batch->target) {
        memcpy(block.target, batch->target, (size_t)(n * net->classes) * sizeof *block.target);
    }
    FLIM_TRY_CUDA(cudaMemcpyAsync(p->call.step, slot->block, (size_t)block.bytes, cudaMemcpyHostToDevice, compute));
    if (batch->device_cached) {
        const flim_stage *other = &p->stage[(p->calls + 1) % FLIM_STAGES]; /* free once its batch, the one before, was read */
        FLIM_TRY(flim_cuda_cache_gather(&p->cache, &p->launch, &transform, batch, p->call.id, (int)(p->calls % FLIM_SLOTS),
                                        stage->signal, stage->mask, other->signal, err));
        FLIM_TRY_CUDA(cudaEventRecord(other->free, compute));
    } else {
        FLIM_TRY_CUDA(cudaStreamWaitEvent(compute, stage->copied, 0));
    }
    FLIM_TRY_CUDA(cudaEventRecord(slot->done, compute)); /* its block and transforms are on the device */
    if (n == 0) { /* a rank without a batch */
        return FLIM_OK;
    }
    char *input = flim_schedule_at(schedule, p->arena, schedule->input);
    if (hides) {
        FLIM_TRY_CUDA(flim_k_hide(&p->launch, stage->signal, stage->mask, p->call.id, &p->call.step->hide_share, n,
                                  net->in[0], net->in[1], net->in[2], flim_schedule_at(schedule, p->arena, schedule->voxel),
                                  input));
    } else if (schedule->mask_offset > 0) {
        FLIM_TRY_CUDA(flim_k_input_plain(&p->launch, stage->signal, stage->mask, n * voxels, n * pixels, input,
                                         (uint8_t *)input + schedule->mask_offset));
    } else {
        FLIM_TRY_CUDA(flim_k_input(&p->launch, stage->signal, stage->mask, n, net->in[0], (int)pixels,
                                   flim_storage_channels(net->channels), input));
    }
    FLIM_TRY_CUDA(cudaEventRecord(stage->free, compute));
    return FLIM_OK;
}

flim_status flim_transfer_hand_out(flim_pending_logits *l, flim_error *err)
{
    if (l->count == 0) {
        return FLIM_OK;
    }
    const size_t bytes = (size_t)l->count * sizeof(float);
    l->count = 0;
    FLIM_TRY(flim_cuda_check(cudaEventSynchronize(l->done), "predicting", err));
    memcpy(l->to, l->pinned, bytes);
    return FLIM_OK;
}

flim_status flim_transfer_out(flim_cuda_program *p, int64_t n, float *logits, flim_error *err)
{
    flim_pending_logits *l = &p->logits[p->calls % FLIM_SLOTS];
    const flim_network *net = &p->base.net;
    float *to = l->pinned;
    if (net->n_heads == 0) {
        return FLIM_OK;
    }
    for (int k = 0; k < net->n_heads; k++) {
        const bool dense = net->head[k].kind == FLIM_HEAD_DENSE;
        const int64_t count = n * flim_head_outputs(net, k);
        FLIM_TRY_CUDA(cudaMemcpyAsync(to, dense ? p->dense[k].prediction : p->head[k].logits, (size_t)count * sizeof *to,
                                      cudaMemcpyDeviceToHost, p->launch.stream));
        to += count;
    }
    FLIM_TRY_CUDA(cudaEventRecord(l->done, p->launch.stream));
    l->to = logits;
    l->count = to - l->pinned;
    return FLIM_OK;
}

flim_status flim_transfer_end_call(flim_cuda_program *p, flim_error *err)
{
    if (p->calls > 0) {
        FLIM_TRY(
            flim_cuda_check(cudaEventSynchronize(p->stage[(p->calls - 1) % FLIM_STAGES].copied), "copying a batch", err));
    }
    p->calls++;
    return FLIM_OK;
}

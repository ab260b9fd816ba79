#include "cuda/program/execute.h"

#include "cuda/device/check.h"
#include "cuda/program/graph.h"
#include "cuda/program/launch.h"
#include "cuda/program/transfer.h"

flim_status flim_cuda_train(flim_program *base, const flim_batch *batch, const flim_step *step, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    const flim_device_step device_step = {.divisor = step->divisor,
                                          .momentum = FLIM_BN_MOMENTUM_EXACT,
                                          .learning_rate = step->learning_rate,
                                          .weight_decay = step->weight_decay,
                                          .beta1 = step->beta1,
                                          .beta2 = step->beta2,
                                          .epsilon = step->epsilon,
                                          .clip = step->clip,
                                          .label_smoothing = step->label_smoothing,
                                          .dropout = step->dropout,
                                          .block_dropout = step->block_dropout,
                                          .focal_gamma = step->focal_gamma,
                                          .average_decay = step->average_decay,
                                          .encoder_hold = step->encoder_hold,
                                          .hide_share = step->hide_share};
    FLIM_TRY(flim_cuda_device_use(p->device, err));
    FLIM_TRY(flim_transfer_in(p, &p->train, batch, &device_step, err));
    p->ranks.single = step->single;
    const bool unusual = p->ranks.on && (batch->n == 0 || step->single > 0); /* the end of an epoch */
    FLIM_TRY(unusual ? flim_cuda_run_schedule(p, &p->train, batch->n, step->first, step->last, err)
                     : flim_graph_run(p, &p->train, batch->n, step->first, step->last, err));
    FLIM_TRY(flim_transfer_end_call(p, err));
    return FLIM_OK;
}

flim_status flim_cuda_recalibrate(flim_program *base, const flim_batch *batch, double share, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    const flim_device_step step = {.divisor = 1.0, .momentum = share};
    FLIM_TRY(flim_cuda_device_use(p->device, err));
    FLIM_TRY(flim_transfer_in(p, &p->train, batch, &step, err));
    FLIM_TRY(flim_cuda_run_statistics(p, batch->n, err));
    return flim_transfer_end_call(p, err);
}

flim_status flim_cuda_exchange_average(flim_program *base, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    const int64_t statistics = base->net.statistics;
    FLIM_TRY(flim_cuda_device_use(p->device, err));
    FLIM_TRY_CUDA(flim_k_exchange(&p->launch, p->parameters, p->average, base->net.parameters));
    FLIM_TRY_CUDA(flim_k_exchange(&p->launch, p->statistics, p->average_statistics, statistics));
    FLIM_TRY_CUDA(cudaMemcpyAsync(p->pending, p->statistics, (size_t)statistics * sizeof(float), cudaMemcpyDeviceToDevice,
                                  p->launch.stream));
    return flim_cuda_store_weights(p, NULL, err);
}

flim_status flim_cuda_predict(flim_program *base, const flim_batch *batch, float *logits, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    const flim_device_step none = {.divisor = 1.0};
    FLIM_TRY(flim_cuda_device_use(p->device, err));
    FLIM_TRY(flim_transfer_hand_out(&p->logits[p->calls % FLIM_SLOTS], err));
    FLIM_TRY(flim_transfer_in(p, &p->predict, batch, &none, err));
    FLIM_TRY(flim_graph_run(p, &p->predict, batch->n, false, false, err));
    FLIM_TRY(flim_transfer_out(p, batch->n, logits, err));
    FLIM_TRY(flim_transfer_end_call(p, err));
    return FLIM_OK;
}

flim_status flim_cuda_evaluate(flim_program *base, const flim_batch *batch, const flim_step *step, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    const flim_device_step device_step = {.divisor = 1.0, .hide_share = step->hide_share};
    FLIM_TRY(flim_cuda_device_use(p->device, err));
    FLIM_TRY(flim_transfer_in(p, &p->predict, batch, &device_step, err));
    FLIM_TRY(flim_graph_run(p, &p->predict, batch->n, false, false, err));
    return flim_transfer_end_call(p, err);
}

flim_status flim_cuda_finish(flim_cuda_program *p, flim_error *err)
{
    FLIM_TRY(flim_cuda_device_use(p->device, err));
    FLIM_TRY_CUDA(cudaStreamSynchronize(p->device->copy_stream));
    FLIM_TRY_CUDA(cudaStreamSynchronize(p->launch.stream));
    for (int i = 0; i < FLIM_SLOTS; i++) {
        FLIM_TRY(flim_transfer_hand_out(&p->logits[i], err));
    }
    return FLIM_OK;
}

/* failed_card: a card that fails in the middle of training.  Every call must then say so, and all clean-up must still work:
 * an abort would take the place of the message.  Exit code 0 where it does, 77 where there is no card. */
#include <stdio.h>
#include <stdlib.h>

#include "flim/device.h"

void fail_card(void); /* fail_card.cu */

enum { BATCH = 2, T = 8, SIDE = 3, VOXELS = T * SIDE * SIDE };

static int expect(flim_status found, flim_status wanted, const char *what, const flim_error *err)
{
    if (found == wanted) {
        return 0;
    }
    fprintf(stderr, "failed_card: %s gives %d, expected is %d: %s\n", what, (int)found, (int)wanted, err->text);
    return 1;
}

int main(void)
{
    flim_error err = {0};
    flim_device *device = NULL;
    flim_program *program = NULL;
    flim_network net;
    int wrong = 0;
    if (flim_device_open("cuda", NULL, &device, &err) != FLIM_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    void *signal = NULL;
    bool pinned = false;
    uint8_t mask[BATCH * SIDE * SIDE] = {1, 1, 1};
    int32_t label[BATCH] = {0, 1};
    float weight[BATCH] = {1, 1}, logits[BATCH];
    flim_cell_id id[BATCH] = {{0}};
    wrong += expect(flim_device_host_alloc(device, BATCH * VOXELS * sizeof(float), &signal, &pinned, &err), FLIM_OK,
                    "host_alloc", &err);
    wrong += expect(flim_network_build(&net, 8, 2, T, SIDE, SIDE, &err), FLIM_OK, "build", &err);
    const flim_program_options options = {.precision = FLIM_PRECISION_FP32, .train_batch = BATCH, .eval_batch = BATCH};
    wrong += expect(flim_program_compile(device, &net, &options, &program, &err), FLIM_OK, "compile", &err);
    if (wrong) {
        return 1;
    }
    for (int i = 0; i < BATCH * VOXELS; i++) {
        ((float *)signal)[i] = (float)(i % 7) / 7;
    }
    float *parameters = calloc((size_t)net.parameters, sizeof *parameters);
    float *statistics = calloc((size_t)net.statistics, sizeof *statistics);
    const flim_batch batch = {.n = BATCH,
                              .capacity = BATCH,
                              .t = T,
                              .h = SIDE,
                              .w = SIDE,
                              .signal = signal,
                              .mask = mask,
                              .label = label,
                              .weight = weight,
                              .id = id};
    const flim_step step = {.first = true,
                            .last = true,
                            .divisor = BATCH,
                            .learning_rate = 1e-3f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .epsilon = 1e-8f};
    if (!parameters || !statistics) {
        return 1;
    }
    wrong += expect(flim_program_allocate(program, &err), FLIM_OK, "allocate", &err);
    wrong += expect(flim_program_write(program, FLIM_STATE_MOMENT1, parameters, &err), FLIM_OK, "write", &err); /* zeros */
    wrong += expect(flim_program_write(program, FLIM_STATE_MOMENT2, parameters, &err), FLIM_OK, "write", &err);
    flim_network_init(&net, 1, 0, parameters, statistics);
    wrong += expect(flim_program_write(program, FLIM_STATE_PARAMETERS, parameters, &err), FLIM_OK, "write", &err);
    wrong += expect(flim_program_write(program, FLIM_STATE_STATISTICS, statistics, &err), FLIM_OK, "write", &err);
    wrong += expect(flim_program_train(program, &batch, &step, &err), FLIM_OK, "train", &err);
    wrong += expect(flim_program_predict(program, &batch, logits, &err), FLIM_OK, "predict", &err);
    wrong += expect(flim_program_wait(program, &err), FLIM_OK, "wait", &err);
    fail_card();
    wrong += expect(flim_program_train(program, &batch, &step, &err), FLIM_ERROR_DEVICE, "train on a failed card", &err);
    wrong += expect(flim_program_predict(program, &batch, logits, &err), FLIM_ERROR_DEVICE, "predict on a failed card", &err);
    wrong += expect(flim_program_wait(program, &err), FLIM_ERROR_DEVICE, "wait on a failed card", &err);
    flim_program_destroy(program);
    flim_device_host_free(device, signal);
    flim_device_close(device);
    free(parameters);
    free(statistics);
    printf("%s memory; the last call says: %s\n", pinned ? "pinned" : "pageable", err.text);
    return wrong > 0;
}

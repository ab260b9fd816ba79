#include "reference/target.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ref_target_run(ref_target_main *group)
{
    const char *spec = getenv("FLIM_TEST_DEVICE"), *only = getenv("FLIM_TEST_PRECISION");
    ref_target target = {.spec = spec && spec[0] ? spec : "cpu"};
    flim_error err = {0};
    flim_status status = flim_device_open(target.spec, NULL, &target.device, &err);
    if (status == FLIM_ERROR_DEVICE) {
        printf("skipped: no device '%s': %s\n", target.spec, err.text);
        return 77;
    }
    if (status != FLIM_OK) {
        fprintf(stderr, "device '%s': %s\n", target.spec, err.text);
        return 1;
    }
    const flim_device_info *info = flim_device_get_info(target.device);
    int failures = 0, ran = 0;
    for (int p = FLIM_PRECISION_FP32; p <= FLIM_PRECISION_FP16; p++) {
        target.precision = (flim_precision)p;
        if (info->precisions & 1u << p && (!only || strcmp(only, flim_precision_name(target.precision)) == 0)) {
            printf("---- %s (%s), %s\n", target.spec, info->name, flim_precision_name(target.precision));
            fflush(stdout);
            failures += group(&target);
            ran++;
        }
    }
    flim_device_close(target.device);
    if (ran == 0) {
        printf("skipped: %s cannot compute in %s\n", target.spec, only ? only : "any precision");
        return 77;
    }
    return failures;
}

double ref_layer_tolerance(flim_precision precision)
{
    switch (precision) {
    case FLIM_PRECISION_TF32: return 2e-3;
    case FLIM_PRECISION_FP16: return 5e-3;
    case FLIM_PRECISION_BF16: return 2e-2;
    case FLIM_PRECISION_AUTO:
    case FLIM_PRECISION_AMP:
    case FLIM_PRECISION_FP32: break;
    }
    return 1e-5;
}

double ref_network_tolerance(flim_precision precision)
{
    switch (precision) {
    case FLIM_PRECISION_TF32:
    case FLIM_PRECISION_FP16: return 8e-2; /* PyTorch's own error in TF32 at base on an H100 */
    case FLIM_PRECISION_BF16: return 2.8e-1;
    case FLIM_PRECISION_AUTO:
    case FLIM_PRECISION_AMP:
    case FLIM_PRECISION_FP32: break;
    }
    return 1.5e-3; /* PyTorch's own error in fp32 at base on an H100 */
}

double ref_distance(const float *out, const double *reference, int64_t count)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)out[i] - reference[i];
        difference += d * d;
        size += reference[i] * reference[i];
    }
    if (isnan(difference)) {
        return INFINITY;
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

flim_program *ref_program_create_with(const ref_target *target, const flim_network *net, flim_program_options options,
                                      const float *parameters, const float *statistics)
{
    const flim_counters counters = {.loss_scale = target->precision == FLIM_PRECISION_FP16 ? 1024 : 1};
    flim_error err = {0};
    flim_program *program = NULL;
    options.precision = target->precision;
    float *zeros = calloc((size_t)net->parameters, sizeof *zeros); /* P */
    if (!zeros) {
        abort();
    }
    if (flim_program_compile(target->device, net, &options, &program, &err) != FLIM_OK ||
        flim_program_allocate(program, &err) != FLIM_OK ||
        flim_program_write(program, FLIM_STATE_PARAMETERS, parameters, &err) != FLIM_OK ||
        flim_program_write(program, FLIM_STATE_STATISTICS, statistics, &err) != FLIM_OK ||
        (options.average && (flim_program_write(program, FLIM_STATE_AVERAGE_PARAMETERS, parameters, &err) != FLIM_OK ||
                             flim_program_write(program, FLIM_STATE_AVERAGE_STATISTICS, statistics, &err) != FLIM_OK)) ||
        (options.train_batch > 0 && (flim_program_write(program, FLIM_STATE_MOMENT1, zeros, &err) != FLIM_OK ||
                                     flim_program_write(program, FLIM_STATE_MOMENT2, zeros, &err) != FLIM_OK ||
                                     flim_program_set_counters(program, &counters, &err) != FLIM_OK))) {
        fprintf(stderr, "program on %s, %s: %s\n", target->spec, flim_precision_name(target->precision), err.text);
        flim_program_destroy(program);
        program = NULL;
    }
    free(zeros);
    return program;
}

flim_program *ref_program_create(const ref_target *target, const flim_network *net, int64_t train_batch, int64_t eval_batch,
                                 const float *parameters, const float *statistics)
{
    return ref_program_create_with(target, net, (flim_program_options){.train_batch = train_batch, .eval_batch = eval_batch},
                                   parameters, statistics);
}

flim_program *ref_program_create_inspected(const ref_target *target, const flim_network *net, int64_t train_batch,
                                           int64_t eval_batch, const float *parameters, const float *statistics)
{
    return ref_program_create_with(
        target, net, (flim_program_options){.train_batch = train_batch, .eval_batch = eval_batch, .inspect = true},
        parameters, statistics);
}

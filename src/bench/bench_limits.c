/* flim_bench limits: what the card can do at most, as measured. */
#include <stddef.h>

#include "bench/bench_commands.h"
#include "bench/bench_output.h"
#include "core/try.h"
#include "flim/device.h"
#include "flim/flags.h"

typedef struct limits_options {
    char *device, *json;
} limits_options;

#define AT(member) offsetof(limits_options, member)
static const flim_flag_row rows[] = {
    {"What runs", "device", FLIM_VALUE_TEXT, AT(device), "cuda", "D", .help = "cuda, cuda:N"},
    {"Output", "json", FLIM_VALUE_TEXT, AT(json), "", "FILE", .help = "the printed figures as JSON", .writes = true},
};
static const flim_flag_table table = {"flim_bench limits",
                                      "flim_bench limits [flags]",
                                      "Measures the device's ceilings: copies and matrix products.",
                                      rows,
                                      sizeof rows / sizeof rows[0],
                                      .operand = NULL};

static flim_status write_json(const limits_options *o, const flim_device_info *info, const flim_device_limits *limits,
                              flim_error *err)
{
    flim_json *json = flim_json_object(), *matrix = flim_json_object();
    flim_json_set_string(json, "device_name", info->name);
    flim_json_set_number(json, "copy_bytes_per_s", limits->copy);
    flim_json_set_number(json, "upload_bytes_per_s", limits->upload);
    for (int p = FLIM_PRECISION_FP32; p <= FLIM_PRECISION_FP16; p++) {
        flim_json_set_number(matrix, flim_precision_name((flim_precision)p), limits->matrix[p]);
    }
    flim_json_set(json, "matrix_operations_per_s", matrix);
    flim_status status = flim_bench_write_json(json, o->json, "{\n  \"device_name\": ", err);
    flim_json_free(json);
    return status;
}

static flim_status measure(void *options, FILE *out, const flim_log *log, flim_error *err)
{
    const limits_options *o = options;
    flim_device *device = NULL;
    flim_device_limits limits;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_device_open(o->device, log, &device, err));
    FLIM_TRY_DONE(flim_device_measure_limits(device, &limits, err));
    const flim_device_info *info = flim_device_get_info(device);
    fprintf(out, "%s, %s\n", info->name, info->libraries);
    fprintf(out, "copy within the device  %9.0f GB/s, read + written\n", limits.copy * 1e-9);
    fprintf(out, "host to device          %9.1f GB/s\n", limits.upload * 1e-9);
    for (int p = FLIM_PRECISION_FP32; p <= FLIM_PRECISION_FP16; p++) {
        if (limits.matrix[p] > 0) {
            fprintf(out, "matrix product, %-4s    %9.0f TFLOP/s\n", flim_precision_name((flim_precision)p),
                    limits.matrix[p] * 1e-12);
        }
    }
    if (o->json[0] != '\0') {
        status = write_json(o, info, &limits, err);
    }
done:
    flim_device_close(device);
    return status;
}

const flim_bench_command flim_bench_limits = {"limits", "the card's ceilings: copy and matrix rates", &table,
                                              sizeof(limits_options), measure};

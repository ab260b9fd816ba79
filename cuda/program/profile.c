/* Measurements behind `flim_bench limits` and `flim_bench layers`: the card's ceilings, and each operation of a step
 * alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublas_v2.h> /* types and names only: the library is opened at run time */

#include "core/dl.h"
#include "cuda/device/check.h"
#include "cuda/kernels/kernels.h"
#include "cuda/program/execute.h"
#include "cuda/program/launch.h"
#include "cuda/program/profile.h"

enum { REPEATS = 7, MATRIX = 8192, COPY_BYTES = 512 << 20, UPLOAD_BYTES = 128 << 20 };

/* ---- ceilings ---------------------------------------------------------------------------------------------------------- */

typedef struct blas {
    void *library;
    cublasHandle_t handle;
    cublasStatus_t (*create)(cublasHandle_t *handle);
    cublasStatus_t (*destroy)(cublasHandle_t handle);
    cublasStatus_t (*set_stream)(cublasHandle_t handle, cudaStream_t stream);
    cublasStatus_t (*product)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                              const void *alpha, const void *a, cudaDataType type_a, int lda, const void *b,
                              cudaDataType type_b, int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                              cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
} blas;

static flim_status open_blas(blas *b, cudaStream_t stream, flim_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "libcublas.so.%d", CUBLAS_VER_MAJOR);
    *b = (blas){.library = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (!b->library || !flim_dl_find(b->library, "cublasCreate_v2", &b->create) ||
        !flim_dl_find(b->library, "cublasDestroy_v2", &b->destroy) ||
        !flim_dl_find(b->library, "cublasSetStream_v2", &b->set_stream) ||
        !flim_dl_find(b->library, "cublasGemmEx", &b->product)) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "%s could not be loaded: the matrix rates need it", name);
    }
    if (b->create(&b->handle) != CUBLAS_STATUS_SUCCESS || b->set_stream(b->handle, stream) != CUBLAS_STATUS_SUCCESS) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "cuBLAS does not start");
    }
    return FLIM_OK;
}

static void close_blas(blas *b)
{
    if (b->handle) {
        (void)b->destroy(b->handle);
    }
    if (b->library) {
        (void)dlclose(b->library);
    }
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* What is timed: one call enqueues it. */
typedef flim_status enqueue(void *context, flim_error *err);

/* Median of REPEATS runs after one to warm up, in ms. */
static flim_status time_it(cudaStream_t stream, enqueue *work, void *context, double *ms, flim_error *err)
{
    cudaEvent_t begin = NULL, end = NULL;
    float times[REPEATS];
    flim_status status;
    FLIM_TRY_CUDA_DONE(cudaEventCreate(&begin));
    FLIM_TRY_CUDA_DONE(cudaEventCreate(&end));
    FLIM_TRY_DONE(work(context, err));
    for (int i = 0; i < REPEATS; i++) {
        FLIM_TRY_CUDA_DONE(cudaEventRecord(begin, stream));
        FLIM_TRY_DONE(work(context, err));
        FLIM_TRY_CUDA_DONE(cudaEventRecord(end, stream));
        FLIM_TRY_CUDA_DONE(cudaEventSynchronize(end));
        FLIM_TRY_CUDA_DONE(cudaEventElapsedTime(&times[i], begin, end));
    }
    qsort(times, REPEATS, sizeof times[0], by_value);
    *ms = (double)times[REPEATS / 2];
done:
    if (begin) {
        (void)cudaEventDestroy(begin);
    }
    if (end) {
        (void)cudaEventDestroy(end);
    }
    return status;
}

typedef struct copy_work {
    void *to;
    const void *from;
    size_t bytes;
    cudaStream_t stream;
} copy_work;

static flim_status copy(void *context, flim_error *err)
{
    const copy_work *w = context;
    return flim_cuda_check(cudaMemcpyAsync(w->to, w->from, w->bytes, cudaMemcpyDefault, w->stream), "a copy", err);
}

typedef struct product_work {
    const blas *b;
    const void *x, *y;
    void *z;
    cudaDataType type;
    cublasComputeType_t compute;
} product_work;

static flim_status product(void *context, flim_error *err)
{
    const product_work *w = context;
    const float one = 1.0f, zero = 0.0f;
    return w->b->product(w->b->handle, CUBLAS_OP_N, CUBLAS_OP_N, MATRIX, MATRIX, MATRIX, &one, w->x, w->type, MATRIX, w->y,
                         w->type, MATRIX, &zero, w->z, w->type, MATRIX, w->compute,
                         CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DEVICE, "cuBLAS refused a matrix product");
}

static flim_status matrix_rates(flim_cuda_device *device, char *memory, flim_device_limits *out, flim_error *err)
{
    static const struct {
        flim_precision precision;
        flim_storage storage;
        cudaDataType type;
        cublasComputeType_t compute;
    } kinds[] = {{FLIM_PRECISION_FP32, FLIM_STORAGE_FP32, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC},
                 {FLIM_PRECISION_TF32, FLIM_STORAGE_FP16, CUDA_R_16F, CUBLAS_COMPUTE_32F}, /* scaled fp16, here */
                 {FLIM_PRECISION_BF16, FLIM_STORAGE_BF16, CUDA_R_16BF, CUBLAS_COMPUTE_32F},
                 {FLIM_PRECISION_FP16, FLIM_STORAGE_FP16, CUDA_R_16F, CUBLAS_COMPUTE_32F}};
    const int64_t count = (int64_t)MATRIX * MATRIX;
    blas b;
    flim_status status;
    FLIM_TRY_DONE(open_blas(&b, device->stream, err));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!(device->base.info.precisions & 1u << kinds[i].precision)) {
            continue;
        }
        const flim_launch launch = {device->stream, kinds[i].storage, device->card.processors};
        char *second = memory + count * (int64_t)sizeof(float);
        product_work work = {&b, memory, second, second + count * (int64_t)sizeof(float), kinds[i].type, kinds[i].compute};
        double ms = 0;
        FLIM_TRY_CUDA_DONE(flim_k_fill(&launch, memory, count, 1));
        FLIM_TRY_CUDA_DONE(flim_k_fill(&launch, second, count, 2));
        FLIM_TRY_DONE(time_it(device->stream, product, &work, &ms, err));
        out->matrix[kinds[i].precision] = 2.0 * (double)count * MATRIX / (ms * 1e-3);
    }
done:
    close_blas(&b);
    return status;
}

flim_status flim_cuda_measure_limits(flim_device *base, flim_device_limits *out, flim_error *err)
{
    flim_cuda_device *device = flim_cuda_device_of(base);
    void *memory = NULL, *host = NULL;
    double ms = 0;
    bool pinned = false;
    flim_status status;
    FLIM_TRY_DONE(flim_cuda_device_use(device, err));
    FLIM_TRY_DONE(flim_cuda_malloc(device, 2 * (int64_t)COPY_BYTES, "measuring the card", &memory, err));
    const flim_launch launch = {device->stream, FLIM_STORAGE_FP32, device->card.processors};
    FLIM_TRY_CUDA_DONE(flim_k_fill(&launch, memory, COPY_BYTES / 4, 3));
    copy_work within = {(char *)memory + COPY_BYTES, memory, COPY_BYTES, device->stream};
    FLIM_TRY_DONE(time_it(device->stream, copy, &within, &ms, err));
    out->copy = 2.0 * COPY_BYTES / (ms * 1e-3);
    FLIM_TRY_DONE(flim_device_host_alloc(base, UPLOAD_BYTES, &host, &pinned, err));
    memset(host, 1, UPLOAD_BYTES);
    copy_work upload = {memory, host, UPLOAD_BYTES, device->stream};
    FLIM_TRY_DONE(time_it(device->stream, copy, &upload, &ms, err));
    out->upload = UPLOAD_BYTES / (ms * 1e-3);
    FLIM_TRY_DONE(matrix_rates(device, memory, out, err));
done:
    if (host) {
        (void)cudaStreamSynchronize(device->stream);
        flim_device_host_free(base, host);
    }
    (void)cudaFree(memory);
    return status;
}

/* ---- operations of a step ---------------------------------------------------------------------------------------------- */

typedef struct operation_work {
    flim_cuda_program *program;
    const flim_operation *operation; /* NULL: the update */
} operation_work;

static flim_status run_operation(void *context, flim_error *err)
{
    const operation_work *w = context;
    return w->operation
               ? flim_cuda_run_operation(w->program, &w->program->train, w->operation, w->program->train.batch, true, err)
               : flim_cuda_run_update(w->program, true, true, err);
}

static double macs(const flim_unit *u, int64_t n)
{
    double count = (double)n * u->out_channels * u->in_channels;
    for (int d = 0; d < 3; d++) {
        count *= (double)u->conv_out[d] * u->kernel[d];
    }
    return count;
}

static void describe(const flim_cuda_program *p, const flim_operation *op, flim_operation_time *out)
{
    static const struct {
        const char *name;
        flim_work work;
    } kinds[] = {[FLIM_OP_CONV] = {"forward", FLIM_WORK_FORWARD},
                 [FLIM_OP_NORM] = {"BatchNorm statistics", FLIM_WORK_NORM},
                 [FLIM_OP_EPILOGUE] = {"BatchNorm, activation", FLIM_WORK_NORM},
                 [FLIM_OP_HEAD] = {"mean, head, loss", FLIM_WORK_HEAD},
                 [FLIM_OP_GRAD_SUMS] = {"BatchNorm gradient sums", FLIM_WORK_NORM_GRADIENT},
                 [FLIM_OP_GRAD_APPLY] = {"BatchNorm gradient", FLIM_WORK_NORM_GRADIENT},
                 [FLIM_OP_WEIGHT] = {"weight gradient", FLIM_WORK_WEIGHT_GRADIENT},
                 [FLIM_OP_DATA] = {"data gradient", FLIM_WORK_DATA_GRADIENT},
                 [FLIM_OP_STEM_FORWARD] = {"and stem, forward", FLIM_WORK_FORWARD},
                 [FLIM_OP_STEM_BACKWARD] = {"and stem, backward", FLIM_WORK_WEIGHT_GRADIENT}};
    const flim_schedule_unit *su = &p->train.unit[op->unit];
    const flim_operation_kind kind = su->fusion != FLIM_FUSION_STEM_ALONE ? op->kind
                                     : op->kind == FLIM_OP_STEM_FORWARD   ? FLIM_OP_CONV
                                                                          : FLIM_OP_WEIGHT;
    const bool convolution = kind == FLIM_OP_CONV || kind == FLIM_OP_WEIGHT || kind == FLIM_OP_DATA;
    out->work = kinds[kind].work;
    snprintf(out->name, sizeof out->name, "%s %s%s", su->unit->conv, kinds[kind].name, op->recomputed ? ", recomputed" : "");
    snprintf(out->how, sizeof out->how, "%s", op->conv ? op->conv->engine : "custom");
    out->operations = convolution ? 2.0 * macs(su->unit, p->train.batch) : 0.0;
    if (kind == FLIM_OP_STEM_FORWARD || kind == FLIM_OP_STEM_BACKWARD) {
        const double stem = macs(p->train.unit[su->partner].unit, p->train.batch), down = macs(su->unit, p->train.batch);
        out->operations = 2.0 * (kind == FLIM_OP_STEM_FORWARD ? stem + down : stem + 2.0 * down);
    }
}

flim_status flim_cuda_profile(flim_program *base, flim_operation_time *out, int room, int *n, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    if (p->train.batch == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "this program has no training step to time");
    }
    FLIM_TRY(flim_cuda_finish(p, err));
    for (int i = 0; i <= p->train.n_operations && *n < room; i++) {
        operation_work work = {p, i < p->train.n_operations ? &p->train.operation[i] : NULL};
        flim_operation_time *o = &out[*n];
        *o = (flim_operation_time){.how = "custom", .work = FLIM_WORK_UPDATE};
        if (work.operation) {
            describe(p, work.operation, o);
        } else {
            snprintf(o->name, sizeof o->name, "norm, clipping, AdamW, weight copies");
        }
        FLIM_TRY(time_it(p->launch.stream, run_operation, &work, &o->ms, err));
        ++*n;
    }
    return FLIM_OK;
}

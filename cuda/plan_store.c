#include "plan_store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/stop.h"
#include "device.h"
#include "kernels.h"

enum {
    DEFAULT_WORKSPACE = 256 << 20,
    FIRST_RUN = 50000 /* microseconds */,
    SAMPLES_POINT = 2048,
    SAMPLES_WEIGHT = 192,
    CACHE_LIMIT = 256 << 20
};

/* ---- the cache file ------------------------------------------------------------------------------------------------- */

static void cache_path(const flim_cuda_device *device, const char *folder, char *path, size_t size)
{
    char card[128];
    snprintf(card, sizeof card, "%s", device->base.info.name);
    for (char *c = card; *c; c++) {
        if (!((*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z'))) {
            *c = '-';
        }
    }
    snprintf(path, size, "%s/plans2-%s-%s-driver%s-cudnn%zu.txt", folder, card, device->base.info.architecture,
             device->driver, device->cudnn.version);
}

/* Grows an array of `size`-byte items to hold one more. */
static bool grow(void **items, int n, int *room, size_t size, flim_error *err)
{
    if (n < *room) {
        return true;
    }
    int more = *room ? 2 * *room : 32;
    void *bigger = flim_realloc(*items, (size_t)more, size, err);
    if (bigger) {
        *items = bigger;
        *room = more;
    }
    return bigger != NULL;
}

static flim_status cache_add(flim_plan_store *store, const flim_cached_plan *entry, const char *json, flim_error *err)
{
    void *items = store->cached;
    bool fits = grow(&items, store->n_cached, &store->room_cached, sizeof *store->cached, err);
    store->cached = items;
    if (!fits) {
        return FLIM_ERROR_MEMORY;
    }
    flim_cached_plan *to = &store->cached[store->n_cached];
    *to = *entry;
    to->json = flim_alloc(entry->size + 1, 1, err);
    if (!to->json) {
        return FLIM_ERROR_MEMORY;
    }
    memcpy(to->json, json, entry->size);
    store->n_cached++;
    return FLIM_OK;
}

/* Reads "plan BYTES WORKSPACE MICROSECONDS <engine> <problem>\n"; returns what follows the line, or NULL. */
static const char *parse_entry(const char *at, const char *end, flim_cached_plan *entry)
{
    long long bytes, workspace;
    int used = 0;
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (!line ||
        sscanf(at, "plan %lld %lld %lf <%31[^>]> <%319[^>]>%n", &bytes, &workspace, &entry->microseconds, entry->engine,
               entry->problem, &used) != 5 ||
        at + used != line || bytes < 1 || bytes > end - line - 2 || workspace < 0 || line[1 + bytes] != '\n') {
        return NULL;
    }
    entry->size = (size_t)bytes;
    entry->workspace = workspace;
    return line + 1;
}

static flim_status cache_read(flim_cuda_device *device, const flim_plan_options *options, flim_error *err)
{
    char path[4096], *text = NULL;
    size_t size = 0;
    flim_error why = {0};
    cache_path(device, options->cache_dir, path, sizeof path);
    flim_status status = flim_file_exists(path) ? flim_file_read(path, CACHE_LIMIT, &text, &size, &why) : FLIM_OK;
    const char *at = text, *end = text ? text + size : NULL;
    while (status == FLIM_OK && at < end) {
        flim_cached_plan entry = {0};
        const char *json = parse_entry(at, end, &entry);
        if (!json) {
            status = flim_fail(&why, FLIM_ERROR_DATA, "damaged after %d plans", device->store.n_cached);
            break;
        }
        status = cache_add(&device->store, &entry, json, &why);
        at = json + entry.size + 1;
    }
    flim_free(text);
    device->store.file_read = status != FLIM_ERROR_MEMORY;
    if (status == FLIM_ERROR_MEMORY) {
        return flim_fail(err, status, "%s", why.text);
    }
    if (status != FLIM_OK) {
        flim_log_line(options->log, FLIM_LOG_NOTE, "plan cache %s: %s; what is missing is searched again", path, why.text);
    }
    return FLIM_OK;
}

void flim_plan_store_save(flim_cuda_device *device, const flim_plan_options *options)
{
    flim_plan_store *store = &device->store;
    if (!options->cache_dir || !store->file_stale) {
        return;
    }
    char path[4096];
    flim_file_writer writer;
    flim_error err = {0};
    cache_path(device, options->cache_dir, path, sizeof path);
    flim_status status = flim_make_folder(options->cache_dir, &err);
    if (status == FLIM_OK) {
        status = flim_file_begin(&writer, path, &err);
    }
    if (status == FLIM_OK) {
        for (int i = 0; i < store->n_cached; i++) {
            const flim_cached_plan *c = &store->cached[i];
            fprintf(writer.stream, "plan %zu %lld %.3f <%s> <%s>\n", c->size, (long long)c->workspace, c->microseconds,
                    c->engine, c->problem);
            fwrite(c->json, 1, c->size, writer.stream);
            fputc('\n', writer.stream);
        }
        status = flim_file_commit(&writer, &err);
    }
    if (status != FLIM_OK) {
        flim_log_line(options->log, FLIM_LOG_NOTE, "tuned plans were not kept: %s", err.text);
    }
    store->file_stale = false;
}

/* ---- search ---------------------------------------------------------------------------------------------------------- */

/* Device memory in which plans of one problem are tried. */
typedef struct bench {
    flim_cuda_device *device;
    const flim_conv_problem *problem;
    flim_launch launch;
    void *x, *w, *y, *workspace;
    int64_t workspace_bytes;
    double *samples; /* expected, then got */
    unsigned long long *nonfinite;
    cudaEvent_t begin, end;
} bench;

static void bench_free(bench *b)
{
    void *memory[] = {b->x, b->w, b->y, b->workspace, b->samples, b->nonfinite};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        (void)cudaFree(memory[i]);
    }
    if (b->begin) {
        (void)cudaEventDestroy(b->begin);
    }
    if (b->end) {
        (void)cudaEventDestroy(b->end);
    }
}

static void *output_of(const bench *b, int64_t *elements)
{
    const flim_conv_problem *p = b->problem;
    *elements = p->op == FLIM_CONV_FORWARD ? flim_conv_y_elements(p)
                : p->op == FLIM_CONV_DATA  ? flim_conv_x_elements(p)
                                           : flim_conv_w_elements(p);
    return p->op == FLIM_CONV_FORWARD ? b->y : p->op == FLIM_CONV_DATA ? b->x : b->w;
}

static flim_status bench_make(bench *b, flim_cuda_device *device, const flim_conv_problem *p, flim_error *err)
{
    const int64_t size = flim_storage_size(p->type);
    flim_status status;
    *b = (bench){.device = device, .problem = p, .launch = {device->stream, p->type, device->base.info.threads}};
    FLIM_TRY(flim_cuda_malloc(device, flim_conv_x_elements(p) * size, "tuning a convolution", &b->x, err));
    FLIM_TRY(flim_cuda_malloc(device, flim_conv_w_elements(p) * (p->op == FLIM_CONV_WEIGHT ? (int64_t)sizeof(float) : size),
                              "tuning a convolution", &b->w, err));
    FLIM_TRY(flim_cuda_malloc(device, flim_conv_y_elements(p) * size, "tuning a convolution", &b->y, err));
    FLIM_TRY(flim_cuda_malloc(device, 2 * SAMPLES_POINT * (int64_t)sizeof *b->samples, "tuning a convolution",
                              (void **)&b->samples, err));
    FLIM_TRY(flim_cuda_malloc(device, sizeof *b->nonfinite, "tuning a convolution", (void **)&b->nonfinite, err));
    FLIM_TRY_CUDA(cudaEventCreate(&b->begin));
    FLIM_TRY_CUDA(cudaEventCreate(&b->end));
    if (p->op != FLIM_CONV_DATA) {
        FLIM_TRY_CUDA(flim_k_fill(&b->launch, b->x, flim_conv_x_elements(p), 1));
    }
    if (p->op != FLIM_CONV_WEIGHT) {
        FLIM_TRY_CUDA(flim_k_fill(&b->launch, b->w, flim_conv_w_elements(p), 2));
    }
    if (p->op != FLIM_CONV_FORWARD) {
        FLIM_TRY_CUDA(flim_k_fill(&b->launch, b->y, flim_conv_y_elements(p), 3));
    }
done:
    if (status != FLIM_OK) {
        bench_free(b);
    }
    return status;
}

static flim_status bench_workspace(bench *b, int64_t bytes, flim_error *err)
{
    if (bytes <= b->workspace_bytes) {
        return FLIM_OK;
    }
    (void)cudaFree(b->workspace);
    b->workspace_bytes = 0;
    flim_status status = flim_cuda_malloc(b->device, bytes, "tuning a convolution", &b->workspace, err);
    b->workspace_bytes = status == FLIM_OK ? bytes : 0;
    return status;
}

bool flim_own_wgrad_shape(const flim_conv_problem *p, int sm, flim_wgrad_shape *out)
{
    if (p->op != FLIM_CONV_WEIGHT || p->type == FLIM_STORAGE_FP32) {
        return false;
    }
    for (int d = 0; d < 3; d++) {
        if (p->kernel[d] != 3 || p->pad[d] != 1) {
            return false;
        }
    }
    if (p->stride[0] != 1 || p->stride[1] != p->stride[2]) {
        return false;
    }
    *out = (flim_wgrad_shape){.type = p->type == FLIM_STORAGE_BF16 ? FLIM_CONV_BF16 : FLIM_CONV_FP16,
                              .n = p->n,
                              .c = p->c,
                              .k = p->k,
                              .t = p->in[0],
                              .h = p->in[1],
                              .w = p->in[2],
                              .stride = p->stride[1]};
    return flim_wgrad_supported(out, sm);
}

static flim_fp32_card fp32_card(const flim_cuda_device *device)
{
    return (flim_fp32_card){.processors = device->card.processors,
                            .capability = device->card.capability,
                            .shared_bytes = device->card.shared_bytes};
}

flim_status flim_conv_plan_run(flim_cuda_device *device, const flim_conv_plan *plan, int64_t n, const void *x, const void *w,
                               const void *y, void *workspace, flim_error *err)
{
    if (plan->tile) {
        const flim_fp32_card card = fp32_card(device);
        return flim_cuda_check(flim_fp32_run(&plan->problem, n, plan->tile, &card, x, w, y, workspace, device->stream),
                               "a convolution in fp32", err);
    }
    return flim_cudnn_plan_run(&device->cudnn, device->handle, &plan->problem, &plan->cudnn, x, w, y, workspace, err);
}

static flim_status bench_run(bench *b, const flim_conv_plan *c, flim_error *err)
{
    flim_wgrad_shape shape;
    if (c->own) {
        (void)flim_own_wgrad_shape(b->problem, b->device->sm, &shape);
        return flim_cuda_check(flim_wgrad(&shape, b->x, NULL, b->y, b->w, NULL, false, b->workspace, b->device->stream),
                               "a weight gradient", err);
    }
    return flim_conv_plan_run(b->device, c, b->problem->n, b->x, b->w, b->y, b->workspace, err);
}

/* Fastest of three runs after one to warm up; a plan that is far behind `best` after the first is not timed further. */
static flim_status bench_time(bench *b, const flim_conv_plan *c, double best, double *microseconds, flim_error *err)
{
    flim_status status = FLIM_OK;
    float ms = 0;
    *microseconds = HUGE_VAL;
    for (int i = 0; i < 4; i++) {
        FLIM_TRY_CUDA(cudaEventRecord(b->begin, b->device->stream));
        FLIM_TRY(bench_run(b, c, err));
        FLIM_TRY_CUDA(cudaEventRecord(b->end, b->device->stream));
        FLIM_TRY_CUDA(cudaEventSynchronize(b->end));
        FLIM_TRY_CUDA(cudaEventElapsedTime(&ms, b->begin, b->end));
        if (i > 0 && (double)ms * 1e3 < *microseconds) {
            *microseconds = (double)ms * 1e3;
        }
        if (i == 1 && (double)ms * 1e3 > 1.5 * best) {
            break;
        }
        if (i == 0 && (double)ms * 1e3 > 5.0 * best + FIRST_RUN) { /* even if all that a first run loads were in it */
            *microseconds = (double)ms * 1e3;
            break;
        }
    }
done:
    return status;
}

/* Compares outputs spread over the tensor with direct sums in double; *error = |got - expected| / |expected|. */
static flim_status bench_check(bench *b, const flim_conv_plan *c, double *error, flim_error *err)
{
    const int samples = b->problem->op == FLIM_CONV_WEIGHT ? SAMPLES_WEIGHT : SAMPLES_POINT;
    int64_t elements;
    unsigned long long nonfinite = 0;
    void *output = output_of(b, &elements);
    flim_status status = FLIM_OK;
    double *value = flim_alloc(2 * (size_t)samples, sizeof *value, err), difference = 0, square = 0;
    if (!value) {
        return FLIM_ERROR_MEMORY;
    }
    const flim_launch out = {b->launch.stream, c->own ? FLIM_STORAGE_FP32 : b->launch.type, b->launch.processors};
    FLIM_TRY_CUDA(cudaMemsetAsync(output, 0xff, (size_t)(elements * flim_storage_size(out.type)), b->device->stream));
    if (b->workspace_bytes > 0) {
        FLIM_TRY_CUDA(cudaMemsetAsync(b->workspace, 0xff, (size_t)b->workspace_bytes, b->device->stream));
    }
    FLIM_TRY_CUDA(cudaMemsetAsync(b->nonfinite, 0, sizeof *b->nonfinite, b->device->stream));
    FLIM_TRY(bench_run(b, c, err));
    FLIM_TRY_CUDA(flim_k_count_nonfinite(&out, output, elements, b->nonfinite));
    FLIM_TRY_CUDA(flim_k_direct(&b->launch, b->problem, b->x, b->w, b->y, c->own, samples, b->samples, b->samples + samples));
    FLIM_TRY_CUDA(
        cudaMemcpyAsync(value, b->samples, 2 * (size_t)samples * sizeof *value, cudaMemcpyDeviceToHost, b->device->stream));
    FLIM_TRY_CUDA(cudaMemcpyAsync(&nonfinite, b->nonfinite, sizeof nonfinite, cudaMemcpyDeviceToHost, b->device->stream));
    FLIM_TRY_CUDA(cudaStreamSynchronize(b->device->stream));
    for (int i = 0; i < samples; i++) {
        double d = value[samples + i] - value[i];
        difference += d * d;
        square += value[i] * value[i];
    }
    *error = nonfinite ? HUGE_VAL : sqrt(difference / fmax(square, 1e-300));
done:
    flim_free(value);
    return status;
}

/* Most that a right plan's rounding makes of fp32 sums stored in the type: measured errors are a third of these or less. */
static double tolerance(flim_storage type)
{
    return type == FLIM_STORAGE_FP32 ? 1e-4 : type == FLIM_STORAGE_FP16 ? 1e-3 : 8e-3;
}

static int faster(const void *a, const void *b)
{
    const flim_conv_plan *x = a, *y = b;
    return (x->microseconds > y->microseconds) - (x->microseconds < y->microseconds);
}

/* Checks candidates from the fastest on; the first right one becomes the plan. */
static flim_status choose(bench *b, flim_conv_plan *list, int n, const flim_plan_options *options, flim_conv_plan *out,
                          flim_error *err)
{
    char text[320];
    flim_conv_text(b->problem, text, sizeof text);
    for (int i = 0; i < n; i++) {
        double error = HUGE_VAL;
        flim_error why = {0};
        flim_conv_plan *plan = &list[i];
        flim_status status = bench_workspace(b, plan->workspace, &why);
        if (status == FLIM_OK) {
            status = bench_check(b, &list[i], &error, &why);
            if (status == FLIM_ERROR_MEMORY) { /* of the host: not the plan's fault */
                return flim_fail(err, status, "%s", why.text);
            }
        }
        if (status == FLIM_OK && error <= tolerance(b->problem->type)) {
            plan->microseconds = isfinite(plan->microseconds) ? plan->microseconds : 0.0;
            *out = *plan;
            plan->cudnn = (flim_cudnn_plan){0};
            return FLIM_OK;
        }
        flim_log_line(options->log, FLIM_LOG_NOTE, "%s dropped, %s %.1e: %s", plan->engine,
                      status == FLIM_OK ? "relative error" : why.text, error, text);
    }
    return flim_fail(err, FLIM_ERROR_DEVICE, "no cuDNN engine of %zu computes this convolution rightly on %s: %s",
                     b->device->cudnn.version, b->device->base.info.name, text);
}

/* Times a candidate that fits the workspace limit and takes it into the list; else frees it. */
static void try_candidate(bench *b, flim_conv_plan *c, const flim_plan_options *options, int64_t limit, flim_conv_plan *list,
                          int *n, int *over, flim_error *last)
{
    double best = HUGE_VAL;
    for (int i = 0; i < *n; i++) {
        best = list[i].microseconds < best ? list[i].microseconds : best;
    }
    const bool fits = c->workspace <= limit;
    *over += !fits;
    if (fits && bench_workspace(b, c->workspace, last) == FLIM_OK &&
        (!options->benchmark || bench_time(b, c, best, &c->microseconds, last) == FLIM_OK)) {
        list[(*n)++] = *c;
    } else {
        flim_cudnn_plan_free(&b->device->cudnn, &c->cudnn);
    }
}

/* Our own kernels' plans for base's problem, best guess first; returns how many. */
static int own_plans(const flim_cuda_device *device, const flim_conv_plan *base, flim_conv_plan list[FLIM_FP32_TILES])
{
    const flim_conv_problem *problem = &base->problem;
    const flim_fp32_card card = fp32_card(device);
    flim_wgrad_shape shape;
    int tile[FLIM_FP32_TILES];
    if (flim_own_wgrad_shape(problem, device->sm, &shape)) {
        list[0] = *base;
        list[0].own = true;
        list[0].workspace = (int64_t)flim_wgrad_scratch_bytes(&shape);
        snprintf(list[0].engine, sizeof list[0].engine, "own");
        return 1;
    }
    const int n = flim_fp32_tiles(problem, &card, tile);
    for (int i = 0; i < n; i++) {
        list[i] = *base;
        list[i].tile = tile[i];
        list[i].workspace = flim_fp32_workspace(problem, tile[i], &card);
        snprintf(list[i].engine, sizeof list[i].engine, "own %s", flim_fp32_tile_name(problem->op, tile[i]));
    }
    return n;
}

/* For a card that is not there: what `search` takes without timing, unchecked.  Where cuDNN is not installed a convolution
 * without a kernel of our own is taken to need all that it may ask for. */
static flim_status search_described(flim_cuda_device *device, const flim_conv_problem *problem, int64_t limit,
                                    flim_conv_plan *out, flim_error *err)
{
    flim_cudnn_candidates found;
    flim_conv_plan own[FLIM_FP32_TILES];
    if (own_plans(device, out, own) > 0 && own[0].workspace <= limit) {
        *out = own[0];
        return FLIM_OK;
    }
    out->workspace = limit;
    snprintf(out->engine, sizeof out->engine, "assumed");
    if (device->base.info.assumes_workspace) {
        return FLIM_OK;
    }
    flim_status status = flim_cudnn_candidates_find(&device->cudnn, NULL, device->base.info.name, problem, &found, err);
    if (status != FLIM_OK) {
        return status;
    }
    const int first = found.n;
    bool taken = false;
    for (int i = 0; i < found.n && !taken; i++) {
        flim_cudnn_plan plan;
        if (flim_cudnn_plan_build(&device->cudnn, NULL, device->base.info.name, problem, &found, i, &plan, err) == FLIM_OK) {
            taken = plan.workspace <= limit;
            out->workspace = plan.workspace;
            snprintf(out->engine, sizeof out->engine, "cuDNN %lld", (long long)found.engine[i]);
            flim_cudnn_plan_free(&device->cudnn, &plan);
        }
        if (!taken && i + 1 == first) {
            flim_cudnn_candidates_fallback(&device->cudnn, problem, &found);
        }
    }
    flim_cudnn_candidates_free(&device->cudnn, &found);
    char text[320];
    flim_conv_text(problem, text, sizeof text);
    return taken ? FLIM_OK
                 : flim_fail(err, FLIM_ERROR_DEVICE, "no cuDNN plan for %s takes %lld MiB of workspace or less: %s",
                             device->base.info.name, (long long)(limit >> 20), text);
}

/* Without timing it is our own kernel where there is one, else cuDNN's first, with two in reserve. */
static flim_status search(flim_cuda_device *device, const flim_conv_problem *problem, const flim_plan_options *options,
                          flim_conv_plan *out, flim_error *err)
{
    const int64_t limit = options->workspace_limit > 0 ? options->workspace_limit : DEFAULT_WORKSPACE;
    flim_cudnn_candidates found;
    flim_error last = {0};
    flim_conv_plan own[FLIM_FP32_TILES];
    flim_conv_plan list[FLIM_MAX_CANDIDATES + FLIM_FP32_TILES];
    int n = 0, over = 0;
    bool chosen = false;
    bench b;
    if (device->base.info.described) {
        return search_described(device, problem, limit, out, err);
    }
    out->microseconds = HUGE_VAL; /* until it is timed */
    const int n_own = own_plans(device, out, own);
    flim_status status = flim_cudnn_candidates_find(&device->cudnn, device->handle, device->base.info.name, problem, &found,
                                                    n_own > 0 ? &last : err);
    if (status != FLIM_OK && n_own == 0) {
        return status;
    }
    status = bench_make(&b, device, problem, err);
    if (status != FLIM_OK) {
        flim_cudnn_candidates_free(&device->cudnn, &found);
        return status;
    }
    for (int i = 0; i < n_own && (options->benchmark || n == 0) && !flim_stopped(options->stop); i++) {
        try_candidate(&b, &own[i], options, limit, list, &n, &over, &last);
    }
    if (!options->benchmark && n > 0) {
        status = choose(&b, list, n, options, out, &last);
        chosen = status == FLIM_OK;
        n = 0;
    }
    const bool no_memory = status == FLIM_ERROR_MEMORY; /* of the host: not our kernel's fault */
    const int wanted = options->benchmark ? FLIM_MAX_CANDIDATES + FLIM_FP32_TILES : 3;
    for (int i = 0; i < found.n && n < wanted && !chosen && !no_memory && !flim_stopped(options->stop); i++) {
        flim_conv_plan c = *out;
        snprintf(c.engine, sizeof c.engine, "cuDNN %lld", (long long)found.engine[i]);
        if (flim_cudnn_plan_build(&device->cudnn, device->handle, device->base.info.name, problem, &found, i, &c.cudnn,
                                  &last) == FLIM_OK) {
            c.workspace = c.cudnn.workspace;
            try_candidate(&b, &c, options, limit, list, &n, &over, &last);
        }
    }
    if (flim_stopped(options->stop)) { /* a card may take half a minute for all of them */
        status = flim_fail(err, FLIM_INTERRUPTED, "interrupted");
    } else if (no_memory) {
        status = flim_fail(err, status, "%s", last.text);
    } else if (chosen) {
        status = FLIM_OK;
    } else if (n == 0) {
        char text[320];
        flim_conv_text(problem, text, sizeof text);
        status =
            flim_fail(err, FLIM_ERROR_DEVICE, "no cuDNN plan runs on %s for %s: %d want more than %lld MiB of workspace%s%s",
                      device->base.info.name, text, over, (long long)(limit >> 20), last.text[0] ? "; " : "", last.text);
    } else {
        if (options->benchmark) {
            qsort(list, (size_t)n, sizeof *list, faster);
        }
        status = choose(&b, list, n, options, out, err);
    }
    for (int i = 0; i < n; i++) {
        flim_cudnn_plan_free(&device->cudnn, &list[i].cudnn);
    }
    bench_free(&b);
    flim_cudnn_candidates_free(&device->cudnn, &found);
    return status;
}

/* ---- the store ------------------------------------------------------------------------------------------------------- */

static bool same_problem(const flim_conv_problem *a, const flim_conv_problem *b)
{
    char x[320], y[320];
    flim_conv_text(a, x, sizeof x);
    flim_conv_text(b, y, sizeof y);
    return strcmp(x, y) == 0;
}

/* A cached plan is only taken where plans are timed: --no-benchmark means the first guess. */
static bool load_cached(flim_cuda_device *device, const flim_conv_problem *problem, const flim_plan_options *options,
                        flim_conv_plan *out)
{
    const int64_t limit = options->workspace_limit > 0 ? options->workspace_limit : DEFAULT_WORKSPACE;
    char text[320];
    flim_error ignored = {0};
    flim_conv_plan own[FLIM_FP32_TILES];
    const int n_own = own_plans(device, out, own);
    flim_conv_text(problem, text, sizeof text);
    for (int i = 0; options->benchmark && i < device->store.n_cached; i++) {
        const flim_cached_plan *c = &device->store.cached[i];
        if (strcmp(c->problem, text) != 0 || c->workspace > limit) {
            continue;
        }
        bool found = false;
        for (int k = 0; k < n_own && k < FLIM_FP32_TILES && !found; k++) {
            found = strcmp(own[k].engine, c->engine) == 0 && own[k].workspace <= limit;
            *out = found ? own[k] : *out;
        }
        if (!found && strncmp(c->engine, "own", 3) != 0 &&
            flim_cudnn_plan_load(&device->cudnn, device->handle, c->json, c->size, &out->cudnn, &ignored) == FLIM_OK) {
            snprintf(out->engine, sizeof out->engine, "%s", c->engine);
            out->workspace = out->cudnn.workspace;
            found = true;
        }
        if (found) {
            out->microseconds = c->microseconds;
            return true;
        }
    }
    return false;
}

/* Hands a new plan to the cache; a plan that cuDNN cannot write as text is simply not kept. */
static flim_status keep(flim_cuda_device *device, const flim_conv_plan *plan, flim_error *err)
{
    flim_cached_plan entry = {.microseconds = plan->microseconds, .workspace = plan->workspace, .size = 3};
    char *json = NULL;
    flim_status status = FLIM_OK;
    flim_conv_text(&plan->problem, entry.problem, sizeof entry.problem);
    memcpy(entry.engine, plan->engine, sizeof entry.engine);
    if (!plan->own && !plan->tile) {
        status = flim_cudnn_plan_save(&device->cudnn, &plan->cudnn, &json, &entry.size, err);
        if (status == FLIM_ERROR_DEVICE) {
            return FLIM_OK;
        }
    }
    if (status == FLIM_OK) {
        status = cache_add(&device->store, &entry, json ? json : "own", err);
        device->store.file_stale = true;
    }
    flim_free(json);
    return status;
}

flim_status flim_plan_store_get(flim_cuda_device *device, const flim_conv_problem *problem, const flim_plan_options *options,
                                const flim_conv_plan **out, flim_error *err)
{
    flim_plan_store *store = &device->store;
    *out = NULL;
    for (int i = 0; i < store->n; i++) {
        if (store->plan[i]->benchmarked == options->benchmark && same_problem(&store->plan[i]->problem, problem)) {
            *out = store->plan[i];
            return FLIM_OK;
        }
    }
    if (options->cache_dir && options->benchmark && !store->file_read && !device->base.info.described) {
        flim_status status = cache_read(device, options, err);
        if (status != FLIM_OK) {
            return status;
        }
    }
    void *items = store->plan;
    bool fits = grow(&items, store->n, &store->room, sizeof(flim_conv_plan *), err);
    store->plan = items;
    flim_conv_plan *plan = fits ? flim_alloc(1, sizeof *plan, err) : NULL;
    if (!plan) {
        return FLIM_ERROR_MEMORY;
    }
    plan->problem = *problem;
    plan->benchmarked = options->benchmark;
    if (load_cached(device, problem, options, plan)) {
        store->loaded++;
    } else {
        flim_status status = search(device, problem, options, plan, err);
        if (status == FLIM_OK && options->benchmark && !device->base.info.described) {
            status = keep(device, plan, err);
        }
        if (status != FLIM_OK) {
            flim_cudnn_plan_free(&device->cudnn, &plan->cudnn);
            flim_free(plan);
            return status;
        }
        store->searched++;
    }
    store->plan[store->n++] = plan;
    *out = plan;
    return FLIM_OK;
}

void flim_plan_store_free(flim_cuda_device *device)
{
    flim_plan_store *store = &device->store;
    for (int i = 0; i < store->n; i++) {
        flim_cudnn_plan_free(&device->cudnn, &store->plan[i]->cudnn);
        flim_free(store->plan[i]);
    }
    for (int i = 0; i < store->n_cached; i++) {
        flim_free(store->cached[i].json);
    }
    flim_free(store->plan);
    flim_free(store->cached);
    *store = (flim_plan_store){0};
}

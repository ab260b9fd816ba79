#include "plan_store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/alloc.h"
#include "core/file.h"
#include "device.h"
#include "kernels.h"

enum { DEFAULT_WORKSPACE = 256 << 20, SAMPLES_POINT = 2048, SAMPLES_WEIGHT = 192, CACHE_LIMIT = 256 << 20 };

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
    snprintf(path, size, "%s/plans-%s-%s-driver%s-cudnn%zu.txt", folder, card, device->base.info.architecture, device->driver,
             device->cudnn.version);
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

static void cache_read(flim_cuda_device *device, const flim_plan_options *options)
{
    char path[4096], *text = NULL;
    size_t size = 0;
    flim_error ignored = {0};
    device->store.file_read = true;
    cache_path(device, options->cache_dir, path, sizeof path);
    if (!flim_file_exists(path) || flim_file_read(path, CACHE_LIMIT, &text, &size, &ignored) != FLIM_OK) {
        return;
    }
    const char *at = text, *end = text + size;
    while (at < end) {
        flim_cached_plan entry = {0};
        const char *json = parse_entry(at, end, &entry);
        if (!json || cache_add(&device->store, &entry, json, &ignored) != FLIM_OK) {
            flim_log_line(options->log, FLIM_LOG_NOTE, "plan cache %s: damaged after %d plans; the rest is searched again",
                          path, device->store.n_cached);
            break;
        }
        at = json + entry.size + 1;
    }
    flim_free(text);
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
    FLIM_TRY(flim_cuda_malloc(device, flim_conv_w_elements(p) * size, "tuning a convolution", &b->w, err));
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

static flim_status bench_run(bench *b, const flim_cudnn_plan *plan, flim_error *err)
{
    return flim_cudnn_plan_run(&b->device->cudnn, b->device->handle, b->problem, plan, b->x, b->w, b->y, b->workspace, err);
}

/* Fastest of three runs after one to warm up; a plan that is far behind `best` after the first is not timed further. */
static flim_status bench_time(bench *b, const flim_cudnn_plan *plan, double best, double *microseconds, flim_error *err)
{
    flim_status status = FLIM_OK;
    float ms = 0;
    *microseconds = HUGE_VAL;
    for (int i = 0; i < 4; i++) {
        FLIM_TRY_CUDA(cudaEventRecord(b->begin, b->device->stream));
        FLIM_TRY(bench_run(b, plan, err));
        FLIM_TRY_CUDA(cudaEventRecord(b->end, b->device->stream));
        FLIM_TRY_CUDA(cudaEventSynchronize(b->end));
        FLIM_TRY_CUDA(cudaEventElapsedTime(&ms, b->begin, b->end));
        if (i > 0 && (double)ms * 1e3 < *microseconds) {
            *microseconds = (double)ms * 1e3;
        }
        if (i == 1 && (double)ms * 1e3 > 1.5 * best) {
            break;
        }
    }
done:
    return status;
}

/* Compares outputs spread over the tensor with direct sums in double; *error = |got - expected| / |expected|. */
static flim_status bench_check(bench *b, const flim_cudnn_plan *plan, double *error, flim_error *err)
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
    FLIM_TRY_CUDA(cudaMemsetAsync(output, 0xff, (size_t)(elements * flim_storage_size(b->problem->type)), b->device->stream));
    if (b->workspace_bytes > 0) {
        FLIM_TRY_CUDA(cudaMemsetAsync(b->workspace, 0xff, (size_t)b->workspace_bytes, b->device->stream));
    }
    FLIM_TRY_CUDA(cudaMemsetAsync(b->nonfinite, 0, sizeof *b->nonfinite, b->device->stream));
    FLIM_TRY(bench_run(b, plan, err));
    FLIM_TRY_CUDA(flim_k_count_nonfinite(&b->launch, output, elements, b->nonfinite));
    FLIM_TRY_CUDA(flim_k_direct(&b->launch, b->problem, b->x, b->w, b->y, samples, b->samples, b->samples + samples));
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

typedef struct candidate {
    flim_cudnn_plan plan;
    int64_t engine;
    double microseconds;
} candidate;

static int faster(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return (x->microseconds > y->microseconds) - (x->microseconds < y->microseconds);
}

/* Checks candidates from the fastest on; the first right one becomes the plan. */
static flim_status choose(bench *b, candidate *list, int n, const flim_plan_options *options, flim_conv_plan *out,
                          flim_error *err)
{
    char text[320];
    flim_conv_text(b->problem, text, sizeof text);
    for (int i = 0; i < n; i++) {
        double error = HUGE_VAL;
        flim_error why = {0};
        flim_status status = bench_workspace(b, list[i].plan.workspace, &why);
        if (status == FLIM_OK) {
            status = bench_check(b, &list[i].plan, &error, &why);
        }
        if (status == FLIM_OK && error <= tolerance(b->problem->type)) {
            out->cudnn = list[i].plan;
            out->microseconds = isfinite(list[i].microseconds) ? list[i].microseconds : 0.0;
            list[i].plan = (flim_cudnn_plan){0};
            snprintf(out->engine, sizeof out->engine, "cuDNN %lld", (long long)list[i].engine);
            return FLIM_OK;
        }
        flim_log_line(options->log, FLIM_LOG_NOTE, "cuDNN engine %lld dropped, %s %.1e: %s", (long long)list[i].engine,
                      status == FLIM_OK ? "relative error" : why.text, error, text);
    }
    return flim_fail(err, FLIM_ERROR_DEVICE, "no cuDNN engine of %zu computes this convolution rightly on %s: %s",
                     b->device->cudnn.version, b->device->base.info.name, text);
}

static flim_status search(flim_cuda_device *device, const flim_conv_problem *problem, const flim_plan_options *options,
                          flim_conv_plan *out, flim_error *err)
{
    const int64_t limit = options->workspace_limit > 0 ? options->workspace_limit : DEFAULT_WORKSPACE;
    flim_cudnn_candidates found;
    flim_error last = {0};
    candidate list[FLIM_MAX_CANDIDATES];
    int n = 0, over = 0;
    bench b;
    flim_status status =
        flim_cudnn_candidates_find(&device->cudnn, device->handle, device->base.info.name, problem, &found, err);
    if (status != FLIM_OK) {
        return status;
    }
    status = bench_make(&b, device, problem, err);
    if (status != FLIM_OK) {
        flim_cudnn_candidates_free(&device->cudnn, &found);
        return status;
    }
    double best = HUGE_VAL;
    const int wanted = options->benchmark ? found.n : 3; /* without timing: the first, and two in reserve */
    for (int i = 0; i < found.n && n < wanted; i++) {
        candidate *c = &list[n];
        *c = (candidate){.engine = found.engine[i], .microseconds = HUGE_VAL};
        if (flim_cudnn_plan_build(&device->cudnn, device->handle, device->base.info.name, problem, &found, i, &c->plan,
                                  &last) != FLIM_OK) {
            continue;
        }
        bool fits = c->plan.workspace <= limit;
        over += !fits;
        if (fits && bench_workspace(&b, c->plan.workspace, &last) == FLIM_OK &&
            (!options->benchmark || bench_time(&b, &c->plan, best, &c->microseconds, &last) == FLIM_OK)) {
            best = c->microseconds < best ? c->microseconds : best;
            n++;
        } else {
            flim_cudnn_plan_free(&device->cudnn, &c->plan);
        }
    }
    if (n == 0) {
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
        flim_cudnn_plan_free(&device->cudnn, &list[i].plan);
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

/* A cached plan is only taken where plans are timed: --no-benchmark means cuDNN's first. */
static bool load_cached(flim_cuda_device *device, const flim_conv_problem *problem, const flim_plan_options *options,
                        flim_conv_plan *out)
{
    const int64_t limit = options->workspace_limit > 0 ? options->workspace_limit : DEFAULT_WORKSPACE;
    char text[320];
    flim_error ignored = {0};
    flim_conv_text(problem, text, sizeof text);
    for (int i = 0; options->benchmark && i < device->store.n_cached; i++) {
        const flim_cached_plan *c = &device->store.cached[i];
        if (strcmp(c->problem, text) == 0 && c->workspace <= limit &&
            flim_cudnn_plan_load(&device->cudnn, device->handle, c->json, c->size, &out->cudnn, &ignored) == FLIM_OK) {
            snprintf(out->engine, sizeof out->engine, "%s", c->engine);
            out->microseconds = c->microseconds;
            return true;
        }
    }
    return false;
}

/* Hands a new plan to the cache; a plan that cuDNN cannot write is simply not kept. */
static void keep(flim_cuda_device *device, const flim_conv_plan *plan)
{
    flim_cached_plan entry = {.microseconds = plan->microseconds, .workspace = plan->cudnn.workspace};
    char *json = NULL;
    flim_error ignored = {0};
    flim_conv_text(&plan->problem, entry.problem, sizeof entry.problem);
    memcpy(entry.engine, plan->engine, sizeof entry.engine);
    if (flim_cudnn_plan_save(&device->cudnn, &plan->cudnn, &json, &entry.size, &ignored) == FLIM_OK &&
        cache_add(&device->store, &entry, json, &ignored) == FLIM_OK) {
        device->store.file_stale = true;
    }
    flim_free(json);
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
    if (options->cache_dir && !store->file_read) {
        cache_read(device, options);
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
        if (status != FLIM_OK) {
            flim_free(plan);
            return status;
        }
        store->searched++;
        if (options->benchmark) {
            keep(device, plan);
        }
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

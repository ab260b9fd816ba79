#include "cuda/conv/conv_cache.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "cuda/device/cuda_device.h"
#include "kernels_version.h" /* made by the build: a hash of cuda/conv and cuda/kernels */

enum { CACHE_LIMIT = 256 << 20 /* bytes of the file */ };

static void cache_path(const flim_cuda_device *device, const char *folder, char *path, size_t size)
{
    char card[128];
    snprintf(card, sizeof card, "%s", device->base.info.name);
    for (char *c = card; *c; c++) {
        if (!((*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z'))) {
            *c = '-';
        }
    }
    snprintf(path, size, "%s/plans-%s-%s-%s-driver%s-cudnn%zu.txt", folder, FLIM_KERNELS_VERSION, card,
             device->base.info.architecture, device->driver, device->cudnn.version);
}

/* Copies an entry and its JSON to the end of the list. */
static flim_status append(flim_conv_cache *cache, const flim_cached_choice *entry, const char *json, flim_error *err)
{
    flim_cached_choice *item = flim_realloc(cache->item, (size_t)cache->n + 1, sizeof *item, err);
    if (!item) {
        return FLIM_ERROR_MEMORY;
    }
    cache->item = item;
    flim_cached_choice *to = &item[cache->n];
    *to = *entry;
    to->json = flim_alloc(entry->size + 1, 1, err);
    if (!to->json) {
        return FLIM_ERROR_MEMORY;
    }
    memcpy(to->json, json, entry->size);
    cache->n++;
    return FLIM_OK;
}

/* Reads "plan BYTES WORKSPACE MICROSECONDS <engine> <problem>\n"; returns what follows the line, or NULL. */
static const char *parse_entry(const char *at, const char *end, flim_cached_choice *entry)
{
    long long bytes, workspace;
    int used = 0;
    char head[512]; /* sscanf looks for the end of all that it is given */
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (!line || (size_t)(line - at) >= sizeof head) {
        return NULL;
    }
    memcpy(head, at, (size_t)(line - at));
    head[line - at] = '\0';
    if (sscanf(head, "plan %lld %lld %lf <%31[^>]> <%319[^>]>%n", &bytes, &workspace, &entry->microseconds, entry->engine,
               entry->problem, &used) != 5 ||
        used != line - at || bytes < 1 || bytes > end - line - 2 || workspace < 0 || line[1 + bytes] != '\n') {
        return NULL;
    }
    entry->size = (size_t)bytes;
    entry->workspace = workspace;
    return line + 1;
}

static flim_status read_file(flim_conv_cache *cache, const flim_cuda_device *device, const flim_conv_search_options *options,
                             flim_error *err)
{
    char path[4096], *text = NULL;
    size_t size = 0;
    flim_error why = {0};
    cache_path(device, options->cache_dir, path, sizeof path);
    flim_status status = flim_file_exists(path) ? flim_file_read(path, CACHE_LIMIT, &text, &size, &why) : FLIM_OK;
    const char *at = text, *end = text ? text + size : NULL;
    while (status == FLIM_OK && at < end) {
        flim_cached_choice entry = {0};
        const char *json = parse_entry(at, end, &entry);
        if (!json) {
            status = flim_fail(&why, FLIM_ERROR_DATA, "damaged after %d entries", cache->n);
            break;
        }
        status = append(cache, &entry, json, &why);
        at = json + entry.size + 1;
    }
    flim_free(text);
    cache->read = status != FLIM_ERROR_MEMORY;
    if (status == FLIM_ERROR_MEMORY) {
        return flim_fail(err, status, "%s", why.text);
    }
    if (status != FLIM_OK) {
        flim_log_line(options->log, FLIM_LOG_NOTE, "plan cache %s: %s; missing entries are searched again", path, why.text);
    }
    return FLIM_OK;
}

static flim_status write_file(const flim_conv_cache *cache, const flim_cuda_device *device, const char *folder,
                              flim_error *err)
{
    char path[4096];
    flim_file_writer writer;
    cache_path(device, folder, path, sizeof path);
    FLIM_TRY(flim_make_folder(folder, err));
    FLIM_TRY(flim_file_begin(&writer, path, err));
    for (int i = 0; i < cache->n; i++) {
        const flim_cached_choice *c = &cache->item[i];
        fprintf(writer.stream, "plan %zu %lld %.3f <%s> <%s>\n", c->size, (long long)c->workspace, c->microseconds, c->engine,
                c->problem);
        fwrite(c->json, 1, c->size, writer.stream);
        fputc('\n', writer.stream);
    }
    return flim_file_commit(&writer, err);
}

void flim_conv_cache_write(flim_conv_cache *cache, const flim_cuda_device *device, const flim_conv_search_options *options)
{
    flim_error err = {0};
    if (!options->cache_dir || !cache->stale) {
        return;
    }
    if (write_file(cache, device, options->cache_dir, &err) != FLIM_OK) {
        flim_log_line(options->log, FLIM_LOG_NOTE, "tuned convolutions were not saved: %s", err.text);
    }
    cache->stale = false;
}

typedef struct match {
    const flim_cached_choice *entry;
    const flim_conv_search_options *options;
    flim_conv_choice *out;
    bool found;
} match;

/* flim_conv_offer: takes the candidate of the entry's name. */
static bool take_match(void *to, const flim_conv_choice *candidate)
{
    match *m = to;
    if (strcmp(candidate->engine, m->entry->engine) == 0 && flim_conv_fits(candidate, m->options)) {
        *m->out = *candidate;
        m->found = true;
    }
    return !m->found;
}

/* cuDNN's plan from its text; flipped engines have names of their own. */
static bool load_library_plan(flim_cuda_device *device, match *m, const flim_conv_choice *base)
{
    const bool flipped = strstr(m->entry->engine, " flipped") != NULL;
    flim_error ignored = {0};
    flim_conv_choice c = *base;
    c.workspace = m->entry->workspace;
    if (strncmp(m->entry->engine, "cuDNN ", 6) != 0 || flipped != c.algorithm->flipped || !flim_conv_fits(&c, m->options) ||
        flim_cudnn_plan_load(&device->cudnn, device->handle, m->entry->json, m->entry->size, &c.cudnn, &ignored) != FLIM_OK) {
        return false;
    }
    c.workspace = c.cudnn.workspace;
    snprintf(c.engine, sizeof c.engine, "%s", m->entry->engine);
    *m->out = c;
    return true;
}

/* The choice that an entry stands for, if its algorithm still is a candidate. */
static bool find_entry(flim_cuda_device *device, const flim_conv_search_options *options, const flim_cached_choice *entry,
                       flim_conv_choice *out)
{
    match m = {.entry = entry, .options = options, .out = out};
    flim_error ignored = {0};
    const flim_conv_algorithm *algorithm[FLIM_CONV_ALGORITHMS];
    const int n = flim_conv_candidates(&out->problem, &device->card, options, algorithm);
    for (int i = 0; i < n && !m.found; i++) {
        flim_conv_choice base = *out;
        base.algorithm = algorithm[i];
        if (base.algorithm->library) {
            m.found = load_library_plan(device, &m, &base);
        } else {
            (void)base.algorithm->variants(device, &base, take_match, &m, &ignored);
        }
    }
    return m.found;
}

flim_status flim_conv_cache_find(flim_conv_cache *cache, flim_cuda_device *device, const flim_conv_search_options *options,
                                 flim_conv_choice *out, bool *found, flim_error *err)
{
    char text[320];
    *found = false;
    if (!options->benchmark || device->base.info.described) {
        return FLIM_OK;
    }
    if (options->cache_dir && !cache->read) {
        FLIM_TRY(read_file(cache, device, options, err));
    }
    flim_conv_text(&out->problem, text, sizeof text);
    for (int i = 0; i < cache->n && !*found; i++) {
        const flim_cached_choice *c = &cache->item[i];
        *found = strcmp(c->problem, text) == 0 && find_entry(device, options, c, out);
        if (*found) {
            out->microseconds = c->microseconds;
        }
    }
    return FLIM_OK;
}

flim_status flim_conv_cache_add(flim_conv_cache *cache, flim_cuda_device *device, const flim_conv_choice *choice,
                                flim_error *err)
{
    if (device->base.info.described) {
        return FLIM_OK;
    }
    flim_cached_choice entry = {.microseconds = choice->microseconds, .workspace = choice->workspace, .size = 6};
    char *json = NULL;
    flim_status status = FLIM_OK;
    flim_conv_text(&choice->problem, entry.problem, sizeof entry.problem);
    memcpy(entry.engine, choice->engine, sizeof entry.engine);
    if (choice->algorithm->library) {
        status = flim_cudnn_plan_save(&device->cudnn, &choice->cudnn, &json, &entry.size, err);
        if (status == FLIM_ERROR_DEVICE) {
            return FLIM_OK;
        }
    }
    if (status == FLIM_OK) {
        flim_conv_cache_forget(cache, choice); /* found once more, for another workspace limit */
        status = append(cache, &entry, json ? json : "custom", err);
        cache->stale = true;
    }
    flim_free(json);
    return status;
}

/* Drops entry i. */
static void drop(flim_conv_cache *cache, int i)
{
    flim_free(cache->item[i].json);
    memmove(&cache->item[i], &cache->item[i + 1], (size_t)(cache->n - i - 1) * sizeof *cache->item);
    cache->n--;
}

void flim_conv_cache_forget(flim_conv_cache *cache, const flim_conv_choice *choice)
{
    char text[320];
    flim_conv_text(&choice->problem, text, sizeof text);
    for (int i = cache->n - 1; i >= 0; i--) {
        if (strcmp(cache->item[i].problem, text) == 0 && strcmp(cache->item[i].engine, choice->engine) == 0) {
            drop(cache, i);
            cache->stale = true;
        }
    }
}

void flim_conv_cache_free(flim_conv_cache *cache)
{
    for (int i = 0; i < cache->n; i++) {
        flim_free(cache->item[i].json);
    }
    flim_free(cache->item);
    *cache = (flim_conv_cache){0};
}

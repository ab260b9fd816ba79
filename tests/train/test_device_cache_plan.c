/* --cache: what the start says of cells in device memory, and when they go there.  The device and its program are made up: only
 * their bytes are asked for. */
#include <string.h>

#include "train/small_run.h"

#include "backend/backend.h"
#include "core/alloc.h"
#include "flim/simulate.h"
#include "train/run.h"

enum { CELLS = 6, PROGRAM_BYTES = 1000, CELL_BYTES = 100 };

static char told[2048];

static void hear(void *context, flim_log_level level, const char *text)
{
    (void)context;
    (void)level;
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", text);
}

static flim_status memory(const flim_program *program, flim_memory_plan *plan, flim_error *err)
{
    (void)err;
    *plan = (flim_memory_plan){0};
    flim_memory_add(plan, "program", FLIM_MEMORY_DEVICE, PROGRAM_BYTES);
    flim_memory_add(plan, "cells", FLIM_MEMORY_DEVICE, program->cached_cells * CELL_BYTES);
    return FLIM_OK;
}

static flim_status plan_cache(flim_program *program, const flim_device_cache *cells, flim_error *err)
{
    (void)program;
    (void)cells;
    (void)err;
    return FLIM_OK;
}

/* The start of a run with that --cache on a device with so many bytes free; whether its cells are cached there. */
static bool start(flim_cache cache, int64_t free_bytes, flim_status expected)
{
    static const flim_device_ops device_ops = {0};
    static const flim_program_ops program_ops = {.memory = memory, .plan_cache = plan_cache};
    char path[256];
    flim_error err = {0};
    flim_settings settings;
    flim_dataset *dataset = NULL;
    flim_device device = {
        .ops = &device_ops,
        .info = {.name = "made up", .own_memory = true, .memory_bytes = free_bytes, .memory_free = free_bytes}};
    flim_program program = {.ops = &program_ops, .device = &device};
    flim_trainer trainer = {.device = &device, .program = &program};
    const flim_train_hooks hooks = {0};
    static flim_run run;
    told[0] = '\0';
    ok(flim_settings_init(&settings, &err), &err);
    settings.cache = cache;
    settings.margin = 1;
    run = (flim_run){.settings = &settings, .hooks = &hooks, .log = {hear, NULL}};
    const char *const files[] = {path};
    snprintf(path, sizeof path, "%s/c.h5", folder);
    const flim_dataset_options options = {.axes = "NTYX", .cache = FLIM_CACHE_DEVICE};
    ok(flim_dataset_open(files, 1, &options, &dataset, &err), &err);
    const flim_study study = {.dataset = dataset, .info = flim_dataset_get_info(dataset)};
    assert_int_equal(flim_run_plan_device_cache(&run, &study, &trainer, &err), expected);
    const bool cached = trainer.cache_widths != NULL && expected == FLIM_OK;
    flim_free(trainer.cache_widths);
    flim_dataset_close(dataset);
    flim_settings_free(&settings);
    return cached;
}

static void cached_cells_are_copied_once(void **state)
{
    (void)state;
    flim_error err = {0};
    flim_simulation *simulation = NULL;
    flim_simulate_options simulate = flim_simulate_defaults();
    char path[256];
    simulate.cells = CELLS;
    simulate.donors = 2;
    simulate.bins = 8;
    simulate.height = simulate.width = 3;
    simulate.photons = 50;
    snprintf(path, sizeof path, "%s/c.h5", folder);
    ok(flim_simulation_create(&simulate, &simulation, &err), &err);
    ok(flim_simulation_write(simulation, path, NULL, NULL, &err), &err);
    flim_simulation_destroy(simulation);
    const int64_t all = PROGRAM_BYTES + CELLS * CELL_BYTES;
    for (int i = 0; i < 2; i++) {
        assert_true(start(i ? FLIM_CACHE_DEVICE : FLIM_CACHE_AUTO, all, FLIM_OK));
        if (!strstr(told, "caching decoded cells in device memory") || !strstr(told, "no counts are copied per batch")) {
            fail_msg("--cache %s says: %s", i ? "device" : "auto", told);
        }
    }
    assert_false(start(FLIM_CACHE_AUTO, all - 1, FLIM_OK));
    assert_null(strstr(told, "per batch"));
    assert_false(start(FLIM_CACHE_DEVICE, all - 1, FLIM_ERROR_MEMORY));
    assert_false(start(FLIM_CACHE_HOST, all, FLIM_OK));
    assert_null(strstr(told, "per batch"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cached_cells_are_copied_once)};
    return SMALL_MAIN(tests);
}

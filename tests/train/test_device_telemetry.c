/* The device's figures of an epoch: means of load and power, the most of memory and temperature, nothing where NVML is
 * absent or lacks a call. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "train/telemetry.h"

static flim_device_status now;

static void status_now(const flim_device *device, flim_device_status *out)
{
    (void)device;
    *out = now;
}

static const flim_device_ops with_nvml = {.status = status_now}, without = {.status = NULL};

/* Looks at most every half second. */
static void look(flim_telemetry *figures, const flim_device *device, flim_device_status at)
{
    now = at;
    flim_telemetry_update(figures, device);
    usleep(510000);
}

static void figures_of_an_epoch(void **state)
{
    (void)state;
    const double none = (double)NAN;
    flim_device device = {.ops = &with_nvml};
    flim_telemetry figures;
    flim_epoch_row row = {0};
    now = (flim_device_status){.busy = 0.5, .memory_bytes = 9e9, .watts = 500, .celsius = 90}; /* before it */
    flim_telemetry_begin(&figures, &device);
    look(&figures, &device, (flim_device_status){.busy = 0.9, .memory_bytes = 2e9, .watts = none, .celsius = 61});
    look(&figures, &device, (flim_device_status){.busy = 0.7, .memory_bytes = 4e9, .watts = 300, .celsius = none});
    look(&figures, &device, (flim_device_status){.busy = none, .memory_bytes = 3e9, .watts = 200, .celsius = 60});
    now = (flim_device_status){.busy = 0, .memory_bytes = 8e9, .watts = 1, .celsius = 99};
    flim_telemetry_update(&figures, &device);
    now = (flim_device_status){none, none, none, none}; /* the library is lost meanwhile: what was seen stays */
    flim_telemetry_update(&figures, &device);
    flim_telemetry_end(&figures, &row);
    assert_true(fabs(row.device_busy - (0.9 + 0.7 + 0) / 3) < 1e-12);
    assert_true(fabs(row.device_watts - (300 + 200 + 1) / 3.0) < 1e-12);
    assert_true(row.device_memory == 8e9 && row.device_celsius == 99);
    flim_telemetry_begin(&figures, &device); /* the next epoch begins afresh */
    look(&figures, &device, (flim_device_status){.busy = 1, .memory_bytes = 1e9, .watts = 50, .celsius = 40});
    flim_telemetry_end(&figures, &row);
    assert_true(row.device_busy == 1 && row.device_watts == 50 && row.device_memory == 1e9 && row.device_celsius == 40);
}

static void a_device_that_tells_nothing(void **state)
{
    (void)state;
    flim_device device = {.ops = &without};
    flim_telemetry figures;
    flim_epoch_row row = {0};
    flim_telemetry_begin(&figures, &device);
    flim_telemetry_update(&figures, &device);
    flim_telemetry_end(&figures, &row);
    assert_true(isnan(row.device_busy) && isnan(row.device_watts) && isnan(row.device_memory) && isnan(row.device_celsius));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(figures_of_an_epoch), cmocka_unit_test(a_device_that_tells_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

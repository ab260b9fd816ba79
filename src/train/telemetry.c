#include "train/telemetry.h"

#include <math.h>

#include "core/clock.h"

#define BETWEEN_READS 0.5 /* seconds: NVML's figures are means over 1/6 s to 1 s */

void flim_telemetry_begin(flim_telemetry *t, const flim_device *device)
{
    *t = (flim_telemetry){.read_at = -1};
    flim_device_get_status(device, &t->now); /* all NaN if the device reports nothing */
}

static void add(double *sum, int64_t *n, double value)
{
    if (!isnan(value)) {
        *sum += value;
        *n += 1;
    }
}

static double larger(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

void flim_telemetry_update(flim_telemetry *t, const flim_device *device)
{
    const double now = flim_seconds();
    if (t->read_at >= 0 && now - t->read_at < BETWEEN_READS) {
        return;
    }
    t->read_at = now;
    flim_device_get_status(device, &t->now);
    add(&t->busy, &t->n_busy, t->now.busy);
    add(&t->watts, &t->n_watts, t->now.watts);
    t->most_bytes = t->n_reads ? larger(t->most_bytes, t->now.memory_bytes) : t->now.memory_bytes;
    t->most_celsius = t->n_reads ? larger(t->most_celsius, t->now.celsius) : t->now.celsius;
    t->n_reads++;
}

void flim_telemetry_end(const flim_telemetry *t, flim_epoch_row *row)
{
    row->device_busy = t->n_busy ? t->busy / (double)t->n_busy : (double)NAN;
    row->device_watts = t->n_watts ? t->watts / (double)t->n_watts : (double)NAN;
    row->device_memory = t->n_reads ? t->most_bytes : (double)NAN;
    row->device_celsius = t->n_reads ? t->most_celsius : (double)NAN;
}

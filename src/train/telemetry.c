/* How the device did during an epoch: its own figures, looked at no more often than they change. */
#include <math.h>

#include "core/clock.h"
#include "train/run.h"

#define BETWEEN_LOOKS 0.5 /* seconds: NVML's figures are means over 1/6 s to 1 s */

void flim_run_meter_begin(flim_run *run)
{
    run->meter = (flim_meter){.looked = -1};
    flim_device_get_status(run->device, &run->meter.now); /* NaN everywhere where the device tells nothing */
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

void flim_run_meter_look(flim_run *run)
{
    flim_meter *m = &run->meter;
    const double now = flim_seconds();
    if (m->looked >= 0 && now - m->looked < BETWEEN_LOOKS) {
        return;
    }
    m->looked = now;
    flim_device_get_status(run->device, &m->now);
    add(&m->busy, &m->n_busy, m->now.busy);
    add(&m->watts, &m->n_watts, m->now.watts);
    m->most_bytes = m->n_looks ? larger(m->most_bytes, m->now.memory_bytes) : m->now.memory_bytes;
    m->most_celsius = m->n_looks ? larger(m->most_celsius, m->now.celsius) : m->now.celsius;
    m->n_looks++;
}

void flim_run_meter_end(const flim_run *run, flim_epoch_row *row)
{
    const flim_meter *m = &run->meter;
    row->device_busy = m->n_busy ? m->busy / (double)m->n_busy : (double)NAN;
    row->device_watts = m->n_watts ? m->watts / (double)m->n_watts : (double)NAN;
    row->device_memory = m->n_looks ? m->most_bytes : (double)NAN;
    row->device_celsius = m->n_looks ? m->most_celsius : (double)NAN;
}

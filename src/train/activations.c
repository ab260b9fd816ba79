#include "train/activations.h"

#include <math.h>
#include <string.h>

#include "backend/inspect.h"
#include "core/alloc.h"
#include "core/try.h"
#include "plan/synthetic_run.h"

struct flim_activations {
    flim_device *device;
    const flim_network *net;
    flim_program *program;
    flim_batch batch;
    float *logits; /* (n,K') */
    float *value; /* room for the largest tensor of a unit */
    bool *lit; /* (most channels of a unit) */
};

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

static bool is_counted(const flim_unit *unit)
{
    return unit->act && unit->input >= 0;
}

/* The cells, in memory that the device copies from. */
static flim_status read_cells(flim_activations *p, flim_dataset *dataset, const int64_t *cell, int64_t n, flim_error *err)
{
    const int64_t cells = n < FLIM_PROBE_CELLS ? n : FLIM_PROBE_CELLS, pixels = (int64_t)p->net->in[1] * p->net->in[2];
    flim_reader *reader = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_batch_create(p->device, p->net, cells, &p->batch, err));
    p->batch.n = cells;
    FLIM_TRY(flim_reader_create(dataset, &reader, err));
    for (int64_t i = 0; i < cells && status == FLIM_OK; i++) {
        status = flim_reader_signal(reader, cell[i * n / cells], p->batch.signal + i * p->net->in[0] * pixels,
                                    p->batch.mask + i * pixels, err);
    }
    flim_reader_destroy(reader);
    return status;
}

static flim_status make_program(flim_activations *p, flim_precision precision, bool deterministic, flim_error *err)
{
    const flim_program_options options = {
        .precision = precision, .eval_batch = p->batch.n, .deterministic = deterministic, .inspect = true};
    FLIM_TRY(flim_program_compile(p->device, p->net, &options, &p->program, err));
    return flim_program_allocate(p->program, err);
}

flim_status flim_activations_create(flim_device *device, const flim_network *net, flim_precision precision,
                                    bool deterministic, flim_dataset *dataset, const int64_t *cell, int64_t n,
                                    flim_activations **out, flim_error *err)
{
    int64_t most = 1;
    int channels = 1;
    flim_status status = FLIM_OK;
    *out = NULL;
    flim_activations *p = flim_alloc(1, sizeof *p, err);
    FLIM_TRY(p ? FLIM_OK : FLIM_ERROR_MEMORY);
    p->device = device;
    p->net = net;
    FLIM_TRY_DONE(read_cells(p, dataset, cell, n, err));
    for (int u = 0; u < net->n_units; u++) {
        const int64_t values = p->batch.n * net->unit[u].out_channels * volume(net->unit[u].conv_out);
        most = values > most ? values : most;
        channels = net->unit[u].out_channels > channels ? net->unit[u].out_channels : channels;
    }
    p->value = flim_alloc((size_t)most, sizeof *p->value, err);
    p->lit = flim_alloc((size_t)channels, sizeof *p->lit, err);
    p->logits = flim_alloc((size_t)p->batch.n * (size_t)net->head[0].outputs, sizeof *p->logits, err);
    FLIM_TRY_DONE(p->value && p->lit && p->logits ? make_program(p, precision, deterministic, err) : FLIM_ERROR_MEMORY);
    *out = p;
    return FLIM_OK;
done:
    flim_activations_destroy(p);
    return flim_fail_prefix(err, "--diagnostics, its probe of activations: ");
}

void flim_activations_destroy(flim_activations *p)
{
    if (p) {
        flim_program_destroy(p->program);
        flim_batch_free(p->device, &p->batch);
        flim_free(p->logits);
        flim_free(p->value);
        flim_free(p->lit);
        flim_free(p);
    }
}

int64_t flim_activations_bytes(const flim_activations *p)
{
    return flim_program_peak_bytes(p->program);
}

/* z (n,C,pixels) becomes what BatchNorm makes of it: of the sign of a unit without skip and pool no more is needed. */
static void normalise(const flim_activations *p, int unit, const float *parameter, const float *statistic)
{
    const flim_network *net = p->net;
    const flim_unit *u = &net->unit[unit];
    const int64_t pixels = volume(u->conv_out);
    const float *gamma = parameter + flim_network_tensor(net, unit, FLIM_TENSOR_BN_WEIGHT, 0)->offset;
    const float *beta = parameter + flim_network_tensor(net, unit, FLIM_TENSOR_BN_BIAS, 0)->offset;
    const float *mean = statistic + flim_network_tensor(net, unit, FLIM_TENSOR_RUNNING_MEAN, 0)->offset;
    const float *variance = statistic + flim_network_tensor(net, unit, FLIM_TENSOR_RUNNING_VAR, 0)->offset;
    for (int64_t i = 0; i < p->batch.n * u->out_channels * pixels; i++) {
        const int64_t c = i / pixels % u->out_channels;
        const double scale = (double)gamma[c] / sqrt((double)variance[c] + FLIM_BN_EPS_EXACT);
        p->value[i] = (float)(((double)p->value[i] - (double)mean[c]) * scale + (double)beta[c]);
    }
}

/* The unit's outputs, or what has their signs, into p->value; *values of them, 0 if this program keeps neither. */
static flim_status read_unit(flim_activations *p, int unit, const float *parameter, const float *statistic, int64_t *values,
                             flim_error *err)
{
    const flim_unit *u = &p->net->unit[unit];
    const int64_t rows = p->batch.n * u->out_channels;
    flim_error why = {0};
    *values = rows * volume(u->out);
    flim_status status = flim_program_read_tensor(p->program, unit, FLIM_INSPECT_Y, p->value, *values, &why);
    if (status == FLIM_ERROR_USAGE && u->bn[0] && u->pool_t == 1 &&
        u->skip < 0) { /* its readers apply BatchNorm themselves */
        *values = rows * volume(u->conv_out);
        status = flim_program_read_tensor(p->program, unit, FLIM_INSPECT_Z, p->value, *values, &why);
        if (status == FLIM_OK) {
            normalise(p, unit, parameter, statistic);
        }
    }
    *values = status == FLIM_OK ? *values : 0;
    return status == FLIM_OK || status == FLIM_ERROR_USAGE ? FLIM_OK : flim_fail(err, status, "%s", why.text);
}

/* Of values (n,C,pixels): the share at or below zero; adds channels without another value to *dead. */
static double count(const flim_activations *p, int channels, int64_t values, int64_t *dead)
{
    const int64_t pixels = values / (p->batch.n * channels);
    int64_t inactive = 0;
    memset(p->lit, 0, (size_t)channels * sizeof *p->lit);
    for (int64_t row = 0; row < p->batch.n * channels; row++) {
        int64_t here = 0;
        for (int64_t i = 0; i < pixels; i++) {
            here += !(p->value[row * pixels + i] > 0);
        }
        inactive += here;
        p->lit[row % channels] = p->lit[row % channels] || here < pixels;
    }
    for (int c = 0; c < channels; c++) {
        *dead += !p->lit[c];
    }
    return (double)inactive / (double)values;
}

flim_status flim_activations_measure(flim_activations *p, const float *parameter, const float *statistic,
                                     flim_activation_figures *out, flim_error *err)
{
    double sum = 0;
    int64_t channels = 0, dead = 0;
    int units = 0;
    FLIM_TRY(flim_program_write(p->program, FLIM_STATE_PARAMETERS, parameter, err));
    FLIM_TRY(flim_program_write(p->program, FLIM_STATE_STATISTICS, statistic, err));
    FLIM_TRY(flim_program_predict(p->program, &p->batch, p->logits, err));
    FLIM_TRY(flim_program_wait(p->program, err));
    for (int u = 0; u < p->net->n_units; u++) {
        int64_t values = 0;
        if (is_counted(&p->net->unit[u])) {
            FLIM_TRY(read_unit(p, u, parameter, statistic, &values, err));
        }
        if (values > 0) {
            sum += count(p, p->net->unit[u].out_channels, values, &dead);
            channels += p->net->unit[u].out_channels;
            units++;
        }
    }
    out->inactive = units ? sum / units : (double)NAN;
    out->dead = channels ? (double)dead / (double)channels : (double)NAN;
    return FLIM_OK;
}

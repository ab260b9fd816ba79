#include "cpu/layers/cpu_layer.h"

#include <math.h>
#include <string.h>

enum { MOST_CHUNKS = 32, LANES = 16, LEAST_PERIOD = 128 };

static size_t volume(const int size[3])
{
    return (size_t)size[0] * (size_t)size[1] * (size_t)size[2];
}

/* A multiple of C and of 16, and long enough that sums in a row do not wait for each other. */
static size_t row_period(int channels)
{
    size_t period = (size_t)channels;
    while (period % LANES != 0) {
        period += (size_t)channels;
    }
    return period * ((LEAST_PERIOD + period - 1) / period);
}

void flim_cpu_layer_init(flim_cpu_layer *layer, const flim_unit *unit)
{
    *layer = (flim_cpu_layer){.unit = *unit, .bn = unit->bn[0] != 0};
    layer->plain_y = unit->skip < 0 && unit->pool_t == 1 && !unit->dropout;
    layer->period = row_period(unit->out_channels);
    layer->plane = (size_t)unit->conv_out[1] * (size_t)unit->conv_out[2] * (size_t)unit->out_channels;
    layer->x_floats = volume(unit->in) * (size_t)unit->in_channels;
    layer->z_floats = volume(unit->conv_out) * (size_t)unit->out_channels;
    layer->y_floats = volume(unit->out) * (size_t)unit->out_channels;
    layer->chunks = unit->out[0] < MOST_CHUNKS ? unit->out[0] : MOST_CHUNKS;
    layer->chunks = layer->chunks > 0 ? layer->chunks : 1;
}

static void fill_row(const flim_cpu_layer *layer, float *row, int channel, float value)
{
    for (size_t j = (size_t)channel; j < layer->period; j += (size_t)layer->unit.out_channels) {
        row[j] = value;
    }
}

void flim_cpu_layer_set_rows(flim_cpu_layer *layer, float *rows)
{
    float **const row[FLIM_CPU_LAYER_ROWS] = {&layer->scale, &layer->shift, &layer->center, &layer->a,
                                              &layer->b,     &layer->d,     &layer->one,    &layer->zero};
    for (int i = 0; i < FLIM_CPU_LAYER_ROWS; i++) {
        *row[i] = rows + (size_t)i * layer->period;
    }
    for (int c = 0; c < layer->unit.out_channels; c++) {
        fill_row(layer, layer->one, c, 1.0f);
        fill_row(layer, layer->zero, c, 0.0f);
    }
}

static float slope_of(const flim_cpu_layer *layer)
{
    return layer->unit.act ? FLIM_LEAKY_SLOPE : 1.0f;
}

flim_cpu_term flim_cpu_layer_term(const flim_cpu_layer *layer, const float *z, const float *y)
{
    if (y) {
        return (flim_cpu_term){y, layer->one, layer->zero, 1.0f};
    }
    return (flim_cpu_term){z, layer->scale, layer->shift, slope_of(layer)};
}

/* First of the `bins` time bins of chunk k. */
static size_t chunk_begin(const flim_cpu_layer *layer, int bins, int k)
{
    return (size_t)((int64_t)bins * k / layer->chunks);
}

#define FOR_CHUNKS(layer, team, k)                                                                                           \
    _Pragma("omp parallel for schedule(static) num_threads((team)->threads) if ((team)->threads > 1)") for (int k = 0;       \
                                                                                                            k <              \
                                                                                                            (layer)->chunks; \
                                                                                                            k++)

static double *chunk_sum(const flim_cpu_layer *layer, double *partial, int k)
{
    double *sum = partial + (size_t)k * 2 * layer->period;
    memset(sum, 0, 2 * layer->period * sizeof *sum);
    return sum;
}

/* The voxel whose z is the pivot of the sums of squares: near the mean, so that nothing cancels. */
static const float *pivot_voxel(const flim_cpu_layer *layer, const float *z)
{
    return z + (size_t)(layer->unit.conv_out[0] / 2) * layer->plane;
}

void flim_cpu_layer_moments(const flim_cpu_layer *layer, const flim_cpu_team *team, const float *z, double *partial)
{
    if (!layer->bn) {
        return;
    }
    const float *at = pivot_voxel(layer, z);
    const int bins = layer->unit.conv_out[0];
    FOR_CHUNKS(layer, team, k)
    {
        float pivot[layer->period];
        for (size_t j = 0; j < layer->period; j += (size_t)layer->unit.out_channels) {
            memcpy(pivot + j, at, (size_t)layer->unit.out_channels * sizeof *pivot);
        }
        size_t begin = chunk_begin(layer, bins, k), end = chunk_begin(layer, bins, k + 1);
        team->kernels->moments(z + begin * layer->plane, pivot, chunk_sum(layer, partial, k), (end - begin) * layer->plane,
                               layer->period);
    }
}

/* The sum of column c's repeats over one chunk's row. */
static double fold(const flim_cpu_layer *layer, const double *row, int c)
{
    double sum = 0.0;
    for (size_t j = (size_t)c; j < layer->period; j += (size_t)layer->unit.out_channels) {
        sum += row[j];
    }
    return sum;
}

static void set_affine(flim_cpu_layer *layer, int c, double mean, double var, const flim_cpu_norm *norm)
{
    double scale = (double)norm->gamma[c] / sqrt(var + (double)FLIM_BN_EPS);
    fill_row(layer, layer->scale, c, (float)scale);
    fill_row(layer, layer->shift, c, (float)((double)norm->beta[c] - mean * scale));
    fill_row(layer, layer->center, c, (float)mean);
    fill_row(layer, layer->a, c, (float)(1.0 / sqrt(var + (double)FLIM_BN_EPS))); /* until finish_dv, which needs it */
}

void flim_cpu_layer_use_running(flim_cpu_layer *layer, const flim_cpu_norm *norm)
{
    layer->frozen = true;
    for (int c = 0; c < layer->unit.out_channels; c++) {
        if (layer->bn) {
            set_affine(layer, c, (double)norm->running_mean[c], (double)norm->running_var[c], norm);
        } else {
            fill_row(layer, layer->scale, c, 1.0f);
            fill_row(layer, layer->shift, c, 0.0f);
            fill_row(layer, layer->center, c, 0.0f);
            fill_row(layer, layer->a, c, 1.0f);
        }
    }
}

void flim_cpu_layer_merge_moments(const flim_cpu_layer *layer, const float *z, const double *partial, int64_t n,
                                  double *moments)
{
    const int channels = layer->unit.out_channels;
    const size_t voxels = volume(layer->unit.conv_out), row = 2 * layer->period;
    if (!layer->bn) {
        return;
    }
    moments[0] = (double)voxels * (double)n;
    for (int c = 0; c < channels; c++) {
        /* Chan, Golub, LeVeque: cells are merged by their means and sums of squares around them. */
        double mean = 0.0, squares = 0.0, count = 0.0;
        for (int64_t i = 0; i < n; i++) {
            double s1 = 0.0, s2 = 0.0;
            const double *cell = partial + (size_t)i * flim_cpu_layer_partials(layer);
            for (int k = 0; k < layer->chunks; k++) {
                s1 += fold(layer, cell + (size_t)k * row, c);
                s2 += fold(layer, cell + (size_t)k * row + layer->period, c);
            }
            double pivot = (double)pivot_voxel(layer, z + (size_t)i * layer->z_floats)[c];
            double cell_mean = pivot + s1 / (double)voxels, delta = cell_mean - mean;
            double merged = count + (double)voxels;
            squares += s2 - s1 * s1 / (double)voxels + delta * delta * count * (double)voxels / merged;
            mean += delta * (double)voxels / merged;
            count = merged;
        }
        moments[1 + c] = mean;
        moments[1 + channels + c] = squares;
    }
}

void flim_cpu_layer_finish_moments(flim_cpu_layer *layer, const double *moments, const flim_cpu_norm *norm)
{
    const int channels = layer->unit.out_channels;
    layer->count = layer->bn ? moments[0] : 0.0;
    if (layer->count <= 1.0) {
        flim_cpu_layer_use_running(layer, norm);
        return;
    }
    layer->frozen = false;
    for (int c = 0; c < channels; c++) {
        const double mean = moments[1 + c], squares = moments[1 + channels + c];
        const double total = layer->count, var = squares > 0.0 || isnan(squares) ? squares / total : 0.0;
        const double momentum = norm->momentum;
        flim_cpu_move_running(norm->running_mean, norm->move_mean, c, momentum, momentum * mean);
        flim_cpu_move_running(norm->running_var, norm->move_var, c, momentum, momentum * var * total / (total - 1.0));
        set_affine(layer, c, mean, var, norm);
    }
}

void flim_cpu_layer_dropout(const flim_cpu_layer *layer, const flim_cell_id *id, uint32_t unit, float p, float *row)
{
    const float kept = 1.0f / (1.0f - p);
    for (int c = 0; c < layer->unit.out_channels; c++) {
        fill_row(layer, row, c, flim_random_keep(id, unit, (uint32_t)c, p) ? kept : 0.0f);
    }
}

/* The term further along in time, at element `offset`. */
static flim_cpu_term term_at(flim_cpu_term term, size_t offset)
{
    term.data = term.data ? term.data + offset : NULL;
    return term;
}

static const float *at_or_null(const float *data, size_t offset)
{
    return data ? data + offset : NULL;
}

void flim_cpu_layer_forward(const flim_cpu_layer *layer, const flim_cpu_team *team, const float *z, flim_cpu_term skip,
                            const float *dropout, float *y)
{
    const flim_cpu_term term = {z, layer->scale, layer->shift, slope_of(layer)};
    const bool pooled = layer->unit.pool_t == 2;
    FOR_CHUNKS(layer, team, k)
    {
        size_t begin = chunk_begin(layer, layer->unit.out[0], k), end = chunk_begin(layer, layer->unit.out[0], k + 1);
        size_t in = (pooled ? 2 : 1) * begin * layer->plane, out = begin * layer->plane;
        const flim_cpu_forward run = {term_at(term, in), term_at(skip, in), dropout, y + out};
        if (pooled) {
            team->kernels->forward_pool(&run, layer->plane, end - begin, layer->period);
        } else {
            team->kernels->forward(&run, (end - begin) * layer->plane, layer->period);
        }
    }
}

void flim_cpu_layer_pool(const flim_cpu_layer *layer, const flim_cpu_team *team, const float *y, double *partial)
{
    FOR_CHUNKS(layer, team, k)
    {
        size_t begin = chunk_begin(layer, layer->unit.out[0], k), end = chunk_begin(layer, layer->unit.out[0], k + 1);
        team->kernels->moments(y + begin * layer->plane, layer->zero, chunk_sum(layer, partial, k),
                               (end - begin) * layer->plane, layer->period);
    }
}

void flim_cpu_layer_finish_pool(const flim_cpu_layer *layer, const double *partial, float *mean)
{
    for (int c = 0; c < layer->unit.out_channels; c++) {
        double sum = 0.0;
        for (int k = 0; k < layer->chunks; k++) {
            sum += fold(layer, partial + (size_t)k * 2 * layer->period, c);
        }
        mean[c] = (float)(sum / (double)volume(layer->unit.out));
    }
}

void flim_cpu_layer_dv(const flim_cpu_layer *layer, const flim_cpu_team *team, const flim_cpu_layer_dv_run *run,
                       double *partial)
{
    const flim_cpu_term term = {run->z, layer->scale, layer->shift, slope_of(layer)};
    const bool pooled = layer->unit.pool_t == 2;
    const int pooled_bins = 2 * layer->unit.out[0], bins = layer->unit.conv_out[0];
    FOR_CHUNKS(layer, team, k)
    {
        size_t begin = chunk_begin(layer, layer->unit.out[0], k), end = chunk_begin(layer, layer->unit.out[0], k + 1);
        size_t in = (pooled ? 2 : 1) * begin * layer->plane, out = begin * layer->plane;
        double *sum = chunk_sum(layer, partial, k);
        if (pooled) {
            const flim_cpu_unpool unpool = {run->dy + out,     at_or_null(run->dy2, out),
                                            term_at(term, in), term_at(run->skip, in),
                                            layer->center,     run->dropout,
                                            run->dv + in,      sum};
            team->kernels->unpool(&unpool, layer->plane, end - begin, layer->period);
        } else {
            const flim_cpu_act_backward unpooled = {run->dy + out,
                                                    at_or_null(run->dy2, out),
                                                    at_or_null(run->y, out),
                                                    term_at(term, in),
                                                    layer->center,
                                                    run->dropout,
                                                    run->dv ? run->dv + in : NULL,
                                                    sum};
            team->kernels->act_backward(&unpooled, (end - begin) * layer->plane, layer->period);
        }
    }
    if (pooled && bins > pooled_bins) { /* bins that the pool's floor leaves out get no gradient */
        memset(run->dv + (size_t)pooled_bins * layer->plane, 0, (size_t)(bins - pooled_bins) * layer->plane * sizeof(float));
    }
}

void flim_cpu_layer_sum_dv(const flim_cpu_layer *layer, const double *partial, int64_t n, double *sums)
{
    const size_t row = 2 * layer->period;
    for (int c = 0; c < layer->unit.out_channels; c++) {
        double s1 = 0.0, s2 = 0.0;
        for (int64_t i = 0; i < n; i++) {
            const double *cell = partial + (size_t)i * flim_cpu_layer_partials(layer);
            for (int k = 0; k < layer->chunks; k++) {
                s1 += fold(layer, cell + (size_t)k * row, c);
                s2 += fold(layer, cell + (size_t)k * row + layer->period, c);
            }
        }
        sums[c] = s1;
        sums[layer->unit.out_channels + c] = s2;
    }
}

void flim_cpu_layer_finish_dv(flim_cpu_layer *layer, const double *own, const double *all, const flim_cpu_norm *norm,
                              float *dgamma, float *dbeta, float *dbias)
{
    const int channels = layer->unit.out_channels;
    const double total = layer->count;
    for (int c = 0; c < channels; c++) {
        const double s1 = own[c], s2 = own[channels + c];
        double inverse = (double)layer->a[c], a = 1.0, b = 0.0, d = 0.0;
        if (layer->bn) {
            a = (double)norm->gamma[c] * inverse;
            if (!layer->frozen) {
                b = -a * inverse * inverse * all[channels + c] / total;
                d = -a * all[c] / total;
            }
            dgamma[c] += (float)(inverse * s2);
            dbeta[c] += (float)s1;
        }
        dbias[c] += layer->bn && !layer->frozen ? 0.0f : (float)(a * s1);
        fill_row(layer, layer->a, c, (float)a);
        fill_row(layer, layer->b, c, (float)b);
        fill_row(layer, layer->d, c, (float)d);
    }
}

void flim_cpu_layer_apply(const flim_cpu_layer *layer, const flim_cpu_team *team, const float *dv, bool from_dy,
                          const float *z, float *dz)
{
    const flim_cpu_term term = {z, layer->scale, layer->shift, slope_of(layer)};
    const int bins = layer->unit.conv_out[0];
    FOR_CHUNKS(layer, team, k)
    {
        size_t begin = chunk_begin(layer, bins, k) * layer->plane, end = chunk_begin(layer, bins, k + 1) * layer->plane;
        const flim_cpu_apply run = {dv + begin, term_at(term, begin), from_dy, layer->center, layer->a, layer->b, layer->d,
                                    dz + begin};
        team->kernels->apply(&run, end - begin, layer->period);
    }
}

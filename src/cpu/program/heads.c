#include "cpu/program/heads.h"

#include <string.h>

#include "core/try.h"
#include "cpu/layers/cpu_hidden.h"
#include "cpu/program/cell_loop.h"
#include "cpu/program/cpu_sync.h"
#include "cpu/program/forward.h"

static float *tensor_at(const flim_cpu_program *p, float *array, int k, flim_tensor_role role, int index)
{
    const flim_tensor *t = flim_network_tensor(&p->base.net, p->base.net.n_units + k, role, index);
    return array && t ? array + t->offset : NULL;
}

/* Where moves of a running statistic of head k are noted; NULL if they are made at once. */
static flim_cpu_move *moves_at(const flim_cpu_program *p, int k, flim_tensor_role role)
{
    const flim_tensor *t = flim_network_tensor(&p->base.net, p->base.net.n_units + k, role, 0);
    return p->noting && t ? p->moves + t->offset : NULL;
}

/* Head k with its parameters; gradients if `training`. */
static flim_cpu_head head_of(flim_cpu_program *p, int k, bool training)
{
    float *gradients = training ? p->gradients : NULL;
    return (flim_cpu_head){.shape = p->base.net.head[k],
                           .frozen = p->frozen,
                           .momentum = p->momentum,
                           .unit = (uint32_t)(p->base.net.n_units + k),
                           .fc1_weight = tensor_at(p, p->parameters, k, FLIM_TENSOR_LINEAR_WEIGHT, 0),
                           .fc1_bias = tensor_at(p, p->parameters, k, FLIM_TENSOR_BIAS, 0),
                           .gamma = tensor_at(p, p->parameters, k, FLIM_TENSOR_BN_WEIGHT, 0),
                           .beta = tensor_at(p, p->parameters, k, FLIM_TENSOR_BN_BIAS, 0),
                           .fc2_weight = tensor_at(p, p->parameters, k, FLIM_TENSOR_LINEAR_WEIGHT, 1),
                           .fc2_bias = tensor_at(p, p->parameters, k, FLIM_TENSOR_BIAS, 1),
                           .running_mean = tensor_at(p, p->statistics, k, FLIM_TENSOR_RUNNING_MEAN, 0),
                           .running_var = tensor_at(p, p->statistics, k, FLIM_TENSOR_RUNNING_VAR, 0),
                           .move_mean = moves_at(p, k, FLIM_TENSOR_RUNNING_MEAN),
                           .move_var = moves_at(p, k, FLIM_TENSOR_RUNNING_VAR),
                           .dfc1_weight = tensor_at(p, gradients, k, FLIM_TENSOR_LINEAR_WEIGHT, 0),
                           .dfc1_bias = tensor_at(p, gradients, k, FLIM_TENSOR_BIAS, 0),
                           .dgamma = tensor_at(p, gradients, k, FLIM_TENSOR_BN_WEIGHT, 0),
                           .dbeta = tensor_at(p, gradients, k, FLIM_TENSOR_BN_BIAS, 0),
                           .dfc2_weight = tensor_at(p, gradients, k, FLIM_TENSOR_LINEAR_WEIGHT, 1),
                           .dfc2_bias = tensor_at(p, gradients, k, FLIM_TENSOR_BIAS, 1),
                           .work = p->head[k].work};
}

static bool is_dense(const flim_cpu_program *p, int k)
{
    return p->base.net.head[k].kind == FLIM_HEAD_DENSE;
}

/* The mean over T,H,W of a cell's y. */
static void pool_cell(flim_cpu_program *p, flim_cpu_mode mode, int k, int64_t cell, const float *y)
{
    const flim_head *head = &p->base.net.head[k];
    const flim_cpu_layer *layer = &p->node[head->unit].layer;
    const flim_cpu_team team = flim_cpu_team_of(p, mode);
    double *partial = p->partial + (size_t)cell * p->head_partials;
    flim_cpu_layer_pool(layer, &team, y, partial);
    flim_cpu_layer_finish_pool(layer, partial, p->head[k].mean + cell * head->in_channels);
}

/* y of a head's unit for a cell, saved or computed in worker->x. */
static const float *unit_y(const flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int u, int64_t cell,
                           bool saved)
{
    const flim_cpu_node *node = &p->node[u];
    if (saved) {
        return flim_cpu_cell(p, node->y, node->layer.y_floats, cell);
    }
    flim_cpu_make_y(p, mode, u, cell, worker->x);
    return worker->x;
}

/* A cell of a dense head.  divisor: of flim_step. */
static flim_cpu_dense dense_cell(const flim_cpu_program *p, int k, const flim_batch *batch, int64_t cell, const float *y)
{
    const int *in = p->base.net.in;
    const size_t plane = (size_t)in[1] * (size_t)in[2];
    return (flim_cpu_dense){.head = &p->base.net.head[k],
                            .bins = (size_t)in[0],
                            .plane = plane,
                            .y = y,
                            .signal = batch->signal + (size_t)cell * plane * (size_t)in[0],
                            .mask = batch->mask + (size_t)cell * plane,
                            .hidden = p->hidden_bytes > 0 ? p->hidden + (size_t)cell * plane * (size_t)in[0] : NULL};
}

static flim_status head_cell(flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell, void *context,
                             flim_error *err)
{
    (void)err;
    const flim_batch *batch = context;
    for (int k = 0; k < p->base.net.n_heads; k++) {
        const int u = p->base.net.head[k].unit;
        const float *y = unit_y(p, mode, worker, u, cell, p->node[u].save_y);
        if (is_dense(p, k)) {
            const flim_cpu_dense dense = dense_cell(p, k, batch, cell, y);
            if (flim_loss_is_hidden(dense.head->loss)) {
                const flim_hidden_totals sums = flim_cpu_hidden_sums(&dense, worker->margins);
                p->hidden_sums[cell] = sums;
                p->head[k].work[cell] = sums.voxels > 0 ? sums.loss / sums.voxels : 0.0;
            } else {
                p->head[k].work[cell] = flim_cpu_dense_loss(&dense);
            }
        } else {
            pool_cell(p, mode, k, cell, y);
        }
    }
    return FLIM_OK;
}

static flim_cpu_loss dense_loss(const flim_cpu_program *p, int k, const flim_batch *batch)
{
    const flim_head *head = &p->base.net.head[k];
    flim_cpu_loss out = {0};
    for (int64_t i = 0; i < batch->n; i++) {
        const double weight = flim_cell_weight(head, batch->weight[i], batch->label[i]);
        out.loss += weight * (double)head->weight * p->head[k].work[i];
        out.weight += weight;
    }
    return out;
}

/* What the heads take of each cell: the mean of y, or a dense head's loss. */
static flim_status take_cells(flim_cpu_program *p, const flim_batch *batch, flim_error *err)
{
    union {
        const flim_batch *in;
        void *context;
    } loop = {batch};
    return flim_cpu_for_cells(p, batch->n, head_cell, loop.context, err);
}

static flim_status pooled_forward(flim_cpu_program *p, int k, const flim_cpu_head *head, const flim_batch *batch,
                                  flim_error *err)
{
    const double *moments;
    flim_cpu_head_hidden(head, batch->n, p->head[k].mean, p->own);
    FLIM_TRY(flim_cpu_sync_moments(p, head->shape.hidden, &moments, err));
    flim_cpu_head_forward(head, batch->n, moments, batch->id, p->step->dropout, p->head[k].logits);
    return FLIM_OK;
}

flim_status flim_cpu_heads_statistics(flim_cpu_program *p, const flim_batch *batch, flim_error *err)
{
    FLIM_TRY(take_cells(p, batch, err));
    for (int k = 0; k < p->base.net.n_heads; k++) {
        if (!is_dense(p, k)) {
            const flim_cpu_head head = head_of(p, k, true);
            FLIM_TRY(pooled_forward(p, k, &head, batch, err));
        }
    }
    return FLIM_OK;
}

void flim_cpu_heads_add_hidden(flim_cpu_program *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        flim_hidden_totals *t = &p->totals.hidden;
        t->voxels += p->hidden_sums[i].voxels;
        t->photons += p->hidden_sums[i].photons;
        t->loss += p->hidden_sums[i].loss;
        t->baseline += p->hidden_sums[i].baseline;
    }
}

flim_status flim_cpu_heads_forward(flim_cpu_program *p, const flim_batch *batch, flim_cpu_loss *out, flim_error *err)
{
    *out = (flim_cpu_loss){0};
    FLIM_TRY(take_cells(p, batch, err));
    for (int k = 0; k < p->base.net.n_heads; k++) {
        flim_cpu_loss loss;
        if (is_dense(p, k)) {
            loss = dense_loss(p, k, batch);
            if (flim_loss_is_hidden(p->base.net.head[k].loss)) {
                flim_cpu_heads_add_hidden(p, batch->n);
            }
        } else {
            const flim_cpu_head head = head_of(p, k, true);
            FLIM_TRY(pooled_forward(p, k, &head, batch, err));
            const flim_cpu_targets targets = {.label = batch->label,
                                              .weight = batch->weight,
                                              .target = batch->target,
                                              .classes = p->base.net.classes,
                                              .smoothing = (double)p->step->label_smoothing,
                                              .gamma = (double)p->step->focal_gamma};
            loss = flim_cpu_head_loss(&head, batch->n, p->head[k].logits, &targets, p->step->divisor);
        }
        out->loss += loss.loss;
        if (k == 0) {
            out->weight = loss.weight;
            out->correct = loss.correct;
        }
    }
    return FLIM_OK;
}

flim_status flim_cpu_heads_backward(flim_cpu_program *p, int64_t n, flim_error *err)
{
    for (int k = 0; k < p->base.net.n_heads; k++) {
        if (!is_dense(p, k)) {
            const flim_cpu_head head = head_of(p, k, true);
            const double *sums;
            flim_cpu_head_sum_gradients(&head, n, p->own);
            FLIM_TRY(flim_cpu_sync_sums(p, 2 * (size_t)head.shape.hidden, &sums, err));
            flim_cpu_head_backward(&head, n, sums, p->head[k].mean, p->head[k].dmean);
        }
    }
    return FLIM_OK;
}

/* Every voxel of a channel has the same share of the mean's gradient. */
static void spread_mean(const flim_cpu_layer *layer, const float *dmean, bool first, float *dy)
{
    const size_t channels = (size_t)layer->unit.out_channels, voxels = layer->y_floats / channels;
    for (size_t c = 0; c < channels; c++) {
        dy[c] = first ? dmean[c] / (float)voxels : dy[c] + dmean[c] / (float)voxels;
    }
}

const float *flim_cpu_heads_dy(const flim_cpu_program *p, flim_cpu_mode mode, flim_cpu_worker *worker,
                               const flim_batch *batch, int u, int64_t cell)
{
    const flim_cpu_node *node = &p->node[u];
    const flim_network *net = &p->base.net;
    const size_t channels = (size_t)node->layer.unit.out_channels;
    bool first = true;
    if (node->heads == 0) {
        return NULL;
    }
    for (int k = 0; k < net->n_heads; k++) { /* pooled heads: one voxel, then all are like it */
        if (net->head[k].unit == u && !is_dense(p, k)) {
            spread_mean(&node->layer, p->head[k].dmean + (size_t)cell * channels, first, worker->x);
            first = false;
        }
    }
    for (size_t v = 1; !first && v < node->layer.y_floats / channels; v++) {
        memcpy(worker->x + v * channels, worker->x, channels * sizeof(float));
    }
    for (int k = 0; k < net->n_heads; k++) {
        if (net->head[k].unit == u && is_dense(p, k)) {
            const bool saved = node->save_y && node->layer.unit.pool_t == 1;
            float *y = worker->dz; /* not in use before dz of this unit; a dense head's y is no larger than z */
            if (!saved) {
                flim_cpu_make_y(p, mode, u, cell, y);
            }
            flim_cpu_dense dense =
                dense_cell(p, k, batch, cell, saved ? flim_cpu_cell(p, node->y, node->layer.y_floats, cell) : y);
            dense.share = flim_cell_weight(dense.head, batch->weight[cell], batch->label[cell]) * (double)dense.head->weight /
                          p->step->divisor;
            flim_cpu_dense_backward(&dense, first, worker->x);
            first = false;
        }
    }
    return worker->x;
}

/* Where the logits of head k begin for n cells. */
static float *logits_at(const flim_cpu_program *p, int k, int64_t n, float *logits)
{
    for (int i = 0; i < k; i++) {
        logits += n * flim_head_outputs(&p->base.net, i);
    }
    return logits;
}

void flim_cpu_heads_read(flim_cpu_program *p, flim_cpu_mode mode, int k, int64_t n, int64_t cell, const float *y,
                         float *logits)
{
    if (is_dense(p, k)) { /* one channel: its voxels are in order */
        const size_t voxels = (size_t)flim_head_outputs(&p->base.net, k);
        memcpy(logits_at(p, k, n, logits) + (size_t)cell * voxels, y, voxels * sizeof *y);
    } else {
        pool_cell(p, mode, k, cell, y);
    }
}

void flim_cpu_heads_evaluate(flim_cpu_program *p, flim_cpu_worker *worker, int k, const flim_batch *batch, int64_t cell,
                             const float *y)
{
    if (flim_loss_is_hidden(p->base.net.head[k].loss)) {
        const flim_cpu_dense dense = dense_cell(p, k, batch, cell, y);
        p->hidden_sums[cell] = flim_cpu_hidden_sums(&dense, worker->margins);
    }
}

void flim_cpu_heads_predict(flim_cpu_program *p, int64_t n, float *logits)
{
    for (int k = 0; k < p->base.net.n_heads; k++) {
        if (!is_dense(p, k)) {
            const flim_cpu_head head = head_of(p, k, false);
            flim_cpu_head_hidden(&head, n, p->head[k].mean, NULL);
            flim_cpu_head_forward(&head, n, NULL, NULL, 0.0f, logits_at(p, k, n, logits));
        }
    }
}

#include "cpu/program/cpu_layout.h"

#include <string.h>

#include "backend/shortage.h"
#include "core/alloc.h"
#include "core/host_memory.h"
#include "cpu/layers/cpu_hidden.h"
#include "cpu/program/cpu_sync.h"

enum { ALIGNMENT = 64 };

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A buffer of the arena that holds something from step `first` to `last` at least. */
static int add_buffer(flim_arena *arena, size_t bytes, int first, int last)
{
    const int buffer = flim_arena_add(arena, 0, (int64_t)bytes);
    flim_arena_touch(arena, buffer, first);
    flim_arena_touch(arena, buffer, last);
    return buffer;
}

/* Step of the backward pass of unit u. */
static int backward_step(const flim_cpu_program *p, int u)
{
    return 2 * p->base.net.n_units - u;
}

/* Who reads each unit's y, and thus where its gradient comes from. */
static void find_uses(flim_cpu_program *p)
{
    const flim_network *net = &p->base.net;
    for (int u = 0; u < net->n_units; u++) {
        p->node[u].first_use = p->node[u].last_use = -1;
    }
    for (int k = 0; k < net->n_heads; k++) {
        p->node[net->head[k].unit].heads++;
    }
    for (int pass = 0; pass < 2; pass++) { /* input gradients first: dv can then overwrite the first source */
        for (int u = 0; u < net->n_units; u++) {
            int from = pass == 0 ? net->unit[u].input : net->unit[u].skip;
            if (from >= 0) {
                flim_cpu_node *node = &p->node[from];
                node->source[node->n_sources++] = (flim_cpu_source){u, pass == 1};
                node->first_use = node->first_use < 0 || u < node->first_use ? u : node->first_use;
                node->last_use = u > node->last_use ? u : node->last_use;
            }
        }
    }
}

/* Which z are dropped: in a block that recomputes, those that no other block reads.  Not in the last block, which would be
 * recomputed at once. */
static void find_recomputed(flim_cpu_program *p)
{
    const flim_network *net = &p->base.net;
    for (int u = 0; u < net->n_units; u++) {
        flim_cpu_node *node = &p->node[u];
        bool inside = true;
        for (int r = 0; r < net->n_units; r++) {
            if (net->unit[r].input == u || net->unit[r].skip == u) {
                inside = inside && p->node[r].layer.unit.block == node->layer.unit.block;
            }
        }
        const bool reads_y = !node->layer.plain_y; /* then others read its y */
        node->recomputed =
            node->layer.unit.block < p->blocks_recomputed && node->layer.unit.block < p->n_blocks - 1 && (inside || reads_y);
    }
}

/* Last step of the forward pass that reads z: a unit, or n_units for the heads. */
static int last_forward_read(const flim_cpu_program *p, int u)
{
    const flim_cpu_node *node = &p->node[u];
    if (node->heads > 0) {
        return p->base.net.n_units;
    }
    if (node->layer.plain_y) {
        return node->last_use > u ? node->last_use : u;
    }
    return node->save_y && node->y_in_next ? u + 1 : u;
}

/* Step before which the z of unit u is recomputed: the backward pass of the unit after its block. */
static int recompute_step(const flim_cpu_program *p, int u)
{
    int last = u;
    while (last + 1 < p->base.net.n_units && p->node[last + 1].layer.unit.block == p->node[u].layer.unit.block) {
        last++;
    }
    return backward_step(p, last + 1);
}

static void plan_forward(flim_cpu_program *p, size_t n)
{
    const flim_network *net = &p->base.net;
    for (int u = 0; u < net->n_units; u++) {
        flim_cpu_node *node = &p->node[u];
        const flim_cpu_layer *layer = &node->layer;
        const bool pooled = layer->unit.pool_t > 1, only_heads = node->first_use < 0;
        node->save_y = !layer->plain_y && !(only_heads && pooled);
        node->y_in_next = u + 1 < net->n_units && net->unit[u + 1].input == u;
        node->z = add_buffer(&p->arena, n * layer->z_floats * sizeof(float), u,
                             node->recomputed ? last_forward_read(p, u) : backward_step(p, u));
        if (node->recomputed) {
            flim_arena_begin_again(&p->arena, node->z);
            flim_arena_touch(&p->arena, node->z, recompute_step(p, u));
            flim_arena_touch(&p->arena, node->z, backward_step(p, u));
        }
        if (node->save_y) {
            int until = pooled && node->first_use >= 0 ? backward_step(p, node->first_use) : backward_step(p, u);
            node->y = add_buffer(&p->arena, n * layer->y_floats * sizeof(float), u, until);
        }
    }
}

static void plan_backward(flim_cpu_program *p, size_t n)
{
    const flim_network *net = &p->base.net;
    for (int u = net->n_units - 1; u >= 0; u--) {
        flim_cpu_node *node = &p->node[u];
        const flim_cpu_layer *layer = &node->layer;
        const int now = backward_step(p, u);
        node->dv_in_next = u + 1 < net->n_units && net->unit[u + 1].input == u;
        node->store_dv = !layer->plain_y || node->n_sources + (node->heads > 0) > 1;
        if (node->store_dv) {
            if (layer->unit.pool_t > 1 || node->n_sources == 0 || p->base.options.inspect) {
                node->dv = add_buffer(&p->arena, n * layer->z_floats * sizeof(float), now - 1, now);
            } else {
                const flim_cpu_node *from = &p->node[node->source[0].from];
                node->dv = node->source[0].skip ? from->dv : from->dx;
            }
            flim_arena_touch(&p->arena, node->dv, now);
            if (layer->unit.skip >= 0) {
                flim_arena_touch(&p->arena, node->dv, backward_step(p, layer->unit.skip));
            }
        }
        if (p->base.options.inspect) {
            node->dz = add_buffer(&p->arena, n * layer->z_floats * sizeof(float), now, now);
        }
        if (layer->unit.input >= 0) {
            node->dx = add_buffer(&p->arena, n * layer->x_floats * sizeof(float), now, backward_step(p, layer->unit.input));
        }
    }
}

static void place(const flim_cpu_program *p, flim_arena *arena)
{
    if (p->base.options.inspect) {
        flim_arena_place_apart(arena);
    } else {
        flim_arena_place(arena);
    }
}

static void plan_eval(flim_cpu_program *p)
{
    const flim_network *net = &p->base.net;
    p->eval_arena = (flim_arena){.alignment = ALIGNMENT};
    for (int u = 0; u < net->n_units; u++) {
        flim_cpu_node *node = &p->node[u];
        const int until = node->last_use < 0 || node->heads > 0 ? net->n_units : node->last_use;
        const bool pooled = node->layer.unit.pool_t > 1;
        node->eval_z = add_buffer(&p->eval_arena, node->layer.z_floats * sizeof(float), u, pooled ? u : until);
        node->eval_y = pooled || p->base.options.inspect
                           ? add_buffer(&p->eval_arena, node->layer.y_floats * sizeof(float), u, until)
                           : node->eval_z;
    }
    place(p, &p->eval_arena);
}

/* Sizes of what a worker has to itself, and of what is per unit. */
static void plan_workers(flim_cpu_program *p, size_t n)
{
    const flim_network *net = &p->base.net;
    p->x_floats = (size_t)net->channels * (size_t)net->in[0] * (size_t)net->in[1] * (size_t)net->in[2];
    for (int u = 0; u < net->n_units; u++) {
        flim_cpu_node *node = &p->node[u];
        const flim_cpu_layer *layer = &node->layer;
        p->x_floats = larger(p->x_floats, layer->plain_y || node->heads > 0 ? layer->y_floats : 0);
        p->row_floats += flim_cpu_layer_row_floats(layer);
        p->plain_floats = larger(p->plain_floats, larger(node->conv[0].weight_floats, node->conv[1].weight_floats));
        for (int mode = 0; mode < FLIM_CPU_MODES; mode++) {
            const flim_cpu_conv *conv = &node->conv[mode];
            p->scratch_bytes[mode] = larger(p->scratch_bytes[mode], conv->scratch_bytes);
            p->dweight_bytes = larger(p->dweight_bytes, conv->weight_bytes[FLIM_CPU_BACKWARD_W]);
            p->laid_out_bytes += conv->weight_bytes[FLIM_CPU_FORWARD] + conv->weight_bytes[FLIM_CPU_BACKWARD_X];
        }
        if (p->base.options.train_batch > 0) {
            p->dz_floats = larger(p->dz_floats, layer->z_floats);
            p->partial_doubles = larger(p->partial_doubles, n * flim_cpu_layer_partials(layer));
            p->dropout_floats += layer->unit.dropout ? n * layer->period : 0;
        }
    }
}

static void plan_heads(flim_cpu_program *p)
{
    const flim_network *net = &p->base.net;
    const size_t most = larger((size_t)p->base.options.train_batch, (size_t)p->base.options.eval_batch);
    for (int k = 0; k < net->n_heads; k++) {
        const flim_head *head = &net->head[k];
        const bool dense = head->kind == FLIM_HEAD_DENSE;
        p->head_floats += dense ? 0 : most * (2 * (size_t)head->in_channels + (size_t)head->outputs);
        p->head_doubles += dense ? most : flim_cpu_head_work(head, (int64_t)most);
        p->head_partials = larger(p->head_partials, dense ? 0 : flim_cpu_layer_partials(&p->node[head->unit].layer));
    }
    p->partial_doubles = larger(p->partial_doubles, most * p->head_partials);
}

/* Moments or sums of the widest BatchNorm. */
static void plan_sync(flim_cpu_program *p)
{
    const flim_network *net = &p->base.net;
    int widest = 0;
    for (int u = 0; u < net->n_units; u++) {
        widest = net->unit[u].out_channels > widest ? net->unit[u].out_channels : widest;
    }
    for (int k = 0; k < net->n_heads; k++) {
        widest = net->head[k].hidden > widest ? net->head[k].hidden : widest;
    }
    p->sync_doubles = p->base.options.train_batch > 0 ? flim_cpu_moment_doubles(widest) : 0;
}

static size_t cell_pixels(const flim_network *net)
{
    return (size_t)net->in[1] * (size_t)net->in[2];
}

static size_t margin_bytes(const flim_cpu_program *p)
{
    const flim_network *net = &p->base.net;
    return p->hidden_cells > 0 ? flim_cpu_hidden_work(net->in[0], cell_pixels(net)) * sizeof(double) : 0;
}

static void plan_hidden(flim_cpu_program *p)
{
    const flim_network *net = &p->base.net;
    p->hidden_cells =
        net->channels == 3 ? larger((size_t)p->base.options.train_batch, (size_t)p->base.options.eval_batch) : 0;
    p->hidden_bytes = p->hidden_cells * cell_pixels(net) * (size_t)net->in[0];
}

static size_t worker_bytes(const flim_cpu_program *p, flim_cpu_mode mode)
{
    size_t bytes = round_up(p->x_floats * sizeof(float)) + round_up(p->dz_floats * sizeof(float)) + p->scratch_bytes[mode];
    bytes += round_up(margin_bytes(p));
    return bytes + 2 * p->dweight_bytes;
}

/* The training arena with the insides of the first `blocks` blocks dropped. */
static void plan_training(flim_cpu_program *p, int blocks)
{
    const size_t train = (size_t)p->base.options.train_batch;
    const size_t workers = p->base.options.inspect ? (size_t)p->base.options.eval_batch
                           : p->cell_workers > 0   ? (size_t)p->cell_workers
                                                   : 1;
    p->arena = (flim_arena){.alignment = ALIGNMENT};
    p->blocks_recomputed = blocks;
    for (int u = 0; u < p->base.net.n_units; u++) {
        flim_cpu_node *node = &p->node[u];
        node->z = node->y = node->dx = node->dv = node->dz = FLIM_NO_BUFFER;
    }
    if (train > 0) {
        find_recomputed(p);
        plan_forward(p, train);
        plan_backward(p, train);
        place(p, &p->arena);
    }
    p->activation_bytes = larger((size_t)p->arena.bytes, (size_t)p->eval_arena.bytes * workers);
}

static int64_t planned_bytes(const flim_cpu_program *p)
{
    flim_memory_plan plan = {0};
    flim_cpu_plan_memory(p, &plan, NULL);
    return plan.total[FLIM_MEMORY_DEVICE];
}

void flim_cpu_plan(flim_cpu_program *p)
{
    const flim_recompute recompute = p->base.options.recompute;
    for (int u = 0; u < p->base.net.n_units; u++) {
        flim_cpu_node *node = &p->node[u];
        node->eval_z = node->eval_y = FLIM_NO_BUFFER;
    }
    find_uses(p);
    p->n_blocks = flim_network_blocks(&p->base.net);
    if (p->base.options.eval_batch > 0) {
        plan_eval(p);
    }
    plan_workers(p, (size_t)p->base.options.train_batch);
    plan_heads(p);
    plan_sync(p);
    plan_hidden(p);
    p->worker_bytes = (size_t)p->cell_workers * worker_bytes(p, FLIM_CPU_MODE_CELLS);
    p->worker_bytes += p->uses[FLIM_CPU_MODE_SHARED] ? worker_bytes(p, FLIM_CPU_MODE_SHARED) : 0;
    plan_training(p, recompute == FLIM_RECOMPUTE_ALL ? p->n_blocks : 0);
    for (int b = 1; recompute == FLIM_RECOMPUTE_AUTO && b < p->n_blocks && planned_bytes(p) > p->base.options.memory_limit;
         b++) {
        plan_training(p, b);
    }
    if (recompute == FLIM_RECOMPUTE_AUTO) { /* what it came to; the last block is never recomputed */
        p->base.options.recompute = p->blocks_recomputed == 0                 ? FLIM_RECOMPUTE_NONE
                                    : p->blocks_recomputed == p->n_blocks - 1 ? FLIM_RECOMPUTE_ALL
                                                                              : FLIM_RECOMPUTE_AUTO;
    }
}

static size_t ranks_of(const flim_cpu_program *p)
{
    return (size_t)flim_ranks_size(p->base.options.ranks);
}

/* Moves of running statistics that a rank notes. */
static size_t moves_of(const flim_cpu_program *p)
{
    const bool apart = ranks_of(p) > 1 && !flim_cpu_is_synced(p);
    return p->base.options.train_batch > 0 && apart ? (size_t)p->base.net.statistics : 0;
}

static size_t synced_of(const flim_cpu_program *p)
{
    return flim_cpu_is_synced(p) ? ranks_of(p) * p->sync_doubles : 0;
}

flim_status flim_cpu_plan_memory(const flim_cpu_program *p, flim_memory_plan *plan, flim_error *err)
{
    (void)err;
    const int64_t real = (int64_t)sizeof(float), parameters = p->base.net.parameters * real;
    const bool train = p->base.options.train_batch > 0, average = train && p->base.options.average;
    const struct {
        const char *name;
        int64_t bytes;
    } item[] = {
        {"parameters", parameters},
        {"gradients", train ? parameters : 0},
        {"Adam moments", train ? 2 * parameters : 0},
        {"BatchNorm statistics", (train ? 2 : 1) * p->base.net.statistics * real},
        {"averages of weights and statistics", average ? parameters + p->base.net.statistics * real : 0},
        {"activations and their gradients", (int64_t)p->activation_bytes},
        {"weights as oneDNN lays them out", (int64_t)p->laid_out_bytes},
        {"a cell's buffers and scratch, all threads", (int64_t)p->worker_bytes},
        {"sums of BatchNorm", (int64_t)((p->partial_doubles + p->sync_doubles) * sizeof(double))},
        {"coefficients, dropout, weight staging", (int64_t)(p->row_floats + p->dropout_floats + p->plain_floats) * real},
        {"hidden voxels", (int64_t)(p->hidden_bytes + p->hidden_cells * sizeof(flim_hidden_totals))},
        {"head", (int64_t)(p->head_floats * sizeof(float) + p->head_doubles * sizeof(double))},
        {"BatchNorm statistics of all ranks",
         (int64_t)((1 + ranks_of(p)) * moves_of(p) * sizeof(flim_cpu_move) + synced_of(p) * sizeof(double))}};
    for (size_t i = 0; i < sizeof item / sizeof item[0]; i++) {
        flim_memory_add(plan, item[i].name, FLIM_MEMORY_DEVICE, item[i].bytes);
    }
    return FLIM_OK;
}

/* Hands `bytes` of *at out and moves on. */
static void *take(unsigned char **at, size_t bytes)
{
    void *memory = bytes > 0 ? *at : NULL;
    *at += round_up(bytes);
    return memory;
}

static void divide_worker_memory(flim_cpu_program *p)
{
    unsigned char *at = p->worker_memory;
    const int workers = p->cell_workers + (p->uses[FLIM_CPU_MODE_SHARED] ? 1 : 0);
    for (int w = 0; w < workers; w++) {
        flim_cpu_worker *worker = &p->workers[w];
        const flim_cpu_mode mode = w < p->cell_workers ? FLIM_CPU_MODE_CELLS : FLIM_CPU_MODE_SHARED;
        worker->x = take(&at, p->x_floats * sizeof(float));
        worker->dz = take(&at, p->dz_floats * sizeof(float));
        worker->margins = take(&at, margin_bytes(p));
        worker->scratch = take(&at, p->scratch_bytes[mode]);
        worker->dweight = take(&at, p->dweight_bytes);
        worker->sum = take(&at, p->dweight_bytes);
    }
}

static void divide_unit_memory(flim_cpu_program *p)
{
    unsigned char *laid_out = p->laid_out;
    float *rows = p->rows, *dropout = p->dropout_rows;
    for (int u = 0; u < p->base.net.n_units; u++) {
        flim_cpu_node *node = &p->node[u];
        flim_cpu_layer_set_rows(&node->layer, rows);
        rows += flim_cpu_layer_row_floats(&node->layer);
        for (int mode = 0; mode < FLIM_CPU_MODES; mode++) {
            node->weight[mode][0] = take(&laid_out, node->conv[mode].weight_bytes[FLIM_CPU_FORWARD]);
            node->weight[mode][1] = take(&laid_out, node->conv[mode].weight_bytes[FLIM_CPU_BACKWARD_X]);
        }
        if (node->layer.unit.dropout && p->base.options.train_batch > 0) {
            node->dropout = dropout;
            dropout += (size_t)p->base.options.train_batch * node->layer.period;
        }
    }
}

static void divide_head_memory(flim_cpu_program *p)
{
    const flim_network *net = &p->base.net;
    const size_t most = larger((size_t)p->base.options.train_batch, (size_t)p->base.options.eval_batch);
    float *data = p->head_data;
    double *work = p->head_work;
    for (int k = 0; k < net->n_heads; k++) {
        const flim_head *head = &net->head[k];
        const bool dense = head->kind == FLIM_HEAD_DENSE;
        p->head[k] = (flim_cpu_head_memory){.work = work};
        work += dense ? most : flim_cpu_head_work(head, (int64_t)most);
        if (!dense) {
            p->head[k].mean = data;
            p->head[k].dmean = p->head[k].mean + most * (size_t)head->in_channels;
            p->head[k].logits = p->head[k].dmean + most * (size_t)head->in_channels;
            data = p->head[k].logits + most * (size_t)head->outputs;
        }
    }
}

/* What was needed, what is free, and the largest batch that would do: only some of the memory grows with the batch. */
static flim_status explain_memory(const flim_cpu_program *p, int64_t needed, int64_t available, flim_error *err)
{
    const size_t most = larger((size_t)p->base.options.train_batch, (size_t)p->base.options.eval_batch);
    const size_t growing = (p->base.options.train_batch > 0 ? p->activation_bytes : 0) + p->partial_doubles * sizeof(double) +
                           p->dropout_floats * sizeof(float) + p->hidden_bytes + p->head_doubles * sizeof(double) +
                           p->head_floats * sizeof(float);
    const double cell = (double)growing / (double)most, rest = (double)needed - (double)growing;
    const double reserve = 0.06 * (double)available; /* for threads, and what others take meanwhile */
    int64_t fits = (int64_t)(((double)available - reserve - rest) / cell);
    fits = fits < (int64_t)most ? fits : (int64_t)most - 1;
    const flim_shortage shortage = {.needed = needed, .available = available, .fits = fits, .beside = ""};
    return flim_fail_shortage(&p->base, &shortage, err);
}

flim_status flim_cpu_plan_allocate(flim_cpu_program *p, flim_error *err)
{
    const bool train = p->base.options.train_batch > 0;
    const size_t parameters = (size_t)p->base.net.parameters, statistics = (size_t)p->base.net.statistics;
    const size_t training = train ? parameters : 0;
    const bool average = train && p->base.options.average;
    const struct {
        void *at; /* address of the pointer to set */
        size_t count, size;
    } block[] = {{&p->parameters, parameters, sizeof(float)},
                 {&p->gradients, training, sizeof(float)},
                 {&p->moment1, training, sizeof(float)},
                 {&p->moment2, training, sizeof(float)},
                 {&p->statistics, statistics, sizeof(float)},
                 {&p->statistics_before, train ? statistics : 0, sizeof(float)},
                 {&p->average, average ? parameters : 0, sizeof(float)},
                 {&p->average_statistics, average ? statistics : 0, sizeof(float)},
                 {&p->activations, p->activation_bytes, 1},
                 {&p->laid_out, p->laid_out_bytes, 1},
                 {&p->worker_memory, p->worker_bytes, 1},
                 {&p->partial, p->partial_doubles, sizeof(double)},
                 {&p->own, p->sync_doubles, sizeof(double)},
                 {&p->of_ranks, synced_of(p), sizeof(double)},
                 {&p->rows, p->row_floats, sizeof(float)},
                 {&p->dropout_rows, p->dropout_floats, sizeof(float)},
                 {&p->plain, p->plain_floats, sizeof(float)},
                 {&p->hidden, p->hidden_bytes, 1},
                 {&p->hidden_sums, p->hidden_cells, sizeof(flim_hidden_totals)},
                 {&p->head_work, p->head_doubles, sizeof(double)},
                 {&p->head_data, p->head_floats, sizeof(float)},
                 {&p->moves, moves_of(p), sizeof(flim_cpu_move)},
                 {&p->all_moves, ranks_of(p) * moves_of(p), sizeof(flim_cpu_move)},
                 {&p->shares, train ? ranks_of(p) : 0, sizeof(flim_cpu_share)}};
    flim_memory_plan plan = {0};
    flim_cpu_plan_memory(p, &plan, NULL);
    const int64_t needed = plan.total[FLIM_MEMORY_DEVICE], available = flim_host_memory_now().available;
    bool enough = needed <= available; /* Linux hands out more than it has, and kills later */
    for (size_t i = 0; i < sizeof block / sizeof block[0] && enough; i++) {
        void *memory = flim_alloc_aligned(block[i].count, block[i].size, err);
        memcpy(block[i].at, &memory, sizeof memory);
        enough = memory != NULL;
    }
    if (!enough) {
        flim_cpu_plan_free(p);
        return explain_memory(p, needed, available, err);
    }
    divide_head_memory(p);
    divide_worker_memory(p);
    divide_unit_memory(p);
    if (p->base.options.inspect) {
        memset(p->activations, 0xff, p->activation_bytes); /* NaN until something is written */
    }
    return FLIM_OK;
}

void flim_cpu_plan_free(flim_cpu_program *p)
{
    flim_free(p->parameters);
    flim_free(p->gradients);
    flim_free(p->moment1);
    flim_free(p->moment2);
    flim_free(p->statistics);
    flim_free(p->statistics_before);
    flim_free(p->average);
    flim_free(p->average_statistics);
    flim_free(p->activations);
    flim_free(p->laid_out);
    flim_free(p->worker_memory);
    flim_free(p->partial);
    flim_free(p->own);
    flim_free(p->of_ranks);
    flim_free(p->rows);
    flim_free(p->dropout_rows);
    flim_free(p->plain);
    flim_free(p->hidden);
    flim_free(p->hidden_sums);
    flim_free(p->head_work);
    flim_free(p->head_data);
    flim_free(p->moves);
    flim_free(p->all_moves);
    flim_free(p->shares);
    p->moves = p->all_moves = NULL;
    p->shares = NULL;
    p->parameters = p->gradients = p->moment1 = p->moment2 = p->statistics = p->statistics_before = NULL;
    p->average = p->average_statistics = NULL;
    p->rows = p->dropout_rows = p->plain = p->head_data = NULL;
    p->activations = p->laid_out = p->worker_memory = NULL;
    p->partial = p->own = p->of_ranks = p->head_work = NULL;
    p->hidden = NULL;
    p->hidden_sums = NULL;
}

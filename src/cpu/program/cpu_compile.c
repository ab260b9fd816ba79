#include "cpu/program/cpu_compile.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cpu/layers/optimizer.h"
#include "cpu/program/backward.h"
#include "cpu/program/cpu_inspect.h"
#include "cpu/program/cpu_layout.h"
#include "cpu/program/cpu_predict.h"
#include "cpu/program/cpu_ranks.h"
#include "cpu/program/cpu_sync.h"
#include "cpu/program/forward.h"
#include "cpu/program/heads.h"

static flim_cpu_program *cast(flim_program *program)
{
    return (flim_cpu_program *)(void *)program;
}

static const flim_cpu_program *cast_const(const flim_program *program)
{
    return (const flim_cpu_program *)(const void *)program;
}

static void destroy(flim_program *program)
{
    flim_cpu_program *p = cast(program);
    for (int w = 0; p->workers && w <= p->cell_workers; w++) {
        for (int u = 0; u < p->base.net.n_units; u++) {
            flim_cpu_conv_memory_destroy(&p->workers[w].memory[u]);
        }
    }
    for (int u = 0; u < p->base.net.n_units; u++) {
        for (int mode = 0; mode < FLIM_CPU_MODES; mode++) {
            flim_cpu_conv_destroy(&p->node[u].conv[mode]);
        }
    }
    flim_cpu_plan_free(p);
    flim_free(p->workers);
    flim_free(p);
}

static flim_status memory(const flim_program *program, flim_memory_plan *plan, flim_error *err)
{
    return flim_cpu_plan_memory(cast_const(program), plan, err);
}

static flim_status allocate(flim_program *program, flim_error *err)
{
    return flim_cpu_plan_allocate(cast(program), err);
}

static flim_state_arrays states(const flim_program *program)
{
    const flim_cpu_program *p = cast_const(program);
    return (flim_state_arrays){.parameters = p->parameters,
                               .gradients = p->gradients,
                               .moment1 = p->moment1,
                               .moment2 = p->moment2,
                               .statistics = p->statistics,
                               .average = p->base.options.average ? p->average : NULL,
                               .average_statistics = p->base.options.average ? p->average_statistics : NULL};
}

static flim_status read_state(flim_program *program, const float *from, size_t count, float *out, flim_error *err)
{
    (void)program, (void)err;
    memcpy(out, from, count * sizeof *out);
    return FLIM_OK;
}

static void mark_stale(flim_cpu_program *p)
{
    for (int mode = 0; mode < FLIM_CPU_MODES; mode++) {
        p->stale[mode][FLIM_CPU_FORWARD] = p->stale[mode][FLIM_CPU_BACKWARD_X] = true;
    }
}

static flim_status write_state(flim_program *program, flim_state state, float *to, size_t count, const float *in,
                               flim_error *err)
{
    (void)state, (void)err;
    memcpy(to, in, count * sizeof *in);
    mark_stale(cast(program));
    return FLIM_OK;
}

static flim_status get_counters(flim_program *program, flim_counters *out, flim_error *err)
{
    (void)err;
    *out = cast(program)->counters;
    return FLIM_OK;
}

static flim_status set_counters(flim_program *program, const flim_counters *in, flim_error *err)
{
    (void)err;
    cast(program)->counters = *in;
    return FLIM_OK;
}

static void begin_update(flim_cpu_program *p)
{
    memset(p->gradients, 0, (size_t)p->base.net.parameters * sizeof(float));
    memcpy(p->statistics_before, p->statistics, (size_t)p->base.net.statistics * sizeof(float));
}

/* call: the last one of the update. */
static void end_update(flim_cpu_program *p, const flim_step *step, int64_t call)
{
    const int64_t count = p->base.net.parameters;
    const int64_t held = step->encoder_hold > 0 ? flim_network_encoder_parameters(&p->base.net) : 0;
    const int64_t first = step->encoder_hold >= 1 ? held : 0; /* that counts in the norm */
    p->totals.grad_norm = flim_cpu_gradient_norm(p->gradients + first, count - first, p->threads);
    if (!isfinite(p->totals.grad_norm)) {
        flim_cpu_note_nonfinite(p, call);
    }
    if (p->totals.nonfinite) {
        memcpy(p->statistics, p->statistics_before, (size_t)p->base.net.statistics * sizeof(float));
        return;
    }
    flim_totals_add_norm(&p->totals, p->totals.grad_norm);
    p->counters.adam_step++;
    p->totals.updates++;
    if (held > 0) {
        flim_step slow = *step;
        slow.learning_rate = step->learning_rate * (1.0f - step->encoder_hold);
        flim_cpu_adamw(p->parameters, p->gradients, p->moment1, p->moment2, held, &slow, p->totals.grad_norm,
                       p->counters.adam_step, p->threads);
    }
    flim_cpu_adamw(p->parameters + held, p->gradients + held, p->moment1 + held, p->moment2 + held, count - held, step,
                   p->totals.grad_norm, p->counters.adam_step, p->threads);
    if (p->base.options.average) {
        const float share = (float)flim_average_share((double)step->average_decay, p->counters.adam_step);
        flim_cpu_average(p->average, p->parameters, count, share, p->threads);
        flim_cpu_average(p->average_statistics, p->statistics, p->base.net.statistics, share, 1);
    }
    mark_stale(p);
}

static flim_status train(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err)
{
    flim_cpu_program *p = cast(program);
    flim_cpu_loss loss;
    int64_t calls = 0; /* batches of all ranks */
    p->step = step;
    p->momentum = (double)FLIM_BN_MOMENTUM;
    if (step->first) {
        begin_update(p);
    }
    FLIM_TRY(flim_cpu_ranks_forward(p, batch, &loss, err));
    FLIM_TRY(flim_cpu_ranks_account(p, batch->n, &loss, &calls, err));
    FLIM_TRY(batch->n > 0 || flim_cpu_is_synced(p) ? flim_cpu_backward_pass(p, batch, err) : FLIM_OK);
    if (step->last) {
        FLIM_TRY(flim_cpu_ranks_gradients(p, err));
        end_update(p, step, p->totals.calls + calls - 1);
    }
    p->totals.calls += calls;
    return FLIM_OK;
}

static flim_status recalibrate(flim_program *program, const flim_batch *batch, double share, flim_error *err)
{
    static const flim_step forward = {.divisor = 1};
    flim_cpu_program *p = cast(program);
    p->step = &forward;
    p->momentum = share;
    FLIM_TRY(flim_cpu_forward_pass(p, batch, err));
    return flim_cpu_heads_statistics(p, batch, err);
}

static flim_status exchange_average(flim_program *program, flim_error *err)
{
    (void)err;
    flim_cpu_program *p = cast(program);
    flim_cpu_exchange(p->parameters, p->average, p->base.net.parameters);
    flim_cpu_exchange(p->statistics, p->average_statistics, p->base.net.statistics);
    mark_stale(p);
    return FLIM_OK;
}

static flim_status totals(flim_program *program, bool reset, flim_totals *out, flim_error *err)
{
    (void)err;
    flim_cpu_program *p = cast(program);
    *out = p->totals;
    if (reset) {
        p->totals = (flim_totals){.nonfinite_call = -1};
    }
    return FLIM_OK;
}

static flim_status set_totals(flim_program *program, const flim_totals *in, flim_error *err)
{
    (void)err;
    cast(program)->totals = *in;
    return FLIM_OK;
}

static flim_status wait(flim_program *program, flim_error *err)
{
    (void)program, (void)err; /* every call has finished when it returns */
    return FLIM_OK;
}

static int64_t peak_bytes(const flim_program *program)
{
    flim_memory_plan plan = {0};
    flim_cpu_plan_memory(cast_const(program), &plan, NULL);
    return program->allocated ? plan.total[FLIM_MEMORY_DEVICE] : 0;
}

static const flim_program_ops program_ops = {.destroy = destroy,
                                             .memory = memory,
                                             .allocate = allocate,
                                             .states = states,
                                             .read = read_state,
                                             .write = write_state,
                                             .get_counters = get_counters,
                                             .set_counters = set_counters,
                                             .train = train,
                                             .recalibrate = recalibrate,
                                             .exchange_average = exchange_average,
                                             .predict = flim_cpu_predict,
                                             .evaluate = flim_cpu_evaluate,
                                             .totals = totals,
                                             .set_totals = set_totals,
                                             .wait = wait,
                                             .peak_bytes = peak_bytes,
                                             .read_tensor = flim_cpu_read_tensor};

static size_t offset_of(const flim_network *net, int unit, flim_tensor_role role)
{
    const flim_tensor *t = flim_network_tensor(net, unit, role, 0);
    return t ? (size_t)t->offset : 0;
}

static flim_status make_node(flim_cpu_program *p, int u, flim_error *err)
{
    const flim_network *net = &p->base.net;
    const flim_unit *unit = &net->unit[u];
    flim_cpu_node *node = &p->node[u];
    if (unit->pool_t != 1 && unit->pool_t != 2) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: a pool over %d time bins; the CPU backend knows 1 and 2", unit->conv,
                         unit->pool_t);
    }
    flim_cpu_layer_init(&node->layer, unit);
    node->weight_offset = offset_of(net, u, FLIM_TENSOR_CONV_WEIGHT);
    node->bias_offset = offset_of(net, u, FLIM_TENSOR_BIAS);
    node->gamma_offset = offset_of(net, u, FLIM_TENSOR_BN_WEIGHT);
    node->beta_offset = offset_of(net, u, FLIM_TENSOR_BN_BIAS);
    node->mean_offset = offset_of(net, u, FLIM_TENSOR_RUNNING_MEAN);
    node->var_offset = offset_of(net, u, FLIM_TENSOR_RUNNING_VAR);
    const bool trains = p->base.options.train_batch > 0;
    for (int mode = 0; mode < FLIM_CPU_MODES; mode++) {
        const bool shared = mode == FLIM_CPU_MODE_SHARED;
        if (!p->uses[mode]) {
            continue;
        }
        FLIM_TRY(flim_cpu_conv_create(&node->conv[mode], p->device->engine, unit, trains && unit->input >= 0, trains,
                                      shared ? p->threads : 1, err));
        for (int w = shared ? p->cell_workers : 0; w < p->cell_workers + shared; w++) {
            FLIM_TRY(flim_cpu_conv_memory_create(&p->workers[w].memory[u], &node->conv[mode], err));
        }
    }
    return FLIM_OK;
}

flim_status flim_cpu_compile(flim_device *device, const flim_network *net, const flim_program_options *options,
                             flim_program **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_cpu_program *p = flim_alloc(1, sizeof *p, err);
    if (!p) {
        return FLIM_ERROR_MEMORY;
    }
    p->base = (flim_program){.ops = &program_ops, .device = device, .net = *net, .options = *options};
    p->device = (flim_cpu_device *)(void *)device;
    p->threads = device->info.threads;
    const int64_t most = options->train_batch > options->eval_batch ? options->train_batch : options->eval_batch;
    p->cell_workers = most >= p->threads ? p->threads : 0;
    p->uses[FLIM_CPU_MODE_CELLS] = p->cell_workers > 0;
    p->uses[FLIM_CPU_MODE_SHARED] = p->threads > 1;
    p->counters.loss_scale = 1.0;
    p->totals.nonfinite_call = -1;
    mark_stale(p);
    p->workers = flim_alloc((size_t)p->cell_workers + 1, sizeof *p->workers, err);
    FLIM_TRY_DONE(p->workers ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int u = 0; u < net->n_units; u++) {
        FLIM_TRY_DONE(make_node(p, u, err));
    }
    flim_cpu_plan(p);
    *out = &p->base;
done:
    if (status != FLIM_OK) {
        destroy(&p->base);
    }
    return status;
}

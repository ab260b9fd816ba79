/* The public functions of programs, which check their arguments and dispatch to the backend. */
#include <string.h>

#include "backend/backend.h"
#include "backend/loss.h"
#include "core/try.h"

/* Every unit leads to a head: else it has no gradient. */
static flim_status check_trainable(const flim_network *net, flim_error *err)
{
    bool used[FLIM_MAX_UNITS] = {false};
    if (net->n_heads == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a network without heads has no loss to train on; it can only predict");
    }
    for (int k = 0; k < net->n_heads; k++) {
        used[net->head[k].unit] = true;
    }
    for (int u = net->n_units - 1; u >= 0; u--) {
        const flim_unit *unit = &net->unit[u];
        if (!used[u]) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s is read by no unit and no head: it cannot be trained", unit->conv);
        }
        used[unit->input >= 0 ? unit->input : u] = true;
        used[unit->skip >= 0 ? unit->skip : u] = true;
    }
    return FLIM_OK;
}

flim_status flim_check_tensor_size(int64_t batch, int64_t elements, flim_error *err)
{
    const int64_t limit = ((int64_t)1 << 31) - 1;
    return batch <= limit / elements ? FLIM_OK
                                     : flim_fail(err, FLIM_ERROR_USAGE,
                                                 "a batch of %lld cells makes a tensor of 2^31 or more elements (%lld per "
                                                 "cell); the largest batch is %lld",
                                                 (long long)batch, (long long)elements, (long long)(limit / elements));
}

flim_status flim_program_compile(flim_device *device, const flim_network *net, const flim_program_options *options,
                                 flim_program **out, flim_error *err)
{
    *out = NULL;
    FLIM_TRY(flim_device_check_precision(device, options->precision, err));
    int64_t batch = options->train_batch > options->eval_batch ? options->train_batch : options->eval_batch;
    if (options->train_batch < 0 || options->eval_batch < 0 || batch == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a batch of %lld cells: must be at least 1", (long long)batch);
    }
    if (options->train_batch > 0) {
        FLIM_TRY(check_trainable(net, err));
    }
    int64_t elements;
    FLIM_TRY(flim_device_largest_tensor(device, net, options->precision, &elements, err));
    FLIM_TRY(flim_check_tensor_size(batch, elements, err));
    return device->ops->compile(device, net, options, out, err);
}

void flim_program_destroy(flim_program *program)
{
    if (program) {
        program->ops->destroy(program);
    }
}

flim_status flim_program_memory(const flim_program *program, flim_memory_plan *plan, flim_error *err)
{
    *plan = (flim_memory_plan){0};
    return program->ops->memory(program, plan, err);
}

static void add_item(flim_memory_plan *plan, const char *name, flim_memory_kind kind, flim_memory_place place, int64_t bytes)
{
    const int most = (int)(sizeof plan->item / sizeof plan->item[0]);
    if (bytes <= 0) {
        return;
    }
    plan->total[place] += bytes;
    if (plan->n == most) { /* no room for another line: the last one collects the rest */
        plan->item[most - 1].bytes += bytes;
        return;
    }
    flim_memory_item *item = &plan->item[plan->n++];
    *item = (flim_memory_item){.kind = kind, .place = place, .bytes = bytes};
    strncat(item->name, name, sizeof item->name - 1);
}

void flim_memory_add(flim_memory_plan *plan, const char *name, flim_memory_place place, int64_t bytes)
{
    add_item(plan, name, FLIM_MEMORY_STEADY, place, bytes);
}

void flim_memory_add_workspace(flim_memory_plan *plan, int64_t bytes)
{
    add_item(plan, "convolution workspace", FLIM_MEMORY_WORKSPACE, FLIM_MEMORY_DEVICE, bytes);
}

flim_status flim_program_allocate(flim_program *program, flim_error *err)
{
    if (program->allocated) {
        return FLIM_OK;
    }
    FLIM_TRY(program->ops->allocate(program, err));
    program->allocated = true;
    return FLIM_OK;
}

static flim_status check_allocated(const flim_program *program, flim_error *err)
{
    return program->allocated ? FLIM_OK : flim_fail(err, FLIM_ERROR, "internal: a program was used before it was allocated");
}

/* The array of a state in the device's memory, and its floats. */
static flim_status find_state(const flim_program *program, flim_state state, float **array, size_t *count, flim_error *err)
{
    FLIM_TRY(check_allocated(program, err));
    const flim_state_arrays at = program->ops->states(program);
    const bool trains = program->options.train_batch > 0;
    const bool statistics = state == FLIM_STATE_STATISTICS || state == FLIM_STATE_AVERAGE_STATISTICS;
    *count = (size_t)(statistics ? program->net.statistics : program->net.parameters);
    *array = NULL;
    switch (state) {
    case FLIM_STATE_PARAMETERS: *array = at.parameters; break;
    case FLIM_STATE_STATISTICS: *array = at.statistics; break;
    case FLIM_STATE_GRADIENTS: *array = trains ? at.gradients : NULL; break;
    case FLIM_STATE_MOMENT1: *array = trains ? at.moment1 : NULL; break;
    case FLIM_STATE_MOMENT2: *array = trains ? at.moment2 : NULL; break;
    case FLIM_STATE_AVERAGE_PARAMETERS: *array = at.average; break;
    case FLIM_STATE_AVERAGE_STATISTICS: *array = at.average_statistics; break;
    }
    return *array ? FLIM_OK
                  : flim_fail(err, FLIM_ERROR,
                              "internal: a program compiled without training has no gradients or moments, one without "
                              "`average` no averages");
}

flim_status flim_program_read(flim_program *program, flim_state state, float *out, flim_error *err)
{
    float *from;
    size_t count;
    FLIM_TRY(find_state(program, state, &from, &count, err));
    return program->ops->read(program, from, count, out, err);
}

flim_status flim_program_write(flim_program *program, flim_state state, const float *in, flim_error *err)
{
    float *to;
    size_t count;
    FLIM_TRY(find_state(program, state, &to, &count, err));
    if (state == FLIM_STATE_GRADIENTS) {
        return flim_fail(err, FLIM_ERROR, "internal: gradients are read only");
    }
    return program->ops->write(program, state, to, count, in, err);
}

flim_status flim_program_get_counters(flim_program *program, flim_counters *out, flim_error *err)
{
    return program->ops->get_counters(program, out, err);
}

flim_status flim_program_set_counters(flim_program *program, const flim_counters *in, flim_error *err)
{
    return program->ops->set_counters(program, in, err);
}

flim_status flim_program_plan_cache(flim_program *program, const flim_device_cache *cells, flim_error *err)
{
    if (!program->ops->plan_cache) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s has no memory of its own to keep cells in; keep them in host memory",
                         program->device->info.name);
    }
    if (program->allocated) {
        return flim_fail(err, FLIM_ERROR, "internal: cells to keep were planned after the program was allocated");
    }
    program->cached_cells = 0;
    FLIM_TRY(program->ops->plan_cache(program, cells, err));
    program->cached_cells = cells ? cells->n : 0;
    return FLIM_OK;
}

flim_status flim_program_store_cell(flim_program *program, int64_t cell, const void *voxels, const uint8_t *mask,
                                    flim_error *err)
{
    FLIM_TRY(check_allocated(program, err));
    if (cell < 0 || cell >= program->cached_cells) {
        return flim_fail(err, FLIM_ERROR, "internal: cell %lld of %lld cached cells", (long long)cell,
                         (long long)program->cached_cells);
    }
    return program->ops->store_cell(program, cell, voxels, mask, err);
}

static flim_status check_batch(const flim_program *program, const flim_batch *batch, int64_t most, flim_error *err)
{
    const int *in = program->net.in;
    for (int64_t i = 0; batch->device_cached && i < batch->n; i++) {
        if (batch->id[i].cell >= program->cached_cells) {
            return flim_fail(err, FLIM_ERROR, "internal: a batch wants cell %u of %lld cached cells", batch->id[i].cell,
                             (long long)program->cached_cells);
        }
    }
    for (int64_t i = 0; batch->device_cached && batch->mix && i < batch->n; i++) {
        if (batch->mix[i].share > 0 && batch->mix[i].cell >= program->cached_cells) {
            return flim_fail(err, FLIM_ERROR, "internal: a batch mixes cell %u of %lld cached cells", batch->mix[i].cell,
                             (long long)program->cached_cells);
        }
    }
    const int64_t least = most == program->options.train_batch && flim_ranks_size(program->options.ranks) > 1 ? 0 : 1;
    if (batch->n < least || batch->n > most || batch->t != in[0] || batch->h != in[1] || batch->w != in[2]) {
        return flim_fail(err, FLIM_ERROR, "internal: a batch (%lld,%d,%d,%d) for a program of at most (%lld,%d,%d,%d)",
                         (long long)batch->n, batch->t, batch->h, batch->w, (long long)most, in[0], in[1], in[2]);
    }
    if (batch->transform.n > 0 && !batch->device_cached) { /* its signal is no longer the counts that a transform takes */
        return flim_fail(err, FLIM_ERROR, "internal: a transform of %d steps for a batch that brings its voxels",
                         batch->transform.n);
    }
    return check_allocated(program, err);
}

static flim_status check_targets(const flim_program *program, const flim_batch *batch, flim_error *err)
{
    const flim_network *net = &program->net;
    for (int64_t i = 0; i < batch->n; i++) {
        if (batch->label[i] < 0 || batch->label[i] >= net->classes) {
            return flim_fail(err, FLIM_ERROR, "internal: cell %u of a training batch has the label %d, with %d classes",
                             (unsigned)batch->id[i].cell, (int)batch->label[i], net->classes);
        }
    }
    for (int k = 0; k < net->n_heads && batch->n > 0; k++) {
        if (flim_loss_target(net->head[k].loss) == FLIM_TARGET_DISTRIBUTION && !batch->target) {
            return flim_fail(err, FLIM_ERROR_USAGE, "head '%s' learns by %s, and the batch has no targets", net->head[k].name,
                             flim_loss_name(net->head[k].loss));
        }
    }
    return FLIM_OK;
}

flim_status flim_program_train(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err)
{
    FLIM_TRY(check_batch(program, batch, program->options.train_batch, err));
    FLIM_TRY(check_targets(program, batch, err));
    program->last_cells = batch->n;
    program->last_trains = true;
    return program->ops->train(program, batch, step, err);
}

flim_status flim_program_recalibrate(flim_program *program, const flim_batch *batch, double share, flim_error *err)
{
    FLIM_TRY(check_batch(program, batch, program->options.train_batch, err));
    if (!(share > 0 && share <= 1)) {
        return flim_fail(err, FLIM_ERROR, "internal: statistics were to move by %g of the difference", share);
    }
    program->last_cells = 0; /* what it leaves of its inside is not for reading */
    return program->ops->recalibrate(program, batch, share, err);
}

flim_status flim_program_exchange_average(flim_program *program, flim_error *err)
{
    FLIM_TRY(check_allocated(program, err));
    if (!program->ops->states(program).average) {
        return flim_fail(err, FLIM_ERROR_USAGE, "the program keeps no averages of its weights");
    }
    return program->ops->exchange_average(program, err);
}

flim_status flim_program_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err)
{
    FLIM_TRY(check_batch(program, batch, program->options.eval_batch, err));
    program->last_cells = batch->n;
    program->last_trains = false;
    return program->ops->predict(program, batch, logits, err);
}

flim_status flim_program_evaluate(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err)
{
    const flim_network *net = &program->net;
    bool hidden = false;
    for (int k = 0; k < net->n_heads; k++) {
        hidden = hidden || flim_loss_is_hidden(net->head[k].loss);
    }
    if (!hidden) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a network without a loss over hidden voxels has nothing to evaluate");
    }
    FLIM_TRY(check_batch(program, batch, program->options.eval_batch, err));
    program->last_cells = 0; /* what it leaves of its inside is not for reading */
    return program->ops->evaluate(program, batch, step, err);
}

flim_status flim_program_totals(flim_program *program, bool reset, flim_totals *out, flim_error *err)
{
    FLIM_TRY(check_allocated(program, err));
    return program->ops->totals(program, reset, out, err);
}

flim_status flim_program_set_totals(flim_program *program, const flim_totals *in, flim_error *err)
{
    FLIM_TRY(check_allocated(program, err));
    return program->ops->set_totals(program, in, err);
}

flim_step flim_step_defaults(void)
{
    return (flim_step){.first = true, .last = true, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
}

flim_status flim_program_wait(flim_program *program, flim_error *err)
{
    FLIM_TRY(check_allocated(program, err));
    return program->ops->wait(program, err);
}

int64_t flim_program_peak_bytes(const flim_program *program)
{
    return program->ops->peak_bytes(program);
}

bool flim_program_replays(const flim_program *program)
{
    return program->ops->replays && program->ops->replays(program);
}

const char *flim_work_name(flim_work work)
{
    static const char *const names[FLIM_WORKS] = {[FLIM_WORK_FORWARD] = "convolutions",
                                                  [FLIM_WORK_NORM] = "BatchNorm, activation, pool",
                                                  [FLIM_WORK_HEAD] = "head and loss",
                                                  [FLIM_WORK_NORM_GRADIENT] = "BatchNorm gradients",
                                                  [FLIM_WORK_DATA_GRADIENT] = "data gradients",
                                                  [FLIM_WORK_WEIGHT_GRADIENT] = "weight gradients",
                                                  [FLIM_WORK_UPDATE] = "update"};
    return names[work];
}

flim_status flim_program_profile(flim_program *program, flim_operation_time *out, int room, int *n, flim_error *err)
{
    *n = 0;
    FLIM_TRY(check_allocated(program, err));
    return program->ops->profile ? program->ops->profile(program, out, room, n, err)
                                 : flim_fail(err, FLIM_ERROR_USAGE, "single operations are timed on CUDA devices only");
}

flim_status flim_program_time_exchange(flim_program *program, flim_exchange *out, flim_error *err)
{
    *out = (flim_exchange){0};
    FLIM_TRY(check_allocated(program, err));
    return program->ops->time_exchange ? program->ops->time_exchange(program, out, err)
                                       : flim_fail(err, FLIM_ERROR_USAGE, "sums over ranks are timed on CUDA devices only");
}

/* ---- tensors of the inside, for tests ------------------------------------------------------------------------------------- */

const char *flim_inspected_name(flim_inspected what)
{
    static const char *const names[] = {"z", "y", "dv", "dz", "dx"};
    return names[what];
}

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

/* Floats of a tensor for one cell. */
static int64_t cell_floats(const flim_network *net, int unit, flim_inspected what)
{
    if (unit >= net->n_units) {
        const flim_head *head = &net->head[unit - net->n_units];
        const flim_unit *input = &net->unit[head->unit];
        return what == FLIM_INSPECT_Y   ? head->outputs
               : what == FLIM_INSPECT_Z ? input->out_channels
                                        : input->out_channels * volume(input->out);
    }
    const flim_unit *u = &net->unit[unit];
    switch (what) {
    case FLIM_INSPECT_DX: return u->in_channels * volume(u->in);
    case FLIM_INSPECT_Y: return u->out_channels * volume(u->out);
    case FLIM_INSPECT_Z:
    case FLIM_INSPECT_DV:
    case FLIM_INSPECT_DZ: break;
    }
    return u->out_channels * volume(u->conv_out);
}

flim_status flim_program_read_tensor(flim_program *program, int unit, flim_inspected what, float *out, int64_t count,
                                     flim_error *err)
{
    const flim_network *net = &program->net;
    const bool gradient = what != FLIM_INSPECT_Z && what != FLIM_INSPECT_Y, head = unit >= net->n_units;
    if (!program->options.inspect || program->last_cells == 0) {
        return flim_fail(err, FLIM_ERROR, "internal: tensors are read of programs compiled with `inspect`, after a call");
    }
    if (unit < 0 || unit >= net->n_units + net->n_heads || (head && (what == FLIM_INSPECT_DV || what == FLIM_INSPECT_DZ))) {
        return flim_fail(err, FLIM_ERROR, "internal: no %s of unit %d in a network of %d", flim_inspected_name(what), unit,
                         net->n_units);
    }
    if (gradient && !program->last_trains) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a prediction has no gradients");
    }
    if (what == FLIM_INSPECT_DX && !head && net->unit[unit].input < 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "the network's input has no gradient");
    }
    if (head && net->head[unit - net->n_units].kind == FLIM_HEAD_DENSE) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a dense head has no tensors of its own");
    }
    if (head && what == FLIM_INSPECT_Y && !program->last_trains) {
        return flim_fail(err, FLIM_ERROR_USAGE, "the logits of a prediction are what it hands out");
    }
    const int64_t expected = program->last_cells * cell_floats(net, unit, what);
    if (count != expected) {
        return flim_fail(err, FLIM_ERROR, "internal: %s of unit %d has %lld floats, not %lld", flim_inspected_name(what),
                         unit, (long long)expected, (long long)count);
    }
    FLIM_TRY(program->ops->wait(program, err));
    return program->ops->read_tensor(program, unit, what, out, err);
}

flim_status flim_program_read_pooled(flim_program *program, int head, float *out, int64_t count, flim_error *err)
{
    const flim_network *net = &program->net;
    if (head < 0 || head >= net->n_heads || net->head[head].kind != FLIM_HEAD_POOLED || program->last_cells == 0 ||
        program->last_trains || count != program->last_cells * net->head[head].in_channels) {
        return flim_fail(err, FLIM_ERROR, "internal: no pooled output of head %d, %lld floats, in the last call", head,
                         (long long)count);
    }
    FLIM_TRY(program->ops->wait(program, err));
    return program->ops->read_tensor(program, net->n_units + head, FLIM_INSPECT_Z, out, err);
}

#include "backend/inspect.h"

#include "backend/backend.h"
#include "core/try.h"

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
        return what == FLIM_INSPECT_Y ? head->outputs : input->out_channels * volume(input->out);
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
    if (unit < 0 || unit >= net->n_units + net->n_heads || (head && what != FLIM_INSPECT_Y && what != FLIM_INSPECT_DX)) {
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

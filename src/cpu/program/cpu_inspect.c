#include "cpu/program/cpu_inspect.h"

#include "cpu/program/cpu_predict.h"

/* (V,C) -> (C,V). */
static void to_channels_first(const float *from, float *to, size_t channels, size_t voxels)
{
    for (size_t c = 0; c < channels; c++) {
        for (size_t v = 0; v < voxels; v++) {
            to[c * voxels + v] = from[v * channels + c];
        }
    }
}

static void copy_head(const flim_cpu_program *p, int k, flim_inspected what, float *out)
{
    const flim_head *head = &p->base.net.head[k];
    const flim_cpu_layer *layer = &p->node[head->unit].layer;
    const int64_t n = p->base.last_cells;
    const size_t channels = (size_t)head->in_channels, voxels = layer->y_floats / channels;
    for (int64_t i = 0; what == FLIM_INSPECT_Z && i < n * head->in_channels; i++) {
        out[i] = p->head[k].mean[i];
    }
    for (int64_t i = 0; what == FLIM_INSPECT_Y && i < n * head->outputs; i++) {
        out[i] = p->head[k].logits[i];
    }
    for (size_t i = 0; what == FLIM_INSPECT_DX && i < (size_t)n * channels * voxels; i++) {
        out[i] = p->head[k].dmean[i / voxels] / (float)voxels;
    }
}

/* The buffer of a tensor, or FLIM_NO_BUFFER and why there is none. */
static int buffer_of(const flim_cpu_program *p, const flim_cpu_node *node, flim_inspected what, const char **why)
{
    const bool eval = !p->base.last_trains;
    switch (what) {
    case FLIM_INSPECT_Z: return eval ? node->eval_z : node->z;
    case FLIM_INSPECT_Y: *why = "its readers compute it from z, cell by cell"; return eval ? node->eval_y : node->y;
    case FLIM_INSPECT_DV: *why = "it is applied as dy is read"; return node->store_dv ? node->dv : FLIM_NO_BUFFER;
    case FLIM_INSPECT_DZ: return node->dz;
    case FLIM_INSPECT_DX:
        if (p->node[node->layer.unit.input].n_sources + (p->node[node->layer.unit.input].heads > 0) >
            2) { /* one of them has become their sum */
            *why = "more than two gradients of its input are summed in place";
            return FLIM_NO_BUFFER;
        }
        return node->dx;
    }
    return FLIM_NO_BUFFER;
}

flim_status flim_cpu_read_tensor(flim_program *program, int unit, flim_inspected what, float *out, flim_error *err)
{
    const flim_cpu_program *p = (const flim_cpu_program *)(void *)program;
    if (unit >= p->base.net.n_units) {
        copy_head(p, unit - p->base.net.n_units, what, out);
        return FLIM_OK;
    }
    const flim_cpu_node *node = &p->node[unit];
    const flim_unit *u = &node->layer.unit;
    const char *why = "this program has none";
    const int buffer = buffer_of(p, node, what, &why);
    if (buffer == FLIM_NO_BUFFER) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s of %s is not stored: %s", flim_inspected_name(what), u->conv, why);
    }
    const bool dx = what == FLIM_INSPECT_DX;
    const size_t channels = (size_t)(dx ? u->in_channels : u->out_channels);
    const size_t floats = dx ? node->layer.x_floats : what == FLIM_INSPECT_Y ? node->layer.y_floats : node->layer.z_floats;
    for (int64_t i = 0; i < p->base.last_cells; i++) {
        const float *cell =
            p->base.last_trains ? flim_cpu_cell(p, buffer, floats, i) : flim_cpu_eval_cell(p, NULL, buffer, i);
        to_channels_first(cell, out + (size_t)i * floats, channels, floats / channels);
    }
    return FLIM_OK;
}

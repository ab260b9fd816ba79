/* flim_bench step: its table, and the files that it writes. */
#include "bench/bench_step.h"

#include <inttypes.h>

#include "bench/bench_output.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/try.h"
#include "flim/weights.h"

/* How much of the sums over ranks is left when the backward pass has ended, ms. */
static double exposed(const flim_exchange *x)
{
    const double last = x->part[x->n - 1].end;
    return last > x->backward_end ? last - x->backward_end : 0;
}

static double summing(const flim_exchange *x)
{
    double ms = 0;
    for (int i = 0; i < x->n; i++) {
        ms += x->part[i].end - x->part[i].begin;
    }
    return ms;
}

static void print_exchange(const flim_exchange *x, FILE *out)
{
    fprintf(out,
            "sums of gradients over the ranks, in ms of a step whose forward pass ends at %.3f, backward pass at %.3f:\n",
            x->forward_end, x->backward_end);
    for (int i = 0; i < x->n; i++) {
        const flim_exchange_part *part = &x->part[i];
        fprintf(out, "  %8.3f MB  ready at %8.3f, summed from %8.3f to %8.3f\n", 1e-6 * (double)part->bytes, part->ready,
                part->begin, part->end);
    }
    fprintf(out, "  %.3f ms in all, of which %.3f after the backward pass; the step ends at %.3f\n", summing(x), exposed(x),
            x->step_end);
}

void flim_step_print(const flim_bench_steps *b, const flim_step_summary *s, FILE *out)
{
    const flim_device_info *info = flim_device_get_info(b->device);
    const flim_step_options *o = b->o;
    char size[FLIM_BENCH_SIZE_TEXT];
    fprintf(out, "%s: %s, %s\n", s->device, info->name, info->libraries);
    fprintf(out,
            "%s, preset %s (%" PRId64 " parameters), cells (2,%d,%d,%d), batch %" PRId64 ", %" PRId64 " steps after %" PRId64
            " of warm-up\n",
            flim_precision_name(b->precision), flim_bench_size_text(&b->net, size), b->net.parameters, b->net.in[0],
            b->net.in[1], b->net.in[2], o->batch, o->steps, o->warmup);
    if (flim_step_cells(b) > o->batch) {
        fprintf(out, "per step     %d processes x %" PRId64 " batches x %" PRId64 " = %" PRId64 " cells\n",
                flim_ranks_size(b->ranks), o->accumulate, o->batch, flim_step_cells(b));
    }
    fprintf(out, "loss         %12.6f first %12.6f last\n", b->loss[0], b->loss[o->steps - 1]);
    fprintf(out, "ms per step  %12.3f median %12.3f min %12.3f max\n", s->median, s->min, s->max);
    if (s->in_a_row > 0) {
        fprintf(out, "in a row     %12.3f ms per step, as training runs: the next batch is copied meanwhile\n", s->in_a_row);
    }
    fprintf(out, "cells/s      %12.2f\n", s->cells_per_s);
    fprintf(out, "peak memory  %12.3f GiB (%" PRId64 " bytes)\n", flim_gib(s->peak_bytes), s->peak_bytes);
    if (info->own_memory) {
        fprintf(out, "step         %s\n", s->replays ? "replayed as one CUDA graph" : "launched kernel by kernel");
    }
    if (s->exchange.n > 0) {
        print_exchange(&s->exchange, out);
    }
    for (int i = 0; i < FLIM_WORKS && s->parts > 0; i++) {
        fprintf(out, "%s%-27s %8.3f ms %5.1f%%\n", i == 0 ? "operations timed alone:\n  " : "  ",
                flim_work_name((flim_work)i), s->work[i], 100.0 * s->work[i] / s->parts);
    }
}

static flim_json *json_of_exchange(const flim_exchange *x)
{
    flim_json *json = flim_json_object(), *parts = flim_json_array();
    for (int i = 0; i < x->n; i++) {
        flim_json *part = flim_json_object();
        flim_json_set_integer(part, "bytes", x->part[i].bytes);
        flim_json_set_number(part, "ready", x->part[i].ready);
        flim_json_set_number(part, "begin", x->part[i].begin);
        flim_json_set_number(part, "end", x->part[i].end);
        flim_json_add(parts, part);
    }
    flim_json_set_number(json, "forward_end", x->forward_end);
    flim_json_set_number(json, "backward_end", x->backward_end);
    flim_json_set_number(json, "step_end", x->step_end);
    flim_json_set_number(json, "summing", summing(x));
    flim_json_set_number(json, "exposed", exposed(x));
    flim_json_set(json, "parts", parts);
    return json;
}

flim_status flim_step_write_json(const flim_bench_steps *b, const flim_step_summary *s, flim_error *err)
{
    flim_json *json = flim_json_object(), *ms = flim_json_object();
    flim_json_set_string(json, "device", s->device);
    flim_json_set_string(json, "device_name", flim_device_get_info(b->device)->name);
    flim_json_set_string(json, "precision", flim_precision_name(b->precision));
    flim_bench_set_size(json, &b->net);
    flim_json_set_integer(json, "batch", b->o->batch);
    flim_json_set_integer(json, "accumulate", b->o->accumulate);
    flim_json_set_integer(json, "ranks", flim_ranks_size(b->ranks));
    flim_json_set_number(ms, "median", s->median);
    flim_json_set_number(ms, "min", s->min);
    flim_json_set_number(ms, "max", s->max);
    if (s->in_a_row > 0) {
        flim_json_set_number(ms, "in_a_row", s->in_a_row);
    }
    flim_json_set(json, "ms", ms);
    flim_json_set_number(json, "cells_per_s", s->cells_per_s);
    flim_json_set_integer(json, "peak_bytes", s->peak_bytes);
    flim_json_set_bool(json, "replayed", s->replays);
    if (s->parts > 0) {
        flim_json *parts = flim_json_object();
        for (int i = 0; i < FLIM_WORKS; i++) {
            flim_json_set_number(parts, flim_work_name((flim_work)i), s->work[i]);
        }
        flim_json_set(json, "part_ms", parts);
    }
    if (s->exchange.n > 0) {
        flim_json_set(json, "exchange_ms", json_of_exchange(&s->exchange));
    }
    const flim_status status = flim_bench_write_json(json, b->o->json, "{\n  \"device\": ", err);
    flim_json_free(json);
    return status;
}

flim_status flim_step_write_losses(const flim_bench_steps *b, flim_error *err)
{
    flim_json *json = flim_json_array();
    for (int64_t i = 0; i < b->o->steps; i++) {
        flim_json_add_number(json, b->loss[i]);
    }
    const flim_status status = flim_bench_write_json(json, b->o->losses, "[", err);
    flim_json_free(json);
    return status;
}

flim_status flim_step_write_gradients(const flim_bench_steps *b, flim_error *err)
{
    float *gradients = flim_alloc((size_t)b->net.parameters, sizeof(float), err); /* P */
    if (!gradients) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_program_read(b->program, FLIM_STATE_GRADIENTS, gradients, err));
    status = flim_weights_write(b->o->grads_out, &b->net, NULL, gradients, NULL, err);
done:
    flim_free(gradients);
    return status;
}

flim_status flim_step_write_weights(const flim_bench_steps *b, flim_error *err)
{
    const flim_dataset_info *data = b->dataset ? flim_dataset_get_info(b->dataset) : NULL;
    const bool named = data && data->classes == b->net.classes;
    FLIM_TRY(flim_program_read(b->program, FLIM_STATE_PARAMETERS, b->parameters, err));
    FLIM_TRY(flim_program_read(b->program, FLIM_STATE_STATISTICS, b->statistics, err));
    flim_provenance about = {.fold = -1};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(named ? flim_provenance_set_classes(&about, data->classes, data->class_name, err) : FLIM_OK);
    status = flim_weights_write(b->o->weights_out, &b->net, &about, b->parameters, b->statistics, err);
done:
    flim_provenance_free(&about);
    return status;
}

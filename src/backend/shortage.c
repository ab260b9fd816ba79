#include "backend/shortage.h"

#include <inttypes.h>
#include <stdio.h>

#include "backend/precision.h"
#include "core/bytes.h"

flim_status flim_fail_shortage(const flim_program *program, const flim_shortage *s, flim_error *err)
{
    const flim_program_options *o = &program->options; /* train_batch 0: predict, which has fewer flags */
    const flim_device_info *info = &program->device->info;
    const flim_precision half = flim_precision_in_16_bits(info, o->precision);
    const bool recomputes = o->train_batch > 0 && o->recompute != FLIM_RECOMPUTE_ALL;
    char memory[160] = "host memory", of_total[48] = "", advice[240];
    if (info->own_memory) {
        snprintf(memory, sizeof memory, "device memory on %.120s", info->name);
    }
    if (s->total > 0) {
        snprintf(of_total, sizeof of_total, " of %.2f GiB", flim_gib(s->total));
    }
    if (s->fits < 1) {
        snprintf(advice, sizeof advice, ", not enough for one cell; less is needed by a smaller preset%s%s%s",
                 half != o->precision ? ", --precision " : "", half != o->precision ? flim_precision_name(half) : "",
                 recomputes ? ", --checkpoint-activations all" : "");
    } else {
        snprintf(advice, sizeof advice, "; the largest batch that fits is %" PRId64 "%s%s%s", s->fits,
                 o->train_batch > 0 ? " (--batch auto finds it, --accumulate keeps the effective batch" : "",
                 recomputes ? ", --checkpoint-activations auto makes room" : "", o->train_batch > 0 ? ")" : "");
    }
    return flim_fail(
        err, FLIM_ERROR_MEMORY,
        "out of %s: batches of %" PRId64 " cells (training) and %" PRId64 " (prediction) need %.2f GiB, %.2f GiB%s "
        "are free%s%s",
        memory, o->train_batch, o->eval_batch, flim_gib(s->needed), flim_gib(s->available), of_total, advice, s->beside);
}

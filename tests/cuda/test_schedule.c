/* Passes of the CUDA backend, run on paper: each operation finds in the arena what it reads, for every card, precision and width, and
 * whatever is made again.  Nothing computes, no card is needed.
 *
 * The model says of each operation what cuda/program/launch.c reads and writes, and knows the arena as bytes: a tensor that is written takes
 * away what lay where it lies now. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef FLIM_HAVE_CUDA

#include "cuda/device/cuda_device.h"
#include "plan/plan.h"
#include "cuda/program/schedule.h"

/* What a buffer holds. */
typedef enum content { NOTHING, INPUT, Z, Y, GATE, DZ, DX, DU, DV, SCRATCH } content;
static const char *const names[] = {"nothing", "the input", "z", "y", "the gate", "dz", "dx", "du", "dv", "scratch"};

typedef struct model {
    const flim_pass *pass;
    content held[FLIM_ARENA_BUFFERS];
    bool affine[FLIM_MAX_UNITS], coefficients[FLIM_MAX_UNITS]; /* of BatchNorm, forward and backward */
    int op;
    int read[16], n_read; /* of the operation in hand */
    char text[160]; /* of the pass */
    char wrong[512]; /* what went wrong first */
} model;

static void complain(model *m, const char *what, int unit)
{
    const flim_operation *o = &m->pass->operation[m->op < m->pass->n_operations ? m->op : m->pass->n_operations - 1];
    if (!m->wrong[0]) {
        snprintf(m->wrong, sizeof m->wrong, "%s: operation %d (kind %d of %s%s): %s of %s", m->text, m->op, (int)o->kind,
                 m->pass->net->unit[o->unit].conv, o->again ? ", again" : "", what,
                 unit < 0 ? "the input" : m->pass->net->unit[unit].conv);
    }
}

static void reads(model *m, int buffer, content what, int unit)
{
    if (buffer == FLIM_NO_BUFFER || m->held[buffer] != what) {
        char text[96];
        snprintf(text, sizeof text, "wants %s, finds %s in place", names[what],
                 buffer == FLIM_NO_BUFFER ? "no buffer" : names[m->held[buffer]]);
        complain(m, text, unit);
        return;
    }
    m->read[m->n_read++] = buffer;
}

/* in_place: may lie exactly where the operation reads something, else nothing that it reads may be touched. */
static void writes(model *m, int buffer, content what, int unit, bool in_place)
{
    const flim_arena *arena = &m->pass->arena;
    if (buffer == FLIM_NO_BUFFER) {
        complain(m, "writes to no buffer", unit);
        return;
    }
    const int64_t begin = arena->buffer[buffer].offset, end = begin + arena->buffer[buffer].bytes;
    if (end > arena->bytes) {
        complain(m, "a buffer past the arena's end", unit);
    }
    for (int i = 0; i < arena->n; i++) {
        const int64_t at = arena->buffer[i].offset, past = at + arena->buffer[i].bytes;
        if (i == buffer || at >= end || past <= begin || m->held[i] == NOTHING) {
            continue;
        }
        for (int r = 0; r < m->n_read; r++) {
            if (m->read[r] == i && !(in_place && at == begin)) {
                complain(m, "overwrites what the operation reads, with a buffer", unit);
            }
        }
        m->held[i] = NOTHING;
    }
    m->held[buffer] = what;
}

static void scratch(model *m, int buffer)
{
    if (buffer != FLIM_NO_BUFFER) {
        writes(m, buffer, SCRATCH, -1, false);
    }
}

static void needs(model *m, const bool *there, const char *what, int unit)
{
    if (!there[unit]) {
        complain(m, what, unit);
    }
}

static void reads_z(model *m, int u)
{
    reads(m, m->pass->unit[u].z, Z, u);
}

static void reads_applied(model *m, int u)
{
    reads_z(m, u);
    needs(m, m->affine, "no BatchNorm yet", u);
}

static void reads_x(model *m, int u, bool from_z)
{
    const int input = m->pass->net->unit[u].input;
    if (input < 0) {
        reads(m, m->pass->input, INPUT, -1);
    } else if (from_z) {
        reads_applied(m, input);
    } else {
        reads(m, m->pass->unit[input].y, Y, input);
    }
}

/* z of the unit and what it adds: what a tail reads, forward, and backward where there is no gate. */
static void reads_tail(model *m, int u, bool backward)
{
    const int s = m->pass->net->unit[u].skip;
    reads_applied(m, u);
    if (backward && m->pass->unit[u].gated) {
        reads(m, m->pass->unit[u].gate, GATE, u);
    } else if (s >= 0 && (m->pass->unit[s].folder == u || m->pass->unit[s].is_virtual)) {
        reads_applied(m, s);
    } else if (s >= 0) {
        reads(m, m->pass->unit[s].y, Y, s);
    }
}

/* Every contribution to dy, none left out; and that flim_pass_sources finds the same number of them. */
static void reads_sources(model *m, int u)
{
    const flim_pass *pass = m->pass;
    const int from = pass->unit[u].gradient_from;
    int n = u == pass->net->n_units - 1;
    flim_sources sources;
    if (from >= 0) {
        reads(m, pass->unit[from].dx, DU, from);
        n = 1;
    }
    for (int r = 0; from < 0 && r < pass->net->n_units; r++) {
        if (pass->net->unit[r].input == u) {
            reads(m, pass->unit[r].dx, DX, r);
            n++;
        }
        if (pass->net->unit[r].skip == u && pass->unit[u].folder != r) {
            reads(m, pass->unit[r].dv, DV, r);
            n++;
        }
    }
    if (flim_pass_sources(pass, NULL, u, NULL, &sources, NULL) != FLIM_OK || sources.n != n || n < 1) {
        complain(m, "another number of sources", u);
    }
}

static void run_operation(model *m, const flim_operation *o)
{
    const flim_pass *pass = m->pass;
    const int u = o->unit, s = pass->net->unit[u].skip, input = pass->net->unit[u].input;
    const flim_pass_unit *pu = &pass->unit[u];
    m->n_read = 0;
    switch (o->kind) {
    case FLIM_OP_CONV:
        reads_x(m, u, input >= 0 && pass->unit[input].is_virtual);
        if (input >= 0 && pass->unit[input].is_virtual && !pu->k3) {
            complain(m, "a convolution that cannot apply what its input lacks", u);
        }
        writes(m, pu->z, Z, u, false);
        scratch(m, pu->workspace[FLIM_CONV_FORWARD]);
        break;
    case FLIM_OP_STEM_FORWARD:
        reads(m, pass->input, INPUT, -1);
        writes(m, pu->z, Z, u, false);
        scratch(m, pu->workspace[FLIM_CONV_FORWARD]);
        m->affine[pass->stem] = true;
        break;
    case FLIM_OP_NORM:
        reads_z(m, u);
        m->affine[u] = true;
        break;
    case FLIM_OP_TAIL:
        reads_tail(m, u, false);
        writes(m, pu->y, Y, u, false);
        if (pu->gated) {
            writes(m, pu->gate, GATE, u, false);
        }
        break;
    case FLIM_OP_HEAD: reads(m, pu->y, Y, u); break;
    case FLIM_OP_GRAD_SUMS:
        reads_tail(m, u, true);
        reads_sources(m, u);
        m->coefficients[u] = true;
        if (s >= 0 && pass->unit[s].folder == u) {
            m->coefficients[s] = true;
        }
        if (pu->rewrites_y) {
            writes(m, pu->y, Y, u, false);
        }
        break;
    case FLIM_OP_GRAD_APPLY:
        reads_tail(m, u, true);
        reads_sources(m, u);
        needs(m, m->coefficients, "no sums yet", u);
        writes(m, pu->dz, DZ, u, true);
        if (s >= 0 && pass->unit[s].folder == u) {
            writes(m, pass->unit[s].dz, DZ, s, false);
        } else if (s >= 0) {
            writes(m, pu->dv, DV, u, true);
        }
        break;
    case FLIM_OP_WEIGHT:
        if (input >= 0 && pu->weight_from_z && !pu->plan[FLIM_CONV_WEIGHT]->own) {
            complain(m, "a weight gradient that cannot apply what its input lacks", u);
        }
        reads_x(m, u, input >= 0 && pu->weight_from_z);
        reads(m, pu->dz, DZ, u);
        scratch(m, pu->workspace[FLIM_CONV_WEIGHT]);
        break;
    case FLIM_OP_DATA:
        reads(m, pu->dz, DZ, u);
        if (pass->unit[input].gradient_from == u) {
            const int add = pass->unit[input].gradient_add;
            reads_applied(m, input);
            if (add >= 0) {
                reads(m, pass->unit[add].dv, DV, add);
            }
            m->coefficients[input] = true;
        }
        writes(m, pu->dx, pass->unit[input].gradient_from == u ? DU : DX, u, false);
        scratch(m, pu->workspace[FLIM_CONV_DATA]);
        break;
    case FLIM_OP_STEM_BACKWARD:
        reads(m, pass->input, INPUT, -1);
        needs(m, m->coefficients, "no sums yet", u);
        if (pu->norm_on_load) {
            reads_z(m, u);
            reads(m, pass->unit[pu->gradient_from].dx, DU, pu->gradient_from);
        } else {
            reads(m, pu->dz, DZ, u);
        }
        scratch(m, pu->workspace[FLIM_CONV_WEIGHT]);
        break;
    }
}

/* Each unit has its convolution and its gradients once, and again what is marked so. */
static void count_operations(model *m)
{
    const flim_pass *pass = m->pass;
    int conv[FLIM_MAX_UNITS] = {0}, again[FLIM_MAX_UNITS] = {0}, weight[FLIM_MAX_UNITS] = {0}, data[FLIM_MAX_UNITS] = {0};
    for (int i = 0; i < pass->n_operations; i++) {
        const flim_operation *o = &pass->operation[i];
        const bool is_conv = o->kind == FLIM_OP_CONV || o->kind == FLIM_OP_STEM_FORWARD;
        conv[o->unit] += is_conv && !o->again;
        again[o->unit] += is_conv && o->again;
        weight[o->unit] += o->kind == FLIM_OP_WEIGHT || o->kind == FLIM_OP_STEM_BACKWARD;
        data[o->unit] += o->kind == FLIM_OP_DATA;
    }
    for (int u = 0; u < pass->net->n_units; u++) {
        const bool has_data = pass->train && pass->net->unit[u].input >= 0 && u != pass->down;
        if (u != pass->stem && (conv[u] != 1 || again[u] != (int)pass->unit[u].remade || weight[u] != (int)pass->train ||
                                data[u] != (int)has_data)) {
            complain(m, "the wrong number of convolutions", u);
        }
    }
}

static void check_pass(const flim_pass *pass, const char *text)
{
    static model m;
    m = (model){.pass = pass};
    snprintf(m.text, sizeof m.text, "%s", text);
    m.held[pass->input] = INPUT;
    for (m.op = 0; m.op < pass->n_operations && !m.wrong[0]; m.op++) {
        run_operation(&m, &pass->operation[m.op]);
    }
    count_operations(&m);
    if (m.wrong[0]) {
        fail_msg("%s", m.wrong);
    }
}

static void build(flim_pass *pass, flim_device *device, const flim_network *net, flim_storage type, bool train, int64_t batch,
                  flim_pass_drop drop, int64_t limit)
{
    flim_error err = {0};
    const flim_plan_options options = {.workspace_limit = limit};
    if (flim_pass_build(pass, flim_cuda_device_of(device), net, type, train, batch, false, &drop, &options, &err) !=
        FLIM_OK) {
        fail_msg("%s", err.text);
    }
    for (int u = 0; limit > 0 && u < net->n_units; u++) {
        for (int op = 0; op < 3; op++) {
            const flim_conv_plan *plan = pass->unit[u].plan[op];
            if (plan && plan->workspace > limit) {
                fail_msg("%s, direction %d: a plan (%s) of %lld bytes of workspace, allowed are %lld", net->unit[u].conv, op,
                         plan->engine, (long long)plan->workspace, (long long)limit);
            }
        }
    }
}

/* Every set of blocks made again with 0, 1, ... outputs written again. */
static int check_training(flim_device *device, const flim_network *net, flim_storage type, int64_t batch, int64_t limit,
                          const char *text)
{
    static flim_pass pass;
    int checked = 0;
    build(&pass, device, net, type, true, batch, (flim_pass_drop){0}, limit);
    const uint32_t sets = 1u << pass.n_blocks;
    for (uint32_t blocks = 0; blocks < sets; blocks++) {
        for (int outputs = 0, most = 0; outputs <= most; outputs++) {
            char full[160];
            build(&pass, device, net, type, true, batch, (flim_pass_drop){.outputs = outputs, .blocks = blocks}, limit);
            most = flim_pass_droppable(&pass);
            snprintf(full, sizeof full, "%s, %d outputs and blocks %x made again", text, outputs, (unsigned)blocks);
            check_pass(&pass, full);
            checked++;
        }
    }
    return checked;
}

static void every_operation_finds_what_it_reads(void **state)
{
    (void)state;
    static const struct {
        const char *card, *name;
        flim_storage type;
    } kinds[] = {{"t4", "fp32", FLIM_STORAGE_FP32}, /* no kernels of our own that apply BatchNorm as they load */
                 {"t4", "fp16", FLIM_STORAGE_FP16},
                 {"h100", "fp16", FLIM_STORAGE_FP16}};
    static const struct {
        int width, t, h, w;
        int64_t batch;
    } cases[] = {{4, 8, 3, 3, 1}, {28, 33, 5, 4, 3}, {32, 133, 3, 21, 1}, {32, 16, 9, 9, 6}};
    int checked = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            flim_error err = {0};
            flim_network net;
            assert_int_equal(flim_network_build(&net, cases[k].width, 2, cases[k].t, cases[k].h, cases[k].w, &err), FLIM_OK);
            static flim_pass pass;
            flim_card card;
            flim_device *device = NULL;
            assert_int_equal(flim_card_find(FLIM_SOURCE_DIR "/configs/devices", kinds[i].card, &card, NULL, &err), FLIM_OK);
            assert_int_equal(flim_device_describe(&card, &device, &err), FLIM_OK);
            device->info.assumes_workspace = true; /* cuDNN is not asked */
            /* With 1 MiB our own weight gradient is refused, as where cuDNN's is quicker. */
            for (int64_t limit = 0; limit <= 1 << 20; limit += 1 << 20) {
                char text[96];
                snprintf(text, sizeof text, "%s %s width %d (%d,%d,%d) workspace %lld", kinds[i].card, kinds[i].name,
                         cases[k].width, cases[k].t, cases[k].h, cases[k].w, (long long)limit);
                build(&pass, device, &net, kinds[i].type, false, cases[k].batch, (flim_pass_drop){0}, limit);
                check_pass(&pass, text);
                checked += 1 + check_training(device, &net, kinds[i].type, cases[k].batch, limit, text);
            }
            flim_device_close(device);
        }
    }
    print_message("%d passes\n", checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_operation_finds_what_it_reads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("skipped: this build has no CUDA backend\n");
    return 77;
}

#endif

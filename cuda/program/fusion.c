#include "cuda/program/fusion.h"

/* ---- kernels and shapes ------------------------------------------------------------------------------------------------ */

bool flim_fusion_compact_dx(const flim_unit *u)
{
    return !u->transposed && flim_volume(u->kernel) == 1 && u->pad[0] + u->pad[1] + u->pad[2] == 0 &&
           u->stride[0] * u->stride[1] * u->stride[2] > 1;
}

flim_conv_problem flim_fusion_problem(const flim_unit *unit, flim_conv_op op, flim_storage type, int64_t batch,
                                      bool deterministic)
{
    flim_conv_problem p = {.op = op,
                           .type = type,
                           .deterministic = deterministic,
                           .n = batch,
                           .c = flim_storage_channels(unit->in_channels),
                           .k = flim_storage_channels(unit->out_channels),
                           .in_channels = unit->in_channels,
                           .out_channels = unit->out_channels};
    const bool compact = op == FLIM_CONV_DATA && flim_fusion_compact_dx(unit);
    if (unit->transposed) { /* the convolution from z to x, the other way round */
        p.op = op == FLIM_CONV_WEIGHT ? op : op == FLIM_CONV_DATA ? FLIM_CONV_FORWARD : FLIM_CONV_DATA;
        p.c = flim_storage_channels(unit->out_channels);
        p.k = flim_storage_channels(unit->in_channels);
        p.in_channels = unit->out_channels;
        p.out_channels = unit->in_channels;
    }
    for (int d = 0; d < 3; d++) {
        p.in[d] = compact || unit->transposed ? unit->conv_out[d] : unit->in[d];
        p.out[d] = unit->transposed ? unit->in[d] : unit->conv_out[d];
        p.kernel[d] = unit->kernel[d];
        p.stride[d] = compact ? 1 : unit->stride[d];
        p.pad[d] = unit->pad[d];
    }
    return p;
}

/* The forward convolution of unit u as the fused kernels do it. */
static flim_conv_problem fused_forward(const flim_schedule *s, int u)
{
    flim_conv_problem p = flim_fusion_problem(&s->net->unit[u], FLIM_CONV_FORWARD, s->type, s->batch, s->deterministic);
    p.master = true;
    p.sums = s->train;
    return p;
}

/* What follows if the data gradient of unit u comes through the activation of its input unit. */
static void set_epilogue(const flim_schedule *s, int u, flim_conv_problem *p)
{
    const int input = s->net->unit[u].input;
    p->epilogue = p->sums = true;
    p->sign_mask = s->net->unit[input].skip >= 0;
    for (int r = 0; r < s->net->n_units; r++) {
        p->add = s->net->unit[r].skip == input              ? FLIM_ADD_DENSE
                 : s->net->unit[r].input == input && r != u ? FLIM_ADD_STRIDED
                                                            : p->add;
    }
}

flim_conv_problem flim_fusion_unit_problem(const flim_schedule *s, int u, flim_conv_op op)
{
    const int input = s->net->unit[u].input;
    const bool stem = flim_schedule_stem_of(s, u) >= 0;
    flim_conv_problem p = flim_fusion_problem(&s->net->unit[u], op, s->type, s->batch, s->deterministic);
    p.stem = stem;
    if (op == FLIM_CONV_FORWARD) {
        p.master = flim_fusion_forward_fused(s, u);
        p.sums = s->train && (p.master || s->unit[u].gathers);
        p.x_form = flim_fusion_forward_form(s, u);
    } else if (op == FLIM_CONV_WEIGHT) {
        p.x_form = flim_fusion_weight_form(s, u);
        p.dz_form = flim_fusion_gradient_on_load(s, u) ? FLIM_INPUT_NORM_ON_LOAD : FLIM_INPUT_PLAIN;
    } else {
        p.master = s->unit[u].conv3x3x3;
        if (s->unit[input].gradient_from == u) {
            set_epilogue(s, u, &p);
        }
    }
    return p;
}

int flim_fusion_heads_of(const flim_network *net, int u)
{
    int n = 0;
    for (int k = 0; k < net->n_heads; k++) {
        n += net->head[k].unit == u;
    }
    return n;
}

/* BatchNorm and activation only, and no head: a reader can apply it as it loads z. */
static bool is_simple(const flim_network *net, int n)
{
    const flim_unit *u = &net->unit[n];
    return u->bn[0] && u->act && u->pool_t == 1 && u->skip < 0 && !u->dropout && flim_fusion_heads_of(net, n) == 0;
}

static int readers_of(const flim_network *net, int u)
{
    int n = flim_fusion_heads_of(net, u);
    for (int r = 0; r < net->n_units; r++) {
        n += (net->unit[r].input == u) + (net->unit[r].skip == u);
    }
    return n;
}

/* ---- what is fused ----------------------------------------------------------------------------------------------------- */

/* A convolution whose unit's BatchNorm and neighbours may be fused with it. */
static bool may_be_fused(const flim_unit *unit)
{
    return unit->input >= 0 && unit->bn[0] && !unit->transposed;
}

static bool is_conv3x3x3(const flim_schedule *s, int u, const flim_card *card)
{
    const flim_conv_problem problem = fused_forward(s, u);
    return may_be_fused(&s->net->unit[u]) && !(s->unfused[u] & ~(1u << FLIM_CONV_WEIGHT)) &&
           flim_conv3x3x3_supported(&problem, card->capability);
}

/* A convolution on stored weights gathers the sums over its output. */
static bool gathers_sums(const flim_schedule *s, int u, const flim_card *card)
{
    const flim_unit *unit = &s->net->unit[u];
    flim_conv_problem problem = flim_fusion_problem(unit, FLIM_CONV_FORWARD, s->type, s->batch, s->deterministic);
    problem.sums = true;
    return s->train && may_be_fused(unit) && !(s->unfused[u] & 1u << FLIM_CONV_FORWARD) && flim_conv_gathers(&problem, card);
}

/* The forward convolution can apply its input unit's BatchNorm and activation as it loads z, and in training gathers the sums over its own
 * output. */
static bool applies_on_load(const flim_schedule *s, int u, const flim_card *card)
{
    const flim_unit *unit = &s->net->unit[u];
    flim_conv_problem problem = flim_fusion_problem(unit, FLIM_CONV_FORWARD, s->type, s->batch, s->deterministic);
    problem.x_form = FLIM_INPUT_NORM_ACT_ON_LOAD;
    problem.sums = s->train;
    return s->unit[u].conv3x3x3 || (may_be_fused(unit) && (s->unit[u].gathers || !s->train) &&
                                    !(s->unfused[u] & 1u << FLIM_CONV_FORWARD) && flim_conv_is_guessed(&problem, card));
}

/* The data gradient can come through its input unit's activation, with another added to it or none, and gathers what that unit's BatchNorm
 * needs. */
static bool passes_activation(const flim_schedule *s, int u, bool adds, const flim_card *card)
{
    const flim_unit *unit = &s->net->unit[u];
    flim_conv_problem problem = flim_fusion_problem(unit, FLIM_CONV_DATA, s->type, s->batch, s->deterministic);
    problem.epilogue = problem.sums = true;
    problem.add = adds ? FLIM_ADD_DENSE : FLIM_ADD_NONE;
    return s->unit[u].conv3x3x3 ||
           (may_be_fused(unit) && !(s->unfused[u] & 1u << FLIM_CONV_DATA) && flim_conv_is_guessed(&problem, card));
}

/* Unit d alone reads what may be conv_stem.h's stem. */
static bool reads_stem(const flim_schedule *s, int d)
{
    static const int kernel[3] = {7, 1, 1}, stride[3] = {1, 1, 1}, pad[3] = {3, 0, 0};
    const flim_network *net = s->net;
    const flim_unit *down = &net->unit[d], *stem = down->input >= 0 ? &net->unit[down->input] : NULL;
    if (!stem || s->no_stem || stem->input >= 0 || net->channels != 2 || !is_simple(net, down->input) || stem->transposed ||
        down->transposed || readers_of(net, down->input) != 1) {
        return false;
    }
    const flim_conv_problem first = fused_forward(s, down->input);
    return flim_conv_has_shape(&first, kernel, stride, pad);
}

/* Its kernel and the stem's are one. */
static bool is_stem_pair(const flim_schedule *s, int d, const flim_card *card)
{
    const flim_unit *down = &s->net->unit[d];
    flim_conv_problem problem = fused_forward(s, d);
    problem.stem = true;
    return reads_stem(s, d) && !s->unfused[d] && s->unit[d].fusion == FLIM_FUSION_NONE && down->skip < 0 && down->bn[0] &&
           flim_stem_supported(&problem, card->capability);
}

/* What unit d reads is computed by the stem's kernels alone; d's data gradient is as large as the stem's output. */
static bool is_stem_alone(const flim_schedule *s, int d, const flim_card *card)
{
    if (!reads_stem(s, d) || s->unfused[s->net->unit[d].input] || flim_fusion_compact_dx(&s->net->unit[d])) {
        return false;
    }
    flim_conv_problem problem = fused_forward(s, s->net->unit[d].input);
    problem.stem = true;
    return flim_stem_supported(&problem, card->capability);
}

static void find_stem(flim_schedule *s, const flim_card *card)
{
    const flim_network *net = s->net;
    int down = -1, reader = -1;
    for (int k = 0; k < net->n_heads; k++) {
        if (net->head[k].kind == FLIM_HEAD_DENSE) { /* it reads the prepared input, which a stem wants in a form of its own */
            return;
        }
    }
    for (int d = 1; d < net->n_units; d++) {
        down = is_stem_pair(s, d, card) ? d : down;
        reader = down == d || is_stem_alone(s, d, card) ? d : reader;
    }
    for (int u = 0; reader >= 0 && u < net->n_units; u++) { /* its input has a form of its own: nobody else may want it */
        if (net->unit[u].input < 0 && u != net->unit[reader].input) {
            return;
        }
    }
    if (down < 0 && reader >= 0) {
        s->unit[net->unit[reader].input].fusion = FLIM_FUSION_STEM_ALONE;
    } else if (down >= 0) {
        const int stem = net->unit[down].input;
        s->unit[stem].fusion = FLIM_FUSION_STEM;
        s->unit[stem].partner = down;
        s->unit[down].partner = stem;
    }
}

void flim_fusion_find(flim_schedule *s, const flim_card *card)
{
    const flim_network *net = s->net;
    s->n_blocks = flim_network_blocks(net);
    for (int u = 0; u < net->n_units; u++) {
        flim_schedule_unit *su = &s->unit[u];
        *su = (flim_schedule_unit){.unit = &net->unit[u],
                                   .c = flim_storage_channels(net->unit[u].in_channels),
                                   .k = flim_storage_channels(net->unit[u].out_channels),
                                   .partner = -1,
                                   .gradient_from = -1,
                                   .weight_item = -1,
                                   .scratch = {FLIM_NO_BUFFER, FLIM_NO_BUFFER, FLIM_NO_BUFFER}};
        for (int k = 0; k < FLIM_UNIT_BUFFERS; k++) {
            su->buffer[k] = FLIM_NO_BUFFER;
        }
        su->conv3x3x3 = is_conv3x3x3(s, u, card);
        su->gathers = !su->conv3x3x3 && gathers_sums(s, u, card);
    }
    for (int u = 0; u < net->n_units; u++) {
        const int a = net->unit[u].skip;
        const flim_unit *added = a >= 0 ? &net->unit[a] : NULL;
        if (added && !added->act && added->pool_t == 1 && !added->dropout && added->skip < 0 && readers_of(net, a) == 1) {
            s->unit[a].fusion = FLIM_FUSION_SKIP;
            s->unit[a].partner = u;
        }
    }
    find_stem(s, card);
}

/* The kernel of unit u's weight gradient can apply what stands between its input unit's z and x. */
static bool weight_can_apply(const flim_schedule *s, int u)
{
    const flim_schedule_unit *su = &s->unit[u];
    return s->train && su->conv[FLIM_CONV_WEIGHT] && su->conv[FLIM_CONV_WEIGHT]->algorithm->fp32_gradient &&
           !(s->unfused[u] & 1u << FLIM_CONV_WEIGHT) && flim_schedule_stem_of(s, u) < 0 && su->unit->input >= 0 &&
           is_simple(s->net, su->unit->input) && !su->unit->transposed &&
           s->unit[su->unit->input].fusion != FLIM_FUSION_STEM_ALONE; /* which has no z */
}

/* ... and does, since there is only z.  A y that is stored is read as it is, which takes the kernel a sixth less time. */
static bool weight_applies(const flim_schedule *s, int u)
{
    return weight_can_apply(s, u) && s->unit[s->unit[u].unit->input].fusion == FLIM_FUSION_ON_LOAD;
}

bool flim_fusion_by_mask(const flim_schedule *s, int u)
{
    return s->unit[u].gradient_from >= 0 && s->net->unit[u].skip >= 0;
}

static bool same_stride(const flim_unit *a, const flim_unit *b)
{
    return a->stride[0] == b->stride[0] && a->stride[1] == b->stride[1] && a->stride[2] == b->stride[2];
}

static bool has_one_by_mask(const flim_schedule *s, int block)
{
    bool has = false;
    for (int u = 0; u < s->net->n_units; u++) {
        has = has || (s->net->unit[u].block == block && flim_fusion_by_mask(s, u));
    }
    return has;
}

/* Unit u adds a skip: the unit whose data gradient can come through its activation by the sign mask that it leaves, with that of a skip over
 * the same strides if there is one; or -1. */
static int gradient_by_mask(const flim_schedule *s, int u, const flim_card *card)
{
    const flim_unit *unit = &s->net->unit[u];
    int from = -1, compact = -1;
    if (!s->train || !unit->bn[0] || !unit->act || unit->pool_t != 1 || unit->skip < 0 || !unit->dropout ||
        s->unit[unit->skip].fusion == FLIM_FUSION_SKIP || flim_fusion_heads_of(s->net, u) > 0) {
        return -1;
    }
    for (int r = 0; r < s->net->n_units; r++) {
        const flim_unit *reader = &s->net->unit[r];
        if (reader->skip == u) {
            return -1;
        }
        if (reader->input == u && s->unit[r].fusion == FLIM_FUSION_SKIP && flim_fusion_compact_dx(reader) && compact < 0) {
            compact = r;
        } else if (reader->input == u) {
            if (from >= 0 || s->unit[r].conv3x3x3 || reader->transposed || s->unfused[r] & 1u << FLIM_CONV_DATA) {
                return -1;
            }
            from = r;
        }
    }
    if (from < 0 || s->net->unit[from].block == unit->block || has_one_by_mask(s, unit->block) ||
        (compact >= 0 && (!same_stride(&s->net->unit[compact], &s->net->unit[from]) || s->unit[compact].partner < from))) {
        return -1; /* what is recomputed goes by blocks; the skip's dx must be there before the data gradient */
    }
    flim_conv_problem problem = flim_fusion_problem(&s->net->unit[from], FLIM_CONV_DATA, s->type, s->batch, s->deterministic);
    set_epilogue(s, from, &problem);
    const flim_conv_algorithm *algorithm[FLIM_CONV_ALGORITHMS];
    return flim_conv_candidates(&problem, card, &(flim_conv_search_options){0}, algorithm) > 0 ? from : -1;
}

void flim_fusion_find_outputs(flim_schedule *s, const flim_card *card)
{
    for (int u = 0; u < s->net->n_units; u++) {
        flim_schedule_unit *su = &s->unit[u];
        int conv_readers = 0, skip_readers = 0, from = -1;
        bool all_apply = is_simple(s->net, u);
        for (int r = 0; r < s->net->n_units; r++) {
            const flim_schedule_unit *reader = &s->unit[r];
            if (reader->unit->input == u) {
                conv_readers++;
                from = r;
                all_apply = all_apply && applies_on_load(s, r, card) && (!s->train || weight_can_apply(s, r));
            }
            skip_readers += reader->unit->skip == u;
        }
        if (all_apply && conv_readers > 0 && su->fusion == FLIM_FUSION_NONE) {
            su->fusion = FLIM_FUSION_ON_LOAD;
        }
        if (s->train && is_simple(s->net, u) && conv_readers == 1 && skip_readers <= 1 &&
            su->fusion != FLIM_FUSION_STEM_ALONE) {
            su->gradient_from = passes_activation(s, from, skip_readers > 0, card) ? from : -1;
        } else {
            su->gradient_from = gradient_by_mask(s, u, card);
        }
    }
}

/* ---- what is recomputed ------------------------------------------------------------------------------------------------ */

/* Another block reads this unit: its z, or else its y.  That for which the sign mask is kept is read when its block is recomputed. */
static bool read_outside(const flim_schedule *s, int u, bool z)
{
    const flim_schedule_unit *su = &s->unit[u];
    for (int r = 0; r < s->net->n_units; r++) {
        const flim_unit *reader = &s->net->unit[r];
        if (s->net->unit[r].block != s->net->unit[u].block && (reader->input == u || reader->skip == u)) {
            const bool by_z = su->fusion != FLIM_FUSION_NONE || (su->gradient_from == r && !flim_fusion_by_mask(s, u)) ||
                              (reader->input == u && weight_applies(s, r));
            if (by_z || !z) {
                return true;
            }
        }
    }
    return false;
}

/* Which z are recomputed (of the stem alone y): in the blocks asked for those that no other block reads.  Not in the last block, whose
 * backward pass follows at once, and not by the kernel of stem and down, which keeps one z that others read. */
static bool recomputes_z(const flim_schedule *s, int u, uint32_t blocks)
{
    const int stem = flim_schedule_stem_of(s, u);
    return s->train && blocks >> s->net->unit[u].block & 1u && s->net->unit[u].block < s->n_blocks - 1 &&
           s->unit[u].fusion != FLIM_FUSION_STEM && (stem < 0 || stem == u) && !read_outside(s, u, true);
}

/* Which y could be written again: those that only weight gradients read between the forward pass and the pass that sums their gradient, by
 * that pass; or, if the sign mask stands for that pass, by the epilogue, which runs once more. */
static bool could_recompute_y(const flim_schedule *s, int u)
{
    const flim_schedule_unit *su = &s->unit[u];
    bool wanted = false, early = false;
    for (int r = 0; r < s->net->n_units; r++) {
        const flim_schedule_unit *reader = &s->unit[r];
        wanted = wanted || (reader->unit->input == u && !weight_applies(s, r));
        early = early || reader->unit->skip == u || (reader->unit->input == u && reader->recompute == FLIM_Z_RECOMPUTED);
    }
    return s->train && wanted && su->recompute == FLIM_KEPT && su->fusion == FLIM_FUSION_NONE &&
           (flim_fusion_by_mask(s, u) || (!early && su->gradient_from < 0));
}

/* The largest y that could be recomputed and is not; -1 = none. */
static int largest_recomputable(const flim_schedule *s)
{
    int largest = -1;
    int64_t most = 0;
    for (int u = 0; u < s->net->n_units; u++) {
        const int64_t elements = flim_volume(s->unit[u].unit->out) * s->unit[u].k;
        if (s->unit[u].recompute == FLIM_Y_RECOMPUTABLE && elements > most) {
            most = elements;
            largest = u;
        }
    }
    return largest;
}

void flim_fusion_find_recomputed(flim_schedule *s, const flim_recompute_set *set)
{
    const int n = s->net->n_units;
    for (int u = 0; u < n; u++) {
        s->unit[u].recompute = recomputes_z(s, u, set->blocks) ? FLIM_Z_RECOMPUTED : FLIM_KEPT;
    }
    for (int u = 0; u < n; u++) {
        if (could_recompute_y(s, u)) {
            s->unit[u].recompute = FLIM_Y_RECOMPUTABLE;
        }
    }
    for (int i = 0, u = largest_recomputable(s); i < set->outputs && u >= 0; i++, u = largest_recomputable(s)) {
        s->unit[u].recompute = FLIM_Y_RECOMPUTED;
    }
}

/* ---- what follows for a unit ------------------------------------------------------------------------------------------- */

flim_input_form flim_fusion_forward_form(const flim_schedule *s, int u)
{
    const int input = s->unit[u].unit->input;
    return input >= 0 && s->unit[input].fusion == FLIM_FUSION_ON_LOAD ? FLIM_INPUT_NORM_ACT_ON_LOAD : FLIM_INPUT_PLAIN;
}

flim_input_form flim_fusion_weight_form(const flim_schedule *s, int u)
{
    return weight_applies(s, u) ? FLIM_INPUT_NORM_ACT_ON_LOAD : FLIM_INPUT_PLAIN;
}

flim_input_form flim_fusion_skip_form(const flim_schedule *s, int u)
{
    const int added = s->unit[u].unit->skip;
    const flim_fusion fusion = added >= 0 ? s->unit[added].fusion : FLIM_FUSION_NONE;
    return fusion == FLIM_FUSION_SKIP      ? FLIM_INPUT_NORM_ON_LOAD
           : fusion == FLIM_FUSION_ON_LOAD ? FLIM_INPUT_NORM_ACT_ON_LOAD
                                           : FLIM_INPUT_PLAIN;
}

bool flim_fusion_forward_fused(const flim_schedule *s, int u)
{
    return s->unit[u].conv3x3x3 || flim_schedule_stem_of(s, u) >= 0;
}

bool flim_fusion_gradient_on_load(const flim_schedule *s, int u)
{
    return flim_schedule_stem_of(s, u) >= 0 && s->unit[u].gradient_from >= 0;
}

bool flim_fusion_has_sign_mask(const flim_schedule *s, int u)
{
    const flim_unit *unit = s->unit[u].unit;
    return s->train && unit->act && unit->skip >= 0 && s->unit[unit->skip].fusion != FLIM_FUSION_SKIP && unit->pool_t == 1 &&
           (s->unit[u].recompute != FLIM_Y_RECOMPUTED ||
            flim_fusion_by_mask(s, u)); /* else the value is needed, not the sign */
}

bool flim_fusion_recomputes_y(const flim_schedule *s, int u)
{
    bool read = false;
    for (int r = 0; r < s->net->n_units; r++) {
        const flim_schedule_unit *reader = &s->unit[r];
        read = read || reader->unit->skip == u ||
               (reader->unit->input == u && (reader->recompute == FLIM_Z_RECOMPUTED || !weight_applies(s, r)));
    }
    return s->unit[u].recompute == FLIM_Z_RECOMPUTED && s->unit[u].fusion == FLIM_FUSION_NONE && read &&
           !read_outside(s, u, false);
}

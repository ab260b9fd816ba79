/* 3x3x3 convolutions: how the pixels are tiled, and the kernel's arguments (conv3x3x3_kernel.cuh). */
#include "cuda/conv/conv3x3x3.h"
#include "cuda/conv/conv3x3x3_kernel.cuh"

#ifndef FLIM_WGMMA
#define FLIM_WGMMA 0 /* 1: conv3x3x3_wgmma.cu is compiled for compute capability 9.0 */
#endif

using namespace flim_conv3x3x3;

namespace
{

/* Input and output channels of the kernel, and how it is compiled for them. */
struct shape {
    int from, to;
    int warps, wide_warps; /* most of a block with USUAL_R or fewer tiles a warp, and with MOST_R */
    int64_t weight_bytes;
};

template <int CI, int CO> constexpr shape shape_of()
{
    return {CI, CO, cut<CO, USUAL_R>::WARPS, cut<CO, MOST_R>::WARPS, 4 * (int64_t)width<CI, CO>::WEIGHTS};
}

constexpr shape shapes[] = {shape_of<8, 8>(),   shape_of<8, 16>(),  shape_of<16, 8>(), shape_of<16, 16>(),
                            shape_of<16, 32>(), shape_of<32, 16>(), shape_of<32, 32>()};

/* NULL if the kernel is not compiled for the problem's channels. */
const shape *find_shape(const flim_conv_problem *s)
{
    const int from = s->op == FLIM_CONV_DATA ? s->k : s->c, to = s->op == FLIM_CONV_DATA ? s->c : s->k;
    for (const shape &known : shapes)
        if (known.from == from && known.to == to)
            return &known;
    return nullptr;
}

/* The output's height and width, and whether a row of it is two staged rows from the next. */
struct extent {
    int h, w, ho, wo, stride; /* staged; output */
};

extent extent_of(const flim_conv_problem *s)
{
    return s->op == FLIM_CONV_DATA ? extent{s->in[1], s->in[2], s->in[1], s->in[2], 1}
                                   : extent{s->in[1], s->in[2], s->out[1], s->out[2], s->stride[2]};
}

/* Completes a tiling from warps and tiles; false if it does not fit `limit` bytes of shared memory. */
bool complete(tiling &p, const flim_conv_problem *s, const shape *channels, bool spread, int64_t limit)
{
    const extent e = extent_of(s);
    const int w = e.w, most = channels->from > channels->to ? channels->from : channels->to;
    const int64_t pixels = s->n * e.ho * e.wo;
    p.group = p.warps * p.r * 16;
    p.groups = (int)((pixels + p.group - 1) / p.group);
    const int span = (p.group - 1 + e.wo - 1) / e.wo + 1; /* most rows of pixels a group touches */
    p.cells = 1 + (span - 1 + e.ho - 1) / e.ho;
    p.rows = e.stride * span + (3 - e.stride) * p.cells;
    p.pitch = spread ? w + 8 : w + 1; /* a row's right border is the next one's left: W + 1 slots would do */
    if (p.pitch < w + 2)
        p.pitch = w + 2;
    const int64_t bytes =
        channels->weight_bytes + 2 * (int64_t)p.rows * p.pitch * 2 * channels->from +
        (int64_t)sizeof(load_entry) * p.rows * w +
        (int64_t)sizeof(float) * (CONSTANTS + p.cells) * most; /* a reserve: it decides on tilings, so on the order of sums */
    p.shared_bytes = (int)bytes;
    return bytes <= limit;
}

/* The tiling with the most products under way in the four parts of a multiprocessor, less for what is staged twice and for
 * bank conflicts; false if not even one warp's group fits. */
bool find_tiling(const flim_conv_problem *s, int64_t limit, bool wide, tiling *best)
{
    const shape *channels = find_shape(s);
    const bool is_base = channels->from == 32 && channels->to == 32;
    const int w = s->in[2], most_r = wide ? MOST_R : USUAL_R, least_r = is_base ? 1 : most_r; /* narrower: always 8 warps */
    double most = 0.0;
    for (int r = most_r; r >= least_r; r--)
        for (int warps = wide ? channels->wide_warps : channels->warps; warps >= 1; warps--)
            for (int spread = 1; spread >= 0; spread--) {
                tiling p = {};
                p.warps = warps;
                p.r = r;
                if (!complete(p, s, channels, spread != 0, limit))
                    continue;
                const int rounds = (warps + 3) / 4; /* warps of the fullest part */
                const double halo = (double)p.rows * w / p.group;
                const double rate = (double)warps / rounds / (1.0 + 0.1 * halo + 0.05 * (spread == 0) + 0.2 / rounds) *
                                    (r == 1 ? 0.95 : 1.0); /* which loads each weight twice as often */
                if (rate > most) {
                    most = rate;
                    *best = p;
                }
            }
    return most > 0.0;
}

bool has_wgmma(const flim_conv_problem *s, const flim_card *card)
{
    return FLIM_WGMMA && card->capability == 90 && (s->c == 16 || s->c == 32) && s->c == s->k && s->stride[2] == 1 &&
           fits_wgmma(s, s->c, card);
}

bool find_tiling_of(const flim_conv_problem *s, flim_conv3x3x3_variant variant, const flim_card *card, tiling *best)
{
    switch (variant) {
    case FLIM_CONV3X3X3_USUAL: return find_tiling(s, card->shared_bytes, false, best);
    case FLIM_CONV3X3X3_WIDE: return s->c == s->k && s->c < 32 && find_tiling(s, card->shared_bytes, true, best);
    case FLIM_CONV3X3X3_WGMMA_FREE:
    case FLIM_CONV3X3X3_WGMMA: return has_wgmma(s, card); /* its tiling is its own */
    default: return false;
    }
}

cudaError_t launch(const flim_conv_problem *problem, int64_t n, flim_conv3x3x3_variant variant, kernel_arguments &a,
                   double *sums, void *scratch, const flim_card *card, cudaStream_t stream)
{
    flim_conv_problem here = *problem;
    here.n = n;
    if (!flim_conv3x3x3_supported(&here, 80) || !find_tiling_of(&here, variant, card, &a.p))
        return cudaErrorInvalidValue;
    const extent e = extent_of(&here);
    a.t = here.in[0], a.h = e.h, a.w = e.w, a.ho = e.ho, a.wo = e.wo, a.stride = e.stride;
    a.apart = problem->op == FLIM_CONV_DATA ? here.stride[2] : 1;
    a.pixels = n * e.ho * e.wo;
    a.partial = sums ? static_cast<float *>(scratch) : nullptr;
    if (variant == FLIM_CONV3X3X3_WGMMA || variant == FLIM_CONV3X3X3_WGMMA_FREE)
        return start_wgmma(a, &here, here.c, variant == FLIM_CONV3X3X3_WGMMA, card, sums, stream);
    return here.type == FLIM_STORAGE_BF16 ? start_bf16(a, &here, card->processors, sums, stream)
                                          : start_fp16(a, &here, card->processors, sums, stream);
}

/* x, out, and what is fused with them. */
void set_operands(kernel_arguments &a, const flim_conv_problem *problem, const flim_conv_arguments *arguments)
{
    const bool data = problem->op == FLIM_CONV_DATA;
    a.x = data ? arguments->y : arguments->x;
    a.out = data ? arguments->x : arguments->y;
    a.flip = data;
    a.weight_scale = arguments->weight_scale;
    if (data) {
        a.epilogue = arguments->epilogue;
        if (!problem->add)
            a.epilogue.add = nullptr;
    } else {
        a.bias = arguments->bias;
        a.about = arguments->sums_about;
        a.prologue = arguments->prologue;
    }
}

} // namespace

bool flim_conv3x3x3_supported(const flim_conv_problem *s, int sm)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    const int stride[3] = {1, s->stride[2], s->stride[2]};
    tiling p;
    const bool forward = s->op == FLIM_CONV_FORWARD && !s->epilogue && !s->add && s->x_form != FLIM_INPUT_NORM_ON_LOAD;
    const bool data = s->op == FLIM_CONV_DATA && s->x_form == FLIM_INPUT_PLAIN && !s->sign_mask &&
                      s->add != FLIM_ADD_STRIDED && (s->epilogue || !(s->add || s->sums));
    return sm >= 80 && s->master && (forward || data) && !s->stem && s->type != FLIM_STORAGE_FP32 && find_shape(s) &&
           s->c <= s->k && s->in_channels == s->c && s->out_channels == s->k && flim_conv_has_shape(s, three, stride, one) &&
           (s->stride[2] == 1 || (s->stride[2] == 2 && s->c < s->k)) && s->n > 0 && s->in[0] > 0 && s->in[1] > 0 &&
           s->in[2] > 0 && s->out[1] > 0 && s->out[2] > 0 && (double)s->n * (double)flim_volume(s->in) < 2147483647.0 &&
           find_tiling(s, 96 * 1024, false, &p);
}

const char *const flim_conv3x3x3_variant_names[FLIM_CONV3X3X3_VARIANTS] = {"", " wide", " wgmma free", " wgmma"};

bool flim_conv3x3x3_has_variant(const flim_conv_problem *s, flim_conv3x3x3_variant variant, const flim_card *card)
{
    tiling p;
    return find_tiling_of(s, variant, card, &p);
}

size_t flim_conv3x3x3_scratch_bytes(void)
{
    return sizeof(float) * MAX_BLOCKS * 2 * MOST_C;
}

cudaError_t flim_conv3x3x3_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                               flim_conv3x3x3_variant variant, const flim_card *card, cudaStream_t stream)
{
    kernel_arguments a = {};
    a.weight = arguments->master;
    set_operands(a, problem, arguments);
    return launch(problem, arguments->n, variant, a, problem->sums ? arguments->sums : nullptr, arguments->scratch, card,
                  stream);
}

bool flim_conv_wgmma_supported(const flim_conv_problem *s, const flim_card *card)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    const bool data = s->op == FLIM_CONV_DATA;
    const int from = data ? s->k : s->c, to = data ? s->c : s->k;
    const bool supported =
        FLIM_WGMMA && card->capability == 90 && s->op != FLIM_CONV_WEIGHT && !s->master && !s->sign_mask &&
        s->add != FLIM_ADD_STRIDED && (s->epilogue ? data && s->sums : s->add == FLIM_ADD_NONE) && !s->stem &&
        (s->x_form == FLIM_INPUT_PLAIN || (!data && s->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD)) &&
        s->dz_form == FLIM_INPUT_PLAIN && s->type != FLIM_STORAGE_FP32 && from == 64 && to % 32 == 0 && to <= 1024 &&
        flim_conv_has_shape(s, three, one, one) && s->n > 0 && s->in[0] > 0 && s->in[1] > 0 && s->in[2] > 0 &&
        (double)s->n * (double)flim_volume(s->in) < 2147483647.0 && fits_wgmma(s, from, card);
    return supported && (!s->sums || (s->epilogue == data && s->out_channels == s->k && s->in_channels == s->c));
}

bool flim_conv_wgmma_walks_far(const flim_conv_problem *s, const flim_card *card)
{
    /* base's res2.conv2 has 46 slices per block at batch 64 on an H200: 0.38 ms, and cuDNN's 0.44; small's res3.conv2 has 8, where cuDNN's is faster. */
    const int64_t long_walk = 40;
    return flim_conv_wgmma_supported(s, card) && walk_of_wgmma(s, 64, card) >= long_walk;
}

cudaError_t flim_conv_wgmma_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, bool turns,
                                const flim_card *card, cudaStream_t stream)
{
    const bool data = problem->op == FLIM_CONV_DATA;
    kernel_arguments a = {};
    flim_conv_problem here = *problem;
    here.n = arguments->n;
    if (!flim_conv_wgmma_supported(&here, card))
        return cudaErrorInvalidValue;
    double *sums = problem->sums ? arguments->sums : nullptr;
    a.partial = sums ? static_cast<float *>(arguments->scratch) : nullptr;
    a.plain_weight = arguments->w;
    set_operands(a, problem, arguments);
    a.bias = nullptr;
    a.out_channels = data ? here.c : here.k;
    a.t = here.in[0], a.h = here.in[1], a.w = here.in[2];
    return start_wgmma(a, &here, 64, turns, card, sums, stream);
}

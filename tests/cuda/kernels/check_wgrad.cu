/* Weight gradient of 3x3x3 convolutions: a direct double-precision kernel, and the checks and timings of conv_wgrad. */
#include <cstring>

#include "check_util.cuh"

#include "cuda/conv/conv3x3x3_narrow.h"
#include "cuda/conv/conv3x3x3_wgrad.h"
#include "cuda/conv/conv3x3x3_wgrad_wgmma.h"

bool check_wgrad(bool small);
void time_wgrad(void);

namespace
{

/* The kernels that compute weight gradients. */
enum kernel { WGRAD, NARROW, WGMMA, KERNELS };
const char *const kernel_name[KERNELS] = {"wgrad", "narrow", "wgmma"};

struct layer {
    const char *name;
    int64_t n;
    int c, k, t, h, w, stride;
    bool prologue;
    int padding; /* channels of x and of z that dw lacks */
};

/* dw (K - padding, C - padding, 27); block (k, tap), threads (32, 8): c in steps of 32 */
template <typename T> __global__ void ref_wgrad(layer l, const T *x, const T *dz, double *dw)
{
    __shared__ double part[8][32];
    const int k = blockIdx.x, tap = blockIdx.y, dt = tap / 9 - 1, dy = tap / 3 % 3 - 1, dx = tap % 3 - 1;
    const int ho = (l.h + l.stride - 1) / l.stride, wo = (l.w + l.stride - 1) / l.stride;
    for (int c = threadIdx.x; c < l.c; c += 32) {
        double s = 0.0;
        for (int64_t i = threadIdx.y; i < l.n * l.t * ho * wo; i += 8) {
            const int xo = (int)(i % wo), yo = (int)(i / wo % ho), t = (int)(i / wo / ho % l.t);
            const int64_t cell = i / wo / ho / l.t;
            const int xi = xo * l.stride + dx, yi = yo * l.stride + dy, ti = t + dt;
            if (xi >= 0 && xi < l.w && yi >= 0 && yi < l.h && ti >= 0 && ti < l.t)
                s += (double)(float)dz[i * l.k + k] * (double)(float)x[(((cell * l.t + ti) * l.h + yi) * l.w + xi) * l.c + c];
        }
        part[threadIdx.y][threadIdx.x] = s;
        __syncthreads();
        if (threadIdx.y == 0 && c < l.c - l.padding) {
            for (int r = 1; r < 8; r++)
                s += part[r][threadIdx.x];
            dw[((int64_t)k * (l.c - l.padding) + c) * 27 + tap] = s;
        }
        __syncthreads();
    }
}

/* What the prologue makes of z. */
template <typename T> __global__ void ref_prologue(layer l, const T *z, const float *scale, const float *shift, T *x)
{
    const int64_t count = l.n * l.t * l.h * l.w * l.c;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int c = (int)(i % l.c);
        const float u = fmaf((float)z[i], scale[c], shift[c]);
        x[i] = (T)fmaxf(u, 0.01f * u);
    }
}

flim_conv_problem problem_of(flim_storage type, const layer &l)
{
    flim_conv_problem p = {};
    p.op = FLIM_CONV_WEIGHT;
    p.type = type;
    p.n = l.n;
    p.c = l.c, p.k = l.k;
    p.in_channels = l.c - l.padding, p.out_channels = l.k - l.padding;
    p.in[0] = p.out[0] = l.t, p.in[1] = l.h, p.in[2] = l.w;
    p.out[1] = (l.h + l.stride - 1) / l.stride, p.out[2] = (l.w + l.stride - 1) / l.stride;
    for (int d = 0; d < 3; d++)
        p.kernel[d] = 3, p.pad[d] = 1, p.stride[d] = d == 0 ? 1 : l.stride;
    p.x_form = l.prologue ? FLIM_INPUT_NORM_ACT_ON_LOAD : FLIM_INPUT_PLAIN;
    return p;
}

bool supports(kernel which, const flim_conv_problem *p)
{
    return which == WGRAD    ? flim_wgrad3x3x3_supported(p, 80)
           : which == NARROW ? flim_narrow3x3x3_supported(p, 80)
                             : flim_wgrad_wgmma_supported(p, &check_card());
}

size_t scratch_bytes(kernel which, const flim_conv_problem *p)
{
    return which == WGRAD    ? flim_wgrad3x3x3_scratch_bytes(p)
           : which == NARROW ? flim_narrow3x3x3_scratch_bytes(p)
                             : flim_wgrad_wgmma_scratch_bytes(p);
}

template <typename T> struct wgrad_case {
    layer l;
    kernel which;
    flim_conv_problem problem;
    device_array<T> x, dz;
    device_array<float> scale, shift, dw, unscale;
    device_array<char> scratch;

    wgrad_case(flim_storage type, const layer &layer_, kernel which_)
        : l(layer_), which(which_), problem(problem_of(type, l)), x(flim_conv_x_elements(&problem)),
          dz(flim_conv_y_elements(&problem)), scale(l.c), shift(l.c), dw(flim_conv_master_elements(&problem)), unscale(1),
          scratch((int64_t)scratch_bytes(which, &problem))
    {
        random_normal(x, 1.0f, 0.2f, 21);
        random_normal(dz, 1.0f, 0.0f, 22);
        random_normal(scale, 0.3f, 1.0f, 23);
        random_normal(shift, 0.5f, 0.1f, 24);
        const float quarter = 0.25f;
        CHECK(cudaMemcpy(unscale, &quarter, sizeof quarter, cudaMemcpyHostToDevice));
    }
    void run(bool accumulate = false, bool scaled = false)
    {
        flim_conv_arguments a = {};
        a.n = l.n;
        a.x = x;
        a.y = dz;
        a.master = dw;
        a.prologue = {scale, shift};
        a.unscale = scaled ? unscale.data : nullptr;
        a.accumulate = accumulate;
        a.scratch = scratch;
        const auto launch = which == WGRAD    ? flim_wgrad3x3x3_run
                            : which == NARROW ? flim_narrow3x3x3_run
                                              : flim_wgrad_wgmma_run;
        CHECK(launch(&problem, &a, &check_card(), 0));
    }
};

template <typename T> bool check_case(flim_storage type, const layer &l, kernel which)
{
    wgrad_case<T> w(type, l, which);
    if (!supports(which, &w.problem)) {
        printf("wgrad %s: not supported, FAILED\n", l.name);
        return false;
    }
    device_array<T> x(w.x.count);
    if (l.prologue)
        ref_prologue<T><<<1024, 256>>>(l, w.x, w.scale, w.shift, x);
    device_array<double> dw(w.dw.count);
    ref_wgrad<T><<<dim3((unsigned)(l.k - l.padding), 27), dim3(32, 8)>>>(l, l.prologue ? x : w.x, w.dz, dw);
    CHECK(cudaDeviceSynchronize());
    w.run();
    CHECK(cudaDeviceSynchronize());
    const difference d = compare(w.dw, dw);
    const std::vector<float> first = w.dw.host();
    w.scratch.poison();
    w.run();
    const bool equal = same_bits(first, w.dw.host());
    w.run(true, true); /* dw + dw / 4 */
    double worst = 0.0;
    const std::vector<float> sum = w.dw.host();
    for (size_t i = 0; i < sum.size(); i++)
        worst = std::max(worst, (double)std::fabs(sum[i] - 1.25f * first[i]) / (1.0 + std::fabs(first[i])));
    const bool good = d.finite && d.relative < 1e-5 && equal && worst < 1e-6;
    printf("%s %s n %lld C %d K %d %dx%dx%d stride %d%s: relative %.2e worst %.2e, equal bits %s, accumulate %.1e %s\n",
           kernel_name[which], type == FLIM_STORAGE_BF16 ? "bf16" : "fp16", (long long)l.n, l.c, l.k, l.t, l.h, l.w, l.stride,
           l.prologue ? " prologue" : "", d.relative, d.worst, equal ? "yes" : "no", worst, good ? "" : "FAILED");
    return good;
}

template <typename T> float time_case(flim_storage type, const layer &l, kernel which)
{
    wgrad_case<T> w(type, l, which);
    const float ms = median_ms([&] { w.run(); });
    const double flop = 2.0 * 27 * l.c * (double)w.dz.count, bytes = 2.0 * (double)(w.x.count + w.dz.count);
    printf("time %s %s %-11s%s %.3f ms, %.0f TFLOP/s, floor %.3f (arithmetic at 743) %.3f (bytes at 2975)\n",
           kernel_name[which], type == FLIM_STORAGE_BF16 ? "bf16" : "fp16", l.name, l.prologue ? " (prologue)" : "", ms,
           flop / ms * 1e-9, flop / 743e9, bytes / 2975e6);
    return ms;
}

} // namespace

/* The kernel's channels, on cards for which it is compiled. */
static bool is_for(const layer &l, kernel which)
{
    switch (which) {
    case NARROW: return l.c <= 16 && (l.k == l.c || l.k == 2 * l.c);
    case WGMMA: {
        const flim_conv_problem problem = problem_of(FLIM_STORAGE_FP16, l);
        return l.c % 32 == 0 && l.k % 32 == 0 && l.padding == 0 && flim_wgrad_wgmma_supported(&problem, &check_card());
    }
    default: return true;
    }
}

bool check_wgrad(bool small)
{
    static const layer cases[] = {
        {"small", 3, 32, 32, 7, 7, 9, 1, false},        {"one", 1, 32, 32, 1, 1, 1, 1, false},
        {"stride 2", 2, 32, 64, 5, 21, 21, 2, false},   {"even", 2, 64, 32, 6, 12, 10, 2, true},
        {"prologue", 3, 32, 32, 11, 21, 21, 1, true},   {"wide input", 3, 64, 64, 9, 11, 11, 1, true},
        {"deep", 5, 64, 128, 9, 11, 11, 2, true},       {"wide", 1, 32, 32, 3, 40, 150, 1, false},
        {"padded", 3, 32, 32, 7, 7, 9, 1, true, 4},     {"padded 2", 2, 64, 96, 5, 9, 7, 2, false, 4},
        {"8 to 8", 3, 8, 8, 11, 21, 21, 1, true},       {"8 to 16", 2, 8, 16, 6, 21, 21, 2, false},
        {"16 to 16", 3, 16, 16, 7, 11, 11, 1, true},    {"16 to 32", 2, 16, 32, 5, 12, 10, 2, true},
        {"24 to 24", 2, 24, 24, 9, 7, 9, 1, false},     {"40 to 72", 2, 40, 72, 5, 7, 9, 1, true},
        {"72 to 8", 1, 72, 8, 4, 9, 7, 2, false},       {"padded 3", 3, 16, 24, 7, 7, 9, 1, true, 4},
        {"padded 4", 4, 16, 32, 7, 7, 9, 2, true, 4},   {"odd 8 to 8", 9, 8, 8, 13, 5, 7, 2, true},
        {"16 to 32, 1", 2, 16, 32, 9, 9, 11, 1, false}, {"two narrow", 2, 8, 8, 3, 4, 5, 1, false},
        {"last", 7, 128, 128, 13, 6, 6, 1, false},      {"res1", 16, 32, 32, 128, 21, 21, 1, true},
    };
    bool good = true;
    for (const layer &l : cases) {
        if (small && l.n * l.t * l.h * l.w > 20000)
            continue;
        for (int which = 0; which < KERNELS; which++) {
            if (!is_for(l, (kernel)which))
                continue;
            good = check_case<__nv_bfloat16>(FLIM_STORAGE_BF16, l, (kernel)which) && good;
            good = check_case<__half>(FLIM_STORAGE_FP16, l, (kernel)which) && good;
        }
    }
    return good;
}

void time_wgrad(void)
{
    static const layer cases[] = {
        {"res1", 64, 32, 32, 128, 21, 21, 1, false},          {"res1", 64, 32, 32, 128, 21, 21, 1, true},
        {"res2.conv1", 64, 32, 64, 128, 21, 21, 2, false},    {"res2.conv2", 64, 64, 64, 128, 11, 11, 1, false},
        {"tiny res1", 64, 8, 8, 128, 21, 21, 1, true},        {"small res1", 64, 16, 16, 128, 21, 21, 1, true},
        {"tiny res2.1", 64, 8, 16, 128, 21, 21, 2, false},    {"tiny res2.2", 64, 16, 16, 128, 11, 11, 1, true},
        {"small res2.1", 64, 16, 32, 128, 21, 21, 2, false},  {"res3.conv1", 64, 64, 128, 64, 11, 11, 2, false},
        {"res3.conv2", 64, 128, 128, 64, 6, 6, 1, false},     {"large res1", 64, 64, 64, 128, 21, 21, 1, false},
        {"large res1", 64, 64, 64, 128, 21, 21, 1, true},     {"res2.conv2", 64, 64, 64, 128, 11, 11, 1, true},
        {"large res2.1", 64, 64, 128, 128, 21, 21, 2, false}, {"large res2.2", 64, 128, 128, 128, 11, 11, 1, false},
        {"xlarge res1", 64, 128, 128, 128, 21, 21, 1, false}, {"xlarge res3.2", 64, 512, 512, 64, 6, 6, 1, false},
    };
    for (const layer &l : cases) {
        for (int which = 0; which < KERNELS; which++) {
            if (!is_for(l, (kernel)which))
                continue;
            time_case<__nv_bfloat16>(FLIM_STORAGE_BF16, l, (kernel)which);
            time_case<__half>(FLIM_STORAGE_FP16, l, (kernel)which);
        }
    }
}

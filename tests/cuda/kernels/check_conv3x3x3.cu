/* 3x3x3 convolution C -> K, 8 to 32 channels, stride 1 and 2: direct double-precision kernels, and the checks and timings of conv3x3x3. */
#include <cstring>

#include "check_util.cuh"
#include "conv3x3x3_reference.cuh"

#include "cuda/conv/conv3x3x3.h"

bool check_conv3x3x3(bool small);
void time_conv3x3x3(void);

namespace
{

enum { FORWARD, FORWARD_PROLOGUE, DATA, DATA_EPILOGUE, DATA_ADD, KINDS };
const char *const kind_name[KINDS] = {"forward", "forward + prologue", "data gradient", "data gradient + epilogue",
                                      "data gradient + add + epilogue"};

template <typename T> __global__ void ref_prologue(size s, const T *z, const float *scale, const float *shift, T *x)
{
    const int64_t count = s.n * s.t * s.h * s.w * s.c;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int c = (int)(i % s.c);
        const float u = fmaf((float)z[i], scale[c], shift[c]);
        x[i] = (T)fmaxf(u, 0.01f * u);
    }
}

template <typename T>
__global__ void ref_epilogue(size s, int64_t count, const T *z, const float *scale, const float *shift, const T *add,
                             double *d)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int c = (int)(i % s.c);
        const double v = d[i] + (add ? (double)(float)add[i] : 0.0);
        d[i] = fmaf((float)z[i], scale[c], shift[c]) > 0.0f ? v : 0.01 * v;
    }
}

flim_conv_problem problem_of(flim_storage type, int kind, const size &s)
{
    flim_conv_problem p = {};
    p.op = kind < DATA ? FLIM_CONV_FORWARD : FLIM_CONV_DATA;
    p.type = type;
    p.n = s.n;
    p.c = p.in_channels = s.c;
    p.k = p.out_channels = s.k;
    p.in[0] = p.out[0] = s.t, p.in[1] = s.h, p.in[2] = s.w, p.out[1] = s.ho(), p.out[2] = s.wo();
    for (int d = 0; d < 3; d++)
        p.kernel[d] = 3, p.pad[d] = 1, p.stride[d] = d == 0 ? 1 : s.stride;
    p.x_form = kind == FORWARD_PROLOGUE ? FLIM_INPUT_NORM_ACT_ON_LOAD : FLIM_INPUT_PLAIN;
    p.master = true;
    p.sums = kind != DATA;
    p.epilogue = kind > DATA;
    p.add = kind == DATA_ADD ? FLIM_ADD_DENSE : FLIM_ADD_NONE;
    return p;
}

template <typename T> struct conv_case {
    size s;
    int kind;
    flim_conv3x3x3_variant variant = FLIM_CONV3X3X3_USUAL;
    flim_conv_problem problem;
    device_array<T> x, z, add, out;
    device_array<float> weight, bias, scale, shift, mean;
    device_array<double> sums;
    device_array<char> scratch;
    flim_conv_arguments arguments;

    conv_case(flim_storage type, int kind_, const size &s_)
        : s(s_), kind(kind_), problem(problem_of(type, kind, s)), x(kind < DATA ? s.x_elements() : s.y_elements()),
          z(kind < DATA ? s.y_elements() : s.x_elements()), add(z.count), out(z.count), weight(s.c * s.k * 27), bias(s.k),
          scale(std::max(s.c, s.k)), shift(scale.count), mean(scale.count), sums(2 * channels()),
          scratch((int64_t)flim_conv3x3x3_scratch_bytes()), arguments{}
    {
        random_normal(x, 1.0f, 0.2f, 31);
        random_normal(z, 1.0f, -0.1f, 32);
        random_normal(add, 1.0f, 0.0f, 33);
        random_normal(weight, 0.05f, 0.0f, 34);
        random_normal(bias, 0.5f, 0.2f, 35);
        random_normal(scale, 0.3f, 1.0f, 36);
        random_normal(shift, 0.5f, 0.1f, 37);
        random_normal(mean, 0.5f, 0.1f, 38);
        arguments.n = s.n;
        arguments.x = kind < DATA ? x : out;
        arguments.y = kind < DATA ? out : x;
        arguments.master = weight;
        arguments.bias = bias;
        arguments.sums = sums;
        arguments.prologue = {scale, shift};
        arguments.epilogue.z = z;
        arguments.epilogue.scale = scale;
        arguments.epilogue.shift = shift;
        arguments.epilogue.mean = mean;
        arguments.epilogue.add = add;
        arguments.sums_about = mean;
        arguments.scratch = scratch;
    }
    int channels() const /* of the output */
    {
        return kind < DATA ? s.k : s.c;
    }
    bool has_sums() const
    {
        return kind != DATA;
    }
    void run()
    {
        CHECK(flim_conv3x3x3_run(&problem, &arguments, variant, &check_card(), 0));
    }
};

template <typename T> bool check_case(flim_storage type, int kind, const size &s, flim_conv3x3x3_variant variant)
{
    conv_case<T> k(type, kind, s);
    k.variant = variant;
    if (!flim_conv3x3x3_supported(&k.problem, 80)) {
        printf("conv3x3x3 %s: not supported, FAILED\n", kind_name[kind]);
        return false;
    }
    device_array<T> x(k.x.count);
    const bool prologue = kind == FORWARD_PROLOGUE;
    if (prologue)
        ref_prologue<T><<<1024, 256>>>(s, k.x, k.scale, k.shift, x);
    device_array<double> out(k.out.count);
    ref_conv<T><<<4096, 256>>>(s, prologue ? x : k.x, k.weight, kind < DATA ? k.bias.data : nullptr, kind >= DATA, out);
    if (kind > DATA)
        ref_epilogue<T><<<1024, 256>>>(s, k.out.count, k.z, k.scale, k.shift, kind == DATA_ADD ? k.add.data : nullptr, out);
    CHECK(cudaDeviceSynchronize());
    k.run();
    CHECK(cudaDeviceSynchronize());
    const difference d = compare(k.out, out);
    const std::vector<T> first = k.out.host();
    const double worst = k.has_sums() ? worst_sum(first, kind < DATA ? nullptr : &k.z, k.mean, k.channels(), k.sums) : 0.0;
    k.out.poison();
    k.scratch.poison();
    k.run();
    const bool equal = same_bits(first, k.out.host());
    /* Parameters that are too small by a power of two, with a scale that makes up for it: the same bits. */
    const float by = 4096.0f;
    device_array<float> scale(1);
    CHECK(cudaMemcpy(scale, &by, sizeof by, cudaMemcpyHostToDevice));
    multiply<<<64, 256>>>(k.weight.data, k.weight.count, 1.0f / by);
    multiply<<<1, 256>>>(k.bias.data, k.bias.count, 1.0f / by);
    multiply<<<1, 256>>>(k.mean.data, kind < DATA ? k.mean.count : 0, 1.0f / by);
    const std::vector<double> sums = k.sums.host();
    k.arguments.weight_scale = scale;
    k.out.poison();
    k.run();
    const bool same = same_bits(first, k.out.host()) && (!k.has_sums() || same_bits(sums, k.sums.host()));
    const double ulp = type == FLIM_STORAGE_BF16 ? 1.0 / 256 : 1.0 / 2048;
    const bool good = d.finite && d.relative < ulp && d.worst < 2 * ulp && equal && same && worst < 1e-5;
    printf(
        "conv3x3x3%s %s c %d k %d stride %d n %lld %dx%dx%d %-30s relative %.2e worst %.2e, sums %.1e, equal bits %s scaled "
        "%s %s\n",
        flim_conv3x3x3_variant_names[variant], type == FLIM_STORAGE_BF16 ? "bf16" : "fp16", s.c, s.k, s.stride,
        (long long)s.n, s.t, s.h, s.w, kind_name[kind], d.relative, d.worst, worst, equal ? "yes" : "no", same ? "yes" : "no",
        good ? "" : "FAILED");
    return good;
}

/* conv3x3x3.h's convolution by wgmma without fusion. */
template <typename T> struct plain_case {
    size s;
    flim_conv_problem problem;
    device_array<T> x, out, w;
    device_array<float> weight;
    flim_conv_arguments arguments;

    plain_case(flim_storage type, bool data, const size &s_)
        : s(s_), problem(problem_of(type, data ? DATA : FORWARD, s)), x(data ? s.y_elements() : s.x_elements()),
          out(data ? s.x_elements() : s.y_elements()), w(s.c * s.k * 27), weight(w.count), arguments{}
    {
        problem.master = problem.sums = false;
        random_normal(x, 1.0f, 0.2f, 31);
        random_normal(weight, 0.05f, 0.0f, 34);
        store_weight<T><<<64, 256>>>(s.k, s.c, weight, w);
        arguments.n = s.n;
        arguments.x = data ? out : x;
        arguments.y = data ? x : out;
        arguments.w = w;
    }
    void run(bool turns = true)
    {
        CHECK(flim_conv_wgmma_run(&problem, &arguments, turns, &check_card(), 0));
    }
};

template <typename T> bool check_plain(flim_storage type, bool data, const size &s)
{
    plain_case<T> k(type, data, s);
    if (!flim_conv_wgmma_supported(&k.problem, &check_card()))
        return true; /* another card, or rows too wide for its shared memory */
    device_array<double> out(k.out.count);
    ref_conv<T><<<4096, 256>>>(s, k.x, k.weight, nullptr, data, out);
    k.run();
    CHECK(cudaDeviceSynchronize());
    const difference d = compare(k.out, out);
    const std::vector<T> first = k.out.host();
    k.out.poison();
    k.run(false);
    const bool equal = same_bits(first, k.out.host());
    const double ulp = type == FLIM_STORAGE_BF16 ? 1.0 / 256 : 1.0 / 2048;
    const bool good = d.finite && d.relative < ulp && d.worst < 2 * ulp && equal;
    printf("conv wgmma %s c %d k %d n %lld %dx%dx%d %-15s relative %.2e worst %.2e, equal bits %s %s\n",
           type == FLIM_STORAGE_BF16 ? "bf16" : "fp16", s.c, s.k, (long long)s.n, s.t, s.h, s.w,
           data ? "data gradient" : "forward", d.relative, d.worst, equal ? "yes" : "no", good ? "" : "FAILED");
    return good;
}

void time_plain(bool data, const size &s)
{
    plain_case<__nv_bfloat16> b(FLIM_STORAGE_BF16, data, s);
    if (!flim_conv_wgmma_supported(&b.problem, &check_card()))
        return;
    for (int turns = 1; turns >= 0; turns--) {
        const float ms = median_ms([&] { b.run(turns == 1); });
        const double flop = 2.0 * 27 * s.c * (double)s.y_elements();
        printf("time conv wgmma%s %d to %d %dx%dx%d %-15s bf16 %.3f ms, %.0f TFLOP/s\n", turns ? "" : " free", s.c, s.k, s.t,
               s.h, s.w, data ? "data gradient" : "forward", ms, flop / ms * 1e-9);
    }
}

} // namespace

bool check_conv3x3x3(bool small)
{
    static const size sizes[] = {{3, 7, 7, 9}, {1, 1, 1, 1},   {2, 5, 21, 21}, {5, 9, 11, 13},
                                 {9, 3, 3, 3}, {1, 4, 50, 41}, {7, 3, 6, 4},   {16, 128, 21, 21}};
    static const int shapes[][3] = {{8, 8, 1},  {16, 16, 1}, {32, 32, 1}, /* C, K, stride */
                                    {8, 16, 2}, {16, 32, 2}, {8, 16, 1}};
    bool good = true;
    for (const auto &shape : shapes)
        for (size s : sizes)
            for (int kind = 0; kind < KINDS && !(small && s.n * s.t * s.h * s.w > 20000); kind++) {
                s.c = shape[0], s.k = shape[1], s.stride = shape[2];
                for (int i = 0; i < FLIM_CONV3X3X3_VARIANTS; i++) {
                    const flim_conv3x3x3_variant variant = (flim_conv3x3x3_variant)i;
                    const flim_conv_problem problem = problem_of(FLIM_STORAGE_FP16, kind, s);
                    if (!flim_conv3x3x3_has_variant(&problem, variant, &check_card()))
                        continue;
                    good = check_case<__nv_bfloat16>(FLIM_STORAGE_BF16, kind, s, variant) && good;
                    if (s.n < 16)
                        good = check_case<__half>(FLIM_STORAGE_FP16, kind, s, variant) && good;
                }
            }
    static const int plain[][2] = {{64, 64}, {64, 96}, {32, 64}, {64, 32}};
    for (size s : sizes)
        for (const auto &shape : plain) {
            s.c = shape[0], s.k = shape[1], s.stride = 1;
            for (int data = 0; data < 2 && !(small && s.n * s.t * s.h * s.w > 20000); data++) {
                good = check_plain<__nv_bfloat16>(FLIM_STORAGE_BF16, data == 1, s) && good;
                good = check_plain<__half>(FLIM_STORAGE_FP16, data == 1, s) && good;
            }
        }
    return good;
}

void time_conv3x3x3(void)
{
    static const size plain[] = {{64, 128, 11, 11, 64, 64, 1}, {64, 128, 21, 21, 64, 64, 1}};
    for (const size &s : plain)
        for (int data = 0; data < 2; data++)
            time_plain(data == 1, s);
    static const size sizes[] = {{64, 128, 21, 21, 8, 8, 1},  {64, 128, 21, 21, 16, 16, 1}, {64, 128, 21, 21, 32, 32, 1},
                                 {64, 128, 21, 21, 8, 16, 2}, {64, 128, 21, 21, 16, 32, 2}, {64, 64, 11, 11, 16, 32, 2},
                                 {64, 64, 11, 11, 32, 32, 1}};
    for (const size &s : sizes)
        for (int at = 0; at < KINDS * FLIM_CONV3X3X3_VARIANTS; at++) {
            const int kind = at / FLIM_CONV3X3X3_VARIANTS;
            conv_case<__nv_bfloat16> b(FLIM_STORAGE_BF16, kind, s);
            conv_case<__half> f(FLIM_STORAGE_FP16, kind, s);
            b.variant = f.variant = (flim_conv3x3x3_variant)(at % FLIM_CONV3X3X3_VARIANTS);
            if (!flim_conv3x3x3_has_variant(&b.problem, b.variant, &check_card()))
                continue;
            const float ms = median_ms([&] { b.run(); });
            const float ms16 = median_ms([&] { f.run(); });
            const double flop = 2.0 * 27 * s.c * (double)s.y_elements(),
                         bytes = 2.0 * (double)(s.x_elements() + s.y_elements());
            printf("time conv3x3x3%-11s %2d to %2d stride %d %dx%dx%d %-30s bf16 %.3f ms, %.0f TFLOP/s; fp16 %.3f ms; floors "
                   "%.3f "
                   "(arithmetic at 743), %.3f (input and output at 4150 GB/s)\n",
                   flim_conv3x3x3_variant_names[b.variant], s.c, s.k, s.stride, s.t, s.h, s.w, kind_name[kind], ms,
                   flop / ms * 1e-9, ms16, flop / 743e9, bytes / 4150e6);
        }
}

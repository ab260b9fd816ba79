/* The data gradient of stride 2 by wgmma: against direct sums in double precision, alone and with all that may be fused, and its time. */
#include <cstring>

#include "check_util.cuh"
#include "conv3x3x3_reference.cuh"

#include "cuda/conv/conv_strided.h"

bool check_strided(bool small);
void time_strided(void);

namespace
{

enum { PLAIN, MASKED, MASKED_ADD, KINDS };
const char *const kind_name[KINDS] = {"plain", "sign mask", "sign mask + strided add"};

/* d = keep * (d + add where it contributes) through the activation. */
template <typename T>
__global__ void ref_mask(size s, const uint8_t *sign_mask, const float *keep, const T *add, float add_by, double *d)
{
    const int64_t count = s.n * s.t * s.h * s.w * s.c;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int c = (int)(i % s.c), x = (int)(i / s.c % s.w), y = (int)(i / s.c / s.w % s.h);
        const int64_t plane = i / s.c / s.w / s.h;
        const bool strided = add && x % 2 == 0 && y % 2 == 0;
        const double v =
            d[i] +
            (strided ? (double)add_by * (double)(float)add[((plane * s.ho() + y / 2) * s.wo() + x / 2) * s.c + c] : 0.0);
        d[i] = (sign_mask[i / 8] >> i % 8 & 1 ? v : 0.01 * v) * keep[plane / s.t * s.c + c];
    }
}

__global__ void fill_random_bytes(uint8_t *out, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = (uint8_t)hash32((uint64_t)i ^ 77ull << 40);
}

/* One channel of five is dropped. */
__global__ void fill_keep(float *out, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = hash32((uint64_t)i ^ 78ull << 40) % 5 == 0 ? 0.0f : 1.25f;
}

template <typename T> struct strided_case {
    size s;
    int kind;
    flim_conv_problem problem;
    device_array<T> y, z, add, out, w;
    device_array<float> weight, mean, keep, add_scale;
    device_array<uint8_t> sign_mask;
    device_array<double> sums;
    device_array<char> scratch;
    flim_conv_arguments arguments;

    strided_case(flim_storage type, int kind_, const size &s_)
        : s(s_), kind(kind_), problem(problem_of(type)), y(s.y_elements()), z(s.x_elements()),
          add(s.n * s.t * s.ho() * s.wo() * s.c), out(s.x_elements()), w((int64_t)s.c * s.k * 27), weight(w.count), mean(s.c),
          keep(s.n * s.c), add_scale(1), sign_mask(s.x_elements() / 8), sums(2 * s.c),
          scratch((int64_t)flim_conv_strided_scratch_bytes(&problem)), arguments{}
    {
        const float by = 0.25f;
        random_normal(y, 1.0f, 0.2f, 41);
        random_normal(z, 1.0f, -0.1f, 42);
        random_normal(add, 4.0f, 0.0f, 43);
        random_normal(weight, 0.05f, 0.0f, 44);
        random_normal(mean, 0.5f, 0.1f, 45);
        fill_keep<<<64, 256>>>(keep, keep.count);
        fill_random_bytes<<<256, 256>>>(sign_mask, sign_mask.count);
        store_weight<T><<<64, 256>>>(s.k, s.c, weight, w);
        CHECK(cudaMemcpy(add_scale, &by, sizeof by, cudaMemcpyHostToDevice));
        arguments.n = s.n;
        arguments.x = out;
        arguments.y = y;
        arguments.w = w;
        arguments.sums = sums;
        arguments.scratch = scratch;
        arguments.epilogue.z = z;
        arguments.epilogue.sign_mask = sign_mask;
        arguments.epilogue.keep = keep;
        arguments.epilogue.mean = mean;
        arguments.epilogue.add = add;
        arguments.epilogue.add_scale = add_scale;
    }
    flim_conv_problem problem_of(flim_storage type) const
    {
        flim_conv_problem p = {};
        p.op = FLIM_CONV_DATA;
        p.type = type;
        p.n = s.n;
        p.c = p.in_channels = s.c;
        p.k = p.out_channels = s.k;
        p.in[0] = p.out[0] = s.t, p.in[1] = s.h, p.in[2] = s.w, p.out[1] = s.ho(), p.out[2] = s.wo();
        for (int d = 0; d < 3; d++)
            p.kernel[d] = 3, p.pad[d] = 1, p.stride[d] = d == 0 ? 1 : 2;
        p.sums = p.epilogue = p.sign_mask = kind != PLAIN;
        p.add = kind == MASKED_ADD ? FLIM_ADD_STRIDED : FLIM_ADD_NONE;
        return p;
    }
    void run()
    {
        CHECK(flim_conv_strided_run(&problem, &arguments, &check_card(), 0));
    }
};

template <typename T> bool check_case(flim_storage type, int kind, const size &s)
{
    strided_case<T> k(type, kind, s);
    if (!flim_conv_strided_supported(&k.problem, &check_card()))
        return true; /* another card, or rows too wide for its shared memory */
    device_array<double> out(k.out.count);
    ref_conv<T><<<4096, 256>>>(s, k.y, k.weight, nullptr, true, out);
    if (kind != PLAIN)
        ref_mask<T><<<1024, 256>>>(s, k.sign_mask, k.keep, kind == MASKED_ADD ? k.add.data : nullptr, 0.25f, out);
    k.run();
    CHECK(cudaDeviceSynchronize());
    const difference d = compare(k.out, out);
    const std::vector<T> first = k.out.host();
    const double worst = kind != PLAIN ? worst_sum(first, &k.z, k.mean, s.c, k.sums) : 0.0;
    const std::vector<double> sums = k.sums.host();
    k.out.poison();
    k.scratch.poison();
    k.run();
    const bool equal = same_bits(first, k.out.host()) && (kind == PLAIN || same_bits(sums, k.sums.host()));
    const double ulp = type == FLIM_STORAGE_BF16 ? 1.0 / 256 : 1.0 / 2048;
    const bool good = d.finite && d.relative < ulp && d.worst < 2 * ulp && equal && worst < 1e-5;
    printf("strided %s c %d k %d n %lld %dx%dx%d %-24s relative %.2e worst %.2e, sums %.1e, equal bits %s %s\n",
           type == FLIM_STORAGE_BF16 ? "bf16" : "fp16", s.c, s.k, (long long)s.n, s.t, s.h, s.w, kind_name[kind], d.relative,
           d.worst, worst, equal ? "yes" : "no", good ? "" : "FAILED");
    return good;
}

} // namespace

bool check_strided(bool small)
{
    static const size sizes[] = {{3, 7, 7, 9},   {1, 1, 1, 1},   {2, 5, 21, 21}, {5, 9, 11, 13}, {9, 3, 3, 3},
                                 {2, 3, 30, 28}, {1, 4, 50, 41}, {7, 3, 6, 4},   {40, 2, 2, 5},  {16, 128, 21, 21}};
    bool good = true;
    for (size s : sizes)
        for (int c = 32; c <= 96; c += 32)
            for (int kind = 0; kind < KINDS && !(small && s.n * s.t * s.h * s.w > 20000); kind++) {
                s.c = c, s.k = 64, s.stride = 2;
                good = check_case<__nv_bfloat16>(FLIM_STORAGE_BF16, kind, s) && good;
                good = check_case<__half>(FLIM_STORAGE_FP16, kind, s) && good;
            }
    return good;
}

void time_strided(void)
{
    static const size sizes[] = {{64, 128, 21, 21, 32, 64, 2}, {64, 64, 11, 11, 32, 64, 2}};
    for (const size &s : sizes)
        for (int kind = 0; kind < KINDS; kind++) {
            strided_case<__half> k(FLIM_STORAGE_FP16, kind, s);
            if (!flim_conv_strided_supported(&k.problem, &check_card()))
                continue;
            const float ms = median_ms([&] { k.run(); });
            const double flop = 2.0 * 27 * s.c * (double)s.y_elements();
            const double bytes = 2.0 * (double)(s.y_elements() + s.x_elements() * (kind == PLAIN ? 1 : 2)) +
                                 (kind == PLAIN ? 0.0 : (double)s.x_elements() / 8) +
                                 (kind == MASKED_ADD ? 2.0 * (double)k.add.count : 0.0);
            printf("time strided %d to %d %dx%dx%d %-24s fp16 %.3f ms, %.0f TFLOP/s; floor %.3f (its bytes at 4150 GB/s)\n",
                   s.k, s.c, s.t, s.h, s.w, kind_name[kind], ms, flop / ms * 1e-9, bytes / 4150e6);
        }
}

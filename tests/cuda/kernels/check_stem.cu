/* Stem + down: direct double-precision kernels of down, and the checks and timings of conv_stem. */
#include <cstring>

#include "stem_reference.cuh"

namespace
{

template <typename T>
__global__ void ref_down(problem p, const double *act, const float *weight, const float *bias, double *z)
{
    const int64_t count = p.n * p.to * p.hw * p.c;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int o = (int)(i % p.c), pixel = (int)(i / p.c % p.hw), m = (int)(i / p.c / p.hw % p.to);
        const int64_t cell = i / p.c / p.hw / p.to;
        double s = bias[o];
        for (int j = 0; j < 3; j++) {
            const int t = 2 * m - 1 + j;
            if (t < 0 || t >= p.t)
                continue;
            for (int c = 0; c < p.c; c++)
                s += act[((cell * p.t + t) * p.hw + pixel) * p.c + c] * (double)(float)(T)weight[(o * p.c + c) * 3 + j];
        }
        z[i] = s;
    }
}

template <typename T> __global__ void ref_dv(problem p, const T *dz, const float *weight, const double *u, double *dv)
{
    const int64_t count = p.n * p.t * p.hw * p.c;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int c = (int)(i % p.c), pixel = (int)(i / p.c % p.hw), t = (int)(i / p.c / p.hw % p.t);
        const int64_t cell = i / p.c / p.hw / p.t;
        double s = 0.0;
        for (int j = 0; j < 3; j++) {
            const int twice = t + 1 - j;
            if (twice % 2 != 0 || twice < 0 || twice / 2 >= p.to)
                continue;
            for (int o = 0; o < p.c; o++)
                s += (double)(float)dz[((cell * p.to + twice / 2) * p.hw + pixel) * p.c + o] *
                     (double)(float)(T)weight[(o * p.c + c) * 3 + j];
        }
        dv[i] = (double)(float)(T)(float)(u[i] > 0 ? s : 0.01 * s);
    }
}

/* dw (C,C,3); block (o, j), threads (C, 8) */
template <typename T> __global__ void ref_dw_down(problem p, const T *dz, const double *act, double *dw)
{
    __shared__ double part[8][64];
    const int o = blockIdx.x, j = blockIdx.y, c = threadIdx.x;
    double s = 0.0;
    for (int64_t i = threadIdx.y; i < p.n * p.to * p.hw; i += 8) {
        const int pixel = (int)(i % p.hw), m = (int)(i / p.hw % p.to), t = 2 * m - 1 + j;
        const int64_t cell = i / p.hw / p.to;
        if (t >= 0 && t < p.t)
            s += (double)(float)dz[i * p.c + o] * act[((cell * p.t + t) * p.hw + pixel) * p.c + c];
    }
    part[threadIdx.y][c] = s;
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int r = 1; r < 8; r++)
            s += part[r][c];
        dw[(o * p.c + c) * 3 + j] = s;
    }
}

/* du -> dz in place */
template <typename T>
__global__ void apply_norm(problem p, int64_t count, T *d, const T *z, const float *a, const float *b, const float *c,
                           const float *scale)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        d[i] = (T)fmaf(a[i % p.c] / *scale, (float)d[i], fmaf(b[i % p.c], (float)z[i], c[i % p.c]));
}

flim_conv_problem problem_of(flim_storage type, int64_t n, int t, int h, int w, int c)
{
    flim_conv_problem p = {};
    p.op = FLIM_CONV_FORWARD;
    p.type = type;
    p.n = n;
    p.c = p.k = p.in_channels = p.out_channels = c;
    p.in[0] = t, p.in[1] = p.out[1] = h, p.in[2] = p.out[2] = w;
    p.out[0] = (t + 1) / 2;
    p.kernel[0] = 3, p.kernel[1] = p.kernel[2] = 1;
    p.stride[0] = 2, p.stride[1] = p.stride[2] = 1;
    p.pad[0] = 1;
    p.master = p.sums = p.stem = true;
    return p;
}

template <typename T> struct stem_case {
    flim_conv_problem shape;
    problem p;
    device_array<float> signal;
    device_array<T> signal16;
    device_array<uint8_t> mask;
    device_array<float> weight, bias, gamma, beta, down_weight, down_bias, running_mean, running_var;
    device_array<char> state, scratch;
    device_array<T> z, dz;
    device_array<double> sums;
    device_array<float> dweight, dbias, dgamma, dbeta, ddown;
    flim_conv_arguments arguments;

    stem_case(flim_storage type, int64_t n, int t, int h, int w, int c)
        : shape(problem_of(type, n, t, h, w, c)), p{n, t, (t + 1) / 2, h * w, c}, signal(n * t * h * w),
          signal16(n * t * h * w), mask(n * h * w), weight(c * 14), bias(c), gamma(c), beta(c), down_weight(c * c * 3),
          down_bias(c), running_mean(c), running_var(c), state((int64_t)flim_stem_state_bytes()),
          scratch((int64_t)flim_stem_scratch_bytes(&shape)), z(n * p.to * h * w * c), dz(n * p.to * h * w * c), sums(2 * c),
          dweight(c * 14), dbias(c), dgamma(c), dbeta(c), ddown(c * c * 3), arguments{}
    {
        fill_signal<<<1024, 256>>>(signal, p, 1);
        cast<T><<<1024, 256>>>(signal, signal16, signal.count);
        fill_bytes<<<64, 256>>>(mask, mask.count, 0.6f, 2);
        random_normal(weight, 0.3f, 0.02f, 3);
        random_normal(bias, 0.5f, 0.1f, 4);
        random_normal(gamma, 0.2f, 1.0f, 5);
        random_normal(beta, 0.3f, 0.0f, 6);
        random_normal(down_weight, 0.15f, 0.0f, 7);
        random_normal(down_bias, 0.2f, 0.0f, 8);
        random_normal(running_mean, 0.1f, 0.3f, 9);
        random_normal(running_var, 0.1f, 1.0f, 10);
        random_normal(dz, 1.0f, 0.05f, 11);
        arguments.n = n;
        arguments.x = signal16;
        arguments.scratch = scratch;
        flim_conv_stem &stem = arguments.stem;
        stem.mask = mask;
        stem.weight = weight, stem.bias = bias, stem.gamma = gamma, stem.beta = beta;
        stem.eps = 1e-5f, stem.momentum = nullptr;
        stem.running_mean = running_mean, stem.running_var = running_var;
        stem.state = state;
        stem.down_weight = down_weight;
        stem.dweight = dweight, stem.dbias = dbias, stem.dgamma = dgamma, stem.dbeta = dbeta;
    }
    void forward(bool training)
    {
        flim_conv_problem problem = shape;
        flim_conv_arguments a = arguments;
        problem.sums = training;
        a.master = down_weight;
        a.bias = down_bias;
        a.y = z;
        a.sums = sums;
        CHECK(flim_stem_run(&problem, &a, &check_card(), 0));
    }
    void backward(const flim_conv_dz_norm *norm = nullptr)
    {
        flim_conv_problem problem = shape;
        flim_conv_arguments a = arguments;
        problem.op = FLIM_CONV_WEIGHT;
        problem.master = problem.sums = false;
        problem.dz_form = norm ? FLIM_INPUT_NORM_ON_LOAD : FLIM_INPUT_PLAIN;
        a.master = ddown;
        a.y = dz;
        if (norm)
            a.dz_norm = *norm;
        CHECK(flim_stem_run(&problem, &a, &check_card(), 0));
    }
};

template <typename T> bool check_case(flim_storage type, int64_t n, int t, int h, int w, int c)
{
    printf("stem %s, c %d, n %lld, %d x %d x %d\n", type == FLIM_STORAGE_BF16 ? "bf16" : "fp16", c, (long long)n, t, h, w);
    stem_case<T> s(type, n, t, h, w, c);
    const problem p = s.p;
    const int64_t positions = n * t * h * w, count = positions * c;
    const std::vector<float> rm0 = s.running_mean.host(), rv0 = s.running_var.host();

    device_array<double> u(count), act(count), z(s.z.count), mean(c), var(c), dw_down(c * c * 3), dsum(2 * c), dw(c * 14);
    ref_stem<T><<<2048, 256>>>(p, s.signal, s.mask, s.weight, u);
    ref_channel_sum<<<c, 256>>>(p, u, nullptr, positions, mean);
    ref_channel_sum<<<c, 256>>>(p, u, mean, positions, var);
    ref_activation<T><<<2048, 256>>>(p, count, mean, var, s.gamma, s.beta, u, act);
    ref_down<T><<<2048, 256>>>(p, act, s.down_weight, s.down_bias, z);
    ref_dw_down<T><<<dim3(c, 3), dim3(c, 8)>>>(p, s.dz, act, dw_down);
    device_array<double> &dv = act;
    ref_dv<T><<<2048, 256>>>(p, s.dz, s.down_weight, u, dv);
    ref_dv_sums<<<c, 256>>>(p, positions, dv, u, s.gamma, s.beta, dsum);
    ref_dw_stem<T><<<dim3(c, 14), 256>>>(p, s.signal, s.mask, dv, u, s.gamma, s.beta, var, dsum, dw);
    CHECK(cudaDeviceSynchronize());

    s.forward(true);
    s.scratch.poison();
    s.backward();
    CHECK(cudaDeviceSynchronize());

    bool good = true;
    const double ulp = type == FLIM_STORAGE_BF16 ? 1.0 / 256 : 1.0 / 2048;
    good = report("z_down", compare(s.z, z), ulp) && good;
    /* BN sums against the stored z. */
    const size_t channels = (size_t)c;
    std::vector<double> sums(2 * channels, 0.0);
    const std::vector<T> zh = s.z.host();
    for (size_t i = 0; i < zh.size(); i++) {
        const double v = (double)(float)zh[i];
        sums[i % channels] += v;
        sums[channels + i % channels] += v * v;
    }
    const std::vector<double> got = s.sums.host();
    double worst = 0.0;
    for (size_t i = 0; i < 2 * channels; i++)
        worst = std::max(worst, std::fabs(got[i] - sums[i]) / sums[channels + i % channels]);
    good = report("sums of z", {worst, worst, worst == worst}, 1e-5) && good;
    const std::vector<float> rm = s.running_mean.host(), rv = s.running_var.host(), bias = s.bias.host();
    const std::vector<double> m = mean.host(), v = var.host();
    double wm = 0.0, wv = 0.0;
    for (size_t c = 0; c < p.c; c++) {
        wm = std::max(wm, std::fabs(rm[c] - (0.9 * rm0[c] + 0.1 * (m[c] + bias[c]))));
        wv = std::max(wv, std::fabs(rv[c] - (0.9 * rv0[c] + 0.1 * v[c] * (double)positions / (double)(positions - 1))));
    }
    good = report("running mean", {wm, wm, wm == wm}, 1e-6) && good;
    good = report("running var", {wv, wv, wv == wv}, 1e-6) && good;
    device_array<double> dbeta(c), dgamma(c);
    CHECK(cudaMemcpy(dbeta, dsum, channels * sizeof(double), cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(dgamma, dsum + c, channels * sizeof(double), cudaMemcpyDeviceToDevice));
    /* Activations and dv now and then round the other way: in a small problem a single one shows. */
    const double loose = std::max(type == FLIM_STORAGE_BF16 ? 2e-4 : 5e-5, 2.0 * ulp / std::sqrt((double)positions));
    good = report("dW down", compare(s.ddown, dw_down), loose) && good;
    good = report("dbeta", compare(s.dbeta, dbeta), loose) && good;
    good = report("dgamma", compare(s.dgamma, dgamma), loose) && good;
    good = report("dW stem", compare(s.dweight, dw), 5 * loose) && good;

    const std::vector<float> first = s.ddown.host(), first_dw = s.dweight.host();
    s.ddown.poison();
    s.dweight.poison();
    s.backward();
    const bool equal = same_bits(first, s.ddown.host()) && same_bits(first_dw, s.dweight.host());
    printf("    equal bits on two runs: %s\n", equal ? "yes" : "NO, FAILED");

    /* The same from du through BatchNorm's backward pass on load: dz rounded the same way must give the same sums. */
    device_array<float> na(c), nb(c), nd(c), du_scale(1);
    random_normal(na, 0.3f, 1.0f, 12);
    random_normal(nb, 0.2f, 0.0f, 13);
    random_normal(nd, 0.2f, 0.1f, 14);
    random_normal(du_scale, 0.0f, 4.0f, 15); /* 4 */
    const flim_conv_dz_norm norm = {s.z, na, nb, nd, du_scale};
    s.backward(&norm);
    const std::vector<float> fused = s.ddown.host(), fused_dw = s.dweight.host();
    apply_norm<T><<<1024, 256>>>(p, s.dz.count, s.dz, s.z, na, nb, nd, du_scale);
    s.backward();
    const bool same = same_bits(fused, s.ddown.host()) && same_bits(fused_dw, s.dweight.host()) && !same_bits(fused, first);
    printf("    BatchNorm's backward on load gives the same bits: %s\n", same ? "yes" : "NO, FAILED");
    /* Parameters that are too small by a power of two, with a scale that makes up for it: equal bits, but for the
     * gradients of gamma and beta, which came through down's weights. */
    const float by = 4096.0f;
    device_array<float> scale(1);
    CHECK(cudaMemcpy(scale, &by, sizeof by, cudaMemcpyHostToDevice));
    const std::vector<float> plain = s.ddown.host(), plain_dw = s.dweight.host(), plain_dgamma = s.dgamma.host();
    multiply<<<64, 256>>>(s.down_weight.data, s.down_weight.count, 1.0f / by);
    multiply<<<1, 256>>>(s.down_bias.data, s.down_bias.count, 1.0f / by);
    multiply<<<1, 256>>>(s.weight.data, s.weight.count, 1.0f / by);
    s.arguments.weight_scale = s.arguments.stem.weight_scale = scale;
    s.arguments.stem.eps /= by * by;
    s.forward(true);
    s.backward();
    bool scaled = same_bits(zh, s.z.host()) && same_bits(plain, s.ddown.host()) && same_bits(plain_dw, s.dweight.host());
    const std::vector<float> small = s.dgamma.host();
    for (size_t i = 0; i < channels; i++)
        scaled = scaled && small[i] * by == plain_dgamma[i];
    printf("    scaled parameters give the same: %s\n", scaled ? "yes" : "NO, FAILED");
    return good && equal && same && scaled;
}

template <typename T> void time_case(flim_storage type, const char *name, int channels)
{
    stem_case<T> s(type, 64, 256, 21, 21, channels);
    const float b = median_ms([&] { s.forward(true); });
    const float c = median_ms([&] { s.forward(false); });
    const float d = median_ms([&] { s.backward(); });
    const flim_conv_dz_norm norm = {s.z, s.gamma, s.beta, s.bias, nullptr};
    const float e = median_ms([&] { s.backward(&norm); });
    printf("time stem c %2d %s statistics and forward %.3f (running statistics %.3f)  backward %.3f (norm on load %.3f) ms\n",
           channels, name, b, c, d, e);
}

} // namespace

bool check_stem(bool small)
{
    bool good = true;
    for (int c = 8; c <= 64; c *= 2) {
        good = check_case<__nv_bfloat16>(FLIM_STORAGE_BF16, 3, 37, 7, 9, c) && good;
        good = check_case<__half>(FLIM_STORAGE_FP16, small ? 1 : 5, 133, small ? 5 : 21, 21, c) && good;
        good = check_case<__half>(FLIM_STORAGE_FP16, 1, 8, 3, 3, c) && good;
        good = check_case<__nv_bfloat16>(FLIM_STORAGE_BF16, 2, 300, 5, 40, c) && good;
        if (!small)
            good = check_case<__nv_bfloat16>(FLIM_STORAGE_BF16, 64, 256, 21, 21, c) && good;
    }
    return good;
}

void time_stem(void)
{
    for (int c = 8; c <= 64; c *= 2) {
        time_case<__nv_bfloat16>(FLIM_STORAGE_BF16, "bf16", c);
        time_case<__half>(FLIM_STORAGE_FP16, "fp16", c);
    }
}

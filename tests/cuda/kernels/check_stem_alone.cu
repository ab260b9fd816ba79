/* The stem alone: the checks and timings of conv_stem_alone, against the direct double-precision kernels of stem_reference.cuh. */
#include <cstring>

#include "stem_reference.cuh"

namespace
{

/* dv = round(da leaky_relu'(u)) */
template <typename T> __global__ void ref_dv_alone(int64_t count, const T *da, const double *u, double *dv)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const double d = (double)(float)da[i];
        dv[i] = (double)(float)(T)(float)(u[i] > 0 ? d : 0.01 * d);
    }
}

flim_conv_problem alone_problem(flim_storage type, int64_t n, int t, int h, int w, int c)
{
    flim_conv_problem p = {};
    p.op = FLIM_CONV_FORWARD;
    p.type = type;
    p.n = n;
    p.c = 8, p.in_channels = 2;
    p.k = p.out_channels = c;
    p.in[0] = p.out[0] = t, p.in[1] = p.out[1] = h, p.in[2] = p.out[2] = w;
    p.kernel[0] = 7, p.kernel[1] = p.kernel[2] = 1;
    p.stride[0] = p.stride[1] = p.stride[2] = 1;
    p.pad[0] = 3;
    p.master = p.sums = p.stem = true;
    return p;
}

/* n cells of a problem of one cell more, whose outputs are not to be touched. */
template <typename T> struct alone_case {
    flim_conv_problem shape;
    problem p;
    int64_t count; /* values of n cells */
    device_array<float> signal;
    device_array<T> signal16;
    device_array<uint8_t> mask;
    device_array<float> weight, bias, gamma, beta, running_mean, running_var;
    device_array<char> state, scratch;
    device_array<T> y, da;
    device_array<float> dweight, dbias, dgamma, dbeta;
    flim_conv_arguments arguments;

    alone_case(flim_storage type, int64_t n, int t, int h, int w, int c)
        : shape(alone_problem(type, n + 1, t, h, w, c)), p{n, t, (t + 1) / 2, h * w, c}, count(n * t * h * w * c),
          signal(n * t * h * w), signal16(n * t * h * w), mask(n * h * w), weight(c * 14), bias(c), gamma(c), beta(c),
          running_mean(c), running_var(c), state((int64_t)flim_stem_state_bytes()),
          scratch((int64_t)flim_stem_scratch_bytes(&shape)), y(count / n * (n + 1)), da(count), dweight(c * 14), dbias(c),
          dgamma(c), dbeta(c), arguments{}
    {
        fill_signal<<<1024, 256>>>(signal, p, 1);
        cast<T><<<1024, 256>>>(signal, signal16, signal.count);
        fill_bytes<<<64, 256>>>(mask, mask.count, 0.6f, 2);
        random_normal(weight, 0.3f, 0.02f, 3);
        random_normal(bias, 0.5f, 0.1f, 4);
        random_normal(gamma, 0.2f, 1.0f, 5);
        random_normal(beta, 0.3f, 0.0f, 6);
        random_normal(running_mean, 0.1f, 0.3f, 9);
        random_normal(running_var, 0.1f, 1.0f, 10);
        random_normal(da, 1.0f, 0.05f, 11);
        arguments.n = n;
        arguments.x = signal16;
        arguments.scratch = scratch;
        flim_conv_stem &stem = arguments.stem;
        stem.mask = mask;
        stem.weight = weight, stem.bias = bias, stem.gamma = gamma, stem.beta = beta;
        stem.eps = 1e-5f, stem.momentum = nullptr;
        stem.running_mean = running_mean, stem.running_var = running_var;
        stem.state = state;
        stem.dbias = dbias, stem.dgamma = dgamma, stem.dbeta = dbeta;
    }
    void forward(bool training, bool again = false)
    {
        flim_conv_problem problem = shape;
        flim_conv_arguments a = arguments;
        problem.sums = training;
        a.stem.keeps_state = again;
        a.y = y;
        CHECK(flim_stem_run(&problem, &a, &check_card(), 0));
    }
    void backward()
    {
        flim_conv_problem problem = shape;
        flim_conv_arguments a = arguments;
        problem.op = FLIM_CONV_WEIGHT;
        problem.master = problem.sums = false;
        a.master = dweight;
        a.y = da;
        CHECK(flim_stem_run(&problem, &a, &check_card(), 0));
    }
    std::vector<T> outputs() /* of the n cells */
    {
        std::vector<T> all = y.host();
        all.resize((size_t)count);
        return all;
    }
    bool rest_untouched()
    {
        const std::vector<T> all = y.host();
        const unsigned char *bytes = reinterpret_cast<const unsigned char *>(all.data() + count);
        return std::all_of(bytes, bytes + (all.size() - (size_t)count) * sizeof(T),
                           [](unsigned char b) { return b == 0xff; });
    }
};

template <typename T> difference compare_outputs(const std::vector<T> &y, const device_array<double> &act)
{
    device_array<T> there((int64_t)y.size());
    CHECK(cudaMemcpy(there, y.data(), y.size() * sizeof(T), cudaMemcpyHostToDevice));
    return compare(there, act);
}

bool yes(const char *what, bool holds)
{
    printf("    %s: %s\n", what, holds ? "yes" : "NO, FAILED");
    return holds;
}

template <typename T> bool check_case(flim_storage type, int64_t n, int t, int h, int w, int c)
{
    printf("stem alone %s, c %d, n %lld, %d x %d x %d\n", type == FLIM_STORAGE_BF16 ? "bf16" : "fp16", c, (long long)n, t, h,
           w);
    alone_case<T> s(type, n, t, h, w, c);
    const problem p = s.p;
    const int64_t positions = n * t * h * w, count = s.count;
    const size_t channels = (size_t)c;
    const std::vector<float> rm0 = s.running_mean.host(), rv0 = s.running_var.host(), bias = s.bias.host();

    device_array<double> u(count), act(count), mean(c), var(c), dsum(2 * c), dw(c * 14);
    ref_stem<T><<<2048, 256>>>(p, s.signal, s.mask, s.weight, u);
    ref_channel_sum<<<c, 256>>>(p, u, nullptr, positions, mean);
    ref_channel_sum<<<c, 256>>>(p, u, mean, positions, var);
    ref_activation<T><<<2048, 256>>>(p, count, mean, var, s.gamma, s.beta, u, act);
    CHECK(cudaDeviceSynchronize());

    s.forward(true);
    const std::vector<T> y = s.outputs();
    bool good = true;
    const double ulp = type == FLIM_STORAGE_BF16 ? 1.0 / 256 : 1.0 / 2048;
    good = report("y", compare_outputs(y, act), ulp / 8) && good; /* rounded alike, but for values at a half */
    good = yes("cells past n are as they were", s.rest_untouched()) && good;
    const std::vector<float> rm = s.running_mean.host(), rv = s.running_var.host();
    const std::vector<double> m = mean.host(), v = var.host();
    double wm = 0.0, wv = 0.0;
    for (size_t i = 0; i < channels; i++) {
        wm = std::max(wm, std::fabs(rm[i] - (0.9 * rm0[i] + 0.1 * (m[i] + bias[i]))));
        wv = std::max(wv, std::fabs(rv[i] - (0.9 * rv0[i] + 0.1 * v[i] * (double)positions / (double)(positions - 1))));
    }
    good = report("running mean", {wm, wm, wm == wm}, 1e-6) && good;
    good = report("running var", {wv, wv, wv == wv}, 1e-6) && good;

    s.y.poison();
    s.scratch.poison();
    s.forward(true, true);
    good = yes("once more with the statistics kept gives the same bits",
               same_bits(y, s.outputs()) && same_bits(rm, s.running_mean.host()) && same_bits(rv, s.running_var.host())) &&
           good;

    device_array<double> &dv = act;
    ref_dv_alone<T><<<2048, 256>>>(count, s.da, u, dv);
    ref_dv_sums<<<c, 256>>>(p, positions, dv, u, s.gamma, s.beta, dsum);
    ref_dw_stem<T><<<dim3(c, 14), 256>>>(p, s.signal, s.mask, dv, u, s.gamma, s.beta, var, dsum, dw);
    s.scratch.poison();
    s.backward();
    CHECK(cudaDeviceSynchronize());
    device_array<double> dbeta(c), dgamma(c);
    CHECK(cudaMemcpy(dbeta, dsum, channels * sizeof(double), cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(dgamma, dsum + c, channels * sizeof(double), cudaMemcpyDeviceToDevice));
    /* A u next to 0 may have the other sign: in a small problem a single one shows. */
    const double loose = std::max(type == FLIM_STORAGE_BF16 ? 2e-4 : 5e-5, 2.0 * ulp / std::sqrt((double)positions));
    const std::vector<float> dbias = s.dbias.host();
    good = report("dbeta", compare(s.dbeta, dbeta), loose) && good;
    good = report("dgamma", compare(s.dgamma, dgamma), loose) && good;
    good = report("dW", compare(s.dweight, dw), 5 * loose) && good;
    good = yes("dbias is 0", std::all_of(dbias.begin(), dbias.end(), [](float d) { return d == 0.0f; })) && good;

    const std::vector<float> first_dw = s.dweight.host(), first_dgamma = s.dgamma.host(), first_dbeta = s.dbeta.host();
    s.dweight.poison();
    s.scratch.poison();
    s.backward();
    good = yes("equal bits on two runs", same_bits(first_dw, s.dweight.host()) && same_bits(first_dgamma, s.dgamma.host())) &&
           good;

    /* Parameters that are too small by a power of two, with a scale that makes up for it, and a gradient that is too large by one. */
    const float by[2] = {4096.0f, 8.0f};
    device_array<float> scale(2);
    CHECK(cudaMemcpy(scale, by, sizeof by, cudaMemcpyHostToDevice));
    multiply<<<1, 256>>>(s.weight.data, s.weight.count, 1.0f / by[0]);
    s.arguments.stem.weight_scale = scale;
    s.arguments.weight_scale = scale + 1;
    s.arguments.stem.eps /= by[0] * by[0];
    s.forward(true);
    s.backward();
    bool scaled = same_bits(y, s.outputs());
    const std::vector<float> small_dw = s.dweight.host(), small_dgamma = s.dgamma.host(), small_dbeta = s.dbeta.host();
    for (size_t i = 0; i < 14 * channels; i++)
        scaled = scaled && small_dw[i] * by[1] == first_dw[i] * by[0];
    for (size_t i = 0; i < channels; i++)
        scaled = scaled && small_dgamma[i] * by[1] == first_dgamma[i] && small_dbeta[i] * by[1] == first_dbeta[i];
    return yes("scaled parameters and gradients give the same", scaled) && good;
}

template <typename T> void time_case(flim_storage type, const char *name, int channels)
{
    alone_case<T> s(type, channels > 128 ? 32 : 64, 256, 21, 21, channels);
    const float b = median_ms([&] { s.forward(true); });
    const float c = median_ms([&] { s.forward(false); });
    const float d = median_ms([&] { s.forward(true, true); });
    const float e = median_ms([&] { s.backward(); });
    printf(
        "time stem alone c %3d n %lld %s statistics and forward %.3f (running statistics %.3f, kept %.3f)  backward %.3f ms: "
        "%.0f, %.0f GB/s of y, da\n",
        channels, (long long)s.p.n, name, b, c, d, e, (double)s.count * 2e-6 / d, (double)s.count * 2e-6 / e);
}

} // namespace

bool check_stem_alone(bool small)
{
    static const int channels[] = {72, 128, 136, 192, 256, 512};
    bool good = true;
    for (int c : channels) {
        good = check_case<__nv_bfloat16>(FLIM_STORAGE_BF16, 3, 37, 7, 9, c) && good;
        good = check_case<__half>(FLIM_STORAGE_FP16, small ? 1 : 3, 133, small ? 5 : 21, 21, c) && good;
        good = check_case<__half>(FLIM_STORAGE_FP16, 1, 8, 3, 3, c) && good;
        good = check_case<__nv_bfloat16>(FLIM_STORAGE_BF16, 1, 6, 1, 1, c) && good;
        good = check_case<__nv_bfloat16>(FLIM_STORAGE_BF16, 2, 300, 5, small ? 8 : 40, c) && good;
    }
    if (!small)
        good = check_case<__half>(FLIM_STORAGE_FP16, 8, 256, 21, 21, 128) && good;
    return good;
}

void time_stem_alone(void)
{
    static const int channels[] = {72, 128, 192, 256};
    for (int c : channels) {
        time_case<__nv_bfloat16>(FLIM_STORAGE_BF16, "bf16", c);
        time_case<__half>(FLIM_STORAGE_FP16, "fp16", c);
    }
}

/* The gradients of the stem's parameters in closed form.
 *
 * With u_c = gamma_c zhat_c + beta_c and dv = the gradient of u: zhat is linear in the window x (zhat_c = invstd_c w_c . (x - mu)), so
 * that with s_c = sum dv_c, G_c = sum dv_c x (14 numbers per channel), and mu, Cov, N from the statistics,
 *     dbeta_c  = s_c
 *     dgamma_c = sum dv_c zhat_c = invstd_c w_c . (G_c - s_c mu)
 *     dz_stem  = gamma invstd (dv - dbeta / N - zhat dgamma / N)
 *     dw_c     = sum dz_stem x = gamma_c invstd_c (G_c - s_c mu - dgamma_c invstd_c Cov w_c)
 *     dbias_c  = sum dz_stem = 0.
 *
 * The passes over the gradient do two times at each step, 2m-1 and 2m, with one window of eight slots: tap i is slot i of the odd time,
 * slot i + 1 of the even one.  The mask slot that is left over, 7 and 0, carried ones and has s.
 */
#include "cuda/conv/conv_stem_gradient.cuh"

namespace
{

enum { THREADS = 64 };

/* A channel per thread. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    finish(int channels, const double *g_sums, const stem_state *state, const float *weight, const float *weight_scale,
           const float *dv_scale, const float *gamma, stem_gradients target)
{
    const int c = blockIdx.x * THREADS + threadIdx.x;
    if (c >= channels)
        return;
    const double *odd = g_sums + stem_g_at(c, 0, 0, 0), *even = g_sums + stem_g_at(c, 1, 0, 0);
    /* dv came through the next unit's scaled weights, w and what the state holds are of the stem's scaled ones. */
    const double by = stem_scale(weight_scale), dv_by = stem_scale(dv_scale), sum = (odd[8 + 7] + even[8]) / dv_by;
    const double invstd = state->invstd[c], factor = gamma[c] * invstd * by;
    double w[STEM_WINDOW], centred[STEM_WINDOW], dgamma = 0.0;
    for (int i = 0; i < STEM_WINDOW; i++) {
        const int slot = i < STEM_TAPS ? i : i + 1;
        w[i] = flim_round<T>(weight[c * STEM_WINDOW + i] * (float)by);
        centred[i] = (odd[slot] + even[slot + 1]) / dv_by - sum * state->mean[i];
        dgamma += invstd * w[i] * centred[i];
    }
    for (int i = 0; i < STEM_WINDOW; i++) {
        double s = 0.0;
        for (int j = 0; j < STEM_WINDOW; j++)
            s += state->cov[i * STEM_WINDOW + j] * w[j];
        stem_put(target.weight ? target.weight + c * STEM_WINDOW + i : nullptr, factor * (centred[i] - dgamma * invstd * s),
                 target);
    }
    stem_put(target.gamma ? target.gamma + c : nullptr, dgamma, target);
    stem_put(target.beta ? target.beta + c : nullptr, sum, target);
    stem_put(target.bias ? target.bias + c : nullptr, 0.0, target);
}

} // namespace

cudaError_t stem_finish(const flim_conv_problem *problem, const flim_conv_arguments *a, const double *g_sums,
                        const stem_gradients &target, cudaStream_t stream)
{
    const flim_conv_stem *s = &a->stem;
    STEM_BY_TYPE(problem, (finish<T><<<(problem->k + THREADS - 1) / THREADS, THREADS, 0, stream>>>(
                              problem->k, g_sums, static_cast<const stem_state *>(s->state), s->weight, s->weight_scale,
                              a->weight_scale, s->gamma, target)));
    return cudaGetLastError();
}

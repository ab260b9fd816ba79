/* Moments of a set of values, and how those of two sets are joined.
 *
 * For: BatchNorm's statistics, of units and heads.  Owns: nothing.
 */
#ifndef FLIM_CUDA_MOMENTS_CUH
#define FLIM_CUDA_MOMENTS_CUH

/* Count, mean and sum of squared deviations of a set; Chan's rule joins two. */
struct moments {
    double n, mean, m2;
};

__device__ static moments join(const moments &a, const moments &b)
{
    double n = a.n + b.n;
    if (n == 0) {
        return {0, 0, 0};
    }
    double d = b.mean - a.mean;
    return {n, a.mean + d * (b.n / n), a.m2 + b.m2 + d * d * (a.n * b.n / n)};
}

/* Of channel k over all ranks, in their order; all: (ranks, stride) doubles, each rank's as flim_k_sync_moments leaves them. */
__device__ static inline moments join_ranks(const double *all, int64_t stride, int ranks, int channels, int k)
{
    moments sum = {0, 0, 0};
    for (int r = 0; r < ranks; r++) {
        const double *own = all + r * stride;
        sum = join(sum, {own[0], own[1 + k], own[1 + channels + k]});
    }
    return sum;
}

#endif

/* Reductions over a warp or a block, each in one fixed order: equal inputs give equal bits.
 *
 * For: kernels of this folder and of cuda/conv.  Owns: nothing; a block's reduction has shared memory of its own.
 */
#ifndef FLIM_CUDA_REDUCE_CUH
#define FLIM_CUDA_REDUCE_CUH

/* The sum over the 32 lanes, the same on each. */
template <typename T> __device__ __forceinline__ T warp_sum(T value)
{
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

/* Joins the values of all threads of a block of THREADS, a power of two, as a tree: i with i + THREADS / 2, and so on.  The
 * same on each thread. */
template <int THREADS, typename T, typename Join> __device__ __forceinline__ T block_reduce(const T &value, Join join)
{
    __shared__ T shared[THREADS];
    __syncthreads(); /* of an earlier call */
    shared[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
    return shared[0];
}

template <int THREADS, typename T> __device__ __forceinline__ T block_sum(T value)
{
    return block_reduce<THREADS>(value, [](T a, T b) { return a + b; });
}

/* The sums of several doubles at once over a block of THREADS, a multiple of 32: warps first.  Each becomes its sum, on each thread. */
template <int THREADS, typename... DOUBLES> __device__ __forceinline__ void block_sum_all(DOUBLES &...values)
{
    constexpr int WARPS = THREADS / 32, COUNT = sizeof...(DOUBLES);
    __shared__ double shared[WARPS][COUNT];
    __syncthreads(); /* of an earlier call */
    int at = 0;
    ((values = warp_sum(values)), ...);
    if (threadIdx.x % 32 == 0)
        ((shared[threadIdx.x / 32][at++] = values), ...);
    __syncthreads();
    at = 0;
    auto total = [&](int i) {
        double sum = shared[0][i];
        for (int w = 1; w < WARPS; w++)
            sum += shared[w][i];
        return sum;
    };
    ((values = total(at++)), ...);
}

#endif

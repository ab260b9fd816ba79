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

#endif

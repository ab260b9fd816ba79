/* Starts the kernel of conv3x3x3_kernel.cuh for one type: included by conv3x3x3_fp16.cu and conv3x3x3_bf16.cu. */
#ifndef FLIM_CUDA_CONV3X3X3_START_CUH
#define FLIM_CUDA_CONV3X3X3_START_CUH

#include "cuda/conv/conv3x3x3_kernel.cuh"

namespace flim_conv3x3x3
{

template <typename T, int CI, int CO, int R, bool PROLOGUE, bool EPILOGUE>
cudaError_t start_kernel(const kernel_arguments &a, int grid, cudaStream_t stream)
{
    const auto kernel = conv3x3x3<T, CI, CO, R, PROLOGUE, EPILOGUE>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<grid, 32 * a.p.warps, a.p.shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

/* CI < CO: forward of a layer that widens; CI > CO: its data gradient. */
template <typename T, int CI, int CO, int R>
cudaError_t start_form(const kernel_arguments &a, bool prologue, bool epilogue, int grid, cudaStream_t stream)
{
    if constexpr (CI >= CO) {
        if (epilogue)
            return start_kernel<T, CI, CO, R, false, true>(a, grid, stream);
    }
    if constexpr (CI <= CO) {
        if (prologue)
            return start_kernel<T, CI, CO, R, true, false>(a, grid, stream);
    }
    return start_kernel<T, CI, CO, R, false, false>(a, grid, stream);
}

template <typename T, int CI, int CO>
cudaError_t start_width(kernel_arguments &a, const flim_conv_problem *s, int processors, double *sums, cudaStream_t stream)
{
    const int blocks = a.p.r == MOST_R ? (int)cut<CO, MOST_R>::BLOCKS_A_SM : (int)cut<CO, USUAL_R>::BLOCKS_A_SM;
    const bool prologue = s->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD;
    const int64_t slices = (int64_t)a.p.groups * a.t;
    int grid = processors * blocks < MAX_BLOCKS ? processors * blocks : MAX_BLOCKS;
    grid = slices < grid ? (int)slices : grid;
    cudaError_t error = cudaErrorInvalidValue;
    if (a.p.r == USUAL_R)
        error = start_form<T, CI, CO, USUAL_R>(a, prologue, s->epilogue, grid, stream);
    if constexpr (CI == CO && CI < 32) {
        if (a.p.r == MOST_R)
            error = start_form<T, CI, CO, MOST_R>(a, prologue, s->epilogue, grid, stream);
    }
    if constexpr (CI == 32 && CO == 32) {
        if (a.p.r == 1)
            error = start_form<T, CI, CO, 1>(a, prologue, s->epilogue, grid, stream);
    }
    if (error != cudaSuccess || !sums)
        return error;
    add_sums<SUMS_THREADS><<<2 * CO, SUMS_THREADS, 0, stream>>>(a.partial, grid, sums);
    return cudaGetLastError();
}

template <typename T>
cudaError_t start_type(kernel_arguments &a, const flim_conv_problem *s, int processors, double *sums, cudaStream_t stream)
{
    const int from = a.flip ? s->k : s->c, to = a.flip ? s->c : s->k;
    switch (from * 100 + to) {
    case 808: return start_width<T, 8, 8>(a, s, processors, sums, stream);
    case 816: return start_width<T, 8, 16>(a, s, processors, sums, stream);
    case 1608: return start_width<T, 16, 8>(a, s, processors, sums, stream);
    case 1616: return start_width<T, 16, 16>(a, s, processors, sums, stream);
    case 1632: return start_width<T, 16, 32>(a, s, processors, sums, stream);
    case 3216: return start_width<T, 32, 16>(a, s, processors, sums, stream);
    case 3232: return start_width<T, 32, 32>(a, s, processors, sums, stream);
    default: return cudaErrorInvalidValue;
    }
}

} // namespace flim_conv3x3x3
#endif

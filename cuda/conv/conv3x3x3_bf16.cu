/* conv3x3x3 in bf16. */
#include "cuda/conv/conv3x3x3_start.cuh"

cudaError_t flim_conv3x3x3::start_bf16(kernel_arguments &a, const flim_conv_problem *problem, int processors, double *sums,
                                       cudaStream_t stream)
{
    return start_type<__nv_bfloat16>(a, problem, processors, sums, stream);
}

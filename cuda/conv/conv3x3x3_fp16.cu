/* conv3x3x3 in fp16. */
#include "cuda/conv/conv3x3x3_start.cuh"

cudaError_t flim_conv3x3x3::start_fp16(kernel_arguments &a, const flim_conv_problem *problem, int processors, double *sums,
                                       cudaStream_t stream)
{
    return start_type<__half>(a, problem, processors, sums, stream);
}

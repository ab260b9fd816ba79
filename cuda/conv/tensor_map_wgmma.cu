#include "cuda/conv/tensor_map.h"
#include <cudaTypedefs.h>

cudaError_t flim_tensor_map(CUtensorMap *map, flim_storage type, const void *at, const int64_t size[5], const int box[5],
                            const int every[5])
{
    void *encode = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess)
        return error;
    if (found != cudaDriverEntryPointSuccess)
        return cudaErrorNotSupported;
    cuuint64_t sizes[5], strides[4], stride = sizeof(uint16_t);
    cuuint32_t sides[5], steps[5];
    for (int i = 0; i < 5; i++) {
        sizes[i] = (cuuint64_t)size[i];
        sides[i] = (cuuint32_t)((box[i] - 1) * every[i] + 1);
        steps[i] = (cuuint32_t)every[i];
        if (i < 4)
            strides[i] = stride *= sizes[i];
    }
    const CUresult code = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode)(
        map, type == FLIM_STORAGE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 5,
        const_cast<void *>(at), sizes, strides, sides, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        box[0] == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
        : box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                       : CU_TENSOR_MAP_SWIZZLE_32B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return code == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

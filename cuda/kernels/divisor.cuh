/* Division by a number that is the same for a whole kernel: one multiplication and a shift.
 *
 * For: index arithmetic of kernels, on the device and on the host.  Owns: nothing.
 */
#ifndef FLIM_CUDA_DIVISOR_CUH
#define FLIM_CUDA_DIVISOR_CUH

#include <stdint.h>

/* Division of numbers below 2^31 by a fixed positive number: one multiplication (Granlund and Montgomery, 1994). */
struct divisor {
    uint32_t number, factor, shift;
};

inline divisor make_divisor(int number)
{
    int log = 0;
    while ((int64_t)1 << log < number)
        log++;
    const int power = 31 + log;
    return {(uint32_t)number,
            number == 1 ? 0u : (uint32_t)((((uint64_t)1 << power) + (uint32_t)number - 1) / (uint32_t)number),
            number == 1 ? 0u : (uint32_t)(power - 32)};
}

#ifdef __CUDACC__
__host__ __device__ __forceinline__
#else
inline
#endif
    int
    divide(const divisor &d, int value)
{
    if (d.number == 1)
        return value;
#ifdef __CUDA_ARCH__
    return (int)(__umulhi((uint32_t)value, d.factor) >> d.shift);
#else
    return (int)((uint32_t)((uint64_t)(uint32_t)value * d.factor >> 32) >> d.shift);
#endif
}

#endif

/* The passes of kernels.inc for any x86-64, and the choice among the tables. */
#define KERNELS flim_cpu_kernels_portable
#define KERNELS_NAME "portable"
#include "cpu/layers/vector_kernels.inc"

const flim_cpu_kernels *flim_cpu_kernels_choose(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        return &flim_cpu_kernels_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return &flim_cpu_kernels_avx2;
    }
#endif
    return &flim_cpu_kernels_portable;
}

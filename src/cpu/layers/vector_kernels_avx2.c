/* The passes of kernels.inc for AVX2 with FMA. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma")
#endif
#define KERNELS flim_cpu_kernels_avx2
#define KERNELS_NAME "avx2"
#include "cpu/layers/vector_kernels.inc"

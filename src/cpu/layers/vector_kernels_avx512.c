/* The passes of kernels.inc for AVX-512. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#define KERNELS flim_cpu_kernels_avx512
#define KERNELS_NAME "avx512"
#include "cpu/layers/vector_kernels.inc"

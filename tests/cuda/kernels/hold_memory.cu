// hold_memory GIB SECONDS: takes so much device memory and keeps it: another user of the card, for tests of plans beside one.
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include <cuda_runtime.h>

int main(int argc, char **argv)
{
    char *end = nullptr;
    const double gib = argc > 1 ? strtod(argv[1], &end) : 0;
    const long seconds = argc > 2 ? strtol(argv[2], &end, 10) : 60;
    void *memory = nullptr;
    if (gib <= 0 || seconds <= 0) {
        fprintf(stderr, "usage: hold_memory GIB SECONDS\n");
        return 2;
    }
    const size_t bytes = (size_t)(gib * 1073741824.0);
    cudaError_t code = cudaMalloc(&memory, bytes);
    if (code == cudaSuccess) {
        code = cudaMemset(memory, 0, bytes);
    }
    if (code == cudaSuccess) {
        code = cudaDeviceSynchronize();
    }
    if (code != cudaSuccess) {
        fprintf(stderr, "hold_memory: %s\n", cudaGetErrorString(code));
        return 4;
    }
    printf("holding %.2f GiB for %ld s\n", gib, seconds);
    fflush(stdout);
    sleep((unsigned)seconds);
    return 0;
}

/* conv_check: checks the own convolution kernels against plain double-precision ones on random data, and times them.
 *
 *   conv_check [check | small] [time]      check and time where none is named; small = a check without large problems, for
 *                                          compute-sanitizer; exit 1 where a check fails, 77 without a card
 *
 * References round where the kernels do (inputs, weights, activations and gradients between products), so that the tolerances are
 * those of the summation, not of the 16-bit type.  Outputs and scratch hold NaN first.
 */
#include <cstring>

#include "check_util.cuh"

bool check_stem(bool small);
void time_stem(void);
bool check_wgrad(bool small);
void time_wgrad(void);
bool check_k3(bool small);
void time_k3(void);

int main(int argc, char **argv)
{
    bool check = argc < 2, time = argc < 2, small = false;
    for (int i = 1; i < argc; i++) {
        small = small || strcmp(argv[i], "small") == 0;
        check = check || small || strcmp(argv[i], "check") == 0;
        time = time || strcmp(argv[i], "time") == 0;
    }
    cudaDeviceProp prop;
    const cudaError_t error = cudaGetDeviceProperties(&prop, 0);
    if (error != cudaSuccess || prop.major < 8) {
        printf("skipped: %s\n",
               error != cudaSuccess ? cudaGetErrorString(error) : "the kernels need compute capability 8.0 or later");
        return 77;
    }
    printf("%s sm_%d%d, %d SMs\n", prop.name, prop.major, prop.minor, prop.multiProcessorCount);
    bool good = true;
    if (check) {
        good = check_stem(small) && good;
        good = check_wgrad(small) && good;
        good = check_k3(small) && good;
    }
    if (time) {
        time_stem();
        time_wgrad();
        time_k3();
    }
    printf("%s\n", good ? "all checks passed" : "CHECK FAILED");
    return good ? 0 : 1;
}

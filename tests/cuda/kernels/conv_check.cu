/* conv_check: checks the own convolution kernels against plain double-precision ones on random data, and times them.
 *
 *   conv_check [--card SHARED_BYTES,PROCESSORS] [check | small] [time] [stem | stem_alone | wgrad | conv3x3x3 | strided | fp32]...
 *                   check and time where neither is named, all kernels where none is; small = a check without large problems,
 *                   as compute-sanitizer wants it; exit 1 where a check fails, 77 without a card
 *
 * --card cuts the work of stem, stem_alone, wgrad and conv3x3x3 as for a card with less shared memory and multiprocessors: 101376,58 is an
 * L4, 166912,108 an A100.
 *
 * References round where the kernels do (inputs, weights, activations and gradients between products), so that the tolerances
 * are those of the summation, not of the 16-bit type.  Outputs and scratch hold NaN first.
 */
#include <cstring>

#include "check_util.cuh"

bool check_stem(bool small);
void time_stem(void);
bool check_stem_alone(bool small);
void time_stem_alone(void);
bool check_wgrad(bool small);
void time_wgrad(void);
bool check_conv3x3x3(bool small);
void time_conv3x3x3(void);
bool check_strided(bool small);
void time_strided(void);
bool check_fp32(bool small);
void time_fp32(bool quick);

flim_card &check_card()
{
    static flim_card card;
    return card;
}

namespace
{

const struct {
    const char *name;
    bool (*check)(bool small);
    void (*time)();
    int capability; /* least */
} kernels[] = {{"stem", check_stem, time_stem, 80},          {"stem_alone", check_stem_alone, time_stem_alone, 80},
               {"wgrad", check_wgrad, time_wgrad, 80},       {"conv3x3x3", check_conv3x3x3, time_conv3x3x3, 80},
               {"strided", check_strided, time_strided, 90}, {"fp32", check_fp32, [] { time_fp32(false); }, 75}};

} // namespace

int main(int argc, char **argv)
{
    bool check = false, time = false, small = false, named = false, good = true;
    int ran = 0;
    int shared = 0, processors = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--card") == 0 && i + 1 < argc && sscanf(argv[i + 1], "%d,%d", &shared, &processors) == 2) {
            i++;
            continue;
        }
        bool known = strcmp(argv[i], "check") == 0 || strcmp(argv[i], "small") == 0 || strcmp(argv[i], "time") == 0;
        small = small || strcmp(argv[i], "small") == 0;
        check = check || small || strcmp(argv[i], "check") == 0;
        time = time || strcmp(argv[i], "time") == 0;
        for (const auto &k : kernels)
            if (strcmp(argv[i], k.name) == 0)
                named = known = true;
        if (!known) {
            fprintf(stderr, "usage: conv_check [--card SHARED_BYTES,PROCESSORS] [check | small] [time] [stem | stem_alone | "
                            "wgrad | conv3x3x3 | strided | fp32]...\n");
            return 2;
        }
    }
    cudaDeviceProp prop;
    const cudaError_t error = cudaGetDeviceProperties(&prop, 0);
    if (error != cudaSuccess) {
        printf("skipped: %s\n", cudaGetErrorString(error));
        return 77;
    }
    flim_card &card = check_card();
    card.capability = 10 * prop.major + prop.minor;
    card.processors = processors > 0 ? std::min(processors, prop.multiProcessorCount) : prop.multiProcessorCount;
    card.shared_bytes = shared > 0 ? std::min(shared, (int)prop.sharedMemPerBlockOptin) : (int)prop.sharedMemPerBlockOptin;
    printf("%s sm_%d%d, %d SMs; work cut for %d bytes of shared memory, %d SMs\n", prop.name, prop.major, prop.minor,
           prop.multiProcessorCount, card.shared_bytes, card.processors);
    for (int timed = 0; timed < 2; timed++)
        for (const auto &k : kernels) {
            bool wanted = !named;
            for (int i = 1; i < argc; i++)
                wanted = wanted || strcmp(argv[i], k.name) == 0;
            if (!wanted || ((check || time) && !(timed ? time : check)))
                continue;
            if (10 * prop.major + prop.minor < k.capability) {
                printf("%s: left out, needs compute capability %d.%d\n", k.name, k.capability / 10, k.capability % 10);
                continue;
            }
            ran++;
            if (timed)
                k.time();
            else
                good = k.check(small) && good;
        }
    if (ran == 0) {
        printf("skipped: no kernel for this card\n");
        return 77;
    }
    printf("%s\n", good ? "all checks passed" : "CHECK FAILED");
    return good ? 0 : 1;
}

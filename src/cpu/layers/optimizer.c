#include "cpu/layers/optimizer.h"

#include <math.h>

enum { RUN = 4096, MOST_RUNS = 256 };

static double sum_of_squares(const float *x, int64_t begin, int64_t end)
{
    double sum = 0.0;
    for (int64_t i = begin; i < end; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

double flim_cpu_gradient_norm(const float *gradient, int64_t count, int threads)
{
    double partial[MOST_RUNS] = {0};
    int64_t run = (count + MOST_RUNS - 1) / MOST_RUNS;
    run = run > RUN ? run : RUN;
    const int runs = (int)((count + run - 1) / run);
#pragma omp parallel for schedule(static) num_threads(threads) if (runs > 1)
    for (int k = 0; k < runs; k++) {
        int64_t begin = k * run;
        partial[k] = sum_of_squares(gradient, begin, begin + run < count ? begin + run : count);
    }
    double sum = 0.0;
    for (int k = 0; k < runs; k++) {
        sum += partial[k];
    }
    return sqrt(sum);
}

void flim_cpu_adamw(float *parameter, const float *gradient, float *moment1, float *moment2, int64_t count,
                    const flim_step *step, double norm, int64_t adam_step, int threads)
{
    const double beta1 = (double)step->beta1, beta2 = (double)step->beta2, rate = (double)step->learning_rate;
    double clip = step->clip > 0.0f ? (double)step->clip / (norm + 1e-6) : 1.0;
    clip = clip < 1.0 ? clip : 1.0;
    const float scale = (float)clip, keep1 = step->beta1, keep2 = step->beta2;
    const float take1 = (float)(1.0 - beta1), take2 = (float)(1.0 - beta2);
    const float decay = (float)(1.0 - rate * (double)step->weight_decay);
    const float stride = (float)(rate / (1.0 - pow(beta1, (double)adam_step)));
    const float root = (float)(1.0 / sqrt(1.0 - pow(beta2, (double)adam_step)));
    const float epsilon = step->epsilon;
#pragma omp parallel for simd schedule(static) num_threads(threads) if (count > 4 * RUN)
    for (int64_t i = 0; i < count; i++) {
        float g = gradient[i] * scale;
        float m = moment1[i] = keep1 * moment1[i] + take1 * g;
        float v = moment2[i] = keep2 * moment2[i] + take2 * (g * g);
        parameter[i] = parameter[i] * decay - stride * m / (sqrtf(v) * root + epsilon);
    }
}

void flim_cpu_average(float *average, const float *value, int64_t count, float share, int threads)
{
#pragma omp parallel for simd schedule(static) num_threads(threads) if (count > 4 * RUN)
    for (int64_t i = 0; i < count; i++) {
        average[i] += share * (value[i] - average[i]);
    }
}

void flim_cpu_exchange(float *a, float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

#include "core/exact_math.h"

#include <math.h>

double flim_exact_exp(double x)
{
    double term = 1, sum = 1;
    if (x < -700) {
        return 0;
    }
    const double small = -x / 256; /* below 3: the series has one sign */
    for (int k = 1; k < 40; k++) {
        term *= small / k;
        sum += term;
    }
    for (int k = 0; k < 8; k++) {
        sum *= sum;
    }
    return 1 / sum;
}

double flim_exact_log(double x)
{
    int exponent;
    double m = frexp(x, &exponent); /* 0.5 <= m < 1, exact */
    if (m < 0.70710678118654752440) {
        m *= 2;
        exponent--;
    }
    const double s = (m - 1) / (m + 1), z = s * s; /* log m = 2 atanh(s), |s| <= 0.1716 */
    double power = s, sum = 0;
    for (int k = 1; k < 40; k += 2) {
        sum += power / k;
        power *= z;
    }
    return 2 * sum + exponent * 0.69314718055994530942;
}

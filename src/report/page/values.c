/* Values that several sections set in the same way. */
#include <math.h>

#include "report/page/sections.h"

void html_set_p(flim_json *object, const char *key, double p)
{
    char text[32];
    snprintf(text, sizeof text, p < 0.001 ? "< 0.001" : "%.3f", p);
    flim_json_set_string(object, key, isnan(p) ? NULL : text);
}

void html_set_interval(flim_json *object, const char *key, const flim_interval *interval)
{
    if (isnan(interval->low)) {
        flim_json_set_null(object, key);
        return;
    }
    flim_json *ends = flim_json_object();
    flim_json_set_number(ends, "low", interval->low);
    flim_json_set_number(ends, "high", interval->high);
    flim_json_set(object, key, ends);
}

flim_interval html_share_interval(double share, double n)
{
    const double z = 1.959963984540054, z2 = z * z;
    const double middle = (share + z2 / (2 * n)) / (1 + z2 / n);
    const double half = z / (1 + z2 / n) * sqrt(share * (1 - share) / n + z2 / (4 * n * n));
    return (flim_interval){fmax(0, middle - half), fmin(1, middle + half)};
}

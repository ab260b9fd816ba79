#include <math.h>

#include "report/html.h"

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

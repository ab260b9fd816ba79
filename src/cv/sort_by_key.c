#include "cv/sort_by_key.h"

#include <string.h>

void flim_sort_by_key(const int64_t *item, int64_t n, const int64_t *key, int64_t keys, int64_t *start, int64_t *sorted)
{
    memset(start, 0, (size_t)(keys + 1) * sizeof *start);
    for (int64_t i = 0; i < n; i++) {
        start[key[item[i]]]++;
    }
    for (int64_t k = 0, sum = 0; k <= keys; k++) { /* start[k] becomes where key k ends */
        sum += start[k];
        start[k] = sum;
    }
    for (int64_t i = n; i-- > 0;) { /* and walks down to where it begins */
        sorted[--start[key[item[i]]]] = item[i];
    }
}

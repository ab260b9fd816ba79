#include "import/named_arrays.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LISTED = 12 };

flim_status flim_choose_array(const flim_field_file *file, const char *const *name, int n, int *chosen, flim_error *err)
{
    const char *asked = file->options.dataset && file->options.dataset[0] ? file->options.dataset : NULL;
    char list[1024] = "";
    size_t used = 0;
    asked = asked && asked[0] == '/' ? asked + 1 : asked;
    *chosen = -1;
    for (int i = 0; i < n; i++) {
        if (asked ? strcmp(asked, name[i]) == 0 : n == 1) {
            *chosen = i;
            return FLIM_OK;
        }
        if (i < MOST_LISTED && used < sizeof list) {
            const int wrote = snprintf(list + used, sizeof list - used, "%s%.80s", i ? ", " : "", name[i]);
            used += wrote > 0 ? (size_t)wrote : 0;
        }
    }
    if (n == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: it holds no array of numbers with three axes or more", file->map.path);
    }
    if (asked) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: --dataset %s is none of its %d arrays of three axes or more: %s%s",
                         file->map.path, asked, n, list, n > MOST_LISTED ? ", ..." : "");
    }
    return flim_fail(err, FLIM_ERROR_USAGE, "%s: it holds %d arrays; choose one with --dataset: %s%s", file->map.path, n,
                     list, n > MOST_LISTED ? ", ..." : "");
}

#include <string.h>

#include "core/parse.h"
#include "flim/split.h"

static const char *const mode_names[] = {"auto", "stratified", "group", "stratified-group", "leave-one-group-out"};
enum { N_MODES = sizeof mode_names / sizeof mode_names[0] };

const char *flim_split_mode_name(flim_split_mode mode)
{
    return mode_names[mode];
}

flim_status flim_split_mode_parse(const char *text, flim_split_mode *out, flim_error *err)
{
    for (int i = 0; i < N_MODES; i++) {
        if (strcmp(text, mode_names[i]) == 0) {
            *out = (flim_split_mode)i;
            return FLIM_OK;
        }
    }
    return flim_fail(
        err, FLIM_ERROR_USAGE,
        "cv: '%s' is unknown, did you mean '%s'? (auto, stratified, group, stratified-group, leave-one-group-out)", text,
        flim_nearest(text, mode_names, N_MODES));
}

#include "bench/bench_output.h"

#include <stdio.h>
#include <string.h>

#include "core/try.h"

flim_status flim_bench_write_json(const flim_json *json, const char *path, const char *begins, flim_error *err)
{
    return flim_json_write_output(
        json, &(flim_output){.path = path, .kind = "a file of such figures from flim_bench", .begins = begins}, err);
}

flim_status flim_bench_check_weights(const char *path, flim_error *err)
{
    if (!path[0]) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_output_check_kind(path, err));
    return flim_file_exists(path)
               ? flim_fail(err, FLIM_ERROR_USAGE, "%s exists: choose another name, or remove it first", path)
               : FLIM_OK;
}

const char *flim_bench_size_text(const flim_network *net, char text[FLIM_BENCH_SIZE_TEXT])
{
    snprintf(text, FLIM_BENCH_SIZE_TEXT, "w%d d%d", net->width, net->depth);
    return strcmp(net->preset, "custom") == 0 ? text : net->preset;
}

void flim_bench_set_size(flim_json *object, const flim_network *net)
{
    flim_json_set_string(object, "preset", net->preset);
    flim_json_set_integer(object, "width", net->width);
    flim_json_set_integer(object, "depth", net->depth);
}

#include "bench/bench_output.h"

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

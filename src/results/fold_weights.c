#include "results/fold_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/try.h"
#include "formats/json.h"

flim_status flim_fold_splits_sha256(const char *run_folder, char out[65], flim_error *err)
{
    char path[FLIM_FILE_PATH], *bytes = NULL;
    size_t count = 0;
    FLIM_TRY(flim_path_in(run_folder, "splits.json", path, err));
    FLIM_TRY(flim_file_read(path, (size_t)1 << 32, &bytes, &count, err));
    const flim_status status = flim_sha256_of(bytes, count, out, err);
    flim_free(bytes);
    return status;
}

/* The run's identity texts, of which its weights carry one: resume.json's "accepted", the last one the present one.  Another run
 * may have the same folds.  A run without them (of an older version) says nothing. */
static flim_status check_recipe(const char *run_folder, const char *path, const flim_provenance *about, flim_error *err)
{
    char record_path[FLIM_FILE_PATH], difference[1024];
    flim_json *record = NULL;
    const char *text = NULL;
    FLIM_TRY(flim_path_in(run_folder, "resume.json", record_path, err));
    if (!about->is_known || !about->recipe || !about->recipe[0] || !flim_file_exists(record_path)) {
        return FLIM_OK;
    }
    if (flim_json_read(record_path, &record, NULL) != FLIM_OK) {
        return FLIM_OK; /* --resume says what is wrong with it; scores and predictions do not need it */
    }
    const flim_json *accepted = flim_json_get(record, "accepted");
    const size_t n = flim_json_length(accepted);
    bool found = n == 0;
    for (size_t i = 0; i < n && !found; i++) {
        const char *one = flim_json_string(flim_json_at(accepted, i));
        found = one && strcmp(one, about->recipe) == 0;
        text = one ? one : text;
    }
    flim_status status = FLIM_OK;
    if (!found && text) {
        flim_describe_difference(about->recipe, strlen(about->recipe), text, difference, sizeof difference);
        status = flim_fail(err, FLIM_ERROR_DATA,
                           "%s belongs to another run: %s. Put the run's own file back, or train this fold again", path,
                           difference);
    }
    flim_json_free(record);
    return status;
}

flim_status flim_fold_weights_check(const flim_provenance *about, const char *path, const char *run_folder, int k,
                                    const char *splits_sha256, flim_error *err)
{
    FLIM_TRY(flim_provenance_check_place(about, path, k, splits_sha256, err));
    return check_recipe(run_folder, path, about, err);
}

flim_status flim_fold_weights_about(const char *run_folder, int k, const char *splits_sha256, flim_provenance *out,
                                    flim_error *err)
{
    char name[64], path[FLIM_FILE_PATH];
    *out = (flim_provenance){.fold = -1};
    snprintf(name, sizeof name, "fold_%d/best.safetensors", k);
    FLIM_TRY(flim_path_in(run_folder, name, path, err));
    FLIM_TRY(flim_provenance_read(path, out, err));
    const flim_status status = flim_fold_weights_check(out, path, run_folder, k, splits_sha256, err);
    if (status != FLIM_OK) {
        flim_provenance_free(out);
    }
    return status;
}

bool flim_fold_of_weights(const char *path, char *run_folder, size_t size, int *k)
{
    static const char name[] = "/best.safetensors", fold[] = "fold_";
    char splits[FLIM_FILE_PATH], *end;
    const size_t length = strlen(path);
    if (length < sizeof name || strcmp(path + length - (sizeof name - 1), name) != 0) {
        return false;
    }
    size_t from = length - (sizeof name - 1); /* of the folder's name before it */
    while (from > 0 && path[from - 1] != '/') {
        from--;
    }
    const char *number = path + from + sizeof fold - 1;
    if (strncmp(path + from, fold, sizeof fold - 1) != 0 || *number < '0' || *number > '9') {
        return false;
    }
    const long value = strtol(number, &end, 10);
    if (end != path + length - (sizeof name - 1) || value > 65535 || from >= size) {
        return false;
    }
    snprintf(run_folder, size, "%.*s", from > 1 ? (int)(from - 1) : (int)from, path);
    if (from == 0) {
        snprintf(run_folder, size, ".");
    }
    *k = (int)value;
    return flim_path_in(run_folder, "splits.json", splits, NULL) == FLIM_OK && flim_file_exists(splits);
}

#include "import/import.h"

#include <stdlib.h>
#include <string.h>

#include "core/alike_names.h"
#include "core/alloc.h"
#include "core/output.h"
#include "core/text.h"
#include "core/try.h"
#include "import/import_write.h"
#include "import/manifest.h"

static flim_status count_groups(const flim_import_cells *cells, int64_t *groups, flim_error *err)
{
    const size_t n = (size_t)cells->n;
    const char **sorted = flim_alloc(n, sizeof *sorted, err); /* (n) */
    if (!sorted) {
        return FLIM_ERROR_MEMORY;
    }
    memcpy(sorted, cells->group, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, flim_compare_texts);
    for (size_t i = 0; i < n; i++) {
        *groups += i == 0 || strcmp(sorted[i - 1], sorted[i]) != 0;
    }
    flim_free(sorted);
    return FLIM_OK;
}

/* Two spellings of one class, as flim_info and train_cv say it of OUT. */
static flim_status warn_of_classes(const flim_string_list *classes, const flim_log *log, flim_error *err)
{
    char *text = NULL;
    FLIM_TRY(flim_alike_names(
        &(flim_names){.n = classes->n, .name = (const char *const *)classes->item, .what = "classes", .one = "class"}, NULL,
        &text, err));
    if (text) {
        flim_log_line(log, FLIM_LOG_WARNING, "%s", text);
    }
    flim_free(text);
    return FLIM_OK;
}

/* OUT must be none of the files that are read. */
static flim_status check_output(const flim_import_request *r, const flim_import_rows *rows, flim_error *err)
{
    flim_status status = FLIM_OK;
    int n = 0;
    const char **input = flim_alloc((size_t)rows->n * 2, sizeof *input, err); /* (n) */
    FLIM_TRY_DONE(input ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < rows->n; i++) {
        input[n++] = rows->row[i].path;
        if (rows->row[i].mask) {
            input[n++] = rows->row[i].mask;
        }
    }
    status = flim_output_check(
        &(flim_output){.path = r->out, .kind = "a data file", .input = input, .n_inputs = n, .seeks = true}, err);
done:
    flim_free(input);
    return status;
}

flim_status flim_import(const flim_import_request *request, const flim_log *log, flim_import_result *result, flim_error *err)
{
    flim_import_rows rows = {0};
    flim_import_cells cells = {0};
    flim_status status = FLIM_OK;
    *result = (flim_import_result){0};
    const bool manifest = request->manifest && request->manifest[0];
    FLIM_TRY_DONE(manifest ? flim_manifest_rows(request, &rows, err) : flim_import_rows_make(request, &rows, err));
    FLIM_TRY_DONE(check_output(request, &rows, err));
    FLIM_TRY_DONE(flim_import_cells_find(request, &rows, log, &cells, result, err));
    FLIM_TRY_DONE(flim_import_write(request, &rows, &cells, result, err));
    FLIM_TRY_DONE(rows.groups ? count_groups(&cells, &result->groups, err) : FLIM_OK);
    result->cells = cells.n;
    result->skipped = rows.skipped;
    result->classes = rows.classes.n;
    result->t = cells.t;
    result->h = cells.h;
    result->w = cells.w;
    if (cells.range_ns == 0) {
        flim_log_line(log, FLIM_LOG_NOTE, "no file gives the duration of its %d time bins; set it with --time-range-ns X",
                      result->t);
    }
    status = warn_of_classes(&rows.classes, log, err);
done:
    flim_import_cells_free(&cells);
    flim_import_rows_free(&rows);
    return status;
}

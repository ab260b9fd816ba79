/* The CSV file that names fields, masks, groups, classes and names.  The first byte chooses the rule of groups and whether masks
 * have a pattern. */
#include "fuzz.h"

#include <string.h>

#include "import/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    char path[64];
    const int fd = flim_fuzz_file(data + 1, size - 1, path);
    const flim_import_request request = {.manifest = path,
                                         .group = (flim_import_group)(data[0] % 3),
                                         .group_prefix = data[0] & 4 ? "isolated_cells_" : NULL,
                                         .mask = data[0] & 8 ? "*" : NULL};
    flim_import_rows rows = {0};
    flim_error err = {0};
    const flim_status status = flim_manifest_rows(&request, &rows, &err);
    if ((status != FLIM_OK) != (err.text[0] != '\0')) {
        abort();
    }
    for (int64_t i = 0; status == FLIM_OK && i < rows.n; i++) {
        const flim_import_row *row = &rows.row[i];
        if (!row->path || !row->name || !row->group || row->label < -1 || row->label >= rows.classes.n ||
            (rows.classes.n > 0 && row->label < 0)) {
            abort();
        }
    }
    flim_import_rows_free(&rows);
    close(fd);
    return 0;
}

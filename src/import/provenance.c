#include "import/provenance.h"

#include <string.h>

#include "core/alloc.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/try.h"

static flim_status hash_of(const char *path, char out[65], flim_error *err)
{
    flim_mapped_file file;
    flim_status status = flim_mapped_open(path, &file, err);
    if (status == FLIM_OK) {
        status = flim_sha256_of(file.data, file.size, out, err);
    }
    flim_mapped_close(&file);
    return status;
}

flim_status flim_import_file_describe(const flim_import_row *row, const flim_field_file *file, flim_import_file *out,
                                      flim_error *err)
{
    *out = (flim_import_file){0};
    flim_text_show(file->instrument, out->instrument, sizeof out->instrument); /* bytes of the file: any */
    flim_text_show(file->date, out->date, sizeof out->date);
    FLIM_TRY(flim_sha256_of(file->map.data, file->map.size, out->sha256, err));
    return row->mask ? hash_of(row->mask, out->mask_sha256, err) : FLIM_OK;
}

/* One text of each row (n): what stands `offset` bytes into its flim_import_file. */
static flim_status write_column(const char *name, const flim_import_file *file, size_t offset, int64_t n, const char **text,
                                flim_dataset_writer *writer, flim_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        text[i] = (const char *)&file[i] + offset;
    }
    return flim_dataset_writer_add_texts(writer, name, text, n, err);
}

static flim_status write_paths(const flim_import_rows *rows, const char **text, flim_dataset_writer *writer, flim_error *err)
{
    for (int64_t i = 0; i < rows->n; i++) {
        text[i] = rows->row[i].path;
    }
    FLIM_TRY(flim_dataset_writer_add_texts(writer, "import/path", text, rows->n, err));
    for (int64_t i = 0; i < rows->n; i++) {
        text[i] = rows->row[i].mask ? rows->row[i].mask : "";
    }
    return flim_dataset_writer_add_texts(writer, "import/mask", text, rows->n, err);
}

flim_status flim_import_files_write(const flim_import_rows *rows, const flim_import_file *file,
                                    const flim_import_cells *cells, flim_dataset_writer *writer, flim_error *err)
{
    flim_status status = FLIM_OK;
    const char **text = flim_alloc((size_t)rows->n, sizeof *text, err); /* (n) */
    int64_t *row = text ? flim_alloc((size_t)cells->n, sizeof *row, err) : NULL; /* (cells->n) */
    FLIM_TRY_DONE(row ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t s = 0; s < cells->n_sources; s++) {
        for (int64_t i = 0; i < cells->source[s].n; i++) {
            row[cells->source[s].first + i] = cells->source[s].row;
        }
    }
    FLIM_TRY_DONE(write_paths(rows, text, writer, err));
    const struct {
        const char *name;
        size_t offset;
    } column[] = {{"import/sha256", offsetof(flim_import_file, sha256)},
                  {"import/mask_sha256", offsetof(flim_import_file, mask_sha256)},
                  {"import/instrument", offsetof(flim_import_file, instrument)},
                  {"import/date", offsetof(flim_import_file, date)}};
    for (size_t i = 0; i < sizeof column / sizeof column[0]; i++) {
        FLIM_TRY_DONE(write_column(column[i].name, file, column[i].offset, rows->n, text, writer, err));
    }
    status = flim_dataset_writer_add_numbers(writer, "import/file", row, cells->n, err);
done:
    flim_free(text);
    flim_free(row);
    return status;
}

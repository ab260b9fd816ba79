/* Where the cells of an import come from: path, hash, instrument and date of each file, as /import of the data file. */
#ifndef FLIM_IMPORT_PROVENANCE_H
#define FLIM_IMPORT_PROVENANCE_H

#include "flim/dataset_writer.h"
#include "import/import_cells.h"

typedef struct flim_import_file {
    char sha256[65], mask_sha256[65]; /* mask_sha256: "" without a mask */
    char instrument[96], date[64]; /* "" if the file does not say */
} flim_import_file;

/* What is to be known of a row's open file and of its mask. */
flim_status flim_import_file_describe(const flim_import_row *row, const flim_field_file *file, flim_import_file *out,
                                      flim_error *err);

/* Writes import/path, sha256, mask, mask_sha256, instrument and date, one entry per row, and import/file: the row of each cell. */
flim_status flim_import_files_write(const flim_import_rows *rows, const flim_import_file *file,
                                    const flim_import_cells *cells, flim_dataset_writer *writer, flim_error *err);

#endif

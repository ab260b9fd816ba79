/* The cells of an import as a data file. */
#ifndef FLIM_IMPORT_IMPORT_WRITE_H
#define FLIM_IMPORT_IMPORT_WRITE_H

#include "import/import_cells.h"

/* Reads every source and writes OUT; result gets the photons' account. */
flim_status flim_import_write(const flim_import_request *request, const flim_import_rows *rows,
                              const flim_import_cells *cells, flim_import_result *result, flim_error *err);

#endif

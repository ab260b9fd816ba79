/* Instrument files, arrays and masks as a data file: flim_import's substance.
 *
 * For: each image (field_file.h) becomes one cell, or one per label of its mask (field_cells.h).  Classes come from texts in the
 *      files' names, groups from their folders.  Files are listed first, then read one at a time: any number fits.
 * Owns: nothing beyond the call.  OUT appears whole or not at all.
 * Errors: FLIM_ERROR_USAGE what the caller has to say, and an OUT that exists; FLIM_ERROR_DATA names the file; FLIM_ERROR_WRITE; FLIM_INTERRUPTED.
 */
#ifndef FLIM_IMPORT_IMPORT_H
#define FLIM_IMPORT_IMPORT_H

#include "flim/log.h"
#include "import/import_request.h"

/* log: notes, a line for each of the first cells that are left out. */
flim_status flim_import(const flim_import_request *request, const flim_log *log, flim_import_result *result, flim_error *err);

#endif

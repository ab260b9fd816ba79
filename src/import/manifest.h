/* A manifest: a CSV file that says of each field what names cannot.
 *
 * Columns, in any order, named in the first row: path, and if they are needed mask, group, label (the class's name) and name.  Paths
 * are those from the manifest's folder.  Without a column mask, group or name the request's rules and the file's name count.  A
 * row without a label is skipped if others have one.  Classes are in the order of their first mention, or by value if all are
 * numbers.
 */
#ifndef FLIM_IMPORT_MANIFEST_H
#define FLIM_IMPORT_MANIFEST_H

#include "import/import_rows.h"

/* The rows of request->manifest.  out is to be freed after an error, too.  FLIM_ERROR_DATA names file and line. */
flim_status flim_manifest_rows(const flim_import_request *request, flim_import_rows *out, flim_error *err);

#endif

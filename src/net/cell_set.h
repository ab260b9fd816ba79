/* Sets of cells as text.  The sets themselves are in flim/provenance.h. */
#ifndef FLIM_NET_CELL_SET_H
#define FLIM_NET_CELL_SET_H

#include "flim/provenance.h"

/* More cells than this are not written: the header of a weight file would outgrow what its readers accept. */
enum { FLIM_CELL_SET_MOST = 2000000 };

/* base64 of the hashes, 8 bytes each, little endian; the caller's (flim_free).  NULL when out of memory. */
char *flim_cell_set_text(const flim_cell_set *set, flim_error *err);
/* And back.  FLIM_ERROR_DATA if it is no such text, or the hashes do not ascend. */
flim_status flim_cell_set_parse(const char *text, flim_cell_set *out, flim_error *err);

#endif

/* zlib streams in one call: libdeflate where it was found, else zlib.  One object per thread. */
#ifndef FLIM_DATA_INFLATE_H
#define FLIM_DATA_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "flim/status.h"

typedef struct flim_inflater flim_inflater;

flim_status flim_inflater_create(flim_inflater **out, flim_error *err);
void flim_inflater_destroy(flim_inflater *inflater); /* NULL is allowed */
/* True where `in` is a whole zlib stream (checksum included) of exactly out_bytes bytes. */
bool flim_inflate(flim_inflater *inflater, const void *in, size_t in_bytes, void *out, size_t out_bytes);
/* As flim_inflate, into at most `room` bytes; *out_bytes gets how many came, room + 1 where there are more. */
bool flim_inflate_some(flim_inflater *inflater, const void *in, size_t in_bytes, void *out, size_t room, size_t *out_bytes);
const char *flim_inflate_library(void);

#endif

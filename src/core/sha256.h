/* SHA-256 (libcrypto's) as lower-case hex. */
#ifndef FLIM_CORE_SHA256_H
#define FLIM_CORE_SHA256_H

#include <stddef.h>

#include "flim/status.h"

typedef struct flim_sha256 {
    void *context; /* EVP_MD_CTX */
} flim_sha256;

flim_status flim_sha256_begin(flim_sha256 *hash, flim_error *err);
void flim_sha256_add(flim_sha256 *hash, const void *bytes, size_t count);
/* Ends it; out may be NULL to drop the result. */
void flim_sha256_end(flim_sha256 *hash, char out[65]);

flim_status flim_sha256_of(const void *bytes, size_t count, char out[65], flim_error *err);

#endif

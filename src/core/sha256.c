#include "core/sha256.h"
#include "core/try.h"

#include <openssl/evp.h>
#include <stdio.h>

flim_status flim_sha256_begin(flim_sha256 *hash, flim_error *err)
{
    hash->context = EVP_MD_CTX_new();
    if (!hash->context || EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(hash->context);
        hash->context = NULL;
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: SHA-256 could not start");
    }
    return FLIM_OK;
}

void flim_sha256_add(flim_sha256 *hash, const void *bytes, size_t count)
{
    EVP_DigestUpdate(hash->context, bytes, count);
}

void flim_sha256_end(flim_sha256 *hash, char out[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (!hash->context) {
        return;
    }
    EVP_DigestFinal_ex(hash->context, digest, &length);
    EVP_MD_CTX_free(hash->context);
    hash->context = NULL;
    for (unsigned i = 0; out && i < 32; i++) {
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }
}

flim_status flim_sha256_of(const void *bytes, size_t count, char out[65], flim_error *err)
{
    flim_sha256 hash;
    FLIM_TRY(flim_sha256_begin(&hash, err));
    flim_sha256_add(&hash, bytes, count);
    flim_sha256_end(&hash, out);
    return FLIM_OK;
}

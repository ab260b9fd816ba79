#include "import/lz4_frame.h"

#ifdef FLIM_HAVE_LZ4
#include <lz4frame.h>

flim_status flim_lz4_read(const uint8_t *packed, size_t bytes, uint8_t *out, size_t size, flim_error *err)
{
    LZ4F_dctx *context = NULL;
    size_t used = 0, made = 0, left = 1; /* left: what the frame still wants; 0 at its end */
    uint8_t beyond; /* contents longer than they may be end here */
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION))) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: liblz4 could not make a decompressor");
    }
    while (left > 0 && !LZ4F_isError(left) && made <= size) {
        size_t in = bytes - used, got = made < size ? size - made : 1;
        left = LZ4F_decompress(context, made < size ? out + made : &beyond, &got, packed + used, &in, NULL);
        if (LZ4F_isError(left) || (in == 0 && got == 0)) {
            break;
        }
        used += in;
        made += got;
    }
    LZ4F_freeDecompressionContext(context);
    if (LZ4F_isError(left)) {
        return flim_fail(err, FLIM_ERROR_DATA, "its LZ4 frame is damaged at byte %zu of it: %s", used,
                         LZ4F_getErrorName(left));
    }
    if (made > size) {
        return flim_fail(err, FLIM_ERROR_DATA, "its LZ4 frame has more than the %zu bytes expected", size);
    }
    return left == 0 && made == size
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "its LZ4 frame ends after %zu of the %zu bytes expected", made, size);
}

#else

flim_status flim_lz4_read(const uint8_t *packed, size_t bytes, uint8_t *out, size_t size, flim_error *err)
{
    (void)packed;
    (void)bytes;
    (void)out;
    (void)size;
    return flim_fail(
        err, FLIM_ERROR_USAGE,
        "it is packed by LZ4, and flimcv was built without liblz4: install Debian's liblz4-dev and build again, or "
        "save it uncompressed or zipped in SPCM");
}
#endif

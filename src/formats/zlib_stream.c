#include "formats/zlib_stream.h"

#ifdef FLIM_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif
#include <stdbool.h>
#include <zlib.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

flim_status flim_zlib_read(const uint8_t *packed, size_t bytes, uint8_t *out, size_t most, size_t *got, flim_error *err)
{
    const size_t piece = (size_t)1 << 30; /* zlib counts in 32 bits */
    z_stream stream = {0};
    int code = Z_OK;
    *got = 0;
    if (inflateInit(&stream) != Z_OK) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: zlib could not make a decompressor");
    }
    while (code == Z_OK && *got < most) {
        if (stream.avail_in == 0 && bytes > 0) {
            stream.next_in = (z_const Bytef *)packed;
            stream.avail_in = (uInt)least(bytes, piece);
            packed += stream.avail_in;
            bytes -= stream.avail_in;
        }
        const size_t room = least(most - *got, piece);
        stream.next_out = out + *got;
        stream.avail_out = (uInt)room;
        code = inflate(&stream, Z_NO_FLUSH); /* Z_BUF_ERROR: nothing more comes of what there is */
        *got += room - stream.avail_out;
    }
    inflateEnd(&stream);
    if (code == Z_MEM_ERROR) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: zlib could not inflate");
    }
    return code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "its compressed data is damaged after %zu bytes of contents", *got);
}

flim_status flim_zlib_read_all(const uint8_t *packed, size_t bytes, uint8_t *out, size_t size, size_t *got, flim_error *err)
{
#ifdef FLIM_HAVE_LIBDEFLATE
    struct libdeflate_decompressor *state = libdeflate_alloc_decompressor();
    const bool good = state && libdeflate_zlib_decompress(state, packed, bytes, out, size, NULL) == LIBDEFLATE_SUCCESS;
    libdeflate_free_decompressor(state);
    if (good) {
        *got = size;
        return FLIM_OK;
    }
#endif
    return flim_zlib_read(packed, bytes, out, size, got, err); /* zlib says what is wrong */
}

#include "data/inflate.h"

#ifdef FLIM_HAVE_LIBDEFLATE
#include <libdeflate.h>
#else
#include <zlib.h>
#endif

#include "core/alloc.h"

#ifdef FLIM_HAVE_LIBDEFLATE

struct flim_inflater {
    struct libdeflate_decompressor *state;
};

flim_status flim_inflater_create(flim_inflater **out, flim_error *err)
{
    flim_inflater *inflater = flim_alloc(1, sizeof *inflater, err);
    *out = NULL;
    if (!inflater) {
        return FLIM_ERROR_MEMORY;
    }
    inflater->state = libdeflate_alloc_decompressor();
    if (!inflater->state) {
        flim_free(inflater);
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: libdeflate could not make a decompressor");
    }
    *out = inflater;
    return FLIM_OK;
}

void flim_inflater_destroy(flim_inflater *inflater)
{
    if (inflater) {
        libdeflate_free_decompressor(inflater->state);
        flim_free(inflater);
    }
}

bool flim_inflate(flim_inflater *inflater, const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    /* No place for the actual size: libdeflate then demands exactly out_bytes. */
    return libdeflate_zlib_decompress(inflater->state, in, in_bytes, out, out_bytes, NULL) == LIBDEFLATE_SUCCESS;
}

bool flim_inflate_some(flim_inflater *inflater, const void *in, size_t in_bytes, void *out, size_t room, size_t *out_bytes)
{
    const enum libdeflate_result result = libdeflate_zlib_decompress(inflater->state, in, in_bytes, out, room, out_bytes);
    *out_bytes = result == LIBDEFLATE_INSUFFICIENT_SPACE ? room + 1 : *out_bytes;
    return result == LIBDEFLATE_SUCCESS;
}

const char *flim_inflate_library(void)
{
    return "libdeflate";
}

#else

struct flim_inflater {
    z_stream stream;
};

flim_status flim_inflater_create(flim_inflater **out, flim_error *err)
{
    flim_inflater *inflater = flim_alloc(1, sizeof *inflater, err);
    *out = NULL;
    if (!inflater) {
        return FLIM_ERROR_MEMORY;
    }
    if (inflateInit(&inflater->stream) != Z_OK) {
        flim_free(inflater);
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: zlib could not make a decompressor");
    }
    *out = inflater;
    return FLIM_OK;
}

void flim_inflater_destroy(flim_inflater *inflater)
{
    if (inflater) {
        inflateEnd(&inflater->stream);
        flim_free(inflater);
    }
}

bool flim_inflate(flim_inflater *inflater, const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    z_stream *stream = &inflater->stream;
    if (in_bytes > 0xffffffffu || out_bytes > 0xffffffffu || inflateReset(stream) != Z_OK) {
        return false;
    }
    stream->next_in = (z_const Bytef *)in;
    stream->avail_in = (uInt)in_bytes;
    stream->next_out = out;
    stream->avail_out = (uInt)out_bytes;
    return inflate(stream, Z_FINISH) == Z_STREAM_END && stream->avail_out == 0;
}

bool flim_inflate_some(flim_inflater *inflater, const void *in, size_t in_bytes, void *out, size_t room, size_t *out_bytes)
{
    z_stream *stream = &inflater->stream;
    if (in_bytes > 0xffffffffu || room > 0xffffffffu || inflateReset(stream) != Z_OK) {
        return false;
    }
    stream->next_in = (z_const Bytef *)in;
    stream->avail_in = (uInt)in_bytes;
    stream->next_out = out;
    stream->avail_out = (uInt)room;
    const bool whole = inflate(stream, Z_FINISH) == Z_STREAM_END;
    *out_bytes = !whole && stream->avail_out == 0 ? room + 1 : room - stream->avail_out;
    return whole;
}

const char *flim_inflate_library(void)
{
    return "zlib";
}

#endif

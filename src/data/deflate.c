#include "data/deflate.h"

#if defined FLIM_HAVE_ISAL
#include <isa-l/igzip_lib.h>
#elif defined FLIM_HAVE_LIBDEFLATE
#include <libdeflate.h>
#else
#include <zlib.h>
#endif

#include "core/alloc.h"

#if defined FLIM_HAVE_ISAL

struct flim_deflater {
    struct isal_zstream stream;
    uint8_t room[ISAL_DEF_LVL1_DEFAULT]; /* its hash table */
};

flim_status flim_deflater_create(flim_deflater **out, flim_error *err)
{
    *out = flim_alloc(1, sizeof **out, err);
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

void flim_deflater_destroy(flim_deflater *deflater)
{
    flim_free(deflater);
}

size_t flim_deflate_bound(size_t bytes)
{
    return bytes + bytes / 8 + 1024; /* stored blocks have 5 bytes in 65535; it may split them further */
}

size_t flim_deflate(flim_deflater *deflater, const void *in, size_t in_bytes, void *out)
{
    struct isal_zstream *s = &deflater->stream;
    const size_t room = flim_deflate_bound(in_bytes);
    isal_deflate_init(s);
    s->level = 1;
    s->level_buf = deflater->room;
    s->level_buf_size = sizeof deflater->room;
    s->gzip_flag = IGZIP_ZLIB;
    s->end_of_stream = 1;
    s->next_in = (uint8_t *)(uintptr_t)in;
    s->avail_in = (uint32_t)in_bytes;
    s->next_out = out;
    s->avail_out = room > UINT32_MAX ? UINT32_MAX : (uint32_t)room;
    return isal_deflate(s) == COMP_OK && s->internal_state.state == ZSTATE_END ? s->total_out : 0;
}

const char *flim_deflate_library(void)
{
    return "ISA-L";
}

#elif defined FLIM_HAVE_LIBDEFLATE

enum { LEVEL = 2 };

struct flim_deflater {
    struct libdeflate_compressor *state;
};

flim_status flim_deflater_create(flim_deflater **out, flim_error *err)
{
    flim_deflater *deflater = flim_alloc(1, sizeof *deflater, err);
    *out = NULL;
    if (!deflater) {
        return FLIM_ERROR_MEMORY;
    }
    deflater->state = libdeflate_alloc_compressor(LEVEL);
    if (!deflater->state) {
        flim_free(deflater);
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: libdeflate could not make a compressor");
    }
    *out = deflater;
    return FLIM_OK;
}

void flim_deflater_destroy(flim_deflater *deflater)
{
    if (deflater) {
        libdeflate_free_compressor(deflater->state);
        flim_free(deflater);
    }
}

size_t flim_deflate_bound(size_t bytes)
{
    return libdeflate_zlib_compress_bound(NULL, bytes);
}

size_t flim_deflate(flim_deflater *deflater, const void *in, size_t in_bytes, void *out)
{
    return libdeflate_zlib_compress(deflater->state, in, in_bytes, out, flim_deflate_bound(in_bytes));
}

const char *flim_deflate_library(void)
{
    return "libdeflate";
}

#else

enum { LEVEL = 4 };

struct flim_deflater {
    int unused; /* zlib's one call makes its state anew */
};

flim_status flim_deflater_create(flim_deflater **out, flim_error *err)
{
    *out = flim_alloc(1, sizeof **out, err);
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

void flim_deflater_destroy(flim_deflater *deflater)
{
    flim_free(deflater);
}

size_t flim_deflate_bound(size_t bytes)
{
    return compressBound((uLong)bytes);
}

size_t flim_deflate(flim_deflater *deflater, const void *in, size_t in_bytes, void *out)
{
    uLongf made = compressBound((uLong)in_bytes);
    (void)deflater;
    return compress2(out, &made, in, (uLong)in_bytes, LEVEL) == Z_OK ? made : 0;
}

const char *flim_deflate_library(void)
{
    return "zlib";
}

#endif

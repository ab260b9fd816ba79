#include "formats/zip.h"

#include <inttypes.h>
#include <string.h>

#ifdef FLIM_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif
#include <zlib.h>

#include "core/little_endian.h"
#include "core/try.h"

/* Signatures and sizes of records; PKWARE's APPNOTE 6.3, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16. */
#define LOCAL 0x04034b50u
#define CENTRAL 0x02014b50u
#define END 0x06054b50u
#define END64 0x06064b50u
#define LOCATOR64 0x07064b50u
enum { LOCAL_BYTES = 30, CENTRAL_BYTES = 46, END_BYTES = 22, END64_BYTES = 56, LOCATOR64_BYTES = 20, MOST_COMMENT = 65535 };
enum { FLAG_ENCRYPTED = 1, FLAG_SIZES_LATER = 8 };

bool flim_is_zip(const uint8_t *bytes, size_t count)
{
    return count >= LOCAL_BYTES && flim_u32_at(bytes) == LOCAL;
}

static flim_status damaged(const char *what, uint64_t offset, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DATA, "zip archive: %s at offset %" PRIu64 " reaches past its end", what, offset);
}

/* Sizes that do not fit 32 bits stand in the extra field of id 1, only those, in this order. */
static void read_zip64(const uint8_t *extra, size_t bytes, uint64_t *value[3])
{
    size_t at = 0;
    while (bytes - at >= 4) {
        const size_t length = flim_u16_at(extra + at + 2);
        if (length > bytes - at - 4) {
            return;
        }
        if (flim_u16_at(extra + at) == 1) {
            size_t used = 0;
            for (int i = 0; i < 3; i++) {
                if (value[i] && *value[i] == UINT32_MAX && used + 8 <= length) {
                    *value[i] = flim_u64_at(extra + at + 4 + used);
                    used += 8;
                }
            }
            return;
        }
        at += 4 + length;
    }
}

static flim_status check_entry(uint32_t flags, const flim_zip_entry *e, flim_error *err)
{
    if (flags & FLAG_ENCRYPTED) {
        return flim_fail(err, FLIM_ERROR_DATA, "zip archive: '%s' is encrypted", e->name);
    }
    if (e->method != 0 && e->method != 8) {
        return flim_fail(err, FLIM_ERROR_DATA, "zip archive: '%s' is packed by method %d; stored and deflated are read",
                         e->name, e->method);
    }
    /* Before memory is asked for on the header's word: stored contents are as long as they are, deflate's best is 1032 : 1. */
    if (e->has_sizes && (e->method == 0 ? e->size != e->packed : e->size / 1032 > e->packed)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "zip archive: '%s' is damaged: it claims %" PRIu64 " bytes, packed into %" PRIu64, e->name, e->size,
                         e->packed);
    }
    return FLIM_OK;
}

/* The local header at `at`: where the entry's data begin, and, if out is given, what it says of them. */
static flim_status read_local(const uint8_t *archive, size_t bytes, uint64_t at, uint64_t *data, flim_zip_entry *out,
                              flim_error *err)
{
    if (at > bytes || bytes - at < LOCAL_BYTES || flim_u32_at(archive + at) != LOCAL) {
        return flim_fail(err, FLIM_ERROR_DATA, "zip archive: no header of a file at offset %" PRIu64, at);
    }
    const uint8_t *h = archive + at;
    const uint64_t name = flim_u16_at(h + 26), extra = flim_u16_at(h + 28);
    *data = at + LOCAL_BYTES + name + extra;
    if (*data > bytes) {
        return damaged("a header", at, err);
    }
    if (out) {
        const uint32_t flags = flim_u16_at(h + 6);
        *out = (flim_zip_entry){.offset = *data, .crc = flim_u32_at(h + 14), .method = (int)flim_u16_at(h + 8)};
        out->packed = flim_u32_at(h + 18);
        out->size = flim_u32_at(h + 22);
        memcpy(out->name, h + LOCAL_BYTES, name < sizeof out->name - 1 ? name : sizeof out->name - 1);
        read_zip64(h + LOCAL_BYTES + name, extra, (uint64_t *[]){&out->size, &out->packed, NULL});
        out->has_sizes = !(flags & FLAG_SIZES_LATER);
        return check_entry(flags, out, err);
    }
    return FLIM_OK;
}

flim_status flim_zip_first(const uint8_t *archive, size_t bytes, flim_zip_entry *out, flim_error *err)
{
    uint64_t data;
    return read_local(archive, bytes, 0, &data, out, err);
}

/* Where the list begins and ends. */
static flim_status find_list(const uint8_t *archive, size_t bytes, uint64_t *begin, uint64_t *end, flim_error *err)
{
    size_t at = bytes >= END_BYTES ? bytes - END_BYTES : 0;
    const size_t last = at > MOST_COMMENT ? at - MOST_COMMENT : 0;
    while (bytes >= END_BYTES && at > last && flim_u32_at(archive + at) != END) {
        at--;
    }
    if (bytes < END_BYTES || flim_u32_at(archive + at) != END) {
        return flim_fail(err, FLIM_ERROR_DATA, "zip archive: the list at its end is missing: the file is truncated");
    }
    uint64_t size = flim_u32_at(archive + at + 12);
    *begin = flim_u32_at(archive + at + 16);
    if (at >= LOCATOR64_BYTES && flim_u32_at(archive + at - LOCATOR64_BYTES) == LOCATOR64) {
        const uint64_t at64 = flim_u64_at(archive + at - LOCATOR64_BYTES + 8);
        if (at64 > bytes || bytes - at64 < END64_BYTES || flim_u32_at(archive + at64) != END64) {
            return damaged("its zip64 end", at64, err);
        }
        size = flim_u64_at(archive + at64 + 40);
        *begin = flim_u64_at(archive + at64 + 48);
    }
    if (*begin > bytes || size > bytes - *begin) {
        return damaged("its list", *begin, err);
    }
    *end = *begin + size;
    return FLIM_OK;
}

flim_status flim_zip_next(const uint8_t *archive, size_t bytes, uint64_t *cursor, flim_zip_entry *out, bool *found,
                          flim_error *err)
{
    uint64_t begin = 0, end = 0;
    *found = false;
    FLIM_TRY(find_list(archive, bytes, &begin, &end, err));
    const uint64_t at = *cursor ? *cursor : begin;
    if (at >= end) {
        return FLIM_OK;
    }
    if (end - at < CENTRAL_BYTES || flim_u32_at(archive + at) != CENTRAL) {
        return damaged("an entry of its list", at, err);
    }
    const uint8_t *h = archive + at;
    const uint64_t name = flim_u16_at(h + 28), extra = flim_u16_at(h + 30), comment = flim_u16_at(h + 32);
    if (name + extra + comment > end - at - CENTRAL_BYTES) {
        return damaged("an entry of its list", at, err);
    }
    uint64_t local = flim_u32_at(h + 42);
    *out = (flim_zip_entry){.has_sizes = true, .crc = flim_u32_at(h + 16), .method = (int)flim_u16_at(h + 10)};
    out->packed = flim_u32_at(h + 20);
    out->size = flim_u32_at(h + 24);
    memcpy(out->name, h + CENTRAL_BYTES, name < sizeof out->name - 1 ? name : sizeof out->name - 1);
    read_zip64(h + CENTRAL_BYTES + name, extra, (uint64_t *[]){&out->size, &out->packed, &local});
    FLIM_TRY(check_entry(flim_u16_at(h + 8), out, err));
    FLIM_TRY(read_local(archive, bytes, local, &out->offset, NULL, err));
    *cursor = at + CENTRAL_BYTES + name + extra + comment;
    *found = true;
    return FLIM_OK;
}

/* zlib counts in 32 bits: pieces of at most 1 GiB. */
static flim_status inflate_all(const flim_zip_entry *e, const uint8_t *in, uint64_t in_bytes, uint8_t *out, size_t size,
                               flim_error *err)
{
    const size_t piece = (size_t)1 << 30;
    z_stream stream = {0};
    size_t made = 0;
    int code = Z_OK;
    if (inflateInit2(&stream, -15) != Z_OK) { /* no zlib header */
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: zlib could not make a decompressor");
    }
    while (code == Z_OK && (made < size || stream.avail_in > 0 || in_bytes > 0)) {
        if (stream.avail_in == 0 && in_bytes > 0) {
            stream.next_in = (z_const Bytef *)in;
            stream.avail_in = (uInt)(in_bytes < piece ? in_bytes : piece);
            in += stream.avail_in;
            in_bytes -= stream.avail_in;
        }
        uint8_t beyond = 0; /* contents longer than they may be end here */
        const size_t room = made < size ? (size - made < piece ? size - made : piece) : 1;
        stream.next_out = made < size ? out + made : &beyond;
        stream.avail_out = (uInt)room;
        code = inflate(&stream, Z_NO_FLUSH);
        const size_t got = room - stream.avail_out;
        if (made >= size && got > 0) {
            code = Z_BUF_ERROR;
            made = SIZE_MAX;
            break;
        }
        made += got;
    }
    inflateEnd(&stream);
    if (code == Z_MEM_ERROR) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: zlib could not inflate '%s'", e->name);
    }
    if (made == SIZE_MAX) {
        return flim_fail(err, FLIM_ERROR_DATA, "zip archive: '%s' has more than the %zu bytes expected", e->name, size);
    }
    if (code != Z_STREAM_END || made != size) {
        return flim_fail(err, FLIM_ERROR_DATA, "zip archive: '%s' %s after %zu of the %zu bytes expected", e->name,
                         code == Z_DATA_ERROR ? "is damaged" : "ends", made, size);
    }
    return FLIM_OK;
}

#ifdef FLIM_HAVE_LIBDEFLATE
/* All of it in one call, several times as fast as zlib.  False if it is not exactly `size` bytes: zlib then says why. */
static bool inflate_at_once(const uint8_t *in, uint64_t in_bytes, uint8_t *out, size_t size)
{
    struct libdeflate_decompressor *state = libdeflate_alloc_decompressor();
    const bool good = state && libdeflate_deflate_decompress(state, in, in_bytes, out, size, NULL) == LIBDEFLATE_SUCCESS;
    libdeflate_free_decompressor(state);
    return good;
}

static uint32_t crc_of(const uint8_t *bytes, size_t count)
{
    return libdeflate_crc32(0, bytes, count);
}
#else
static bool inflate_at_once(const uint8_t *in, uint64_t in_bytes, uint8_t *out, size_t size)
{
    (void)in;
    (void)in_bytes;
    (void)out;
    (void)size;
    return false;
}

static uint32_t crc_of(const uint8_t *bytes, size_t count)
{
    uLong crc = crc32(0, NULL, 0);
    while (count > 0) {
        const uInt piece = (uInt)(count < (size_t)1 << 30 ? count : (size_t)1 << 30);
        crc = crc32(crc, bytes, piece);
        bytes += piece;
        count -= piece;
    }
    return (uint32_t)crc;
}
#endif

flim_status flim_zip_extract(const uint8_t *archive, size_t bytes, const flim_zip_entry *entry, void *out, size_t size,
                             flim_error *err)
{
    if (entry->offset > bytes || (entry->has_sizes && entry->packed > bytes - entry->offset)) {
        return damaged("packed data", entry->offset, err);
    }
    const uint64_t packed = entry->has_sizes ? entry->packed : bytes - entry->offset;
    if (entry->has_sizes && entry->size != size) {
        return flim_fail(err, FLIM_ERROR_DATA, "zip archive: '%s' has %" PRIu64 " bytes, %zu were expected", entry->name,
                         entry->size, size);
    }
    if (entry->method == 8) {
        if (!inflate_at_once(archive + entry->offset, packed, out, size)) {
            FLIM_TRY(inflate_all(entry, archive + entry->offset, packed, out, size, err));
        }
    } else if (packed < size) {
        return damaged("stored data", entry->offset, err);
    } else {
        memcpy(out, archive + entry->offset, size);
    }
    if (entry->has_sizes && crc_of(out, size) != entry->crc) {
        return flim_fail(err, FLIM_ERROR_DATA, "zip archive: '%s' is damaged: its checksum is wrong", entry->name);
    }
    return FLIM_OK;
}

flim_status flim_zip_peek(const uint8_t *archive, size_t bytes, const flim_zip_entry *entry, void *out, size_t most,
                          size_t *got, flim_error *err)
{
    *got = 0;
    if (entry->offset > bytes) {
        return damaged("packed data", entry->offset, err);
    }
    const size_t there = bytes - entry->offset, packed = entry->has_sizes && entry->packed < there ? entry->packed : there;
    if (entry->method != 8) {
        *got = packed < most ? packed : most;
        memcpy(out, archive + entry->offset, *got);
        return FLIM_OK;
    }
    z_stream stream = {.next_in = (z_const Bytef *)(archive + entry->offset),
                       .avail_in = (uInt)(packed < UINT32_MAX ? packed : UINT32_MAX),
                       .next_out = out,
                       .avail_out = (uInt)(most < UINT32_MAX ? most : UINT32_MAX)};
    if (inflateInit2(&stream, -15) != Z_OK) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: zlib could not make a decompressor");
    }
    const int code = inflate(&stream, Z_SYNC_FLUSH);
    *got = most - stream.avail_out;
    inflateEnd(&stream);
    return code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "zip archive: '%s' is damaged", entry->name);
}

/* Instrument files and arrays: the public files against what their own readers say, and files made here whose photons are known,
 * for every kind of record, block, element and order; each of them cut off at every length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>
#ifdef FLIM_HAVE_LZ4
#include <lz4frame.h>
#endif

#include "core/alloc.h"
#include "core/sha256.h"
#include "formats/json.h"
#include "import/field_file.h"
#include "import/made_bytes.h"
#include "import/read_plain.h"

static char folder[] = "/dev/shm/flim_fields_XXXXXX"; /* thousands of small files: in memory */
static char path[256];

/* ---- reading ---- */

static void write_bytes(const bytes *b, size_t count)
{
    write_bytes_to(path, b, count);
}

static flim_field_file *open_file(const char *name, flim_array_axes axes)
{
    flim_field_file *file;
    flim_error err = {0};
    if (flim_field_open(name, &(flim_field_options){.axes = axes}, &file, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    return file;
}

/* The counts (Y,X,T) of a block; free(). */
static uint32_t *read_block(flim_field_file *file, int block, uint64_t *photons)
{
    uint32_t *counts;
    flim_error err = {0};
    if (read_plain(file, block, &counts, photons, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    return counts;
}

static flim_status try_file(flim_array_axes axes, flim_error *err)
{
    flim_field_file *file;
    *err = (flim_error){0};
    flim_status status = flim_field_open(path, &(flim_field_options){.axes = axes}, &file, err);
    if (status == FLIM_OK) {
        for (int i = 0; i < file->n_images && status == FLIM_OK; i++) {
            uint32_t *counts = NULL;
            uint64_t photons;
            status = read_plain(file, i, &counts, &photons, err);
            free(counts);
        }
        flim_field_close(file);
    }
    return status;
}

static void expect_error(const bytes *b, flim_array_axes axes, flim_status want, const char *words)
{
    flim_error err;
    write_bytes(b, b->n);
    const flim_status status = try_file(axes, &err);
    if (status != want || !strstr(err.text, words) || !strstr(err.text, path)) {
        fail_msg("status %d and '%s', expected %d and a text with '%s' and the file's name", status, err.text, want, words);
    }
}

/* Cut off at every length the file is refused, or read if only what is not needed is gone: at or above `enough`. */
static void cut_everywhere(const bytes *b, size_t enough)
{
    for (size_t n = 0; n < b->n; n++) {
        flim_error err;
        write_bytes(b, n);
        const flim_status status = try_file(FLIM_ARRAY_AUTO, &err);
        if (n < enough ? status != FLIM_ERROR_DATA : status != FLIM_OK && status != FLIM_ERROR_DATA) {
            fail_msg("cut to %zu of %zu bytes: status %d, '%s'", n, b->n, status, err.text);
        }
    }
}

/* ---- the public files ---- */

static int64_t number(const flim_json *object, const char *key)
{
    double value = -1;
    assert_true(flim_json_number(flim_json_get(object, key), &value));
    return (int64_t)value;
}

static void check_block(const char *name, flim_field_file *file, int i, const flim_json *want)
{
    const flim_field_image *b = &file->image[i];
    const flim_json *shape = flim_json_get(want, "shape_yxt"), *range = flim_json_get(want, "range_ns");
    uint64_t photons;
    uint32_t *counts = read_block(file, i, &photons);
    const size_t voxels = (size_t)(b->y * b->x * b->t);
    int64_t found[3] = {b->y, b->x, b->t}, most = 0, peak = 0;
    uint64_t *decay = calloc((size_t)b->t, sizeof *decay), highest = 0;
    assert_non_null(decay);
    for (size_t v = 0; v < voxels; v++) {
        most = counts[v] > most ? counts[v] : most;
        decay[v % (size_t)b->t] += counts[v];
    }
    for (int64_t t = 0; t < b->t; t++) {
        peak = decay[t] > highest ? t : peak;
        highest = decay[t] > highest ? decay[t] : highest;
    }
    for (size_t k = 0; k < 3; k++) {
        int64_t size = 0;
        assert_true(flim_json_integer(flim_json_at(shape, k), &size));
        if (size != found[k]) {
            fail_msg("%s, block %d: axis %zu has %lld entries, expected %lld", name, i, k, (long long)found[k],
                     (long long)size);
        }
    }
    assert_int_equal(photons, number(want, "sum"));
    assert_int_equal(most, number(want, "max"));
    assert_int_equal(peak, number(want, "peak_bin"));
    double ns = 0;
    if (flim_json_number(range, &ns)) {
        assert_true(fabs(b->range_ns - ns) < 1e-4);
    }
    const char *sha = flim_json_string(flim_json_get(want, "sha256")), *type = flim_json_string(flim_json_get(want, "dtype"));
    if (sha && type) { /* of the array as the file's own type */
        const size_t bytes_each = strcmp(type, "uint16") == 0 ? 2 : 4;
        uint8_t *packed = malloc(voxels * bytes_each);
        char hash[65];
        assert_non_null(packed);
        for (size_t v = 0; v < voxels; v++) {
            memcpy(packed + v * bytes_each, &counts[v], bytes_each);
        }
        assert_int_equal(flim_sha256_of(packed, voxels * bytes_each, hash, NULL), FLIM_OK);
        assert_string_equal(hash, sha);
        free(packed);
    }
    free(decay);
    free(counts);
}

static void public_files_read_as_their_readers_read_them(void **state)
{
    (void)state;
    static const char raw[] = FLIM_SHARED_DATA "/raw";
    char name[1024];
    flim_json *expected;
    snprintf(name, sizeof name, "%s/expected.json", raw);
    if (access(name, R_OK) != 0) {
        print_message("left out: there is no %s\n", name);
        return;
    }
    assert_int_equal(flim_json_read(name, &expected, NULL), FLIM_OK);
    void *iterator = NULL;
    const char *key;
    const flim_json *blocks;
    int files = 0;
    while (flim_json_next(expected, &iterator, &key, &blocks)) {
        snprintf(name, sizeof name, "%s/%s", raw, key);
        flim_field_file *file = open_file(name, FLIM_ARRAY_AUTO);
        assert_int_equal(file->n_images, flim_json_length(blocks));
        for (int i = 0; i < file->n_images; i++) {
            check_block(key, file, i, flim_json_at(blocks, (size_t)i));
        }
        flim_field_close(file);
        files++;
    }
    assert_true(files >= 9);
    flim_json_free(expected);
}

/* ---- .sdt ---- */

enum { SDT_MEAS = 42, SDT_MEAS_BYTES = 330, SDT_T = 8, SDT_Y = 3, SDT_X = 2, SDT_VALUES = SDT_T * SDT_Y * SDT_X };

typedef enum packing { STORED, ZIPPED, LZ4_FRAME, N_PACKINGS } packing;

/* A block's bytes as an LZ4 frame; without liblz4 they are made as they would be read elsewhere: not at all. */
static bool put_lz4(bytes *b, const uint8_t *plain, size_t size)
{
#ifdef FLIM_HAVE_LZ4
    const size_t made = LZ4F_compressFrame(b->data + b->n, sizeof b->data - b->n, plain, size, NULL);
    assert_false(LZ4F_isError(made));
    b->n += made;
    return true;
#else
    put(b, 0x184d2204, 4);
    (void)plain, (void)size;
    return false;
#endif
}

/* Two blocks of `element` bytes, SPCM's revision 14 or 15; value i of block b is 7 i + b.  False: no library packs them here. */
static bool make_sdt(bytes *b, int revision, int element, packing how)
{
    static const uint64_t packing_bit[] = {0, 0x1000, 0x4000};
    bool made = true;
    static const int type_of[] = {[2] = 0x000, [4] = 0x100, [8] = 0x200};
    *b = (bytes){.n = SDT_MEAS + SDT_MEAS_BYTES};
    set(b, 0, (uint64_t)(0x280 | revision), 2);
    set(b, 14, b->n, 4);
    set(b, 18, 2, 2);
    set(b, 24, SDT_MEAS, 4);
    set(b, 28, 1, 2);
    set(b, 30, SDT_MEAS_BYTES, 2);
    set(b, 32, 0x5555, 2);
    float range = 5e-8f;
    memcpy(b->data + SDT_MEAS + 64, &range, 4);
    set(b, SDT_MEAS + 68, 4, 2); /* 12.5 ns */
    set(b, SDT_MEAS + 82, SDT_T, 2);
    set(b, SDT_MEAS + 173, SDT_X, 4);
    set(b, SDT_MEAS + 177, SDT_Y, 4);
    memcpy(b->data + SDT_MEAS, "12:34:56", 8);
    memcpy(b->data + SDT_MEAS + 9, "2026-01-02", 10);
    for (int block = 0; block < 2; block++) {
        uint8_t plain[SDT_VALUES * 8];
        for (int i = 0; i < SDT_VALUES; i++) {
            const uint64_t value = (uint64_t)(7 * i + block);
            const double real = (double)value;
            if (element == 8) {
                memcpy(plain + i * 8, &real, 8);
            } else {
                for (int k = 0; k < element; k++) {
                    plain[i * element + k] = (uint8_t)(value >> 8 * k);
                }
            }
        }
        const size_t header = b->n, size = (size_t)(SDT_VALUES * element);
        b->n += 22;
        set(b, header + 2, b->n, 4);
        set(b, header + 10, (uint64_t)(0x60 | type_of[element]) | packing_bit[how], 2);
        set(b, header + 18, size, 4);
        if (how == LZ4_FRAME) {
            made = put_lz4(b, plain, size) && made;
        } else if (how == ZIPPED) {
            uint8_t packed[4096];
            z_stream stream = {.next_in = plain, .avail_in = (uInt)size, .next_out = packed, .avail_out = sizeof packed};
            assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
            assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
            deflateEnd(&stream);
            put(b, 0x04034b50, 4);
            put(b, 20, 2);
            put(b, 0, 2);
            put(b, 8, 2);
            put(b, 0, 4);
            put(b, crc32(crc32(0, NULL, 0), plain, (uInt)size), 4);
            put(b, stream.total_out, 4);
            put(b, size, 4);
            put(b, 5, 2);
            put(b, 0, 2);
            put_text(b, "block", 5);
            memcpy(b->data + b->n, packed, stream.total_out);
            b->n += stream.total_out;
        } else {
            memcpy(b->data + b->n, plain, size);
            b->n += size;
        }
        set(b, header + 6, b->n, 4);
    }
    uint32_t sum = 0;
    for (size_t i = 0; i < 40; i += 2) {
        sum += (uint32_t)(b->data[i] | b->data[i + 1] << 8);
    }
    set(b, 40, 0x55aa - sum, 2);
    return made;
}

static void sdt_of_every_element_and_revision(void **state)
{
    (void)state;
    bytes *b = malloc(sizeof *b);
    assert_non_null(b);
    for (int revision = 14; revision <= 15; revision++) {
        for (int element = 2; element <= 8; element *= 2) {
            for (packing how = STORED; how < N_PACKINGS; how++) {
                const bool made = make_sdt(b, revision, element, how);
                write_bytes(b, b->n);
                if (!made) {
                    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_USAGE, "liblz4-dev");
                    continue;
                }
                flim_field_file *file = open_file(path, FLIM_ARRAY_AUTO);
                assert_int_equal(file->n_images, 2);
                assert_string_equal(file->date, "2026-01-02 12:34:56");
                for (int block = 0; block < 2; block++) {
                    uint64_t photons;
                    assert_true(file->image[block].y == SDT_Y && file->image[block].x == SDT_X);
                    assert_true(fabs(file->image[block].range_ns - 12.5) < 1e-5);
                    uint32_t *counts = read_block(file, block, &photons);
                    for (int i = 0; i < SDT_VALUES; i++) {
                        assert_int_equal(counts[i], 7 * i + block);
                    }
                    assert_int_equal(photons, 7 * SDT_VALUES * (SDT_VALUES - 1) / 2 + block * SDT_VALUES);
                    free(counts);
                }
                flim_field_close(file);
                cut_everywhere(b, b->n);
            }
        }
    }
    free(b);
}

static void sdt_that_is_damaged_is_named(void **state)
{
    (void)state;
    bytes *b = malloc(sizeof *b);
    assert_non_null(b);
    const size_t first = SDT_MEAS + SDT_MEAS_BYTES;
    make_sdt(b, 15, 2, ZIPPED);
    b->data[first + 22 + 35 + 20] ^= 0x10; /* within the deflated data */
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "block 1, at offset");
    make_sdt(b, 15, 2, STORED);
    set(b, first + 18, 31, 4); /* bytes that are no whole decays */
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "not a whole number of decays of 8 bins");
    make_sdt(b, 15, 2, STORED);
    set(b, first + 6, 10, 4); /* the chain goes back */
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "expected a later place");
    make_sdt(b, 15, 2, STORED);
    set(b, first + 10, 0x5060, 2);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "by zip and by LZ4");
    if (make_sdt(b, 15, 2, LZ4_FRAME)) {
        b->data[first + 22] ^= 1; /* the frame's first byte */
        expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "block 1, at offset");
        make_sdt(b, 15, 2, LZ4_FRAME);
        set(b, first + 18, 2 * SDT_T * SDT_X * (SDT_Y + 1), 4); /* more than the frame holds */
        expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "of the 128 bytes expected");
        set(b, first + 18, 2 * SDT_T * SDT_X * (SDT_Y - 1), 4);
        expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "has more than the 64 bytes expected");
    }
    make_sdt(b, 15, 2, STORED);
    set(b, first + 12, 3, 2);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "measurement 3");
    free(b);
}

/* ---- .ptu ---- */

enum { PTU_T = 6, PTU_Y = 2, PTU_X = 4 };

static void put_tag(bytes *b, const char *name, uint32_t type, uint64_t value)
{
    put_text(b, name, 32);
    put(b, UINT32_MAX, 4);
    put(b, type, 4);
    put(b, value, 8);
}

static void put_real(bytes *b, const char *name, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    put_tag(b, name, 0x20000008u, bits);
}

/* The header; 5.5 bins in a laser period, which are 6.  records: offset of their count. */
static void begin_ptu(bytes *b, uint32_t type, bool bidirectional, int frame, size_t *records)
{
    *b = (bytes){0};
    put_text(b, "PQTTTR", 8);
    put_text(b, "1.0.00", 8);
    put_tag(b, "HW_Type", 0x4001FFFFu, 16);
    put_text(b, "PicoHarp", 16);
    put_tag(b, "TTResultFormat_TTTRRecType", 0x10000008u, type);
    put_tag(b, "ImgHdr_Dimensions", 0x10000008u, 3);
    put_tag(b, "ImgHdr_PixX", 0x10000008u, PTU_X);
    put_tag(b, "ImgHdr_PixY", 0x10000008u, PTU_Y);
    put_tag(b, "ImgHdr_LineStart", 0x10000008u, 1);
    put_tag(b, "ImgHdr_LineStop", 0x10000008u, 2);
    put_tag(b, "ImgHdr_Frame", 0x10000008u, (uint64_t)frame);
    put_tag(b, "ImgHdr_BiDirect", 0x00000008u, bidirectional);
    put_real(b, "MeasDesc_Resolution", 4e-12);
    put_real(b, "MeasDesc_GlobalResolution", 22e-12);
    put_tag(b, "TTResult_NumberOfRecords", 0x10000008u, 0);
    *records = b->n - 8;
    put_tag(b, "Header_End", 0xFFFF0008u, 0);
}

typedef struct ptu_writer {
    bytes *b;
    uint32_t type;
    uint64_t base; /* sync pulses that overflow records have counted */
} ptu_writer;

static void put_record(ptu_writer *w, bool marker, uint32_t what, uint32_t dtime, uint64_t sync)
{
    const bool pico = w->type == 0x00010303;
    const uint64_t period = pico ? 65536 : 1024;
    while (sync - w->base >= period) {
        uint64_t times = (sync - w->base) / period;
        times = w->type == 0x00010304 || pico ? 1 : times > 1023 ? 1023 : times;
        put(w->b, pico ? 0xf0000000u : 0xfe000000u | (w->type == 0x00010304 ? 0 : (uint32_t)times), 4);
        w->base += times * period;
    }
    const uint32_t low = (uint32_t)(sync - w->base);
    if (pico) {
        put(w->b, (marker ? 0xf0000000u | what << 16 : what << 28 | dtime << 16) | low, 4);
    } else {
        put(w->b, (marker ? 0x80000000u : 0) | what << 25 | (marker ? 0 : dtime << 10) | low, 4);
    }
}

/* Two frames of lines of 4000 pulses, 5000 apart; pixel (y,x) has x + 1 photons in bin y + x per frame, and one more photon is
 * between the lines. */
static void make_ptu(bytes *b, uint32_t type, bool bidirectional, bool frame_marker)
{
    size_t records;
    begin_ptu(b, type, bidirectional, frame_marker ? 3 : 0, &records);
    const size_t data = b->n;
    ptu_writer w = {b, type, 0};
    uint64_t at = 100;
    for (int frame = 0; frame < 2; frame++) {
        if (frame_marker) {
            put_record(&w, true, 4, 0, at - 50);
        }
        for (int y = 0; y < PTU_Y; y++) {
            put_record(&w, true, 1, 0, at);
            for (int i = 0; i < PTU_X; i++) {
                const int x = bidirectional && y % 2 ? PTU_X - 1 - i : i;
                for (int k = 0; k <= x; k++) {
                    put_record(&w, false, 1, (uint32_t)(y + x), at + (uint64_t)(1000 * i + 300 * k));
                }
            }
            put_record(&w, true, 2, 0, at + 4000);
            put_record(&w, false, 1, 0, at + 4500);
            at += 5000 + (frame ? 200000u : 0u); /* overflows by many periods, too */
        }
    }
    set(b, records, (b->n - data) / 4, 8);
}

static void ptu_of_every_record_and_scan(void **state)
{
    (void)state;
    static const uint32_t type[] = {0x00010303, 0x00010304, 0x01010304, 0x00010305, 0x00010306, 0x00010307};
    bytes *b = malloc(sizeof *b);
    assert_non_null(b);
    for (size_t k = 0; k < sizeof type / sizeof type[0]; k++) {
        for (int variant = 0; variant < 4; variant++) {
            make_ptu(b, type[k], variant & 1, variant & 2);
            write_bytes(b, b->n);
            flim_field_file *file = open_file(path, FLIM_ARRAY_AUTO);
            uint64_t photons;
            assert_int_equal(file->n_images, 1);
            assert_string_equal(file->image[0].name, "detector 1");
            assert_string_equal(file->instrument, "PicoQuant PicoHarp");
            assert_int_equal(file->image[0].t, PTU_T);
            assert_true(fabs(file->image[0].range_ns - 0.024) < 1e-12);
            uint32_t *counts = read_block(file, 0, &photons);
            for (int i = 0; i < PTU_Y * PTU_X * PTU_T; i++) {
                const int t = i % PTU_T, x = i / PTU_T % PTU_X, y = i / PTU_T / PTU_X;
                const uint32_t want = t == y + x ? 2 * (uint32_t)(x + 1) : 0;
                if (counts[i] != want) {
                    fail_msg("records 0x%08x, variant %d: (y,x,t) = (%d,%d,%d) has %u photons, expected %u", type[k], variant,
                             y, x, t, counts[i], want);
                }
            }
            assert_int_equal(photons, 2 * PTU_Y * (1 + 2 + 3 + 4));
            assert_int_equal(file->unplaced, 2 * PTU_Y);
            free(counts);
            flim_field_close(file);
        }
    }
    cut_everywhere(b, b->n);
    free(b);
}

/* A record of a scan and its time in sync pulses: 's' start, 'e' stop, 'f' frame, 'p' a photon of channel 1 in bin 1. */
typedef struct scan_event {
    char what;
    uint64_t time;
} scan_event;

static size_t make_scan(bytes *b, uint32_t type, const scan_event *event)
{
    size_t records;
    begin_ptu(b, type, false, 3, &records);
    const size_t data = b->n;
    ptu_writer w = {b, type, 0};
    for (size_t i = 0; event[i].what; i++) {
        const uint32_t marker = event[i].what == 's' ? 1 : event[i].what == 'e' ? 2 : 4;
        put_record(&w, event[i].what != 'p', event[i].what == 'p' ? 1 : marker, 1, event[i].time);
    }
    return data;
}

/* Two lines of 80 pulses, a photon in each of their first pixels; and a place for what is wrong. */
#define LINES(...)                                                                                                           \
    {                                                                                                                        \
        {'f', 10}, {'s', 20}, {'p', 25}, {'e', 100}, __VA_ARGS__, {'s', 320}, {'p', 325},                                    \
        {                                                                                                                    \
            'e', 400                                                                                                         \
        }                                                                                                                    \
    }

static void ptu_markers_out_of_order_are_refused(void **state)
{
    (void)state;
    static const struct {
        scan_event event[16];
        int record; /* that is named */
        const char *words;
    } scans[] = {
        {LINES({'e', 110}), 4, "the stop of a line that has not started"},
        {LINES({'s', 120}, {'f', 160}, {'e', 200}), 5, "the marker of a frame within a line"},
        {LINES({'s', 120}, {'p', 125}, {'f', 199}, {'p', 199}, {'p', 200}, {'e', 216}), 6,
         "the marker of a frame within a line"}, /* its stop is too far behind it */
        {LINES({'s', 90}, {'e', 200}), 4, "a marker that is earlier than the one before"},
        {LINES({'s', 120}, {'e', 110}), 5, "a marker that is earlier than the one before"},
        {LINES({'f', 99}), 4, "a marker that is earlier than the one before"},
    };
    bytes *b = malloc(sizeof *b);
    assert_non_null(b);
    for (size_t i = 0; i < sizeof scans / sizeof scans[0]; i++) {
        for (int k = 0; k < 2; k++) { /* PicoHarp, TimeHarp: no overflow is within 400 pulses */
            char place[64];
            const size_t data = make_scan(b, k ? 0x00010305 : 0x00010303, scans[i].event);
            snprintf(place, sizeof place, "record %d at offset %zu: ", scans[i].record, data + 4 * (size_t)scans[i].record);
            expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, scans[i].words);
            expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, place);
        }
    }
    free(b);
}

/* What the files of good instruments show: each is read, and every photon is counted. */
static void ptu_of_real_scans(void **state)
{
    (void)state;
    static const struct {
        scan_event event[16];
        uint64_t first, second, unplaced; /* photons of the lines' first pixels, and in none */
    } scans[] = {
        {LINES({'p', 110}), 1, 1, 1}, /* on the way back */
        {{{'s', 20}, {'p', 25}, {'e', 100}, {'s', 120}, {'p', 125}, {'e', 200}}, 1, 1, 0}, /* no marker of the first frame */
        {{{'p', 5}, {'e', 8}, {'f', 10}, {'s', 20}, {'p', 25}, {'e', 100}}, 1, 0, 1}, /* begun within a line */
        {{{'f', 10}, {'s', 20}, {'p', 25}, {'e', 100}, {'s', 120}, {'p', 125}}, 1, 0, 1}, /* ended within one */
        {{{'f', 10}, {'s', 20}, {'p', 25}, {'s', 60}, {'p', 65}, {'e', 140}}, 0, 1, 1}, /* a stop is missing */
        {{{'s', 20}, {'f', 22}, {'p', 25}, {'e', 100}, {'s', 220}, {'f', 236}, {'p', 237}, {'e', 300}}, 2, 0, 0},
        {{{'f', 10}, {'s', 20}, {'p', 25}, {'f', 97}, {'e', 100}, {'s', 220}, {'p', 237}, {'e', 300}}, 2, 0, 0},
        {LINES({'s', 120}, {'p', 125}, {'e', 200}), 1, 1, 1}, /* a line more than the picture has */
        {LINES({'p', 99}), 1, 1, 1}, /* a photon is noted late */
    };
    bytes *b = malloc(sizeof *b);
    assert_non_null(b);
    for (size_t i = 0; i < sizeof scans / sizeof scans[0]; i++) {
        for (int k = 0; k < 2; k++) {
            uint64_t photons;
            make_scan(b, k ? 0x00010305 : 0x00010303, scans[i].event);
            write_bytes(b, b->n);
            flim_field_file *file = open_file(path, FLIM_ARRAY_AUTO);
            uint32_t *counts = read_block(file, 0, &photons);
            const uint32_t first = counts[1], second = counts[PTU_X * PTU_T + 1];
            if (first != scans[i].first || second != scans[i].second || photons != first + second ||
                file->unplaced != scans[i].unplaced) {
                fail_msg("scan %zu of kind %d: %u and %u photons, %llu in all and %llu in no pixel", i, k, first, second,
                         (unsigned long long)photons, (unsigned long long)file->unplaced);
            }
            free(counts);
            flim_field_close(file);
        }
    }
    free(b);
}

static void ptu_that_cannot_be_a_picture_is_named(void **state)
{
    (void)state;
    bytes *b = malloc(sizeof *b);
    size_t records;
    assert_non_null(b);
    begin_ptu(b, 0x00010203, false, 3, &records);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "mode T2");
    begin_ptu(b, 0x00990303, false, 3, &records);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "not known");
    begin_ptu(b, 0x00010303, false, 9, &records);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "ImgHdr_Frame");
    begin_ptu(b, 0x00010303, false, 3, &records);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "without data"); /* no photon at all */
    begin_ptu(b, 0x00010303, false, 3, &records);
    set(b, records, 1000, 8);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "counts 1000 records");
    /* Markers in a wrong order: a stop without a start, a start without a stop, photons before any line. */
    begin_ptu(b, 0x00010303, false, 3, &records);
    ptu_writer w = {b, 0x00010303, 0};
    put_record(&w, false, 1, 0, 10);
    put_record(&w, true, 2, 0, 20);
    put_record(&w, true, 1, 0, 30);
    put_record(&w, false, 1, 0, 40);
    put_record(&w, true, 1, 0, 50);
    put_record(&w, false, 1, 0, 45); /* goes back in time */
    put_record(&w, false, 1, 2, 60);
    put_record(&w, true, 2, 0, 150);
    put_record(&w, false, 1, 0, 160);
    write_bytes(b, b->n);
    flim_field_file *file = open_file(path, FLIM_ARRAY_AUTO);
    uint64_t photons;
    free(read_block(file, 0, &photons));
    assert_int_equal(photons, 1);
    assert_int_equal(file->unplaced, 4);
    flim_field_close(file);
    free(b);
}

/* ---- .npy and .npz ---- */

/* Value at (n,y,x,t) of the arrays below: fits every type but bool. */
static int value_at(int n, int y, int x, int t)
{
    return (n + 3 * y + 5 * x + 7 * t) % 101;
}

enum { NPY_N = 2, NPY_Y = 3, NPY_X = 2, NPY_T = 5 };

static void put_element(bytes *b, char kind, int size, bool big, int value)
{
    uint8_t raw[8] = {0};
    const double real = value;
    const float small = (float)value;
    if (kind == 'f' && size == 8) {
        memcpy(raw, &real, 8);
    } else if (kind == 'f' && size == 2) {
        const uint16_t half = half_of((uint32_t)value);
        memcpy(raw, &half, 2);
    } else if (kind == 'f') {
        memcpy(raw, &small, 4);
    } else {
        raw[0] = (uint8_t)value;
    }
    for (int i = 0; i < size; i++) {
        put(b, raw[big ? size - 1 - i : i], 1);
    }
}

/* stack: (N,...); tyx: the time first. */
static void make_npy(bytes *b, int version, char kind, int size, bool big, bool fortran, bool stack, bool tyx)
{
    char header[256];
    int shape[4] = {NPY_N, tyx ? NPY_T : NPY_Y, tyx ? NPY_Y : NPY_X, tyx ? NPY_X : NPY_T};
    *b = (bytes){0};
    const int length =
        snprintf(header, sizeof header, "{'descr': '%c%c%d', 'fortran_order': %s, 'shape': (%d, %d, %d, %d), }",
                 size == 1 ? '|'
                 : big     ? '>'
                           : '<',
                 kind, size, fortran ? "True" : "False", stack ? NPY_N : 1, shape[1], shape[2], shape[3]);
    put(b, 0x93, 1);
    put_text(b, "NUMPY", 5);
    put(b, (uint64_t)version, 2);
    put(b, (uint64_t)length, version == 1 ? 2 : 4);
    put_text(b, header, (size_t)length);
    shape[0] = stack ? NPY_N : 1;
    const int total = shape[0] * shape[1] * shape[2] * shape[3];
    for (int i = 0; i < total; i++) {
        int at[4], rest = i;
        for (int k = 0; k < 4; k++) {
            const int axis = fortran ? k : 3 - k;
            at[axis] = rest % shape[axis];
            rest /= shape[axis];
        }
        put_element(b, kind, size, big, tyx ? value_at(at[0], at[2], at[3], at[1]) : value_at(at[0], at[1], at[2], at[3]));
    }
}

static void check_array(flim_field_file *file, int first, int blocks)
{
    for (int n = 0; n < blocks; n++) {
        uint64_t photons, sum = 0;
        const flim_field_image *block = &file->image[first + n];
        assert_true(block->y == NPY_Y && block->x == NPY_X && block->t == NPY_T);
        uint32_t *counts = read_block(file, first + n, &photons);
        for (int i = 0; i < NPY_Y * NPY_X * NPY_T; i++) {
            const int t = i % NPY_T, x = i / NPY_T % NPY_X, y = i / NPY_T / NPY_X;
            assert_int_equal(counts[i], value_at(n, y, x, t));
            sum += counts[i];
        }
        assert_int_equal(photons, sum);
        free(counts);
    }
}

static void npy_of_every_type_and_order(void **state)
{
    (void)state;
    static const struct {
        char kind;
        int size;
    } type[] = {{'u', 1}, {'u', 2}, {'u', 4}, {'u', 8}, {'i', 1}, {'i', 2}, {'i', 4}, {'i', 8}, {'f', 2}, {'f', 4}, {'f', 8}};
    bytes *b = malloc(sizeof *b);
    assert_non_null(b);
    for (size_t k = 0; k < sizeof type / sizeof type[0]; k++) {
        for (int variant = 0; variant < 16; variant++) {
            const bool big = variant & 1, fortran = variant & 2, stack = variant & 4, tyx = variant & 8;
            make_npy(b, variant % 3 + 1, type[k].kind, type[k].size, big, fortran, stack, tyx);
            write_bytes(b, b->n);
            flim_field_file *file = open_file(path, tyx ? FLIM_ARRAY_TYX : FLIM_ARRAY_AUTO);
            assert_int_equal(file->n_images, stack ? NPY_N : 1);
            check_array(file, 0, file->n_images);
            flim_field_close(file);
        }
    }
    cut_everywhere(b, b->n);
    free(b);
}

/* An archive of stored or deflated entries with the list at its end. */
static void make_npz(bytes *b, const bytes *array, bool deflated, const char *const *name, int n)
{
    size_t local[4], packed_bytes[4], list;
    const uint32_t crc = (uint32_t)crc32(crc32(0, NULL, 0), array->data, (uInt)array->n);
    *b = (bytes){0};
    for (int i = 0; i < n; i++) {
        static uint8_t packed[1 << 15];
        z_stream stream = {
            .next_in = (Bytef *)array->data, .avail_in = (uInt)array->n, .next_out = packed, .avail_out = sizeof packed};
        assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
        assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
        deflateEnd(&stream);
        packed_bytes[i] = deflated ? stream.total_out : array->n;
        local[i] = b->n;
        put(b, 0x04034b50, 4);
        put(b, 20, 2);
        put(b, 0, 2);
        put(b, deflated ? 8 : 0, 2);
        put(b, 0, 4);
        put(b, crc, 4);
        put(b, packed_bytes[i], 4);
        put(b, array->n, 4);
        put(b, strlen(name[i]), 2);
        put(b, 0, 2);
        put_text(b, name[i], strlen(name[i]));
        memcpy(b->data + b->n, deflated ? packed : array->data, packed_bytes[i]);
        b->n += packed_bytes[i];
    }
    list = b->n;
    for (int i = 0; i < n; i++) {
        put(b, 0x02014b50, 4);
        put(b, 20, 2);
        put(b, 20, 2);
        put(b, 0, 2);
        put(b, deflated ? 8 : 0, 2);
        put(b, 0, 4);
        put(b, crc, 4);
        put(b, packed_bytes[i], 4);
        put(b, array->n, 4);
        put(b, strlen(name[i]), 2);
        put(b, 0, 16 - 4); /* extra, comment, disk, attributes */
        put(b, local[i], 4);
        put_text(b, name[i], strlen(name[i]));
    }
    const size_t list_bytes = b->n - list;
    put(b, 0x06054b50, 4);
    put(b, 0, 4);
    put(b, (uint64_t)n, 2);
    put(b, (uint64_t)n, 2);
    put(b, list_bytes, 4);
    put(b, list, 4);
    put(b, 0, 2);
}

static void npz_stored_and_deflated(void **state)
{
    (void)state;
    static const char *const name[] = {"one.npy", "two.npy"}, *const other[] = {"readme.txt"};
    bytes *array = malloc(sizeof *array), *b = malloc(sizeof *b);
    assert_true(array && b);
    for (int deflated = 0; deflated < 2; deflated++) {
        make_npy(array, 1, 'u', 2, false, false, true, false);
        make_npz(b, array, deflated, name, 2);
        write_bytes(b, b->n);
        flim_field_file *file = open_file(path, FLIM_ARRAY_AUTO);
        assert_int_equal(file->n_images, 2 * NPY_N);
        assert_string_equal(file->image[0].name, "one 0");
        assert_string_equal(file->image[3].name, "two 1");
        check_array(file, 0, NPY_N);
        check_array(file, NPY_N, NPY_N);
        flim_field_close(file);
        cut_everywhere(b, b->n);
        b->data[30 + 7 + (deflated ? 100 : 150)] ^= 1; /* among the elements */
        expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "damaged");
    }
    make_npz(b, array, true, other, 1);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "readme.txt");
    /* Sizes that such packed bytes cannot have cost no memory. */
    for (int deflated = 0; deflated < 2; deflated++) {
        for (int i = 0; i < 3; i++) {
            static const uint64_t claims[] = {0x40000000, 0xf0000000, 0xfffffffe};
            make_npz(b, array, deflated, name, 1);
            size_t central = b->n - 22;
            while (memcmp(b->data + central, "PK\1\2", 4) != 0) {
                central--;
            }
            set(b, central + 24, claims[i], 4);
            expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "damaged: it claims");
        }
    }
    free(array);
    free(b);
}

/* A .npy with this header and 45 bytes of elements. */
static void make_npy_of_45(bytes *b, const char *header)
{
    *b = (bytes){0};
    put(b, 0x93, 1);
    put_text(b, "NUMPY", 5);
    put(b, 1, 2);
    put(b, strlen(header), 2);
    put_text(b, header, strlen(header));
    put_text(b, "", 45);
}

static void arrays_that_are_no_counts_are_named(void **state)
{
    (void)state;
    bytes *b = malloc(sizeof *b);
    assert_non_null(b);
    make_npy(b, 1, 'O', 8, false, false, false, false);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "Python objects");
    make_npy(b, 1, 'c', 8, false, false, false, false);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "elements of type 'c8', expected integers");
    static const char *const types[] = {"f16", "f1", "V2", "c16", "U4", "S10", "M8[ns]", "", "i3", "b8"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char header[128], words[64];
        snprintf(header, sizeof header, "{'descr': '<%s', 'fortran_order': False, 'shape': (3, 3, 5), }", types[i]);
        snprintf(words, sizeof words, "elements of type '%s', expected integers", types[i]);
        make_npy_of_45(b, header);
        expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, words);
    }
    static const uint16_t no_counts[] = {0x3800, 0xbc00, 0x7c00, 0x7e00, 1}; /* 0.5, -1, infinity, none, the least */
    for (size_t i = 0; i < sizeof no_counts / sizeof no_counts[0]; i++) {
        make_npy(b, 1, 'f', 2, false, false, false, false);
        set(b, b->n - 2, no_counts[i], 2);
        expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "y 2, x 1, t 4");
    }
    make_npy(b, 1, 'f', 8, false, false, false, false);
    const double half = 0.5, minus = -1, none = NAN;
    const double *const wrong[] = {&half, &minus, &none};
    for (int i = 0; i < 3; i++) {
        memcpy(b->data + b->n - 8, wrong[i], 8);
        expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "y 2, x 1, t 4");
    }
    make_npy(b, 1, 'i', 2, false, false, false, false);
    set(b, b->n - 2, 0xffff, 2);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "not a photon count");
    make_npy(b, 1, 'u', 8, false, false, false, false);
    set(b, b->n - 8, UINT64_C(1) << 32, 8);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "not a photon count");
    /* A header that claims a thousand million images is no list of as many. */
    make_npy_of_45(b, "{'descr': '<u4', 'fortran_order': False, 'shape': (999999959, 9, 3, 8), }");
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "its elements end after 45 of");
    /* (3,5,3): which axis is the time? */
    make_npy_of_45(b, "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 5, 3), }");
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_USAGE, "--axes YXT");
    *b = (bytes){0};
    put_text(b, "no format at all, but text that is long enough to be looked at", 60);
    expect_error(b, FLIM_ARRAY_AUTO, FLIM_ERROR_DATA, "its first bytes");
    free(b);
}

/* Which axes are taken for the time without --axes, and with a mask: the longer of the first and the last, unless only the other
 * leaves a square plane. */
static void time_axes_in_doubt_are_refused(void **state)
{
    (void)state;
    enum { REFUSED = 0 };
    static const struct {
        const char *shape;
        int64_t y, x, t; /* as read; t REFUSED */
        int64_t mask_y, mask_x;
    } arrays[] = {{"(3, 3, 5)", 3, 3, 5, 0, 0},
                  {"(5, 3, 3)", 3, 3, 5, 0, 0},
                  {"(1, 5, 3, 3)", 3, 3, 5, 0, 0},
                  {"(5, 4, 2)", 4, 2, 5, 0, 0}, /* neither is square */
                  {"(2, 4, 5)", 2, 4, 5, 0, 0},
                  {"(5, 4, 2)", 4, 2, 5, 5, 4}, /* a mask that does not fit is no reason to read otherwise */
                  {"(4, 4, 2)", 0, 0, REFUSED, 0, 0},
                  {"(2, 4, 4)", 0, 0, REFUSED, 0, 0},
                  {"(1, 4, 4, 2)", 0, 0, REFUSED, 0, 0},
                  {"(2, 3, 3, 2)", 0, 0, REFUSED, 0, 0}, /* two images */
                  {"(2, 2, 3, 3)", 0, 0, REFUSED, 0, 0},
                  {"(3, 5, 3)", 0, 0, REFUSED, 0, 0}, /* a tie */
                  {"(3, 3, 3)", 0, 0, REFUSED, 3, 3},
                  {"(4, 4, 2)", 4, 4, 2, 4, 4},
                  {"(4, 4, 2)", 4, 2, 4, 4, 2},
                  {"(2, 4, 4)", 2, 4, 4, 2, 4},
                  {"(2, 4, 4)", 4, 4, 2, 4, 4},
                  {"(3, 5, 3)", 5, 3, 3, 5, 3},
                  {"(4, 4, 2)", 0, 0, REFUSED, 2, 4}};
    bytes *b = malloc(sizeof *b);
    assert_non_null(b);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        char header[128];
        flim_field_file *file;
        flim_error err = {0};
        snprintf(header, sizeof header, "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }", arrays[i].shape);
        make_npy_of_45(b, header);
        write_bytes(b, b->n);
        const flim_field_options options = {.mask_y = arrays[i].mask_y, .mask_x = arrays[i].mask_x};
        const flim_status status = flim_field_open(path, &options, &file, &err);
        if (status != (arrays[i].t ? FLIM_OK : FLIM_ERROR_USAGE)) {
            fail_msg("%zu, %s: status %d, '%s'", i, arrays[i].shape, status, err.text);
        }
        const flim_field_image *image = status == FLIM_OK ? file->image : NULL;
        if (image && (image->y != arrays[i].y || image->x != arrays[i].x || image->t != arrays[i].t)) {
            fail_msg("%zu, %s: %d bins of %d x %d", i, arrays[i].shape, (int)image->t, (int)image->y, (int)image->x);
        }
        flim_field_close(file);
        for (flim_array_axes axes = FLIM_ARRAY_YXT; axes <= FLIM_ARRAY_TYX; axes++) { /* what is asked for is not doubted */
            assert_int_equal(try_file(axes, &err), FLIM_OK);
        }
    }
    make_npy_of_45(b, "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 4, 2), }");
    expect_error(
        b, FLIM_ARRAY_AUTO, FLIM_ERROR_USAGE,
        "(4,4,2) may be 2 time bins of 4 x 4 pixels, which is --axes YXT, or 4 time bins of 4 x 2 pixels, --axes TYX");
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(public_files_read_as_their_readers_read_them),
        cmocka_unit_test(sdt_of_every_element_and_revision),
        cmocka_unit_test(sdt_that_is_damaged_is_named),
        cmocka_unit_test(ptu_of_every_record_and_scan),
        cmocka_unit_test(ptu_markers_out_of_order_are_refused),
        cmocka_unit_test(ptu_of_real_scans),
        cmocka_unit_test(ptu_that_cannot_be_a_picture_is_named),
        cmocka_unit_test(npy_of_every_type_and_order),
        cmocka_unit_test(npz_stored_and_deflated),
        cmocka_unit_test(time_axes_in_doubt_are_refused),
        cmocka_unit_test(arrays_that_are_no_counts_are_named),
    };
    if (access("/dev/shm", W_OK) != 0) {
        strcpy(folder, "/tmp/flim_fields_XXXXXX");
    }
    if (!mkdtemp(folder)) {
        return 1;
    }
    snprintf(path, sizeof path, "%s/file", folder);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}

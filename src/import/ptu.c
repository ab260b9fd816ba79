/* PicoQuant .ptu: tags, then records of single photons and markers (time-tagged, mode T3), sorted into pixels here.
 *
 * Layouts of the records: PicoQuant's own description (PicoQuant-Time-Tagged-File-Format-Demos) and ptufile
 * (github.com/cgohlke/ptufile, BSD-3).  A pixel's photons are those whose place in the line, counted in sync pulses from the
 * start marker of the line to its stop marker, falls into it: x = floor((sync - start) * X / (stop - start)); frames are
 * summed.  T is the number of time bins of a laser period, rounded up: the last one may be cut short. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/little_endian.h"
#include "core/try.h"
#include "import/field_file.h"

enum { HEADER = 16, TAG = 48, DETECTORS = 64, MOST_PIXELS = 32768 };

/* Types of tags: what the eight bytes of a value are.  The last three are followed by as many bytes as the value says. */
#define TAG_INT 0x10000008u
#define TAG_FLOAT 0x20000008u
#define TAG_FLOAT_ARRAY 0x2001FFFFu
#define TAG_ANSI 0x4001FFFFu
#define TAG_WIDE 0x4002FFFFu
#define TAG_BLOB 0xFFFFFFFFu

/* How a kind of record is packed: from the top, special (if any) + channel, dtime, sync. */
typedef enum record_kind {
    RECORD_PICOHARP, /* channel 4, dtime 12, sync 16; channel 15 is special */
    RECORD_HYDRAHARP_1, /* special 1, channel 6, dtime 15, sync 10; an overflow counts once */
    RECORD_HYDRAHARP_2 /* the same; an overflow counts as often as its sync says */
} record_kind;

typedef struct ptu_tags {
    int64_t records, record_type, dimensions, pixels_x, pixels_y, bidirectional;
    int64_t line_start, line_stop, frame; /* numbers of markers, from 1; 0 = there is none */
    int64_t sync_rate; /* per second */
    double resolution, global_resolution; /* seconds: of a time bin, of a sync period */
    uint64_t data; /* offset of the first record */
    record_kind kind;
} ptu_tags;

static bool is_ptu(const flim_mapped_file *f)
{
    return f->size >= HEADER && memcmp(f->data, "PQTTTR", 6) == 0;
}

/* ---- tags ---- */

static void take_integer(ptu_tags *tags, const char *name, int64_t value)
{
    const struct {
        const char *name;
        int64_t *field;
    } known[] = {{"TTResult_NumberOfRecords", &tags->records},
                 {"TTResultFormat_TTTRRecType", &tags->record_type},
                 {"TTResult_SyncRate", &tags->sync_rate},
                 {"ImgHdr_Dimensions", &tags->dimensions},
                 {"ImgHdr_PixX", &tags->pixels_x},
                 {"ImgHdr_PixY", &tags->pixels_y},
                 {"ImgHdr_BiDirect", &tags->bidirectional},
                 {"ImgHdr_LineStart", &tags->line_start},
                 {"ImgHdr_LineStop", &tags->line_stop},
                 {"ImgHdr_Frame", &tags->frame}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *known[i].field = value;
        }
    }
}

static void take_text(flim_field_file *file, const char *name, const uint8_t *text, size_t bytes)
{
    char *out = strcmp(name, "HW_Type") == 0                                  ? file->instrument
                : strcmp(name, "CreatorSW_Name") == 0 && !file->instrument[0] ? file->instrument
                                                                              : NULL;
    if (out) {
        snprintf(out, sizeof file->instrument, "PicoQuant %.*s", (int)(bytes < 64 ? bytes : 64), (const char *)text);
    }
}

static flim_status read_tags(flim_field_file *file, ptu_tags *tags, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    *tags = (ptu_tags){0};
    for (uint64_t at = HEADER;; at += TAG) {
        char name[33] = "";
        FLIM_TRY(flim_mapped_check(f, at, TAG, "a tag", err));
        const uint8_t *tag = f->data + at;
        const uint32_t type = flim_u32_at(tag + 36);
        const uint64_t value = flim_u64_at(tag + 40);
        memcpy(name, tag, 32);
        if (strcmp(name, "Header_End") == 0) {
            tags->data = at + TAG;
            return FLIM_OK;
        }
        if (type == TAG_FLOAT) {
            const double number = flim_f64_at(tag + 40);
            tags->resolution = strcmp(name, "MeasDesc_Resolution") == 0 ? number : tags->resolution;
            tags->global_resolution = strcmp(name, "MeasDesc_GlobalResolution") == 0 ? number : tags->global_resolution;
        } else if (type == TAG_FLOAT_ARRAY || type == TAG_ANSI || type == TAG_WIDE || type == TAG_BLOB) {
            FLIM_TRY(flim_mapped_check(f, at + TAG, value, name, err));
            if (type == TAG_ANSI) {
                take_text(file, name, tag + TAG, value);
            }
            at += value;
        } else {
            take_integer(tags, name, (int64_t)value);
        }
    }
}

/* The kinds of records that have decays; the others are named. */
static flim_status check_records(const flim_mapped_file *f, ptu_tags *tags, flim_error *err)
{
    static const struct {
        int64_t type;
        record_kind kind;
    } t3[] = {{0x00010303, RECORD_PICOHARP},    {0x00010304, RECORD_HYDRAHARP_1}, {0x01010304, RECORD_HYDRAHARP_2},
              {0x00010305, RECORD_HYDRAHARP_2}, {0x00010306, RECORD_HYDRAHARP_2}, {0x00010307, RECORD_HYDRAHARP_2}};
    for (size_t i = 0; i < sizeof t3 / sizeof t3[0]; i++) {
        if (t3[i].type == tags->record_type) {
            tags->kind = t3[i].kind;
            return FLIM_OK;
        }
    }
    if ((tags->record_type & 0xff00) == 0x0200) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: records of mode T2 (type 0x%08" PRIx64 "), which have arrival times but no decays; measure in "
                         "mode T3",
                         f->path, tags->record_type);
    }
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: records of type 0x%08" PRIx64
                     ", which is not known; expected mode T3 of PicoHarp, HydraHarp, TimeHarp "
                     "or MultiHarp",
                     f->path, tags->record_type);
}

/* ---- records ---- */

/* The functions below are compiled once per kind: where they are called, it is a constant. */
#define PER_KIND static inline __attribute__((always_inline))
#define CALL_WITH_KIND(RESULT, FUNCTION, KIND, ...)                                                                          \
    switch (KIND) {                                                                                                          \
    case RECORD_PICOHARP: RESULT FUNCTION(RECORD_PICOHARP, __VA_ARGS__); break;                                              \
    case RECORD_HYDRAHARP_1: RESULT FUNCTION(RECORD_HYDRAHARP_1, __VA_ARGS__); break;                                        \
    case RECORD_HYDRAHARP_2: RESULT FUNCTION(RECORD_HYDRAHARP_2, __VA_ARGS__); break;                                        \
    }

PER_KIND bool is_photon(record_kind kind, uint32_t word)
{
    return kind == RECORD_PICOHARP ? word >> 28 != 15 : !(word >> 31);
}

PER_KIND uint32_t channel_of(record_kind kind, uint32_t word)
{
    return kind == RECORD_PICOHARP ? word >> 28 : word >> 25 & 63;
}

PER_KIND uint32_t bin_of(record_kind kind, uint32_t word)
{
    return kind == RECORD_PICOHARP ? word >> 16 & 0xfff : word >> 10 & 0x7fff;
}

/* Sync pulses since the last overflow record. */
PER_KIND uint32_t sync_of(record_kind kind, uint32_t word)
{
    return kind == RECORD_PICOHARP ? word & 0xffff : word & 1023;
}

/* Of a record that is no photon: the sync pulses that it says have overflowed; 0 for markers. */
PER_KIND uint64_t overflow_of(record_kind kind, uint32_t word)
{
    if (kind == RECORD_PICOHARP) {
        return bin_of(kind, word) == 0 ? 65536 : 0;
    }
    const uint32_t times = sync_of(kind, word);
    return channel_of(kind, word) == 63 ? 1024 * (uint64_t)(kind == RECORD_HYDRAHARP_2 && times > 1 ? times : 1) : 0;
}

/* Of such a record: the bits of its markers; 0 for overflows and what is not known. */
PER_KIND uint32_t markers_of(record_kind kind, uint32_t word)
{
    const uint32_t bits = kind == RECORD_PICOHARP ? bin_of(kind, word) & 15 : channel_of(kind, word);
    return bits <= 15 ? bits : 0;
}

/* ---- sorting ---- */

/* Records within the file. */
typedef struct record_list {
    const uint8_t *data; /* little-endian words */
    uint64_t n;
    record_kind kind;
} record_list;

/* A frame's marker may come this many sync pulses after the start of its first line, or before the stop of the last line of the
 * frame before: the pulses of a scanner rise together, and each is noted in a period of its own. */
enum { TOGETHER = 16 };

typedef struct sorter {
    const char *path;
    const ptu_tags *tags;
    record_list records;
    uint32_t detector;
    int64_t x, y, t;
    int bytes; /* per count: 2 or 4 */
    void *counts; /* (Y,X,T) */
    bool too_many; /* a count does not fit: nothing more is sorted */
    uint32_t start, stop, frame; /* bits of the markers; frame 0 = there is none */
    uint64_t base; /* sync pulses that overflow records have counted */
    uint64_t at; /* the next record */
    bool in_line, any_line; /* the latter: one has started */
    uint64_t line_at, line_base, line_start; /* its first record; base and time there */
    uint64_t line_photons, photons; /* of the detector, in the line until now and in all */
    uint64_t last; /* time of the last marker */
    int64_t row; /* of the frame; -1 before its first line */
    uint64_t placed;
} sorter;

static flim_status out_of_order(const sorter *s, const char *what, flim_error *err)
{
    const uint64_t record = s->at;
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: record %" PRIu64 " at offset %" PRIu64 ": %s: markers are out of order, and the file is damaged or "
                     "ImgHdr_LineStart, ImgHdr_LineStop or ImgHdr_Frame is wrong",
                     s->path, record, s->tags->data + 4 * record, what);
}

PER_KIND bool find_marker_of(record_kind kind, sorter *s, uint32_t *markers, uint64_t *time)
{
    uint64_t photons = 0, at = s->at, base = s->base;
    uint32_t found = 0;
    for (; at < s->records.n; at++) {
        const uint32_t word = flim_u32_at(s->records.data + 4 * at);
        if (is_photon(kind, word)) {
            photons += channel_of(kind, word) == s->detector;
            continue;
        }
        const uint64_t overflow = overflow_of(kind, word);
        base += overflow;
        found = overflow ? 0 : markers_of(kind, word);
        if (found) {
            *time = base + sync_of(kind, word);
            break;
        }
    }
    *markers = found;
    s->line_photons += photons;
    s->at = at;
    s->base = base;
    return found != 0;
}

/* The next record that is a marker at s->at; the photons before it are counted.  False at the end. */
static bool find_marker(sorter *s, uint32_t *markers, uint64_t *time)
{
    bool found = false;
    CALL_WITH_KIND(found =, find_marker_of, s->records.kind, s, markers, time)
    return found;
}

/* One photon more in that voxel; false if it is full. */
static inline bool place_photon(void *counts, int bytes, size_t voxel)
{
    return bytes == 2 ? ++((uint16_t *)counts)[voxel] != 0 : ++((uint32_t *)counts)[voxel] != 0;
}

/* The photons of a line from record line_at on, of `length` sync pulses, into the row of counts at voxel `row`; `back`: it was
 * scanned from right to left.  The pixel is floor(since * X / length): a product of floating point, which misses it by one at most, is
 * put right in integers, as a division per photon and the jumps of a search cost several times as much. */
PER_KIND void place_photons_of(record_kind kind, sorter *s, uint64_t length, size_t row, bool back)
{
    const uint8_t *data = s->records.data;
    const uint64_t pixels = (uint64_t)s->x, bins = (uint64_t)s->t, end = s->at;
    const uint32_t detector = s->detector;
    const double per_pulse = (double)pixels / (double)length;
    const int bytes = s->bytes;
    void *counts = s->counts;
    uint64_t base = s->line_base - s->line_start, placed = 0;
    for (uint64_t i = s->line_at; i < end; i++) {
        const uint32_t word = flim_u32_at(data + 4 * i);
        if (!is_photon(kind, word)) {
            base += overflow_of(kind, word);
            continue;
        }
        const uint64_t since = base + sync_of(kind, word), bin = bin_of(kind, word);
        if (channel_of(kind, word) != detector || since >= length || bin >= bins) {
            continue; /* before the line's start, `since` is beyond any length */
        }
        uint64_t x = (uint64_t)(int64_t)((double)(int64_t)since * per_pulse);
        x -= x * length > since * pixels;
        x += (x + 1) * length <= since * pixels;
        if (!place_photon(counts, bytes, row + (back ? pixels - 1 - x : x) * bins + bin)) {
            s->too_many = true;
            return;
        }
        placed++;
    }
    s->placed += placed;
}

/* The line has ended at `stop`.  Lines beyond the picture, a line without length, and photons whose time is not within it are in no
 * pixel. */
static void place_line(sorter *s, uint64_t stop)
{
    const uint64_t length = stop - s->line_start;
    if (s->row < 0 || s->row >= s->y || stop <= s->line_start || length >> 47) {
        return;
    }
    const size_t row = (size_t)(s->row * s->x) * (size_t)s->t;
    CALL_WITH_KIND(, place_photons_of, s->records.kind, s, length, row, s->tags->bidirectional > 0 && s->row % 2 == 1)
}

static void leave_line(sorter *s)
{
    s->photons += s->line_photons;
    s->line_photons = 0;
    s->in_line = false;
}

/* Does a stop follow a frame's marker so soon that both mean the end of the frame? */
static bool stop_follows(const sorter *s, uint64_t time)
{
    sorter ahead = *s;
    uint32_t markers;
    uint64_t when;
    ahead.at++;
    return find_marker(&ahead, &markers, &when) && (markers & s->stop) && when >= time && when - time <= TOGETHER;
}

/* A frame begins. */
static flim_status meet_frame(sorter *s, uint64_t time, flim_error *err)
{
    if (s->in_line && time - s->line_start <= TOGETHER) {
        s->row = 0; /* of the line that has just started */
        return FLIM_OK;
    }
    if (s->in_line && stop_follows(s, time)) {
        place_line(s, time);
        leave_line(s);
        s->any_line = false; /* the stop that follows ends nothing */
    }
    s->row = -1;
    return s->in_line ? out_of_order(s, "the marker of a frame within a line", err) : FLIM_OK;
}

static flim_status meet_markers(sorter *s, uint32_t markers, uint64_t time, flim_error *err)
{
    if (time < s->last) {
        return out_of_order(s, "a marker that is earlier than the one before", err);
    }
    s->last = time;
    if (markers & s->stop) {
        if (s->in_line) {
            place_line(s, time);
            leave_line(s);
        } else if (s->any_line && s->stop != s->start) {
            return out_of_order(s, "the stop of a line that has not started", err);
        }
    }
    if (markers & s->frame) {
        FLIM_TRY(meet_frame(s, time, err));
    }
    if (markers & s->start) {
        leave_line(s); /* one that never stopped has no length */
        s->in_line = s->any_line = true;
        s->line_start = time;
        s->line_at = s->at + 1;
        s->line_base = s->base;
        s->row++;
        if (!s->frame && s->row == s->y) { /* frames without a marker follow one another */
            s->row = 0;
        }
    }
    return FLIM_OK;
}

static flim_status list_records(const flim_mapped_file *f, const ptu_tags *tags, record_list *out, flim_error *err)
{
    const uint64_t there = (f->size - tags->data) / 4;
    /* A count of 0 or less is one that was never written: the file's size then decides. */
    *out = (record_list){f->data + tags->data, tags->records > 0 ? (uint64_t)tags->records : there, tags->kind};
    return out->n <= there ? FLIM_OK
                           : flim_fail(err, FLIM_ERROR_DATA,
                                       "%s: its header counts %" PRIu64 " records, but the file ends after %" PRIu64
                                       ", at offset %zu: the file is truncated",
                                       f->path, out->n, there, f->size);
}

/* The recording may begin within a line and end within one: a stop before the first start and a line that has no stop are those
 * of good files; their photons are in no pixel. */
static flim_status sort_records(sorter *s, flim_error *err)
{
    uint32_t markers;
    uint64_t time = 0;
    for (; find_marker(s, &markers, &time) && !s->too_many; s->at++) {
        FLIM_TRY(meet_markers(s, markers, time, err));
    }
    leave_line(s);
    return FLIM_OK;
}

/* Bit d: detector d has photons. */
static uint64_t find_detectors(const record_list *r)
{
    const int shift = r->kind == RECORD_PICOHARP ? 28 : 25; /* above it: the channel, and what makes a record special */
    uint8_t seen[128] = {0};
    uint64_t found = 0;
    for (uint64_t i = 0; i < r->n; i++) {
        seen[flim_u32_at(r->data + 4 * i) >> shift] = 1;
    }
    for (uint32_t top = 0; top < 128; top++) {
        const uint32_t word = top << shift;
        found |= seen[top] && is_photon(r->kind, word) ? (uint64_t)1 << channel_of(r->kind, word) : 0;
    }
    return found;
}

/* ---- the file ---- */

static flim_status check_image(const flim_mapped_file *f, const ptu_tags *tags, flim_error *err)
{
    if (tags->dimensions > 0 && tags->dimensions != 3) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: a measurement of %s, expected an image scan", f->path,
                         tags->dimensions == 1 ? "a point" : "a line");
    }
    if (tags->pixels_x < 1 || tags->pixels_y < 1 || tags->pixels_x > MOST_PIXELS || tags->pixels_y > MOST_PIXELS) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: a picture of %" PRId64 " x %" PRId64
                         " pixels (ImgHdr_PixY, ImgHdr_PixX), expected 1 to %d each",
                         f->path, tags->pixels_y, tags->pixels_x, MOST_PIXELS);
    }
    if (tags->line_start < 1 || tags->line_start > 4 || tags->line_stop < 1 || tags->line_stop > 4 || tags->frame < 0 ||
        tags->frame > 4) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: markers %" PRId64 ", %" PRId64 " and %" PRId64 " for start, stop and frame (ImgHdr_LineStart, "
                         "ImgHdr_LineStop, ImgHdr_Frame), expected 1 to 4",
                         f->path, tags->line_start, tags->line_stop, tags->frame);
    }
    if (!(tags->resolution > 0 && tags->resolution < 1) || !(tags->global_resolution > 0 && tags->global_resolution < 1) ||
        tags->global_resolution / tags->resolution > 32768) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: time bins of %g s in a laser period of %g s (MeasDesc_Resolution, MeasDesc_GlobalResolution), "
                         "expected 1 to 32768 of them",
                         f->path, tags->resolution, tags->global_resolution);
    }
    return FLIM_OK;
}

/* Bins in a laser period.  Files round both times: a quotient a millionth above a whole number is that number. */
static int64_t bins_of(const ptu_tags *tags)
{
    return (int64_t)ceil(tags->global_resolution / tags->resolution - 1e-6);
}

static flim_status open_ptu(flim_field_file *file, flim_error *err)
{
    ptu_tags tags;
    FLIM_TRY(read_tags(file, &tags, err));
    FLIM_TRY(check_records(&file->map, &tags, err));
    FLIM_TRY(check_image(&file->map, &tags, err));
    record_list records;
    FLIM_TRY(list_records(&file->map, &tags, &records, err));
    const uint64_t found = find_detectors(&records);
    for (int d = 0; d < DETECTORS; d++) {
        if (found >> d & 1) {
            flim_field_image image = {.y = tags.pixels_y, .x = tags.pixels_x, .t = bins_of(&tags)};
            image.range_ns = (double)image.t * tags.resolution * 1e9;
            snprintf(image.name, sizeof image.name, "detector %d", d);
            FLIM_TRY(flim_field_add_image(file, &image, (uint64_t)d, err));
        }
    }
    return FLIM_OK;
}

static flim_status read_ptu(flim_field_file *file, int image, flim_counts *out, flim_error *err)
{
    const flim_field_image *b = &file->image[image];
    ptu_tags tags;
    sorter s = {.path = file->map.path, .tags = &tags, .too_many = true};
    record_list records;
    FLIM_TRY(read_tags(file, &tags, err));
    FLIM_TRY(check_records(&file->map, &tags, err));
    FLIM_TRY(list_records(&file->map, &tags, &records, err));
    const size_t voxels = (size_t)(b->y * b->x * b->t);
    *out = (flim_counts){.y = b->y, .x = b->x, .t = b->t, .y_step = b->x * b->t, .x_step = b->t, .t_step = 1};
    for (int bytes = 2; bytes <= 4 && s.too_many; bytes += 2) {
        flim_free(out->memory);
        out->data = out->memory = flim_alloc_large(voxels, (size_t)bytes, err);
        if (!out->memory) {
            return FLIM_ERROR_MEMORY;
        }
        out->bytes = bytes;
        s = (sorter){.path = file->map.path,
                     .tags = &tags,
                     .records = records,
                     .detector = (uint32_t)file->place[image],
                     .x = b->x,
                     .y = b->y,
                     .t = b->t,
                     .bytes = bytes,
                     .counts = out->memory,
                     .start = 1u << (tags.line_start - 1),
                     .stop = 1u << (tags.line_stop - 1),
                     .frame = tags.frame > 0 ? 1u << (tags.frame - 1) : 0,
                     .row = -1};
        FLIM_TRY(sort_records(&s, err));
    }
    file->unplaced = s.photons - s.placed;
    return s.too_many
               ? flim_fail(err, FLIM_ERROR_DATA, "%s: more than %" PRIu32 " photons in one voxel", file->map.path, UINT32_MAX)
               : FLIM_OK;
}

const flim_field_format flim_format_ptu = {"PicoQuant .ptu", is_ptu, open_ptu, read_ptu, NULL, false};
